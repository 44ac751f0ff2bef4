/* cmd_query.c - `bitrain query`: executes a SELECT over the views. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/table.h"
#include "store/read/lens.h"
#include "store/read/row_json.h"

typedef struct query_cfg {
    char store[1024], lens[64];
    bool json, json_table, csv, lenses;
    int64_t limit, memory;
    double timeout;
} query_cfg;

static const bt_opt query_opts[] = {
    BT_ROW_FLAG(query_cfg, json, "--json", "an array of objects, one a row"),
    BT_ROW_FLAG(query_cfg, json_table, "--json-table",
                "one object: columns, rows as arrays, truncated; 4 MiB at most"),
    BT_ROW_FLAG(query_cfg, csv, "--csv", "comma-separated values with a heading"),
    BT_ROW_INT(query_cfg, limit, "--limit", "10000", 0, 1e15, "rows",
               "maximum number of rows (0: all)"),
    BT_ROW_REAL(query_cfg, timeout, "--timeout", "10", 0, 1e6, "s",
                "stop the query after this time (0: never)"),
    BT_ROW_INT(query_cfg, memory, "--memory", "1024", 0, 1e6, "MiB",
               "stop the query when it uses more memory than this (0: no limit)"),
    BT_ROW_TEXT(query_cfg, lens, "--lens", "", "run a named query about RUN instead of SQL"),
    BT_ROW_FLAG(query_cfg, lenses, "--lenses", "list the named queries"),
    BT_ROW_STORE(query_cfg),
};

enum { OBJECT_BYTES = 4 << 20 }; /* maximum size of the object of --json-table */

typedef struct printer {
    const query_cfg *cfg;
    int64_t rows;
    bt_text_table table;
    bt_text object; /* the whole object of --json-table */
    bt_json j;
} printer;

/* {"columns": [...], "rows": [[...], ...], "truncated": false} */
static bool put_json_cells(printer *p, const bt_row *row) {
    if (p->rows == 1) {
        bt_json_array(&p->j, "columns");
        for (int i = 0; i < row->n; i++) bt_json_str(&p->j, NULL, row->names[i]);
        bt_json_end(&p->j, ']');
        bt_json_array(&p->j, "rows");
    }
    bt_json_array(&p->j, NULL);
    for (int i = 0; i < row->n; i++) bt_row_cell_json(&p->j, NULL, row, i);
    bt_json_end(&p->j, ']');
    return p->object.len < OBJECT_BYTES;
}

static bt_code print_result_object(printer *p, bool cut, bt_err *err) {
    if (p->rows == 0) bt_json_array(&p->j, "rows");
    bt_json_end(&p->j, ']');
    bt_json_bool(&p->j, "truncated", cut || p->object.len >= OBJECT_BYTES);
    bt_json_end(&p->j, '}');
    return bt_cli_put(&p->object, err);
}

static bool print_row(void *ctx, const bt_row *row) {
    printer *p = ctx;
    bool first = p->rows++ == 0;
    if (p->cfg->json_table) return put_json_cells(p, row);
    if (p->cfg->json) {
        bt_text out;
        bt_json j;
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_row_json(&j, row);
        printf("%s%s", first ? "[" : ",\n ", bt_text_str(&out));
        bt_text_release(&out);
    } else if (p->cfg->csv) {
        if (first) bt_cli_csv_names(stdout, row);
        bt_cli_csv_row(stdout, row);
    } else {
        for (int i = 0; first && i < row->n; i++) bt_table_cell(&p->table, row->names[i]);
        if (first) bt_table_end_row(&p->table);
        for (int i = 0; i < row->n; i++) {
            if (row->types[i] == 'r')
                bt_table_cellf(&p->table, "%.6g", row->nums[i]);
            else
                bt_table_cell(&p->table, row->cells[i] ? row->cells[i] : "-");
        }
        bt_table_end_row(&p->table);
    }
    return !ferror(stdout);
}

static bt_code read_sql_from_stdin(bt_text *sql, bt_err *err) {
    char buf[4096];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, stdin)) > 0 && sql->len < 1 << 20)
        bt_text_putn(sql, buf, n);
    if (ferror(stdin))
        return bt_fail_errno(err, BT_IO, errno, "cannot read the query from standard input");
    return sql->failed ? bt_fail(err, BT_NOMEM, "no memory for the query") : BT_OK;
}

static void end_query_output(printer *p, bool cut) {
    if (p->cfg->json)
        fputs(p->rows ? "]\n" : "[]\n", stdout);
    else if (!p->cfg->csv && p->rows)
        bt_table_print(&p->table, stdout, "");
    else if (!p->cfg->csv)
        fputs("no rows\n", stderr);
    if (cut)
        fprintf(stderr, "bitrain query: only the first %lld rows are shown (--limit 0 shows all)\n",
                (long long)p->rows);
}

/* Message for an operation that SQLite cannot interrupt, such as a search in a long text. */
static char took_longer[96];
static int too_long; /* the exit code */
static void exit_on_query_alarm(int signal) {
    (void)signal;
    if (write(STDERR_FILENO, took_longer, strlen(took_longer)) < 0) _exit(1);
    _exit(too_long);
}

static void set_query_alarm(double seconds) {
    if (!(seconds > 0)) return;
    const double least = seconds +
                         0.2; /* later than the limit inside SQLite, which gives a better message */
    const struct itimerval once = {
        .it_value = {(time_t)least, (suseconds_t)(fmod(least, 1) * 1e6)}};
    snprintf(took_longer, sizeof took_longer,
             "bitrain query: query took longer than %.3g s and was stopped\n", seconds);
    too_long = bt_exit_code(BT_BUSY);
    signal(SIGALRM, exit_on_query_alarm);
    setitimer(ITIMER_REAL, &once, NULL);
}

static bt_code print_query(const query_cfg *cfg, bt_db *db, const char *sql, const char *run_name,
                           bt_err *err) {
    printer p = {.cfg = cfg};
    bool cut = false;
    bt_table_init(&p.table);
    bt_text_init(&p.object);
    if (cfg->json_table) bt_json_begin(&p.j, &p.object), bt_json_object(&p.j, NULL);
    set_query_alarm(cfg->timeout);
    if (cfg->memory) bt_db_limit_memory(cfg->memory << 20);
    bt_code code = bt_db_query(db,
                               &(bt_query){.sql = sql,
                                           .params = &run_name,
                                           .n_params = run_name ? 1 : 0,
                                           .max_rows = cfg->limit,
                                           .max_s = cfg->timeout,
                                           .truncated = &cut},
                               print_row, &p, err);
    signal(SIGALRM, SIG_IGN);
    if (code == BT_OK && cfg->json_table)
        code = print_result_object(&p, cut, err);
    else if (code == BT_OK)
        end_query_output(&p, cut);
    else if (cfg->json && p.rows)
        fputs("]\n", stdout);
    if (!cfg->json_table || code != BT_OK) bt_text_release(&p.object);
    bt_table_release(&p.table);
    return code;
}

static bt_code print_lenses(const query_cfg *cfg, bt_err *err) {
    bt_lens *all = NULL;
    size_t n = 0;
    bt_text out;
    bt_json j;
    bt_text_table t;
    bt_text_init(&out);
    bt_table_init(&t);
    bt_json_begin(&j, &out);
    bt_code code = bt_lens_list(&all, &n, err);
    bt_json_array(&j, NULL);
    for (size_t i = 0; i < n && code == BT_OK; i++) {
        bt_json_object(&j, NULL);
        bt_json_str(&j, "name", all[i].name);
        bt_json_str(&j, "about", all[i].about);
        bt_json_str(&j, "file", all[i].file[0] ? all[i].file : NULL);
        bt_json_str(&j, "sql", bt_text_str(&all[i].sql));
        bt_json_end(&j, '}');
        bt_table_cell(&t, all[i].name);
        bt_table_cellf(&t, "%s%s", all[i].about, all[i].file[0] ? " (own)" : "");
        bt_table_end_row(&t);
    }
    bt_json_end(&j, ']');
    if (code == BT_OK && cfg->json)
        code = bt_cli_put(&out, err);
    else
        bt_text_release(&out);
    if (code == BT_OK && !cfg->json) bt_table_print(&t, stdout, "");
    for (size_t i = 0; i < n; i++) bt_lens_release(&all[i]);
    free(all);
    bt_table_release(&t);
    return code;
}

static bt_code run_lens_query(const query_cfg *cfg, bt_db *db, const char *word, bt_err *err) {
    bt_lens lens;
    char name[BT_NAME_MAX];
    BT_TRY(bt_lens_find(cfg->lens, &lens, err));
    bt_code code = bt_db_run(db, word ? word : "last", name, err);
    if (code == BT_OK) code = print_query(cfg, db, bt_text_str(&lens.sql), name, err);
    bt_lens_release(&lens);
    return code;
}

static bt_code run_sql_query(const query_cfg *cfg, bt_db *db, const char *word, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_code code = strcmp(word, "-") == 0 ? read_sql_from_stdin(&sql, err) : BT_OK;
    if (code == BT_OK)
        code = print_query(cfg, db, strcmp(word, "-") == 0 ? bt_text_str(&sql) : word, NULL, err);
    bt_text_release(&sql);
    return code;
}

static bt_code cmd_query(bt_call *call, bt_err *err) {
    query_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    bt_db *db = NULL;
    if (cfg->json + cfg->json_table + cfg->csv > 1)
        return bt_fail(err, BT_ARG, "--json, --json-table and --csv exclude each other");
    if (cfg->lenses) return print_lenses(cfg, err);
    if (!word && !cfg->lens[0])
        return bt_fail(err, BT_ARG,
                       "no query given (try: bitrain query \"SELECT run, loss FROM runs\")");
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    bt_code code = cfg->lens[0] ? run_lens_query(cfg, db, word, err)
                                : run_sql_query(cfg, db, word, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_query = {
    .name = "query",
    .summary = "query the metrics database in SQL, read-only",
    .args = "SQL | --lens NAME [RUN] | --lenses",
    .examples =
        "bitrain query \"SELECT run, tokens, loss FROM runs ORDER BY loss\"\n"
        "bitrain query \"SELECT rank, avg(wait_ms) FROM rank_steps WHERE run = 'demo' GROUP BY "
        "rank\" --json\n"
        "bitrain query \"SELECT step + 1 AS step, loss FROM steps WHERE run = 'demo'\" --csv > "
        "demo.csv "
        "# column step counts from 0\n"
        "bitrain query --lens slow-ranks demo\n"
        "bitrain query \"SELECT view, key, unit, meaning FROM metrics\"\n"
        "bitrain query \"SELECT name FROM sqlite_schema WHERE type = 'view'\"\n",
    .options = BT_OPTION_SET(query_opts, query_cfg),
    .max_words = 1,
    .run = cmd_query,
};
