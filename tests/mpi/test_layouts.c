// ctest: ranks=4 timeout=300
/* Properties of every layout on four ranks: gradients equal those of one rank element by element; bytes on the wire are
 * within 1 % of the formula and independent of the number of micro-batches; a checkpoint of one layout resumes in every
 * other layout. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

#define STRIPES "--set", "train.bucket_bytes=65536"

typedef struct layout {
    const char *name, *words[12];
    int zero, shards;
    bool once;         /* ZeRO-3 gathers once a step */
    bool reproducible; /* the losses of every unit are exchanged */
    bool bf16;         /* send gradients as bf16 */
} layout;

static const layout layouts[] = {
    {.name = "plain", .words = {STRIPES}, .shards = 1},
    {.name = "zero 1", .words = {STRIPES, "--zero", "1"}, .zero = 1, .shards = 4},
    {.name = "zero 2", .words = {STRIPES, "--zero", "2"}, .zero = 2, .shards = 4},
    {.name = "zero 3", .words = {STRIPES, "--zero", "3"}, .zero = 3, .shards = 4},
    {.name = "2 replicas of 2 shards, zero 2",
     .words = {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"},
     .zero = 2,
     .shards = 2},
    {.name = "2 replicas of 2 shards, zero 3",
     .words = {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"},
     .zero = 3,
     .shards = 2},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0], WORDS = 40 };

/* modes that send the same bytes as their layout */
static const layout modes[] = {
    {.name = "reproducible",
     .words = {STRIPES, "--set", "train.reproducible=true"},
     .shards = 1,
     .reproducible = true},
    {.name = "zero 3, reproducible",
     .words = {STRIPES, "--zero", "3", "--set", "train.reproducible=true"},
     .zero = 3,
     .shards = 4,
     .reproducible = true},
    {.name = "zero 3, once a step",
     .words = {STRIPES, "--zero", "3", "--set", "parallel.gather=step"},
     .zero = 3,
     .shards = 4,
     .once = true},
    {.name = "fp16, full recompute",
     .words = {STRIPES, "--precision", "fp16", "--recompute", "full"},
     .shards = 1},
    {.name = "zero 2, bf16, given shares",
     .words = {STRIPES, "--zero", "2", "--precision", "bf16", "--balance", "1,1,1,1"},
     .zero = 2,
     .shards = 4},
};
enum { N_MODES = sizeof modes / sizeof modes[0] };

/* halves the bytes of gradients */
#define BF16 "--codec", "bf16"
static const layout codecs[] = {
    {.name = "plain, bf16 gradients", .words = {STRIPES, BF16}, .shards = 1, .bf16 = true},
    {.name = "zero 1, bf16 gradients",
     .words = {STRIPES, BF16, "--zero", "1"},
     .zero = 1,
     .shards = 4,
     .bf16 = true},
    {.name = "zero 2, bf16 gradients",
     .words = {STRIPES, BF16, "--zero", "2"},
     .zero = 2,
     .shards = 4,
     .bf16 = true},
    {.name = "2 replicas of 2 shards, zero 3, bf16 gradients",
     .words = {STRIPES, BF16, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"},
     .zero = 3,
     .shards = 2,
     .bf16 = true},
};
enum { N_CODECS = sizeof codecs / sizeof codecs[0] };

/* Other layouts in which a checkpoint resumes; other tests check the bytes and memory of tensor parallelism. */
static const layout groups[] = {
    {.name = "2 x tp 2", .words = {"--tp", "2"}},
    {.name = "zero 3 x tp 2", .words = {STRIPES, "--tp", "2", "--dp-shard", "2", "--zero", "3"}},
    {.name = "tp 4", .words = {"--tp", "4"}},
};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static layout_grads lonely_grads;

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++)
        layout_check_grads(layouts[k].name, layouts[k].words, &lonely_grads, 1e-5);
    /* The gradients of four ranks and their sum have a relative error of at most 2^-8 each. */
    for (size_t k = 0; k < N_CODECS; k++)
        layout_check_grads(codecs[k].name, codecs[k].words, &lonely_grads, 0.05);
}

/* Bytes of a rank; gradients have 4 bytes each, or 2 with bf16:
 * - sums to owners: (n-1)/n of the gradients
 * - owners to all (plain): 1/n to n-1 ranks; among replicas: 1/n to R-1 ranks
 * - weights: 1/S to S-1 ranks; 32 bits a parameter, a ternary one 2 in every gather (ZeRO-3) */
static double predicted_bytes_per_rank(const layout *l, const bt_train_result *r, double ternary,
                                       double gathers, double grad_bytes) {
    double n = 4, S = l->shards, R = n / S, params = (double)r->params, grads = grad_bytes * params,
           bits = 2;
    double weights = S > 1 ? 4 * (params - ternary) + gathers * bits / 8 * ternary : 0;
    return grads * (n - 1) / n + grads * (R - 1) / n + weights * (S - 1) / S;
}

static void bytes_follow_the_formula(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS + N_MODES + N_CODECS; k++) {
        const layout *l = k < N_LAYOUTS             ? &layouts[k]
                          : k < N_LAYOUTS + N_MODES ? &modes[k - N_LAYOUTS]
                                                    : &codecs[k - N_LAYOUTS - N_MODES];
        bt_train_result r;
        double linear, got[2], logical[2];
        got[0] = layout_bytes(l->words, "4", 1, &r, &linear);
        logical[0] = layout_logical_bytes();
        got[1] = layout_bytes(l->words, "1", 4, &r, &linear);
        logical[1] = layout_logical_bytes();
        /* in addition, the losses of twelve micro-batches */
        double ternary = l->zero == 3 ? linear : 0, losses = l->reproducible ? 12 * 8 * 1.5 : 0;
        bool once = l->once || l->zero < 3;
        double gathers[2] = {layout_gathers(once, 1, 2), layout_gathers(once, 4, 2)};
        for (size_t i = 0; i < 2; i++) {
            double want = predicted_bytes_per_rank(l, &r, ternary, gathers[i], l->bf16 ? 2 : 4),
                   plain = predicted_bytes_per_rank(l, &r, ternary, gathers[i], 4);
            if (!(fabs(got[i] / want - 1) < 0.01 && fabs(logical[i] / plain - 1) < 0.01))
                fail_msg("%s: %.0f bytes a step and rank for %.0f, %.0f for %.0f by the formula",
                         l->name, got[i], logical[i], want, plain);
            if (!l->bf16) assert_true(logical[i] == got[i]);
            if (l->zero < 3) continue;
            /* All bytes except gradients and fp32 weights belong to the gather, including scales. */
            double gather = got[i] - predicted_bytes_per_rank(l, &r, ternary, 0, l->bf16 ? 2 : 4),
                   bits = 8 * gather / (gathers[i] * ternary * (l->shards - 1) / l->shards);
            if (!(bits <= 2.1))
                fail_msg("%s: the gather takes %.3f bits a parameter", l->name, bits);
        }
        if (gathers[1] == gathers[0]) {
            if (got[0] + losses != got[1])
                fail_msg("%s: %.0f bytes with one micro-batch, %.0f with four: gradients travel "
                         "once a step",
                         l->name, got[0], got[1]);
            continue;
        }
        /* Three more micro-batches add whole gathers of 2 bits, and no gradient. */
        double each = (got[1] - losses - got[0]) / (gathers[1] - gathers[0]);
        if (!(fabs(each / (ternary / 4 * (l->shards - 1) / l->shards) - 1) < 0.01))
            fail_msg("%s: %.0f bytes a gather more", l->name, each);
    }
}

static bool same_losses(const fake_sink *a, const fake_sink *b) {
    for (size_t i = 0; i < LAYOUT_STEPS; i++)
        if (a->steps[i].v[BT_MS_LOSS] != b->steps[i].v[BT_MS_LOSS] ||
            a->steps[i].v[BT_MS_GRAD_NORM] != b->steps[i].v[BT_MS_GRAD_NORM])
            return false;
    return true;
}

/* A codec rounds reproducibly. Its sums depend only on replicas and hosts, so ZeRO-1 and ZeRO-2 give the same bits. */
static void codecs_have_the_same_bits_again(void **state) {
    (void)state;
    static fake_sink of[N_CODECS];
    for (size_t k = 0; k < N_CODECS; k++) {
        (void)layout_run(&of[k], codecs[k].words, NULL);
        (void)layout_run(&together, codecs[k].words, NULL);
        assert_string_equal(fake_fact(&together, "codec"), "bf16");
        assert_true(same_losses(&of[k], &together));
        assert_false(same_losses(&alone, &together));
        for (size_t i = 0; i < LAYOUT_STEPS; i++)
            layout_near(alone.steps[i].v[BT_MS_LOSS], together.steps[i].v[BT_MS_LOSS], 1e-3,
                        codecs[k].name, i);
    }
    for (size_t a = 0; a < N_CODECS; a++)
        for (size_t b = a + 1; b < N_CODECS; b++)
            assert_int_equal(same_losses(&of[a], &of[b]), a == 1 && b == 2);
    assert_int_equal(setenv("BITRAIN_TEST_HOSTS", "2", 1), 0);
    (void)layout_run(&together, codecs[0].words, NULL);
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
    assert_false(same_losses(&of[0], &together));
}

/* A run on two hosts of two ranks has every loss, norm and byte of a run on one host. */
static void hosts_change_no_bit(void **state) {
    (void)state;
    static fake_sink near;
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        (void)layout_run(&near, layouts[k].words, NULL);
        assert_int_equal(setenv("BITRAIN_TEST_HOSTS", "2", 1), 0);
        (void)layout_run(&together, layouts[k].words, NULL);
        assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            const double *a = near.steps[i].v, *b = together.steps[i].v;
            if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM] ||
                a[BT_MS_BYTES_WIRE] != b[BT_MS_BYTES_WIRE])
                fail_msg(
                    "%s, step %zu: loss %.17g and %.0f bytes on one host, %.17g and %.0f on two",
                    layouts[k].name, i, a[BT_MS_LOSS], a[BT_MS_BYTES_WIRE], b[BT_MS_LOSS],
                    b[BT_MS_BYTES_WIRE]);
        }
    }
}

static char dir[64];

static void run_layout_part(fake_sink *f, const layout *l, const char *stop_after,
                            const char *resume_dir) {
    const char *words[WORDS] = {"--steps", "8", "--lr", "1e-3", "--stop-after", stop_after};
    size_t n = 6;
    if (!resume_dir[0] && stop_after[0] != '0') {
        words[n++] = "--out";
        words[n++] = dir;
    }
    for (size_t i = 0; i < 12 && l->words[i]; i++) words[n++] = l->words[i];
    layout_part(f, words, resume_dir);
}

static void one_checkpoint_resumes_in_every_layout(void **state) {
    (void)state;
    static const layout writers[] = {{.name = "zero 3", .words = {STRIPES, "--zero", "3"}},
                                     {.name = "plain"}};
    static fake_sink first, rest;
    for (size_t w = 0; w < sizeof writers / sizeof writers[0]; w++) {
        layout_folder(dir);
        run_layout_part(&together, &writers[w], "0", "");
        run_layout_part(&first, &writers[w], "5", "");
        for (size_t k = 0; k < N_LAYOUTS + N_GROUPS; k++) {
            const layout *to = k < N_LAYOUTS ? &layouts[k] : &groups[k - N_LAYOUTS];
            run_layout_part(&rest, to, "0", dir);
            assert_int_equal(rest.n_steps, 3);
            for (size_t i = 0; i < 3; i++) {
                assert_int_equal(rest.steps[i].step, 5 + i);
                layout_near(together.steps[5 + i].v[BT_MS_LOSS], rest.steps[i].v[BT_MS_LOSS],
                            k < N_LAYOUTS ? 1e-5 : 1e-4, to->name, 5 + i);
            }
        }
        layout_remove(dir);
    }
}

/* A checkpoint does not contain the codec. A resumed run with the same codec has the bits of the uninterrupted run;
 * with another codec its losses are near. */
static void a_checkpoint_resumes_with_another_codec(void **state) {
    (void)state;
    static const layout fp32 = {.name = "zero 2", .words = {STRIPES, "--zero", "2"}};
    static const layout bf16 = {.name = "zero 2, bf16 gradients",
                                .words = {STRIPES, BF16, "--zero", "2"}};
    static const layout *const rows[][2] = {{&bf16, &bf16}, {&bf16, &fp32}, {&fp32, &bf16}};
    static fake_sink first, rest;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const layout *from = rows[k][0], *to = rows[k][1];
        bool differs = false;
        layout_folder(dir);
        run_layout_part(&together, from, "0", "");
        run_layout_part(&first, from, "5", "");
        run_layout_part(&rest, to, "0", dir);
        assert_int_equal(rest.n_steps, 3);
        for (size_t i = 0; i < 3; i++) {
            double want = together.steps[5 + i].v[BT_MS_LOSS], got = rest.steps[i].v[BT_MS_LOSS];
            layout_near(want, got, 1e-3, to->name, 5 + i);
            differs |= want != got;
        }
        assert_int_equal(differs, from != to);
        layout_remove(dir);
    }
}

int main(void) {
    lonely_grads = layout_lonely_grads((const char *const[]){NULL});
    layout_run(&alone, NULL, NULL);
    if (!layout_begin(4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(codecs_have_the_same_bits_again),
        cmocka_unit_test(hosts_change_no_bit),
        cmocka_unit_test(one_checkpoint_resumes_in_every_layout),
        cmocka_unit_test(a_checkpoint_resumes_with_another_codec),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    layout_release_grads(&lonely_grads);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
