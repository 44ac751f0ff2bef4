/* mpi: 4
 * timeout: 200
 * What every layout promises, on four ranks: gradients element by element those of one rank; bytes on the wire as the formula
 * says, within 1 %, and not one more for more micro-batches; a checkpoint of one layout goes on in all others. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

#include "engine/parallel/shard.h"

#define STRIPES "--set", "train.bucket_bytes=65536"
enum { BUCKET = 65536 };

typedef struct layout { const char *name, *words[10]; int zero, shards; } layout;

static const layout layouts[] = {
    {"plain", {STRIPES}, 0, 1},
    {"zero 1", {STRIPES, "--zero", "1"}, 1, 4},
    {"zero 2", {STRIPES, "--zero", "2"}, 2, 4},
    {"zero 3", {STRIPES, "--zero", "3"}, 3, 4},
    {"2 replicas of 2 shards, zero 2", {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"}, 2, 2},
    {"2 replicas of 2 shards, zero 3", {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"}, 3, 2},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0], WORDS = 40 };

/* where a checkpoint goes on besides; what tensor parallelism sends and holds has its own tests */
static const layout teams[] = {
    {"2 x tp 2", {"--tp", "2"}, 0, 1},
    {"zero 3 x tp 2", {STRIPES, "--tp", "2", "--dp-shard", "2", "--zero", "3"}, 3, 2},
    {"tp 4", {"--tp", "4"}, 0, 1},
};
enum { N_TEAMS = sizeof teams / sizeof teams[0] };

/* a model wide enough that its notes and norms weigh nothing beside its gradients: 0.6 M parameters */
static const char *const wide[] = {"--set", "model.d_model=128", "--set", "model.d_ff=384", "--set", "train.stats_every=0", "--steps", "2", "--set", "data.val_frac=0"};
enum { N_WIDE = sizeof wide / sizeof wide[0] };

static void words_of(const char *words[WORDS], const layout *l, const char *micro_batch) {
    size_t n = 0;
    for (; n < N_WIDE; n++) words[n] = wide[n];
    words[n++] = "--micro-batch";
    words[n++] = micro_batch;
    for (size_t i = 0; i < 10 && l->words[i]; i++) words[n++] = l->words[i];
    words[n] = NULL;
}

/* one step; the trainer stays, with its gradients (scaled by nothing: clipping is the update's) */
static bt_trainer *after_one_step(const layout *l) {
    const char *words[WORDS];
    words_of(words, l, "2");
    for (size_t i = 0; words[i]; i++) if (strcmp(words[i], "--steps") == 0) words[i + 1] = "1";
    bt_run_cfg cfg;
    tiny_cfg(&cfg, words);
    bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s: %s", l->name, err.msg);
    return t;
}

static float *lonely_grads;

static double rms_of(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    int me = bt_comm_rank(bt_comm_world());
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        const layout *l = &layouts[k];
        bt_trainer *t = after_one_step(l);
        const bt_params *p = bt_model_params(bt_trainer_model(t));
        const float *grads = bt_model_grads(bt_trainer_model(t));
        bt_shards shards;
        bt_shards_init(&shards, p->total, BUCKET, 4 / l->shards, l->shards);
        double compared = 0;
        for (size_t s = 0; s < shards.n_stripes; s++) {
            bt_range piece = bt_shards_piece(&shards, s, me % l->shards);
            for (size_t i = 0; i < p->n; i++) {
                const bt_tensor *x = &p->tensors[i];
                double rms = rms_of(lonely_grads + x->offset, x->count);
                size_t from = x->offset > piece.begin ? x->offset : piece.begin, to = x->offset + x->count < piece.end ? x->offset + x->count : piece.end;
                for (size_t e = from; e < to; e++, compared++) {
                    double a = (double)lonely_grads[e], b = (double)grads[e];
                    if (!(fabs(a - b) <= 1e-5 * (rms + fabs(a)))) fail_msg("%s: %s[%zu] is %.9g alone, %.9g together (rms %.3g)", l->name, x->name, e - x->offset, a, b, rms);
                }
            }
        }
        double all = (double)p->count * 4 / l->shards;          /* once in every replica */
        bt_trainer_destroy(t);
        bt_threads_release();
        assert_int_equal(bt_all_reduce_f64(bt_comm_world(), &compared, 1, BT_SUM, &err), BT_OK);
        assert_true(compared == all);
    }
}

/*     sums to owners      a rank sends (n-1)/n of the gradients
 *     owners to all       plain: 1/n to n-1 others; among replicas: 1/n to R-1 others
 *     weights             1/S to S-1 others: 32 bits a parameter, a ternary one 2 (ZeRO-3) */
static double formula(const layout *l, double params, double ternary, double bits) {
    double n = 4, S = l->shards, R = n / S, grads = 4 * params;
    double weights = S > 1 ? 4 * (params - ternary) + bits / 8 * ternary : 0;
    return grads * (n - 1) / n + grads * (R - 1) / n + weights * (S - 1) / S;
}

static void bytes_follow_the_formula(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        const layout *l = &layouts[k];
        double got[2], params = 0, linear = 0;
        for (int accumulate = 0; accumulate < 2; accumulate++) {            /* one micro-batch a rank, then four */
            const char *words[WORDS];
            words_of(words, l, accumulate ? "1" : "4");
            bt_train_result r = layout_run(&together, words, NULL);
            assert_true(together.steps[1].r[3][BT_MR_MICRO_BATCHES] == (accumulate ? 4 : 1));
            params = (double)r.params;
            linear = atof(fake_fact(&together, "params.linear"));
            got[accumulate] = 0;
            for (int q = 0; q < 4; q++) got[accumulate] += together.steps[1].r[q][BT_MR_BYTES_WIRE] / 4;
        }
        double ternary = l->zero == 3 ? linear : 0, want = formula(l, params, ternary, 2);
        if (!(fabs(got[0] / want - 1) < 0.01)) fail_msg("%s: %.0f bytes a step and rank, the formula says %.0f", l->name, got[0], want);
        if (got[0] != got[1]) fail_msg("%s: %.0f bytes with one micro-batch, %.0f with four: gradients travel once a step", l->name, got[0], got[1]);
        if (l->zero < 3) continue;
        /* all that is not gradients or fp32 weights is the gather, scales included */
        double gather = got[0] - formula(l, params, ternary, 0), bits = 8 * gather / (ternary * (l->shards - 1) / l->shards);
        if (!(bits <= 2.1)) fail_msg("%s: the gather takes %.3f bits a parameter", l->name, bits);
    }
}

/* ---- one layout's checkpoint in all the others ------------------------------------------------------------------------ */

static char dir[64];

static void part(fake_sink *f, const layout *l, const char *stop_after, const char *resume_dir) {
    const char *words[WORDS] = {"--steps", "8", "--lr", "1e-3", "--stop-after", stop_after};
    size_t n = 6;
    if (!resume_dir[0] && stop_after[0] != '0') {
        words[n++] = "--out";
        words[n++] = dir;
    }
    for (size_t i = 0; i < 10 && l->words[i]; i++) words[n++] = l->words[i];
    bt_run_cfg cfg;
    tiny_cfg(&cfg, words);
    (void)tiny_run(&cfg, f, NULL, resume_dir);
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_broadcast(bt_comm_world(), f, offsetof(fake_sink, last_checkpoint), 0, &err), BT_OK);
}

static void one_checkpoint_goes_on_in_every_layout(void **state) {
    (void)state;
    static const layout writers[] = {{"zero 3", {STRIPES, "--zero", "3"}, 3, 4}, {"plain", {NULL}, 0, 1}};
    static fake_sink first, rest;
    for (size_t w = 0; w < sizeof writers / sizeof writers[0]; w++) {
        layout_folder(dir);
        part(&together, &writers[w], "0", "");
        part(&first, &writers[w], "5", "");
        for (size_t k = 0; k < N_LAYOUTS + N_TEAMS; k++) {
            const layout *to = k < N_LAYOUTS ? &layouts[k] : &teams[k - N_LAYOUTS];
            part(&rest, to, "0", dir);
            assert_int_equal(rest.n_steps, 3);
            for (size_t i = 0; i < 3; i++) {
                assert_int_equal(rest.steps[i].step, 5 + i);
                layout_near(together.steps[5 + i].v[BT_MS_LOSS], rest.steps[i].v[BT_MS_LOSS], k < N_LAYOUTS ? 1e-5 : 1e-4, to->name, 5 + i);
            }
        }
        layout_remove(dir);
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    static const layout lonely = {"alone", {NULL}, 0, 1};
    bt_trainer *t = after_one_step(&lonely);
    size_t n = bt_model_params(bt_trainer_model(t))->total;
    lonely_grads = malloc(n * sizeof *lonely_grads);
    memcpy(lonely_grads, bt_model_grads(bt_trainer_model(t)), n * sizeof *lonely_grads);
    bt_trainer_destroy(t);
    bt_threads_release();
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 4) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(one_checkpoint_goes_on_in_every_layout),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(lonely_grads);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
