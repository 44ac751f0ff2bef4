/* generator.h - generates many texts at once: continuous batching over one model.
 *
 * Any thread submits; one thread, which owns the model's kernels, runs. Every step takes one token of each text
 * being generated and a limited number of tokens of prompts being read, all through the layers together. A
 * finished text leaves between two steps and another one joins.
 *
 * Order of waiting texts: first by the number of running texts of their group (a request, a client), the least
 * first, then by arrival, so that a group of a hundred prompts leaves room for other groups.
 * Prompts:  a slot keeps its tokens after its text is finished; a prompt with the same beginning is read from
 *           there on.
 * Order:    create -> { submit }* beside one run, which returns after stop -> destroy.
 * Owns:     a decoder, a sampler, the texts. Callbacks are called by the running thread, never by submit, and must
 *           not call submit or stop.
 * Exact:    within the rounding of the kernels a text does not depend on texts in the same batch (decoder.h). */
#ifndef BT_ENGINE_GENERATE_GENERATOR_H
#define BT_ENGINE_GENERATE_GENERATOR_H

#include <stdatomic.h>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/model/net/model.h"
#include "engine/model/net/sampler.h"

typedef struct bt_generator bt_generator;

/* BT_FINISH_LENGTH: max_tokens or the model's context; STOP: an end token or a stop string;
 * CANCELLED: by its flag, or because the batch was stopped */
typedef enum { BT_FINISH_LENGTH, BT_FINISH_STOP, BT_FINISH_CANCELLED } bt_finish;

enum { BT_TOP_MAX = 20 };

typedef struct bt_token_event { /* a token of a text; valid during the call */
    int32_t token;
    bool echoed; /* token of the prompt */
    /* natural logarithm of the model's probability, before temperature and limits; NaN: not requested, or the
     * first token of a prompt */
    double logprob;
    /* (n_top) the likeliest at this place, likeliest first: top_logprob[0] and logprob are the same
     * number where they are the same token */
    const int32_t *top;
    const double *top_logprob;
    size_t n_top;
    /* (n_text) what can be shown now: whole characters, no part of a stop string */
    const char *text;
    size_t n_text;
} bt_token_event;

typedef struct bt_generate_request { /* request, copied by submit, with its callbacks */
    const int32_t *prompt;           /* (n) n >= 1 */
    size_t n;
    size_t max_tokens;
    bt_sampling sampling;
    int32_t end; /* ends the text, beside the tokenizer's ends; -1: none */
    const char *const *stops;
    size_t n_stops;
    bool echo;     /* the prompt's tokens are reported first */
    bool logprobs; /* of every reported token, with the `top` likeliest, <= BT_TOP_MAX */
    size_t top;
    uint64_t group;
    const atomic_bool *cancel; /* true: done is called soon; NULL: not cancellable */
    void (*on_token)(void *ctx, const bt_token_event *s);
    /* the last call; includes text that was held back for a stop string or a character */
    void (*done)(void *ctx, bt_finish why, const char *text, size_t n_text);
    void *ctx;
} bt_generate_request;

typedef struct bt_generator_cfg {
    bt_model *model; /* quantised, without training; borrowed */
    const bt_tokenizer *tokenizer;
    int slots;          /* texts at work at once */
    size_t max_waiting; /* further ones */
    size_t prompt_rows; /* tokens of prompts in a step; 0: 256 */
} bt_generator_cfg;

bt_code bt_generator_create(bt_generator **out, const bt_generator_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_generator_destroy(bt_generator *b); /* accepts NULL; after run has returned */

/* Accepts all n of them or none; the first callback may be called before this returns. BT_ARG: a prompt that does
 * not fit the context, a token outside the vocabulary; BT_BUSY: too many are waiting, or the batch is stopping */
bt_code bt_generator_submit(bt_generator *b, const bt_generate_request *requests, size_t n,
                            bt_err *err) BT_MUST_CHECK;

void bt_generator_run(bt_generator *b);
/* nothing new is taken; run returns when all texts are done, or this much later */
void bt_generator_stop(bt_generator *b, int64_t grace_ns);

typedef struct bt_generator_load {
    size_t working, waiting;
    uint64_t done, cancelled;               /* since create */
    uint64_t prompt_tokens, reused, tokens; /* read; of prompts, found in a slot; written */
    uint64_t steps;
    double seconds; /* in steps */
} bt_generator_load;
bt_generator_load bt_generator_now(bt_generator *b);

#endif
