// ctest: timeout=60
/* The first frame of a long run shows its numbers and a note that charts are being read; the next frame shows the
 * charts. A short run is drawn at once. */
#include "screens_test.h"

enum { FRAMES = 2 };

typedef struct watcher {
    bt_term base;
    bt_text frame[FRAMES];
    int n;
} watcher;

static void watcher_size(bt_term *t, int *w, int *h) {
    (void)t;
    *w = 120;
    *h = 40;
}

static int32_t watcher_key(bt_term *t, int timeout_ms) {
    (void)timeout_ms;
    /* requests another frame */
    return ((watcher *)t)->n >= FRAMES ? BT_KEY_HANGUP : BT_CTRL('L');
}

static bt_code watcher_present(bt_term *t, const bt_canvas *c, bt_err *err) {
    watcher *w = (watcher *)t;
    (void)err;
    if (w->n < FRAMES) bt_canvas_dump(c, &w->frame[w->n++]);
    return BT_OK;
}

static void watcher_close(bt_term *t) { (void)t; }

static void open_watched(watcher *w, const char *run, int screen) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    *w = (watcher){.base = {{BT_CHARS_BRAILLE, BT_DEPTH_MONO, true},
                            watcher_size,
                            watcher_key,
                            watcher_present,
                            NULL,
                            watcher_close,
                            0,
                            0}};
    for (int i = 0; i < FRAMES; i++) bt_text_init(&w->frame[i]);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.run = run;
    cfg.screen = screen;
    cfg.frame_ns = 1;
    if (bt_top_interactive(&cfg, &w->base, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_db_close(db);
    assert_int_equal(w->n, FRAMES);
}

static void close_watched(watcher *w) {
    for (int i = 0; i < FRAMES; i++) bt_text_release(&w->frame[i]);
}

static bool frame_contains(const watcher *w, int frame, const char *text) {
    return strstr(bt_text_str(&w->frame[frame]), text) != NULL;
}

static void numbers_are_drawn_before_charts(void **state) {
    bt_synth s = bt_synth_default("long");
    bt_err err = BT_ERR_INIT;
    (void)state;
    s.ranks = 8;
    s.steps = 8300;
    s.layers_every = 0;
    assert_int_equal(bt_synth_make(db_path, &s, &err), BT_OK);
    for (int screen = 1; screen <= 5; screen++) {
        watcher w;
        open_watched(&w, "long", screen);
        if (!frame_contains(&w, 0, "step 8,300") || !frame_contains(&w, 0, "reading ...") ||
            frame_contains(&w, 1, "reading ...") || !frame_contains(&w, 1, "step 8,300"))
            fail_msg("screen %d:\n%s\nthen\n%s", screen, bt_text_str(&w.frame[0]),
                     bt_text_str(&w.frame[1]));
        close_watched(&w);
    }
}

static void a_short_run_is_drawn_at_once(void **state) {
    (void)state;
    for (int screen = 1; screen <= 8; screen++) {
        watcher w;
        open_watched(&w, "demo", screen);
        assert_false(frame_contains(&w, 0, "reading ..."));
        close_watched(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_drawn_before_charts),
                                       cmocka_unit_test(a_short_run_is_drawn_at_once)};
    return cmocka_run_group_tests(tests, make_store, drop_store);
}
