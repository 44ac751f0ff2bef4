/* cmd_logs.c - `bitrain logs`: prints the output of a run's ranks, of mpirun and of libraries. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "engine/base/clock.h"
#include "store/read/row_json.h"

typedef struct logs_cfg {
    char store[1024], grep[256];
    int64_t rank, attempt, tail;
    bool follow, json;
} logs_cfg;

static const bt_opt logs_opts[] = {
    BT_ROW_INT(logs_cfg, rank, "--rank", "-1", -1, 1e9, NULL,
               "only lines that name this rank (-1: all lines)"),
    BT_ROW_INT(logs_cfg, attempt, "--attempt", "-1", -1, 1e9, NULL,
               "only lines of this attempt of the run (-1: of all)"),
    BT_ROW_TEXT(logs_cfg, grep, "--grep", "",
                "only lines that contain this text; ASCII letters match in either case"),
    BT_ROW_INT(logs_cfg, tail, "--tail", "0", 0, 1e15, "lines", "only the newest lines (0: all)"),
    BT_ROW_FLAG(logs_cfg, follow, "--follow", "print further lines until the run has ended"),
    BT_ROW_FLAG(logs_cfg, json, "--json",
                "one object a line: attempt, time, rank, host, level, text"),
    BT_ROW_STORE(logs_cfg),
};

static const int64_t poll_ns = 300000000;

typedef struct log_printer {
    const logs_cfg *cfg;
    int64_t seq;     /* sequence number of the newest printed line */
    int64_t printed; /* number of printed lines */
} log_printer;

/* columns: seq, attempt, time, rank, host, level, text */
static bool print_log_row(void *ctx, const bt_row *row) {
    log_printer *p = ctx;
    char text[1024], host[128];
    p->seq = (int64_t)row->nums[0];
    p->printed++;
    if (p->cfg->json) {
        bt_text out;
        bt_json j;
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        for (int i = 1; i < row->n; i++) bt_row_cell_json(&j, row->names[i], row, i);
        bt_json_end(&j, '}');
        printf("%s\n", bt_text_str(&out));
        bt_text_release(&out);
        return !ferror(stdout);
    }
    bt_text_plain(text, sizeof text, row->cells[6] ? row->cells[6] : "");
    bt_text_plain(host, sizeof host, row->cells[4] ? row->cells[4] : "");
    printf("%s", row->cells[2] ? row->cells[2] : "-");
    if (row->types[3] != 'n') printf("  rank %d", (int)row->nums[3]);
    if (*host) printf(" (%s)", host);
    printf("  %s\n", text);
    return !ferror(stdout);
}

static const char lines_sql[] =
    "SELECT seq, attempt, time, rank, host, level, text FROM log_lines WHERE run = ?1"
    " AND seq > CAST(?2 AS INTEGER)"
    " AND (?3 = '-1' OR rank = CAST(?3 AS INTEGER)) AND (?4 = '-1' OR attempt = CAST(?4 AS "
    "INTEGER))"
    " AND (?5 = '' OR instr(lower(text), lower(?5)) > 0)";

static bt_code print_lines(bt_db *db, const char *run, log_printer *p, bt_err *err) {
    char seq[24], rank[24], attempt[24], limit[24], sql[sizeof lines_sql + 128];
    const char *params[] = {run, seq, rank, attempt, p->cfg->grep, limit};
    const bool tail = p->seq < 0 && p->cfg->tail > 0;
    snprintf(seq, sizeof seq, "%" PRId64, p->seq);
    snprintf(rank, sizeof rank, "%" PRId64, p->cfg->rank);
    snprintf(attempt, sizeof attempt, "%" PRId64, p->cfg->attempt);
    snprintf(limit, sizeof limit, "%" PRId64, p->cfg->tail);
    snprintf(sql, sizeof sql,
             tail ? "SELECT * FROM (%s ORDER BY seq DESC LIMIT CAST(?6 AS INTEGER)) ORDER BY seq"
                  : "%s ORDER BY seq",
             lines_sql);
    const bt_query q = {.sql = sql, .params = params, .n_params = tail ? 6 : 5};
    BT_TRY(bt_db_query(db, &q, print_log_row, p, err));
    fflush(stdout);
    return BT_OK;
}

static bt_code follow_log(bt_db *db, const char *run, log_printer *p, bt_err *err) {
    bool live = true;
    while (live && !ferror(stdout)) {
        BT_TRY(bt_cli_run_is_live(
            db, run, &live,
            err)); /* the state is read before the lines, so that the last lines are not missed */
        BT_TRY(print_lines(db, run, p, err));
        if (live) bt_sleep_ns(poll_ns);
    }
    return BT_OK;
}

static bt_code print_log(bt_db *db, const char *wanted, const logs_cfg *cfg, bt_err *err) {
    char run[BT_NAME_MAX];
    log_printer p = {.cfg = cfg, .seq = -1};
    BT_TRY(bt_db_run(db, wanted, run, err));
    BT_TRY(print_lines(db, run, &p, err));
    if (cfg->follow) return follow_log(db, run, &p, err);
    if (p.printed == 0)
        fprintf(stderr,
                "no line of run '%s' is recorded%s; 'bitrain show %s' names its folder, which has "
                "log.txt\n",
                run, cfg->grep[0] || cfg->rank >= 0 || cfg->attempt >= 0 ? " that fits" : "", run);
    return BT_OK;
}

static bt_code cmd_logs(bt_call *call, bt_err *err) {
    logs_cfg *cfg = call->cfg;
    bt_db *db = NULL;
    const char *wanted = call->n ? call->words[0] : "last";
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    const bt_code code = print_log(db, wanted, cfg, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_logs = {
    .name = "logs",
    .summary = "lines that ranks, mpirun and libraries printed",
    .args = "[RUN]",
    .examples = "bitrain logs last\n"
                "bitrain logs book --rank 1 --grep 'out of memory'\n"
                "bitrain logs book --tail 20 --follow\n",
    .options = BT_OPTION_SET(logs_opts, logs_cfg),
    .max_words = 1,
    .run = cmd_logs,
};
