/* mpi: 4
 * What test_reproducible.c asks of three ranks, of four, with replicas of shards besides. */
#define RANKS "4"
#define SHARES "3,1,8,4"
#define EQUAL_SHARES
#define HYBRID
#include "tests/mpi/test_reproducible.c"
