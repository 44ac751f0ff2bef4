// ctest: ranks=2
/* The rows of test_reproducible.c for 2 ranks: every kind of model over two tensor-parallel ranks. */
#define RANKS 2
#define TP "2"
#define REST_TP "1"
#define SHARES "5,1"
#include "tests/mpi/test_reproducible.c"
