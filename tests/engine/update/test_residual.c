/* Residuals of error feedback when the codec changes: if the new codec has no error feedback, the whole residual is
 * added once to the next step's gradients; a step that is not applied restores it. */
#include "engine/update/residual.h"

#include "tests/tiny_run.h"

static float *grads;
static size_t n;

/* Returns whether gradient i is i times k for all i. */
static bool are_multiples(const float *x, float k) {
    for (size_t i = 0; i < n; i++)
        if (x[i] != k * (float)i) return false;
    return true;
}

static void exchange_one_step(bt_residual *r, bool feedback) {
    memset(grads, 0, n * sizeof *grads);
    bt_residual_begin(r, grads, 1, feedback);
}

static void a_residual_is_added_once(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_rank_setup s;
    bt_residual r;
    bt_err err = BT_ERR_INIT;
    static const char *const words[] = {"--codec", "int8", NULL};
    tiny_cfg_for(&cfg, words, 2);
    assert_int_equal(bt_rank_setup_init(&s, &cfg, 0, &err), BT_OK);
    assert_int_equal(bt_residual_create(&r, &s, &err), BT_OK);
    n = s.params.total;
    grads = calloc(n, sizeof *grads);
    assert_non_null(grads);

    for (size_t i = 0; i < n; i++) r.owed[i] = (float)i;
    exchange_one_step(&r, true);
    assert_true(are_multiples(grads, 0) && are_multiples(r.owed, 1));
    exchange_one_step(&r, false); /* The codec changes with this step. */
    assert_true(are_multiples(grads, 1) && are_multiples(r.owed, 0));
    bt_residual_undo(&r);
    assert_true(are_multiples(r.owed, 1));
    exchange_one_step(&r, false);
    assert_true(are_multiples(grads, 1) && are_multiples(r.owed, 0));
    exchange_one_step(&r, false);
    assert_true(are_multiples(grads, 0) && are_multiples(r.owed, 0));
    bt_residual_undo(&r); /* The undone step used no residual. */
    assert_true(are_multiples(r.owed, 0));
    exchange_one_step(&r, true); /* The previous codec is used again. */
    for (size_t i = 0; i < n; i++) r.owed[i] = 3 * (float)i;
    exchange_one_step(&r, true);
    assert_true(are_multiples(grads, 0) && are_multiples(r.owed, 3));

    bt_residual_release(&r);
    bt_rank_setup_release(&s);
    free(grads);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_residual_is_added_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
