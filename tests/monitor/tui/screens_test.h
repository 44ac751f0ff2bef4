/* screens_test.h - a database of two runs with known values for tests of the screens: base-1 (4 ranks) and demo (8
 * ranks, rank 5 loads data slowly, one failure). */
#ifndef BT_TESTS_SCREENS_TEST_H
#define BT_TESTS_SCREENS_TEST_H

#include "engine/base/clock.h"
#include "monitor/tui/top.h"
#include "store/wire/control_client.h"
#include "tests/store/synth_run.h"
#include "tui_test.h"

static char dir[64], db_path[96];

static inline int make_store(void **state) {
    bt_err err = BT_ERR_INIT;
    (void)state;
    strcpy(dir, "/tmp/bt_tui_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(db_path, sizeof db_path, "%s/m.db", dir);
    bt_synth base = bt_synth_default("base-1"), s = bt_synth_default("demo");
    base.planned = true;
    s.ranks = 8;
    s.straggler = 5;
    s.excess = 2;
    s.jitter = 0.05;
    s.fail_at = 120;
    s.resume_from = 100;
    s.down_s = 4;
    s.start_us += 7200 * INT64_C(1000000);
    return bt_synth_make(db_path, &base, &err) == BT_OK && bt_synth_make(db_path, &s, &err) == BT_OK
               ? 0
               : -1;
}

static inline int drop_store(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static inline void store_sql(const char *sql) {
    char cmd[1200];
    snprintf(cmd, sizeof cmd, "sqlite3 '%s' \"%s\"", db_path, sql);
    assert_int_equal(system(cmd), 0);
}

static inline bt_top_cfg config(bt_db *db) {
    return (bt_top_cfg){.db = db,
                        .store = db_path,
                        .run = "demo",
                        .screen = 1,
                        .at_step = -1,
                        .baseline = "",
                        .now_us = INT64_C(1700000000000000) + 7290 * INT64_C(1000000)};
}

/* Returns a screen as text, which the caller frees; cfg is from screen_config, with its own database. */
static inline char *frame_text(bt_top_cfg *cfg, bt_term_caps caps, int w, int h) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    bt_term *term = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    cfg->db = db;
    assert_int_equal(bt_term_open_text(&term, to, caps, w, h, false, &err), BT_OK);
    if (bt_top_frame(cfg, term, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_term_close(term);
    fclose(to);
    bt_db_close(db);
    return text;
}

#endif
