/* mpi: 4
 * test_exchange.c on four ranks: whole subtrees on two hosts. */
#include "tests/mpi/test_exchange.c"
