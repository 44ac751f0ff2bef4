/* preference.c - preference optimisation: the losses of pairs of answers, and their gradients by the weight of each
 * answer's tokens (DPO: arXiv:2305.18290, equations 7 and 8; ORPO: arXiv:2403.07691, equations 6 to 10; SimPO:
 * arXiv:2405.14734, equations 6 and 7; KTO, of single answers: arXiv:2402.01306, equations 7 and 8; reward models:
 * model.h). */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* Returns the log-probability of the learned targets of a document in the latest pass. */
static double log_prob(const bt_model *m, const bt_attn_document *d) {
    double sum = 0;
    for (size_t i = 0; i < d->n; i++) sum -= (double)m->row_loss[d->row + i];
    return sum;
}

static size_t count_learned_targets(const bt_attn_document *d, const int32_t *targets) {
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

/* The comparison of two answers, from the summed log-probabilities of their learned targets. The loss is
 * factor * -log sigmoid(margin) + sft_share times the mean loss of the chosen answer. */
typedef struct comparison {
    double margin;
    double by_c, by_r; /* derivatives of margin by the sums */
    double factor, sft_share;
    double reward; /* difference of the rewards, as recorded */
} comparison;

/* log(p / (1 - p)) of a mean log-probability a; *slope: its derivative */
static double log_odds(double a, double *slope) {
    const double other = fmax(-expm1(a), 1e-12); /* 1 - p */
    *slope = 1 / other;
    return a - log(other);
}

static comparison compare_answers(const bt_model *m, size_t i, double chosen, double rejected,
                                  double n_c, double n_r) {
    const bt_dpo *how = &m->dpo;
    const double beta = how->beta;
    comparison x = {.by_c = beta, .by_r = -beta, .factor = 1, .sft_share = how->sft_share};
    if (how->loss == BT_PREFER_DPO) {
        x.margin = beta * ((chosen - m->reference[i]) - (rejected - m->reference[i + 1]));
    } else if (how->loss == BT_PREFER_SIMPO) {
        x.margin = beta * (chosen / n_c - rejected / n_r) - how->gamma;
        x.by_c /= n_c;
        x.by_r /= n_r;
    } else {
        double slope_c, slope_r;
        x.margin = log_odds(chosen / n_c, &slope_c) - log_odds(rejected / n_r, &slope_r);
        x.by_c = slope_c / n_c;
        x.by_r = -slope_r / n_r;
        x.factor = beta;
        x.sft_share += 1;
    }
    x.reward = how->loss == BT_PREFER_ORPO    ? beta * (chosen / n_c - rejected / n_r)
               : how->loss == BT_PREFER_SIMPO ? x.margin + how->gamma
                                              : x.margin;
    return x;
}

/* Returns the loss of a pair, documents i and i + 1. The gradients so far are those of the summed losses; the weight of
 * each answer replaces its reference. */
static double pair_loss(bt_model *m, size_t i, const int32_t *targets, bool grad) {
    const bt_attn_document *c = &m->documents[i], *r = c + 1;
    const double smoothing = m->dpo.smoothing, n = (double)count_learned_targets(c, targets),
                 n_r = (double)bt_max_size(count_learned_targets(r, targets), 1),
                 chosen = log_prob(m, c);
    const comparison x = compare_answers(m, i, chosen, log_prob(m, r), n, n_r);
    const double wrong = x.factor * (sigmoid_double(-x.margin) - smoothing);
    if (grad) {
        m->reference[i] = wrong * x.by_c + x.sft_share / n;
        m->reference[i + 1] = wrong * x.by_r;
    }
    m->score.n++;
    m->score.right += x.reward > 0;
    m->score.margin += x.reward;
    return x.factor * ((1 - smoothing) * softplus(-x.margin) + smoothing * softplus(x.margin)) -
           x.sft_share * chosen / n;
}

/* Returns the loss of a pair of answers of a reward model. by_loss: factor of the gradient; 0: none. */
static double reward_loss(bt_model *m, size_t i, double by_loss) {
    const bt_attn_document *c = &m->documents[i], *r = c + 1;
    const double chosen = bt_net_reward(m, c), rejected = bt_net_reward(m, r),
                 margin = chosen - rejected, sum = chosen + rejected, smoothing = m->dpo.smoothing,
                 wrong = sigmoid_double(-margin) - smoothing, off_centre = 2 * m->dpo.centre * sum;
    if (by_loss != 0) {
        bt_net_reward_gradient(m, c, by_loss * (off_centre - wrong));
        bt_net_reward_gradient(m, r, by_loss * (off_centre + wrong));
    }
    m->score.n++;
    m->score.right += margin > 0;
    m->score.margin += margin;
    return (1 - smoothing) * softplus(-margin) + smoothing * softplus(margin) +
           m->dpo.centre * sum * sum;
}

/* Returns the loss of document i, the answer of an example of KTO. */
static double single_loss(bt_model *m, size_t i, bool desirable, size_t n_learned, bool grad) {
    const bt_dpo *how = &m->dpo;
    const double sign = desirable ? 1 : -1, weight = desirable ? how->desirable : how->undesirable,
                 learned = log_prob(m, &m->documents[i]), ratio = learned - m->reference[i],
                 x = how->beta * sign * (ratio - (grad ? how->z0 : 0)), wrong = sigmoid_double(-x),
                 sft = desirable ? how->sft_share / (double)n_learned : 0;
    if (grad) m->reference[i] = weight * how->beta * sign * wrong * (1 - wrong) + sft;
    m->score.n++;
    m->score.right += sign * ratio > 0;
    m->score.margin += how->beta * sign * ratio;
    return weight * wrong - sft * learned;
}

/* Returns the log-ratio of document i, whose gradient becomes 0. */
static double mismatched_ratio(bt_model *m, size_t i) {
    const double ratio = log_prob(m, &m->documents[i]) - m->reference[i];
    m->reference[i] = 0;
    return isfinite(ratio) ? ldexp(nearbyint(ldexp(ratio, 20)), -20) : ratio;
}

/* Examples without a learned target are padding of a validation and do not count. */
static double sum_single_losses(bt_model *m, const int32_t *targets, bool grad) {
    const size_t each = m->dpo.loss == BT_PREFER_KTO ? 3 : 2;
    double sum = 0;
    for (size_t i = 0; i + each <= m->n_documents;) {
        if (m->documents[i].padding) {
            i++;
            continue;
        }
        const size_t chosen = count_learned_targets(&m->documents[i], targets),
                     rejected = count_learned_targets(&m->documents[i + 1], targets);
        if (chosen)
            sum += single_loss(m, i, true, chosen, grad);
        else if (rejected)
            sum += single_loss(m, i + 1, false, rejected, grad);
        if ((chosen || rejected) && each == 3) m->score.ratios += mismatched_ratio(m, i + 2);
        i += each;
    }
    return sum;
}

/* Pairs without a learned target are padding of a validation and do not count. */
static double sum_pair_losses(bt_model *m, const int32_t *targets, double by_loss) {
    const bool grad = by_loss != 0;
    double sum = 0;
    if (bt_prefer_is_single(m->dpo.loss)) return sum_single_losses(m, targets, grad);
    for (size_t i = 0; i + 1 < m->n_documents; i++) {
        if (m->documents[i].padding) continue;
        if (count_learned_targets(&m->documents[i], targets))
            sum += m->dpo.loss == BT_PREFER_REWARD ? reward_loss(m, i, by_loss)
                                                   : pair_loss(m, i, targets, grad);
        else
            m->reference[i] = m->reference[i + 1] = 1;
        i++;
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

/* The gradient of a frozen head's input is a product of each row alone, so bt_net_preference_scale weights it
 * afterwards. The gradient of a head that trains is a sum over rows, whose weights must be applied before the sum is
 * computed. */
static double loss_of_trained_head(bt_model *m, const int32_t *targets, double grad_scale) {
    bt_net_head_loss(m, targets, 0);
    const double loss = sum_pair_losses(m, targets, grad_scale);
    for (size_t i = 0; i < m->n_documents; i++) {
        const bt_attn_document *d = &m->documents[i];
        for (size_t r = 0; r < d->n; r++)
            m->row_weights[d->row + r] = d->padding ? 0 : (float)m->reference[i];
    }
    m->head_form.row_weights = m->row_weights;
    bt_net_head_loss(m, targets, (float)grad_scale);
    m->head_form.row_weights = NULL;
    return loss;
}

double bt_net_preference_loss(bt_model *m, const int32_t *inputs, const int32_t *targets,
                              double grad_scale) {
    if (bt_net_begins(m) && bt_prefer_has_reference(m->dpo.loss))
        bt_net_reference(m, inputs, targets);
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
    bt_span_begin(BT_MR_BWD);
    double loss;
    if (m->dpo.loss == BT_PREFER_REWARD) {
        bt_net_scores_begin(m, grad_scale != 0);
        loss = sum_pair_losses(m, targets, grad_scale);
    } else if (grad_scale != 0 && !m->adapters.n) {
        loss = loss_of_trained_head(m, targets, grad_scale);
    } else {
        bt_net_head_loss(m, targets, (float)grad_scale);
        loss = sum_pair_losses(m, targets, grad_scale);
    }
    bt_span_end();
    return loss;
}
