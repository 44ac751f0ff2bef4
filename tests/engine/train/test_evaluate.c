/* test_evaluate.c - the evaluator compared with plain loops: nats per token over a split that a separate loader reads,
 * and macro F1 from precision and recall of each label. */
#include "engine/train/evaluate.h"

#include "tests/engine/model/small_model.h"
#include "tests/engine/train/chain_data.h"

#include <unistd.h>

enum { B = 2, T = 32, V = 64, BYTES = 256, LABELS = 4, TEXTS = 40 };

static bt_eval_result evaluate_once(bt_evaluator *e, bt_model *m) {
    bt_eval_result r = {0};
    bt_err err = BT_ERR_INIT;
    if (bt_evaluator_run(e, m, NULL, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    return r;
}

/* Five sequences in micro-batches of two: the sixth is computed and does not count. */
static void nats_are_the_mean_over_the_learned_tokens(void **state) {
    (void)state;
    enum { SEQUENCES = 5, MICROS = 3 };
    bt_err err = BT_ERR_INIT;
    bt_model_setup s = small_setup(B, T, V, 32, 48);
    bt_model *m = small_model(&s, 3);
    bt_model_quantise(m);
    bt_loader_cfg cfg = chain_data(B, T, V);
    bt_evaluator *e = NULL;
    if (bt_evaluator_open(&e, &cfg, SEQUENCES * T + T / 2, bt_comm_world(), &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(bt_evaluator_micros(e), MICROS);
    assert_int_equal(bt_evaluator_bytes(e), MICROS * B * T * (sizeof(int32_t) + sizeof(int32_t)));
    const bt_eval_result got = evaluate_once(e, m);

    bt_loader *l = NULL;
    cfg.split = BT_SPLIT_VAL;
    cfg.sequences_per_step = cfg.n_sequences = MICROS * B;
    if (bt_loader_open(&l, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_true(bt_evaluator_hash(e) == bt_loader_hash(l));
    double nats = 0;
    for (int i = 0; i < SEQUENCES; i += B) {
        bt_batch b;
        int32_t targets[B * T];
        if (bt_loader_next(l, &b, &err) != BT_OK) fail_msg("%s", err.msg);
        memcpy(targets, b.targets, sizeof targets);
        for (int t = 0; t < B * T; t++)
            if (i + t / T >= SEQUENCES) targets[t] = -1;
        nats += bt_model_eval_micro(m, b.inputs, targets);
    }
    bt_loader_close(l);
    assert_int_equal(got.tokens, SEQUENCES * T);
    assert_true(fabs(got.nats - nats / (SEQUENCES * T)) < 1e-12 * got.nats);
    assert_true(got.nats > 1);
    /* Tokens of the synthetic chain have no length in bytes. */
    assert_true(isnan(got.accuracy) && isnan(got.margin) && isnan(got.macro_f1));
    assert_true(evaluate_once(e, m).nats == got.nats);
    bt_evaluator_close(e);
    bt_model_destroy(m);
}

/* F1 of a label is the harmonic mean of its precision and recall; a label that neither occurs nor is predicted does not
 * count. */
static double f1_of(const double *table, int *counted) {
    double sum = 0;
    *counted = 0;
    for (int k = 0; k < LABELS; k++) {
        double is = 0, picked = 0, right = table[k * LABELS + k];
        for (int i = 0; i < LABELS; i++) {
            is += table[k * LABELS + i];
            picked += table[i * LABELS + k];
        }
        if (is + picked == 0) continue;
        const double precision = picked > 0 ? right / picked : 0, recall = is > 0 ? right / is : 0;
        sum += precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
        ++*counted;
    }
    return sum / *counted;
}

/* Three of four labels occur; a random head classifies some texts correctly. */
static void macro_f1_follows_from_precision_and_recall(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    char path[] = "/tmp/bt_labels.XXXXXX.jsonl";
    const int fd = mkstemps(path, 6);
    assert_true(fd >= 0);
    for (int i = 0; i < TEXTS; i++)
        dprintf(fd, "{\"text\": \"%c%c\", \"label\": \"%s\"}\n", 'a' + i % 26, 'A' + i * 7 % 26,
                names[i % 3]);
    close(fd);
    bt_err err = BT_ERR_INIT;
    bt_loader_cfg cfg = chain_data(B, T, V);
    cfg.paths = path;
    cfg.val_frac = 0.5;
    cfg.V = BYTES;
    cfg.packing = BT_PACKING_DOCUMENTS;
    cfg.form = (bt_form_cfg){
        .kind = BT_FORM_LABEL, .template_name = "chatml", .field = "text", .labels = "a\nb\nc\nd"};
    bt_model_setup s = small_setup(B, T, BYTES, 32, 48);
    s.documents = true;
    s.cfg.classes = LABELS;
    bt_model *m = small_model(&s, 3);
    const bt_tensor *score = bt_params_get(bt_model_params(m), -1, BT_P_SCORE);
    bt_rng_normal(bt_model_weights(m) + score->offset, score->count, 0, 0.3f, 9, 1);
    bt_model_quantise(m);
    bt_evaluator *e = NULL;
    if (bt_evaluator_open(&e, &cfg, 4096, bt_comm_world(), &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(bt_evaluator_bytes(e) % (3 * B * T * sizeof(int32_t)), 0);
    assert_null(bt_evaluator_confusion(e));
    const bt_eval_result got = evaluate_once(e, m);
    const double *table = bt_evaluator_confusion(e);
    double all = 0, right = 0;
    int counted = 0;
    for (int i = 0; i < LABELS * LABELS; i++) {
        all += table[i];
        right += i % (LABELS + 1) ? 0 : table[i];
    }
    const double want = f1_of(table, &counted);
    assert_true(all > TEXTS / 3 && got.tokens == (int64_t)all);
    assert_true(fabs(got.accuracy - right / all) < 1e-12);
    assert_true(right > 0 && right < all && counted >= 3);
    assert_true(fabs(got.macro_f1 - want) < 1e-12);
    assert_true(isnan(got.bits_per_byte));
    bt_evaluator_close(e);
    bt_model_destroy(m);
    unlink(path);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_threads_init(1, &err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nats_are_the_mean_over_the_learned_tokens),
        cmocka_unit_test(macro_f1_follows_from_precision_and_recall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
