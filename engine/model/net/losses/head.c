/* head.c - the head over the vocabulary: its loss, the mean over an ensemble, and the choice of a token. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/net.h"
#include "engine/model/net/sampler.h"

double bt_net_head_loss(bt_model *m, const int32_t *targets, float dscale) {
    size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T;
    if (m->classes.tensor) return bt_net_class_loss(m, targets, (double)dscale);
    bt_net_final_norm(m, M);
    return m->tp->head_loss(m, targets, dscale, M);
}

void bt_model_add_member(bt_model *m, bt_model *member) {
    while (m->member) m = m->member;
    m->member = member;
}

size_t bt_model_members(const bt_model *m) {
    size_t n = 0;
    for (; m; m = m->member) n++;
    return n;
}

/* Computes y = softmax(x). stat: of the whole row of x. y may be x. */
static void put_probabilities(float *y, const float *x, bt_row_stat stat, size_t n) {
    const float factor = (float)(1 / stat.sum);
    const int32_t nowhere = -1;
    if (y != x) memcpy(y, x, n * sizeof *y);
    bt_active_kernels()->row_softmax(y, &stat.a, &factor, &nowhere, 0, 1, n);
}

static bt_row_stat logits_stat(const float *logits, size_t V) {
    bt_row_stat stat;
    const int32_t nowhere = -1;
    bt_active_kernels()->row_lse(&stat, logits, &nowhere, 1, V);
    return stat;
}

void bt_net_mean_put(float *sum, const float *logits, size_t V) {
    put_probabilities(sum, logits, logits_stat(logits, V), V);
}

void bt_net_mean_add(float *sum, const float *logits, size_t V) {
    enum { BLOCK = 1024 };
    float p[BLOCK];
    const bt_row_stat stat = logits_stat(logits, V);
    for (size_t at = 0; at < V; at += BLOCK) {
        const size_t n = bt_min_size(V - at, BLOCK);
        put_probabilities(p, logits + at, stat, n);
        bt_active_kernels()->add(sum + at, p, n);
    }
}

void bt_net_mean_logits(float *sum, size_t V, size_t n) {
    for (size_t i = 0; i < V; i++)
        sum[i] = (float)log(fmax((double)sum[i] / (double)n, (double)FLT_MIN));
}

typedef struct
    /* Rows of m->logits. of: the member to add; m itself: initialise the sum; NULL: compute the logits of the mean. */
    mean_job {
    bt_model *m, *of;
    size_t ld, n;
} mean_job;

static void mean_logits_range(void *ctx, int thread, size_t begin, size_t end) {
    const mean_job *j = ctx;
    const size_t V = (size_t)j->m->setup.cfg.V;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        float *mean = j->m->logits + r * j->ld;
        if (!j->of)
            bt_net_mean_logits(mean, V, j->n);
        else if (j->of == j->m)
            bt_net_mean_put(mean, mean, V);
        else
            bt_net_mean_add(mean, j->of->logits + r * j->ld, V);
    }
}

size_t bt_net_logits_rows(const bt_model *m) {
    size_t rows = m->logits_rows;
    for (; m; m = m->member) rows = bt_min_size(rows, m->logits_rows);
    return rows;
}

void bt_net_logits(bt_model *m, size_t at, size_t n, size_t ld) {
    mean_job j = {.m = m, .ld = ld, .n = bt_model_members(m)};
    for (bt_model *x = m; x; x = x->member) {
        const size_t C = (size_t)x->setup.cfg.C, V = (size_t)x->setup.cfg.V;
        bt_op_gemm_table(x->logits, ld, x->layers[0].a.xn + at * C, C, x->head, C, 1, n, V, C,
                         x->setup.prec, 0);
        if (x->head_form.cap > 0) bt_op_soft_cap(x->logits, ld, x->head_form.cap, n, V);
        j.of = x;
        if (m->member) bt_parallel_for(n, 1, mean_logits_range, &j);
    }
    j.of = NULL;
    if (m->member) bt_parallel_for(n, 1, mean_logits_range, &j);
}

static double gumbel(const bt_draw *how, int64_t token) {
    uint64_t stream = bt_hash_name("draw") ^ how->index;
    double u = bt_rng_unit(how->seed, stream, (uint64_t)token);
    return -log(-log(u > 0 ? u : 0x1p-54));
}

bt_drawn bt_net_draw(const float *logits, size_t n, int64_t first, const bt_draw *how) {
    bt_drawn best = {-INFINITY, first};
    for (size_t i = 0; i < n; i++) {
        int64_t token = first + (int64_t)i;
        double score = how->temperature > 0
                           ? (double)logits[i] / how->temperature + gumbel(how, token)
                           : (double)logits[i];
        if (score > best.score) best = (bt_drawn){score, token};
    }
    return best;
}
