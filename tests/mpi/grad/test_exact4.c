// ctest: ranks=4 timeout=300
/* --codec int8 in reproducible training on four ranks: every layout gives the bits of one rank, which differ from
 * those without the codec; fewer bytes are sent; and a resumed run continues bit for bit, in the same layout and in
 * another. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

#ifndef RANKS
#define RANKS 4
#endif
#define EXACT \
    "--codec", "int8", "--set", "train.reproducible=true", "--set", "train.unit=1", "--lr", "5e-3"
#define STRIPES "--set", "train.bucket_bytes=4096"

static const struct layout {
    const char *name, *words[12];
    int ranks; /* 0: any number */
} layouts[] = {
    {.name = "plain", .words = {NULL}},
    {.name = "plain, small buckets", .words = {STRIPES}},
    {.name = "without overlap", .words = {"--set", "train.overlap=false"}},
    {.name = "zero 1", .words = {STRIPES, "--zero", "1"}},
    {.name = "zero 2", .words = {STRIPES, "--zero", "2"}},
    {.name = "zero 3", .words = {STRIPES, "--zero", "3"}},
    {.name = "two threads", .words = {"--threads", "2"}},
    {.name = "2 replicas of 2 shards, zero 3",
     .words = {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"},
     .ranks = 4},
    {.name = "2 x tp 2", .words = {"--tp", "2"}, .ranks = 4},
    {.name = "zero 2 x tp 2", .words = {STRIPES, "--tp", "2", "--zero", "2"}, .ranks = 4},
    {.name = "2 x pp 2", .words = {"--pp", "2"}, .ranks = 4},
    {.name = "tp 2", .words = {"--tp", "2"}, .ranks = 2},
    {.name = "pp 2", .words = {"--pp", "2"}, .ranks = 2},
    {.name = "unequal shares", .words = {"--balance", "auto"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts, WORDS = 48 };

static const char *const *words_of(const char *const *layout) {
    static const char *words[WORDS];
    static const char *const base[] = {EXACT};
    size_t n = 0;
    for (; n < sizeof base / sizeof *base; n++) words[n] = base[n];
    for (size_t i = 0; i < 12 && layout[i]; i++) words[n++] = layout[i];
    words[n] = NULL;
    return words;
}

static bool check_same_bits(const fake_sink *a, size_t from, const fake_sink *b, size_t steps) {
    bool equal = true;
    for (size_t i = 0; i < steps; i++)
        equal &= a->steps[from + i].v[BT_MS_LOSS] == b->steps[i].v[BT_MS_LOSS] &&
                 a->steps[from + i].v[BT_MS_GRAD_NORM] == b->steps[i].v[BT_MS_GRAD_NORM];
    return equal;
}

static void every_layout_has_the_bits_of_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        if (layouts[k].ranks && layouts[k].ranks != RANKS) continue;
        (void)layout_run(&together, words_of(layouts[k].words), NULL);
        assert_string_equal(fake_fact(&together, "codec"), "int8");
        if (!check_same_bits(&alone, 0, &together, LAYOUT_STEPS))
            fail_msg("%s: other bits", layouts[k].name);
    }
    /* The ranks of a host add their gradients before they encode. */
    assert_int_equal(setenv("BITRAIN_TEST_HOSTS", "2", 1), 0);
    (void)layout_run(&together, words_of(layouts[0].words), NULL);
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
    assert_true(check_same_bits(&alone, 0, &together, LAYOUT_STEPS));
}

static void gradients_are_rounded(void **state) {
    (void)state;
    static const char *const none[] = {EXACT, "--codec", "none", NULL};
    (void)layout_run(&together, none, NULL);
    assert_false(check_same_bits(&alone, 0, &together, LAYOUT_STEPS));
    for (size_t i = 0; i < LAYOUT_STEPS; i++)
        layout_near(alone.steps[i].v[BT_MS_LOSS], together.steps[i].v[BT_MS_LOSS], 0.05, "none", i);
}

/* Gradients are encoded from the second step on: less than half the bytes of fp32, although each rank sends sums of
 * four units. */
static void gradients_take_less_than_half_the_bytes(void **state) {
    (void)state;
    static const char *const words[] = {
        LAYOUT_WIDE, "--codec",      "int8", "--steps", "6", "--set", "train.reproducible=true",
        "--set",     "train.unit=1", NULL};
    (void)layout_run(&together, words, NULL);
    const double *v = together.steps[5].v;
    if (!(v[BT_MS_BYTES_WIRE] < 0.42 * v[BT_MS_BYTES_LOGICAL]))
        fail_msg("%.0f bytes of %.0f", v[BT_MS_BYTES_WIRE], v[BT_MS_BYTES_LOGICAL]);
    assert_true(together.steps[0].v[BT_MS_BYTES_WIRE] > 0.9 * v[BT_MS_BYTES_LOGICAL]);
}

static void a_checkpoint_resumes_bit_for_bit(void **state) {
    (void)state;
    static fake_sink first, rest;
    char dir[64];
    layout_folder(dir);
    const char *stop[WORDS] = {"--steps", "8", "--stop-after", "5", "--out", dir},
               *go_on[WORDS] = {"--steps", "8"}, *whole[WORDS] = {"--steps", "8"};
    static const char *const base[] = {EXACT};
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        stop[6 + i] = go_on[2 + i] = whole[2 + i] = base[i];
    layout_part(&together, whole, "");
    layout_part(&first, stop, "");
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        if (layouts[k].ranks && layouts[k].ranks != RANKS) continue;
        size_t n = 2 + sizeof base / sizeof *base;
        for (size_t i = 0; i < 12; i++) go_on[n + i] = layouts[k].words[i];
        layout_part(&rest, go_on, dir);
        assert_int_equal(rest.n_steps, 3);
        if (!check_same_bits(&together, 5, &rest, 3))
            fail_msg("%s: other bits after resume", layouts[k].name);
    }
    layout_remove(dir);
}

int main(void) {
    (void)layout_run(&alone, words_of(layouts[0].words), NULL);
    if (!layout_begin(RANKS)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_has_the_bits_of_one_rank),
        cmocka_unit_test(gradients_are_rounded),
        cmocka_unit_test(gradients_take_less_than_half_the_bytes),
        cmocka_unit_test(a_checkpoint_resumes_bit_for_bit),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
