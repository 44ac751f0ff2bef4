/* Continuous batching: texts generated together equal those generated alone; echo of the prompt, log probabilities,
 * stop strings, limits, order of the queue, cancelling and stopping. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/generate/generate.h"
#include "engine/generate/generator.h"
#include "engine/kernels/ops/ops.h"
#include "tests/engine/model/small_model.h"

enum { T = 48, V = 256, MANY = 40 };

static bt_model *model;
static bt_tokenizer *bytes;

static int start(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_model_setup s = small_setup(2, T, V, 64, 96);
    s.cfg.linear = BT_LIN_BITNET158;
    s.cfg.init_std = 0.25;
    s.train = false;
    if (bt_kernels_select("auto", &err) != BT_OK || bt_threads_init(2, &err) != BT_OK ||
        bt_tokenizer_load(&bytes, "bytes", &err) != BT_OK)
        return -1;
    model = small_model(&s, 5);
    bt_model_quantise(model);
    return 0;
}

static int stop(void **state) {
    (void)state;
    bt_model_destroy(model);
    bt_tokenizer_free(bytes);
    bt_ops_release();
    bt_threads_release();
    return 0;
}

typedef struct heard { /* one text, assembled from its callbacks */
    int32_t tokens[2 * T];
    double logprob[2 * T], best[2 * T];
    size_t n, n_echoed, n_top;
    char text[2 * T + 1];
    size_t n_text;
    bool done;
    bt_finish why;
    int place; /* rank in the order of first tokens */
    pthread_t thread;
} heard;

static int places;

static void on_token(void *ctx, const bt_token_event *s) {
    heard *h = ctx;
    assert_false(h->done);
    if (h->n == 0) h->place = places++;
    h->tokens[h->n] = s->token;
    h->logprob[h->n] = s->logprob;
    h->best[h->n] = s->n_top ? s->top_logprob[0] : NAN;
    h->n_top += s->n_top;
    h->n++;
    h->n_echoed += s->echoed;
    memcpy(h->text + h->n_text, s->text, s->n_text);
    h->n_text += s->n_text;
    h->thread = pthread_self();
}

static void on_done(void *ctx, bt_finish why, const char *text, size_t n) {
    heard *h = ctx;
    assert_false(h->done);
    memcpy(h->text + h->n_text, text, n);
    h->n_text += n;
    h->why = why;
    __atomic_store_n(&h->done, true, __ATOMIC_RELEASE);
}

static bt_generate_request request_of(heard *h, const int32_t *prompt, size_t n,
                                      size_t max_tokens) {
    memset(h, 0, sizeof *h);
    return (bt_generate_request){.prompt = prompt,
                                 .n = n,
                                 .max_tokens = max_tokens,
                                 .end = -1,
                                 .on_token = on_token,
                                 .done = on_done,
                                 .ctx = h};
}

static bt_generator *batch_of(int slots, size_t waiting, size_t prompt_rows) {
    bt_generator *b = NULL;
    bt_err err = BT_ERR_INIT;
    const bt_generator_cfg cfg = {model, bytes, slots, waiting, prompt_rows};
    if (bt_generator_create(&b, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    places = 0;
    return b;
}

static void submit_request(bt_generator *b, const bt_generate_request *requests, size_t n) {
    bt_err err = BT_ERR_INIT;
    if (bt_generator_submit(b, requests, n, &err) != BT_OK) fail_msg("%s", err.msg);
}

static void run_until_idle(bt_generator *b) {
    bt_generator_stop(b, (int64_t)100e9);
    bt_generator_run(b);
}

/* Generates the same text in a batch of one. */
static size_t generate_alone(int32_t *out, double *logprob, const bt_generate_request *a) {
    bt_gen *g = NULL;
    bt_err err = BT_ERR_INIT;
    size_t n = 0;
    assert_int_equal(bt_gen_create(&g, model, &err), BT_OK);
    assert_int_equal(bt_gen_feed(g, a->prompt, a->n, &err), BT_OK);
    while (n < a->max_tokens) {
        const int32_t id = bt_gen_sample(g, &a->sampling);
        double sum = 0;
        for (int v = 0; v < V; v++) sum += exp((double)bt_gen_logits(g)[v]);
        logprob[n] = (double)bt_gen_logits(g)[id] - log(sum);
        out[n++] = id;
        if (a->n + n > T) break; /* The prompt does not fit. */
        assert_int_equal(bt_gen_feed(g, &id, 1, &err), BT_OK);
    }
    bt_gen_destroy(g);
    return n;
}

static void random_prompt(int32_t *out, uint64_t seed, size_t n) {
    for (uint64_t i = 0; i < n; i++) out[i] = (int32_t)(bt_rng_u64(seed, 8, i) % V);
}

static void texts_written_together_equal_those_written_alone(void **state) {
    (void)state;
    static heard h[MANY];
    static int32_t prompts[MANY][T];
    bt_generate_request requests[MANY];
    for (int slots = 1; slots <= 16; slots += 5) {
        bt_generator *b = batch_of(slots, MANY, slots == 6 ? 5 : 0);
        for (size_t i = 0; i < MANY; i++) {
            const size_t n = 1 + bt_rng_u64(1, 2, i) % (T - 1);
            /* Some prompts share a prefix, so that slots are reused. */
            random_prompt(prompts[i], i % 7, n);
            requests[i] = request_of(&h[i], prompts[i], n, 1 + bt_rng_u64(1, 3, i) % 20);
            requests[i].sampling = (bt_sampling){.temperature = i % 3 ? 0.7 : 0,
                                                 .top_p = 1,
                                                 .top_k = i % 4 ? 0 : 7,
                                                 .repetition_penalty = i % 5 ? 1 : 1.2,
                                                 .seed = i};
            requests[i].logprobs = i % 2;
            requests[i].top = i % 6;
            requests[i].group = i % 3;
            submit_request(b, &requests[i], 1);
        }
        run_until_idle(b);
        for (size_t i = 0; i < MANY; i++) {
            int32_t want[T];
            double logprob[T];
            const size_t n = generate_alone(want, logprob, &requests[i]);
            assert_true(h[i].done);
            assert_int_equal(h[i].why, BT_FINISH_LENGTH);
            assert_int_equal(h[i].n, n);
            assert_int_equal(h[i].n_text, n);
            for (size_t k = 0; k < n; k++) {
                if (h[i].tokens[k] != want[k])
                    fail_msg("%d slots, text %zu, token %zu: %d alone, %d together", slots, i, k,
                             (int)want[k], (int)h[i].tokens[k]);
                assert_int_equal((unsigned char)h[i].text[k], want[k]);
                if (i % 2)
                    assert_true(fabs(h[i].logprob[k] - logprob[k]) < 1e-4);
                else
                    assert_true(isnan(h[i].logprob[k]));
            }
        }
        const bt_generator_load l = bt_generator_now(b);
        assert_int_equal(l.done, MANY);
        assert_int_equal(l.cancelled + l.working + l.waiting, 0);
        bt_generator_destroy(b);
    }
}

/* Evaluation harnesses need n + 1 entries, the first null, and the log probability of the likeliest token must equal
 * the one in the list exactly. */
static void an_echoed_prompt_has_its_log_probabilities(void **state) {
    (void)state;
    static heard h, plain;
    int32_t prompt[T];
    for (size_t n = 1; n <= T; n += 11) {
        for (int chunk = 0; chunk < 2; chunk++) {
            random_prompt(prompt, 77, n);
            bt_generator *b = batch_of(2, 2, chunk ? 3 : 0);
            bt_generate_request a = request_of(&h, prompt, n, 1),
                                p = request_of(&plain, prompt, n, 0);
            a.echo = a.logprobs = p.echo = true;
            a.top = 1;
            submit_request(b, &a, 1);
            submit_request(b, &p, 1);
            run_until_idle(b);
            bt_generator_destroy(b);
            assert_int_equal(h.n, n + 1);
            assert_int_equal(h.n_echoed, n);
            assert_true(isnan(h.logprob[0]));
            assert_int_equal(plain.n, n);
            assert_int_equal(plain.n_text, n);
            assert_int_equal(plain.why, BT_FINISH_LENGTH);
            bt_gen *g = NULL;
            bt_err err = BT_ERR_INIT;
            assert_int_equal(bt_gen_create(&g, model, &err), BT_OK);
            for (size_t i = 0; i < n; i++) {
                double sum = 0, top = -INFINITY;
                assert_int_equal(bt_gen_feed(g, prompt + i, 1, &err), BT_OK);
                for (int v = 0; v < V; v++) {
                    sum += exp((double)bt_gen_logits(g)[v]);
                    top = fmax(top, (double)bt_gen_logits(g)[v]);
                }
                const int32_t next = h.tokens[i + 1];
                if (i + 1 < n) assert_int_equal(next, prompt[i + 1]);
                const double want = (double)bt_gen_logits(g)[next] - log(sum);
                assert_true(fabs(h.logprob[i + 1] - want) < 1e-4);
                assert_true(fabs(h.best[i + 1] - (top - log(sum))) < 1e-4);
                assert_true(h.logprob[i + 1] <= h.best[i + 1]);
            }
            assert_true(h.logprob[n] == h.best[n]); /* temperature 0: the likeliest token */
            bt_gen_destroy(g);
        }
    }
}

static void stop_strings_and_end_tokens_end_a_text(void **state) {
    (void)state;
    static heard h[3];
    int32_t prompt[5], want[T];
    double logprob[T];
    random_prompt(prompt, 3, 5);
    bt_generate_request a = request_of(&h[0], prompt, 5, 20);
    assert_int_equal(generate_alone(want, logprob, &a), 20);
    char stop[] = {(char)want[6], (char)want[7], 0};
    if (want[6] == 0 || want[7] == 0) fail_msg("choose another seed of the prompt");
    const char *stops[] = {"", stop};
    size_t first = 0; /* index of its first occurrence */
    while (want[first] != want[6] || want[first + 1] != want[7]) first++;
    bt_generator *b = batch_of(4, 4, 0);
    a.stops = stops;
    a.n_stops = 2;
    submit_request(b, &a, 1);
    bt_generate_request e = request_of(&h[1], prompt, 5, 20);
    e.end = want[9];
    size_t end = 0;
    while (want[end] != want[9]) end++;
    submit_request(b, &e, 1);
    bt_generate_request room = request_of(&h[2], prompt, 5, 1000);
    submit_request(b, &room, 1);
    stop[0] = '?'; /* The batch has its own copy. */
    run_until_idle(b);
    bt_generator_destroy(b);
    assert_int_equal(h[0].why, BT_FINISH_STOP);
    assert_int_equal(h[0].n_text, first);
    assert_int_equal(h[0].n, first + 2);
    assert_int_equal(h[1].why, BT_FINISH_STOP);
    assert_int_equal(h[1].n, end + 1);
    assert_int_equal(h[2].why, BT_FINISH_LENGTH);
    assert_int_equal(h[2].n, T - 5 + 1);
}

/* A group of many prompts does not delay a later group. */
static void groups_take_turns(void **state) {
    (void)state;
    static heard h[12];
    const int32_t prompt[] = {1, 2, 3};
    bt_generate_request requests[12];
    bt_generator *b = batch_of(2, 20, 0);
    for (size_t i = 0; i < 12; i++) {
        requests[i] = request_of(&h[i], prompt, 3, 4);
        requests[i].group = i < 10
                                ? 1
                                : i; /* ten requests of one group, then two of different groups */
    }
    submit_request(b, requests, 10);
    submit_request(b, requests + 10, 1);
    submit_request(b, requests + 11, 1);
    run_until_idle(b);
    bt_generator_destroy(b);
    assert_int_equal(h[0].place, 0);
    assert_int_equal(h[10].place, 1);
    assert_true(h[11].place <= 3);
    for (size_t i = 1; i < 9; i++) assert_true(h[i].place < h[i + 1].place);
}

static void invalid_requests_are_refused(void **state) {
    (void)state;
    static heard h;
    int32_t prompt[T + 1] = {0};
    const int32_t outside[] = {3, V};
    bt_err err = BT_ERR_INIT;
    bt_generator *b = batch_of(1, 2, 0);
    bt_generate_request none = request_of(&h, prompt, 0, 1),
                        full = request_of(&h, prompt, T + 1, 1),
                        strange = request_of(&h, outside, 2, 1),
                        many = request_of(&h, prompt, 1, 1), good = request_of(&h, prompt, 1, 1);
    many.top = BT_TOP_MAX + 1;
    many.logprobs = true;
    assert_int_equal(bt_generator_submit(b, &none, 1, &err), BT_ARG);
    assert_int_equal(bt_generator_submit(b, &full, 1, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "49 tokens, the model's context 48"));
    assert_int_equal(bt_generator_submit(b, &strange, 1, &err), BT_ARG);
    assert_int_equal(bt_generator_submit(b, &many, 1, &err), BT_ARG);
    const bt_generate_request two[] = {good, strange}, four[] = {good, good, good, good};
    assert_int_equal(bt_generator_submit(b, two, 2, &err), BT_ARG);
    assert_int_equal(bt_generator_submit(b, four, 4, &err), BT_BUSY);
    assert_int_equal(bt_generator_now(b).waiting, 0); /* no request was accepted */
    bt_generator_stop(b, 0);
    assert_int_equal(bt_generator_submit(b, &good, 1, &err), BT_BUSY);
    bt_generator_run(b);
    bt_generator_destroy(b);
    bt_generator_destroy(NULL);
}

/* a thread that sends requests during generation */
typedef struct client {
    bt_generator *b;
    uint64_t seed;
    int cancelled, finished;
} client;

static void *send_requests_repeatedly(void *ctx) {
    client *c = ctx;
    static const int32_t prompt[] = {9, 8, 7, 6};
    heard h[3];
    for (uint64_t i = 0; i < 30; i++) {
        bt_generate_request a = request_of(&h[0], prompt, 1 + (c->seed + i) % 4, 1 + i % 40);
        a.group = c->seed;
        a.sampling.temperature = 1;
        a.sampling.top_p = 1;
        a.sampling.seed = i;
        atomic_bool cancel = i % 3 == 0;
        a.cancel = &cancel;
        bt_err err = BT_ERR_INIT;
        if (bt_generator_submit(c->b, &a, 1, &err) != BT_OK) continue;
        while (!__atomic_load_n(&h[0].done, __ATOMIC_ACQUIRE)) bt_sleep_ns(20000);
        if (h[0].why == BT_FINISH_CANCELLED)
            c->cancelled++;
        else
            c->finished++;
    }
    return NULL;
}

static void *stop_from_thread(void *ctx) {
    client *c = ctx;
    pthread_t t[6];
    for (int i = 0; i < 6; i++) pthread_create(&t[i], NULL, send_requests_repeatedly, &c[i]);
    for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
    bt_generator_stop(c->b, 0);
    return NULL;
}

static void threads_send_requests_during_generation(void **state) {
    (void)state;
    client c[6] = {0};
    pthread_t stopper;
    bt_generator *b = batch_of(4, 16, 0);
    for (uint64_t i = 0; i < 6; i++) c[i] = (client){.b = b, .seed = i};
    pthread_create(&stopper, NULL, stop_from_thread, c);
    bt_generator_run(b);
    pthread_join(stopper, NULL);
    int finished = 0, cancelled = 0;
    for (int i = 0; i < 6; i++) {
        finished += c[i].finished;
        cancelled += c[i].cancelled;
    }
    assert_int_equal(finished + cancelled, 6 * 30);
    assert_true(finished >= 6 * 20);
    assert_int_equal(bt_generator_now(b).done, 6 * 30);
    bt_generator_destroy(b);
}

/* Requests in progress when the grace period ends are notified. */
static void stopping_notifies_every_request(void **state) {
    (void)state;
    static heard h[5];
    const int32_t prompt[] = {1, 2};
    bt_generate_request requests[5];
    bt_generator *b = batch_of(2, 20, 0);
    for (size_t i = 0; i < 5; i++) requests[i] = request_of(&h[i], prompt, 2, 40);
    submit_request(b, requests, 5);
    bt_generator_stop(b, -1);
    bt_generator_run(b);
    for (size_t i = 0; i < 5; i++) {
        assert_true(h[i].done);
        assert_int_equal(h[i].why, BT_FINISH_CANCELLED);
    }
    bt_generator_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_written_together_equal_those_written_alone),
        cmocka_unit_test(an_echoed_prompt_has_its_log_probabilities),
        cmocka_unit_test(stop_strings_and_end_tokens_end_a_text),
        cmocka_unit_test(groups_take_turns),
        cmocka_unit_test(invalid_requests_are_refused),
        cmocka_unit_test(threads_send_requests_during_generation),
        cmocka_unit_test(stopping_notifies_every_request),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
