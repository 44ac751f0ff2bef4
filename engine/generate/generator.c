/* generator.c - the queue of texts, their slots, and the step that processes all of them. */
#include "engine/generate/generator.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/generate/output_text.h"
#include "engine/model/net/decoder.h"

enum { PROMPT_ROWS = 256 };

typedef struct text {            /* one requested text */
    bt_generate_request request; /* its prompt and stops are copies owned by this text */
    int32_t *tokens;             /* prompt, then generated tokens */
    size_t n, fed;               /* n: known tokens; fed: tokens in the cache */
    size_t written;
    int slot; /* -1: waiting for a slot */
    bool done;
    bt_finish why;
    bt_output out;
    struct text *next; /* in order of arrival */
} text;

typedef struct slot {
    text *at_work;   /* NULL: the slot is free */
    int32_t *tokens; /* (T) tokens in its cache */
} slot;

struct bt_generator {
    bt_generator_cfg cfg;
    size_t T, V;
    bt_decoder *decoder;
    bt_sampler *sampler;
    slot *slots;
    int32_t *slot_tokens;  /* (slots, T) */
    bt_decode_part *parts; /* (slots) parts of a step */
    text **of_part;        /* (slots) the text of each part */
    pthread_mutex_t lock;  /* protects texts, stopping and load */
    pthread_cond_t news;
    text *texts; /* all texts that are not finished */
    size_t n_texts;
    bool stopping, cut; /* cut: cancel the remaining texts */
    int64_t stop_at_ns;
    bt_generator_load load;
};

/* ---- create, destroy ------------------------------------------------------------------------- */
static void text_free(text *t) {
    if (!t) return;
    bt_output_release(&t->out);
    free((void *)(size_t)t->request.stops);
    free(t->tokens);
    free(t);
}

bt_code bt_generator_create(bt_generator **out, const bt_generator_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_generator *b = calloc(1, sizeof *b);
    if (!b) return bt_fail(err, BT_NOMEM, "no memory for %d texts", cfg->slots);
    const size_t n = (size_t)cfg->slots;
    b->cfg = *cfg;
    if (!b->cfg.prompt_rows) b->cfg.prompt_rows = PROMPT_ROWS;
    b->T = (size_t)bt_model_config(cfg->model)->T;
    b->V = (size_t)bt_model_config(cfg->model)->V;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->news, NULL);
    b->slots = calloc(n, sizeof *b->slots);
    b->slot_tokens = calloc(n * b->T, sizeof *b->slot_tokens);
    b->parts = calloc(n, sizeof *b->parts);
    b->of_part = calloc(n, sizeof(text *));
    bt_code code = BT_OK;
    if (!b->slots || !b->slot_tokens || !b->parts || !b->of_part)
        code = bt_fail(err, BT_NOMEM, "no memory for %d texts", cfg->slots);
    if (code == BT_OK) code = bt_decoder_create(&b->decoder, cfg->model, cfg->slots, err);
    if (code == BT_OK) code = bt_sampler_create(&b->sampler, b->V, err);
    if (code != BT_OK) {
        bt_generator_destroy(b);
        return code;
    }
    for (size_t i = 0; i < n; i++) b->slots[i].tokens = b->slot_tokens + i * b->T;
    *out = b;
    return BT_OK;
}

void bt_generator_destroy(bt_generator *b) {
    if (!b) return;
    while (b->texts) {
        text *next = b->texts->next;
        text_free(b->texts);
        b->texts = next;
    }
    bt_sampler_destroy(b->sampler);
    bt_decoder_destroy(b->decoder);
    free(b->slots);
    free(b->slot_tokens);
    free(b->parts);
    free(b->of_part);
    pthread_cond_destroy(&b->news);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

/* ---- submit, cancel, stop -------------------------------------------------------------------- */
static bt_code check_generate_request(const bt_generator *b, const bt_generate_request *a,
                                      bt_err *err) {
    if (a->n == 0) return bt_fail(err, BT_ARG, "the prompt holds no token");
    if (a->n > b->T)
        return bt_fail(err, BT_ARG,
                       "the prompt has %zu tokens, the model's context %zu: shorten it", a->n,
                       b->T);
    for (size_t i = 0; i < a->n; i++)
        if (a->prompt[i] < 0 || (size_t)a->prompt[i] >= b->V)
            return bt_fail(err, BT_ARG,
                           "token %d at position %zu is outside the model's vocabulary of %zu",
                           (int)a->prompt[i], i, b->V);
    if (a->top > BT_TOP_MAX)
        return bt_fail(err, BT_ARG, "at most %d log probabilities a token", BT_TOP_MAX);
    return BT_OK;
}

/* Copies the pointers of the stop strings, and then their bytes, into one block. */
static bool copy_stops(bt_generate_request *own, const bt_generate_request *a) {
    size_t bytes = a->n_stops * sizeof(char *);
    for (size_t i = 0; i < a->n_stops; i++) bytes += strlen(a->stops[i]) + 1;
    own->stops = NULL;
    if (a->n_stops == 0) return true;
    const char **at = malloc(bytes);
    if (!at) return false;
    char *p = (char *)(at + a->n_stops);
    for (size_t i = 0; i < a->n_stops; i++) {
        const size_t n = strlen(a->stops[i]) + 1;
        memcpy(p, a->stops[i], n);
        at[i] = p;
        p += n;
    }
    own->stops = at;
    return true;
}

static text *find_submitted(const bt_generator *b, const bt_generate_request *a) {
    text *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    /* the last generated token is not stored in the cache */
    const size_t room = b->T - a->n + 1;
    t->request = *a;
    if (t->request.max_tokens > room) t->request.max_tokens = room;
    t->slot = -1;
    t->n = a->n;
    t->tokens = malloc((a->n + t->request.max_tokens) * sizeof *t->tokens);
    if (!copy_stops(&t->request, a) || !t->tokens) {
        text_free(t);
        return NULL;
    }
    memcpy(t->tokens, a->prompt, a->n * sizeof *t->tokens);
    t->request.prompt = t->tokens;
    bt_output_init(&t->out, t->request.stops, t->request.n_stops);
    t->out.stop_from = SIZE_MAX; /* a stop string within the prompt does not end the text */
    return t;
}

static bt_code append_to_list(bt_generator *b, text *list, size_t n, bt_err *err) {
    if (b->stopping) return bt_fail(err, BT_BUSY, "the server is stopping");
    if (b->n_texts + n > (size_t)b->cfg.slots + b->cfg.max_waiting)
        return bt_fail(err, BT_BUSY, "%zu texts are at work or waiting: try again later",
                       b->n_texts);
    text **end = &b->texts;
    while (*end) end = &(*end)->next;
    *end = list;
    b->n_texts += n;
    return BT_OK;
}

bt_code bt_generator_submit(bt_generator *b, const bt_generate_request *requests, size_t n,
                            bt_err *err) {
    text *list = NULL, **end = &list;
    bt_code code = BT_OK;
    for (size_t i = 0; i < n && code == BT_OK; i++) {
        code = check_generate_request(b, &requests[i], err);
        if (code != BT_OK) break;
        *end = find_submitted(b, &requests[i]);
        if (!*end) {
            code = bt_fail(err, BT_NOMEM, "no memory for a text");
            break;
        }
        end = &(*end)->next;
    }
    if (code == BT_OK) {
        pthread_mutex_lock(&b->lock);
        code = append_to_list(b, list, n, err);
        pthread_cond_signal(&b->news);
        pthread_mutex_unlock(&b->lock);
    }
    while (code != BT_OK && list) {
        text *next = list->next;
        text_free(list);
        list = next;
    }
    return code;
}

void bt_generator_stop(bt_generator *b, int64_t grace_ns) {
    pthread_mutex_lock(&b->lock);
    b->stopping = true;
    b->stop_at_ns = bt_now_ns() + grace_ns;
    pthread_cond_signal(&b->news);
    pthread_mutex_unlock(&b->lock);
}

bt_generator_load bt_generator_now(bt_generator *b) {
    pthread_mutex_lock(&b->lock);
    bt_generator_load l = b->load;
    for (const text *t = b->texts; t; t = t->next) {
        l.working += t->slot >= 0;
        l.waiting += t->slot < 0;
    }
    pthread_mutex_unlock(&b->lock);
    return l;
}

/* ---- token events ------------------------------------------------------------------------------------- */
static void emit_token(bt_generator *b, text *t, int32_t token, bool echoed, const float *logits) {
    bt_ranked ranked[BT_TOP_MAX];
    int32_t top[BT_TOP_MAX];
    double top_logprob[BT_TOP_MAX];
    bt_token_event s = {
        .token = token, .echoed = echoed, .logprob = NAN, .top = top, .top_logprob = top_logprob};
    if (t->request.logprobs && logits) {
        const double sum = bt_log_sum_exp(logits, b->V);
        s.logprob = (double)logits[token] - sum;
        s.n_top = t->request.top < b->V ? t->request.top : b->V;
        bt_likeliest(ranked, s.n_top, logits, b->V);
        for (size_t i = 0; i < s.n_top; i++) {
            top[i] = ranked[i].token;
            top_logprob[i] = (double)ranked[i].logit - sum;
        }
    }
    if (echoed) {
        size_t n;
        const char *bytes = bt_tokenizer_bytes(b->cfg.tokenizer, token, &n);
        bt_output_add(&t->out, bytes, n);
    }
    s.text = bt_output_next(&t->out, false, &s.n_text);
    t->request.on_token(t->request.ctx, &s);
}

static void finish_text(text *t, bt_finish why) {
    t->done = true;
    t->why = why;
}

/* Chooses the next token from the logits after the known tokens. */
static void write_token(bt_generator *b, text *t, const float *logits) {
    size_t n;
    if (t->request.max_tokens == 0) {
        finish_text(t, BT_FINISH_LENGTH);
        return;
    }
    const int32_t id = bt_sampler_draw(b->sampler, logits, &t->request.sampling,
                                       (bt_history){t->tokens, t->n}, t->n);
    const bool end = id == t->request.end || bt_tokenizer_is_end(b->cfg.tokenizer, id);
    const char *bytes = bt_tokenizer_bytes(b->cfg.tokenizer, id, &n);
    if (t->written == 0) t->out.stop_from = t->out.text.len;
    if (!end && !bt_tokenizer_is_special(b->cfg.tokenizer, id)) bt_output_add(&t->out, bytes, n);
    t->tokens[t->n++] = id;
    t->written++;
    emit_token(b, t, id, false, logits);
    if (end || t->out.stopped)
        finish_text(t, BT_FINISH_STOP);
    else if (t->written == t->request.max_tokens)
        finish_text(t, BT_FINISH_LENGTH);
}

/* Receives the logits after token i of part p. */
static void receive_logits(void *ctx, size_t p, size_t i, const float *logits) {
    bt_generator *b = ctx;
    text *t = b->of_part[p];
    const size_t next = t->fed + i + 1;
    if (next < t->request.n)
        emit_token(b, t, t->tokens[next], true, logits);
    else
        write_token(b, t, logits);
}

/* ---- slots -------------------------------------------------------------------------------- */
static size_t texts_in_group(const bt_generator *b, uint64_t group) {
    size_t n = 0;
    for (int i = 0; i < b->cfg.slots; i++) {
        const text *t = b->slots[i].at_work;
        n += t && t->request.group == group;
    }
    return n;
}

static text *next_waiting(const bt_generator *b) {
    text *best = NULL;
    size_t fewest = 0;
    for (text *t = b->texts; t; t = t->next) {
        if (t->slot >= 0 || t->done) continue;
        const size_t n = texts_in_group(b, t->request.group);
        if (best && n >= fewest) continue;
        best = t;
        fewest = n;
        if (n == 0) break;
    }
    return best;
}

/* Length of the beginning of a prompt that a slot's cache contains. The last token of a prompt is always computed,
 * because the logits after it are needed; all tokens are computed if their log probabilities are requested. */
static size_t cached_prefix(const bt_generator *b, const text *t, int i) {
    const size_t have = bt_decoder_length(b->decoder, i);
    size_t n = 0;
    if (t->request.echo && t->request.logprobs) return 0;
    while (n < have && n + 1 < t->request.n && b->slots[i].tokens[n] == t->tokens[n]) n++;
    return n;
}

/* Returns the free slot whose cache contains most of the prompt or, if none contains any of it, the slot with the
 * shortest cache; -1: no slot is free. */
static int free_slot(const bt_generator *b, const text *t) {
    int best = -1;
    size_t most = 0, least = 0;
    for (int i = 0; i < b->cfg.slots; i++) {
        if (b->slots[i].at_work) continue;
        const size_t same = cached_prefix(b, t, i), have = bt_decoder_length(b->decoder, i);
        if (best >= 0 && (same < most || (same == most && have >= least))) continue;
        best = i;
        most = same;
        least = have;
    }
    return best;
}

static void begin_text(bt_generator *b, text *t, int i) {
    t->slot = i;
    b->slots[i].at_work = t;
    t->fed = cached_prefix(b, t, i);
    bt_decoder_rewind(b->decoder, i, t->fed);
    b->load.reused += t->fed;
}

/* Reports the tokens of a prompt that need no logits, before the prompt is computed. */
static void report_prompt_tokens(bt_generator *b, text *t) {
    if (!t->request.echo) return;
    const size_t n = t->request.logprobs ? 1 : t->request.n;
    for (size_t i = 0; i < n; i++) emit_token(b, t, t->tokens[i], true, NULL);
}

/* Called with the lock held. Returns false if there is no work and the batch is stopping. */
static bool wait_and_admit(bt_generator *b, text **begun) {
    while (!b->texts && !b->stopping) pthread_cond_wait(&b->news, &b->lock);
    b->cut = b->stopping && bt_now_ns() > b->stop_at_ns;
    size_t n = 0;
    for (text *t; n < (size_t)b->cfg.slots && (t = next_waiting(b));) {
        const int i = free_slot(b, t);
        if (i < 0) break;
        begin_text(b, t, i);
        begun[n++] = t;
    }
    if (n < (size_t)b->cfg.slots) begun[n] = NULL;
    return b->texts || !b->stopping;
}

static bool is_cancelled(const bt_generator *b, const text *t) {
    return b->cut || (t->request.cancel && atomic_load(t->request.cancel));
}

/* Removes finished and cancelled texts from the list and calls their `done`. */
static void remove_finished(bt_generator *b) {
    pthread_mutex_lock(&b->lock);
    text *gone = NULL, **end = &gone;
    for (text **p = &b->texts; *p;) {
        text *t = *p;
        if (!t->done && is_cancelled(b, t)) finish_text(t, BT_FINISH_CANCELLED);
        if (!t->done) {
            p = &t->next;
            continue;
        }
        *p = t->next;
        t->next = NULL;
        *end = t;
        end = &t->next;
        b->n_texts--;
        b->load.done++;
        b->load.cancelled += t->why == BT_FINISH_CANCELLED;
        if (t->slot >= 0) b->slots[t->slot].at_work = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    while (gone) {
        text *next = gone->next;
        size_t n;
        const char *rest = bt_output_next(&gone->out, true, &n);
        gone->request.done(gone->request.ctx, gone->why, rest, n);
        text_free(gone);
        gone = next;
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */
static void add_decode_part(bt_generator *b, size_t *n, text *t, size_t rows) {
    const size_t left = t->n - t->fed;
    const bool all = t->request.echo && t->request.logprobs && t->fed < t->request.n;
    b->parts[*n] = (bt_decode_part){.slot = t->slot,
                                    .tokens = t->tokens + t->fed,
                                    .n = rows,
                                    .known = t->n,
                                    .want = all            ? BT_LOGITS_ALL
                                            : rows == left ? BT_LOGITS_LAST
                                                           : BT_LOGITS_NONE};
    b->of_part[(*n)++] = t;
}

/* Chooses one token of each text being generated, then tokens of prompts in order of arrival. */
static size_t make_parts(bt_generator *b) {
    size_t n = 0, rows = 0, most = bt_decoder_rows(b->decoder), prompts = b->cfg.prompt_rows;
    for (int i = 0; i < b->cfg.slots; i++) {
        text *t = b->slots[i].at_work;
        if (!t || t->done || t->n - t->fed != 1 || rows == most) continue;
        add_decode_part(b, &n, t, 1);
        rows++;
    }
    for (text *t = b->texts; t && rows < most && prompts; t = t->next) {
        if (t->slot < 0 || t->done || t->n - t->fed <= 1) continue;
        size_t take = t->n - t->fed;
        if (take > prompts) take = prompts;
        if (take > most - rows) take = most - rows;
        add_decode_part(b, &n, t, take);
        rows += take;
        prompts -= take;
    }
    return n;
}

static void step_batch(bt_generator *b, size_t n) {
    const int64_t began = bt_now_ns();
    uint64_t read = 0, written = 0;
    for (size_t p = 0; p < n; p++) {
        const bt_decode_part *part = &b->parts[p];
        memcpy(b->slots[part->slot].tokens + bt_decoder_length(b->decoder, part->slot),
               part->tokens, part->n * sizeof *part->tokens);
        written -= b->of_part[p]->written;
    }
    bt_decoder_step(b->decoder, b->parts, n, receive_logits, b);
    for (size_t p = 0; p < n; p++) {
        text *t = b->of_part[p];
        if (t->fed < t->request.n) read += b->parts[p].n;
        t->fed += b->parts[p].n;
        written += t->written;
    }
    pthread_mutex_lock(&b->lock);
    b->load.prompt_tokens += read;
    b->load.tokens += written;
    b->load.steps++;
    b->load.seconds += (double)(bt_now_ns() - began) / 1e9;
    pthread_mutex_unlock(&b->lock);
}

void bt_generator_run(bt_generator *b) {
    text **begun = calloc((size_t)b->cfg.slots, sizeof(text *));
    for (bool on = begun != NULL; on;) {
        pthread_mutex_lock(&b->lock);
        on = wait_and_admit(b, begun);
        const size_t n = make_parts(b);
        pthread_mutex_unlock(&b->lock);
        for (int i = 0; i < b->cfg.slots && begun[i]; i++) report_prompt_tokens(b, begun[i]);
        if (n > 0) step_batch(b, n);
        remove_finished(b);
    }
    free(begun);
}
