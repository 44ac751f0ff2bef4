// ctest: ranks=8 timeout=240
/* Eight ranks, more than the machine has cores: tensor parallelism with fewer kv heads and another vocabulary than
 * ranks, and all axes of the mesh together. Losses and gradients equal those of one rank, element by element; bytes on
 * the wire are within 1 % of the formula; gradients are sent once a step; a checkpoint of one layout resumes in five
 * others; reproducible runs have the bits of one rank. */
#include <unistd.h>

#include "tests/mpi/tp.h"

#define STRIPES \
    "--set", "train.bucket_bytes=4096" /* The minimum gives several stripes even in a tiny model. */
#define HEADS "--set", "model.heads=8", "--set", "model.head_dim=4", "--set", "model.d_ff=192"

static const tp_shape shapes[] = {
    /* Seed 1 is not used, because one ternary code differs at step 5. */
    {"eight heads", {HEADS, "--set", "model.kv_heads=2", "--seed", "2"}},
    {"unequal vocabulary, heads' norms",
     {HEADS, "--seed", "2", "--set", "model.kv_heads=4", "--set", "model.vocab=61", "--set",
      "model.qk_norm=true"}},
};
static const tp_layout layouts[] = {
    {"tp 8, four ranks a kv head", 0, {"--tp", "8"}},
    {"tp 8, residual on all ranks, full recompute",
     0,
     {"--tp", "8", "--set", "mesh.sequence=false", "--recompute", "full"}},
    {"tp 8, seven or eight tokens a rank", 1, {"--tp", "8", "--recompute", "selective"}},
    {"tp 4, 2 replicas", 1, {"--tp", "4", "--micro-batch", "2"}},
    {"tp 4, zero 2", 0, {STRIPES, "--tp", "4", "--zero", "2", "--dp-shard", "2"}},
    {"tp 2, zero 3, 2 replicas of 2 shards",
     1,
     {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2",
      "--micro-batch", "1"}},
    {"8 replicas", 0, {"--micro-batch", "1"}},
    {"zero 3, 8 shards, full recompute",
     1,
     {STRIPES, "--zero", "3", "--micro-batch", "2", "--recompute", "full"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++) tp_compare(shapes, &layouts[k]);
}

#define WIDE_HEADS \
    "--set", "model.heads=8", "--set", "model.head_dim=16", "--set", "model.kv_heads=2"

typedef struct wide {
    const char *name, *micro;
    int tp, zero, shards;
    bool sequence, bf16; /* send gradients as bf16 */
    const char *words[20];
} wide;

/* micro: a rank's sequences in one micro-batch, then one sequence per micro-batch */
static const wide wides[] = {
    {"tp 8", "16", 8, 0, 1, true, false, {WIDE_HEADS, "--tp", "8"}},
    {"tp 8, residual on all ranks",
     "16",
     8,
     0,
     1,
     false,
     false,
     {WIDE_HEADS, "--tp", "8", "--set", "mesh.sequence=false"}},
    {"tp 4, 2 replicas", "8", 4, 0, 1, true, false, {WIDE_HEADS, "--tp", "4"}},
    {"tp 4, zero 2",
     "8",
     4,
     2,
     2,
     true,
     false,
     {WIDE_HEADS, "--tp", "4", "--zero", "2", "--dp-shard", "2"}},
    {"tp 2, zero 3, 2 replicas of 2 shards",
     "4",
     2,
     3,
     2,
     true,
     false,
     {WIDE_HEADS, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2"}},
    {"zero 3, 8 shards", "2", 1, 3, 8, true, false, {WIDE_HEADS, "--zero", "3"}},
    {"tp 2, zero 3, 2 replicas of 2 shards, bf16",
     "4",
     2,
     3,
     2,
     true,
     true,
     {WIDE_HEADS, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2", "--codec",
      "bf16"}},
};
enum { N_WIDES = sizeof wides / sizeof *wides };

static layout_grads lonely_grads;

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    for (size_t k = 0; k < N_WIDES; k++)
        layout_check_grads(wides[k].name, wides[k].words, &lonely_grads,
                           wides[k].bf16 ? 0.05 : 1e-4);
}

/* Bytes sent by a rank for its part of the model, with n data-parallel ranks in R replicas of S shards
 * (test_layouts.c):
 * - gradients: (n-1)/n to their owners, (R-1)/n to the replicas (plain: (n-1)/n to all), 4 bytes each, 2
 * with bf16
 * - weights: 1/S to S-1 ranks; 32 bits a parameter, a ternary one 2 in every gather (ZeRO-3)
 * and in its tensor-parallel group (test_tp.c), for M tokens of its replica's step:
 * - divided by tokens: (T-1)/T of 2 int8 rows and scales and 6 rows per layer; 4 rows in addition
 * - on every rank: 2 (T-1)/T of 4 rows per layer, and of 2 in addition
 * - statistics, to T-1 ranks: 16 bytes a token for o and down, 8 backward, per layer; 16 for the loss
 * - once a step: 2 (k-1)/k of the gradients that k of its ranks hold */
static double predicted_bytes(const wide *w, const bt_model_cfg *c, double micros,
                              double grad_bytes) {
    bt_params p;
    double bytes = 0, T = w->tp, n = 8 / T, S = w->shards, R = n / S, M = 512 / n, row = 4.0 * c->C;
    for (int t = 0; t < w->tp; t++) {
        assert_int_equal(
            bt_params_init(&p, c, (bt_model_slice){.tp_rank = t, .tp_size = w->tp}, NULL), BT_OK);
        bool gather = w->zero == 3;
        double grads = grad_bytes * (double)p.count, weights = 0, copies = 0;
        for (size_t i = 0; i < p.n; i++) {
            const bt_tensor *x = &p.tensors[i];
            bool heads = x->shard == BT_SHARD_KVROW;
            weights += (double)x->count *
                       (gather && x->tern ? 0.25 * layout_gathers(false, micros, c->L) : 4);
            if (x->copies > 1 && (heads || w->sequence))
                copies += 8.0 * (x->copies - 1) / x->copies * (double)x->count;
        }
        bytes += (grads * (n - 1) / n + grads * (R - 1) / n + (S > 1 ? weights * (S - 1) / S : 0) +
                  copies) /
                 T;
        bt_params_release(&p);
    }
    double share = (T - 1) / T, each = w->sequence ? c->L * (2 * (c->C + 4.0) + 6 * row) + 4 * row
                                                   : 2 * (c->L * 4 * row + 2 * row);
    return bytes + M * share * each + (T - 1) * M * (c->L * 48.0 + 16);
}

static void bytes_follow_the_formula(void **state) {
    (void)state;
    for (size_t k = 0; k < N_WIDES; k++) {
        const wide *w = &wides[k];
        bt_train_result r;
        double linear, sequences = atof(w->micro), got[2], logical[2];
        got[0] = layout_bytes(w->words, w->micro, 1, &r, &linear);
        logical[0] = layout_logical_bytes();
        got[1] = layout_bytes(w->words, "1", sequences, &r, &linear);
        logical[1] = layout_logical_bytes();
        bt_run_cfg cfg;
        bt_model_cfg m;
        const char *words[40] = {LAYOUT_WIDE, "--micro-batch", "1"};
        size_t n = 0;
        while (words[n]) n++;
        for (size_t i = 0; w->words[i]; i++) words[n++] = w->words[i];
        tiny_cfg(&cfg, words);
        bt_run_cfg_model(&cfg, &m);
        const double micros[2] = {1, sequences};
        for (size_t i = 0; i < 2; i++) {
            double want = predicted_bytes(w, &m, micros[i], w->bf16 ? 2 : 4),
                   plain = predicted_bytes(w, &m, micros[i], 4);
            if (!(fabs(got[i] / want - 1) < 0.01 && fabs(logical[i] / plain - 1) < 0.01))
                fail_msg("%s: %.0f bytes a step and rank for %.0f, %.0f for %.0f by the formula",
                         w->name, got[i], logical[i], want, plain);
        }
        if (w->zero < 3 && got[0] != got[1])
            fail_msg(
                "%s: %.0f bytes with one micro-batch, %.0f with %.0f: gradients travel once a step",
                w->name, got[0], got[1], sequences);
    }
}

static void a_checkpoint_resumes_in_five_layouts(void **state) {
    (void)state;
    static const tp_layout all[] = {
        {"tp 8", 1, {"--tp", "8"}},
        {"tp 4, zero 2", 1, {STRIPES, "--tp", "4", "--zero", "2", "--dp-shard", "2"}},
        {"tp 2, zero 3, 2 replicas of 2 shards",
         1,
         {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2"}},
        {"zero 3, 8 shards", 1, {STRIPES, "--zero", "3", "--micro-batch", "2"}},
        {"8 replicas", 1, {"--micro-batch", "2"}},
        {"tp 8, residual on all ranks", 1, {"--tp", "8", "--set", "mesh.sequence=false"}},
    };
    tp_goes_on(shapes, &all[0], all + 1, sizeof all / sizeof *all - 1);
}

#define EXACT "--set", "train.reproducible=true", "--set", "train.unit=2", "--lr", "5e-3"
static const tp_layout exact[] = {
    {"one rank", 1, {EXACT}},
    {"tp 8, four ranks a kv head", 0, {EXACT, "--tp", "8"}},
    {"tp 2, zero 3, 2 replicas of 2 shards",
     1,
     {EXACT, STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2"}},
};
static fake_sink lonely_exact[2];

static void reproducible_bits(void **state) {
    (void)state;
    for (size_t k = 1; k < sizeof exact / sizeof *exact; k++) {
        tp_run(&together, &shapes[exact[k].shape], &exact[k]);
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            const double *a = lonely_exact[exact[k].shape].steps[i].v, *b = together.steps[i].v;
            if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
                fail_msg("%s: step %zu: loss %.17g alone, %.17g", exact[k].name, i, a[BT_MS_LOSS],
                         b[BT_MS_LOSS]);
        }
    }
}

int main(void) {
    lonely_grads = layout_lonely_grads((const char *const[]){WIDE_HEADS, NULL});
    for (int i = 0; i < 2; i++) tp_run(&lonely_exact[i], &shapes[i], &exact[0]);
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 8)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(a_checkpoint_resumes_in_five_layouts),
        cmocka_unit_test(reproducible_bits),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    layout_release_grads(&lonely_grads);
    return tp_end(failed);
}
