// ctest: ranks=6
/* The rows of test_reproducible.c for 6 ranks: six parts, one or two on each tensor-parallel rank. */
#define RANKS 6
#define TP "6"
#define REST_TP "3"
#define SHARES "1,1,1,1,1,1"
#include "tests/mpi/test_reproducible.c"
