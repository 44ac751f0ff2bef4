/* mpi: 6
 * The same of six ranks, with a part each: three of them share a kv head; meshes of both kinds. */
#define RANKS 6
#define TP "6"
#define REST_TP "3"
#define FEW "2"
#include "tests/mpi/test_reproducible_tp.c"
