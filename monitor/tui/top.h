/* top.h - `bitrain top`: the screens over the view model, interactive or as one frame of text.
 *
 * The screens only read the metrics database. Functions supplied by the caller change runs (control verbs, starting
 * one), so the screens use neither sockets nor processes; without these functions the keys report that the action is
 * not available. Threads: one caller. */
#ifndef BT_MONITOR_TUI_TOP_H
#define BT_MONITOR_TUI_TOP_H

#include "engine/base/status.h"
#include "engine/base/text.h"
#include "monitor/tui/draw/term.h"
#include "store/store.h"
#include "store/view/view.h"

typedef struct bt_top_actions {
    void *ctx;
    /* sends a verb of verbs.def and its value ("lr=2e-4", a prompt; NULL: none) to a live run;
     * reply: one line for the user */
    bt_code (*control)(void *ctx, const char *run, const char *verb, const char *value, char *reply,
                       size_t size, bt_err *err);
    /* Starts a run with the arguments of `bitrain train`, detached; it is in the database once
     * it has begun. name: the requested name, or "", which then receives a generated one */
    bt_code (*start)(void *ctx, int argc, const char *const *argv, char name[BT_NAME_MAX],
                     bt_err *err);
    /* writes an event: ANNOTATION at a step, ACKNOWLEDGED (step -1) */
    bt_code (*mark)(void *ctx, const char *run, int64_t step, bt_event_kind kind, const char *text,
                    bt_err *err);
    /* text: "+paper -draft"; tags receives the current tags */
    bt_code (*tag)(void *ctx, const char *run, const char *words, char *tags, size_t size,
                   bt_err *err);
    /* Removes the records of an ended run, and its checkpoints if requested. reply receives a
     * summary */
    bt_code (*remove)(void *ctx, const char *run, bool checkpoints, char *reply, size_t size,
                      bt_err *err);
    /* `note` sets the note of a run ("": none), `rename` the name of an ended run */
    bt_code (*note)(void *ctx, const char *run, const char *text, bt_err *err);
    bt_code (*rename)(void *ctx, const char *run, const char *name, bt_err *err);
} bt_top_actions;

typedef struct bt_top_cfg {
    bt_db *db;         /* borrowed */
    const char *store; /* path of the database, for messages and files */
    const char *run;   /* "" : none, opens the list of runs */
    int screen;        /* its number in screens.def */
    bt_x_axis x;
    double span_s;        /* 0: all */
    int64_t at_step;      /* -1: now */
    const char *baseline; /* "" : none */
    int64_t now_us;       /* current time; 0: that of the clock, which tests replace */
    /* minimum time between frames (0: 100 ms); shorter in tests */
    int64_t frame_ns;
    bt_top_actions actions;
} bt_top_cfg;

bt_code bt_top_interactive(const bt_top_cfg *cfg, bt_term *term, bt_err *err) BT_MUST_CHECK;
/* one frame into a canvas of the terminal's size, presented once */
bt_code bt_top_frame(const bt_top_cfg *cfg, bt_term *term, bt_err *err) BT_MUST_CHECK;
/* Writes the parts of the view that a screen shows, as JSON; screen 0: all of them. */
bt_code bt_top_json(const bt_top_cfg *cfg, bt_text *out, bt_err *err) BT_MUST_CHECK;
int bt_top_screen_by_name(const char *name); /* "ranks" or "2" -> 2; 0: unknown */

#endif
