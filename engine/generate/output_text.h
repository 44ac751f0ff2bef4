/* output_text.h - converts tokens to text during generation: whole characters only, cut before a stop string.
 *
 * Input is the bytes of tokens in portions of any size: a character may be divided over several tokens, and a token may
 * end inside a stop string. Returned text never ends inside a UTF-8 character, and never contains the beginning of a
 * stop string that may still be completed. Bytes that are not UTF-8 are returned unchanged.
 *
 * Order:    init -> { add -> next }* -> next(last) -> release.
 * Owns:     the text; the stop strings are borrowed. Threads: one owner. */
#ifndef BT_ENGINE_GENERATE_OUTPUT_TEXT_H
#define BT_ENGINE_GENERATE_OUTPUT_TEXT_H

#include "engine/base/text.h"

typedef struct bt_output {
    bt_text text; /* text so far, without the stop string that ended it */
    size_t given; /* number of bytes already returned */
    const char *const *stop;
    size_t n_stop;
    size_t stop_from; /* a stop string counts if it begins here or later; 0 after init */
    bool stopped;     /* a stop string was found, so later bytes are ignored */
} bt_output;

/* stop: (n) strings; empty ones are ignored. */
void bt_output_init(bt_output *o, const char *const *stop, size_t n);
void bt_output_release(bt_output *o); /* accepts an all-zero struct */
void bt_output_add(bt_output *o, const char *bytes, size_t n);
/* Returns the new text that can be displayed; n may be 0. last: the input is complete, and the rest is returned. Valid
 * until the next add. */
const char *bt_output_next(bt_output *o, bool last, size_t *n);

/* Number of bytes (0..3) at the end of s[0..n) that begin an incomplete character. */
size_t bt_utf8_unfinished(const char *s, size_t n);
/* Appends s with U+FFFD for bytes that are not UTF-8 and for NUL, which JSON strings in C cannot contain. terminal:
 * control characters other than line feed and tab become '?'. */
void bt_utf8_mend(bt_text *out, const char *s, size_t n, bool terminal);

#endif
