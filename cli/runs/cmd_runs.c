/* cmd_runs.c - `bitrain runs`: lists runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/common/printout/table.h"
#include "cli/runs/run_filter.h"
#include "cli/runs/runs_verbs.h"
#include "engine/base/tables/metric.h"

typedef struct runs_cfg {
    char store[1024], sort[64], name[BT_NAME_MAX];
    bool json, reverse, yes, clear, checkpoints, rebuild, wide;
    int64_t limit, keep_steps;
} runs_cfg;

static const bt_opt runs_opts[] = {
    BT_ROW_FLAG(runs_cfg, json, "--json", "one JSON object with all columns of the view 'runs'"),
    BT_ROW_INT(runs_cfg, limit, "--limit", "30", 0, 1e9, "runs", "maximum number of runs (0: all)"),
    BT_ROW_TEXT(runs_cfg, sort, "--sort", "started", "column to sort by; newest or largest first"),
    BT_ROW_FLAG(runs_cfg, reverse, "--reverse", "oldest or smallest first"),
    BT_ROW_FLAG(runs_cfg, wide, "--wide", "every column, even beyond the terminal's width"),
    BT_ROW_FLAG(runs_cfg, yes, "--yes", "rm: do not ask for confirmation"),
    BT_ROW_FLAG(runs_cfg, clear, "--clear", "note: delete the note"),
    BT_ROW_FLAG(runs_cfg, checkpoints, "--checkpoints", "rm: also delete the checkpoints"),
    BT_ROW_INT(runs_cfg, keep_steps, "--keep-steps", "-1", -1, 1e15, "steps",
               "gc: from now on keep rows of ranks for the newest N steps of a run (0: for "
               "ever, -1: unchanged)"),
    BT_ROW_TEXT(runs_cfg, name, "--name", "", "import: name of the run (default: from the file)"),
    BT_ROW_FLAG(runs_cfg, rebuild, "--rebuild", "gc: compute the summaries again from the rows"),
    BT_ROW_STORE(runs_cfg),
};

static const char *format_run_value(char *buf, size_t size, const bt_row *row, const char *column,
                                    bt_unit unit) {
    return bt_metric_format(buf, size, bt_cli_num(row, column), unit);
}

enum {
    ACCURACY = 7
}; /* column of the accuracy, for runs that are fine-tuned to choose or to classify */

typedef struct run_list {
    bt_text_table table;
    bool accuracy; /* true: a run of the list has an accuracy */
    double total;  /* number of runs that match; 0: none */
} run_list;

static bool add_run_table_row(void *ctx, const bt_row *row) {
    run_list *l = ctx;
    bt_text_table *t = &l->table;
    char b[64], spark[64];
    bt_table_cell(t, bt_cli_cell(row, "run"));
    bt_table_cell(t, bt_cli_cell(row, "state"));
    bt_table_cell(t, bt_cli_cell(row, "ranks"));
    bt_table_cell(t, format_run_value(b, sizeof b, row, "steps", BT_UNIT_COUNT));
    bt_table_cell(t, format_run_value(b, sizeof b, row, "tokens", BT_UNIT_COUNT));
    bt_table_cell(t, format_run_value(b, sizeof b, row, "loss", BT_UNIT_NATS));
    bt_table_cell(t, format_run_value(b, sizeof b, row, "best_val", BT_UNIT_NATS));
    bt_table_cell(t, format_run_value(b, sizeof b, row, "accuracy", BT_UNIT_FRAC));
    l->accuracy = l->accuracy || isfinite(bt_cli_num(row, "accuracy"));
    bt_table_cell(t, format_run_value(b, sizeof b, row, "tokens_per_s", BT_UNIT_PER_S));
    bt_table_cell(t, bt_cli_when(b, bt_cli_num(row, "started_s")));
    bt_table_cell(t, bt_duration(b, sizeof b, bt_cli_num(row, "duration_s")));
    bt_cli_spark(spark, sizeof spark, bt_cli_cell(row, "spark"), 16);
    bt_table_cellf(t, "%s%s%s", spark, bt_cli_cell(row, "tags")[0] ? " " : "",
                   bt_cli_cell(row, "tags"));
    bt_table_end_row(t);
    l->total = bt_cli_num(row, "total");
    return true;
}

static bool put_run_json(void *ctx, const bt_row *row) {
    bt_json *j = ctx;
    bt_json_object(j, NULL);
    for (int i = 0; i < row->n; i++) {
        const char *name = row->names[i];
        if (strcmp(name, "config") == 0 || strcmp(name, "spark") == 0)
            bt_row_cell_document(j, name, row, i);
        else
            bt_row_cell_json(j, name, row, i);
    }
    bt_json_end(j, '}');
    return true;
}

static bt_code append_run_order(bt_db *db, const runs_cfg *cfg, bt_text *sql, bt_err *err) {
    double known = 0;
    BT_TRY(bt_db_value(db, "SELECT count(*) FROM pragma_table_info('runs') WHERE name = ?1",
                       cfg->sort, &known, err));
    if (!(known > 0))
        return bt_fail(err, BT_ARG,
                       "cannot sort by '%s': no such column (see: bitrain runs --json)", cfg->sort);
    bt_text_printf(sql, " ORDER BY \"%s\" %s NULLS LAST, started_s DESC", cfg->sort,
                   cfg->reverse ? "ASC" : "DESC");
    if (cfg->limit > 0) bt_text_printf(sql, " LIMIT %lld", (long long)cfg->limit);
    return BT_OK;
}

/* total: number of matching runs; the table may show only the first of them. */
static bt_code print_runs_table(bt_db *db, const bt_run_filter *f, const char *sql, bool wide,
                                double *total, bt_err *err) {
    static const struct {
        const char *head;
        uint8_t drop; /* columns with higher numbers are removed first on a narrow terminal */
    } columns[] = {{"RUN", 0},      {"STATE", 0},   {"RANKS", 3},    {"STEPS", 0},
                   {"TOKENS", 4},   {"LOSS", 0},    {"BEST VAL", 0}, {"ACCURACY", 0},
                   {"TOKENS/S", 2}, {"STARTED", 5}, {"DURATION", 1}, {"", 6}};
    run_list l = {.accuracy = false, .total = 0};
    bt_table_init(&l.table);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        l.table.drop[i] = columns[i].drop;
        bt_table_cell(&l.table, columns[i].head);
    }
    bt_table_end_row(&l.table);
    bt_code code =
        bt_db_query(db, &(bt_query){.sql = sql, .params = f->params, .n_params = f->n_params},
                    add_run_table_row, &l, err);
    *total = l.total;
    l.table.left_out[ACCURACY] = !l.accuracy;
    const int left_out = bt_table_fit(&l.table, "", wide ? 0 : bt_table_terminal_width());
    if (code == BT_OK && l.table.n_rows > 1) bt_table_print(&l.table, stdout, "");
    if (code == BT_OK && l.table.n_rows > 1 && left_out > 0) {
        fflush(stdout);
        fprintf(stderr, "%d column%s left out on this terminal (--wide shows all)\n", left_out,
                left_out == 1 ? "" : "s");
    }
    bt_table_release(&l.table);
    return code;
}

static bt_code print_runs_json(bt_db *db, const bt_run_filter *f, const char *sql, double total,
                               bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, true);
    bt_printout_version(&o);
    bt_json_int(&o.j, "total", (int64_t)total);
    bt_json_array(&o.j, "runs");
    bt_code code =
        bt_db_query(db, &(bt_query){.sql = sql, .params = f->params, .n_params = f->n_params},
                    put_run_json, &o.j, err);
    bt_json_end(&o.j, ']');
    return bt_printout_finish(&o, code, err);
}

/* Verbs of other programs, and the commands that have the same function here. */
static const char *const other_verbs[][2] = {
    {"list", "bitrain runs"},          {"ls", "bitrain runs"},
    {"delete", "bitrain runs rm"},     {"del", "bitrain runs rm"},
    {"remove", "bitrain runs rm"},     {"mv", "bitrain runs rename"},
    {"annotate", "bitrain runs note"}, {"show", "bitrain show"},
    {"export", "bitrain export"},      {"compare", "bitrain compare"},
    {"stop", "bitrain ctl RUN stop"},  {"plot", "bitrain plot"}};

/* Explains that no run matches; the first word may be a misspelt verb. */
static bt_code explain_no_match(const char *const *words, size_t n, bt_err *err) {
    char plain[64];
    for (size_t i = 0; n > 0 && i < sizeof other_verbs / sizeof other_verbs[0]; i++)
        if (strcmp(words[0], other_verbs[i][0]) == 0)
            return bt_fail(err, BT_ARG, "'bitrain runs' has no verb '%s' (did you mean '%s'?)",
                           words[0], other_verbs[i][1]);
    const char *verb = n > 1 ? bt_runs_nearest_verb(words[0]) : NULL;
    bt_text_plain(plain, sizeof plain, n > 0 ? words[0] : "");
    if (verb)
        return bt_fail(err, BT_ARG, "'bitrain runs' has no verb '%s' (did you mean '%s'?)", plain,
                       verb);
    fprintf(stderr, n ? "no run matches\n" : "no run yet (start one with `bitrain train`)\n");
    return BT_OK;
}

static bool copy_count(void *ctx, const bt_row *row) {
    *(double *)ctx = row->nums[0];
    return false;
}

/* the newest accuracy of the listed runs */
static const char with_accuracy[] =
    "SELECT r.*, CASE WHEN EXISTS (SELECT 1 FROM configs c WHERE c.run = r.run AND c.key = "
    "'data.form' "
    "AND c.value IN ('preference', 'label')) THEN (SELECT val_accuracy FROM steps s WHERE s.run = "
    "r.run "
    "AND val_accuracy IS NOT NULL ORDER BY step DESC LIMIT 1) END AS accuracy FROM (";

static const char table_columns[] =
    "run, state, ranks, steps, tokens, loss, best_val, tokens_per_s, started_s, duration_s, spark, "
    "tags, count(*) OVER () AS total";

static bt_code print_matching_json(bt_db *db, const runs_cfg *cfg, const bt_run_filter *f,
                                   bt_text *sql, bt_err *err) {
    double total = 0;
    bt_text_printf(sql, "SELECT count(*) FROM runs%s", bt_text_str(&f->where));
    BT_TRY(bt_db_query(
        db, &(bt_query){.sql = bt_text_str(sql), .params = f->params, .n_params = f->n_params},
        copy_count, &total, err));
    bt_text_clear(sql);
    bt_text_printf(sql, "SELECT * FROM runs%s", bt_text_str(&f->where));
    BT_TRY(append_run_order(db, cfg, sql, err));
    return print_runs_json(db, f, bt_text_str(sql), total, err);
}

/* One query counts and lists: a filter on a setting reads the configuration of every run. */
static bt_code print_matching_table(bt_db *db, const runs_cfg *cfg, const bt_run_filter *f,
                                    bt_text *sql, const char *const *words, size_t n, bt_err *err) {
    double total = 0;
    bt_text_printf(sql, "%sSELECT %s FROM runs%s", with_accuracy, table_columns,
                   bt_text_str(&f->where));
    BT_TRY(append_run_order(db, cfg, sql, err));
    bt_text_put(sql, ") r");
    BT_TRY(print_runs_table(db, f, bt_text_str(sql), cfg->wide, &total, err));
    if (total < 1) return explain_no_match(words, n, err);
    if (cfg->limit > 0 && total > (double)cfg->limit)
        fprintf(stderr, "%lld of %.0f runs (--limit 0 shows all)\n", (long long)cfg->limit, total);
    return BT_OK;
}

static bt_code list_matching_runs(bt_db *db, const runs_cfg *cfg, const char *const *words,
                                  size_t n, bt_err *err) {
    bt_run_filter f;
    bt_text sql;
    bt_text_init(&sql);
    bt_code code = bt_run_filter_init(&f, db, words, n, err);
    if (code == BT_OK)
        code = cfg->json ? print_matching_json(db, cfg, &f, &sql, err)
                         : print_matching_table(db, cfg, &f, &sql, words, n, err);
    bt_run_filter_release(&f);
    bt_text_release(&sql);
    return code;
}

enum { WORDS_MAX = 66 };

/* Moves arguments such as -draft, which remove a tag and look like options, to `words`. Returns the number of remaining
 * arguments. */
static int take_removed_tags(int argc, char **argv, const char **words, size_t *n) {
    int kept = 0;
    *n = 0;
    if (argc == 0 || strcmp(argv[0], "tag") != 0) return argc;
    for (int i = 0; i < argc; i++) {
        const bool removes = i > 1 && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-';
        if (removes && *n < WORDS_MAX)
            words[(*n)++] = argv[i];
        else
            argv[kept++] = argv[i];
    }
    return kept;
}

static bt_code cmd_runs(int argc, char **argv, int *exit_status, bt_err *err) {
    (void)exit_status;
    runs_cfg cfg;
    bt_opts o;
    const char *words[WORDS_MAX], *removed[WORDS_MAX];
    size_t n = 0, n_removed;
    bool help;
    bt_db *db = NULL;
    BT_TRY(bt_opts_init(&o, runs_opts, sizeof runs_opts / sizeof runs_opts[0], &cfg, err));
    argc = take_removed_tags(argc, argv, removed, &n_removed);
    BT_TRY(bt_opts_argv(&o, argc, argv, words, WORDS_MAX - n_removed, &n, &help, err));
    for (size_t i = 0; i < n_removed; i++) words[n++] = removed[i];
    if (n && bt_runs_is_verb(words[0])) {
        bt_runs_verb_cfg verb = {.store = cfg.store,
                                 .name = cfg.name,
                                 .yes = cfg.yes,
                                 .clear = cfg.clear,
                                 .checkpoints = cfg.checkpoints,
                                 .rebuild = cfg.rebuild,
                                 .json = cfg.json,
                                 .keep_steps = cfg.keep_steps};
        return bt_runs_verb(words[0], words + 1, n - 1, &verb, err);
    }
    if (n > BT_FILTER_WORDS) return bt_fail(err, BT_ARG, "at most %d filters", BT_FILTER_WORDS);
    BT_TRY(bt_cli_open(&db, cfg.store, err));
    bt_code code = list_matching_runs(db, &cfg, words, n, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_runs = {
    .name = "runs",
    .summary = "list, remove, rename, tag and note the runs of the metrics database",
    .args =
        "[FILTER...] | rm RUN... | tag RUN [+|-]TAG... | note RUN [TEXT] | rename RUN NAME | gc | "
        "repair | import FILE...",
    .examples =
        "bitrain runs # the newest 30\n"
        "bitrain runs abl state:done 'loss<2.5' # 'abl' in name, tag or note, and two columns\n"
        "bitrain runs lr=3e-4 --sort loss --reverse\n"
        "bitrain runs --json | jq '.runs[].run'\n"
        "bitrain runs tag abl-3 paper -draft # then: bitrain runs tags:paper\n"
        "bitrain runs note abl-3 no warm-up # without a text: shows the note; --clear deletes it\n"
        "bitrain runs rename abl-3 final # an ended run; its folder does not move\n"
        "bitrain runs rm abl-1 abl-2 # deletes records and, after a question, checkpoints\n"
        "bitrain runs gc --keep-steps 20000 # delete old rows of ranks (their summaries remain), "
        "return the space\n"
        "bitrain runs repair # rescue the rows of a damaged database and of its "
        "backups\n"
        "bitrain runs import nano-150.tsv # curves of 'bench learn --curves' as ended runs, "
        "which all views draw\n"
        "bitrain runs import out/trainer_state.json # a run of another program: CSV, JSON rows, "
        "TensorBoard's event files\n",
    .options = BT_OPTION_SET(runs_opts, runs_cfg),
    .run_argv = cmd_runs,
};
