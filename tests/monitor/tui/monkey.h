/* monkey.h - a terminal that presses random keys and changes its size, and counts invalid frames. The same seed gives
 * the same keys. */
#ifndef BT_TESTS_MONKEY_H
#define BT_TESTS_MONKEY_H

#include <stdio.h>

#include "monitor/tui/draw/keys.h"
#include "monitor/tui/top.h"

typedef struct monkey {
    bt_term base;
    uint32_t dice;
    int32_t last; /* the previous key */
    int left, w, h, frames;
    int idle;                     /* calls without a key */
    int wrong;                    /* frames of another size, cells that cannot be displayed */
    void (*meanwhile)(void *ctx); /* called between two keys, or NULL */
    void *ctx;
} monkey;

static inline uint32_t monkey_dice(uint32_t *dice, uint32_t n) {
    *dice = *dice * 1664525u + 1013904223u;
    return (*dice >> 8) % n;
}

static inline uint32_t random_below(monkey *m, uint32_t n) { return monkey_dice(&m->dice, n); }

static inline void monkey_size(bt_term *t, int *w, int *h) {
    *w = ((monkey *)t)->w;
    *h = ((monkey *)t)->h;
}

static inline int32_t monkey_key(bt_term *t, int timeout_ms) {
    static const int32_t special[] = {BT_KEY_UP,
                                      BT_KEY_DOWN,
                                      BT_KEY_LEFT,
                                      BT_KEY_RIGHT,
                                      BT_KEY_PAGE_UP,
                                      BT_KEY_PAGE_DOWN,
                                      BT_KEY_HOME,
                                      BT_KEY_END,
                                      BT_KEY_BACKTAB,
                                      BT_KEY_ESC,
                                      '\t',
                                      '\r',
                                      BT_CTRL('L'),
                                      BT_KEY_BACKSPACE,
                                      BT_KEY_CTRL_LEFT,
                                      BT_KEY_F(1),
                                      0x65E5,
                                      0x1F600};
    monkey *m = (monkey *)t;
    (void)timeout_ms;
    if (m->idle++ % 3 == 2) return BT_KEY_NONE;
    if (--m->left <= 0) return BT_KEY_HANGUP;
    if (m->meanwhile) m->meanwhile(m->ctx);
    if (random_below(m, 20) == 0) {
        m->w = 1 + (int)random_below(m, random_below(m, 2) ? 220 : 40);
        m->h = 1 + (int)random_below(m, random_below(m, 2) ? 70 : 14);
        return BT_KEY_RESIZE;
    }
    int32_t key = random_below(m, 3) == 0
                      ? special[random_below(m, sizeof special / sizeof special[0])]
                      : (int32_t)(' ' + random_below(m, 95));
    /* Questions are sometimes answered with yes. */
    if (m->last == '\r' && random_below(m, 2)) key = 'y';
    m->last = key;
    /* q would end the session, w would write files. */
    return key == 'q' || key == 'w' ? '1' + (int32_t)random_below(m, 9) : key;
}

static inline bt_code monkey_present(bt_term *t, const bt_canvas *c, bt_err *err) {
    monkey *m = (monkey *)t;
    (void)err;
    m->frames++;
    m->wrong += c->w != m->w || c->h != m->h;
    for (int i = 0; i < c->w * c->h; i++) {
        uint32_t g = c->cells[i].glyph;
        m->wrong += !(g == 0 || bt_glyph_width(g) > 0) ||
                    (c->chars == BT_CHARS_ASCII && (g < ' ' || g >= 0x7F));
    }
    return BT_OK;
}

static inline void monkey_close(bt_term *t) { (void)t; }

/* Actions: every second one is refused, with an escape sequence in its message. */

static int asked, started, marked;

static inline bt_code fake_control(void *ctx, const char *run, const char *verb, const char *value,
                                   char *reply, size_t size, bt_err *err) {
    (void)ctx, (void)run, (void)value;
    if (asked++ % 2) return bt_fail(err, BT_BUSY, "run is not live\033[31m");
    snprintf(reply, size, "%s asked for\033[31m", verb);
    return BT_OK;
}

static inline bt_code fake_start(void *ctx, int argc, const char *const *argv,
                                 char name[BT_NAME_MAX], bt_err *err) {
    (void)ctx, (void)argv;
    started++;
    if (argc % 2) return bt_fail(err, BT_ARG, "no such preset");
    if (!name[0]) snprintf(name, BT_NAME_MAX, "base-1");
    return BT_OK;
}

static inline bt_code fake_mark(void *ctx, const char *run, int64_t step, bt_event_kind kind,
                                const char *text, bt_err *err) {
    (void)ctx, (void)run, (void)step, (void)kind, (void)text;
    return marked++ % 2 ? bt_fail(err, BT_BUSY, "another program holds the database") : BT_OK;
}

#endif
