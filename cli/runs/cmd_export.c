/* cmd_export.c - `bitrain export RUN`: writes a run in formats of other programs. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "engine/base/clock.h"
#include "store/export/export.h"

enum { CSV, JSONL, TENSORBOARD, TRACE };
enum { TRACE_STEPS = 20 };

typedef struct export_cfg {
    char store[1024], out[1024];
    int format, what;
    int64_t from, to; /* given from 1, stored from 0; -1: not given */
    bool per_rank, force, follow;
} export_cfg;

static const bt_opt export_opts[] = {
    BT_ROW_ENUM(export_cfg, format, "--format", "csv", "csv|jsonl|tensorboard|trace",
                "kind of file"),
    BT_ROW_ENUM(export_cfg, what, "--what", "steps",
                "steps|rank_steps|layers|events|all_steps|comm_ops|comm_pairs",
                "view to export as csv or jsonl"),
    BT_ROW_INT(export_cfg, from, "--from", "0", 0, 1e15, NULL,
               "first step, counted from 1; column step counts from 0 (0: the beginning; trace: "
               "the newest 20 steps)"),
    BT_ROW_INT(export_cfg, to, "--to", "0", 0, 1e15, NULL, "last step (0: the end)"),
    BT_ROW_TEXT(export_cfg, out, "--out", "",
                "file, or folder of event files (default: standard output; tensorboard: runs_tb)"),
    BT_ROW_FLAG(export_cfg, force, "--force", "replace a file that exists"),
    BT_ROW_FLAG(export_cfg, per_rank, "--per-rank",
                "tensorboard: write a folder for each rank as well"),
    BT_ROW_FLAG(export_cfg, follow, "--follow",
                "tensorboard: add each new step until the run has ended"),
    BT_ROW_STORE(export_cfg),
};

static const char *const queries[] = {
    "SELECT * FROM steps WHERE run = ?1 AND step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS "
    "INTEGER) ORDER BY attempt, step",
    "SELECT * FROM rank_steps WHERE run = ?1 AND step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS "
    "INTEGER) ORDER BY attempt, step, rank",
    "SELECT * FROM layers WHERE run = ?1 AND step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS "
    "INTEGER) ORDER BY attempt, step, layer, tensor",
    "SELECT * FROM events WHERE run = ?1 AND coalesce(step, CAST(?2 AS INTEGER)) BETWEEN CAST(?2 "
    "AS INTEGER) AND CAST(?3 AS INTEGER) ORDER BY seq",
    "SELECT * FROM all_steps WHERE run = ?1 AND step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS "
    "INTEGER) ORDER BY attempt, step",
    "SELECT * FROM comm_ops WHERE run = ?1 AND step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS "
    "INTEGER) ORDER BY attempt, step, rank, op, axis",
    "SELECT * FROM comm_pairs WHERE run = ?1 AND step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS "
    "INTEGER) ORDER BY attempt, step, rank, peer",
};

typedef struct sheet {
    FILE *to;
    int format;
    int64_t rows;
    bt_text line;
    bt_progress bar; /* only when writing to a file */
    int step;        /* column of the step */
    double first, last;
} sheet;

static void show_export_step(sheet *s, const bt_row *row) {
    char note[32], rows[24];
    if (s->rows % 256 || s->step >= row->n || !(s->last > s->first)) return;
    snprintf(note, sizeof note, "%s rows",
             bt_metric_format(rows, sizeof rows, (double)s->rows, BT_UNIT_COUNT));
    bt_progress_show(&s->bar, "exporting", (row->nums[s->step] - s->first) / (s->last - s->first),
                     note);
}

static bool write_sheet_row(void *ctx, const bt_row *row) {
    sheet *s = ctx;
    if (s->rows == 0)
        while (s->step < row->n && strcmp(row->names[s->step], "step") != 0) s->step++;
    show_export_step(s, row);
    if (s->format == CSV) {
        if (s->rows == 0) bt_cli_csv_names(s->to, row);
        bt_cli_csv_row(s->to, row);
    } else {
        bt_json j;
        bt_text_clear(&s->line);
        bt_json_begin(&j, &s->line);
        bt_row_json(&j, row);
        fputs(bt_text_str(&s->line), s->to);
        fputc('\n', s->to);
    }
    s->rows++;
    return !ferror(s->to);
}

static bt_code write_step_table(bt_db *db, const char *run, const export_cfg *cfg, FILE *to,
                                bt_err *err) {
    char a[24], b[24];
    const char *params[] = {run, a, b};
    sheet s = {.to = to, .format = cfg->format};
    snprintf(a, sizeof a, "%" PRId64, cfg->from < 0 ? 0 : cfg->from);
    snprintf(b, sizeof b, "%" PRId64, cfg->to < 0 ? INT64_MAX : cfg->to);
    bt_text_init(&s.line);
    s.first = cfg->from < 0 ? 0 : (double)cfg->from;
    BT_TRY(bt_db_value(db, "SELECT steps FROM runs WHERE run = ?1", run, &s.last, err));
    if (cfg->to >= 0 && (double)cfg->to < s.last) s.last = (double)cfg->to;
    bt_progress_begin(&s.bar, !cfg->out[0] && isatty(STDOUT_FILENO));
    bt_code code =
        bt_db_query(db, &(bt_query){.sql = queries[cfg->what], .params = params, .n_params = 3},
                    write_sheet_row, &s, err);
    bt_progress_end(&s.bar);
    bt_text_release(&s.line);
    if (code == BT_OK && s.rows == 0)
        fprintf(stderr, "bitrain export: run '%s' has no such rows\n", bt_text_shown(run));
    return code;
}

static void show_export_progress(void *ctx, double done) {
    bt_progress_show(ctx, "exporting", done, "");
}

static bt_code write_trace(bt_db *db, const char *run, const export_cfg *cfg, FILE *to,
                           bt_err *err) {
    double steps;
    BT_TRY(bt_db_value(db, "SELECT steps FROM runs WHERE run = ?1", run, &steps, err));
    if (!(steps > 0)) return bt_fail(err, BT_NOTFOUND, "run '%s' has no steps yet", run);
    int64_t last = cfg->to >= 0 ? cfg->to : (int64_t)steps - 1;
    int64_t first = cfg->from >= 0 ? cfg->from : last - TRACE_STEPS + 1;
    if (first > last)
        return bt_fail(err, BT_NOTFOUND, "run '%s' has no step %" PRId64 ": its last is %" PRId64,
                       run, first + 1, last + 1);
    bt_progress bar;
    bt_progress_begin(&bar, !cfg->out[0] && isatty(STDOUT_FILENO));
    bt_code code = bt_export_trace(
        db, &(bt_export_cfg){.run = run, .progress = show_export_progress, .ctx = &bar},
        first < 0 ? 0 : first, last, to, err);
    bt_progress_end(&bar);
    return code;
}

static bt_code write_export_file(bt_db *db, const char *run, const export_cfg *cfg, bt_err *err) {
    bt_out_text out;
    BT_TRY(bt_out_text_open(&out, cfg->out, cfg->force, err));
    return bt_out_text_close(&out,
                             cfg->format == TRACE ? write_trace(db, run, cfg, out.to, err)
                                                  : write_step_table(db, run, cfg, out.to, err),
                             err);
}

typedef struct following {
    bt_progress bar;
    bt_db *db;
    const char *run;
    bool wanted, began;
} following;

static void show_followed_progress(void *ctx, double share) {
    following *f = ctx;
    show_export_progress(&f->bar, share);
}

static bool wait_for_steps(void *ctx) {
    following *f = ctx;
    bool live = false;
    bt_err err = BT_ERR_INIT;
    if (!f->wanted) return false;
    if (f->began) bt_sleep_ns(1000000000);
    f->began = true;
    return bt_cli_run_is_live(f->db, f->run, &live, &err) == BT_OK && live;
}

static bt_code write_events(bt_db *db, const char *run, const export_cfg *cfg, bt_err *err) {
    char path[1200];
    int64_t points = 0;
    const char *dir = cfg->out[0] ? cfg->out : "runs_tb";
    following f = {.db = db, .run = run, .wanted = cfg->follow};
    if (cfg->follow) fprintf(stderr, "following run '%s' (tensorboard --logdir %s)\n", run, dir);
    bt_progress_begin(&f.bar, false);
    const bt_code code = bt_export_tensorboard(
        db,
        &(bt_export_cfg){.run = run,
                         .progress = cfg->follow ? NULL : show_followed_progress,
                         .wait = wait_for_steps,
                         .ctx = &f},
        dir, cfg->per_rank, path, &points, err);
    bt_progress_end(&f.bar);
    BT_TRY(code);
    fprintf(stderr, "%" PRId64 " points in '%s' (tensorboard --logdir %s)\n", points, path, dir);
    return BT_OK;
}

static bt_code cmd_export(bt_call *call, bt_err *err) {
    export_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    char name[BT_NAME_MAX];
    bt_db *db = NULL;
    if (cfg->from > 0 && cfg->to > 0 && cfg->from > cfg->to)
        return bt_fail(err, BT_ARG, "--from %" PRId64 " is after --to %" PRId64, cfg->from,
                       cfg->to);
    if (cfg->follow && cfg->format != TENSORBOARD)
        return bt_fail(err, BT_ARG, "--follow is for --format tensorboard");
    cfg->from--;
    cfg->to--;
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    bt_code code = bt_db_run(db, word, name, err);
    if (code == BT_OK)
        code = cfg->format == TENSORBOARD ? write_events(db, name, cfg, err)
                                          : write_export_file(db, name, cfg, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_export = {
    .name = "export",
    .summary = "a run as CSV, JSON lines, TensorBoard events or a Chrome trace",
    .args = "RUN",
    .examples = "bitrain export abl-3 > abl-3.csv\n"
                "bitrain export abl-3 --format jsonl --what rank_steps --from 1001 --to 2000\n"
                "bitrain export abl-3 --format tensorboard --out tb && tensorboard --logdir tb\n"
                "bitrain export abl-3 --format trace --out trace.json # chrome://tracing, "
                "ui.perfetto.dev\n",
    .options = BT_OPTION_SET(export_opts, export_cfg),
    .max_words = 1,
    .no_word = "no run given (`bitrain runs` lists them, 'last' is the newest)",
    .run = cmd_export,
};
