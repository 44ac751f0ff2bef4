// ctest: ranks=4
/* Data parallelism on four ranks: the tests of test_dp.c. */
#include "tests/mpi/test_dp.c"
