// ctest: ranks=4
/* The rows of test_reproducible.c for 4 ranks: fewer kv heads than ranks, meshes with tensor and data parallelism,
 * replicas of shards. */
#define RANKS 4
#define TP "4"
#define REST_TP "2"
#define SHARES "3,1,8,4"
#include "tests/mpi/test_reproducible.c"
