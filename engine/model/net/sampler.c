/* sampler.c - applies penalty, temperature and limits to one row of logits, and draws a token. */
#include "engine/model/net/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"

/* weight: exp((logit - best) / temperature) */
typedef struct candidate {
    float weight;
    int32_t token;
} candidate;

struct bt_sampler {
    size_t V;
    candidate *candidates; /* (V) a heap while drawing */
    float *penalised;      /* (V) */
};

bt_code bt_sampler_create(bt_sampler **out, size_t V, bt_err *err) {
    bt_sampler *s = calloc(1, sizeof *s);
    *out = s;
    if (s) {
        s->V = V;
        s->candidates = calloc(V, sizeof *s->candidates);
        s->penalised = calloc(V, sizeof *s->penalised);
        if (s->candidates && s->penalised) return BT_OK;
    }
    bt_sampler_destroy(s);
    *out = NULL;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory to sample from %zu tokens", V);
}

void bt_sampler_destroy(bt_sampler *s) {
    if (!s) return;
    free(s->candidates);
    free(s->penalised);
    free(s);
}

/* Of equal logits the smaller token counts as more likely, so that the order is total. */
static bool is_more_likely(const candidate *a, const candidate *b) {
    return a->weight > b->weight || (a->weight == b->weight && a->token < b->token);
}

static void sift_down(candidate *heap, size_t n, size_t i) {
    for (;;) {
        size_t best = i, left = 2 * i + 1;
        if (left < n && is_more_likely(&heap[left], &heap[best])) best = left;
        if (left + 1 < n && is_more_likely(&heap[left + 1], &heap[best])) best = left + 1;
        if (best == i) return;
        candidate moved = heap[i];
        heap[i] = heap[best];
        heap[best] = moved;
        i = best;
    }
}

static candidate pop_likeliest(candidate *heap, size_t n) {
    candidate first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    sift_down(heap, n - 1, 0);
    return first;
}

static int32_t find_likeliest(const float *logits, size_t V) {
    size_t best = 0;
    for (size_t i = 1; i < V; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* Moves the possible tokens to the end of c, the likeliest last; returns their number. *held: their sum of weights. */
static size_t limit_candidates(candidate *c, size_t V, size_t k, double p, double *held) {
    double total = *held;
    for (size_t i = V / 2; i-- > 0;) sift_down(c, V, i);
    if (k < V) {
        total = 0;
        for (size_t i = 0; i < k; i++) total += (double)pop_likeliest(c, V - i).weight;
    }
    size_t n = 0;
    for (*held = 0; n < k && (n == 0 || *held < p * total); n++)
        *held += (double)(k < V ? c[V - 1 - n] : pop_likeliest(c, V - n)).weight;
    return n;
}

/* Removes candidates with a weight below min from the n at the end of c. The likeliest has the weight 1. */
static size_t drop_unlikely(candidate *c, size_t V, size_t n, double min, double *held) {
    size_t left = 0;
    *held = 0;
    for (size_t i = V; i-- > V - n;) {
        if ((double)c[i].weight < min) continue;
        candidate moved = c[V - 1 - left];
        c[V - 1 - left] = c[i];
        c[i] = moved;
        *held += (double)c[V - 1 - left].weight;
        left++;
    }
    return left;
}

/* A token that occurs several times is penalised only once. */
static const float *penalise(bt_sampler *s, const float *logits, double penalty, bt_history h) {
    if (!(penalty > 0) || penalty == 1 || h.n == 0) return logits;
    memcpy(s->penalised, logits, s->V * sizeof *logits);
    for (size_t i = 0; i < h.n; i++) {
        const double l = (double)logits[h.tokens[i]];
        s->penalised[h.tokens[i]] = (float)(l > 0 ? l / penalty : l * penalty);
    }
    return s->penalised;
}

int32_t bt_sampler_draw(bt_sampler *s, const float *raw, const bt_sampling *how,
                        bt_history occurred, uint64_t index) {
    const size_t V = s->V;
    const float *logits = penalise(s, raw, how->repetition_penalty, occurred);
    const int32_t best = find_likeliest(logits, V);
    if (!(how->temperature > 0) || how->top_k == 1 || !(how->top_p > 0)) return best;
    size_t n = V, k = how->top_k > 0 && (size_t)how->top_k < V ? (size_t)how->top_k : V;
    double p = fmin(how->top_p, 1), held = 0;
    candidate *c = s->candidates;
    for (size_t i = 0; i < V; i++) {
        c[i] = (candidate){
            (float)exp(((double)logits[i] - (double)logits[best]) / how->temperature), (int32_t)i};
        held += (double)c[i].weight;
    }
    if (k < V || p < 1) n = limit_candidates(c, V, k, p, &held);
    if (how->min_p > 0) n = drop_unlikely(c, V, n, fmin(how->min_p, 1), &held);
    double u = bt_rng_unit(how->seed, bt_hash_name("sample"), index) * held;
    for (size_t i = 1; i < n; i++) {
        u -= (double)c[V - i].weight;
        if (u < 0) return c[V - i].token;
    }
    return c[V - n].token;
}

double bt_log_sum_exp(const float *logits, size_t V) {
    const double top = (double)logits[find_likeliest(logits, V)];
    double sum = 0;
    for (size_t i = 0; i < V; i++) sum += exp((double)logits[i] - top);
    return top + log(sum);
}

void bt_likeliest(bt_ranked *out, size_t n, const float *logits, size_t V) {
    size_t have = 0;
    for (size_t i = 0; i < V; i++) {
        if (have == n && (n == 0 || logits[i] <= out[n - 1].logit)) continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[i] > out[at - 1].logit; at--) out[at] = out[at - 1];
        out[at] = (bt_ranked){(int32_t)i, logits[i]};
    }
}
