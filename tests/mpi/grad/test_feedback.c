// ctest: ranks=4 timeout=300
/* Codecs with error feedback in training, in every layout: losses near those of one rank, equal bits when repeated,
 * bytes by their formula. A checkpoint restores the residuals: in the same layout the bits are those of the
 * uninterrupted run, and another layout receives every element. */
#include <unistd.h>

#include "engine/base/rng.h"
#include "engine/train/parts/codec/codec_part.h"
#include "engine/train/trainer_impl.h"
#include "tests/mpi/layouts.h"

#define STRIPES "--set", "train.bucket_bytes=65536"

typedef struct layout {
    const char *name, *words[12];
    int shards;     /* 1: no ZeRO */
    double ternary; /* ZeRO-3 gathers a ternary weight with this many bits; 32 otherwise */
} layout;

static const layout layouts[] = {
    {.name = "plain", .words = {STRIPES}, .shards = 1},
    {.name = "zero 1", .words = {STRIPES, "--zero", "1"}, .shards = 4, .ternary = 32},
    {.name = "zero 2", .words = {STRIPES, "--zero", "2"}, .shards = 4, .ternary = 32},
    {.name = "zero 3",
     .words = {STRIPES, "--zero", "3", "--set", "parallel.gather=step"},
     .shards = 4,
     .ternary = 2},
    {.name = "2 replicas of 2 shards, zero 2",
     .words = {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"},
     .shards = 2,
     .ternary = 32},
    /* Another test checks the number of bytes of these layouts. */
    {.name = "2 x tp 2", .words = {STRIPES, "--tp", "2"}},
    {.name = "zero 3 x tp 2", .words = {STRIPES, "--tp", "2", "--dp-shard", "2", "--zero", "3"}},
    {.name = "2 x pp 2", .words = {STRIPES, "--pp", "2"}},
    {.name = "tp 4", .words = {STRIPES, "--tp", "4"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0], N_FORMULAS = 5, WORDS = 40, ALONE = 8 };

static const struct feedback_codec {
    const char *name;
    double tolerance; /* permitted sum of differences over twelve small steps */
    bool few;         /* Test only some layouts, because the layout does not affect this codec. */
} codecs[] = {
    {"int8", 1e-3, false}, {"sign", 0.05, true}, {"topk", 0.05, true}, {"ternary", 0.05, true}};
enum { N_CODECS = sizeof codecs / sizeof codecs[0] };

/* Returns whether the codec is tested in layout k: plain, ZeRO-3, 2 x tp 2. */
static bool tested_in_layout(const struct feedback_codec *c, size_t k) {
    return !c->few || k == 0 || k == 3 || k == 5;
}

static const char *const *with_codec(const layout *l, const char *codec) {
    static const char *words[WORDS];
    size_t n = 0;
    for (size_t i = 0; i < 12 && l->words[i]; i++) words[n++] = l->words[i];
    words[n++] = "--codec";
    words[n++] = codec;
    words[n] = NULL;
    return words;
}

static bool same_losses(const fake_sink *a, const fake_sink *b) {
    for (size_t i = 0; i < LAYOUT_STEPS; i++)
        if (a->steps[i].v[BT_MS_LOSS] != b->steps[i].v[BT_MS_LOSS] ||
            a->steps[i].v[BT_MS_GRAD_NORM] != b->steps[i].v[BT_MS_GRAD_NORM])
            return false;
    return true;
}

static void every_layout_trains_equally_and_repeatably(void **state) {
    (void)state;
    static fake_sink first;
    for (size_t c = 0; c < N_CODECS; c++) {
        for (size_t k = 0; k < N_LAYOUTS; k++) {
            const char *const *words = with_codec(&layouts[k], codecs[c].name);
            if (!tested_in_layout(&codecs[c], k)) continue;
            (void)layout_run(&together, words, NULL);
            if (k == 0 || k == 3 || k == 5) {
                (void)layout_run(&first, words, NULL);
                assert_true(same_losses(&first, &together));
            }
            if (k != ALONE) assert_false(same_losses(&alone, &together));
            for (size_t i = 0; i < LAYOUT_STEPS; i++)
                layout_near(alone.steps[i].v[BT_MS_LOSS], together.steps[i].v[BT_MS_LOSS],
                            codecs[c].tolerance, layouts[k].name, i);
        }
    }
}

/* Returns the bytes of one payload that contains every gradient once, in parts of `part` elements. */
static double gradient_bytes(const bt_codec *codec, size_t run_part_of_training) {
    bt_params p;
    bt_run_cfg cfg;
    bt_model_cfg m;
    double bytes = 0;
    TINY(&cfg, LAYOUT_WIDE);
    bt_run_cfg_model(&cfg, &m);
    assert_int_equal(bt_params_init(&p, &m, (bt_model_slice){.tp_size = 1}, NULL), BT_OK);
    for (size_t at = 0; at < p.total; at += run_part_of_training) {
        size_t end = at + run_part_of_training < p.total ? at + run_part_of_training : p.total;
        bytes += 8; /* checksum of the payload */
        for (size_t k = 0; k < p.n; k++) {
            const bt_tensor *t = &p.tensors[k];
            size_t a = t->offset > at ? t->offset : at,
                   b = t->offset + t->count < end ? t->offset + t->count : end;
            if (a < b) bytes += (double)(t->rows == 1 ? (b - a) * 4 : codec->bound(b - a));
        }
    }
    bt_params_release(&p);
    return bytes;
}

static void bytes_follow_the_formula(void **state) {
    (void)state;
    for (size_t c = 0; c < N_CODECS; c++) {
        const bt_codec *codec = NULL;
        for (int id = 0; id < BT_CODEC_COUNT; id++)
            if (strcmp(bt_codec_at((bt_codec_id)id)->name, codecs[c].name) == 0)
                codec = bt_codec_at((bt_codec_id)id);
        assert_non_null(codec);
        for (size_t k = 0; k < N_FORMULAS; k++) {
            const layout *l = &layouts[k];
            bt_train_result r;
            if (!tested_in_layout(&codecs[c], k)) continue;
            double linear,
                got = layout_bytes(with_codec(l, codec->name), "4", 1, &r, &linear), S = l->shards,
                R = 4 / S, params = (double)r.params,
                gather = S > 1 ? (4 * (params - linear) + l->ternary / 8 * linear) * (S - 1) / S
                               : 0,
                want = gradient_bytes(codec, 65536 / 4 / 4) * 3 / 4 +
                       gradient_bytes(codec->back ? codec->back : codec, 65536 / 4 / 4) * (R - 1) /
                           4 +
                       gather;
            /* Scales, arrival times and notes add at most 2 %. */
            if (!(fabs(got / want - 1) < 0.02))
                fail_msg("%s, %s: %.0f bytes a step and rank, %.0f by the formula", codec->name,
                         l->name, got, want);
        }
    }
}

static char dir[64];

/* Settings for eight steps of which the run makes `stop` steps. */
static void fill_part_cfg(bt_run_cfg *cfg, const layout *l, const char *codec,
                          const char *stop_after) {
    const char *words[WORDS + 8] = {"--steps", "8", "--lr", "1e-3", "--stop-after", stop_after};
    const char *const *more = with_codec(l, codec);
    size_t n = 6;
    if (stop_after[0] != '0') {
        words[n++] = "--out";
        words[n++] = dir;
    }
    while (*more) words[n++] = *more++;
    tiny_cfg(cfg, words);
}

/* Sums the residuals of all ranks, each element weighted by its position in its tensor; *size receives the sum of their
 * magnitudes. */
static double residuals_of_all_ranks(const bt_trainer *t, double *size) {
    const bt_residual *r = &((bt_codec_part *)bt_trainer_part(t, "codec"))->residual;
    double sum[2] = {0};
    bt_err err = BT_ERR_INIT;
    for (size_t k = 0; k < t->setup.params.n; k++) {
        const bt_tensor *x = &t->setup.params.tensors[k];
        for (size_t i = x->first_counted; i < x->count; i++) {
            double owed = r->owed ? (double)r->owed[x->offset + i] : 0,
                   weight = bt_rng_unit(1, bt_hash_name(x->name), bt_tensor_place(x, i));
            for (int c = 0; c < r->n_carried; c++) owed += (double)r->carried[c][x->offset + i];
            sum[0] += owed * weight;
            sum[1] += fabs(owed);
        }
    }
    assert_int_equal(bt_all_reduce_f64(bt_comm_world(), sum, 2, BT_SUM, &err), BT_OK);
    *size = sum[1];
    return sum[0];
}

/* Runs some steps; returns the residuals at their beginning and end. */
static void run_part_of_training(fake_sink *f, const layout *l, const char *codec,
                                 const char *stop_after, const char *resume_dir, double owed[2]) {
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    double size;
    fill_part_cfg(&cfg, l, codec, stop_after);
    memset(f, 0, sizeof *f);
    bt_trainer *t = tiny_create(&cfg, f, NULL, resume_dir);
    owed[0] = residuals_of_all_ranks(t, &size);
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    owed[1] = residuals_of_all_ranks(t, &size);
    assert_true(l == &layouts[ALONE] || strcmp(codec, "none") == 0 || size > 0);
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(
        bt_broadcast(bt_comm_world(), f, offsetof(fake_sink, last_checkpoint), 0, &err), BT_OK);
}

static void a_checkpoint_restores_residuals(void **state) {
    (void)state;
    static const size_t writers[] = {0, 3, 6};
    static const layout none = {.name = "plain, without a codec", .words = {STRIPES}};
    static fake_sink first, rest;
    for (size_t c = 0; c < N_CODECS; c++) {
        for (size_t w = 0; w < sizeof writers / sizeof *writers; w++) {
            const layout *from = &layouts[writers[w]];
            double at[2], of[2];
            if (codecs[c].few && writers[w] != 3) continue;
            layout_folder(dir);
            run_part_of_training(&together, from, codecs[c].name, "0", "", at);
            assert_true(at[0] == 0);
            run_part_of_training(&first, from, codecs[c].name, "5", "", at);
            for (size_t k = 0; k <= N_LAYOUTS; k++) {
                const layout *to = k < N_LAYOUTS ? &layouts[k] : &none;
                if (k < N_LAYOUTS && !tested_in_layout(&codecs[c], k)) continue;
                run_part_of_training(&rest, to, k < N_LAYOUTS ? codecs[c].name : "none", "0", dir,
                                     of);
                if (!(fabs(of[0] - at[1]) <= 1e-9 * fabs(at[1])))
                    fail_msg(
                        "%s, %s: %.12g is the residual when it resumes as %s, %.12g at the end",
                        codecs[c].name, from->name, of[0], to->name, at[1]);
                assert_int_equal(rest.n_steps, 3);
                for (size_t i = 0; i < 3; i++) {
                    double want = together.steps[5 + i].v[BT_MS_LOSS],
                           got = rest.steps[i].v[BT_MS_LOSS];
                    layout_near(want, got, 10 * codecs[c].tolerance, to->name, 5 + i);
                    if (to == from && want != got)
                        fail_msg("%s, %s, step %zu: loss %.17g uninterrupted, %.17g resumed",
                                 codecs[c].name, from->name, 5 + i, want, got);
                }
            }
            layout_remove(dir);
        }
    }
}

int main(void) {
    layout_run(&alone, NULL, NULL);
    if (!layout_begin(4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_trains_equally_and_repeatably),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(a_checkpoint_restores_residuals),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
