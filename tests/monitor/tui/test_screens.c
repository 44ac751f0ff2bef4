// ctest: timeout=60
/* Every screen of a run with known values, as text, at several sizes and with ASCII, braille and block characters. */
#include "screens_test.h"

static void check_frame(int screen, int w, int h, bt_chars chars, bool keys, const char *name) {
    bt_top_cfg cfg = config(NULL);
    cfg.screen = screen;
    char *text = frame_text(&cfg, (bt_term_caps){chars, BT_DEPTH_MONO, keys}, w, h);
    bt_golden(name, text);
    free(text);
}

static void screens_as_text(void **state) {
    static const char *const names[] = {"",        "overview", "ranks", "step",   "comm",
                                        "ternary", "events",   "runs",  "system", "metrics"};
    (void)state;
    char name[64];
    for (int s = 1; s <= 9; s++) {
        snprintf(name, sizeof name, "screen_%d_%s_80x24", s, names[s]);
        check_frame(s, 80, 24, BT_CHARS_BRAILLE, true, name);
    }
    check_frame(1, 200, 60, BT_CHARS_BRAILLE, true, "screen_1_overview_200x60");
    check_frame(2, 200, 60, BT_CHARS_BRAILLE, true, "screen_2_ranks_200x60");
    check_frame(4, 120, 40, BT_CHARS_BRAILLE, true, "screen_4_comm_120x40");
    check_frame(1, 80, 24, BT_CHARS_ASCII, true, "screen_1_overview_ascii");
    check_frame(2, 80, 24, BT_CHARS_ASCII, true, "screen_2_ranks_ascii");
    check_frame(1, 80, 24, BT_CHARS_BLOCK, true, "screen_1_overview_block");
    check_frame(1, 100, 32, BT_CHARS_BRAILLE, false, "screen_1_once");
    check_frame(1, 40, 12, BT_CHARS_BRAILLE, true, "screen_small_40x12");
    check_frame(1, 20, 5, BT_CHARS_BRAILLE, true, "screen_small_20x5");
}

/* If a run has a plan, predicted phases are shown below the measured ones. */
static void a_plan_is_shown_beside_the_steps(void **state) {
    (void)state;
    bt_top_cfg cfg = config(NULL);
    cfg.screen = 3;
    cfg.run = "base-1";
    char *text = frame_text(&cfg, (bt_term_caps){BT_CHARS_BRAILLE, BT_DEPTH_MONO, true}, 80, 24);
    bt_golden("screen_3_step_planned_80x24", text);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(screens_as_text),
                                       cmocka_unit_test(a_plan_is_shown_beside_the_steps)};
    return cmocka_run_group_tests(tests, make_store, drop_store);
}
