/* top_logits.c - the likeliest tokens at each learned target of a pass: what a file of a teacher's logits
 * keeps (tune/logit_file.h). */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/model/net/net.h"

typedef struct top_job {
    const float *logits;
    const int32_t *targets;
    uint32_t *ids;
    float *logs;
    size_t V, ld, k;
} top_job;

static double log_sum_exp(const float *z, size_t n) {
    float most = z[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++) most = z[i] > most ? z[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp((double)z[i] - (double)most);
    return (double)most + log(sum);
}

/* The k largest, in order; of equal ones the smaller token first. Few tokens of a row displace one that is
 * there already: insertion is enough. */
static void pick(const float *z, size_t V, size_t k, uint32_t *ids) {
    size_t n = 0;
    for (size_t i = 0; i < V; i++) {
        if (n == k && !(z[i] > z[ids[k - 1]])) continue;
        size_t at = n < k ? n++ : k - 1;
        for (; at > 0 && z[i] > z[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (uint32_t)i;
    }
}

static void top_range(void *ctx, int thread, size_t begin, size_t end) {
    const top_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *z = j->logits + r * j->ld;
        uint32_t *ids = j->ids + r * j->k;
        if (j->targets[r] < 0) continue;
        pick(z, j->V, j->k, ids);
        const double whole = log_sum_exp(z, j->V);
        for (size_t i = 0; i < j->k; i++)
            j->logs[r * j->k + i] = (float)((double)z[ids[i]] - whole);
    }
}

void bt_model_top_logits(bt_model *m, const int32_t *targets, size_t k, uint32_t *ids,
                         float *logs) {
    const size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T, V = (size_t)m->setup.cfg.V,
                 C = (size_t)m->setup.cfg.C, ld = bt_ops_logits_ld(V);
    for (size_t at = 0, n; at < M; at += n) {
        n = bt_min_size(m->logits_rows, M - at);
        bt_op_gemm_table(m->logits, ld, m->layers[0].a.xn + at * C, C, m->head, C, 1, n, V, C,
                         m->setup.prec, 0);
        if (m->head_form.cap > 0) bt_op_soft_cap(m->logits, ld, m->head_form.cap, n, V);
        top_job j = {m->logits, targets + at, ids + at * k, logs + at * k, V, ld, k};
        bt_parallel_for(n, 1, top_range, &j);
    }
}
