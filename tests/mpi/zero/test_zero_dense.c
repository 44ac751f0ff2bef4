// ctest: ranks=4 timeout=200
/* ZeRO-3 with weights that are not ternary (dense layers, embedding and head): every layout has the bits of one rank,
 * with fp32 products and, if this machine has them, bf16 products; only owners hold latent weights; the bytes follow
 * the formula; checkpoints resume in other layouts. */
#include <unistd.h>

#include "engine/kernels/table/kernels.h"
#include "tests/mpi/layouts.h"

#define STRIPES "--set", "train.bucket_bytes=4096"
#define DENSE "--set", "model.linear=dense"
#define BF16 "--isa", "auto", "--precision", "bf16"

/* half: products read the weights as bf16 */
static const struct shape {
    const char *name, *words[14];
    bool half, dense;
} shapes[] = {
    {"dense, fp32", {DENSE}, false, true},
    {"dense, bf16", {DENSE, BF16}, true, true},
    {"dense, bf16, untied", {DENSE, BF16, "--set", "model.tied=false"}, true, true},
    {"ternary, bf16, untied", {BF16, "--grad", "int8", "--set", "model.tied=false"}, true, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const struct layout {
    const char *name, *words[12];
    int shards;
} layouts[] = {
    {"plain", {NULL}, 1},
    {"zero 1", {STRIPES, "--zero", "1"}, 4},
    {"zero 2", {STRIPES, "--zero", "2"}, 4},
    {"zero 3", {STRIPES, "--zero", "3"}, 4},
    {"zero 3, one stripe, full recompute", {"--zero", "3", "--recompute", "full"}, 4},
    {"zero 3, 2 replicas of 2 shards",
     {STRIPES, "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2"},
     2},
    {"zero 3, once a step", {STRIPES, "--zero", "3", "--set", "parallel.gather=step"}, 4},
    {"zero 3, tp 2", {STRIPES, "--zero", "3", "--tp", "2"}, 2},
    {"zero 3, pp 2", {STRIPES, "--zero", "3", "--pp", "2"}, 2},
    {"zero 3, unequal shares", {STRIPES, "--zero", "3", "--balance", "1,1,1,5"}, 4},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts, WORDS = 64 };

static fake_sink lonely[N_SHAPES];

static void words_of(const char *words[WORDS], size_t shape, const char *const *more) {
    size_t n = 0;
    words[n++] = "--set";
    words[n++] = "train.reproducible=true";
    words[n++] = "--set";
    words[n++] = "train.unit=2";
    words[n++] = "--lr";
    words[n++] = "5e-3";
    for (size_t i = 0; i < 14 && shapes[shape].words[i]; i++) words[n++] = shapes[shape].words[i];
    while (more && *more) words[n++] = *more++;
    words[n] = NULL;
}

/* Products in bf16 are tested only on processors that support them. */
static bool is_shape_tested(size_t shape) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    return !shapes[shape].half || bt_kernels_multiply_bf16();
}

static void same_bits(const fake_sink *a, size_t from, const fake_sink *b, const char *shape,
                      const char *layout) {
    assert_true(b->n_steps > 0);
    for (size_t i = 0; i < b->n_steps; i++) {
        const double *x = a->steps[from + i].v, *y = b->steps[i].v;
        if (x[BT_MS_LOSS] != y[BT_MS_LOSS] || x[BT_MS_GRAD_NORM] != y[BT_MS_GRAD_NORM] ||
            (x[BT_MS_VAL_LOSS] != y[BT_MS_VAL_LOSS] &&
             !(isnan(x[BT_MS_VAL_LOSS]) && isnan(y[BT_MS_VAL_LOSS]))))
            fail_msg("%s, %s, step %zu: loss %.17g, norm %.17g, on one rank %.17g and %.17g", shape,
                     layout, from + i, y[BT_MS_LOSS], y[BT_MS_GRAD_NORM], x[BT_MS_LOSS],
                     x[BT_MS_GRAD_NORM]);
    }
}

static void the_bits_of_one_rank(void **state) {
    (void)state;
    const char *words[WORDS];
    for (size_t s = 0; s < N_SHAPES; s++) {
        for (size_t k = 0; is_shape_tested(s) && k < N_LAYOUTS; k++) {
            /* The other two shapes test these layouts. */
            if (s % 2 == 0 && k % 2 == 0) continue;
            words_of(words, s, layouts[k].words);
            layout_run(&together, words, NULL);
            assert_int_equal(together.n_steps, LAYOUT_STEPS);
            same_bits(&lonely[s], 0, &together, shapes[s].name, layouts[k].name);
            layout_conserves();
        }
    }
}

/* Exactly one rank of a replica holds each latent weight that ZeRO-3 divides (untouched memory reads as zero); all
 * ranks hold the norms. */
static void only_the_owner_holds_a_latent_weight(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    const char *words[WORDS];
    for (size_t s = 0; s < N_SHAPES; s++) {
        if (!is_shape_tested(s)) continue;
        bt_run_cfg cfg;
        bt_train_result r;
        const char *const more[] = {STRIPES, "--zero", "3", "--steps", "2", NULL};
        words_of(words, s, more);
        tiny_cfg(&cfg, words);
        bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
        assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
        const bt_params *p = bt_model_params(bt_trainer_model(t));
        const float *w = bt_model_weights(bt_trainer_model(t));
        for (size_t i = 0; i < p->n; i++) {
            const bt_tensor *x = &p->tensors[i];
            bool table = x->id == BT_P_EMBED || x->id == BT_P_HEAD;
            double held = 0;
            for (size_t e = 0; e < x->count; e++) held += w[x->offset + e] != 0;
            assert_int_equal(bt_all_reduce_f64(bt_comm_world(), &held, 1, BT_SUM, &err), BT_OK);
            double copies = x->linear || (table && shapes[s].half) ? 1 : 4;
            if (held != copies * (double)x->count)
                fail_msg("%s: %s has %zu weights, of which %.0f are held", shapes[s].name, x->name,
                         x->count, held);
        }
        bt_trainer_destroy(t);
        bt_threads_release();
    }
}

/* A rank sends 1/4 of the gradients to 3 ranks and 1/4 of the weights: those of dense layers in every gather, those of
 * embedding and head once, each as bf16 or fp32, and the norms once. */
static void bytes_follow_the_formula(void **state) {
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        if (!is_shape_tested(s) || !shapes[s].dense) continue;
        for (size_t once = 0; once < 2; once++) {
            const char *words[WORDS] = {STRIPES, "--zero", "3"};
            size_t n = 4;
            for (size_t i = 0; i < 14 && shapes[s].words[i]; i++) words[n++] = shapes[s].words[i];
            if (once) words[n++] = "--set", words[n++] = "parallel.gather=step";
            words[n] = NULL;
            bt_train_result r;
            double linear, got = layout_bytes(words, "1", 4, &r, &linear), all = (double)r.params,
                           value = shapes[s].half ? 2 : 4,
                           gathers = layout_gathers(once == 1, 4, 2);
            assert_true(linear > 0 && linear < all);
            /* The norms add a thousandth. */
            double want = 0.75 * (4 * all + gathers * value * linear + value * (all - linear));
            if (!(fabs(got / want - 1) < 0.01))
                fail_msg("%s: %.0f bytes a step and rank, %.0f by the formula", shapes[s].name, got,
                         want);
        }
    }
}

static void run_dense_part(fake_sink *f, size_t shape, const char *const *layout, const char *dir,
                           const char *stop_after, const char *resume_dir) {
    const char *words[WORDS];
    const char *more[32] = {"--steps", "8", "--stop-after", stop_after};
    size_t n = 4;
    if (dir) more[n++] = "--out", more[n++] = dir;
    while (*layout) more[n++] = *layout++;
    words_of(words, shape, more);
    layout_part(f, words, resume_dir);
}

static void a_checkpoint_resumes_in_every_layout(void **state) {
    (void)state;
    static fake_sink whole, first, rest;
    static const size_t writers[] = {3, 0, 8};
    for (size_t s = 0; s < N_SHAPES; s++) {
        for (size_t w = 0; is_shape_tested(s) && w < sizeof writers / sizeof *writers; w++) {
            const struct layout *from = &layouts[writers[w]];
            if (w > 0 && s != 1 && s != 2) continue;
            char dir[64];
            layout_folder(dir);
            run_dense_part(&whole, s, from->words, NULL, "0", "");
            run_dense_part(&first, s, from->words, dir, "5", "");
            for (size_t k = 0; k < N_LAYOUTS; k += w == 0 && s == 1 ? 1 : 3) {
                run_dense_part(&rest, s, layouts[k].words, NULL, "0", dir);
                assert_int_equal(rest.n_steps, 3);
                same_bits(&whole, 5, &rest, shapes[s].name, layouts[k].name);
            }
            layout_remove(dir);
        }
    }
}

int main(void) {
    const char *words[WORDS];
    for (size_t s = 0; s < N_SHAPES; s++) {
        if (!is_shape_tested(s)) continue;
        words_of(words, s, NULL);
        layout_run(&lonely[s], words, NULL);
    }
    if (!layout_begin(4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_rank),
        cmocka_unit_test(only_the_owner_holds_a_latent_weight),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(a_checkpoint_resumes_in_every_layout),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
