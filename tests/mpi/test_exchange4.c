// ctest: ranks=4 timeout=200
/* The tests of test_exchange.c on four ranks, where each of two hosts has a whole subtree of the addition tree. */
#define RANKS 4
#include "tests/mpi/test_exchange.c"
