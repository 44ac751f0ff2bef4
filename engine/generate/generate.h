/* generate.h - text from weights: a prompt is read once, then one token at a time against a
 * key-value cache.
 *
 * Order:    create -> { feed -> (sample -> feed)* -> reset }* -> destroy. The model must be
 *           quantised (bt_model_quantise) after its weights last changed; it is borrowed, and its
 *           activations are overwritten: not between forward and backward. A model created without
 *           training holds its ternary weights in 2 bits for this; one that trains decodes, slower.
 * Owns:     a decoder with one sequence, the tokens in its cache, logits; a sampler.
 * Context:  after T tokens the older half is forgotten: the cache is rebuilt from the last T/2
 *           tokens.
 * Exact:    logits equal those of the training forward within fp32 rounding; sampling is a function of
 *           (logits, bt_sampling, tokens in the cache, number of tokens seen).
 * Threads:  the training thread; kernels split over the pool. No allocation after create. */
#ifndef BT_ENGINE_GENERATE_GENERATE_H
#define BT_ENGINE_GENERATE_GENERATE_H

#include "engine/model/net/model.h"
#include "engine/model/net/sampler.h"

typedef struct bt_gen bt_gen;

bt_code bt_gen_create(bt_gen **out, bt_model *m, bt_err *err) BT_MUST_CHECK;
void bt_gen_destroy(bt_gen *g); /* accepts NULL */
void bt_gen_reset(bt_gen *g);   /* drops all tokens */
/* Drops all but the first n tokens of the cache: n <= bt_gen_cached. */
void bt_gen_rewind(bt_gen *g, size_t n);
/* Returns the tokens in the cache, oldest first; valid until the next feed. */
const int32_t *bt_gen_cached(const bt_gen *g, size_t *n);
/* Appends n >= 1 tokens; the logits are then those after the last of them. BT_ARG names a token outside the
 * vocabulary. */
bt_code bt_gen_feed(bt_gen *g, const int32_t *tokens, size_t n, bt_err *err) BT_MUST_CHECK;
const float *bt_gen_logits(const bt_gen *g); /* (V), valid until the next feed */
/* Draws the next token without appending it. The penalty applies to the tokens in the cache. */
int32_t bt_gen_sample(bt_gen *g, const bt_sampling *s);
/* Draws a token, then appends it. */
bt_code bt_gen_next(bt_gen *g, const bt_sampling *s, int32_t *token, bt_err *err) BT_MUST_CHECK;

#endif
