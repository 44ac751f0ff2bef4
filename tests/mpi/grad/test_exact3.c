/* mpi: 3
 * timeout: 200
 * What test_exact4.c asks of four ranks, of three. */
#define RANKS 3
#include "tests/mpi/grad/test_exact4.c"
