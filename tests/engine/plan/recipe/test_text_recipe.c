/* test_text_recipe.c - properties of the recipe for a text that hold for any values in its tables: a larger text gets
 * no smaller vocabulary, more time gives no smaller model, and the program accepts every value. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/config/run_cfg.h"
#include "engine/plan/recipe/text_recipe.h"

enum { MOST = 16 };

static void vocabulary_grows_with_text_and_time(void **state) {
    (void)state;
    assert_int_equal(bt_recipe_vocab(0, 1), 0);
    assert_int_equal(bt_recipe_vocab(1000, 60), 0);
    assert_true(bt_recipe_vocab(4 << 20, 15) > bt_recipe_vocab(4 << 20, 1));
    int before = 0, before_long = 0;
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 2) {
        const int vocab = bt_recipe_vocab(bytes, 1), vocab_of_long = bt_recipe_vocab(bytes, 600);
        assert_true(vocab >= before && vocab_of_long >= before_long && vocab_of_long >= vocab);
        assert_true(vocab == 0 || vocab >= 257);
        before = vocab;
        before_long = vocab_of_long;
    }
}

static void model_grows_with_the_time(void **state) {
    (void)state;
    const size_t n = bt_recipe_shapes();
    double params[MOST], tokens[MOST];
    assert_true(n >= 1 && n <= MOST);
    for (size_t i = 0; i < n; i++) {
        const bt_recipe_shape *s = bt_recipe_shape_at(i);
        assert_int_equal(s->d_model % s->heads, 0);
        assert_int_equal(s->d_ff % 8, 0);
        params[i] = 12.0 * s->layers * s->d_model * s->d_model;
        if (i > 0) assert_true(params[i] > params[i - 1]);
    }
    size_t before = 0;
    for (double flop = 1; flop < 1e24; flop *= 2) {
        for (size_t i = 0; i < n; i++) tokens[i] = flop / params[i];
        const size_t best = bt_recipe_choose(tokens, params);
        assert_true(best >= before && best < n);
        before = best;
    }
    assert_int_equal(before, n - 1);
    for (size_t i = 0; i < n; i++) tokens[i] = 0;
    assert_int_equal(bt_recipe_choose(tokens, params), 0);
}

static void every_value_is_a_setting(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    static bt_opts o;
    static bt_run_cfg cfg;
    for (double passes = 0.1; passes < 1e4; passes *= 1.5) {
        assert_int_equal(bt_opts_init(&o, bt_run_opts, bt_run_opts_n, &cfg, &err), BT_OK);
        const bt_recipe_run run = {1e3, passes, 3e6, 1e5};
        for (size_t i = 0; i < bt_recipe_strengths(); i++) {
            const bt_recipe_strength s = bt_recipe_strength_at(i, &run);
            assert_true(bt_opt_find(o.table, o.n, s.key) < o.n);
            if (s.value[0] && bt_opts_set(&o, s.key, s.value, BT_FROM_FLAG, "", &err) != BT_OK)
                fail_msg("%s=%s: %s", s.key, s.value, err.msg);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(vocabulary_grows_with_text_and_time),
                                       cmocka_unit_test(model_grows_with_the_time),
                                       cmocka_unit_test(every_value_is_a_setting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
