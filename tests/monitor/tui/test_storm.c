// ctest: timeout=120
/* Random keys on terminals of any size, in every drawing mode, on every screen of a finished, a live and an empty run:
 * no crash, the canvas has the terminal's size, every cell can be displayed. BT_STORM=N multiplies the duration. */
#include "monkey.h"
#include "screens_test.h"

enum { SIZES = 40, KEYS = 60 };

static int storm_factor(void) {
    const char *v = getenv("BT_STORM");
    return v && atoi(v) > 0 ? atoi(v) : 1;
}

static void press_random_keys(bt_db *db, monkey *m, const char *run, int screen) {
    bt_err err = BT_ERR_INIT;
    bt_top_cfg cfg = config(db);
    cfg.run = run;
    cfg.screen = screen;
    cfg.frame_ns = 1;
    cfg.now_us = strcmp(run, "demo") == 0 ? cfg.now_us : 0;
    cfg.actions = (bt_top_actions){.control = fake_control, .start = fake_start, .mark = fake_mark};
    if (bt_top_interactive(&cfg, &m->base, &err) != BT_OK)
        fail_msg("run '%s' screen %d dice %u: %s", run, screen, m->dice, err.msg);
    assert_int_equal(m->wrong, 0);
}

static void any_keys_in_any_order(void **state) {
    static const char *const runs[] = {"demo", "now", "none-yet", "demo", ""};
    (void)state;
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    int frames = 0;
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    for (uint32_t k = 0; k < 9 * 8; k++) {
        monkey m = {.base = {{(bt_chars)(k % 3), (bt_color_depth)(k / 3 % 3), true},
                             monkey_size,
                             monkey_key,
                             monkey_present,
                             NULL,
                             monkey_close,
                             0,
                             0},
                    .dice = (k + 1) * 7919,
                    .left = KEYS * storm_factor(),
                    .w = 80,
                    .h = 24};
        press_random_keys(db, &m, runs[k % 5], (int)(k / 9) + 1);
        frames += m.frames;
    }
    assert_true(frames > 9 * 8 * 10);
    assert_true(started > 0);
    bt_db_close(db);
}

/* Shows every screen at sizes from 1x1 to 250x80 in each drawing mode; it sends no keys, only SIGWINCH. */
static int32_t storm_key(bt_term *t, int timeout_ms) {
    monkey *m = (monkey *)t;
    (void)timeout_ms;
    if (m->idle++ % 2) return BT_KEY_NONE;
    if (--m->left <= 0) return BT_KEY_HANGUP;
    m->w = 1 + (int)random_below(m, m->left % 2 ? 250 : 24);
    m->h = 1 + (int)random_below(m, m->left % 3 ? 80 : 8);
    return BT_KEY_RESIZE;
}

static void a_storm_of_sizes(void **state) {
    (void)state;
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    for (uint32_t k = 0; k < 9 * 8; k++) {
        monkey m = {.base = {{(bt_chars)(k % 3), (bt_color_depth)(k / 3 % 3), k % 2 == 0},
                             monkey_size,
                             storm_key,
                             monkey_present,
                             NULL,
                             monkey_close,
                             0,
                             0},
                    .dice = (k + 1) * 104729,
                    .left = SIZES * storm_factor(),
                    .w = 80,
                    .h = 24};
        press_random_keys(db, &m, k % 4 == 3 ? "now" : "demo", (int)(k / 9) + 1);
        assert_true(m.frames >= SIZES / 2);
    }
    bt_db_close(db);
}

static int make_all(void **state) {
    bt_err err = BT_ERR_INIT;
    if (make_store(state) != 0) return -1;
    bt_synth now = bt_synth_default("now"), none = bt_synth_default("none-yet");
    now.ranks = 70;
    now.straggler = 69;
    now.steps = 40;
    now.live = none.live = true;
    none.steps = 0;
    return bt_synth_make(db_path, &now, &err) == BT_OK &&
                   bt_synth_make(db_path, &none, &err) == BT_OK
               ? 0
               : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_keys_in_any_order),
                                       cmocka_unit_test(a_storm_of_sizes)};
    return cmocka_run_group_tests(tests, make_all, drop_store);
}
