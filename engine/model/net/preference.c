/* preference.c - direct preference optimisation: the loss of pairs of answers, and its gradient by the weight of
 * each answer's tokens (arXiv:2305.18290, equations 7 and 8). */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* Returns the log-probability of the learned targets of a document in the previous pass. */
static double log_prob(const bt_model *m, const bt_attn_document *d) {
    double sum = 0;
    for (size_t i = 0; i < d->n; i++) sum -= (double)m->row_loss[d->row + i];
    return sum;
}

static size_t learned_of(const bt_attn_document *d, const int32_t *targets) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) n += targets[d->row + i] >= 0;
    return n;
}

/* log(1 + e^x) without overflow */
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double sigmoid_double(double x) { return 1 / (1 + exp(-x)); }

void bt_net_preference_scale(bt_model *m, float *own) {
    const size_t C = (size_t)m->setup.cfg.C;
    const bt_rows rows = m->tp->own_rows(m, (size_t)m->setup.B * (size_t)m->setup.cfg.T);
    for (size_t i = 0; i < m->n_documents; i++) {
        const bt_attn_document *d = &m->documents[i];
        const size_t from = bt_max_size(d->row, rows.first),
                     to = bt_min_size(d->row + d->n, rows.first + rows.n);
        if (from < to && !d->padding)
            bt_op_scale(own + (from - rows.first) * C, (float)m->reference[i], (to - from) * C);
    }
}

/* Processes a pair, documents i and i + 1; gradients so far are those of the summed losses. The weight of each
 * answer replaces its reference. */
static double pair_loss(bt_model *m, size_t i, const int32_t *targets, bool grad) {
    const bt_attn_document *c = &m->documents[i], *r = c + 1;
    const bt_dpo *how = &m->dpo;
    const size_t n = learned_of(c, targets);
    const double chosen = log_prob(m, c), rejected = log_prob(m, r),
                 margin = how->beta *
                          ((chosen - m->reference[i]) - (rejected - m->reference[i + 1])),
                 wrong = sigmoid_double(-margin), weight = how->beta * (wrong - how->smoothing);
    if (grad) {
        m->reference[i] = weight + how->sft_share / (double)n;
        m->reference[i + 1] = -weight;
    }
    m->score.n++;
    m->score.right += margin > 0;
    m->score.margin += margin;
    return (1 - how->smoothing) * softplus(-margin) + how->smoothing * softplus(margin) -
           how->sft_share * chosen / (double)n;
}

/* Pairs without a learned target are padding of a validation and do not count. */
static double all_pairs(bt_model *m, const int32_t *targets, bool grad) {
    double sum = 0;
    for (size_t i = 0; i + 1 < m->n_documents; i++) {
        if (m->documents[i].padding) continue;
        if (learned_of(&m->documents[i], targets))
            sum += pair_loss(m, i, targets, grad);
        else
            m->reference[i] = m->reference[i + 1] = 1;
        i++; /* skips its rejected answer */
    }
    return sum;
}

void bt_net_reference(bt_model *m, const int32_t *inputs, const int32_t *targets) {
    bt_net_adapters(m, false);
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
    if (bt_net_ends(m)) {
        bt_span_begin(BT_MR_FWD);
        bt_net_head_loss(m, targets, 0);
        for (size_t i = 0; i < m->n_documents; i++) m->reference[i] = log_prob(m, &m->documents[i]);
        bt_span_end();
    }
    bt_net_adapters(m, true);
}

double bt_net_preference_loss(bt_model *m, const int32_t *inputs, const int32_t *targets,
                              double grad_scale) {
    if (bt_net_begins(m)) bt_net_reference(m, inputs, targets);
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
    bt_span_begin(BT_MR_BWD);
    bt_net_head_loss(m, targets, (float)grad_scale);
    double loss = all_pairs(m, targets, grad_scale != 0);
    bt_span_end();
    return loss;
}
