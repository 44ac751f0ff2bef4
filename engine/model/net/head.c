/* head.c - the final norm and the head behind it: the loss over the vocabulary or over classes, the mean over an
 * ensemble, and the draw of a token.
 *
 * Classes: cross-entropy at the last token of each text, where the data have the number of its class as the target
 * (data/chat/instruct.h). Rows are texts, few of a micro-batch, so that plain loops over (texts, classes, C) in fp32
 * take no measurable part of a step. Each row and each class belongs to one thread, and sums run in one order: the
 * bits do not depend on the threads. Every rank of a tensor-parallel group computes all of it. */
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

void bt_net_final_norm(bt_model *m, size_t M) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_rows own = m->tp->own_rows(m, M);
    bt_op_rmsnorm(m->layers[0].a.xn + own.first * (size_t)c->C, m->final_rstd + own.first,
                  m->x_final, m->final_norm.w, (float)c->norm_eps, own.n, (size_t)c->C);
}

enum { LANES = 16 };

static float dot_rows(const float *restrict a, const float *restrict b, size_t n) {
    float lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) lane[k] += a[i + k] * b[i + k];
    for (size_t k = 0; k < LANES; k++) sum += lane[k];
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *restrict y, const float *restrict x, float by, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += by * x[i];
}

typedef struct class_job {
    const bt_class_head *h;
    const float *xn; /* (M, C) */
    float *dxn;      /* (M, C), zeros; NULL: no gradient */
    bool adds_dxn;   /* ranks add their parts, so exactly one rank contributes the whole value */
    float *logits;   /* (n, classes) logits, later the gradient of the loss */
    float *loss;     /* (M) */
    const int32_t *targets, *rows;
    size_t C, K, n;
    double dscale;
} class_job;

static void text_range(void *ctx, int thread, size_t begin, size_t end) {
    const class_job *j = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const size_t row = (size_t)j->rows[i], target = (size_t)j->targets[row];
        float *z = j->logits + i * j->K;
        size_t best = 0;
        double sum = 0;
        for (size_t k = 0; k < j->K; k++) {
            z[k] = dot_rows(j->h->w + k * j->C, j->xn + row * j->C, j->C);
            if (z[k] > z[best]) best = k;
        }
        const double most = (double)z[best];
        for (size_t k = 0; k < j->K; k++) sum += exp((double)z[k] - most);
        j->loss[row] = (float)(most + log(sum) - (double)z[target]);
        j->h->picked[i] = (int32_t)best;
        for (size_t k = 0; k < j->K; k++) {
            const double p = exp((double)z[k] - most) / sum;
            z[k] = (float)(j->dscale * (p - (k == target)));
            if (j->adds_dxn) add_scaled(j->dxn + row * j->C, j->h->w + k * j->C, z[k], j->C);
        }
    }
}

static void class_range(void *ctx, int thread, size_t begin, size_t end) {
    const class_job *j = ctx;
    (void)thread;
    for (size_t k = begin; k < end; k++)
        for (size_t i = 0; i < j->n; i++)
            add_scaled(j->h->dw + k * j->C, j->xn + (size_t)j->rows[i] * j->C,
                       j->logits[i * j->K + k], j->C);
}

static void score_texts(bt_model *m, const class_job *j) {
    for (size_t i = 0; i < j->n; i++) {
        const size_t is = (size_t)j->targets[j->rows[i]], said = (size_t)j->h->picked[i];
        m->score.n++;
        m->score.right += is == said;
        j->h->confusion[is * j->K + said]++;
    }
}

/* Selects the next texts from row `at` on, as many as fit the room for logits. */
static size_t next_rows(const bt_model *m, const int32_t *targets, size_t *at, size_t M) {
    const size_t most = m->logits_rows * bt_ops_logits_ld((size_t)m->setup.cfg.V) /
                        (size_t)m->setup.cfg.classes;
    size_t n = 0;
    for (; *at < M && n < most; ++*at)
        if (targets[*at] >= 0) m->classes.rows[n++] = (int32_t)*at;
    return n;
}

static double class_loss(bt_model *m, const int32_t *targets, double dscale) {
    const size_t C = (size_t)m->setup.cfg.C, M = (size_t)m->setup.B * (size_t)m->setup.cfg.T;
    const bt_acts *a = &m->layers[0].a;
    class_job j = {.h = &m->classes,
                   .xn = a->xn,
                   .dxn = dscale != 0 ? a->dxn : NULL,
                   .adds_dxn = dscale != 0 && m->setup.slice.tp_rank == 0,
                   .logits = m->logits,
                   .loss = m->row_loss,
                   .targets = targets,
                   .rows = m->classes.rows,
                   .C = C,
                   .K = (size_t)m->setup.cfg.classes,
                   .dscale = dscale};
    double loss = 0;
    bt_net_final_norm(m, M);
    m->tp->gather_final(m, M);
    m->tp->meet(m); /* before a.dxn, which the group's ranks read */
    memset(m->row_loss, 0, M * sizeof *m->row_loss);
    if (j.dxn) memset(j.dxn, 0, M * C * sizeof *j.dxn);
    for (size_t at = 0; (j.n = next_rows(m, targets, &at, M)) > 0;) {
        bt_parallel_for(j.n, 1, text_range, &j);
        if (j.dxn) bt_parallel_for(j.K, 1, class_range, &j);
        score_texts(m, &j);
    }
    for (size_t i = 0; i < M; i++) loss += (double)m->row_loss[i];
    return loss;
}

void bt_model_class_probabilities(bt_model *m, size_t n, float *out) {
    const size_t C = (size_t)m->setup.cfg.C, K = (size_t)m->setup.cfg.classes;
    double most = -INFINITY, sum = 0;
    bt_net_final_norm(m, n);
    for (size_t k = 0; k < K; k++) {
        out[k] = dot_rows(m->classes.w + k * C, m->layers[0].a.xn + (n - 1) * C, C);
        most = fmax(most, (double)out[k]);
    }
    for (size_t k = 0; k < K; k++) sum += exp((double)out[k] - most);
    for (size_t k = 0; k < K; k++) out[k] = (float)(exp((double)out[k] - most) / sum);
}

const double *bt_model_confusion(const bt_model *m) {
    return m->setup.cfg.classes ? m->classes.confusion : NULL;
}

double bt_net_head_loss(bt_model *m, const int32_t *targets, float dscale) {
    size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T;
    if (m->classes.tensor) return class_loss(m, targets, (double)dscale);
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

/* y := softmax(x) where stat is of the whole row of x; y may be x */
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
    mean_job { /* rows of m->logits; of: member to add, m: initialise, NULL: logits of the mean */
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
