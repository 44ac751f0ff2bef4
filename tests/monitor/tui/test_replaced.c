// ctest: timeout=60
/* The database is removed and replaced while the screens are open: old data are marked until the new file exists, which
 * is then shown; keys act on the new file. */
#include <stdio.h>

#include "played_screens.h"

static char aside[128];

static void move_aside(void) {
    char wal[140];
    snprintf(aside, sizeof aside, "%s.aside", db_path);
    assert_int_equal(rename(db_path, aside), 0);
    for (const char *const *p = (const char *const[]){"-wal", "-shm", NULL}; *p; p++) {
        snprintf(wal, sizeof wal, "%s%s", db_path, *p);
        remove(wal);
    }
}

static void make_other(const char *run) {
    bt_synth s = bt_synth_default(run);
    bt_err err = BT_ERR_INIT;
    if (bt_synth_make(db_path, &s, &err) != BT_OK) fail_msg("%s", err.msg);
}

static int stage;             /* stage of the current test */
static const char *other_run; /* run in the replacing database */

/* A '!' in the keys begins the next stage; every other key is one of the script. */
static int32_t staged_key(bt_term *t, int timeout_ms) {
    script *s = (script *)t;
    while (*s->keys == '!') {
        s->keys++;
        if (stage++ == 0)
            move_aside();
        else
            make_other(other_run);
    }
    return script_key(t, timeout_ms);
}

static void play_stages(const char *keys, const char *other, const char *want) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    script s = {.base = {{BT_CHARS_BRAILLE, BT_DEPTH_256, true},
                         script_size,
                         staged_key,
                         script_present,
                         NULL,
                         script_close,
                         0,
                         0},
                .keys = keys,
                .w = 120,
                .h = 30};
    stage = 0;
    other_run = other;
    bt_text_init(&s.last);
    make_other("demo");
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.frame_ns = 1;
    if (bt_top_interactive(&cfg, &s.base, &err) != BT_OK) fail_msg("%s", err.msg);
    if (!strstr(bt_text_str(&s.last), want))
        fail_msg("keys '%s' do not show '%s':\n%s", keys, want, bt_text_str(&s.last));
    bt_text_release(&s.last);
    if (stage == 2) { /* the reader's lock file exists for the new file, too */
        assert_int_equal(
            bt_db_query(db, &(bt_query){.sql = "DELETE FROM events"}, NULL, NULL, &err), BT_ARG);
    }
    bt_db_close(db);
    remove(aside);
    if (stage < 2) return;
    move_aside();
    remove(aside);
}

#define L "\014~" /* Ctrl-L reads the data again, then a frame is drawn. */

static void a_removed_database_is_reported(void **state) {
    (void)state;
    play_stages(L "!" L, "", "shown is what was read before");
}

static void the_same_run_of_another_database_is_shown(void **state) {
    (void)state;
    play_stages(L "!!" L, "demo", "the database was replaced: this is the new one");
    play_stages(L "!" L "!" L, "demo", "the database was replaced: this is the new one");
}

static void a_missing_run_leads_to_the_list(void **state) {
    (void)state;
    play_stages(L "!!" L, "another", "demo is not in the new one");
    play_stages(L "!!" L L, "another", "another");
}

static int make_folder(void **state) {
    (void)state;
    strcpy(dir, "/tmp/bt_tui_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(db_path, sizeof db_path, "%s/m.db", dir);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_removed_database_is_reported),
        cmocka_unit_test(the_same_run_of_another_database_is_shown),
        cmocka_unit_test(a_missing_run_leads_to_the_list),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_store);
}
