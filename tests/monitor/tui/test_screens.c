/* timeout: 120
 * every screen of a run with known truth as text, at two sizes and in two alphabets; any keys in any order on any size of terminal. */
#include "engine/base/clock.h"
#include "monitor/tui/top.h"
#include "store/control.h"
#include "tests/store/synth_run.h"
#include "tui_test.h"

static char dir[64], db_path[96];

static int make_store(void **state) {
    bt_err err = BT_ERR_INIT;
    (void)state;
    strcpy(dir, "/tmp/bt_tui_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(db_path, sizeof db_path, "%s/m.db", dir);
    bt_synth base = bt_synth_default("base-1"), s = bt_synth_default("demo");
    s.ranks = 8;
    s.straggler = 5;
    s.excess = 2;
    s.jitter = 0.05;
    s.fail_at = 120;
    s.resume_from = 100;
    s.down_s = 4;
    s.start_us += 7200 * INT64_C(1000000);
    return bt_synth_make(db_path, &base, &err) == BT_OK && bt_synth_make(db_path, &s, &err) == BT_OK ? 0 : -1;
}

static int drop_store(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static bt_top_cfg config(bt_db *db) {
    return (bt_top_cfg){.db = db, .store = db_path, .run = "demo", .screen = 1, .at_step = -1, .baseline = "",
                        .now_us = INT64_C(1700000000000000) + 7290 * INT64_C(1000000)};
}

/* ---- goldens -------------------------------------------------------------------------------------------------------------------- */

static void frame(int screen, int w, int h, bt_chars chars, bool keys, const char *name) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    bt_term *term = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.screen = screen;
    assert_int_equal(bt_term_open_text(&term, to, (bt_term_caps){chars, BT_DEPTH_MONO, keys}, w, h, false, &err), BT_OK);
    if (bt_top_frame(&cfg, term, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_term_close(term);
    fclose(to);
    bt_golden(name, text);
    free(text);
    bt_db_close(db);
}

static void screens_as_text(void **state) {
    static const char *const names[] = {"", "overview", "ranks", "step", "comm", "ternary", "events", "runs", "system"};
    (void)state;
    char name[64];
    for (int s = 1; s <= 8; s++) {
        snprintf(name, sizeof name, "screen_%d_%s_80x24", s, names[s]);
        frame(s, 80, 24, BT_CHARS_BRAILLE, true, name);
    }
    frame(1, 200, 60, BT_CHARS_BRAILLE, true, "screen_1_overview_200x60");
    frame(2, 200, 60, BT_CHARS_BRAILLE, true, "screen_2_ranks_200x60");
    frame(4, 120, 40, BT_CHARS_BRAILLE, true, "screen_4_comm_120x40");
    frame(1, 80, 24, BT_CHARS_ASCII, true, "screen_1_overview_ascii");
    frame(2, 80, 24, BT_CHARS_ASCII, true, "screen_2_ranks_ascii");
    frame(1, 80, 24, BT_CHARS_BLOCK, true, "screen_1_overview_block");
    frame(1, 100, 32, BT_CHARS_BRAILLE, false, "screen_1_once");
    frame(1, 40, 12, BT_CHARS_BRAILLE, true, "screen_small_40x12");
    frame(1, 20, 5, BT_CHARS_BRAILLE, true, "screen_small_20x5");
}

/* ---- any keys --------------------------------------------------------------------------------------------------------------------- */

typedef struct monkey {
    bt_term base;
    uint32_t dice;
    int left, w, h, frames;
    int idle;                       /* calls that answer: no key */
} monkey;

static uint32_t roll(monkey *m, uint32_t n) {
    m->dice = m->dice * 1664525u + 1013904223u;
    return (m->dice >> 8) % n;
}

static void monkey_size(bt_term *t, int *w, int *h) {
    *w = ((monkey *)t)->w;
    *h = ((monkey *)t)->h;
}

static int32_t monkey_key(bt_term *t, int timeout_ms) {
    static const int32_t special[] = {BT_KEY_UP, BT_KEY_DOWN, BT_KEY_LEFT, BT_KEY_RIGHT, BT_KEY_PAGE_UP, BT_KEY_PAGE_DOWN, BT_KEY_HOME, BT_KEY_END, BT_KEY_BACKTAB,
                                      BT_KEY_ESC, '\t', '\r', BT_CTRL('L'), BT_KEY_BACKSPACE, BT_KEY_CTRL_LEFT, BT_KEY_F(1), 0x65E5, 0x1F600};
    monkey *m = (monkey *)t;
    (void)timeout_ms;
    if (m->idle++ % 3 == 2) return BT_KEY_NONE;
    if (--m->left <= 0) return BT_KEY_HANGUP;
    if (roll(m, 25) == 0) {
        m->w = 1 + (int)roll(m, 220);
        m->h = 1 + (int)roll(m, 70);
        return BT_KEY_RESIZE;
    }
    int32_t key = roll(m, 3) == 0 ? special[roll(m, sizeof special / sizeof special[0])] : (int32_t)(' ' + roll(m, 95));
    /* q would end the monkey, w would write files */
    return key == 'q' || key == 'w' ? '1' + (int32_t)roll(m, 8) : key;
}

static bt_code monkey_present(bt_term *t, const bt_canvas *c, bt_err *err) {
    monkey *m = (monkey *)t;
    (void)err;
    m->frames++;
    assert_int_equal(c->w, m->w);
    assert_int_equal(c->h, m->h);
    for (int i = 0; i < c->w * c->h; i++) assert_true(c->cells[i].glyph == 0 || bt_glyph_width(c->cells[i].glyph) > 0);
    return BT_OK;
}

static void monkey_close(bt_term *t) { (void)t; }

static int asked, started;

static bt_code fake_control(void *ctx, const char *run, const char *verb, char *reply, size_t size, bt_err *err) {
    (void)ctx;
    (void)run;
    asked++;
    if (asked % 2) return bt_fail(err, BT_BUSY, "run is not live\033[31m");
    snprintf(reply, size, "%s asked for\033[31m", verb);
    return BT_OK;
}

static bt_code fake_start(void *ctx, int argc, const char *const *argv, char name[BT_NAME_MAX], bt_err *err) {
    (void)ctx;
    (void)argv;
    started++;
    if (argc % 2) return bt_fail(err, BT_ARG, "no such preset");
    if (!name[0]) snprintf(name, BT_NAME_MAX, "base-1");
    return BT_OK;
}

static void any_keys_in_any_order(void **state) {
    (void)state;
    int frames = 0;
    for (uint32_t seed = 1; seed <= 6; seed++) {
        bt_db *db = NULL;
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
        monkey m = {.base = {{(bt_chars)(seed % 3), seed % 2 ? BT_DEPTH_256 : BT_DEPTH_MONO, true}, monkey_size, monkey_key, monkey_present, NULL, monkey_close},
                    .dice = seed * 7919, .left = 1500, .w = 80, .h = 24};
        bt_top_cfg cfg = config(db);
        cfg.actions = (bt_top_actions){.control = fake_control, .start = fake_start};
        if (bt_top_interactive(&cfg, &m.base, &err) != BT_OK) fail_msg("seed %u: %s", seed, err.msg);
        frames += m.frames;
        bt_db_close(db);
    }
    assert_true(frames > 6);
    assert_true(started > 0);
}

/* ---- scripted ------------------------------------------------------------------------------------------------------------------------ */

typedef struct script {
    bt_term base;
    const char *keys;
    bt_text last;                   /* the newest frame */
    int waits;
} script;

static void script_size(bt_term *t, int *w, int *h) {
    (void)t;
    *w = 100;
    *h = 30;
}

/* '~' waits for a frame; ends at the end of the keys */
static int32_t script_key(bt_term *t, int timeout_ms) {
    script *s = (script *)t;
    if (*s->keys == '~') {
        if (timeout_ms > 0) bt_sleep_ns(120000000);
        if (timeout_ms > 0) s->keys++;
        return BT_KEY_NONE;
    }
    return *s->keys ? (unsigned char)*s->keys++ : BT_KEY_HANGUP;
}

static bt_code script_present(bt_term *t, const bt_canvas *c, bt_err *err) {
    script *s = (script *)t;
    (void)err;
    bt_text_clear(&s->last);
    bt_canvas_dump(c, &s->last);
    return BT_OK;
}

static void script_close(bt_term *t) { (void)t; }

static char *play(const char *keys) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    script s = {.base = {{BT_CHARS_BRAILLE, BT_DEPTH_256, true}, script_size, script_key, script_present, NULL, script_close}, .keys = keys};
    bt_text_init(&s.last);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.actions = (bt_top_actions){.control = fake_control};
    if (bt_top_interactive(&cfg, &s.base, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_db_close(db);
    char *out = strdup(bt_text_str(&s.last));
    bt_text_release(&s.last);
    return out;
}

static void shows(const char *keys, const char *want) {
    char *got = play(keys);
    if (!strstr(got, want)) fail_msg("keys '%s' do not show '%s':\n%s", keys, want, got);
    free(got);
}

static void keys_do_what_the_table_says(void **state) {
    (void)state;
    shows("~2~", "without rank 5: 133 ms");
    shows("~2/rank [34]\r~", "2 of 8");
    shows("~2/(\r~", "filter (  0 of 8");                       /* no valid expression: a text */
    shows("~:step 61\r~", "step 61/200");
    shows("~:step 61\r~", "in the past");
    shows("~:stop\r~", "did you mean ':step'?");
    shows("~:rank 12\r~", "no rank '12' (0 to 7)");
    shows("~:run base-1\r~", "base-1  ○ DONE");
    shows("~:run bse-1\r~", "did you mean 'base-1'?");
    shows("~f~", "FROZEN");
    shows("~xx~", "x time");
    shows("~?~", "keys");
    shows("~:metric grad_norm\r~", "grad_norm ─");
    shows("~:metric los\r~", "did you mean 'loss'?");
    shows("~\t\te~", "ranks x time");
    shows("~C~", "the run is not live");
    shows("~7jb1~", "ghost: baseline");
    shows("~7 c~", "mark two or more runs");
    shows("~7  c~", "compare: loss");
    shows("~7  c~", "no setting differs");
    shows("~8~", "node0");
    shows("~3t~", "percent of the step");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(screens_as_text), cmocka_unit_test(keys_do_what_the_table_says), cmocka_unit_test(any_keys_in_any_order)};
    return cmocka_run_group_tests(tests, make_store, drop_store);
}
