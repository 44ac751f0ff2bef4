/* generate.c - generates one text at a time with a decoder of one sequence. */
#include "engine/generate/generate.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/model/net/decoder.h"

struct bt_gen {
    bt_model *m;
    bt_decoder *decoder;
    bt_sampler *sampler;
    bt_arena arena;
    float *logits;   /* (V) */
    int32_t *tokens; /* (T) tokens in the cache */
    size_t seen;
};

bt_code bt_gen_create(bt_gen **out, bt_model *m, bt_err *err) {
    *out = NULL;
    bt_gen *g = calloc(1, sizeof *g);
    if (!g) return bt_fail(err, BT_NOMEM, "cannot take memory for generation");
    g->m = m;
    const bt_model_cfg *c = bt_model_config(m);
    bt_arena_plan(&g->arena, "generation");
    const size_t logits = bt_arena_reserve(&g->arena, (size_t)c->V, sizeof(float)),
                 tokens = bt_arena_reserve(&g->arena, (size_t)c->T, sizeof(int32_t));
    bt_code code = bt_decoder_create(&g->decoder, m, 1, err);
    if (code == BT_OK) code = bt_arena_commit(&g->arena, err);
    if (code == BT_OK) code = bt_sampler_create(&g->sampler, (size_t)c->V, err);
    if (code != BT_OK) {
        bt_gen_destroy(g);
        return code;
    }
    g->logits = bt_arena_at(&g->arena, logits);
    g->tokens = bt_arena_at(&g->arena, tokens);
    *out = g;
    return BT_OK;
}

void bt_gen_destroy(bt_gen *g) {
    if (!g) return;
    bt_sampler_destroy(g->sampler);
    bt_decoder_destroy(g->decoder);
    bt_arena_release(&g->arena);
    free(g);
}

void bt_gen_reset(bt_gen *g) {
    bt_decoder_clear(g->decoder, 0);
    g->seen = 0;
}

void bt_gen_rewind(bt_gen *g, size_t n) {
    g->seen -= bt_decoder_length(g->decoder, 0) - n;
    bt_decoder_rewind(g->decoder, 0, n);
}

const int32_t *bt_gen_cached(const bt_gen *g, size_t *n) {
    *n = bt_decoder_length(g->decoder, 0);
    return g->tokens;
}

const float *bt_gen_logits(const bt_gen *g) { return g->logits; }

static void copy_last_logits(void *ctx, size_t part, size_t token, const float *logits) {
    bt_gen *g = ctx;
    (void)part, (void)token;
    memcpy(g->logits, logits, (size_t)bt_model_config(g->m)->V * sizeof *logits);
}

/* Appends n tokens to those in the cache; there must be room. */
static void decode_tokens(bt_gen *g, const int32_t *tokens, size_t n, bool last) {
    memmove(g->tokens + bt_decoder_length(g->decoder, 0), tokens, n * sizeof *tokens);
    const bt_decode_part part = {
        .tokens = tokens, .n = n, .want = last ? BT_LOGITS_LAST : BT_LOGITS_NONE};
    bt_decoder_step(g->decoder, &part, 1, copy_last_logits, g);
}

bt_code bt_gen_feed(bt_gen *g, const int32_t *tokens, size_t n, bt_err *err) {
    const bt_model_cfg *c = bt_model_config(g->m);
    const size_t T = (size_t)c->T;
    if (n == 0) return bt_fail(err, BT_ARG, "nothing to generate from: the prompt holds no token");
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= c->V) {
            return bt_fail(err, BT_ARG,
                           "token %d at position %zu is outside the model's vocabulary of %d",
                           (int)tokens[i], i, c->V);
        }
    }
    g->seen += n;
    while (n > 0) {
        const size_t length = bt_decoder_length(g->decoder, 0);
        if (length == T) { /* the context is full: continue with its newer half */
            const size_t keep = T / 2;
            bt_decoder_clear(g->decoder, 0);
            if (keep > 0) decode_tokens(g, g->tokens + (T - keep), keep, false);
            continue;
        }
        const size_t take = n < T - length ? n : T - length;
        decode_tokens(g, tokens, take, take == n);
        tokens += take;
        n -= take;
    }
    return BT_OK;
}

int32_t bt_gen_sample(bt_gen *g, const bt_sampling *s) {
    const bt_history occurred = {g->tokens, bt_decoder_length(g->decoder, 0)};
    return bt_sampler_draw(g->sampler, g->logits, s, occurred, g->seen);
}

bt_code bt_gen_next(bt_gen *g, const bt_sampling *s, int32_t *token, bt_err *err) {
    *token = bt_gen_sample(g, s);
    return bt_gen_feed(g, token, 1, err);
}
