/* mpi: 4
 * timeout: 200
 * What every layout promises, on four ranks: gradients element by element those of one rank; bytes
 * on the wire as the formula says, within 1 %, and not one more for more micro-batches; a
 * checkpoint of one layout goes on in all others. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

#define STRIPES "--set", "train.bucket_bytes=65536"

typedef struct layout {
    const char *name, *words[10];
    int zero, shards;
} layout;

static const layout layouts[] = {
    {"plain", {STRIPES}, 0, 1},
    {"zero 1", {STRIPES, "--zero", "1"}, 1, 4},
    {"zero 2", {STRIPES, "--zero", "2"}, 2, 4},
    {"zero 3", {STRIPES, "--zero", "3"}, 3, 4},
    {"2 replicas of 2 shards, zero 2",
     {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"},
     2,
     2},
    {"2 replicas of 2 shards, zero 3",
     {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"},
     3,
     2},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0], WORDS = 40 };

/* modes that change no byte: the exchange is that of the layout */
static const layout modes[] = {
    {"reproducible", {STRIPES, "--set", "train.reproducible=true"}, 0, 1},
    {"zero 3, reproducible", {STRIPES, "--zero", "3", "--set", "train.reproducible=true"}, 3, 4},
    {"zero 3, once a step", {STRIPES, "--zero", "3", "--set", "parallel.gather=step"}, 3, 4},
    {"fp16, full recompute", {STRIPES, "--precision", "fp16", "--recompute", "full"}, 0, 1},
    {"zero 2, bf16, given shares",
     {STRIPES, "--zero", "2", "--precision", "bf16", "--balance", "1,1,1,1"},
     2,
     4},
};
enum { N_MODES = sizeof modes / sizeof modes[0] };

/* where a checkpoint goes on besides; what tensor parallelism sends and holds has its own tests */
static const layout groups[] = {
    {"2 x tp 2", {"--tp", "2"}, 0, 1},
    {"zero 3 x tp 2", {STRIPES, "--tp", "2", "--dp-shard", "2", "--zero", "3"}, 3, 2},
    {"tp 4", {"--tp", "4"}, 0, 1},
};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static layout_grads lonely_grads;

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++)
        layout_check_grads(layouts[k].name, layouts[k].words, &lonely_grads, 1e-5);
}

/*     sums to owners      a rank sends (n-1)/n of the gradients
 *     owners to all       plain: 1/n to n-1 others; among replicas: 1/n to R-1 others
 *     weights             1/S to S-1 others: 32 bits a parameter, a ternary one 2 in every gather (ZeRO-3) */
static double formula(const layout *l, double params, double ternary, double bits, double gathers) {
    double n = 4, S = l->shards, R = n / S, grads = 4 * params;
    double weights = S > 1 ? 4 * (params - ternary) + gathers * bits / 8 * ternary : 0;
    return grads * (n - 1) / n + grads * (R - 1) / n + weights * (S - 1) / S;
}

static void bytes_follow_the_formula(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS + N_MODES; k++) {
        const layout *l = k < N_LAYOUTS ? &layouts[k] : &modes[k - N_LAYOUTS];
        bt_train_result r;
        double linear,
            got[2] = {layout_bytes(l->words, "4", 1, &r, &linear),
                      layout_bytes(l->words, "1", 4, &r, &linear)},
            params = (double)r.params;
        /* of twelve micro-batches more */
        double ternary = l->zero == 3 ? linear : 0,
               losses = strstr(l->name, "reproducible") ? 12 * 8 * 1.5 : 0;
        double gathers[2] = {layout_gathers(l->zero < 3 ? "once a step" : l->name, 1, 2),
                             layout_gathers(l->zero < 3 ? "once a step" : l->name, 4, 2)};
        for (size_t i = 0; i < 2; i++) {
            double want = formula(l, params, ternary, 2, gathers[i]);
            if (!(fabs(got[i] / want - 1) < 0.01))
                fail_msg("%s: %.0f bytes a step and rank, the formula says %.0f", l->name, got[i],
                         want);
            if (l->zero < 3) continue;
            /* all that is not gradients or fp32 weights is the gather, scales included */
            double gather = got[i] - formula(l, params, ternary, 0, 0),
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
        /* what three micro-batches more send is whole gathers of 2 bits, and no gradient */
        double each = (got[1] - losses - got[0]) / (gathers[1] - gathers[0]);
        if (!(fabs(each / (ternary / 4 * (l->shards - 1) / l->shards) - 1) < 0.01))
            fail_msg("%s: %.0f bytes a gather more", l->name, each);
    }
}

/* Two hosts of two ranks: every loss, norm and byte of one host. */
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

/* ---- one layout's checkpoint in all the others ----------------------------------------------- */

static char dir[64];

static void part(fake_sink *f, const layout *l, const char *stop_after, const char *resume_dir) {
    const char *words[WORDS] = {"--steps", "8", "--lr", "1e-3", "--stop-after", stop_after};
    size_t n = 6;
    if (!resume_dir[0] && stop_after[0] != '0') {
        words[n++] = "--out";
        words[n++] = dir;
    }
    for (size_t i = 0; i < 10 && l->words[i]; i++) words[n++] = l->words[i];
    layout_part(f, words, resume_dir);
}

static void one_checkpoint_goes_on_in_every_layout(void **state) {
    (void)state;
    static const layout writers[] = {{"zero 3", {STRIPES, "--zero", "3"}, 3, 4},
                                     {"plain", {NULL}, 0, 1}};
    static fake_sink first, rest;
    for (size_t w = 0; w < sizeof writers / sizeof writers[0]; w++) {
        layout_folder(dir);
        part(&together, &writers[w], "0", "");
        part(&first, &writers[w], "5", "");
        for (size_t k = 0; k < N_LAYOUTS + N_GROUPS; k++) {
            const layout *to = k < N_LAYOUTS ? &layouts[k] : &groups[k - N_LAYOUTS];
            part(&rest, to, "0", dir);
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

int main(void) {
    bt_err err = BT_ERR_INIT;
    lonely_grads = layout_lonely_grads((const char *const[]){NULL});
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 4) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(hosts_change_no_bit),
        cmocka_unit_test(one_checkpoint_goes_on_in_every_layout),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    layout_release_grads(&lonely_grads);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
