/* mpi: 4
 * Data parallelism on four ranks: what test_dp.c asks of two. */
#include "tests/mpi/test_dp.c"
