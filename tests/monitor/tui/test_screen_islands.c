// ctest: timeout=60
/* The screen of a hub's islands as text, and its message for a run without islands. */
#include "screens_test.h"
#include "tests/store/hub_record.h"

static int make_hub(void **state) {
    if (make_store(state) != 0) return -1;
    record_hub(db_path);
    return 0;
}

static void check_island_screen(const char *run, int w, int h, const char *const *texts) {
    bt_top_cfg cfg = config(NULL);
    cfg.run = run;
    cfg.screen = 10;
    cfg.now_us = HUB_BEGAN_US + 60 * INT64_C(1000000);
    char *text = frame_text(&cfg, (bt_term_caps){BT_CHARS_ASCII, BT_DEPTH_MONO, true}, w, h);
    for (; *texts; texts++)
        if (!strstr(text, *texts)) fail_msg("'%s' is not in\n%s", *texts, text);
    free(text);
}

static void islands_as_text(void **state) {
    static const char *const wide[] = {"0 Islands",
                                       "1 of 2 training",
                                       "effective batch 512",
                                       "2 joined",
                                       "1 lost",
                                       "1 late",
                                       "1 refused",
                                       "2 updates not applied",
                                       "left out",
                                       "south",
                                       "away",
                                       "40 updates",
                                       "mean 0.75",
                                       "75 %",
                                       "declared dead",
                                       NULL},
                             *const narrow[] = {"north", "training", "mean 0.75", NULL},
                             *const none[] = {"this run is not a hub of islands", NULL};
    (void)state;
    check_island_screen("hub", 120, 32, wide);
    check_island_screen("hub", 80, 24, narrow);
    check_island_screen("demo", 80, 24, none);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(islands_as_text)};
    return cmocka_run_group_tests(tests, make_hub, drop_store);
}
