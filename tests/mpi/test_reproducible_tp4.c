/* mpi: 4
 * What test_reproducible_tp.c asks of two ranks, of four: fewer kv heads than ranks, and meshes of
 * both kinds. */
#define RANKS 4
#define TP "4"
#define REST_TP "2"
#include "tests/mpi/test_reproducible_tp.c"
