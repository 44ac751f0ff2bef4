/* mpi: 2
 * What test_reproducible.c asks of three ranks, of two. */
#define RANKS "2"
#define SHARES "5,1"
#define EQUAL_SHARES
#include "tests/mpi/test_reproducible.c"
