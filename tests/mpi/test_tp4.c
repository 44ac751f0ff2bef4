// ctest: ranks=4
/* Tensor parallelism on four ranks, alone and with ZeRO, replicas and shared kv heads: the losses equal those of one
 * rank; a checkpoint of one layout resumes in every other layout. */
#include <unistd.h>

#include "tests/mpi/tp.h"

#define STRIPES \
    "--set", "train.bucket_bytes=4096" /* The minimum gives several stripes even in a tiny model. */

static const tp_shape shapes[] = {
    {"tiny", {NULL}},
    {"unequal vocabulary, heads' norms",
     {"--set", "model.vocab=63", "--set", "model.qk_norm=true"}},
};
static const tp_layout layouts[] = {
    {"tp 4, two ranks a kv head", 0, {"--tp", "4"}},
    {"tp 4, zero 3 of one shard", 1, {"--tp", "4", "--zero", "3"}},
    {"tp 2, 2 replicas", 1, {"--tp", "2", "--micro-batch", "2"}},
    {"tp 2, zero 1", 0, {STRIPES, "--tp", "2", "--zero", "1", "--dp-shard", "2"}},
    {"tp 2, zero 2, full recompute",
     0,
     {STRIPES, "--tp", "2", "--zero", "2", "--dp-shard", "2", "--recompute", "full"}},
    {"tp 2, zero 3",
     1,
     {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--micro-batch", "2"}},
    {"tp 2, zero 3, residual on both ranks",
     0,
     {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2", "--set", "mesh.sequence=false"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++) tp_compare(shapes, &layouts[k]);
}

static char dir[64];

static void run_part(fake_sink *f, const tp_layout *l, const char *stop_after,
                     const char *resume_dir) {
    const char *words[12 + TP_WORDS] = {"--steps",      "6",        "--lr",  "1e-3",
                                        "--stop-after", stop_after, "--out", dir};
    size_t n = 8;
    for (size_t i = 0; i < TP_WORDS && l->words[i]; i++) words[n++] = l->words[i];
    layout_part(f, words, resume_dir);
}

static void a_checkpoint_of_one_layout_resumes_in_other_layouts(void **state) {
    (void)state;
    static const tp_layout others[] = {
        {"4 replicas", 0, {NULL}},
        {"zero 3", 0, {STRIPES, "--zero", "3"}},
        {"tp 4", 0, {"--tp", "4"}},
        {"tp 2, zero 3", 0, {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2"}},
        {"tp 2, zero 2, 1 replica", 0, {STRIPES, "--tp", "2", "--zero", "2", "--dp-shard", "2"}},
        {"tp 2, 2 replicas", 0, {"--tp", "2"}},
    };
    enum { N = sizeof others / sizeof *others };
    static fake_sink whole, second;
    dir[0] = '\0';
    run_part(&whole, &others[0], "0", "");
    for (size_t k = 0; k < N; k++) {
        layout_folder(dir);
        run_part(&second, &others[k], "3", "");
        run_part(&second, &others[(k + 1) % N], "2", dir);
        assert_int_equal(second.n_steps, 2);
        run_part(&second, &others[(k + 3) % N], "0", dir);
        assert_int_equal(second.n_steps, 1);
        layout_near(whole.steps[5].v[BT_MS_LOSS], second.steps[0].v[BT_MS_LOSS], 1e-5,
                    others[k].name, 5);
        layout_remove(dir);
    }
}

int main(void) {
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(a_checkpoint_of_one_layout_resumes_in_other_layouts),
    };
    return tp_end(cmocka_run_group_tests(tests, NULL, NULL));
}
