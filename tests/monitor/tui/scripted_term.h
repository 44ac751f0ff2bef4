/* scripted_term.h - a terminal that reads keys from a text and stores its newest frame as text. */
#ifndef BT_TESTS_MONITOR_SCRIPTED_TERM_H
#define BT_TESTS_MONITOR_SCRIPTED_TERM_H

#include "screens_test.h"

#define HOME "\200"
#define END "\201"
#define CTRL_LEFT "\202"
#define CTRL_RIGHT "\203"
#define DOWN "\204"
#define UP "\205"
#define PAGE_DOWN "\206"
#define BACKTAB "\207"
#define ESC "\210"
#define CLICK "\211" /* followed by column and row, each as a character after the blank */
#define WHEEL_DOWN "\212"

typedef struct script {
    bt_term base;
    const char *keys;
    bt_text last; /* the newest frame */
    int w, h;
} script;

static inline void script_size(bt_term *t, int *w, int *h) {
    *w = ((script *)t)->w;
    *h = ((script *)t)->h;
}

/* Returns the next key; '~' waits for a frame. The terminal closes after the last key. */
static inline int32_t script_key(bt_term *t, int timeout_ms) {
    static const int32_t named[] = {BT_KEY_HOME,       BT_KEY_END,     BT_KEY_CTRL_LEFT,
                                    BT_KEY_CTRL_RIGHT, BT_KEY_DOWN,    BT_KEY_UP,
                                    BT_KEY_PAGE_DOWN,  BT_KEY_BACKTAB, BT_KEY_ESC};
    script *s = (script *)t;
    if (*s->keys == '~') {
        if (timeout_ms > 0) s->keys++;
        return BT_KEY_NONE;
    }
    if (!*s->keys) return BT_KEY_HANGUP;
    unsigned char c = (unsigned char)*s->keys++;
    if (c == 0x8A) return BT_KEY_WHEEL_DOWN;
    if (c == 0x89) {
        s->base.mouse_x = *s->keys++ - ' ';
        s->base.mouse_y = *s->keys++ - ' ';
        return BT_KEY_CLICK;
    }
    return c >= 0x80 ? named[c - 0x80] : c;
}

static inline bt_code script_present(bt_term *t, const bt_canvas *c, bt_err *err) {
    script *s = (script *)t;
    (void)err;
    bt_text_clear(&s->last);
    bt_canvas_dump(c, &s->last);
    return BT_OK;
}

static inline void script_close(bt_term *t) { (void)t; }

#endif
