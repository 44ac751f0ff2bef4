/* fuzz_serve.c - arbitrary bytes as the body of a request to `bitrain serve`: a completion (first byte even) or a chat
 * (odd), with bytes as tokens and every template in turn. Accepted values are within their limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/openai_request.h"
#include "engine/generate/generator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TEMPLATES = 3 };
static const char *const names[TEMPLATES] = {"plain", "chatml", "llama3"};
static bt_tokenizer *tokenizer;
static bt_chat_encoder encoder[TEMPLATES];

static void release(void) { bt_tokenizer_free(tokenizer); }

static void make_tokenizer_once(void) {
    bt_err err = BT_ERR_INIT;
    const bt_chat_template *t;
    if (bt_tokenizer_load(&tokenizer, "bytes", &err) != BT_OK) abort();
    for (int i = 0; i < TEMPLATES; i++) {
        if (bt_chat_find(&t, names[i], &err) != BT_OK) abort();
        encoder[i] = (bt_chat_encoder){t, tokenizer};
    }
    atexit(release);
}

static void check_accepted_request(const bt_openai_request *r) {
    if (r->n_prompts == 0 || r->n == 0 || r->n_prompts * r->n > BT_OPENAI_CHOICES) abort();
    if (r->n_stops > sizeof r->stops / sizeof *r->stops || r->top > BT_TOP_MAX) abort();
    for (size_t i = 0; i < r->n_prompts; i++) {
        if (r->prompts[i].n == 0) abort();
        for (size_t k = 0; k < r->prompts[i].n; k++)
            if (r->prompts[i].at[k] < 0) abort();
    }
    for (size_t i = 0; i < r->n_stops; i++)
        if (strlen(r->stops[i]) == SIZE_MAX) abort(); /* reads each string to its end */
    const bt_sampling *s = &r->sampling;
    if (!(s->temperature >= 0 && s->temperature <= 100) || !(s->top_p >= 0 && s->top_p <= 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    bt_openai_request r = {0};
    bt_err err = BT_ERR_INIT;
    if (!tokenizer) make_tokenizer_once();
    if (n == 0) return 0;
    const bt_chat_encoder *e = &encoder[data[0] / 2 % TEMPLATES];
    const char *body = (const char *)data + 1;
    const bt_code code = data[0] & 1 ? bt_openai_chat(&r, body, n - 1, e, &err)
                                     : bt_openai_completion(&r, body, n - 1, tokenizer, &err);
    if (code == BT_OK)
        check_accepted_request(&r);
    else if (!err.msg[0])
        abort();
    bt_openai_request_release(&r);
    return 0;
}
