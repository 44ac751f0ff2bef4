/* bpe_scores.c - converts ranked merges to the scores of tokens by which SentencePiece and llama.cpp merge. */
#include <stdlib.h>

#include "engine/data/tokenizer/tokenizer_impl.h"

/* Returns true if every pair of tokens whose bytes make up token id has a merge. */
static bool all_pairs_merge(const bt_tokenizer *t, int32_t id) {
    size_t n;
    const char *s = bt_tokenizer_raw(t, id, &n);
    for (size_t cut = 1; cut < n; cut++) {
        if (((unsigned char)s[cut] & 0xc0) == 0x80) continue;
        const int32_t left = bt_bpe_token(t, s, cut), right = bt_bpe_token(t, s + cut, n - cut);
        if (left >= 0 && right >= 0 && !bt_bpe_merges(t, left, right)) return false;
    }
    return true;
}

bt_code bt_tokenizer_scores(const bt_tokenizer *t, float *scores, size_t n, bool *same,
                            bt_err *err) {
    unsigned char *ended = calloc((size_t)t->V, 1);
    int32_t before = -1;
    *same = true;
    if (!ended) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d tokens", t->V);
    for (size_t id = 0; id < n; id++) scores[id] = -(float)(t->n_merges + 1 + id);
    for (size_t rank = 0; rank < t->n_merges; rank++) {
        const int32_t made = t->merges[rank].id;
        if (made == before) continue;
        if (before >= 0) ended[before] = true;
        before = made;
        if (ended[made])
            *same = false; /* merges into this token are not consecutive in rank */
        else if ((size_t)made < n)
            scores[made] = -(float)rank;
    }
    for (int32_t id = 0; id < t->V && *same; id++)
        if (!t->special[id]) *same = all_pairs_merge(t, id);
    free(ended);
    return BT_OK;
}
