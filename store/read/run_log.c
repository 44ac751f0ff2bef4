/* run_log.c - reads the end of a file and cuts it into lines. */
#include "store/read/run_log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/system/ascii.h"
#include "store/read/row_json.h"

bt_event_level bt_run_log_level(const char *line) {
    if (bt_ascii_find(line, "error") || bt_ascii_find(line, "abort") ||
        bt_ascii_find(line, "signal"))
        return BT_EV_ERROR;
    return bt_ascii_find(line, "warn") ? BT_EV_WARN : BT_EV_INFO;
}

int bt_run_log_rank(const char *line) {
    const char *at = bt_ascii_find(line, "rank ");
    char *end;
    const long rank = at ? strtol(at + strlen("rank "), &end, 10) : -1;
    return at && end > at + strlen("rank ") && rank >= 0 && rank < 1000000 ? (int)rank : -1;
}

/* Reads whole lines at the end of the file; NULL: unreadable. *cut: there are earlier lines. */
static char *read_log_end(const char *path, size_t bytes, bool *cut) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (text = malloc(bytes + 1))) {
        const int64_t from = st.st_size > (int64_t)bytes ? st.st_size - (int64_t)bytes : 0;
        const ssize_t n = pread(fd, text, bytes, (off_t)from);
        text[n > 0 ? n : 0] = 0;
        for (ssize_t i = 0; i < n; i++)
            if (!text[i]) text[i] = ' ';
        *cut = from > 0;
        if (*cut) memmove(text, text + strcspn(text, "\n"), strlen(text + strcspn(text, "\n")) + 1);
    }
    if (fd >= 0) close(fd);
    return text;
}

static void put_log_line(bt_json *j, const char *line) {
    static const char *const levels[] = {
        [BT_EV_INFO] = "info", [BT_EV_WARN] = "warning", [BT_EV_ERROR] = "error"};
    const int rank = bt_run_log_rank(line);
    bt_json_object(j, NULL);
    bt_json_str(j, "level", levels[bt_run_log_level(line)]);
    if (rank >= 0)
        bt_json_int(j, "rank", rank);
    else
        bt_json_null(j, "rank");
    bt_json_str(j, "text", line);
    bt_json_end(j, '}');
}

bt_code bt_run_log_json(bt_db *db, const char *run, size_t bytes, bt_json *j, bt_err *err) {
    char folder[PATH_MAX], path[PATH_MAX + 16];
    bool cut = false;
    BT_TRY(bt_db_run_folder(db, run, folder, sizeof folder, err));
    snprintf(path, sizeof path, "%s/log.txt", folder);
    char *text = folder[0] ? read_log_end(path, bytes, &cut) : NULL, *rest = text;
    bt_json_bool(j, "readable", text != NULL);
    bt_json_bool(j, "cut", cut);
    bt_json_array(j, "lines");
    for (char *line; rest && (line = strsep(&rest, "\n")) != NULL;)
        if (*line) put_log_line(j, line);
    bt_json_end(j, ']');
    free(text);
    return BT_OK;
}

/* Columns: level, rank, host, time, text. */
static bool put_found_line(void *ctx, const bt_row *row) {
    bt_json *j = ctx;
    bt_json_object(j, NULL);
    for (int i = 0; i < row->n; i++) bt_row_cell_json(j, row->names[i], row, i);
    bt_json_end(j, '}');
    return true;
}

static bool note_older_line(void *ctx, const bt_row *row) {
    (void)row;
    *(bool *)ctx = true;
    return false;
}

#define MATCHING " FROM log_lines WHERE run = ?1 AND instr(lower(text), lower(?2)) > 0"

bt_code bt_run_log_search_json(bt_db *db, const char *run, const char *text, int64_t most,
                               bt_json *j, bt_err *err) {
    char limit[24];
    const char *params[] = {run, text, limit};
    bool cut = false;
    const bt_query found = {.sql = "SELECT level, rank, host, time, text FROM (SELECT *" MATCHING
                                   " ORDER BY seq DESC LIMIT CAST(?3 AS INTEGER)) ORDER BY seq",
                            .params = params,
                            .n_params = 3};
    const bt_query older = {.sql = "SELECT seq" MATCHING
                                   " ORDER BY seq DESC LIMIT 1 OFFSET CAST(?3 AS INTEGER)",
                            .params = params,
                            .n_params = 3};
    snprintf(limit, sizeof limit, "%lld", (long long)most);
    BT_TRY(bt_db_query(db, &older, note_older_line, &cut, err));
    bt_json_bool(j, "readable", true);
    bt_json_bool(j, "cut", cut);
    bt_json_array(j, "lines");
    const bt_code code = bt_db_query(db, &found, put_found_line, j, err);
    bt_json_end(j, ']');
    return code;
}
