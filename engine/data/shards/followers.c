/* followers.c - counts pairs of successive tokens. Sorting makes equal pairs adjacent. */
#include "engine/data/shards/followers.h"

#include <stdlib.h>
#include <string.h>

typedef struct pair {
    int32_t input, target;
} pair;

/* Sorts stably by the first token of a pair, or by the second (target). at: (V + 1) counts. */
static void sort_pairs_by(bool target, pair *out, const pair *in, size_t n, uint32_t *at,
                          size_t V) {
    memset(at, 0, (V + 1) * sizeof *at);
    for (size_t i = 0; i < n; i++) at[(target ? in[i].target : in[i].input) + 1]++;
    for (size_t t = 0; t < V; t++) at[t + 1] += at[t];
    for (size_t i = 0; i < n; i++) out[at[target ? in[i].target : in[i].input]++] = in[i];
}

static bool pairs_are_equal(const pair *x, const pair *y) {
    return x->input == y->input && x->target == y->target;
}

static size_t add_batch_pairs(pair *out, const bt_batch *b, size_t tokens) {
    size_t n = 0;
    for (size_t i = 0; i < tokens; i++)
        if (b->targets[i] >= 0) out[n++] = (pair){b->inputs[i], b->targets[i]};
    return n;
}

static bt_code read_pairs(pair *out, size_t *n, bt_loader *l, const bt_loader_cfg *cfg,
                          int64_t sequences, bt_err *err) {
    for (int64_t done = 0; done < sequences; done += cfg->B) {
        bt_batch b;
        BT_TRY(bt_loader_next(l, &b, err));
        const int64_t B = sequences - done < cfg->B ? sequences - done : cfg->B;
        *n += add_batch_pairs(out + *n, &b, (size_t)(B * cfg->T));
    }
    return BT_OK;
}

static size_t count_distinct_pairs(const pair *p, size_t n) {
    size_t count_distinct_pairs = 0;
    for (size_t i = 0; i < n; i++)
        count_distinct_pairs += i == 0 || !pairs_are_equal(&p[i - 1], &p[i]);
    return count_distinct_pairs;
}

static void sum_follower_shares(bt_followers *out, const pair *p, size_t n, size_t V) {
    size_t at = 0, i = 0;
    for (size_t t = 0; t < V; t++) {
        const size_t begin = i, row = at;
        out->at[t] = (uint32_t)at;
        for (; i < n && (size_t)p[i].input == t; i++) {
            if (at == row || out->token[at - 1] != p[i].target) {
                out->token[at] = p[i].target;
                out->share[at++] = 0;
            }
            out->share[at - 1]++;
        }
        for (size_t k = row; k < at; k++) out->share[k] /= (float)(i - begin);
    }
    out->at[V] = (uint32_t)at;
}

/* spare: a buffer as large as p. */
static bt_code count_followers(bt_followers *out, pair *p, pair *spare, size_t n, size_t V,
                               bt_err *err) {
    out->at = malloc((V + 1) * sizeof *out->at);
    if (!out->at)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for followers of %zu tokens", V);
    sort_pairs_by(true, spare, p, n, out->at, V);
    sort_pairs_by(false, p, spare, n, out->at, V);
    const size_t all = count_distinct_pairs(p, n);
    out->token = malloc((all + 1) * sizeof *out->token);
    out->share = malloc((all + 1) * sizeof *out->share);
    if (!out->token || !out->share)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu kinds of token pairs", all);
    sum_follower_shares(out, p, n, V);
    return BT_OK;
}

static size_t sequences_to_count(const bt_loader *l, const bt_loader_cfg *cfg) {
    const int64_t most = BT_FOLLOWERS_TOKENS / cfg->T, epoch = bt_loader_sequences(l);
    return (size_t)(epoch >= 0 && epoch < most ? epoch : most);
}

bt_code bt_followers_count(bt_followers *out, const bt_loader_cfg *cfg, bt_err *err) {
    bt_loader_cfg whole = *cfg;
    bt_loader *l = NULL;
    pair *pairs = NULL;
    size_t n = 0;
    *out = (bt_followers){0};
    whole.first_step = 0;
    whole.first_sequence = 0;
    whole.n_sequences = whole.sequences_per_step = whole.B;
    BT_TRY(bt_loader_open(&l, &whole, err));
    const size_t sequences = sequences_to_count(l, &whole), room = sequences * (size_t)whole.T;
    pairs = calloc(2 * room + 1, sizeof *pairs);
    bt_code code = pairs ? read_pairs(pairs, &n, l, &whole, (int64_t)sequences, err)
                         : bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu pairs", room);
    bt_loader_close(l);
    if (code == BT_OK) code = count_followers(out, pairs, pairs + room, n, (size_t)whole.V, err);
    free(pairs);
    if (code != BT_OK) bt_followers_release(out);
    return code;
}

void bt_followers_release(bt_followers *f) {
    free(f->at);
    free(f->token);
    free(f->share);
    *f = (bt_followers){0};
}
