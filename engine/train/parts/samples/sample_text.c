/* sample_text.c - generates text from a prompt, token by token. */
#include "engine/train/parts/samples/sample_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/data/io/file_io.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/model/net/stage.h"

enum {
    PROMPT_TOKENS = 32,
    ASKED_TOKENS = 64
}; /* maximum prompt from validation data; default length of a requested sample */
static const double TEMPERATURE = 0.7;

struct bt_sample_text {
    bt_tokenizer *tokenizer;
    int32_t *tokens; /* (n_prompt + n_text) */
    int64_t n_prompt, n_text;
    uint64_t seed;
    bt_sample_text *next;
};

typedef struct source {      /* prompt as text, or as tokens if text is NULL */
    const char *text, *name; /* name of the setting, for messages */
    const int32_t *tokens;
    size_t n;
} source;

/* Encodes the prompt. The caller frees *ids. */
static bt_code encode_prompt(const bt_sample_text *s, const bt_run_cfg *cfg, const source *from,
                             int32_t **ids, size_t *n, bt_err *err) {
    size_t cap = 0;
    BT_TRY(bt_tokenizer_encode_as(s->tokenizer, BT_ENCODE_SPECIAL | BT_ENCODE_WHOLE, from->text,
                                  strlen(from->text), ids, n, &cap, err));
    for (size_t i = 0; i < *n; i++) {
        if ((*ids)[i] < cfg->model.vocab) continue;
        return bt_fail(err, BT_ARG, "%s has the token %d, the model's vocabulary has %d",
                       from->name, (int)(*ids)[i], (int)cfg->model.vocab);
    }
    if ((int64_t)*n < cfg->model.seq_len) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "%s has %zu tokens, a sequence has %d (model.seq_len): there is no room to continue",
        from->name, *n, (int)cfg->model.seq_len);
}

/* Finds the prompt's tokens and the number of tokens to generate. Called on rank 0. */
static bt_code find_prompt(bt_sample_text *s, const bt_run_cfg *cfg, const source *from,
                           bt_err *err) {
    int32_t *ids = NULL;
    size_t n = from->n, most = (size_t)cfg->model.seq_len / 2;
    if (most > PROMPT_TOKENS) most = PROMPT_TOKENS;
    if (n > most) n = most;
    BT_TRY(bt_tokenizer_load(&s->tokenizer, cfg->data.tokenizer, err));
    bt_code code = from->text[0] ? encode_prompt(s, cfg, from, &ids, &n, err) : BT_OK;
    if (code == BT_OK) {
        const int64_t room = cfg->model.seq_len - (int64_t)n,
                      wanted = cfg->samples.sample_tokens > 0 ? cfg->samples.sample_tokens
                                                              : ASKED_TOKENS;
        s->n_prompt = (int64_t)n;
        s->n_text = wanted < room ? wanted : room;
        if (n > 0) memcpy(s->tokens, ids ? ids : from->tokens, n * sizeof *s->tokens);
    }
    free(ids);
    return code;
}

static bool has_text_tokens(const bt_run_cfg *cfg) {
    return strncmp(cfg->data.path, "synth:", 6) != 0;
}

static bt_code create_sample_text(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                                  const source *from, bt_err *err) {
    bt_sample_text *s = calloc(1, sizeof *s);
    int32_t *tokens = s ? calloc((size_t)cfg->model.seq_len, sizeof *tokens) : NULL;
    bt_code code = tokens ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for a sample text");
    if (code == BT_OK) {
        s->tokens = tokens;
        s->seed = (uint64_t)cfg->run.seed;
        if (bt_comm_rank(world) == 0) code = find_prompt(s, cfg, from, err);
    }
    code = bt_agree(world, code, err);
    if (code == BT_OK) {
        int64_t counts[] = {s->n_prompt, s->n_text};
        code = bt_broadcast(world, counts, sizeof counts, 0, err);
        s->n_prompt = counts[0], s->n_text = counts[1];
    }
    if (code == BT_OK)
        code = bt_broadcast(world, s->tokens, (size_t)cfg->model.seq_len * sizeof *s->tokens, 0,
                            err);
    if (code != BT_OK || s->n_prompt == 0) { /* without data there is no prompt */
        bt_sample_text_destroy(s);
        return code;
    }
    *out = s;
    return BT_OK;
}

enum { PROMPTS_MOST = 32, PROMPT_FILE_BYTES = 1 << 20 };

/* Splits the file into non-empty lines on rank 0. Fails with BT_ARG if there are none or too many. */
static bt_code read_prompt_lines(const char *path, char **text, char *line[PROMPTS_MOST],
                                 int64_t *n, bt_err *err) {
    size_t bytes;
    char *rest = NULL;
    BT_TRY(bt_file_slurp(path, PROMPT_FILE_BYTES, text, &bytes, err));
    for (char *l = strtok_r(*text, "\r\n", &rest); l; l = strtok_r(NULL, "\r\n", &rest)) {
        if (*n == PROMPTS_MOST)
            return bt_fail(err, BT_ARG, "train.sample_prompt: '%.200s' has more than %d prompts",
                           path, (int)PROMPTS_MOST);
        line[(*n)++] = l;
    }
    return *n ? BT_OK
              : bt_fail(err, BT_ARG, "train.sample_prompt: '%.200s' has no prompt (one a line)",
                        path);
}

static bt_code create_from_prompt_file(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                                       bt_err *err) {
    char *text = NULL, *line[PROMPTS_MOST] = {0};
    int64_t n = 0;
    bt_code code = bt_comm_rank(world) == 0
                       ? read_prompt_lines(cfg->samples.sample_prompt + 1, &text, line, &n, err)
                       : BT_OK;
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_broadcast(world, &n, sizeof n, 0, err);
    for (int64_t i = 0; code == BT_OK && i < n; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "prompt %d of train.sample_prompt", (int)i + 1);
        const source from = {line[i] ? line[i] : "", name, NULL, 0};
        code = create_sample_text(out, cfg, world, &from, err);
        if (code == BT_OK && *out) out = &(*out)->next;
    }
    free(text);
    return code;
}

bt_code bt_sample_text_create(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                              const int32_t *beginning, size_t n, bt_err *err) {
    const source from = {cfg->samples.sample_prompt, "train.sample_prompt", beginning, n};
    *out = NULL;
    if (cfg->samples.sample_tokens == 0 || !has_text_tokens(cfg)) return BT_OK;
    if (cfg->samples.sample_prompt[0] != '@')
        return create_sample_text(out, cfg, world, &from, err);
    bt_code code = create_from_prompt_file(out, cfg, world, err);
    if (code != BT_OK) {
        bt_sample_text_destroy(*out);
        *out = NULL;
    }
    return code;
}

bt_sample_text *bt_sample_text_next(const bt_sample_text *s) { return s->next; }

bt_code bt_sample_text_for_prompt(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                                  const char *prompt, bt_err *err) {
    const source from = {prompt ? prompt : "", "the prompt", NULL, 0};
    *out = NULL;
    if (!has_text_tokens(cfg))
        return bt_fail(err, BT_UNSUPPORTED, "the data '%s' are not text, so the model writes none",
                       cfg->data.path);
    if (bt_run_cfg_classes(cfg) > 0)
        return bt_fail(err, BT_UNSUPPORTED, "a %s writes no text",
                       bt_run_cfg_is_reward_model(cfg) ? "reward model" : "classifier");
    BT_TRY(create_sample_text(out, cfg, world, &from, err));
    return *out ? BT_OK : bt_fail(err, BT_ARG, "the prompt is empty");
}

/* Passes the first n tokens through one chunk of layers. */
static bt_code sample_chunk(bt_sample_text *s, bt_model *m, bt_pipe *pipe, size_t n, bt_err *err) {
    if (!bt_model_begins(m)) BT_TRY(bt_pipe_recv(pipe, BT_PIPE_DOWN, bt_model_stage_in(m), err));
    bt_model_stage_synchronise(m);
    bt_model_forward_tokens(m, s->tokens, n);
    return bt_model_ends(m) ? BT_OK : bt_pipe_send(pipe, BT_PIPE_DOWN, bt_model_stage_out(m), err);
}

/* Draws the token after the first n, on every rank. */
static bt_code next_token(bt_sample_text *s, bt_model *m, bt_pipe *pipe, size_t n, bt_err *err) {
    const bt_model_slice part = bt_model_slice_of(m);
    const bt_draw how = {.temperature = TEMPERATURE, .seed = s->seed, .index = (uint64_t)n};
    double token = 0;
    if (pipe) BT_TRY(bt_pipe_begin(pipe, 1, 0, err));
    for (int k = 0; k < bt_slice_chunks(part); k++) {
        bt_model_chunk(m, k);
        BT_TRY(sample_chunk(s, m, pipe, n, err));
    }
    if (bt_slice_is_last_stage(part)) token = bt_model_draw(m, &how, n);
    bt_model_chunk(m, 0);
    if (pipe) BT_TRY(bt_pipe_end(pipe, err));
    if (pipe) BT_TRY(bt_pipe_sum(pipe, &token, 1, err));
    s->tokens[n] = (int32_t)token;
    return BT_OK;
}

static void decode_sample(const bt_sample_text *s, int64_t first, int64_t n, bt_text *out) {
    bt_tokenizer_decode(s->tokenizer, s->tokens + first, (size_t)n, out);
    for (char *c = out->data; c && c < out->data + out->len; c++) {
        if (*c == 0) *c = ' ';
    }
}

bt_code bt_sample_text_run(bt_sample_text *s, bt_model *model, bt_pipe *pipe, bt_weights *weights,
                           bt_text *prompt, bt_text *text, bt_err *err) {
    BT_TRY(bt_weights_begin(weights, BT_PASSES_FORWARD, NULL, s->n_text, err));
    for (int64_t i = 0; i < s->n_text; i++) {
        BT_TRY(next_token(s, model, pipe, (size_t)(s->n_prompt + i), err));
        BT_TRY(bt_weights_check(weights, err));
    }
    BT_TRY(bt_weights_end(weights, err));
    if (!s->tokenizer) return BT_OK;
    decode_sample(s, 0, s->n_prompt, prompt);
    decode_sample(s, s->n_prompt, s->n_text, text);
    return BT_OK;
}

void bt_sample_text_destroy(bt_sample_text *s) {
    for (bt_sample_text *next; s; s = next) {
        next = s->next;
        bt_tokenizer_free(s->tokenizer);
        free(s->tokens);
        free(s);
    }
}
