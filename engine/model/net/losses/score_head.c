/* score_head.c - the final norm, and the head of a classifier or of a reward model that follows it: one score for each
 * class, or one reward, from the last token of each text.
 *
 * Classes: cross-entropy at the last token, where the target in the data is the number of the class
 * (data/chat/instruct.h). Rewards: the loss of pairs of answers, from their difference (arXiv:2203.02155, equation 1).
 * A micro-batch contains few texts, so simple loops over (texts, classes, C) in fp32 take a negligible part of a step.
 * Each text and each class is processed by one thread, and sums have one order: the bits do not depend on the threads.
 * Every rank of a tensor-parallel group computes all of it. */
#include <math.h>
#include <string.h>

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

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

void bt_net_scores_begin(bt_model *m, bool grad) {
    const size_t C = (size_t)m->setup.cfg.C, M = (size_t)m->setup.B * (size_t)m->setup.cfg.T;
    const bt_acts *a = &m->layers[0].a;
    bt_net_final_norm(m, M);
    m->tp->gather_final(m, M);
    m->tp->meet(m); /* before a.dxn changes, which the ranks of the group read */
    memset(m->row_loss, 0, M * sizeof *m->row_loss);
    if (grad) memset(a->dxn, 0, M * C * sizeof *a->dxn);
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

/* Selects the next texts from row `at` on, as many as the memory for logits can contain. */
static size_t next_rows(const bt_model *m, const int32_t *targets, size_t *at, size_t M) {
    const size_t most = m->logits_rows * bt_ops_logits_ld((size_t)m->setup.cfg.V) /
                        (size_t)m->setup.cfg.classes;
    size_t n = 0;
    for (; *at < M && n < most; ++*at)
        if (targets[*at] >= 0) m->classes.rows[n++] = (int32_t)*at;
    return n;
}

double bt_net_class_loss(bt_model *m, const int32_t *targets, double dscale) {
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
    bt_net_scores_begin(m, dscale != 0);
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
    return m->setup.cfg.classes > 1 ? m->classes.confusion : NULL;
}

double bt_net_reward(const bt_model *m, const bt_attn_document *d) {
    const size_t C = (size_t)m->setup.cfg.C, last = d->row + d->n - 1;
    return (double)dot_rows(m->classes.w, m->layers[0].a.xn + last * C, C);
}

void bt_net_reward_gradient(bt_model *m, const bt_attn_document *d, double by_reward) {
    const size_t C = (size_t)m->setup.cfg.C, last = d->row + d->n - 1;
    const bt_acts *a = &m->layers[0].a;
    add_scaled(m->classes.dw, a->xn + last * C, (float)by_reward, C);
    if (m->setup.slice.tp_rank == 0) /* The ranks add their parts. */
        add_scaled(a->dxn + last * C, m->classes.w, (float)by_reward, C);
}

double bt_model_reward(bt_model *m, size_t n) {
    bt_net_final_norm(m, n);
    return bt_net_reward(m, &(bt_attn_document){.row = 0, .n = n});
}
