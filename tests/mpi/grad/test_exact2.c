/* mpi: 2
 * timeout: 200
 * What test_exact4.c asks of four ranks, of two. */
#define RANKS 2
#include "tests/mpi/grad/test_exact4.c"
