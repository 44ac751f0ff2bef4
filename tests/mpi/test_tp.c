/* mpi: 2
 * Tensor parallelism on two ranks: the story of one rank, gradients tensor by tensor, bytes as the formula says. */
#include "tests/mpi/tp.h"

static const tp_layout layouts[] = {
    {"tp 2", {"--tp", "2"}},
    {"tp 2, residual on every rank", {"--tp", "2", "--set", "mesh.sequence=false"}},
    {"tp 2, 4 micro-batches, selective", {"--tp", "2", "--micro-batch", "2", "--recompute", "selective"}},
    {"tp 2, full recompute", {"--tp", "2", "--recompute", "full"}},
};
TP_MAIN(2, layouts)
