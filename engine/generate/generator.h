/* generator.h - generates many texts at once: continuous batching over one model.
 *
 * Any thread submits requests; one thread, which uses the model's kernels, runs. Each step passes one token of each
 * text being generated and a limited number of prompt tokens through the layers together. Between two steps finished
 * texts leave the batch and waiting texts join it.
 *
 * Order of waiting texts: first by the number of running texts of their group (a request or a client), the smallest
 * first, then by arrival, so that a group of a hundred prompts does not delay other groups.
 * Prompts:  a slot keeps its tokens after its text is finished; of a prompt with the same beginning only the rest is
 *           computed.
 * Order:    create -> { submit }* and, in another thread, run, which returns after stop -> destroy.
 * Owns:     a decoder, a sampler, the texts. The running thread calls the callbacks, never submit; they must not call
 *           submit or stop.
 * Exact:    except for the rounding of the kernels, a text does not depend on the other texts in the batch
 *           (decoder.h). */
#ifndef BT_ENGINE_GENERATE_GENERATOR_H
#define BT_ENGINE_GENERATE_GENERATOR_H

#include <stdatomic.h>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/model/net/model.h"
#include "engine/model/net/sampler.h"

typedef struct bt_generator bt_generator;

/* BT_FINISH_LENGTH: max_tokens or the model's context was reached. STOP: an end token or a stop string. CANCELLED: by
 * the request's flag, or because the batch was stopped. */
typedef enum { BT_FINISH_LENGTH, BT_FINISH_STOP, BT_FINISH_CANCELLED } bt_finish;

enum { BT_TOP_MAX = 20 };

typedef struct bt_token_event { /* a token of a text; valid during the call */
    int32_t token;
    bool echoed; /* a token of the prompt */
    /* natural logarithm of the model's probability before temperature and sampling limits; NaN: not requested, or the
     * first token of a prompt */
    double logprob;
    /* (n_top) the most probable tokens at this position in descending order; top_logprob[0] equals logprob if the token
     * is the most probable one */
    const int32_t *top;
    const double *top_logprob;
    size_t n_top;
    /* (n_text) text that can be displayed now: whole characters, no part of a possible stop string */
    const char *text;
    size_t n_text;
} bt_token_event;

typedef struct bt_generate_request { /* a request with its callbacks, copied by submit */
    const int32_t *prompt;           /* (n) n >= 1 */
    size_t n;
    size_t max_tokens;
    bt_sampling sampling;
    int32_t end; /* ends the text, in addition to the tokenizer's end tokens; -1: none */
    const char *const *stops;
    size_t n_stops;
    bool echo; /* report the tokens of the prompt first */
    bool
        logprobs; /* log probability of each reported token and of the `top` most probable ones, <= BT_TOP_MAX */
    size_t top;
    uint64_t group;
    const atomic_bool *
        cancel; /* true: the text is cancelled, and done is called soon; NULL: it cannot be cancelled */
    void (*on_token)(void *ctx, const bt_token_event *s);
    /* the last call; text is what was held back for a stop string or an incomplete character */
    void (*done)(void *ctx, bt_finish why, const char *text, size_t n_text);
    void *ctx;
} bt_generate_request;

typedef struct bt_generator_cfg {
    bt_model *model; /* quantised, without memory for training; borrowed */
    const bt_tokenizer *tokenizer;
    int slots;          /* number of texts processed at the same time */
    size_t max_waiting; /* maximum number of waiting texts */
    size_t prompt_rows; /* maximum number of prompt tokens in a step; 0: 256 */
} bt_generator_cfg;

bt_code bt_generator_create(bt_generator **out, const bt_generator_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_generator_destroy(bt_generator *b); /* accepts NULL; after run has returned */

/* Accepts all n requests or none; the first callback may be called before this returns. BT_ARG: a prompt is too long
 * for the context, or a token is outside the vocabulary. BT_BUSY: too many texts wait, or the batch is stopping. */
bt_code bt_generator_submit(bt_generator *b, const bt_generate_request *requests, size_t n,
                            bt_err *err) BT_MUST_CHECK;

void bt_generator_run(bt_generator *b);
/* Refuses new requests; run returns when all texts are finished, or after grace_ns. */
void bt_generator_stop(bt_generator *b, int64_t grace_ns);

typedef struct bt_generator_load {
    size_t working, waiting;
    uint64_t done, cancelled; /* numbers of texts since create */
    uint64_t prompt_tokens, reused,
        tokens; /* prompt tokens; those of them found in a slot's cache; generated tokens */
    uint64_t steps;
    double seconds; /* duration of all steps */
} bt_generator_load;
bt_generator_load bt_generator_now(bt_generator *b);

#endif
