/* output_text.h - text of a model during generation: whole characters only, cut before a stop string.
 *
 * Input is the bytes of tokens, in any portions: one character may be divided over several tokens, one token may
 * end within a stop string. Returned text never ends inside a character of UTF-8 and never holds the beginning of
 * a stop string that may still be completed. Bytes that are not UTF-8 are returned unchanged.
 *
 * Order:    init -> { add -> next }* -> next(last) -> release.
 * Owns:     the text; the stop strings are borrowed. Threads: one owner. */
#ifndef BT_ENGINE_GENERATE_OUTPUT_TEXT_H
#define BT_ENGINE_GENERATE_OUTPUT_TEXT_H

#include "engine/base/text.h"

typedef struct bt_output {
    bt_text text; /* so far, without the stop string that ended it */
    size_t given; /* bytes that were handed out */
    const char *const *stop;
    size_t n_stop;
    size_t stop_from; /* a stop string begins here or later: 0 after init */
    bool stopped;     /* a stop string was found: later bytes are ignored */
} bt_output;

/* stop: (n) texts, empty ones ignored */
void bt_output_init(bt_output *o, const char *const *stop, size_t n);
void bt_output_release(bt_output *o); /* accepts an all-zero struct */
void bt_output_add(bt_output *o, const char *bytes, size_t n);
/* returns new text that can be shown; n may be 0. last: the input is complete, returns the rest. Valid until the
 * next add */
const char *bt_output_next(bt_output *o, bool last, size_t *n);

/* bytes at the end of s[0..n) that begin a character without completing it; 0..3 */
size_t bt_utf8_unfinished(const char *s, size_t n);
/* Appends s with what is no UTF-8 (and NUL, which JSON texts of C cannot hold) as U+FFFD. terminal:
 * control characters other than line feed and tab as '?', too */
void bt_utf8_mend(bt_text *out, const char *s, size_t n, bool terminal);

#endif
