// ctest: ranks=3
/* An evaluation shared by three ranks equals that of one rank: each sequence and each pair of preferences counts
 * exactly once, also if the shares are uneven. */
#include "engine/train/evaluate.h"

#include "tests/engine/model/small_model.h"
#include "tests/engine/train/chain_data.h"

#include <unistd.h>

enum { B = 2, T = 32, V = 64, PAIR_T = 160, PAIRS = 11, BYTES = 256 };

static bt_comm *alone;

typedef struct seen {
    /* number of counted sequences, and the sum of the hashes of their tokens */
    int64_t sequences, hashes;
    int T;
} seen;

static bt_code count_evaluated(void *ctx, bt_model *m, const bt_batch *b, bt_err *err) {
    (void)m, (void)err;
    seen *s = ctx;
    for (int row = 0; row < B; row++) {
        uint64_t hash = 0;
        bool counts = false;
        for (int t = row * s->T; t < (row + 1) * s->T; t++) {
            hash = (hash ^ (uint64_t)b->inputs[t]) * 0x100000001b3u;
            counts |= b->targets[t] >= 0;
        }
        s->sequences += counts;
        s->hashes += counts ? (int64_t)(hash >> 8) : 0;
    }
    return BT_OK;
}

static bt_eval_result evaluate_on_ranks(bt_comm *ranks, const bt_loader_cfg *cfg, int64_t tokens,
                                        bt_model *m, seen *s) {
    bt_evaluator *e = NULL;
    bt_eval_result r = {0};
    bt_err err = BT_ERR_INIT;
    *s = (seen){.T = cfg->T};
    if (bt_evaluator_open(&e, cfg, tokens, ranks, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_evaluator_visit(e, count_evaluated, s);
    if (bt_evaluator_run(e, m, NULL, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(bt_all_reduce_i64(ranks, &s->sequences, 1, BT_SUM, &err), BT_OK);
    assert_int_equal(bt_all_reduce_i64(ranks, &s->hashes, 1, BT_SUM, &err), BT_OK);
    bt_evaluator_close(e);
    return r;
}

static void each_sequence_counts_once(void **state) {
    (void)state;
    static const int sequences[] = {1, 2, 3, 5, 6, 7, 11, 12};
    const bt_model_setup setup = small_setup(B, T, V, 32, 48);
    bt_model *m = small_model(&setup, 3);
    bt_model_quantise(m);
    const bt_loader_cfg cfg = chain_data(B, T, V);
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        seen one, three;
        const int64_t tokens = (int64_t)sequences[i] * T;
        const bt_eval_result want = evaluate_on_ranks(alone, &cfg, tokens, m, &one),
                             got = evaluate_on_ranks(bt_comm_world(), &cfg, tokens, m, &three);
        assert_int_equal(three.sequences, sequences[i]);
        assert_int_equal(three.hashes, one.hashes);
        assert_int_equal(got.tokens, tokens);
        assert_true(fabs(got.nats - want.nats) < 1e-12 * want.nats);
    }
    bt_model_destroy(m);
}

/* Random adapters beside a random base model give rewards other than zero. */
static bt_model *preferring_model(void) {
    bt_model_setup s = small_setup(B, PAIR_T, BYTES, 32, 48);
    bt_model *base = small_model(&s, 5);
    s.cfg.lora = (bt_lora){.rank = 2, .scale = 1.5, .targets = BT_LORA_ALL};
    s.documents = s.pairs = true;
    bt_model *m = small_model(&s, 5);
    const bt_params *p = bt_model_params(base), *own = bt_model_params(m);
    bt_model_quantise(base);
    for (size_t i = 0; i < p->n; i++)
        bt_model_base_put(m, i, 0, p->tensors[i].count,
                          bt_model_weights(base) + p->tensors[i].offset,
                          (float)bt_model_quant_stat(base, i).scale);
    bt_model_base_done(m);
    for (size_t i = 0; i < own->n; i++)
        bt_rng_normal(bt_model_weights(m) + own->tensors[i].offset, own->tensors[i].count, 0, 0.2f,
                      9, i);
    bt_model_dpo(m, (bt_dpo){.on = true, .beta = 0.3});
    bt_model_destroy(base);
    return m;
}

static void each_pair_counts_once(void **state) {
    (void)state;
    char path[] = "/tmp/bt_pairs.XXXXXX.jsonl";
    const int fd = mkstemps(path, 6);
    assert_true(fd >= 0);
    for (int i = 0; i < 2 * PAIRS; i++)
        dprintf(fd, "{\"prompt\": \"%c%c\", \"chosen\": \"%c\", \"rejected\": \"%c%c\"}\n", 'a' + i,
                'A' + i, 'b' + i, 'C' + i, 'd' + i);
    close(fd);
    const bt_loader_cfg cfg = {
        .paths = path,
        .tokenizer = "bytes",
        .val_paths = "",
        .val_frac = 0.5,
        .cache_dir = "",
        .B = B,
        .T = PAIR_T,
        .V = BYTES,
        .seed = 4,
        .packing = BT_PACKING_DOCUMENTS,
        .form = {.kind = BT_FORM_PREFERENCE, .template_name = "chatml", .field = "text"}};
    bt_model *m = preferring_model();
    seen one, three;
    const bt_eval_result want = evaluate_on_ranks(alone, &cfg, 1 << 20, m, &one),
                         got = evaluate_on_ranks(bt_comm_world(), &cfg, 1 << 20, m, &three);
    assert_true(want.tokens >= PAIRS / 2 && want.margin != 0);
    assert_int_equal(three.sequences, one.sequences);
    assert_int_equal(three.hashes, one.hashes);
    assert_int_equal(got.tokens, want.tokens);
    assert_true(got.accuracy == want.accuracy);
    assert_true(fabs(got.margin - want.margin) < 1e-12 * fabs(want.margin));
    assert_true(fabs(got.nats - want.nats) < 1e-12 * want.nats);
    bt_model_destroy(m);
    unlink(path);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    if (bt_comm_split(&alone, bt_comm_world(), bt_comm_rank(bt_comm_world()), 0, &err) != BT_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sequence_counts_once),
        cmocka_unit_test(each_pair_counts_once),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_free(alone);
    bt_threads_release();
    bt_comm_finalize();
    return failed;
}
