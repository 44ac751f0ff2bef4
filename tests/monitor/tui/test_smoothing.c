// ctest: timeout=60
/* The charts of the page and of `top` are smoothed equally: the page's functions, run by Node.js, give the numbers of
 * the view model for the same series. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/base/text.h"
#include "monitor/tui/screens/top_state.h"
#include "store/view/view.h"
#include "tui_test.h"

enum { N = 400 };

typedef struct made {
    double y[N], lo[N], hi[N];
    int64_t step[N], count[N];
    bt_view_series s;
} made;

static void near(double got, double want, double tolerance, const char *what) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.17g instead of %.17g", what, got, want);
}

static void put_series(bt_json *j, const bt_view_series *s) {
    bt_json_object(j, NULL);
    bt_json_array(j, "step");
    for (size_t i = 0; i < s->n; i++) bt_json_int(j, NULL, s->step[i]);
    bt_json_end(j, ']');
    bt_json_array(j, "n");
    for (size_t i = 0; i < s->n; i++) bt_json_int(j, NULL, s->count[i]);
    bt_json_end(j, ']');
    const double *const values[] = {s->mean, s->min, s->max};
    static const char *const names[] = {"mean", "lo", "hi"};
    for (int k = 0; k < 3; k++) {
        bt_json_array(j, names[k]);
        for (size_t i = 0; i < s->n; i++) bt_json_num(j, NULL, values[k][i]);
        bt_json_end(j, ']');
    }
    bt_json_end(j, '}');
}

static void line_of(FILE *f, double *out, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (fscanf(f, "%lf", &out[i]) != 1) fail_msg("the page tells %zu numbers of %zu", i, n);
}

/* single steps; buckets of many steps with a gap; every seventh step recorded, from step 90 on */
static void series_to_smooth(made m[3]) {
    int64_t step = 0;
    for (int k = 0; k < 3; k++)
        m[k].s = (bt_view_series){.n = N,
                                  .mean = m[k].y,
                                  .min = m[k].lo,
                                  .max = m[k].hi,
                                  .step = m[k].step,
                                  .count = m[k].count};
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 3; k++) {
            /* JSON represents all digits of such a number. */
            m[k].y[i] = round(1024 * (3 + 8 * exp(-i / 40.0) + 0.3 * cos(i * (k + 1)))) / 1024;
            m[k].lo[i] = m[k].y[i] - (k + i % 5) / 64.0;
            m[k].hi[i] = m[k].y[i] + (k + i % 3) / 64.0;
            m[k].step[i] = i;
            m[k].count[i] = 1;
        }
        m[1].count[i] = 1 + i % 9;
        step += m[1].count[i];
        m[1].step[i] = step - 1;
        m[2].step[i] = 90 + 7 * i;
    }
    for (int i = 50; i < 52; i++) m[1].y[i] = m[1].lo[i] = m[1].hi[i] = NAN;
    m[1].count[50] = m[1].count[51] = 0;
}

static void the_page_smooths_as_the_terminal_does(void **state) {
    static made m[3];
    (void)state;
    char dir[] = "/tmp/bt_smoothing_XXXXXX", data[64], command[160], told[64];
    double got[N + 1], want[N];
    bt_text json;
    bt_json j;
    if (system("command -v node >/dev/null 2>&1") != 0) skip();
    assert_non_null(mkdtemp(dir));
    series_to_smooth(m);
    bt_text_init(&json);
    bt_json_begin(&j, &json);
    bt_json_array(&j, NULL);
    for (int k = 0; k < 3; k++) put_series(&j, &m[k].s);
    bt_json_end(&j, ']');
    snprintf(data, sizeof data, "%s/series.json", dir);
    FILE *f = fopen(data, "w");
    assert_non_null(f);
    assert_true(fputs(bt_text_str(&json), f) >= 0);
    assert_int_equal(fclose(f), 0);
    bt_text_release(&json);
    snprintf(command, sizeof command, "node \"$BT_SRC\"/tests/monitor/tui/page_smoothing.mjs %s",
             data);
    FILE *page = popen(command, "r");
    assert_non_null(page);
    line_of(page, got, BT_TOP_SMOOTHS);
    for (int i = 0; i < BT_TOP_SMOOTHS; i++)
        near(got[i], bt_top_smooth[i], 0, "a stop of the slider");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < BT_TOP_SMOOTHS; i++) {
            double keep = bt_view_keep(bt_top_smooth[i], bt_view_steps_shown(&m[k].s));
            line_of(page, got, N + 1);
            bt_view_smooth(&m[k].s, keep, want);
            near(got[0], keep, 1e-12, "the share that is kept");
            for (int p = 0; p < N; p++) {
                if (isnan(got[1 + p]) && isnan(want[p])) continue;
                snprintf(told, sizeof told, "series %d, point %d", k, p);
                near(got[1 + p], want[p], 1e-12 * fabs(want[p]), told);
            }
        }
    assert_int_equal(pclose(page), 0);
    unlink(data);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_smooths_as_the_terminal_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
