/* query_gate.c - the allow-list of SQL. A deny-list would be unsafe: `fts3_tokenizer` of the full-text extension
 * takes a pointer as a blob, and `fts3tokenize` calls it. */
#include "store/read/query_gate.h"

#include <string.h>

#include "store/read/live_runs.h"
#include "store/read/setting_value.h"
#include "store/sql/sql.h"

/* pragmas that only read; `user_version` could also write */
static const char *const pragmas[] = {
    "table_info",  "table_xinfo",     "table_list",     "index_list",    "index_info",
    "index_xinfo", "database_list",   "data_version",   "user_version",  "application_id",
    "page_count",  "page_size",       "freelist_count", "function_list", "compile_options",
    "quick_check", "integrity_check", "collation_list",
};

/* functions of SQLite's core, dates, mathematics, JSON, aggregates and windows that neither load code, read files,
 * take pointers nor describe the process */
static const char *const functions[] = {
    "abs",
    "changes",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "format",
    "glob",
    "hex",
    "ifnull",
    "iif",
    "instr",
    "last_insert_rowid",
    "length",
    "like",
    "likelihood",
    "likely",
    "lower",
    "ltrim",
    "max",
    "min",
    "nullif",
    "octet_length",
    "printf",
    "quote",
    "random",
    "randomblob",
    "replace",
    "round",
    "rtrim",
    "sign",
    "soundex",
    "sqlite_version",
    "substr",
    "substring",
    "total_changes",
    "trim",
    "typeof",
    "unhex",
    "unicode",
    "unlikely",
    "upper",
    "zeroblob",
    BT_STATE_FUNCTION,
    BT_LIVE_FUNCTION,
    BT_SETTING_FUNCTION,
    /* dates */
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "julianday",
    "strftime",
    "time",
    "timediff",
    "unixepoch",
    /* mathematics */
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "ceiling",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "floor",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pi",
    "pow",
    "power",
    "radians",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    /* aggregates and windows */
    "avg",
    "count",
    "cume_dist",
    "dense_rank",
    "first_value",
    "group_concat",
    "lag",
    "last_value",
    "lead",
    "median",
    "nth_value",
    "ntile",
    "percent_rank",
    "percentile",
    "percentile_cont",
    "percentile_disc",
    "rank",
    "row_number",
    "string_agg",
    "sum",
    "total",
    /* JSON */
    "->",
    "->>",
    "json",
    "json_array",
    "json_array_length",
    "json_error_position",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_pretty",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
    "json_valid",
};

static bool is_in_list(const char *const *list, size_t n, const char *word) {
    for (size_t i = 0; word && i < n; i++) {
        if (sqlite3_stricmp(list[i], word) == 0) return true;
    }
    return false;
}

static int authorize(void *snapping, int action, const char *a, const char *b, const char *db,
                     const char *trigger) {
    (void)db;
    (void)trigger;
    switch (action) {
    case SQLITE_TRANSACTION: return *(const bool *)snapping ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_FUNCTION:
        return is_in_list(functions, sizeof functions / sizeof *functions, b) ? SQLITE_OK
                                                                              : SQLITE_DENY;
    case SQLITE_PRAGMA:
        return is_in_list(pragmas, sizeof pragmas / sizeof *pragmas, a) &&
                       (!b || strcmp(a, "user_version") != 0)
                   ? SQLITE_OK
                   : SQLITE_DENY;
    /* SQLite requests an update of sqlite_master when json_each and similar functions declare their columns */
    case SQLITE_UPDATE: return a && strcmp(a, "sqlite_master") == 0 ? SQLITE_OK : SQLITE_DENY;
    default: return SQLITE_DENY;
    }
}

bt_code bt_query_gate_install(sqlite3 *db, const bool *snapping, const char *path, bt_err *err) {
    static const char *keep[] = {"json_each", "json_tree", NULL};
    /* SQLite's own virtual tables, which are harmless, are registered later, when a statement first names them. */
    int rc = sqlite3_drop_modules(db, keep);
    if (rc == SQLITE_OK) rc = sqlite3_set_authorizer(db, authorize, (void *)(uintptr_t)snapping);
    return rc == SQLITE_OK ? BT_OK : bt_sql_fail(db, rc, path, "open", err);
}
