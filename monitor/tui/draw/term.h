/* term.h - a terminal: size, one key at a time, and display of a canvas. There are two kinds
 * behind one table of functions.
 *
 *     ncurses  interactive (term_ncurses.c, the only file that uses curses): handles resize, suspend and continue,
 *              and a closed terminal (BT_KEY_HANGUP); sends changed cells only
 *     text     prints each frame as text to a stream: pipes, TERM=dumb, `--once`, `--plain --watch N`; has no keys
 * Order:    open -> (present, key)* -> close. `close` restores the terminal. One per process,
 *           because curses is global. */
#ifndef BT_MONITOR_TUI_DRAW_TERM_H
#define BT_MONITOR_TUI_DRAW_TERM_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/base/status.h"
#include "monitor/tui/draw/canvas.h"
#include "monitor/tui/draw/keys.h"

typedef struct bt_term bt_term;

typedef struct bt_term_caps {
    bt_chars chars;
    bt_color_depth depth;
    bool keys; /* keys are available, so tabs and hints are shown */
} bt_term_caps;

/* Returns capabilities from the environment: locale and TERM select glyphs; TERM, COLORTERM and NO_COLOR select
 * colours. */
bt_term_caps bt_term_caps_of_env(void);

/* BT_UNSUPPORTED: no ncurses in this build */
bt_code bt_term_open_ncurses(bt_term **out, bt_term_caps want, bt_err *err) BT_MUST_CHECK;
bt_code bt_term_open_text(bt_term **out, FILE *to, bt_term_caps caps, int w, int h, bool clear,
                          bt_err *err) BT_MUST_CHECK;
void bt_term_close(bt_term *t); /* accepts NULL */

void bt_term_size(bt_term *t, int *w, int *h);
bt_term_caps bt_term_caps_of(const bt_term *t);
/* Waits at most timeout_ms for a key; BT_KEY_NONE: no key. */
int32_t bt_term_key(bt_term *t, int timeout_ms);
/* BT_IO: the reader has closed the pipe */
bt_code bt_term_present(bt_term *t, const bt_canvas *c, bt_err *err) BT_MUST_CHECK;
/* Makes the next bt_term_present send the whole canvas. */
void bt_term_redraw(bt_term *t);

/* for implementations */
struct bt_term {
    bt_term_caps caps;
    void (*size)(bt_term *t, int *w, int *h);
    int32_t (*key)(bt_term *t, int timeout_ms);
    bt_code (*present)(bt_term *t, const bt_canvas *c, bt_err *err);
    void (*redraw)(bt_term *t);
    void (*close)(bt_term *t);
    int mouse_x, mouse_y; /* position of the newest BT_KEY_CLICK */
};

#endif
