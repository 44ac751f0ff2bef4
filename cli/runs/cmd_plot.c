/* cmd_plot.c - `bitrain plot`: draws a metric of a run as a chart in the terminal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/runs/plot_curves.h"
#include "monitor/tui/draw/plot.h"
#include "monitor/tui/draw/term.h"
#include "store/view/view.h"

typedef struct plot_cfg {
    char store[1024], curves[1024], x[16], size[24], from_to[48], baseline[BT_NAME_MAX];
    bool json, ascii, log_y, all_y;
    int64_t rank;
    double smooth;
} plot_cfg;

static const bt_opt plot_opts[] = {
    BT_ROW_INT(plot_cfg, rank, "--rank", "-1", -1, 1e6, NULL,
               "metric of one rank (-1: of the whole step)"),
    BT_ROW_TEXT(plot_cfg, x, "--x", "step", "x axis: step tokens time active bytes"),
    {"steps", "--steps", BT_OPT_TEXT, BT_FIELD(plot_cfg, from_to), "", 0, 0, NULL, NULL,
     "only these steps, such as 100..200"},
    BT_ROW_REAL(plot_cfg, smooth, "--smooth", "0", 0, 0.9999, NULL,
                "smoothing: weight of each neighbouring step relative to the step, 0 to 1"),
    {"log", "--log", BT_OPT_BOOL, BT_FIELD(plot_cfg, log_y), "false", 0, 0, NULL, NULL,
     "logarithmic y axis"},
    {"all-y", "--all-y", BT_OPT_BOOL, BT_FIELD(plot_cfg, all_y), "false", 0, 0, NULL, NULL,
     "scale the y axis to all values, including outliers (default: without outliers)"},
    BT_ROW_TEXT(plot_cfg, baseline, "--baseline", "", "run to draw faintly for comparison"),
    BT_ROW_TEXT(plot_cfg, size, "--size", "",
                "size, such as 100x20 (default: the terminal's width, 18 rows)"),
    BT_ROW_FLAG(plot_cfg, ascii, "--ascii", "draw with ASCII characters only"),
    BT_ROW_TEXT(plot_cfg, curves, "--curves", "",
                "instead of a run the curves of a file of 'bitrain bench learn --curves FILE': the "
                "mean over "
                "seeds of each recipe"),
    BT_ROW_FLAG(plot_cfg, json, "--json", "print the points instead of a chart"),
    BT_ROW_STORE(plot_cfg),
};

static bt_code find_metric(const char *word, bool of_rank, int *out, bt_err *err) {
    const bt_metric *list = of_rank ? bt_rank_metrics : bt_step_metrics;
    int n = of_rank ? BT_MR_COUNT : BT_MS_COUNT;
    const char *names[BT_MS_COUNT + BT_MR_COUNT];
    for (int i = 0; i < n; i++) {
        names[i] = list[i].key;
        if (strcmp(word, list[i].key) == 0) {
            *out = i;
            return BT_OK;
        }
    }
    if (!of_rank) {
        for (int i = 0; i < BT_MR_COUNT; i++)
            if (strcmp(word, bt_rank_metrics[i].key) == 0)
                return bt_fail(err, BT_ARG, "'%s' is a metric of ranks: name one, such as --rank 0",
                               word);
    }
    const char *near = bt_nearest(word, names, (size_t)n);
    return near ? bt_fail(err, BT_ARG, "no metric '%s' (did you mean '%s'?)", word, near)
                : bt_fail(err, BT_ARG, "no metric '%s' (see: bitrain help metrics)", word);
}

static bt_code parse_picture_size(const char *given, int *w, int *h, bt_err *err) {
    struct winsize ws;
    const char *columns = getenv("COLUMNS");
    *w = columns && atoi(columns) > 0 ? atoi(columns) : 80;
    *h = 18;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0) *w = ws.ws_col;
    char rest;
    if (given[0] &&
        (sscanf(given, "%dx%d%c", w, h, &rest) != 2 || *w < 1 || *h < 1 || *w > 1000 || *h > 500))
        return bt_fail(err, BT_ARG, "'%s' is not a size (as in --size 100x20, at most 1000x500)",
                       given);
    return BT_OK;
}

static void draw_plot_footer(bt_canvas *c, int y, const bt_view_series *s) {
    double least = INFINITY, most = -INFINITY;
    char first[32], last[32], lo[32], hi[32];
    for (size_t i = 0; i < s->n; i++)
        if (!isnan(s->min[i])) least = fmin(least, s->min[i]), most = fmax(most, s->max[i]);
    bt_canvas_textf(c, 0, y, c->w, (bt_style){.fg = BT_C_LABEL},
                    "first %s · last %s · min %s · max %s%s",
                    bt_metric_format(first, sizeof first, s->first[0], s->unit),
                    bt_metric_format(last, sizeof last, s->last[s->n - 1], s->unit),
                    bt_metric_format(lo, sizeof lo, least, s->unit),
                    bt_metric_format(hi, sizeof hi, most, s->unit), s->exact ? "" : " · sampled");
}

/* Computes the usual range of the run and its baseline; values outside it are marked at the edge. */
static void set_usual_range(const bt_view *v, bt_plot *p) {
    double low, high, range[2 * BT_VIEW_SERIES_MAX][2];
    for (int i = 0; i < v->n_series; i++)
        range[i][0] = v->series[i].low, range[i][1] = v->series[i].high;
    bt_view_join_ranges((const double(*)[2])range, (size_t)v->n_series, &low, &high);
    if (!(high > low) || (p->log_y && !(low > 0))) return;
    const double room = p->log_y ? 0 : (high - low) * 0.03;
    p->y0 = low - room;
    p->y1 = high + room;
}

static bt_code draw_run_plot(const plot_cfg *cfg, const bt_view *v, const char *run, bt_err *err) {
    const bt_view_series *s = &v->series[0];
    bt_term_caps caps = bt_term_caps_of_env();
    bt_canvas c;
    bt_term *term = NULL;
    int w, h;
    char title[160];
    BT_TRY(parse_picture_size(cfg->size, &w, &h, err));
    if (cfg->ascii) caps.chars = BT_CHARS_ASCII;
    if (!isatty(STDOUT_FILENO)) caps.depth = BT_DEPTH_MONO;
    BT_TRY(bt_canvas_init(&c, w, h, caps.chars, err));
    snprintf(title, sizeof title, cfg->rank >= 0 ? "%s · %s · rank %lld" : "%s · %s", run, s->key,
             (long long)cfg->rank);
    bt_canvas_rule(&c, (bt_rect){0, 0, w, 1}, (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD},
                   title, s->unit == BT_UNIT_NATS ? "nats" : bt_unit_name(s->unit));
    double *ema = cfg->smooth > 0 ? malloc((s->n + 1) * sizeof *ema) : NULL;
    if (ema) bt_view_smooth(s, cfg->smooth, ema);
    bt_plot p;
    bt_plot_init(&p);
    p.log_y = cfg->log_y;
    p.x_unit = bt_x_axis_unit(v->x);
    p.x_is_time = v->x == BT_X_WALL || v->x == BT_X_ACTIVE;
    p.x_name = bt_x_axis_title(v->x);
    p.y_unit = s->unit;
    p.no_bands = caps.depth == BT_DEPTH_MONO;
    if (!cfg->all_y) set_usual_range(v, &p);
    bt_plot_series lines[3];
    size_t n = 0;
    if (v->n_series > 1)
        lines[n++] = (bt_plot_series){.name = cfg->baseline,
                                      .x = v->series[1].x,
                                      .y = v->series[1].mean,
                                      .n = v->series[1].n,
                                      .color = BT_C_FAINT};
    lines[n++] = (bt_plot_series){.name = s->key,
                                  .x = s->x,
                                  .y = ema ? ema : s->mean,
                                  .lo = s->min,
                                  .hi = s->max,
                                  .n = s->n,
                                  .color = BT_C_ACCENT,
                                  .band = BT_C_BAND};
    bt_plot_draw(&c, (bt_rect){0, 1, w, h - 2}, &p, lines, n);
    draw_plot_footer(&c, h - 1, s);
    bt_code code = bt_term_open_text(&term, stdout, caps, w, h, false, err);
    if (code == BT_OK) code = bt_term_present(term, &c, err);
    bt_term_close(term);
    bt_canvas_release(&c);
    free(ema);
    return code;
}

static bt_code print_points(const bt_view *v, const char *run, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, true);
    bt_json_str(&o.j, "run", run);
    bt_view_json(v, BT_VIEW_SERIES, &o.j, "view");
    return bt_printout_print(&o, err);
}

static bt_code parse_steps(const char *text, bt_view_request *ask, bt_err *err) {
    long long a, b;
    char rest;
    if (!text[0]) return BT_OK;
    if (sscanf(text, "%lld..%lld%c", &a, &b, &rest) != 2 || a < 1 || b < a)
        return bt_fail(err, BT_ARG, "'%s' is not a range of steps (as in --steps 100..200)", text);
    ask->step0 = a - 1;
    ask->step1 = b - 1;
    return BT_OK;
}

static bt_code show_metric_chart(const plot_cfg *cfg, bt_db *db, const char *wanted, int metric,
                                 bt_err *err) {
    char run[BT_NAME_MAX], baseline[BT_NAME_MAX];
    bt_view *v = NULL;
    bt_view_request ask;
    int w, h;
    bt_view_request_init(&ask);
    BT_TRY(parse_picture_size(cfg->size, &w, &h, err));
    BT_TRY(bt_db_run(db, wanted, run, err));
    if (cfg->baseline[0]) BT_TRY(bt_db_run(db, cfg->baseline, baseline, err));
    if (!bt_x_axis_parse(cfg->x, &ask.x))
        return bt_fail(err, BT_ARG, "no x axis '%s' (step, tokens, time, active, bytes)", cfg->x);
    BT_TRY(parse_steps(cfg->from_to, &ask, err));
    ask.parts = BT_VIEW_HEAD | BT_VIEW_SERIES;
    ask.run = run;
    ask.baseline = cfg->baseline[0] ? baseline : NULL;
    ask.columns = cfg->json ? 1000 : 2 * w < 64 ? 64 : 2 * w;
    ask.n_series = 1;
    ask.series[0] = (bt_series_request){.rank = (int)cfg->rank, .metric = metric};
    bt_code code = bt_view_open(&v, db, err);
    if (code == BT_OK) code = bt_view_load(v, &ask, err);
    const char *key = cfg->rank >= 0 ? bt_rank_metrics[metric].key : bt_step_metrics[metric].key;
    if (code == BT_OK && (v->n_series == 0 || v->series[0].n == 0)) {
        if (cfg->rank >= 0)
            code = bt_fail(err, BT_NOTFOUND, "run '%s' has no '%s' of rank %lld", run, key,
                           (long long)cfg->rank);
        else
            code = bt_fail(err, BT_NOTFOUND, "run '%s' has no '%s' there yet", run, key);
    }
    if (code == BT_OK)
        code = cfg->json ? print_points(v, run, err) : draw_run_plot(cfg, v, run, err);
    bt_view_close(v);
    return code;
}

static bt_code show_curves(const plot_cfg *cfg, bt_err *err) {
    bt_curves *c = NULL;
    const char *name = strrchr(cfg->curves, '/');
    bt_curves_style how = {
        .tokens = strcmp(cfg->x, "tokens") == 0, .ascii = cfg->ascii, .log_y = cfg->log_y};
    BT_TRY(parse_picture_size(cfg->size, &how.w, &how.h, err));
    BT_TRY(bt_curves_read(&c, cfg->curves, err));
    const bt_code code = cfg->json ? bt_curves_print(c, err)
                                   : bt_curves_draw(c, name ? name + 1 : cfg->curves, &how, err);
    bt_curves_free(c);
    return code;
}

static bt_code cmd_plot(bt_call *call, bt_err *err) {
    plot_cfg *cfg = call->cfg;
    const char *const *words = call->words;
    int metric = 0;
    if (cfg->curves[0] && call->n > 0)
        return bt_fail(err, BT_ARG, "plot takes a run or --curves FILE, not both");
    if (cfg->curves[0]) return show_curves(cfg, err);
    if (call->n == 0)
        return bt_fail(err, BT_ARG, "plot needs a run (as in: bitrain plot last loss)");
    BT_TRY(find_metric(call->n > 1 ? words[1] : "loss", cfg->rank >= 0, &metric, err));
    bt_db *db = NULL;
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    bt_code code = show_metric_chart(cfg, db, words[0], metric, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_plot = {
    .name = "plot",
    .summary = "a metric of a run as a chart in the terminal",
    .args = "RUN [METRIC]",
    .examples = "bitrain plot last loss\n"
                "bitrain plot demo loss --x tokens --smooth 0.9\n"
                "bitrain plot demo wait_ms --rank 1\n"
                "bitrain plot --curves tests/bench/curves/nano-150.tsv --x tokens\n"
                "bitrain plot demo loss --json | jq '.view.series[0].last[-1]'",
    .options = BT_OPTION_SET(plot_opts, plot_cfg),
    .max_words = 2,
    .run = cmd_plot,
};
