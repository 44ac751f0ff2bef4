// ctest: ranks=4
/* Compressed optimizer states and weights with train.reproducible: on four ranks with any ZeRO stage, tensor
 * parallelism and pipelines, with AdamW, Lion and Muon, the losses, norms and weights have the bits of one rank,
 * because the rounding noise depends only on the position of an element in the whole tensor. */
#include "tests/mpi/layouts.h"

#define SHAPE "--set", "train.unit=4", "--set", "model.kv_heads=2"

static const struct {
    const char *states, *weights, *optimizer;
} kinds[] = {{"optim.states=log8", "optim.weights=fp32", "adamw"},
             {"optim.states=bf16", "optim.weights=fp32", "adamw"},
             {"optim.states=log8", "optim.weights=bf16", "adamw"},
             {"optim.states=fp32", "optim.weights=bf16", "adamw"},
             {"optim.states=log8", "optim.weights=bf16", "muon"},
             {"optim.states=log8", "optim.weights=fp32", "lion"},
             {"optim.states=fp32", "optim.weights=fp32", "adamw"}};
static const char *const layouts[][8] = {
    {"--zero", "0"}, {"--zero", "1"},
    {"--zero", "2"}, {"--zero", "3", "--set", "train.bucket_bytes=4096"},
    {"--tp", "2"},   {"--tp", "2", "--zero", "3", "--dp-shard", "2"},
    {"--pp", "2"},   {"--zero", "2", "--set", "parallel.gather=flips"},
};
enum { N_KINDS = 6, PLAIN = N_KINDS, N_LAYOUTS = 8, STEPS = 12 };

static fake_sink lonely[N_KINDS], plain;

static void run(fake_sink *f, size_t kind, const char *const *more) {
    const char *words[32] = {"--set",       "train.reproducible=true",
                             "--set",       kinds[kind].states,
                             "--set",       kinds[kind].weights,
                             "--optimizer", kinds[kind].optimizer,
                             "--lr",        "5e-3",
                             "--steps",     "12",
                             SHAPE};
    size_t n = 16;
    for (size_t i = 0; more && i < 8 && more[i]; i++) words[n++] = more[i];
    layout_run(f, words, NULL);
}

static void the_bits_of_one_rank(void **state) {
    (void)state;
    static const bt_step_metric exact[] = {BT_MS_LOSS, BT_MS_GRAD_NORM};
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t l = 0; l < N_LAYOUTS; l++) {
            /* These combinations are tested: log8 with bf16 weights in every layout; the other formats with ZeRO-3,
             * alone and with tensor parallelism; AdamW's log8 and Muon also with ZeRO-1 and parallel.gather=flips. */
            if (k != 2 && l != 3 && l != 5 && !((k == 0 || k == 4) && (l == 1 || l == 7))) continue;
            run(&together, k, layouts[l]);
            assert_int_equal(together.n_steps, STEPS);
            for (size_t i = 0; i < STEPS; i++)
                for (size_t m = 0; m < 2; m++) {
                    const double a = lonely[k].steps[i].v[exact[m]],
                                 b = together.steps[i].v[exact[m]];
                    if (a != b)
                        fail_msg("%s, %s, %s, layout %zu, step %zu: %s is %.17g alone, %.17g "
                                 "together",
                                 kinds[k].states, kinds[k].weights, kinds[k].optimizer, l, i,
                                 bt_step_metrics[exact[m]].key, a, b);
                }
        }
}

static void the_losses_are_near_those_of_fp32(void **state) {
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        const double a = plain.steps[STEPS - 1].v[BT_MS_LOSS],
                     b = lonely[k].steps[STEPS - 1].v[BT_MS_LOSS];
        assert_true(a != b);
        assert_true(fabs(a - b) < 0.02 * a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_bits_of_one_rank),
                                       cmocka_unit_test(the_losses_are_near_those_of_fp32)};
    for (size_t k = 0; k < N_KINDS; k++) run(&lonely[k], k, NULL);
    run(&plain, PLAIN, NULL);
    if (!layout_begin(4)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
