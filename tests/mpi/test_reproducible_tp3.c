/* mpi: 3
 * What test_reproducible_tp.c asks of two ranks and eight parts, of three and six: any number of
 * parts is added as one tree. */
#define RANKS 3
#define TP "3"
#define REST_TP "1"
#include "tests/mpi/test_reproducible_tp.c"
