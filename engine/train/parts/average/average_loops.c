/* average_loops.c - the loop over the elements of an average. */
#include "engine/train/parts/average/average_loops.h"
#include "engine/base/threads.h"

enum { GRAIN = 1 << 14 };

typedef struct average_job {
    float *average;
    const float *w;
    float share;
} average_job;

/* a share of 1 copies the weights exactly */
static void move_average(void *ctx, int thread, size_t begin, size_t end) {
    const average_job *j = ctx;
    float *restrict average = j->average;
    const float *restrict w = j->w;
    const float share = j->share, keep = 1 - share;
    (void)thread;
    for (size_t i = begin; i < end; i++) average[i] = keep * average[i] + share * w[i];
}

void bt_average_move(float *average, const float *w, size_t n, float share) {
    average_job j = {average, w, share};
    bt_parallel_for(n, GRAIN, move_average, &j);
}
