/* sweep_find.c - method find-lr: a single run whose learning rate increases through a range (optim.schedule=range), and
 * the rate that its losses suggest (lr_range.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/sweep/sweep.h"
#include "engine/config/part_rules.h"
#include "monitor/tui/draw/plot.h"
#include "monitor/tui/draw/term.h"
#include "store/read/lr_range.h"
#include "store/write/manage.h"

/* No final checkpoint is saved, because it would be useless. Parts add settings that tolerate a diverging loss. */
static const struct {
    const char *key, *value;
} fixed[] = {{"optim.schedule", "range"}, {"ckpt.final", "false"}, {"ckpt.keep_best", "false"}};
enum { FIXED = sizeof fixed / sizeof fixed[0] };

static bt_code add_find_setting(bt_sweep_file *f, const char *key, const char *value, bt_err *err) {
    const bt_opt *opt = bt_sweep_opt(key);
    for (size_t i = 0; i < f->n_settings; i++)
        if (f->settings[i].opt == opt)
            return bt_fail(err, BT_ARG, "%s: a range test sets '%s' itself", f->settings[i].where,
                           key);
    f->settings[f->n_settings++] = (bt_sweep_setting){opt, value, "find-lr"};
    return BT_OK;
}

bt_code bt_sweep_find_settings(bt_sweep_file *f, bt_err *err) {
    static char share[40];
    const bt_sweep_axis *a = &f->axes[0];
    if (f->n_axes != 1 || a->opt != bt_sweep_opt("optim.lr") || a->n || !(a->from < a->to) ||
        !(a->from > 0))
        return bt_fail(err, BT_ARG,
                       "%s: a range test has one range of the learning rate, above 0 and rising, "
                       "without a number of values (optim.lr: log 1e-6 .. 1)",
                       f->path);
    snprintf(share, sizeof share, "%.9g", a->from / a->to);
    BT_TRY(add_find_setting(f, "optim.lr_min", share, err));
    for (size_t i = 0; i < FIXED; i++)
        BT_TRY(add_find_setting(f, fixed[i].key, fixed[i].value, err));
    const bt_forced *part;
    for (size_t i = 0; (part = bt_forced_at(BT_FORCE_LR_RANGE, i)); i++)
        BT_TRY(add_find_setting(f, part->key, part->value, err));
    return BT_OK;
}

enum { ROWS = 16, WIDTH_MOST = 160 };

static int chart_width(void) {
    struct winsize ws;
    const char *columns = getenv("COLUMNS");
    int w = columns && atoi(columns) > 0 ? atoi(columns) : 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0) w = ws.ws_col;
    return w < 40 ? 40 : w > WIDTH_MOST ? WIDTH_MOST : w;
}

/* The x axis is the decimal logarithm of the rate. */
static bt_code draw_lr_chart(const bt_lr_range *r, const char *run, bt_err *err) {
    bt_term_caps caps = bt_term_caps_of_env();
    bt_canvas c;
    bt_term *term = NULL;
    bt_plot p;
    char title[160];
    const int w = chart_width();
    double *x = malloc((r->n + 1) * sizeof *x);
    if (!x) return bt_fail(err, BT_NOMEM, "no memory for a chart");
    for (size_t i = 0; i < r->n; i++) x[i] = log10(r->lr[i]);
    if (!isatty(STDOUT_FILENO)) caps.depth = BT_DEPTH_MONO;
    bt_code code = bt_canvas_init(&c, w, ROWS, caps.chars, err);
    if (code != BT_OK) {
        free(x);
        return code;
    }
    snprintf(title, sizeof title, "%s · loss over the learning rate", run);
    bt_canvas_rule(&c, (bt_rect){0, 0, w, 1}, (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD},
                   title, "nats");
    bt_plot_init(&p);
    p.x_name = "log10 of the rate";
    p.y_unit = BT_UNIT_NATS;
    p.no_bands = true;
    if (!isnan(r->top)) p.y1 = r->top;
    if (!isnan(r->suggested)) p.cursor_x = log10(r->suggested);
    const bt_plot_series lines[] = {
        {.name = "loss", .x = x, .y = r->loss, .n = r->n, .color = BT_C_FAINT},
        {.name = "smoothed", .x = x, .y = r->smooth, .n = r->n, .color = BT_C_ACCENT}};
    bt_plot_draw(&c, (bt_rect){0, 1, w, ROWS - 1}, &p, lines + !isatty(STDOUT_FILENO),
                 isatty(STDOUT_FILENO) ? 2 : 1);
    code = bt_term_open_text(&term, stdout, caps, w, ROWS, false, err);
    if (code == BT_OK) code = bt_term_present(term, &c, err);
    bt_term_close(term);
    bt_canvas_release(&c);
    free(x);
    return code;
}

static void print_lr_advice(const bt_lr_range *r) {
    if (r->nothing) {
        printf("no learning rate is suggested: %s\n", r->nothing);
        return;
    }
    printf("suggested learning rate: %.2g\n", r->suggested);
    printf("  the smoothed loss falls most steeply at %.2g, and is least at %.2g", r->steepest,
           r->least);
    if (isnan(r->diverged))
        printf("; within the range it does not diverge\n");
    else
        printf("; it diverges at %.2g\n", r->diverged);
    printf("  the rate of steepest descent, but at most a tenth of where it %s (Smith 2017; "
           "Gugger 2018)\n",
           isnan(r->diverged) ? "is least" : "diverges");
}

static bt_code print_lr_json(const bt_sweep_plan *p, const bt_lr_range *r, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, true);
    bt_printout_version(&o);
    bt_json_str(&o.j, "group", p->file->head.name);
    bt_json_str(&o.j, "method", "find-lr");
    bt_json_str(&o.j, "run", p->runs[0].run.name);
    bt_lr_range_json(r, &o.j);
    return bt_printout_print(&o, err);
}

/* The note is recorded once, although the same command may print the result again. */
static bt_code record_lr_note(const bt_sweep_plan *p, bt_db *db, const bt_lr_range *r,
                              bt_err *err) {
    char title[120];
    double noted = 0;
    if (r->nothing) return BT_OK;
    BT_TRY(bt_db_value(db,
                       "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'annotation' AND "
                       "title LIKE 'suggested learning rate%'",
                       p->runs[0].run.name, &noted, err));
    if (noted > 0) return BT_OK;
    snprintf(title, sizeof title, "suggested learning rate %.2g (steepest descent at %.2g)",
             r->suggested, r->steepest);
    return bt_run_mark(p->store, p->runs[0].run.name, r->step, BT_EVENT_ANNOTATION, title, 5, err);
}

bt_code bt_sweep_find_report(const bt_sweep_plan *p, bool json, bt_err *err) {
    static bt_lr_range range;
    const char *run = p->runs[0].run.name;
    bt_db *db = NULL;
    bool is = false;
    BT_TRY(bt_db_open(&db, p->store, err));
    bt_code code = bt_db_lr_range(db, run, &is, &range, err);
    if (code == BT_OK) code = record_lr_note(p, db, &range, err);
    bt_db_close(db);
    BT_TRY(code);
    if (json) return print_lr_json(p, &range, err);
    if (range.n > 1) BT_TRY(draw_lr_chart(&range, run, err));
    print_lr_advice(&range);
    return BT_OK;
}
