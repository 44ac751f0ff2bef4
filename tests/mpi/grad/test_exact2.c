// ctest: ranks=2 timeout=200
/* The tests of test_exact4.c on two ranks. */
#define RANKS 2
#include "tests/mpi/grad/test_exact4.c"
