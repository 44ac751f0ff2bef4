/* cmd_show.c - `bitrain show RUN`: prints everything that the database contains about one run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/common/printout/table.h"
#include "cli/runs/show_group.h"
#include "engine/base/tables/derived.h"
#include "engine/base/tables/fact.h"
#include "engine/base/tables/figure.h"
#include "engine/base/tables/metric.h"
#include "store/store.h"
#include "store/view/view.h"

typedef struct show_cfg {
    char store[1024];
    bool json, all, wide;
} show_cfg;

static const bt_opt show_opts[] = {
    BT_ROW_JSON(show_cfg),
    BT_ROW_FLAG(show_cfg, all, "--all",
                "every setting, rank, fact and event, not only the important ones"),
    BT_ROW_FLAG(show_cfg, wide, "--wide", "whole lines, even beyond the terminal's width"),
    BT_ROW_STORE(show_cfg),
};

enum { FEW = 10 };

typedef struct shown {
    bt_db *db;
    const char *run;
    bool all;
    int width;     /* columns of the terminal; 0: no limit */
    bt_view *view; /* head of the view, and how the run spent its time */
    double steps;  /* number of steps of the run */
    double recent; /* number of records that figures of span RECENT use */
} shown;

/* "all 36 steps", "newest 128 steps"; "12 recorded steps" of a run that records only some steps */
static const char *describe_steps(char *buf, size_t size, double n, const shown *s) {
    const char *many = n == 1 ? "" : "s";
    if (n >= s->steps && n > 1)
        snprintf(buf, size, "all %.0f steps", n);
    else if (n < BT_RECENT_STEPS)
        snprintf(buf, size, "%.0f recorded step%s", n, many);
    else
        snprintf(buf, size, "newest %.0f steps", n);
    return buf;
}

/* ---- phases ---- */

/* Returns the rank with the longest mean time in a phase; NULL: no rank recorded the phase. */
static const bt_view_rank *longest_rank(const bt_view_ranks *r, int phase) {
    const bt_rank_metric m = bt_phases[phase].metric;
    const bt_view_rank *worst = NULL;
    for (size_t k = 0; k < r->n; k++)
        if (r->rank[k].n > 0 && isfinite(r->rank[k].mean[m]) &&
            (!worst || r->rank[k].mean[m] > worst->mean[m]))
            worst = &r->rank[k];
    return worst;
}

static double share_of_step(const bt_view_ranks *r, int phase) {
    return r->mean_ms > 0 ? r->phase_ms[phase] / r->mean_ms : NAN;
}

static void print_phases(const shown *s) {
    const bt_view_ranks *r = &s->view->ranks;
    bt_text_table t;
    char b[32], of[40];
    const bool planned = isfinite(s->view->head.predicted.step_ms);
    bt_table_init(&t);
    static const char *const heads[] = {"PHASE", "MEAN",    "PREDICTED",
                                        "SHARE", "LONGEST", "ON RANK"};
    for (int i = 0; i < 6; i++)
        if (i != 2 || planned) bt_table_cell(&t, heads[i]);
    bt_table_end_row(&t);
    for (int i = 0; i < BT_PHASE_COUNT; i++) {
        bt_table_cell(&t, bt_phases[i].title);
        const bt_view_rank *longest = longest_rank(r, i);
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->phase_ms[i], BT_UNIT_MS));
        if (planned)
            bt_table_cell(&t, bt_metric_format(b, sizeof b, s->view->head.predicted.phase_ms[i],
                                               BT_UNIT_MS));
        bt_table_cell(&t, bt_metric_format(b, sizeof b, share_of_step(r, i), BT_UNIT_FRAC));
        if (longest) {
            const double ms = longest->mean[bt_phases[i].metric];
            bt_table_cell(&t, bt_metric_format(b, sizeof b, ms, BT_UNIT_MS));
            bt_table_cellf(&t, "%d", longest->rank);
        }
        bt_table_end_row(&t);
    }
    bt_table_cell(&t, "step");
    bt_table_cell(&t, bt_metric_format(b, sizeof b, r->mean_ms, BT_UNIT_MS));
    if (planned)
        bt_table_cell(&t,
                      bt_metric_format(b, sizeof b, s->view->head.predicted.step_ms, BT_UNIT_MS));
    bt_table_end_row(&t);
    if (r->ranks_least < r->ranks_most)
        snprintf(of, sizeof of, "%d to %d ranks", r->ranks_least, r->ranks_most);
    else
        snprintf(of, sizeof of, "%d rank%s", r->ranks_most, r->ranks_most == 1 ? "" : "s");
    printf("\nwhere a step goes (mean of %s and of %s)\n",
           describe_steps(b, sizeof b, (double)r->steps, s), of);
    bt_table_print(&t, stdout, "  ");
    bt_table_release(&t);
    if (isfinite(s->view->head.predicted.tried_ms))
        printf("  tried before the run: %s a step, which plan_ratio compares with\n",
               bt_metric_format(b, sizeof b, s->view->head.predicted.tried_ms, BT_UNIT_MS));
    else if (planned)
        printf("  not tried before the run: plan_ratio compares with the prediction\n");
}

/* ---- islands of a hub's run ---- */

static void print_islands(const bt_view_islands *l, int width) {
    static const int columns[] = {BT_MI_CLOCK, BT_MI_UPDATES, BT_MI_LEFT_OUT, BT_MI_STALENESS,
                                  BT_MI_LOSS,  BT_MI_TOKENS,  BT_MI_BYTES};
    bt_text_table t;
    char b[32];
    printf("\nislands (%.0f of %zu train; %lld joined, %lld left, %lld lost)\n", l->training, l->n,
           (long long)l->joined, (long long)l->left, (long long)l->lost);
    if (l->n == 0) return;
    bt_table_init(&t);
    bt_table_cell(&t, "ISLAND");
    bt_table_cell(&t, "HOST");
    bt_table_cell(&t, "STATE");
    for (size_t k = 0; k < sizeof columns / sizeof columns[0]; k++)
        bt_table_cell(&t, bt_scopes[BT_SCOPE_ISLAND].metric[columns[k]].key);
    /* a narrow terminal has no columns for updates not applied, tokens and bytes */
    t.drop[5] = 3;
    t.drop[8] = 2;
    t.drop[9] = 1;
    bt_table_end_row(&t);
    for (size_t i = 0; i < l->n; i++) {
        const bt_view_island *x = &l->island[i];
        bt_table_cell(&t, x->name);
        bt_table_cell(&t, x->host[0] ? x->host : "-");
        bt_table_cell(&t, x->value[BT_MI_TRAINS] > 0 ? "trains" : "gone");
        for (size_t k = 0; k < sizeof columns / sizeof columns[0]; k++)
            bt_table_cell(&t, bt_metric_format(b, sizeof b, x->value[columns[k]],
                                               bt_scopes[BT_SCOPE_ISLAND].metric[columns[k]].unit));
        bt_table_end_row(&t);
    }
    bt_table_fit(&t, "  ", width);
    bt_table_print(&t, stdout, "  ");
    bt_table_release(&t);
}

/* ---- the head ---- */

enum { HANG = 12 }; /* column at which the texts of the head begin */

static void print_wrapped(const bt_text *line, int width) {
    const char *s = bt_text_str(line);
    int room = width; /* width left in this line; continuation lines are indented */
    while (width > 2 * HANG && (int)strlen(s) > room) {
        int at = room;
        while (at > HANG && s[at] != ' ') at--;
        if (at <= HANG) break;
        printf("%.*s\n%*s", at, s, HANG, "");
        s += at + 1;
        room = width - HANG;
    }
    puts(s);
}

/* Prints the figures of one span that are numbers of the row, with the labels of figures.def. */
static void print_figures(const shown *s, const bt_row *row, bt_figure_span span,
                          const char *word) {
    char text[64];
    const char *between = "";
    bt_text line;
    bt_text_init(&line);
    bt_text_printf(&line, "  %-9s ", word);
    for (int i = 0; i < BT_FIGURES; i++) {
        const bt_figure_row *f = &bt_figures[i];
        double v = bt_cli_num(row, f->key);
        bool told = i == BT_FIGURE_BEST_VAL ||
                    i == BT_FIGURE_TOKENS; /* printed with the progress */
        if (f->span != span || told || isnan(v) || (i == BT_FIGURE_RSS && v <= 0)) continue;
        /* "tokens/s 2.80 k": the label contains the unit */
        bt_unit unit = f->unit == BT_UNIT_PER_S ? BT_UNIT_COUNT : f->unit;
        bt_text_printf(&line, "%s%s %s", between, f->label,
                       bt_metric_format(text, sizeof text, v, unit));
        between = ", ";
    }
    const bool none = !between[0];
    if (span == BT_SPAN_RECENT)
        bt_text_printf(&line, " (%s)", describe_steps(text, sizeof text, s->recent, s));
    if (!none) print_wrapped(&line, s->width);
    bt_text_release(&line);
}

/* Prints a text of any length without control characters; a truncated command could not be pasted. */
static void print_untruncated(const char *label, const char *text) {
    const size_t size = 3 * strlen(text) + 1; /* an invalid byte becomes three bytes */
    char *plain = malloc(size);
    if (!plain) return;
    bt_text_plain(plain, size, text);
    printf("%s%s\n", label, plain);
    free(plain);
}

static void put_fine_tuning_figures(const bt_view_head *h, bt_text *line) {
    char b[32];
    const bool val = isfinite(h->val_accuracy), val_margin = isfinite(h->val_margin);
    if (val || isfinite(h->accuracy))
        bt_text_printf(line, ", %saccuracy %s", val ? "validation " : "",
                       bt_metric_format(b, sizeof b, val ? h->val_accuracy : h->accuracy,
                                        BT_UNIT_FRAC));
    if (isfinite(h->val_f1))
        bt_text_printf(line, ", F1 %s", bt_metric_format(b, sizeof b, h->val_f1, BT_UNIT_FRAC));
    if (val_margin || isfinite(h->reward_margin))
        bt_text_printf(line, ", reward margin %s",
                       bt_metric_format(b, sizeof b, val_margin ? h->val_margin : h->reward_margin,
                                        BT_UNIT_NATS));
}

static bool print_head_of_run(void *ctx, const bt_row *row) {
    char a[64], b[64], c[64], d[64], spark[200];
    const shown *s = ctx;
    const char *state = bt_cli_cell(row, "state");
    double attempts = bt_cli_num(row, "attempts"), ranks = bt_cli_num(row, "ranks");
    char note[300], host[80], better[120];
    bt_text_plain(note, sizeof note, bt_cli_cell(row, "note"));
    bt_text_plain(host, sizeof host, bt_cli_cell(row, "host"));
    char why[160];
    bt_text_plain(why, sizeof why, bt_cli_cell(row, "exit_kind"));
    /* "failed (rank 1 died)", but neither "done (done)" nor "failed (error)" */
    const bool says_more = why[0] && strcmp(why, state) != 0 && strcmp(why, "error") != 0 &&
                           strcmp(why, "finished") != 0;
    printf("%s  %s%s%s%s\n", bt_text_shown(bt_cli_cell(row, "run")), bt_text_shown(state),
           says_more ? " (" : "", says_more ? why : "", says_more ? ")" : "");
    printf("  started   %s on %s, %s, %.0f rank%s, %.0f attempt%s\n",
           bt_cli_when(a, bt_cli_num(row, "started_s")), host,
           bt_duration(b, sizeof b, bt_cli_num(row, "duration_s")), ranks, ranks == 1 ? "" : "s",
           attempts, attempts == 1 ? "" : "s");
    bt_text line;
    bt_text_init(&line);
    bt_text_printf(&line, "  progress  step %s, %s tokens, loss %s",
                   bt_metric_format(a, sizeof a, bt_cli_num(row, "steps"), BT_UNIT_COUNT),
                   bt_metric_format(b, sizeof b, bt_cli_num(row, "tokens"), BT_UNIT_COUNT),
                   bt_metric_format(c, sizeof c, bt_cli_num(row, "loss"), BT_UNIT_NATS));
    if (isfinite(bt_cli_num(row, "best_val")))
        bt_text_printf(&line, ", %s %s at step %.0f", bt_figures[BT_FIGURE_BEST_VAL].label,
                       bt_metric_format(d, sizeof d, bt_cli_num(row, "best_val"), BT_UNIT_NATS),
                       bt_cli_num(row, "best_val_step") + 1);
    put_fine_tuning_figures(&s->view->head, &line);
    if (bt_cli_best_is_older(s->db, s->run, better, sizeof better))
        bt_text_printf(&line, " (%s@best)", bt_text_shown(s->run));
    if (isfinite(s->view->head.val_gap))
        bt_text_printf(&line, ", %s %s", bt_figures[BT_FIGURE_VAL_GAP].label,
                       bt_metric_format(d, sizeof d, s->view->head.val_gap, BT_UNIT_NATS));
    print_wrapped(&line, s->width);
    bt_text_release(&line);
    print_figures(s, row, BT_SPAN_RECENT, "lately");
    print_figures(s, row, BT_SPAN_RUN, "whole run");
    bt_cli_spark(spark, sizeof spark, bt_cli_cell(row, "spark"), 60);
    if (spark[0]) printf("  loss      %s\n", spark);
    if (note[0]) printf("  note      %s\n", note);
    bt_text_plain(note, sizeof note, bt_cli_cell(row, "tags"));
    if (note[0]) printf("  tags      %s\n", note);
    if (bt_cli_num(row, "dropped") > 0)
        printf("  dropped   %s rank records: the disk could not follow\n",
               bt_cli_cell(row, "dropped"));
    print_untruncated("  command   ", bt_cli_cell(row, "argv"));
    return true;
}

/* ---- tables of query results ---- */

static void add_formatted_cell(bt_text_table *t, const bt_row *row, int i) {
    char text[300];
    if (strcmp(row->names[i], "fact") == 0)
        bt_table_cell(t, bt_fact_format(text, sizeof text, row->cells[0], row->cells[i]));
    else if (strcmp(row->names[i], "setting") == 0)
        bt_table_cell(t, bt_setting_format(text, sizeof text, row->cells[i]));
    else if (strcmp(row->names[i], "path") == 0)
        bt_table_cell(t, bt_checkpoint_there(row->cells[i]) ? row->cells[i] : "(deleted)");
    else if (strcmp(row->names[i], "bytes") == 0)
        bt_table_cell(t, bt_metric_format(text, sizeof text, row->nums[i], BT_UNIT_BYTES));
    else
        bt_table_cell(t, bt_metric_format(text, sizeof text, row->nums[i], BT_UNIT_MS));
}

static bool add_shown_table_row(void *ctx, const bt_row *row) {
    static const char *const named[] = {"fact", "setting", "bytes", "stood_still", "path"};
    bt_text_table *t = ctx;
    for (int i = 0; t->n_rows == 0 && i < row->n; i++) {
        /* a narrow terminal omits these columns in favour of the texts */
        static const char *const less[] = {"level", "took_s", "attempt"};
        for (size_t k = 0; i > 0 && k < sizeof less / sizeof less[0]; k++)
            if (strcmp(row->names[i], less[k]) == 0) t->drop[i] = (uint8_t)(k + 1);
        bt_table_cell(t, row->names[i]);
    }
    if (t->n_rows == 0) bt_table_end_row(t);
    for (int i = 0; i < row->n; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof named / sizeof named[0]; k++)
            known = known || strcmp(row->names[i], named[k]) == 0;
        if (known)
            add_formatted_cell(t, row, i);
        else if (row->types[i] == 'r')
            bt_table_cellf(t, "%.6g", row->nums[i]);
        else
            bt_table_cell(t, row->cells[i] ? row->cells[i] : "-");
    }
    bt_table_end_row(t);
    return true;
}

static bt_code print_list(shown *s, const char *title, const char *sql, const char *count_sql,
                          bt_err *err) {
    bt_text_table t;
    double total = 0;
    bt_table_init(&t);
    bt_code code = bt_db_query(
        s->db,
        &(bt_query){.sql = sql, .params = &s->run, .n_params = 1, .max_rows = s->all ? 0 : FEW},
        add_shown_table_row, &t, err);
    if (code == BT_OK && t.n_rows > 1) code = bt_db_value(s->db, count_sql, s->run, &total, err);
    if (code == BT_OK && t.n_rows > 1) {
        printf("\n%s", title);
        if (total > t.n_rows - 1) printf(" (%d of %.0f; --all shows all)", t.n_rows - 1, total);
        fputc('\n', stdout);
        bt_table_fit(&t, "  ", s->width);
        bt_table_print(&t, stdout, "  ");
    }
    bt_table_release(&t);
    return code;
}

static const struct {
    const char *title, *sql, *all_sql, *count;
} lists[] = {
    {"settings (those given; --all shows every one)",
     /* predictions are printed in the table of phases */
     "SELECT key, value AS setting, coalesce(nullif(place, ''), origin) AS \"from\" FROM configs "
     "WHERE run = ?1 AND key NOT LIKE 'launch.predicted%' AND "
     "(coalesce(origin, '') NOT IN ('default', 'preset') AND coalesce(place, '') <> 'auto' OR key "
     "= "
     "'model.preset') LIMIT 60",
     "SELECT key, value AS setting, origin, place AS \"where\" FROM configs WHERE run = ?1",
     "SELECT 0 WHERE ?1 <> ''"},
    {"attempts",
     "SELECT attempt, from_step + 1 AS first_step, substr(started, 1, 19) AS started, "
     "round(ended_s - started_s, 1) AS "
     "took_s, world_size AS "
     "ranks, reason, coalesce(exit_kind, '') AS ended FROM attempts WHERE run = ?1 ORDER BY "
     "attempt DESC",
     NULL, "SELECT count(*) FROM attempts WHERE run = ?1"},
    {"ranks",
     "SELECT rank, host, pid, isa, threads, pp, dp_replicate AS dp_rep, dp_shard, tp FROM ranks "
     "WHERE run = ?1 AND attempt = (SELECT max(attempt) FROM attempts WHERE run = ?1) ORDER BY "
     "rank",
     NULL,
     "SELECT count(*) FROM ranks WHERE run = ?1 AND attempt = (SELECT max(attempt) FROM attempts "
     "WHERE run = ?1)"},
    {"checkpoints",
     "SELECT step AS after_step, attempt, bytes, took_ms AS stood_still, path FROM checkpoints "
     "WHERE run "
     "= ?1 ORDER BY step "
     "DESC",
     NULL, "SELECT count(*) FROM checkpoints WHERE run = ?1"},
    {"newest events",
     "SELECT time, attempt, step + 1 AS step, rank, kind, level, title FROM events WHERE run = ?1 "
     "ORDER BY seq "
     "DESC",
     NULL, "SELECT count(*) FROM events WHERE run = ?1"},
    {"facts",
     "SELECT key, value AS fact FROM facts WHERE run = ?1 AND (key IN ('cpu', 'isa', 'params', "
     "'data.tokens', 'data.bytes_per_token', 'data.val_bytes_per_token', 'flop_token', "
     "'peak_flops', 'measured.load', 'ckpt.interval_s') OR key "
     "LIKE 'link.%') ORDER BY key",
     "SELECT key, value AS fact FROM facts WHERE run = ?1 ORDER BY key",
     "SELECT count(*) FROM facts WHERE run = ?1"},
};

/* ---- problems of the run, in the sentences that all views use ---- */

static void print_trouble(const shown *s) {
    const bt_view_trouble *t = &s->view->head.trouble;
    char line[200];
    if (!t->any) return;
    printf("\n%s\n", bt_text_shown(bt_view_trouble_line(t, line, sizeof line)));
    if (t->why[0]) printf("  why       %s\n", bt_text_shown(t->why));
    if (t->advice[0]) printf("  to do     %s\n", bt_text_shown(t->advice));
    if (t->command[0]) printf("            %s\n", bt_text_shown(t->command));
}

static bt_code print_text(shown *s, bt_err *err) {
    char recent[120];
    BT_TRY(bt_db_value(s->db, "SELECT steps FROM runs WHERE run = ?1", s->run, &s->steps, err));
    snprintf(recent, sizeof recent,
             "SELECT count(*) FROM (SELECT 1 FROM steps WHERE run = ?1 AND step_ms IS NOT NULL "
             "LIMIT %d)",
             BT_RECENT_STEPS);
    BT_TRY(bt_db_value(s->db, recent, s->run, &s->recent, err));
    BT_TRY(bt_db_query(
        s->db,
        &(bt_query){.sql = "SELECT * FROM runs WHERE run = ?1", .params = &s->run, .n_params = 1},
        print_head_of_run, s, err));
    print_trouble(s);
    for (int i = 0; i < s->view->head.n_remarks; i++)
        printf("%s%s\n", i ? "" : "\n", s->view->head.remark[i]);
    if (s->view->head.hub)
        print_islands(&s->view->islands, s->width);
    else if (s->view->ranks.steps > 0)
        print_phases(s);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const char *sql = s->all && lists[i].all_sql ? lists[i].all_sql : lists[i].sql;
        bool every = s->all;
        if (i == 0)
            s->all =
                true; /* print_list does not cut this list, because its query limits the rows */
        bt_code code = print_list(s, i == 0 && every ? "settings" : lists[i].title, sql,
                                  lists[i].count, err);
        s->all = every;
        BT_TRY(code);
    }
    return BT_OK;
}

/* ---- JSON ---- */

static bool put_run_row_json(void *ctx, const bt_row *row) {
    bt_json *j = ctx;
    for (int i = 0; i < row->n; i++) {
        const char *name = row->names[i];
        if (strcmp(name, "config") == 0 || strcmp(name, "spark") == 0)
            bt_row_cell_document(j, name, row, i);
        else
            bt_row_cell_json(j, name, row, i);
    }
    return true;
}

static bool put_fact_json(void *ctx, const bt_row *row) {
    bt_json_str(ctx, row->cells[0], row->cells[1]);
    return true;
}

static bt_code put_run_parts_json(shown *s, bt_json *j, bt_err *err) {
    static const struct {
        const char *key, *sql;
    } arrays[] = {
        {"attempts_list", "SELECT * FROM attempts WHERE run = ?1 ORDER BY attempt"},
        {"ranks_list", "SELECT * FROM ranks WHERE run = ?1 ORDER BY attempt, rank"},
        {"checkpoints", "SELECT * FROM checkpoints WHERE run = ?1 ORDER BY step"},
        {"events", "SELECT * FROM events WHERE run = ?1 ORDER BY seq"},
    };
    const bt_view_ranks *r = &s->view->ranks;
    BT_TRY(bt_db_query(
        s->db,
        &(bt_query){.sql = "SELECT * FROM runs WHERE run = ?1", .params = &s->run, .n_params = 1},
        put_run_row_json, j, err));
    bt_view_trouble_json(&s->view->head.trouble, j);
    bt_json_object(j, "facts");
    BT_TRY(
        bt_db_query(s->db,
                    &(bt_query){.sql = "SELECT key, value FROM facts WHERE run = ?1 ORDER BY key",
                                .params = &s->run,
                                .n_params = 1},
                    put_fact_json, j, err));
    bt_json_end(j, '}');
    bt_json_object(j, "phases");
    bt_json_num(j, "step_ms", r->mean_ms);
    bt_json_num(j, "predicted_step_ms", s->view->head.predicted.step_ms);
    bt_json_num(j, "tried_step_ms", s->view->head.predicted.tried_ms);
    for (int i = 0; i < BT_PHASE_COUNT && isfinite(r->mean_ms); i++) {
        const bt_view_rank *longest = longest_rank(r, i);
        bt_json_object(j, bt_rank_metrics[bt_phases[i].metric].key);
        bt_json_num(j, "mean_ms", r->phase_ms[i]);
        bt_json_num(j, "predicted_ms", s->view->head.predicted.phase_ms[i]);
        bt_json_num(j, "share", share_of_step(r, i));
        bt_json_num(j, "longest_ms", longest ? longest->mean[bt_phases[i].metric] : (double)NAN);
        if (longest) bt_json_int(j, "longest_rank", longest->rank);
        bt_json_end(j, '}');
    }
    bt_json_end(j, '}');
    if (s->view->head.hub) bt_view_islands_json(&s->view->islands, j);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        BT_TRY(bt_rows_json(j, arrays[i].key, s->db,
                            &(bt_query){.sql = arrays[i].sql, .params = &s->run, .n_params = 1},
                            err));
    return BT_OK;
}

static bt_code load_view(shown *s, bt_err *err) {
    bt_view_request ask;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_HEAD | BT_VIEW_RANKS | BT_VIEW_ISLANDS;
    ask.run = s->run;
    BT_TRY(bt_view_open(&s->view, s->db, err));
    return bt_view_load(s->view, &ask, err);
}

static bt_code print_run_json(shown *s, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, true);
    bt_printout_version(&o);
    bt_code code = put_run_parts_json(s, &o.j, err);
    return bt_printout_finish(&o, code, err);
}

static bt_code show_run(shown *s, bool json, bt_err *err) {
    bt_code code = load_view(s, err);
    if (code == BT_OK) code = json ? print_run_json(s, err) : print_text(s, err);
    bt_view_close(s->view);
    return code;
}

static bt_code cmd_show(bt_call *call, bt_err *err) {
    const show_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    char name[BT_NAME_MAX];
    bt_err no_run = BT_ERR_INIT;
    bool group = false;
    shown s = {.run = name, .all = cfg->all, .width = cfg->wide ? 0 : bt_table_terminal_width()};
    BT_TRY(bt_cli_open(&s.db, cfg->store, err));
    bt_code code = bt_db_run(s.db, word, name, &no_run);
    if (code == BT_OK)
        code = show_run(&s, cfg->json, err);
    else if (code != BT_NOTFOUND ||
             (code = bt_show_group(s.db, word, cfg->json, &group, err)) == BT_OK)
        if (!group) code = bt_fail(err, no_run.code, "%s", no_run.msg);
    bt_db_close(s.db);
    return code;
}

const bt_command bt_cmd_show = {
    .name = "show",
    .summary = "everything about one run, or the runs of a group",
    .args = "RUN|GROUP",
    .examples = "bitrain show last # the newest run\n"
                "bitrain show abl-3 --all # every setting, event, fact and rank\n"
                "bitrain show abl # the runs of a group, and how good their ensemble is\n"
                "bitrain show abl-3 --json | jq .phases\n",
    .options = BT_OPTION_SET(show_opts, show_cfg),
    .max_words = 1,
    .no_word = "no run given (`bitrain runs` lists them, `bitrain show last` shows the newest)",
    .run = cmd_show,
};
