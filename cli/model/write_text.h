/* write_text.h - prints a model's text on standard output token by token. */
#ifndef BT_CLI_MODEL_WRITE_TEXT_H
#define BT_CLI_MODEL_WRITE_TEXT_H

#include "cli/model/checkpoint_model.h"
#include "engine/generate/generate.h"
#include "engine/generate/output_text.h"

typedef struct bt_write_how {
    bt_sampling sampling;
    int64_t limit; /* maximum number of tokens */
    int32_t end; /* token that ends the text, in addition to the tokenizer's end tokens; -1: none */
    bool quiet;  /* print nothing on standard output */
} bt_write_how;

typedef struct bt_written {
    bt_output out; /* initialised by the caller with the stop strings, and released by it */
    int64_t tokens, prompt_tokens;
    int64_t passes; /* passes after the one over the prompt, which yields the first token */
    double seconds, prompt_seconds;
    const char *finish; /* "length", "stop" */
} bt_written;

/* Continues the tokens that gen has processed until a stop string, an end token or the limit. Adds to `tokens` and
 * `seconds`. */
bt_code bt_write_tokens(bt_trained *t, bt_gen *gen, const bt_write_how *how, bt_written *w,
                        bt_err *err) BT_MUST_CHECK;
/* Writes to standard output: a terminal gets valid UTF-8 without control characters; a file or pipe gets the bytes
 * of the model. */
void bt_show(const char *s, size_t n);
double bt_per_second(int64_t n, double seconds); /* NaN: no time has passed */
/* tokens per second after the first token; NaN if there is none */
double bt_written_rate(const bt_written *w);
/* "20 tokens, 31.2 tokens/s (prompt: ...), fp32" on standard error */
void bt_show_speed(const bt_trained *t, const bt_written *w);

#endif
