/* tui_test.h - comparison of text screens with readable golden files in tests/monitor/tui/golden;
 * BT_UPDATE=1 in the environment of a test rewrites them. */
#ifndef BT_TESTS_TUI_TEST_H
#define BT_TESTS_TUI_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "monitor/tui/draw/canvas.h"

static inline char *bt_slurp(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static inline void bt_golden(const char *name, const char *got) {
    char path[512];
    const char *src = getenv("BT_SRC");
    snprintf(path, sizeof path, "%s/tests/monitor/tui/golden/%s.txt", src ? src : ".", name);
    if (getenv("BT_UPDATE")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(got, f);
        fclose(f);
        return;
    }
    char *want = bt_slurp(path);
    if (!want) fail_msg("no golden file %s (BT_UPDATE=1 writes it)", path);
    if (strcmp(want, got) != 0) fail_msg("%s differs; expected:\n%s\ngot:\n%s", path, want, got);
    free(want);
}

static inline void bt_golden_canvas(const char *name, const bt_canvas *c) {
    bt_text out;
    bt_text_init(&out);
    bt_canvas_dump(c, &out);
    bt_golden(name, bt_text_str(&out));
    bt_text_release(&out);
}

static inline bt_canvas bt_new_canvas(int w, int h, bt_chars chars) {
    bt_canvas c;
    assert_int_equal(bt_canvas_init(&c, w, h, chars, NULL), BT_OK);
    return c;
}

static inline void bt_same_text(const bt_canvas *c, const char *want) {
    bt_text out;
    bt_text_init(&out);
    bt_canvas_dump(c, &out);
    assert_string_equal(bt_text_str(&out), want);
    bt_text_release(&out);
}

#endif
