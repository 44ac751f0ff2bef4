/* term.c - functions of both kinds of terminals, capabilities from the environment, and the text terminal. */
#include "monitor/tui/draw/term.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/system/ascii.h"

void bt_term_close(bt_term *t) {
    if (t) t->close(t);
}

void bt_term_size(bt_term *t, int *w, int *h) { t->size(t, w, h); }
bt_term_caps bt_term_caps_of(const bt_term *t) { return t->caps; }
int32_t bt_term_key(bt_term *t, int timeout_ms) { return t->key(t, timeout_ms); }
bt_code bt_term_present(bt_term *t, const bt_canvas *c, bt_err *err) {
    return t->present(t, c, err);
}
void bt_term_redraw(bt_term *t) {
    if (t->redraw) t->redraw(t);
}

/* The process may use the C locale although the terminal is UTF-8, so the variables decide, as in setlocale. */
static bool utf8_locale(void) {
    const char *v = getenv("LC_ALL");
    if (!v || !v[0]) v = getenv("LC_CTYPE");
    if (!v || !v[0]) v = getenv("LANG");
    return v && (bt_ascii_find(v, "utf-8") || bt_ascii_find(v, "utf8"));
}

bt_term_caps bt_term_caps_of_env(void) {
    const char *term = getenv("TERM"), *truecolor = getenv("COLORTERM"),
               *no_color = getenv("NO_COLOR");
    bt_term_caps caps = {BT_CHARS_ASCII, BT_DEPTH_16, false};
    if (!term) term = "dumb";
    bool console = strcmp(term, "linux") == 0, dumb = strcmp(term, "dumb") == 0 || !term[0];
    /* the console font has no braille */
    if (utf8_locale() && !dumb) caps.chars = console ? BT_CHARS_BLOCK : BT_CHARS_BRAILLE;
    if (strstr(term, "256") || (truecolor && truecolor[0]) || strstr(term, "kitty") ||
        strstr(term, "alacritty"))
        caps.depth = BT_DEPTH_256;
    if (dumb || strncmp(term, "vt", 2) == 0 || (no_color && no_color[0]))
        caps.depth = BT_DEPTH_MONO;
    return caps;
}

typedef struct text_term {
    bt_term base;
    FILE *to;
    int w, h;
    bool clear; /* clears the screen before each frame, if the terminal can */
} text_term;

static void copy_text_size(bt_term *t, int *w, int *h) {
    *w = ((text_term *)t)->w;
    *h = ((text_term *)t)->h;
}

static int32_t read_text_key(bt_term *t, int timeout_ms) {
    (void)t;
    bt_sleep_ns((int64_t)timeout_ms * 1000000);
    return BT_KEY_NONE;
}

static bt_code print_canvas(bt_term *t, const bt_canvas *c, bt_err *err) {
    text_term *tt = (text_term *)t;
    bt_text out;
    bt_text_init(&out);
    if (tt->base.caps.depth == BT_DEPTH_MONO)
        bt_canvas_dump(c, &out);
    else
        bt_canvas_dump_ansi(c, tt->base.caps.depth, &out);
    if (tt->clear) fputs("\033[H\033[2J", tt->to);
    fputs(bt_text_str(&out), tt->to);
    bt_text_release(&out);
    if (fflush(tt->to) != 0 || ferror(tt->to))
        return bt_fail_errno(err, BT_IO, errno, "cannot write the screen");
    return BT_OK;
}

static void close_text_terminal(bt_term *t) { free(t); }

bt_code bt_term_open_text(bt_term **out, FILE *to, bt_term_caps caps, int w, int h, bool clear,
                          bt_err *err) {
    text_term *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot allocate a terminal");
    t->base = (bt_term){
        caps, copy_text_size, read_text_key, print_canvas, NULL, close_text_terminal, 0, 0};
    t->to = to;
    t->w = w;
    t->h = h;
    t->clear = clear;
    *out = &t->base;
    return BT_OK;
}

#ifndef BITRAIN_HAVE_TUI
bt_code bt_term_open_ncurses(bt_term **out, bt_term_caps want, bt_err *err) {
    (void)out;
    (void)want;
    return bt_fail(err, BT_UNSUPPORTED,
                   "this build has no ncurses; 'bitrain top --plain --watch 5' works without it");
}
#endif
