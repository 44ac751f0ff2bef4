// ctest: timeout=60
/* Plots: ticks at round numbers, labels with units, gaps where values are missing, golden files for ASCII, braille and
 * block characters. */
#include "monitor/tui/draw/plot.h"
#include "tui_test.h"

static void ticks_are_round(void **state) {
    (void)state;
    double t[16];
    /* 0 50 100: the finest steps of 1, 2 or 5 that fit both ends */
    assert_int_equal(bt_plot_ticks(0, 100, 5, false, t), 3);
    assert_true(t[2] == 100);
    assert_int_equal(bt_plot_ticks(0, 100, 6, false, t), 6);
    assert_int_equal(bt_plot_ticks(2.03, 4.97, 3, false, t), 2);
    assert_true(t[0] == 3 && t[1] == 4);
    size_t n = bt_plot_ticks(0.001, 1000, 8, true, t);
    assert_int_equal(n, 7);
    for (size_t i = 0; i < n; i++) assert_true(fabs(log10(t[i]) - round(log10(t[i]))) < 1e-9);
    assert_int_equal(bt_plot_ticks(5, 5, 4, false, t), 0);
    assert_int_equal(bt_plot_ticks(NAN, 5, 4, false, t), 0);
    /* The ticks are in rising order inside the range, and at most as many as requested. */
    for (int k = 0; k < 2000; k++) {
        double lo = pow(10, k % 13 - 6) * (k % 7 - 3), hi = lo + pow(10, k % 11 - 5) * (1 + k % 5);
        size_t max = 1 + (size_t)k % 9;
        n = bt_plot_ticks(lo, hi, max, k % 3 == 0, t);
        assert_true(n <= max);
        for (size_t i = 0; i < n; i++)
            assert_true(t[i] >= lo - (hi - lo) * 1e-3 && t[i] <= hi + (hi - lo) * 1e-3 &&
                        (i == 0 || t[i] > t[i - 1]));
    }
}

static void labels_are_short(void **state) {
    (void)state;
    static const struct {
        double v;
        bt_unit unit;
        double step;
        const char *want;
    } rows[] = {{2.5, BT_UNIT_NATS, 0.5, "2.5"},     {3, BT_UNIT_NATS, 1, "3"},
                {0.25, BT_UNIT_FRAC, 0.05, "25 %"},  {1500000, BT_UNIT_COUNT, 500000, "1.5 M"},
                {2e6, BT_UNIT_COUNT, 1e6, "2 M"},    {0.0005, BT_UNIT_NONE, 1e-4, "5.0e-4"},
                {400, BT_UNIT_MS, 100, "400"},       {220.5, BT_UNIT_MIB, 0.5, "220.5 MiB"},
                {1536, BT_UNIT_MIB, 512, "1.5 GiB"}, {1000200, BT_UNIT_COUNT, 200, "1.0002 M"},
                {0, BT_UNIT_COUNT, 50, "0"},         {8900, BT_UNIT_PER_S, 100, "8.9 k"}};
    char b[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_plot_label(b, sizeof b, rows[i].v, rows[i].unit, rows[i].step);
        assert_string_equal(b, rows[i].want);
    }
}

enum { N = 120 };

static void draw_plot(bt_canvas *c, bool log_y) {
    static double x[N], y[N], lo[N], hi[N];
    for (int i = 0; i < N; i++) {
        x[i] = i * 10000.0;
        y[i] = i >= 70 && i < 80 ? NAN : 2 + 3 * exp(-i / 20.0);
        lo[i] = y[i] - 0.2;
        hi[i] = y[i] + 0.2 + (i == 50 ? 1.5 : 0);
    }
    const bt_plot_mark marks[] = {{300000, 0x25C6, BT_C_LABEL}, {900000, 0x2717, BT_C_BAD}};
    const bt_plot_level levels[] = {{2.0, "goal"}};
    bt_plot p;
    bt_plot_init(&p);
    p.x_unit = BT_UNIT_COUNT;
    p.y_unit = BT_UNIT_NATS;
    p.x_name = "tokens";
    p.log_y = log_y;
    p.marks = marks;
    p.n_marks = 2;
    p.levels = levels;
    p.n_levels = 1;
    const bt_plot_series s[] = {{.name = "loss",
                                 .x = x,
                                 .y = y,
                                 .lo = lo,
                                 .hi = hi,
                                 .n = N,
                                 .color = BT_C_ACCENT,
                                 .band = BT_C_BAND}};
    bt_plot_draw(c, (bt_rect){0, 0, c->w, c->h}, &p, s, 1);
}

/* A single tick is labelled with its own value and all digits. */
static void a_lone_tick_is_labelled_right(void **state) {
    (void)state;
    static const double x[2] = {0, 1}, y[2] = {5.492, 5.598};
    bt_canvas c = bt_new_canvas(40, 5, BT_CHARS_BRAILLE);
    bt_plot p;
    bt_text out;
    bt_plot_init(&p);
    p.y_unit = BT_UNIT_NATS;
    const bt_plot_series s[] = {{.name = "loss", .x = x, .y = y, .n = 2, .color = BT_C_ACCENT}};
    bt_plot_draw(&c, (bt_rect){0, 0, c.w, c.h}, &p, s, 1);
    bt_text_init(&out);
    bt_canvas_dump(&c, &out);
    if (!strstr(bt_text_str(&out), "5.5")) fail_msg("%s", bt_text_str(&out));
    bt_text_release(&out);
    bt_canvas_release(&c);
}

static void plots_equal_golden_files(void **state) {
    (void)state;
    static const char *const names[] = {"plot_ascii", "plot_block", "plot_braille"};
    for (int chars = BT_CHARS_ASCII; chars <= BT_CHARS_BRAILLE; chars++) {
        bt_canvas c = bt_new_canvas(70, 16, (bt_chars)chars);
        draw_plot(&c, false);
        bt_golden_canvas(names[chars], &c);
        bt_canvas_release(&c);
    }
    bt_canvas c = bt_new_canvas(70, 16, BT_CHARS_BRAILLE);
    draw_plot(&c, true);
    bt_golden_canvas("plot_log", &c);
    bt_canvas_release(&c);
}

static void any_size_any_numbers(void **state) {
    (void)state;
    const double bad[] = {NAN, INFINITY, -INFINITY, 0, -1, 1e308, -1e308, 1e-308};
    double x[8], y[8];
    for (int k = 0; k < 4096; k++) {
        for (int i = 0; i < 8; i++) {
            x[i] = i;
            y[i] = bad[(k >> (i % 4) * 3) % 8];
        }
        bt_canvas c = bt_new_canvas(1 + k % 40, 1 + k / 40 % 12, (bt_chars)(k % 3));
        bt_plot p;
        bt_plot_init(&p);
        p.log_y = k & 1;
        p.x_is_time = k & 2;
        p.x_name = "wall time";
        p.cursor_x = k % 9;
        const bt_plot_series s[] = {
            {.x = x, .y = y, .lo = y, .hi = x, .n = (size_t)k % 9, .color = BT_C_ACCENT}};
        bt_plot_draw(&c, (bt_rect){0, 0, c.w, c.h}, &p, s, 1);
        bt_canvas_release(&c);
    }
}

static double cell_at(void *ctx, size_t row, size_t col) {
    (void)ctx;
    return row == 1 && col == 3 ? NAN : ((double)row * 12 + (double)col) / 36;
}

static void label_of_tick(void *ctx, size_t row, char *buf, size_t size) {
    (void)ctx;
    snprintf(buf, size, "rank %zu", row);
}

static void heat_is_coded_twice(void **state) {
    (void)state;
    bt_canvas c = bt_new_canvas(32, 6, BT_CHARS_BRAILLE);
    const bt_heat h = {.rows = 3,
                       .cols = 12,
                       .value = cell_at,
                       .label = label_of_tick,
                       .label_w = 8,
                       .cursor_col = -1,
                       .selected_row = 2};
    bt_heat_draw(&c, (bt_rect){0, 0, 32, 3}, &h);
    bt_heat_legend(&c, 0, 4, 32, "low", "high", false);
    bt_golden_canvas("heat", &c);
    assert_int_equal(c.cells[8].style.fg, BT_C_HEAT0);
    assert_int_equal(c.cells[2 * 32 + 19].style.fg, BT_C_HEAT0 + BT_HEAT_STEPS - 1);
    bt_canvas_release(&c);
}

static void stacked_bars_fill_by_share(void **state) {
    (void)state;
    const bt_segment s[] = {{10, BT_C_P_DATA, 'd'},
                            {20, BT_C_P_FWD, 'f'},
                            {0, BT_C_P_CKPT, 'k'},
                            {NAN, BT_C_P_MONITOR, 'm'},
                            {10, BT_C_P_BWD, 'b'}};
    bt_canvas c = bt_new_canvas(20, 3, BT_CHARS_ASCII);
    bt_stack_draw(&c, 0, 0, 20, 40, s, 5, true);
    bt_stack_draw(&c, 0, 1, 20, 80, s, 5, true);
    /* longer than its scale, so it is clipped */
    bt_stack_draw(&c, 0, 2, 20, 20, s, 5, true);
    bt_same_text(&c, "dddddffffffffffbbbbb\ndddfffffbb\nddddddddddffffffffff\n");
    bt_canvas_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_round),
        cmocka_unit_test(labels_are_short),
        cmocka_unit_test(a_lone_tick_is_labelled_right),
        cmocka_unit_test(plots_equal_golden_files),
        cmocka_unit_test(any_size_any_numbers),
        cmocka_unit_test(heat_is_coded_twice),
        cmocka_unit_test(stacked_bars_fill_by_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
