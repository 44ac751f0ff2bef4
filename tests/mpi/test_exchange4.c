// ctest: ranks=4 timeout=200
/* test_exchange.c on four ranks: whole subtrees on two hosts. */
#define RANKS 4
#include "tests/mpi/test_exchange.c"
