/* mixture.c - computes the order of sources in one period, for each stage of weights. */
#include "engine/data/shards/mixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 64, MAX_PERIOD = 1 << 20, DECIMALS = 10000 };

typedef struct stage {
    uint64_t first;    /* first sequence of the stage */
    uint64_t *weights; /* (n) in lowest terms */
    uint64_t *before;  /* (n) number of sequences of each source before this stage */
    uint64_t period;   /* sum of the weights */
    uint32_t *source;  /* (period) */
    /* (period) index of the sequence among the sequences of its source in the period */
    uint64_t *rank;
} stage;

struct bt_mixture {
    size_t n, n_stages;
    stage stages[MAX_STAGES];
};

void bt_mixture_destroy(bt_mixture *m) {
    if (!m) return;
    for (size_t i = 0; i < m->n_stages; i++) {
        free(m->stages[i].weights);
        free(m->stages[i].before);
        free(m->stages[i].source);
        free(m->stages[i].rank);
    }
    free(m);
}

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static bt_code read_weights(stage *s, const char **at, size_t n, bt_err *err) {
    uint64_t common = 0;
    const char *from = *at;
    size_t k = 0;
    for (;; k++) {
        char *end;
        double v = strtod(*at, &end);
        if (end == *at || !(v >= 0 && v <= 1e6))
            return bt_fail(err, BT_ARG,
                           "data.mixture: '%.40s' does not begin with a weight from 0 to 1e6", *at);
        if (k < n) s->weights[k] = (uint64_t)(v * DECIMALS + 0.5);
        *at = end;
        if (**at != ':') break;
        ++*at;
    }
    if (k + 1 != n)
        return bt_fail(err, BT_ARG, "data.mixture: %zu weight%s in '%.40s' for %zu sources", k + 1,
                       k ? "s" : "", from, n);
    for (k = 0; k < n; k++) common = gcd(common, s->weights[k]);
    if (!common)
        return bt_fail(err, BT_ARG, "data.mixture: all sources have the weight 0 in '%.40s'", from);
    for (k = 0; k < n; k++) s->period += s->weights[k] /= common;
    if (s->period > MAX_PERIOD)
        return bt_fail(err, BT_ARG,
                       "data.mixture: the weights of '%.40s' have a period of %llu "
                       "sequences, which is too long (use rounder weights)",
                       from, (unsigned long long)s->period);
    return BT_OK;
}

/* Smooth weighted round robin: before each choice every source gains its weight; the source with the largest value is
 * chosen and loses the sum of the weights. */
static bt_code lay_out_period(stage *s, size_t n, bt_err *err) {
    int64_t *has = calloc(n, sizeof *has);
    uint64_t *taken = calloc(n, sizeof *taken);
    s->source = calloc(s->period, sizeof *s->source);
    s->rank = calloc(s->period, sizeof *s->rank);
    bool ok = has && taken && s->source && s->rank;
    for (uint64_t i = 0; ok && i < s->period; i++) {
        size_t best = 0;
        for (size_t k = 0; k < n; k++) {
            has[k] += (int64_t)s->weights[k];
            if (has[k] > has[best]) best = k;
        }
        has[best] -= (int64_t)s->period;
        s->source[i] = (uint32_t)best;
        s->rank[i] = taken[best]++;
    }
    free(has);
    free(taken);
    return ok ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for the mixture");
}

static uint64_t count_source_sequences(const stage *s, size_t k, uint64_t d) {
    uint64_t sum = d / s->period * s->weights[k];
    for (uint64_t i = 0; i < d % s->period; i++) sum += s->source[i] == k;
    return sum;
}

static bt_code add_stage(bt_mixture *m, const char **at, uint64_t first, bt_err *err) {
    if (m->n_stages == MAX_STAGES)
        return bt_fail(err, BT_ARG, "data.mixture has more than %d stages", MAX_STAGES);
    stage *s = &m->stages[m->n_stages++], *last = s - 1;
    *s = (stage){.first = first};
    s->weights = calloc(m->n, sizeof *s->weights);
    s->before = calloc(m->n, sizeof *s->before);
    if (!s->weights || !s->before)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the mixture");
    BT_TRY(read_weights(s, at, m->n, err));
    BT_TRY(lay_out_period(s, m->n, err));
    for (size_t k = 0; k < m->n && m->n_stages > 1; k++)
        s->before[k] = last->before[k] + count_source_sequences(last, k, first - last->first);
    return BT_OK;
}

static bt_code read_stages(bt_mixture *m, const char *text, uint64_t per_step, bt_err *err) {
    const char *at = text;
    BT_TRY(add_stage(m, &at, 0, err));
    while (*at) {
        char *end;
        uint64_t last = m->stages[m->n_stages - 1].first;
        unsigned long long step = *at == ',' ? strtoull(at + 1, &end, 10) : 0;
        if (*at != ',' || end == at + 1 || *end != '=')
            return bt_fail(
                err, BT_ARG,
                "data.mixture: '%.40s' is not of the form ',STEP=WEIGHTS', as in 3:1,5000=1:1", at);
        if (step > UINT64_MAX / per_step || step * per_step <= last)
            return bt_fail(
                err, BT_ARG,
                "data.mixture: step %llu is not greater than the step of the previous stage", step);
        at = end + 1;
        BT_TRY(add_stage(m, &at, step * per_step, err));
    }
    return BT_OK;
}

bt_code bt_mixture_create(bt_mixture **out, const char *text, size_t n, int sequences_per_step,
                          bt_err *err) {
    bt_mixture *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the mixture");
    m->n = n;
    bt_code code = read_stages(m, text, (uint64_t)sequences_per_step, err);
    if (code != BT_OK)
        bt_mixture_destroy(m);
    else
        *out = m;
    return code;
}

static const stage *find_stage(const bt_mixture *m, uint64_t sequence) {
    size_t i = m->n_stages - 1;
    while (m->stages[i].first > sequence) i--;
    return &m->stages[i];
}

uint64_t bt_mixture_count(const bt_mixture *m, size_t k, uint64_t n) {
    const stage *s = find_stage(m, n);
    return s->before[k] + count_source_sequences(s, k, n - s->first);
}

bt_mixture_pick bt_mixture_at(const bt_mixture *m, uint64_t sequence) {
    const stage *s = find_stage(m, sequence);
    uint64_t d = sequence - s->first;
    size_t k = s->source[d % s->period];
    return (bt_mixture_pick){k,
                             s->before[k] + d / s->period * s->weights[k] + s->rank[d % s->period]};
}

bool bt_mixture_changes_at(const bt_mixture *m, uint64_t sequence) {
    for (size_t i = 1; i < m->n_stages; i++)
        if (m->stages[i].first == sequence) return true;
    return false;
}
