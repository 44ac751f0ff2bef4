/* distil.c - distillation, from a teacher or from its likeliest tokens that were kept: of the learned tokens
 * (1 - mix) CE + mix tau^2 KL(teacher^tau || student^tau), ^tau a softmax of logits over tau
 * (arXiv:1503.02531). Logits of both models are there in chunks of rows; the gradient takes the place of
 * the student's. */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/net.h"

void bt_model_distil(bt_model *m, bt_distil how) { m->distil = how; }

typedef struct rows_job {
    float *student;
    const float *teacher; /* NULL: `kept` */
    const bt_top_row *kept;
    const int32_t *targets;
    float *loss;
    bt_distil how;
    double dscale;
    size_t V, ld;
} rows_job;

/* log of the sum of exp(x / tau) */
static double log_sum(const float *x, size_t n, double tau) {
    float most = x[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp(((double)x[i] - (double)most) / tau);
    return (double)most / tau + log(sum);
}

static void one_row(const rows_job *j, float *s, const float *t, int32_t target, float *loss) {
    const double tau = j->how.tau, mix = j->how.mix, plain = log_sum(s, j->V, 1),
                 soft = log_sum(s, j->V, tau), taught = log_sum(t, j->V, tau);
    double kl = 0, ce = plain - (double)s[target];
    for (size_t i = 0; i < j->V; i++) {
        const double x = (double)s[i], lt = (double)t[i] / tau - taught, ls = x / tau - soft,
                     p = exp(lt);
        kl += p * (lt - ls);
        s[i] = (float)(j->dscale * ((1 - mix) * exp(x - plain) + mix * tau * (exp(ls) - p)));
    }
    s[target] -= (float)(j->dscale * (1 - mix));
    *loss = (float)((1 - mix) * ce + mix * tau * tau * kl);
}

/* log of the sum of exp(x) */
static double log_sum_of(const double *x, size_t n) {
    double most = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return most + log(sum);
}

/* the divergence is of the tokens that were kept alone */
static void kept_row(const rows_job *j, float *s, const bt_top_row *t, int32_t target,
                     float *loss) {
    const double tau = j->how.tau, mix = j->how.mix, plain = log_sum(s, j->V, 1);
    const size_t k = (size_t)j->how.k;
    double ls[BT_TOP_MOST], lt[BT_TOP_MOST], kl = 0;
    const double ce = plain - (double)s[target];
    float logs[BT_TOP_MOST];
    bt_k()->from_half(logs, t->logs, k);
    ls[0] = lt[0] = 0; /* k is 1 at least, which the compiler does not know */
    for (size_t i = 0; i < k; i++) ls[i] = (double)s[t->ids[i]] / tau;
    for (size_t i = 0; i < k; i++) lt[i] = (double)logs[i] / tau;
    const double soft = log_sum_of(ls, k), taught = log_sum_of(lt, k);
    for (size_t i = 0; i < j->V; i++)
        s[i] = (float)(j->dscale * (1 - mix) * exp((double)s[i] - plain));
    for (size_t i = 0; i < k; i++) {
        const double p = exp(lt[i] - taught), q = exp(ls[i] - soft);
        kl += p * ((lt[i] - taught) - (ls[i] - soft));
        s[t->ids[i]] += (float)(j->dscale * mix * tau * (q - p));
    }
    s[target] -= (float)(j->dscale * (1 - mix));
    *loss = (float)((1 - mix) * ce + mix * tau * tau * kl);
}

static void do_rows(void *ctx, int thread, size_t begin, size_t end) {
    const rows_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        j->loss[r] = 0;
        if (j->targets[r] < 0)
            memset(j->student + r * j->ld, 0, j->V * sizeof *j->student);
        else if (!j->teacher)
            kept_row(j, j->student + r * j->ld, j->kept + r, j->targets[r], j->loss + r);
        else
            one_row(j, j->student + r * j->ld, j->teacher + r * j->ld, j->targets[r], j->loss + r);
    }
}

/* the teacher sees what the student sees */
static void teach(const bt_model *m, bt_model *teacher, const int32_t *inputs, size_t B, size_t T) {
    const size_t M = B * T;
    teacher->n_documents = m->n_documents;
    if (m->n_documents)
        memcpy(teacher->documents, m->documents, m->n_documents * sizeof *m->documents);
    if (m->n_documents) memcpy(teacher->pos, m->pos, M * sizeof *m->pos);
    bt_net_adapters(teacher, false);
    bt_net_forward(teacher, inputs, B, T);
    bt_net_final_norm(teacher, M);
}

static void teacher_logits(bt_model *t, size_t at, size_t n, size_t ld) {
    const size_t C = (size_t)t->setup.cfg.C;
    bt_op_gemm_table(t->logits, ld, t->layers[0].a.xn + at * C, C, t->head, C, 1, n,
                     (size_t)t->setup.cfg.V, C, t->setup.prec, 0);
}

double bt_net_distil_loss(bt_model *m, const int32_t *inputs, const int32_t *targets,
                          double grad_scale) {
    bt_model *t = m->distil.teacher;
    const bt_acts *a = &m->layers[0].a;
    const size_t B = (size_t)m->setup.B, T = (size_t)m->setup.cfg.T, M = B * T,
                 V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C, ld = bt_ops_logits_ld(V),
                 chunk = t && t->logits_rows < m->logits_rows ? t->logits_rows : m->logits_rows;
    const bt_prec prec = m->setup.prec;
    double loss = 0;
    if (t) teach(m, t, inputs, B, T);
    bt_net_forward(m, inputs, B, T);
    bt_span_begin(BT_MR_BWD);
    bt_net_final_norm(m, M);
    for (size_t at = 0, n; at < M; at += n) {
        n = M - at < chunk ? M - at : chunk;
        const float *x = a->xn + at * C;
        float *dx = a->dxn + at * C;
        bt_op_gemm_table(m->logits, ld, x, C, m->head, C, 1, n, V, C, prec, 0);
        if (t) teacher_logits(t, at, n, ld);
        rows_job j = {.student = m->logits,
                      .teacher = t ? t->logits : NULL,
                      .kept = t ? NULL : m->distil.rows + at,
                      .targets = targets + at,
                      .loss = m->row_loss + at,
                      .how = m->distil,
                      .dscale = grad_scale,
                      .V = V,
                      .ld = ld};
        bt_parallel_for(n, 1, do_rows, &j);
        bt_op_gemm_table(dx, C, m->logits, ld, m->head, C, 0, n, C, V, prec, 0);
        if (m->d_head)
            bt_op_gemm(m->d_head, C, m->logits, ld, 1, x, C, 0, 1.0f, V, C, n, prec, BT_ACC);
    }
    for (size_t i = 0; i < M; i++) loss += (double)m->row_loss[i];
    bt_span_end();
    return loss;
}

/* ---- what is kept of a teacher's pass (tune/logit_file.h) -------------------------------------- */

typedef struct top_job {
    const float *logits;
    const int32_t *targets;
    uint32_t *ids;
    float *logs;
    size_t V, ld, k;
} top_job;

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
        const double whole = log_sum(z, j->V, 1);
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
