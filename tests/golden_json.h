/* golden_json.h - comparison of JSON with golden files: one paragraph per object with its path, its scalars and lists
 * of scalars; numbers to nine digits, times of day to the millisecond. With BT_UPDATE=1 in the environment a test
 * rewrites the files. */
#ifndef BT_TESTS_GOLDEN_JSON_H
#define BT_TESTS_GOLDEN_JSON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <cmocka.h>

#include "engine/base/text.h"

enum { BT_GOLDEN_WIDTH = 110 };

/* Returns whether x is a scalar or a list of scalars. */
static inline bool bt_golden_flat(const json_t *x) {
    for (size_t i = 0; i < json_array_size(x); i++)
        if (json_is_array(json_array_get(x, i)) || json_is_object(json_array_get(x, i)))
            return false;
    return !json_is_object(x);
}

static inline void bt_golden_scalar(const json_t *x, bt_text *out) {
    if (json_is_real(x))
        bt_text_printf(out, json_real_value(x) > 1e9 ? "%.13g" : "%.9g", json_real_value(x));
    else if (json_is_integer(x))
        bt_text_printf(out, "%lld", (long long)json_integer_value(x));
    else if (json_is_string(x))
        bt_text_printf(out, "'%s'", json_string_value(x));
    else
        bt_text_put(out, json_is_null(x) ? "-" : json_is_true(x) ? "true" : "false");
}

/* Adds a word to a paragraph, on a new line if the current one is full. */
static inline void bt_golden_word(bt_text *out, size_t *begin, const char *word) {
    if (out->len - *begin + strlen(word) >= BT_GOLDEN_WIDTH) {
        bt_text_put(out, "\n   ");
        *begin = out->len - 3;
    }
    bt_text_printf(out, " %s", word);
}

static inline void bt_golden_member(bt_text *out, size_t *begin, const char *key, const json_t *x) {
    bt_text word;
    bt_text_init(&word);
    if (!json_is_array(x)) {
        bt_text_printf(&word, "%s=", key);
        bt_golden_scalar(x, &word);
        bt_golden_word(out, begin, bt_text_str(&word));
    } else {
        bt_text_printf(&word, "%s=[", key);
        bt_golden_word(out, begin, bt_text_str(&word));
        for (size_t i = 0; i < json_array_size(x); i++) {
            bt_text_release(&word);
            bt_text_init(&word);
            bt_golden_scalar(json_array_get(x, i), &word);
            bt_golden_word(out, begin, bt_text_str(&word));
        }
        bt_text_put(out, "]");
    }
    bt_text_release(&word);
}

static inline void bt_golden_paragraphs(const char *path, json_t *x, const char *but,
                                        bt_text *out) {
    const char *key;
    json_t *member;
    char below[200];
    size_t i, begin = out->len;
    if (json_is_array(x)) {
        json_array_foreach(x, i, member) {
            snprintf(below, sizeof below, "%s.%zu", path, i);
            if (!bt_golden_flat(member)) {
                bt_golden_paragraphs(below, member, but, out);
                continue;
            }
            begin = out->len;
            bt_golden_member(out, &begin, below, member);
            bt_text_put(out, "\n");
        }
        return;
    }
    bt_text_printf(out, "%s:", *path ? path : "answer");
    json_object_foreach(x, key, member) {
        if (bt_golden_flat(member) && strcmp(key, but) != 0)
            bt_golden_member(out, &begin, key, member);
    }
    bt_text_put(out, "\n");
    json_object_foreach(x, key, member) {
        if (bt_golden_flat(member)) continue;
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", key);
        bt_golden_paragraphs(below, member, but, out);
    }
}

/* Replaces every `word` by `as`. */
static inline void bt_golden_replace(bt_text *text, const char *word, const char *as) {
    bt_text out;
    const char *at = bt_text_str(text), *hit;
    bt_text_init(&out);
    for (; *word && (hit = strstr(at, word)); at = hit + strlen(word))
        bt_text_printf(&out, "%.*s%s", (int)(hit - at), at, as);
    bt_text_put(&out, at);
    bt_text_release(text);
    *text = out;
}

/* Compares the lines `got` with a file, whose path is relative to tests/. */
static inline void bt_golden_text(const char *file, const char *got) {
    char path[512];
    const char *src = getenv("BT_SRC"), *at = got;
    snprintf(path, sizeof path, "%s/tests/%s", src ? src : ".", file);
    if (getenv("BT_UPDATE")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(got, f);
        assert_int_equal(fclose(f), 0);
    }
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("no golden file %s (BT_UPDATE=1 writes it)", path);
    char *line = NULL;
    size_t size = 0;
    int number = 1;
    for (ssize_t n; (n = getline(&line, &size, f)) >= 0; number++) {
        const size_t have = strcspn(at, "\n") + (strchr(at, '\n') != NULL);
        if (have != (size_t)n || strncmp(at, line, have) != 0)
            fail_msg("%s:%d: expected\n%sgot\n%.*s", file, number, line, (int)have, at);
        at += have;
    }
    if (*at) fail_msg("%s: expected no more, got\n%s", file, at);
    free(line);
    fclose(f);
}

/* Masks text that differs between runs: the text `place` becomes PLACE, and members named `but` are omitted ("":
 * none). */
static inline void bt_golden_json(const char *file, const char *json, const char *place,
                                  const char *but) {
    json_error_t why;
    bt_text got;
    json_t *j = json_loads(json, JSON_REJECT_DUPLICATES, &why);
    if (!j) fail_msg("%s: no JSON: %s", file, why.text);
    bt_text_init(&got);
    bt_golden_paragraphs("", j, but, &got);
    json_decref(j);
    bt_golden_replace(&got, place, "PLACE");
    bt_golden_text(file, bt_text_str(&got));
    bt_text_release(&got);
}

#endif
