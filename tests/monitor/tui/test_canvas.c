// ctest: timeout=60
/* The grid of cells that screens are drawn on: escape sequences are removed, drawing is clipped, wide glyphs are
 * complete, ASCII shows the same as Unicode. */
#include <unistd.h>

#include "monitor/tui/draw/panes.h"
#include "tui_test.h"

static void text_is_cut_and_aligned(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(12, 4, BT_CHARS_BRAILLE);
    assert_int_equal(bt_canvas_text(&c, 0, 0, 12, (bt_style){0}, "0123456789abcdef"), 12);
    assert_int_equal(bt_canvas_text(&c, 0, 1, 5, (bt_style){0}, "abc"), 3);
    bt_canvas_text_right(&c, 12, 1, 6, (bt_style){0}, "right");
    bt_canvas_text_right(&c, 12, 2, 4, (bt_style){0}, "right");
    /* Drawing beyond the edge counts columns and draws nothing. */
    assert_int_equal(bt_canvas_text(&c, 10, 3, 9, (bt_style){0}, "xyz"), 3);
    bt_same_text(&c, "0123456789a…\nabc    right\n        rig…\n          xy\n");
    bt_canvas_release(&c);
}

static void hostile_text_is_harmless(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(40, 3, BT_CHARS_BRAILLE);
    bt_canvas_text(&c, 0, 0, 40, (bt_style){0},
                   "a\033[31mb\033]0;title\007c\x9b"
                   "2Jd\r\n\te\x7f");
    /* bidi override, C1, overlong, surrogate, too large */
    bt_canvas_text(&c, 0, 1, 40, (bt_style){0},
                   "x\xe2\x80\xae"
                   "evil\xe2\x80\xac\xc2\x9b"
                   "1m y \xff\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80");
    bt_canvas_put(&c, 39, 2, 0x1B, (bt_style){0});
    bt_text out;
    bt_text_init(&out);
    bt_canvas_dump(&c, &out);
    for (const unsigned char *p = (const unsigned char *)bt_text_str(&out); *p; p++)
        assert_true(*p >= 0x20 || *p == '\n');
    assert_null(strstr(bt_text_str(&out), "\xc2\x9b"));
    assert_null(strstr(bt_text_str(&out), "\xe2\x80\xae"));
    bt_same_text(&c, "a[31mb]0;titlec?2Jde\nxevil1m y ??? ??? ????\n\n");
    bt_text_release(&out);
    bt_canvas_release(&c);
}

static void wide_glyphs_are_complete(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(6, 3, BT_CHARS_BRAILLE);
    assert_int_equal(bt_canvas_text_width("日本x"), 5);
    bt_canvas_text(&c, 0, 0, 6, (bt_style){0}, "日本語");
    /* the right half of the second glyph */
    bt_canvas_put(&c, 3, 0, '!', (bt_style){0});
    /* Two wide glyphs exceed the width: one and a mark of truncation are drawn. */
    bt_canvas_text(&c, 0, 1, 3, (bt_style){0}, "日本");
    bt_canvas_put(&c, 5, 2, 0x65E5, (bt_style){0}); /* half of it would exceed the edge */
    bt_same_text(&c, "日 !語\n日…\n\n");
    /* A combining accent has no width. */
    assert_int_equal(bt_canvas_text_width("e\xcc\x81"), 1);
    bt_canvas_release(&c);
}

static void clips_nest_and_only_narrow(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(8, 3, BT_CHARS_BRAILLE);
    bt_rect old = bt_canvas_clip(&c, (bt_rect){2, 0, 4, 2});
    bt_rect inner = bt_canvas_clip(&c, (bt_rect){0, 1, 100, 100});
    bt_canvas_fill(&c, (bt_rect){-5, -5, 100, 100}, '#', (bt_style){0});
    bt_canvas_unclip(&c, inner);
    bt_canvas_put(&c, 2, 0, 'a', (bt_style){0});
    bt_canvas_unclip(&c, old);
    bt_canvas_put(&c, 7, 2, 'z', (bt_style){0});
    bt_same_text(&c, "  a\n  ####\n       z\n");
    bt_canvas_release(&c);
}

static void compare_drawings(bt_canvas *c) {
    const double v[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, NAN, 4, 2};
    bt_canvas_box(c, (bt_rect){0, 0, 30, 8}, (bt_style){0}, "box");
    bt_canvas_rule(c, (bt_rect){2, 1, 26, 1}, (bt_style){0}, "heading", "right");
    for (int i = 0; i < 3; i++) bt_canvas_bar(c, 2, 2 + i, 20, 0.31 * (i + 1), (bt_style){0});
    bt_canvas_spark(c, (bt_rect){2, 5, 12, 2}, v, 12, NAN, NAN, (bt_style){0});
    bt_canvas_text(c, 15, 6, 12, (bt_style){0}, "→ ± · µ é");
}

static void drawings_in_every_alphabet(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(32, 8, BT_CHARS_BRAILLE);
    compare_drawings(&c);
    bt_golden_canvas("canvas_unicode", &c);
    bt_canvas_release(&c);
    c = bt_new_canvas(32, 8, BT_CHARS_ASCII);
    compare_drawings(&c);
    bt_golden_canvas("canvas_ascii", &c);
    for (int i = 0; i < c.w * c.h; i++) assert_true(c.cells[i].glyph < 0x7F);
    bt_canvas_release(&c);
}

static void colours_fall_back(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(3, 1, BT_CHARS_BRAILLE);
    bt_text out;
    const char *want[] = {"\033[0;1mok\033[0m\n", "\033[0;1;32mok\033[0m\n",
                          "\033[0;1;38;5;114mok\033[0m\n"};
    bt_canvas_text(&c, 0, 0, 3, (bt_style){.fg = BT_C_GOOD, .attr = BT_ATTR_BOLD}, "ok");
    for (int depth = BT_DEPTH_MONO; depth <= BT_DEPTH_256; depth++) {
        bt_text_init(&out);
        bt_canvas_dump_ansi(&c, (bt_color_depth)depth, &out);
        assert_string_equal(bt_text_str(&out), want[depth]);
        bt_text_release(&out);
    }
    bt_canvas_release(&c);
    assert_int_equal(bt_color_heat(NAN), BT_C_NONE);
    assert_int_equal(bt_color_heat(-3), BT_C_HEAT0);
    assert_int_equal(bt_color_heat(9), BT_C_HEAT0 + BT_HEAT_STEPS - 1);
    assert_int_equal(bt_color_diverge(0), BT_C_DIVERGE0 + BT_DIVERGE_STEPS / 2);
}

static uint32_t dice_state = 1;
static uint32_t random_number(uint32_t n) {
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % n;
}

/* Any drawing call keeps the grid consistent: a wide glyph always has both halves. */
static void random_drawing_keeps_the_grid_sound(void **state) {
    (void)state;
    static const uint32_t glyphs[] = {'a', 0x65E5, 0x1F600, 0x301, 0, 0x202E, 0x2588, 0x10FFFF};
    for (int round = 0; round < 200; round++) {
        bt_canvas c = bt_new_canvas(1 + (int)random_number(20), 1 + (int)random_number(8),
                                    (bt_chars)random_number(3));
        for (int i = 0; i < 60; i++) {
            bt_rect r = {(int)random_number(40) - 10, (int)random_number(20) - 6,
                         (int)random_number(30) - 5, (int)random_number(20) - 5};
            double v[5] = {random_number(9), NAN, random_number(4), INFINITY, -1.0};
            switch (random_number(6)) {
            case 0: bt_canvas_fill(&c, r, glyphs[random_number(8)], (bt_style){0}); break;
            case 1: bt_canvas_box(&c, r, (bt_style){0}, "t日tle"); break;
            case 2: bt_canvas_text(&c, r.x, r.y, r.w, (bt_style){0}, "a日b本c\xff"); break;
            case 3: bt_canvas_rule(&c, r, (bt_style){0}, "日本", "ri語ht"); break;
            case 4: bt_canvas_bar(&c, r.x, r.y, r.w, v[random_number(5)], (bt_style){0}); break;
            default: bt_canvas_put(&c, r.x, r.y, glyphs[random_number(8)], (bt_style){0});
            }
        }
        for (int y = 0; y < c.h; y++)
            for (int x = 0; x < c.w; x++) {
                uint32_t g = c.cells[y * c.w + x].glyph;
                if (g == 0)
                    assert_true(x > 0 && bt_glyph_width(c.cells[y * c.w + x - 1].glyph) == 2);
                else if (bt_glyph_width(g) == 2)
                    assert_true(x + 1 < c.w && c.cells[y * c.w + x + 1].glyph == 0);
                else
                    assert_int_equal(bt_glyph_width(g), 1);
            }
        bt_canvas_release(&c);
    }
}

static void layout_fills_drops_and_never_overlaps(void **state) {
    (void)state;
    bt_rect out[4];
    const bt_pane_size want[] = {{.min = 8, .weight = 3},
                                 {.min = 3, .max = 4, .weight = 1, .rank = 1},
                                 {.min = 4, .weight = 1, .rank = 2},
                                 {.min = 1, .rank = 3}};
    for (int h = 0; h <= 60; h++) {
        bt_layout_rows((bt_rect){5, 7, 10, h}, want, 4, 1, out);
        int y = 7, shown = 0;
        for (int i = 0; i < 4; i++) {
            if (out[i].h == 0) continue;
            assert_true(out[i].y >= y && out[i].h >= want[i].min);
            assert_true(want[i].max == 0 || out[i].h <= want[i].max);
            y = out[i].y + out[i].h;
            shown++;
        }
        assert_true(y <= 7 + h);
        /* The rectangles fill the whole height. */
        if (h >= 19) assert_int_equal(y, 7 + h);
        assert_int_equal(shown, h >= 19 ? 4 : h >= 17 ? 3 : h >= 12 ? 2 : h >= 8 ? 1 : 0);
    }
    bt_layout_cols((bt_rect){0, 0, 50, 3},
                   (bt_pane_size[]){{.min = 10, .weight = 1}, {.min = 10, .weight = 3}}, 2, 2, out);
    assert_int_equal(out[0].w + out[1].w + 2, 50);
    assert_int_equal(out[0].w, 17); /* 10 columns and a quarter of the remaining width */
}

static void themes_change_roles(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    char path[] = "/tmp/bt_theme_XXXXXX";
    const int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    const int dark = bt_color_index(BT_C_TEXT, BT_DEPTH_256);
    assert_int_equal(bt_color_theme("light", &err), BT_OK);
    assert_int_not_equal(bt_color_index(BT_C_TEXT, BT_DEPTH_256), dark);
    assert_int_equal(bt_color_index(BT_C_HEAT0, BT_DEPTH_256), bt_colors[BT_C_HEAT0].c256);
    assert_int_equal(bt_color_theme("/nowhere/theme", &err), BT_NOTFOUND);
    fputs("# mine\naccent 200   # bright\n\nbar -1\nacent 3\n", f);
    fflush(f);
    assert_int_equal(bt_color_theme(path, &err), BT_ARG);
    assert_non_null(strstr(err.msg, ":5: no role 'ACENT' (did you mean 'ACCENT'?)"));
    /* An invalid value has no effect. */
    assert_int_not_equal(bt_color_index(BT_C_ACCENT, BT_DEPTH_256), 200);
    assert_int_equal(ftruncate(fd, 0), 0);
    rewind(f);
    fputs("accent 200\nbar -1\n", f);
    fflush(f);
    assert_int_equal(bt_color_theme(path, &err), BT_OK);
    assert_int_equal(bt_color_index(BT_C_ACCENT, BT_DEPTH_256), 200);
    assert_int_equal(bt_color_index(BT_C_BAR, BT_DEPTH_256), -1);
    assert_int_equal(bt_color_index(BT_C_TEXT, BT_DEPTH_256), dark);
    fclose(f);
    remove(path);
    assert_int_equal(bt_color_theme("dark", &err), BT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(themes_change_roles),
        cmocka_unit_test(text_is_cut_and_aligned),
        cmocka_unit_test(hostile_text_is_harmless),
        cmocka_unit_test(wide_glyphs_are_complete),
        cmocka_unit_test(clips_nest_and_only_narrow),
        cmocka_unit_test(drawings_in_every_alphabet),
        cmocka_unit_test(colours_fall_back),
        cmocka_unit_test(random_drawing_keeps_the_grid_sound),
        cmocka_unit_test(layout_fills_drops_and_never_overlaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
