/* run_state.c - the view `runs` of a reader's connection: as in the file, but that a run whose process is
 * gone is `lost`. The file cannot know that; so every reader (screens, commands, filters, SQL) asks here. */
#include <string.h>
#include <unistd.h>

#include "engine/base/system/pid.h"
#include "engine/base/tables/verb.h"
#include "store/sql/sql.h"

/* pid: of the process that writes the run. Another host's is not ours to judge. */
static const char *state_now(const char *state, const char *host, int64_t pid) {
    char here[BT_HOST_MAX] = "";
    const bool goes_on = strcmp(state, bt_run_states[BT_STATE_RUNNING].name) == 0 ||
                         strcmp(state, bt_run_states[BT_STATE_PAUSED].name) == 0;
    if (!goes_on || pid <= 0 || gethostname(here, sizeof here - 1) != 0 || strcmp(here, host) != 0)
        return state;
    return bt_pid_lives(pid) ? state : bt_run_states[BT_STATE_LOST].name;
}

static void run_state(sqlite3_context *ctx, int n, sqlite3_value **arg) {
    (void)n;
    const char *state = (const char *)sqlite3_value_text(arg[0]);
    const char *host = (const char *)sqlite3_value_text(arg[1]);
    if (!state)
        sqlite3_result_null(ctx);
    else
        sqlite3_result_text(ctx, state_now(state, host ? host : "", sqlite3_value_int64(arg[2])),
                            -1, SQLITE_TRANSIENT);
}

/* "CREATE TEMP VIEW runs AS SELECT a, b, run_state(...) AS state, ... FROM main.runs"; a file by a newer
 * bitrain keeps its columns */
static bt_code view_text(sqlite3 *db, const char *path, bt_text *out, bool *known, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(
        bt_sql_prepare(db, path, "SELECT name FROM pragma_table_info('runs', 'main')", &st, err));
    bt_text_put(out, "PRAGMA query_only=OFF; CREATE TEMP VIEW runs AS SELECT");
    *known = false;
    for (int i = 0; sqlite3_step(st) == SQLITE_ROW; i++) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        *known |= strcmp(name, "state") == 0;
        bt_text_printf(out,
                       strcmp(name, "state") == 0 ? "%s run_state(\"%s\", host, pid) AS state"
                                                  : "%s \"%s\"",
                       i ? "," : "", name);
    }
    sqlite3_finalize(st);
    bt_text_put(out, " FROM main.runs; PRAGMA query_only=ON");
    return out->failed ? bt_fail(err, BT_NOMEM, "cannot read '%s': out of memory", path) : BT_OK;
}

bt_code bt_run_state_install(sqlite3 *db, const char *path, bt_err *err) {
    bt_text sql;
    bool known = false;
    const int rc = sqlite3_create_function(db, "run_state", 3, SQLITE_UTF8 | SQLITE_INNOCUOUS, NULL,
                                           run_state, NULL, NULL);
    if (rc != SQLITE_OK) return bt_sql_fail(db, rc, path, "open", err);
    bt_text_init(&sql);
    bt_code code = view_text(db, path, &sql, &known, err);
    if (code == BT_OK && known) code = bt_sql_exec(db, path, bt_text_str(&sql), err);
    bt_text_release(&sql);
    return code;
}
