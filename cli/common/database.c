/* database.c - opens the metrics database and prints its rows. */
#include "cli/common/database.h"

#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/read/dead_runs.h"
#include "store/write/manage.h"

bt_code bt_cli_open(bt_db **out, const char *store, bt_err *err) {
    char path[1024];
    *out = NULL;
    BT_TRY(bt_store_path(path, sizeof path, store, err));
    BT_TRY(bt_db_open(out, path, err));
    bt_store_rescue(*out, 0.5);
    return BT_OK;
}

bool bt_cli_beside(char *out, size_t size, const char *db, const char *name) {
    const char *slash = strrchr(db, '/');
    const int folder = slash ? (int)(slash - db) + 1 : 0;
    return snprintf(out, size, "%.*s%s", folder, db, name) < (int)size;
}

bool bt_cli_best_folder(char folder[PATH_MAX]) {
    struct stat st;
    const size_t n = strlen(folder);
    return snprintf(folder + n, PATH_MAX - n, "/best") < (int)(PATH_MAX - n) &&
           stat(folder, &st) == 0;
}

bool bt_cli_best_is_older(bt_db *db, const char *run, char *text, size_t size) {
    static const char *const sql[] = {"SELECT best_val FROM runs WHERE run = ?1",
                                      "SELECT best_val_step FROM runs WHERE run = ?1",
                                      "SELECT val_loss FROM runs WHERE run = ?1"};
    enum { BEST, BEST_STEP, NEWEST, VALUES };
    static const double noticed = 1.001; /* a loss counts as higher from this factor on */
    double v[VALUES];
    char folder[PATH_MAX], a[32], b[32];
    bt_err ignored;
    text[0] = '\0';
    for (int i = 0; i < VALUES; i++)
        if (bt_db_value(db, sql[i], run, &v[i], &ignored) != BT_OK) return false;
    if (!(v[NEWEST] > noticed * v[BEST]) ||
        bt_db_run_folder(db, run, folder, sizeof folder, &ignored) != BT_OK || !folder[0] ||
        !bt_cli_best_folder(folder))
        return false;
    snprintf(text, size, "validation %s at step %.0f, %s now",
             bt_metric_format(a, sizeof a, v[BEST], BT_UNIT_NATS), v[BEST_STEP] + 1,
             bt_metric_format(b, sizeof b, v[NEWEST], BT_UNIT_NATS));
    return true;
}

static void csv_field(FILE *to, const char *s) {
    char plain[4096];
    if (isatty(fileno(
            to))) { /* only a terminal interprets control bytes; files and pipes receive the original text */
        bt_text_plain(plain, sizeof plain, s);
        s = plain;
    }
    if (!strpbrk(s, ",\"\r\n")) {
        fputs(s, to);
        return;
    }
    fputc('"', to);
    for (; *s; s++) {
        if (*s == '"') fputc('"', to);
        fputc(*s, to);
    }
    fputc('"', to);
}

void bt_cli_csv_names(FILE *to, const bt_row *row) {
    for (int i = 0; i < row->n; i++) {
        if (i) fputc(',', to);
        csv_field(to, row->names[i]);
    }
    fputc('\n', to);
}

void bt_cli_csv_row(FILE *to, const bt_row *row) {
    for (int i = 0; i < row->n; i++) {
        if (i) fputc(',', to);
        if (row->cells[i]) csv_field(to, row->cells[i]);
    }
    fputc('\n', to);
}

bt_code bt_cli_put(bt_text *t, bt_err *err) {
    bt_code code = t->failed ? bt_fail(err, BT_NOMEM, "no memory for the output") : BT_OK;
    if (code == BT_OK) {
        fputs(bt_text_str(t), stdout);
        fputc('\n', stdout);
    }
    bt_text_release(t);
    return code;
}

static int find_row_column(const bt_row *row, const char *column) {
    for (int i = 0; i < row->n; i++) {
        if (strcmp(row->names[i], column) == 0) return i;
    }
    return -1;
}

const char *bt_cli_cell(const bt_row *row, const char *column) {
    int i = find_row_column(row, column);
    return i >= 0 && row->cells[i] ? row->cells[i] : "";
}

double bt_cli_num(const bt_row *row, const char *column) {
    int i = find_row_column(row, column);
    return i >= 0 ? row->nums[i] : NAN;
}

const char *bt_cli_when(char buf[32], double epoch_s) {
    struct tm tm;
    time_t t = (time_t)(isfinite(epoch_s) ? epoch_s : 0);
    if (!isfinite(epoch_s) || !localtime_r(&t, &tm) ||
        strftime(buf, 32, "%Y-%m-%d %H:%M", &tm) == 0)
        strcpy(buf, "-");
    return buf;
}

void bt_cli_spark(char *out, size_t size, const char *json, int width) {
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double v[64], lo = INFINITY, hi = -INFINITY;
    int n = 0;
    size_t used = 0;
    out[0] = 0;
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 || *json != '[') return;
    for (const char *p = json + 1; *p && *p != ']' && n < 64;) {
        char *end;
        double x = strtod(p, &end);
        if (end == p)
            end += strcspn(end, ",]");
        else {
            v[n++] = x;
            lo = fmin(lo, x);
            hi = fmax(hi, x);
        }
        p = *end == ',' ? end + 1 : end;
    }
    if (width > n) width = n;
    for (int i = 0; i < width && used + 4 < size; i++) {
        double x = v[(size_t)i * (size_t)n / (size_t)width];
        int level = hi > lo ? (int)(7.99 * (x - lo) / (hi - lo)) : 0;
        used += (size_t)snprintf(out + used, size - used, "%s", blocks[level]);
    }
}

static bool copy_run_state(void *ctx, const bt_row *row) {
    snprintf(ctx, 32, "%s", row->cells[0] ? row->cells[0] : "");
    return false;
}

bt_code bt_cli_run_is_live(bt_db *db, const char *run, bool *live, bt_err *err) {
    static const char *const ended[] = {"done", "stopped", "failed", "lost"};
    char state[32] = "";
    const bt_query q = {
        .sql = "SELECT state FROM runs WHERE run = ?1", .params = &run, .n_params = 1};
    BT_TRY(bt_db_query(db, &q, copy_run_state, state, err));
    *live = true;
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) *live &= strcmp(state, ended[i]) != 0;
    return BT_OK;
}
