// ctest: ranks=3 timeout=200
/* The tests of test_exact4.c on three ranks. */
#define RANKS 3
#include "tests/mpi/grad/test_exact4.c"
