/* played_screens.h - presses keys and returns the screen as text; requested actions are recorded, not
 * executed. */
#ifndef BT_TESTS_MONITOR_PLAYED_SCREENS_H
#define BT_TESTS_MONITOR_PLAYED_SCREENS_H

#include "scripted_term.h"

static char done[256];    /* arguments of the last action */
static bool by_the_clock; /* this process writes the runs, at the present time */
static void (*on_control)(const char *run, const char *verb); /* NULL: the request has no effect */

static inline bt_code fake_control(void *ctx, const char *run, const char *verb, const char *value,
                                   char *reply, size_t size, bt_err *err) {
    (void)ctx, (void)err;
    const char *blank = value ? " " : "", *said = value ? value : "";
    snprintf(done, sizeof done, "control %s %s%s%s", run, verb, blank, said);
    snprintf(reply, size, "%s%s%s is under way\033[31m", verb, blank, said);
    if (on_control) on_control(run, verb);
    return BT_OK;
}

static inline bt_code fake_start(void *ctx, int argc, const char *const *argv,
                                 char name[BT_NAME_MAX], bt_err *err) {
    (void)ctx;
    size_t n = (size_t)snprintf(done, sizeof done, "start %s:", name);
    for (int i = 0; i < argc; i++) n += (size_t)snprintf(done + n, sizeof done - n, " %s", argv[i]);
    if (strstr(done, "nosuch")) return bt_fail(err, BT_ARG, "unknown preset 'nosuch'");
    if (!name[0]) snprintf(name, BT_NAME_MAX, "base-1");
    return BT_OK;
}

static inline bt_code fake_mark(void *ctx, const char *run, int64_t step, bt_event_kind kind,
                                const char *text, bt_err *err) {
    (void)ctx, (void)err;
    snprintf(done, sizeof done, "mark %s %lld %s %s", run, (long long)step, bt_events[kind].name,
             text);
    return BT_OK;
}

static inline bt_code fake_tag(void *ctx, const char *run, const char *words, char *tags,
                               size_t size, bt_err *err) {
    (void)ctx, (void)err;
    snprintf(done, sizeof done, "tag %s %s", run, words);
    snprintf(tags, size, "paper");
    return BT_OK;
}

static inline bt_code fake_note(void *ctx, const char *run, const char *text, bt_err *err) {
    (void)ctx, (void)err;
    snprintf(done, sizeof done, "note %s %s", run, text);
    return BT_OK;
}

static inline bt_code fake_rename(void *ctx, const char *run, const char *name, bt_err *err) {
    (void)ctx;
    if (strcmp(name, "demo-now") == 0)
        return bt_fail(err, BT_BUSY, "another run has the name '%s'", name);
    snprintf(done, sizeof done, "rename %s %s", run, name);
    return BT_OK;
}

static inline bt_code fake_remove(void *ctx, const char *run, bool checkpoints, char *reply,
                                  size_t size, bt_err *err) {
    (void)ctx, (void)err;
    snprintf(done, sizeof done, "remove %s%s", run, checkpoints ? " and checkpoints" : "");
    snprintf(reply, size, "removed the records of %s", run);
    return BT_OK;
}

static inline char *play_on(const char *run, const char *keys, int w, int h) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    script s = {.base = {{BT_CHARS_BRAILLE, BT_DEPTH_256, true},
                         script_size,
                         script_key,
                         script_present,
                         NULL,
                         script_close,
                         0,
                         0},
                .keys = keys,
                .w = w,
                .h = h};
    bt_text_init(&s.last);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.run = run;
    cfg.frame_ns = 1;
    cfg.actions = (bt_top_actions){.control = fake_control,
                                   .start = fake_start,
                                   .mark = fake_mark,
                                   .tag = fake_tag,
                                   .remove = fake_remove,
                                   .note = fake_note,
                                   .rename = fake_rename};
    if (by_the_clock || strcmp(run, "now") == 0) cfg.now_us = 0;
    done[0] = 0;
    if (bt_top_interactive(&cfg, &s.base, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_db_close(db);
    char *out = strdup(bt_text_str(&s.last));
    bt_text_release(&s.last);
    return out;
}

static inline void check(const char *run, const char *keys, const char *want, bool there, int w,
                         int h) {
    char *got = play_on(run, keys, w, h);
    if ((strstr(got, want) != NULL) != there)
        fail_msg("keys '%s' %s '%s':\n%s", keys, there ? "do not show" : "show", want, got);
    free(got);
}

static inline void shows(const char *keys, const char *want) {
    check("demo", keys, want, true, 100, 30);
}
static inline void hides(const char *keys, const char *want) {
    check("demo", keys, want, false, 100, 30);
}

#endif
