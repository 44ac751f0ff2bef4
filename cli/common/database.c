/* database.c - rows for scripts and people. */
#include "cli/common/database.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
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

/* ---- a run ---- */

static const double NOTICED = 1.001; /* a rise by this factor is one */

bool bt_cli_best_is_older(bt_db *db, const char *run, char *text, size_t size) {
    double best, step, newest;
    char folder[PATH_MAX], a[32], b[32];
    struct stat st;
    bt_err ignored;
    text[0] = '\0';
    if (bt_db_value(db, "SELECT best_val FROM runs WHERE run = ?1", run, &best, &ignored) !=
            BT_OK ||
        bt_db_value(db, "SELECT best_val_step FROM runs WHERE run = ?1", run, &step, &ignored) !=
            BT_OK ||
        bt_db_value(db, "SELECT val_loss FROM runs WHERE run = ?1", run, &newest, &ignored) !=
            BT_OK ||
        !(newest > NOTICED * best) ||
        bt_db_run_folder(db, run, folder, sizeof folder, &ignored) != BT_OK)
        return false;
    const size_t n = strlen(folder);
    if (n == 0 || n + sizeof "/best" > sizeof folder) return false;
    strcpy(folder + n, "/best");
    if (stat(folder, &st) != 0) return false;
    snprintf(text, size, "validation %s at step %.0f, %s now",
             bt_metric_format(a, sizeof a, best, BT_UNIT_NATS), step + 1,
             bt_metric_format(b, sizeof b, newest, BT_UNIT_NATS));
    return true;
}

/* ---- rows ---- */

static void csv_field(FILE *to, const char *s) {
    char plain[4096];
    if (isatty(
            fileno(to))) { /* a terminal obeys control bytes; a file or a pipe gets what there is */
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

/* ---- people ---- */

static int column_of(const bt_row *row, const char *column) {
    for (int i = 0; i < row->n; i++) {
        if (strcmp(row->names[i], column) == 0) return i;
    }
    return -1;
}

const char *bt_cli_cell(const bt_row *row, const char *column) {
    int i = column_of(row, column);
    return i >= 0 && row->cells[i] ? row->cells[i] : "";
}

double bt_cli_num(const bt_row *row, const char *column) {
    int i = column_of(row, column);
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
