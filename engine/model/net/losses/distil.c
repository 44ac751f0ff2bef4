/* distil.c - distillation from a teacher, or from its likeliest tokens that were stored. The loss of a learned token is
 * (1 - mix) CE + mix tau^2 KL(teacher^tau || student^tau), where ^tau is a softmax of the logits over tau
 * (arXiv:1503.02531). Logits of both models exist for a chunk of rows at a time; the gradient replaces the
 * student's. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/net.h"
#include "engine/model/shape/leaves.h"

void bt_model_distil(bt_model *m, bt_distil how) {
    assert(m->distil_parts || (!how.teacher && !how.rows));
    assert(!(how.relation > 0) || (m->relation.dx[0] && how.teacher->relation.layer));
    m->distil = how;
}

typedef struct rows_job {
    float *student;       /* (rows, ld) logits of this rank's vocabulary; later their gradient */
    const float *teacher; /* the same of the teacher; NULL: `kept` is used */
    const bt_top_row *kept;
    const int32_t *targets;
    float *loss;
    bt_distil how;
    bt_head_form form;
    bt_vocab_part vocab;
    bt_distil_part *mine;      /* (rows) results of this rank's range */
    const bt_distil_part *all; /* (ranks, rows) */
    double dscale;
    size_t rows, V, ld;
} rows_job;

static double log_sum(const float *x, size_t n) {
    float most = x[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)most);
    return (double)most + log(sum);
}

/* Computes the logarithms of the teacher's probabilities over tau, normalised over the stored tokens. */
static void teacher_logs_of_stored(const rows_job *j, const bt_top_row *t, double *out) {
    const size_t k = (size_t)j->how.k;
    float logs[BT_TOP_MOST];
    double sum = 0;
    bt_active_kernels()->from_half(logs, t->logs, k);
    for (size_t i = 0; i < k; i++) out[i] = (double)logs[i] / j->how.tau;
    const double most = out[0];
    for (size_t i = 0; i < k; i++) sum += exp(out[i] - most);
    for (size_t i = 0; i < k; i++) out[i] -= most + log(sum);
}

/* Sums over the vocabulary are computed over ranges, and their results joined as a tree, so that they have the same
 * bits in any tensor-parallel size (leaves). */

static double rescale_sum(double from, double to) { return from == to ? 1 : exp(from - to); }

static bt_distil_part join_distil_parts(bt_distil_part x, bt_distil_part y) {
    const double top = fmax(x.top, y.top), soft = fmax(x.soft_top, y.soft_top),
                 taught = fmax(x.taught_top, y.taught_top), tx = rescale_sum(x.taught_top, taught),
                 ty = rescale_sum(y.taught_top, taught);
    return (bt_distil_part){.top = top,
                            .sum = x.sum * rescale_sum(x.top, top) +
                                   y.sum * rescale_sum(y.top, top),
                            .soft_top = soft,
                            .soft_sum = x.soft_sum * rescale_sum(x.soft_top, soft) +
                                        y.soft_sum * rescale_sum(y.soft_top, soft),
                            .taught_top = taught,
                            .taught_sum = x.taught_sum * tx + y.taught_sum * ty,
                            .cross = x.cross * tx + y.cross * ty,
                            .target = x.target + y.target};
}

static bt_distil_part join_parts_of_ranks(const bt_distil_part *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    const int left = bt_tp_left(n);
    return join_distil_parts(join_parts_of_ranks(of, rows, first, left),
                             join_parts_of_ranks(of, rows, first + left, n - left));
}

/* The kernels compute exponentials of blocks of this number of tokens, which are on the stack. */
enum { DISTIL_BLOCK = 1024 };

static void divide_logits(float *y, const float *x, double tau, size_t n) {
    if (tau == 1)
        memcpy(y, x, n * sizeof *y);
    else
        for (size_t i = 0; i < n; i++) y[i] = (float)((double)x[i] / tau);
}

/* target: index in the block, or -1. */
static bt_row_stat block_stat(const float *x, size_t n, int32_t target) {
    bt_row_stat stat;
    bt_active_kernels()->row_lse(&stat, x, &target, 1, n);
    return stat;
}

static void exponentiate_block(float *x, size_t n, double top, double factor) {
    const float t = (float)top, f = (float)factor;
    const int32_t nowhere = -1;
    bt_active_kernels()->row_softmax(x, &t, &f, &nowhere, 0, 1, n);
}

static void add_teacher(bt_distil_part *p, const float *s, const float *t, size_t n, double tau) {
    float x[DISTIL_BLOCK], y[DISTIL_BLOCK], e[DISTIL_BLOCK];
    divide_logits(x, s, tau, n);
    divide_logits(y, t, tau, n);
    const bt_row_stat taught = block_stat(y, n, -1),
                      soft = tau == 1 ? (bt_row_stat){.sum = p->sum, .a = (float)p->top}
                                      : block_stat(x, n, -1);
    p->soft_top = (double)soft.a;
    p->soft_sum = soft.sum;
    p->taught_top = (double)taught.a;
    p->taught_sum = taught.sum;
    memcpy(e, y, n * sizeof *e);
    exponentiate_block(e, n, p->taught_top, 1);
    for (size_t i = 0; i < n; i++) p->cross += (double)e[i] * ((double)y[i] - (double)x[i]);
}

/* Returns the sums over tokens from .. to of a row. t: the teacher's logits; NULL: only the student's. */
static bt_distil_part reduce_vocabulary_range(const float *s, const float *t, size_t from,
                                              size_t to, size_t target, double tau) {
    bt_distil_part whole = {0};
    for (size_t at = from; at < to; at += DISTIL_BLOCK) {
        const size_t n = bt_min_size(to - at, DISTIL_BLOCK);
        const bool here = target >= at && target < at + n;
        const bt_row_stat own = block_stat(s + at, n, here ? (int32_t)(target - at) : -1);
        bt_distil_part p = {.top = (double)own.a, .sum = own.sum, .target = (double)own.b};
        if (t) add_teacher(&p, s + at, t + at, n, tau);
        whole = at == from ? p : join_distil_parts(whole, p);
    }
    return whole;
}

/* Adds the teacher's stored tokens in the range, if any. log_p: from teacher_logs_of_stored. */
static void add_stored_teacher(bt_distil_part *p, const rows_job *j, const float *s,
                               const bt_top_row *t, const double *log_p, size_t from, size_t to) {
    const size_t k = (size_t)j->how.k;
    p->soft_top = -INFINITY;
    for (size_t i = 0; i < k; i++) {
        const size_t at = (size_t)t->ids[i] - j->vocab.first;
        if (at >= from && at < to) p->soft_top = fmax(p->soft_top, (double)s[at] / j->how.tau);
    }
    for (size_t i = 0; i < k; i++) {
        const size_t at = (size_t)t->ids[i] - j->vocab.first;
        if (at < from || at >= to) continue;
        const double x = (double)s[at] / j->how.tau;
        p->soft_sum += exp(x - p->soft_top);
        p->cross += exp(log_p[i]) * (log_p[i] - x);
    }
}

/* Returns the index of the target among the tokens of this rank; V or more if it is not one of them. */
static size_t target_on_this_rank(const rows_job *j, size_t r) {
    return (size_t)j->targets[r] - j->vocab.first;
}

static bt_distil_part reduce_vocabulary_row(const rows_job *j, size_t r) {
    const float *s = j->student + r * j->ld, *t = j->teacher ? j->teacher + r * j->ld : NULL;
    const size_t n = j->vocab.leaves;
    bt_distil_part leaf[BT_LEAVES_MAX];
    double log_p[BT_TOP_MOST];
    if (!t) teacher_logs_of_stored(j, j->kept + r, log_p);
    for (size_t i = 0; i < n; i++) {
        const size_t from = n > 1 ? j->vocab.at[i] : 0, to = n > 1 ? j->vocab.at[i + 1] : j->V;
        leaf[i] = reduce_vocabulary_range(s, t, from, to, target_on_this_rank(j, r), j->how.tau);
        if (!t) add_stored_teacher(&leaf[i], j, s, j->kept + r, log_p, from, to);
    }
    for (size_t step = 1; step < n; step *= 2)
        for (size_t i = 0; i + step < n; i += 2 * step)
            leaf[i] = join_distil_parts(leaf[i], leaf[i + step]);
    return leaf[0];
}

static void reduce_vocabulary_rows(void *ctx, int thread, size_t begin, size_t end) {
    const rows_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++)
        j->mine[r] = j->targets[r] < 0 ? (bt_distil_part){0} : reduce_vocabulary_row(j, r);
}

/* Returns the derivative of a soft-capped logit x, from its capped value. */
static double softcap_slope(const rows_job *j, double x) {
    const double cap = (double)j->form.cap;
    return cap > 0 ? 1 - x / cap * (x / cap) : 1;
}

static void gradient_from_teacher(const rows_job *j, size_t r, const bt_distil_part *sums) {
    const double tau = j->how.tau, mix = j->how.mix, own = 1 - mix;
    float p[DISTIL_BLOCK], q[DISTIL_BLOCK], plain[DISTIL_BLOCK];
    for (size_t at = 0; at < j->V; at += DISTIL_BLOCK) {
        const size_t n = bt_min_size(j->V - at, DISTIL_BLOCK);
        float *s = j->student + r * j->ld + at;
        divide_logits(p, j->teacher + r * j->ld + at, tau, n);
        exponentiate_block(p, n, sums->taught_top, 1 / sums->taught_sum);
        memcpy(plain, s, n * sizeof *plain);
        exponentiate_block(plain, n, sums->top, 1 / sums->sum);
        if (tau != 1) {
            divide_logits(q, s, tau, n);
            exponentiate_block(q, n, sums->soft_top, 1 / sums->soft_sum);
        }
        for (size_t i = 0; i < n; i++) {
            const double whole = (double)plain[i], soft = tau == 1 ? whole : (double)q[i];
            s[i] = (float)(j->dscale * softcap_slope(j, (double)s[i]) *
                           (own * whole + mix * tau * (soft - (double)p[i])));
        }
    }
}

/* The divergence covers only the stored tokens. */
static void gradient_from_stored_teacher(const rows_job *j, size_t r, double own, double plain,
                                         double soft) {
    const double tau = j->how.tau, mix = j->how.mix;
    const bt_top_row *t = j->kept + r;
    const size_t k = (size_t)j->how.k;
    float *s = j->student + r * j->ld;
    double g[BT_TOP_MOST];
    teacher_logs_of_stored(j, t, g);
    for (size_t i = 0; i < k; i++) {
        const size_t at = (size_t)t->ids[i] - j->vocab.first;
        const double x = at < j->V ? (double)s[at] : 0;
        g[i] = j->dscale * softcap_slope(j, x) * mix * tau * (exp(x / tau - soft) - exp(g[i]));
    }
    for (size_t i = 0; i < j->V; i++) {
        const double x = (double)s[i];
        s[i] = (float)(j->dscale * softcap_slope(j, x) * own * exp(x - plain));
    }
    for (size_t i = 0; i < k; i++) {
        const size_t at = (size_t)t->ids[i] - j->vocab.first;
        if (at < j->V) s[at] += (float)g[i];
    }
}

static void distil_row(const rows_job *j, size_t r, const bt_distil_part *p) {
    const double tau = j->how.tau, mix = j->how.mix, plain = p->top + log(p->sum),
                 soft = p->soft_top + log(p->soft_sum),
                 taught = j->teacher ? p->taught_top + log(p->taught_sum) : 0,
                 kl = j->teacher ? p->cross / p->taught_sum - taught + soft : p->cross + soft,
                 own = 1 - mix;
    const size_t target = target_on_this_rank(j, r);
    if (j->teacher)
        gradient_from_teacher(j, r, p);
    else
        gradient_from_stored_teacher(j, r, own, plain, soft);
    if (target < j->V)
        j->student[r * j->ld + target] -=
            (float)(j->dscale * (1 - mix) * softcap_slope(j, p->target));
    j->loss[r] = (float)((1 - mix) * (plain - p->target) + mix * tau * tau * kl);
}

static void compute_losses_of_rows(void *ctx, int thread, size_t begin, size_t end) {
    const rows_job *j = ctx;
    const int ranks = j->vocab.group ? j->vocab.group->size : 1;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        j->loss[r] = 0;
        if (j->targets[r] < 0) {
            memset(j->student + r * j->ld, 0, j->V * sizeof *j->student);
            continue;
        }
        const bt_distil_part whole = join_parts_of_ranks(j->all + r, j->rows, 0, ranks);
        distil_row(j, r, &whole);
    }
}

static void losses_and_gradients(rows_job *j, bt_distil_part *all) {
    bt_tp_group *group = j->vocab.group;
    j->all = group ? all : j->mine;
    bt_parallel_for(j->rows, 1, reduce_vocabulary_rows, j);
    if (group) group->all_gather(group, j->mine, all, j->rows * sizeof *j->mine);
    bt_parallel_for(j->rows, 1, compute_losses_of_rows, j);
}

/* Passes the student's inputs to each teacher. */
static void forward_teachers(const bt_model *m, bt_model *teacher, const int32_t *inputs,
                             size_t M) {
    for (; teacher; teacher = teacher->member) {
        bt_net_adapters(teacher, false);
        teacher->tp->meet(teacher);
        bt_net_forward_member(m, teacher, inputs);
        bt_net_final_norm(teacher, M);
        teacher->tp->gather_final(teacher, M);
        teacher->tp->meet(
            teacher); /* because the student's pass will write to the group's memory */
    }
}

double bt_net_distil_loss(bt_model *m, const int32_t *inputs, const int32_t *targets,
                          double grad_scale) {
    bt_model *t = m->distil.teacher;
    const bt_acts *a = &m->layers[0].a;
    const size_t B = (size_t)m->setup.B, T = (size_t)m->setup.cfg.T, M = B * T,
                 V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C, ld = bt_ops_logits_ld(V);
    size_t chunk = bt_min_size(m->logits_rows, BT_DISTIL_ROWS);
    if (t) chunk = bt_min_size(chunk, bt_net_logits_rows(t));
    double loss = 0;
    if (t) forward_teachers(m, t, inputs, M);
    bt_net_forward(m, inputs, B, T);
    bt_span_begin(BT_MR_BWD);
    bt_net_final_norm(m, M);
    m->tp->gather_final(m, M);
    for (size_t at = 0, n; at < M; at += n) {
        n = bt_min_size(M - at, chunk);
        bt_net_logits(m, at, n, ld);
        if (t) bt_net_logits(t, at, n, ld);
        rows_job j = {.student = m->logits,
                      .teacher = t ? t->logits : NULL,
                      .kept = t ? NULL : m->distil.rows + at,
                      .targets = targets + at,
                      .loss = m->row_loss + at,
                      .how = m->distil,
                      .form = m->head_form,
                      .vocab = m->tp->vocab(m),
                      .mine = m->distil_parts,
                      .dscale = grad_scale,
                      .rows = n,
                      .V = V,
                      .ld = ld};
        losses_and_gradients(&j, m->distil_parts + BT_DISTIL_ROWS);
        m->tp->head_dx(m, at, n, ld);
        if (m->d_head)
            bt_op_gemm(m->d_head, C, m->logits, ld, 1, a->xn + at * C, C, 0, 1.0f, V, C, n,
                       m->setup.prec, BT_ACC);
    }
    if (m->distil.relation > 0) bt_net_relation_loss(m, t, targets, grad_scale);
    for (size_t i = 0; i < M; i++) loss += (double)m->row_loss[i];
    bt_span_end();
    return loss;
}

typedef struct top_job {
    const float *logits;
    const int32_t *targets;
    uint32_t *ids;
    float *logs;
    size_t V, ld, k;
} top_job;

/* Selects the k largest, in order; of equal ones the smaller token first. Insertion is fast enough, because few tokens
 * of a row displace an earlier one. */
static void select_largest(const float *z, size_t V, size_t k, uint32_t *ids) {
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
        select_largest(z, j->V, j->k, ids);
        const double whole = log_sum(z, j->V);
        for (size_t i = 0; i < j->k; i++)
            j->logs[r * j->k + i] = (float)((double)z[ids[i]] - whole);
    }
}

void bt_model_top_logits(bt_model *m, const int32_t *targets, size_t k, uint32_t *ids,
                         float *logs) {
    const size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T, V = (size_t)m->setup.cfg.V,
                 ld = bt_ops_logits_ld(V), chunk = bt_net_logits_rows(m);
    for (bt_model *x = m; x; x = x->member) {
        bt_net_final_norm(x, M); /* The loss did not compute all rows of a.xn (one_rank.c). */
        x->tp->gather_final(x, M);
    }
    for (size_t at = 0, n; at < M; at += n) {
        n = bt_min_size(chunk, M - at);
        bt_net_logits(m, at, n, ld);
        top_job j = {m->logits, targets + at, ids + at * k, logs + at * k, V, ld, k};
        bt_parallel_for(n, 1, top_range, &j);
    }
}
