/* test_ensemble.c - an ensemble predicts with the mean of its members' probabilities: in evaluations, in stored
 * logits, and in decoding with a cache for each member. */
#include "engine/model/net/decoder.h"
#include "engine/model/net/sampler.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 12, V = 37, M = B * T, MEMBERS = 3, SLOTS = 2 };

static int32_t inputs[M], targets[M], positions[M];

/* Creates member k; the members differ in weights and width. */
static bt_model *create_member(int k) {
    bt_model_setup s = small_setup(B, T, V, k == 1 ? 48 : 32, 40);
    s.train = false;
    s.documents = true;
    s.cfg.linear = BT_LIN_BITNET158;
    bt_model *m = small_model(&s, 5 + (uint64_t)k);
    bt_model_quantise(m);
    return m;
}

static bt_model *create_ensemble(void) {
    bt_model *m = create_member(0);
    for (int k = 1; k < MEMBERS; k++) bt_model_add_member(m, create_member(k));
    assert_int_equal(bt_model_members(m), MEMBERS);
    return m;
}

/* Computes the log probabilities (M, V) at the targets of a pass; returns its loss. */
static double log_probabilities(bt_model *m, float out[M][V]) {
    static uint32_t ids[M * V];
    static float logs[M * V];
    bt_model_documents(m, positions);
    const double loss = bt_model_eval_micro(m, inputs, targets);
    bt_model_top_logits(m, targets, V, ids, logs);
    for (size_t i = 0; i < M; i++)
        for (size_t k = 0; k < V && targets[i] >= 0; k++) out[i][ids[i * V + k]] = logs[i * V + k];
    return loss;
}

/* Returns the logarithm of the mean of exp(logs) over the members. */
static double log_mean(const double *logs, size_t n) {
    double most = logs[0], sum = 0;
    for (size_t k = 1; k < n; k++) most = fmax(most, logs[k]);
    for (size_t k = 0; k < n; k++) sum += exp(logs[k] - most);
    return most + log(sum / (double)n);
}

static void evaluations_have_the_mean_probabilities(void **state) {
    (void)state;
    static float each[MEMBERS][M][V], mean[M][V];
    double want = 0, logs[MEMBERS];
    for (int k = 0; k < MEMBERS; k++) {
        bt_model *m = create_member(k);
        log_probabilities(m, each[k]);
        bt_model_destroy(m);
    }
    bt_model *m = create_ensemble();
    const double loss = log_probabilities(m, mean);
    for (size_t i = 0; i < M; i++) {
        if (targets[i] < 0) continue;
        for (size_t v = 0; v < V; v++) {
            for (size_t k = 0; k < MEMBERS; k++) logs[k] = (double)each[k][i][v];
            const double log_p = log_mean(logs, MEMBERS);
            if (!(fabs((double)mean[i][v] - log_p) < 1e-5))
                fail_msg("row %zu, token %zu: %.7f for %.7f", i, v, (double)mean[i][v], log_p);
            if ((size_t)targets[i] == v) want -= log_p;
        }
    }
    assert_true(fabs(loss - want) < 1e-5 * want);
    bt_model_destroy(m);
}

/* log probabilities of the last token of each slot */
static float decoded[SLOTS][V];

static void check_mean_logits(void *ctx, size_t part, size_t i, const float *logits) {
    const double sum = bt_log_sum_exp(logits, V);
    size_t *calls = ctx;
    (void)i;
    for (size_t v = 0; v < V; v++) decoded[part][v] = (float)((double)logits[v] - sum);
    ++*calls;
}

/* Decodes a prompt in each slot, removes one token from the cache, and decodes the last token. */
static void decode_slots(bt_model *m, float out[SLOTS][V]) {
    bt_decoder *d = NULL;
    bt_err err = BT_ERR_INIT;
    size_t calls = 0;
    if (bt_decoder_create(&d, m, SLOTS, &err) != BT_OK) fail_msg("%s", err.msg);
    const bt_decode_part prompts[] = {{0, inputs, 5, BT_LOGITS_NONE, 0},
                                      {1, inputs + T, 4, BT_LOGITS_ALL, 0}};
    const bt_decode_part wrong = {0, inputs + 9, 1, BT_LOGITS_NONE, 0};
    const bt_decode_part last[] = {{0, inputs + 5, 1, BT_LOGITS_LAST, 0},
                                   {1, inputs + T + 4, 2, BT_LOGITS_LAST, 0}};
    bt_decoder_step(d, prompts, 2, check_mean_logits, &calls);
    bt_decoder_step(d, &wrong, 1, NULL, NULL);
    bt_decoder_rewind(d, 0, 5);
    bt_decoder_step(d, last, 2, check_mean_logits, &calls);
    assert_int_equal(calls, 6);
    memcpy(out, decoded, sizeof decoded);
    bt_decoder_destroy(d);
}

static void decoding_has_the_mean_probabilities(void **state) {
    (void)state;
    static float each[MEMBERS][SLOTS][V], mean[SLOTS][V];
    double logs[MEMBERS];
    size_t bytes = 0;
    for (int k = 0; k < MEMBERS; k++) {
        bt_model *m = create_member(k);
        decode_slots(m, each[k]);
        bytes += bt_decoder_slot_bytes(m);
        bt_model_destroy(m);
    }
    bt_model *m = create_ensemble();
    decode_slots(m, mean);
    assert_true(bt_decoder_slot_bytes(m) == bytes);
    for (size_t s = 0; s < SLOTS; s++)
        for (size_t v = 0; v < V; v++) {
            for (size_t k = 0; k < MEMBERS; k++) logs[k] = (double)each[k][s][v];
            assert_true(fabs((double)mean[s][v] - log_mean(logs, MEMBERS)) < 1e-5);
        }
    bt_model_destroy(m);
}

static int setup(void **state) {
    for (int i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(3, 1, (uint64_t)i) % V);
        targets[i] = i % 3 ? (int32_t)(bt_rng_u64(3, 2, (uint64_t)i) % V) : -1;
        positions[i] = i % T < 7 ? i % T : i % T < 11 ? i % T - 7 : -1;
        if (positions[i] < 0) targets[i] = -1;
    }
    return engine_start(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluations_have_the_mean_probabilities),
        cmocka_unit_test(decoding_has_the_mean_probabilities),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}
