/* run_filter.c - translates words to a WHERE clause over `runs`; values are passed as parameters, never as SQL. */
#include "cli/runs/run_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/ascii.h"
#include "engine/base/tables/verb.h"
#include "engine/config/run_cfg.h"

/* tags as the user typed them: stored tags have no-break spaces instead of spaces */
#define TAGS "replace(tags, char(160), ' ')"

/* longer operators first, because shorter ones are their prefixes */
static const char *const ops[] = {"!=", "<=", ">=", ":", "=", "<", ">"};

/* Appends a name to a list "\nname\nname\n". */
static bool append_column_name(void *ctx, const bt_row *row) {
    bt_text_printf(ctx, "%s\n", row->cells[0]);
    return true;
}

static bool is_in_name_list(const bt_text *names, const char *key) {
    char line[170];
    snprintf(line, sizeof line, "\n%s\n", key);
    return strstr(bt_text_str(names), line) != NULL;
}

static bool is_number(const char *value) {
    char *end;
    strtod(value, &end);
    return *value && *end == 0;
}

enum { NEAR_MAX = 512 };

/* Returns the known name most similar to `key`: a column of "runs", or a setting by its whole key or last word; NULL:
 * none is similar. line: buffer of the result. */
static const char *nearest_name(const bt_text *columns, const char *key, char line[64]) {
    const char *names[NEAR_MAX];
    char copy[64];
    size_t n = 0;
    for (size_t i = 0; i < bt_run_opts_n && n + 2 < NEAR_MAX; i++) {
        const char *dot = strrchr(bt_run_opts[i].key, '.');
        names[n++] = bt_run_opts[i].key;
        if (dot) names[n++] = dot + 1;
    }
    names[n++] = "state";
    const char *best = strcmp(key, "status") == 0 ? "state" : bt_nearest(key, names, n);
    snprintf(line, 64, "%s", best ? best : "");
    /* Columns are compared last, so that a column is preferred to a key that is equally similar. */
    for (const char *c = bt_text_str(columns); *c; c += strcspn(c, "\n"), c += *c == '\n') {
        const size_t len = strcspn(c, "\n");
        if (!len || len >= sizeof copy) continue;
        snprintf(copy, sizeof copy, "%.*s", (int)len, c);
        const char *const pair[] = {copy, line};
        if (bt_nearest(key, pair, *line ? 2 : 1) == copy) snprintf(line, 64, "%s", copy);
    }
    return *line ? line : NULL;
}

static bt_code unknown_name(const bt_text *columns, const char *key, const char *word,
                            bt_err *err) {
    char near[64], shown[96];
    bt_text_plain(shown, sizeof shown, word);
    if (nearest_name(columns, key, near))
        return bt_fail(err, BT_ARG,
                       "filter '%s': runs have no column, setting or fact '%.60s' (did you mean "
                       "'%s'?)",
                       shown, key, near);
    return bt_fail(err, BT_ARG,
                   "filter '%s': runs have no column, setting or fact '%.60s' (`bitrain runs "
                   "--json` shows the columns, `bitrain help options` the settings)",
                   shown, key);
}

/* Refuses "loss<abc": SQLite sorts every number before every text. */
static bt_code refuse_text_for_number(const char *value, const char *op, const char *word,
                                      bt_err *err) {
    char shown[96], text[64];
    bt_text_plain(shown, sizeof shown, word);
    bt_text_plain(text, sizeof text, value);
    if (!text[0]) return bt_fail(err, BT_ARG, "filter '%s' lacks a number after %s", shown, op);
    return bt_fail(err, BT_ARG, "filter '%s': %s takes a number, not '%s'", shown, op, text);
}

/* Refuses "state:donne", because no run can have an unknown state. */
static bt_code check_state(const char *value, const char *op, const char *word, bt_err *err) {
    const char *names[BT_STATE_COUNT];
    char shown[96], all[160] = "", low[32];
    size_t n = 0;
    for (; value[n] && n + 1 < sizeof low; n++) low[n] = bt_ascii_lower(value[n]);
    low[n] = 0;
    for (int i = 0; i < BT_STATE_COUNT; i++) {
        names[i] = bt_run_states[i].name;
        if (op[0] == ':' ? strstr(names[i], low) != NULL : strcmp(names[i], value) == 0)
            return BT_OK;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    bt_text_plain(shown, sizeof shown, word);
    const char *near = bt_nearest(low, names, BT_STATE_COUNT);
    return near ? bt_fail(err, BT_ARG, "filter '%s': no such state (did you mean '%s'?)", shown,
                          near)
                : bt_fail(err, BT_ARG, "filter '%s': no such state (%s)", shown, all);
}

/* True if `word` is the setting's whole key or its last word. */
static bool names_setting(const char *word, const char *key) {
    const char *dot = strrchr(key, '.');
    return strcmp(key, word) == 0 || (dot && strcmp(dot + 1, word) == 0);
}

/* True for every setting, even if no recorded run has it. */
static bool is_run_setting(const char *word) {
    for (size_t i = 0; i < bt_run_opts_n; i++)
        if (names_setting(word, bt_run_opts[i].key)) return true;
    return false;
}

static bt_code is_recorded(bt_db *db, const char *key, bool *yes, bt_err *err) {
    double n = 0;
    BT_TRY(bt_db_value(db,
                       "SELECT EXISTS (SELECT 1 FROM configs WHERE key = ?1 OR key LIKE '%.' || "
                       "?1) OR EXISTS (SELECT 1 FROM facts WHERE key = ?1 OR key LIKE '%.' || ?1)",
                       key, &n, err));
    *yes = n > 0;
    return BT_OK;
}

/* Adds the condition under which a column's cell is compared as text: SQLite would read the number 0 in "abc" and 2
 * in "2-layers". */
static void append_is_text_condition(bt_text *out, const char *lhs, bool column) {
    bt_text_printf(out, "typeof(%s) = 'text'", lhs);
    /* settings and facts are stored as text, but compared as numbers where they look like one */
    if (!column)
        bt_text_printf(out, " AND (%s NOT GLOB '*[0-9]*' OR %s GLOB '*[^0-9.eE+-]*')", lhs, lhs);
}

static void compare_text(bt_run_filter *f, const char *lhs, const char *op) {
    if (strcmp(op, ":") == 0)
        bt_text_printf(&f->where, "instr(lower(%s), lower(?%d)) > 0", lhs, f->n_params);
    else
        bt_text_printf(&f->where, "%s %s ?%d", lhs, op, f->n_params);
}

/* Appends "lhs OP ?n", which compares numbers if both sides are numbers. */
static void append_comparison(bt_run_filter *f, const char *lhs, const char *op, const char *value,
                              bool column) {
    f->params[f->n_params++] = value;
    if (!is_number(value)) {
        compare_text(f, lhs, op);
        return;
    }
    bt_text_put(&f->where, "CASE WHEN ");
    append_is_text_condition(&f->where, lhs, column);
    bt_text_put(&f->where, " THEN ");
    compare_text(f, lhs, op);
    bt_text_printf(&f->where, " ELSE CAST(%s AS REAL) %s CAST(?%d AS REAL) END", lhs,
                   strcmp(op, ":") == 0 ? "=" : op, f->n_params);
}

/* Opens "EXISTS (SELECT 1 FROM (values of the key) WHERE ". A setting of this program is scanned for in the run's
 * configuration; a key that only old or foreign runs have needs the view that parses it. */
static void begin_setting_subquery(bt_run_filter *f, const char *key) {
    const bool setting = is_run_setting(key);
    f->params[f->n_params++] = key;
    const int n = f->n_params;
    bt_text_put(&f->where, "EXISTS (WITH v(value) AS MATERIALIZED (");
    for (size_t i = 0; setting && i < bt_run_opts_n; i++)
        if (names_setting(key, bt_run_opts[i].key))
            bt_text_printf(&f->where, "SELECT bt_setting(runs.config, '%s') UNION ALL ",
                           bt_run_opts[i].key);
    if (setting)
        bt_text_printf(&f->where, "SELECT value FROM facts WHERE run = runs.run AND key = ?%d", n);
    else
        bt_text_printf(
            &f->where,
            "SELECT value FROM (SELECT value, run AS r, key FROM configs UNION ALL SELECT "
            "value, run, key FROM facts) WHERE r = runs.run AND (key = ?%d OR key LIKE "
            "'%%.' || ?%d)",
            n, n);
    bt_text_put(&f->where, ") SELECT 1 FROM v WHERE value IS NOT NULL AND ");
}

static bt_code append_filter_word(bt_run_filter *f, bt_db *db, const bt_text *columns,
                                  const char *word, size_t at, bt_err *err) {
    const char *op = NULL, *found = NULL;
    for (const char *p = word; *p && !op; p++) {
        for (size_t i = 0; i < sizeof ops / sizeof ops[0] && !op; i++) {
            if (strncmp(p, ops[i], strlen(ops[i])) == 0) {
                op = ops[i];
                found = p;
            }
        }
    }
    bt_text_put(&f->where, f->where.len ? " AND (" : " WHERE (");
    if (!op || found == word) {
        f->params[f->n_params++] = word;
        bt_text_printf(&f->where,
                       "instr(lower(run), lower(?%d)) > 0 OR instr(lower(coalesce(" TAGS
                       ", '')), lower(?%d)) > 0 OR instr(lower(coalesce(note, '')), lower(?%d)) > "
                       "0",
                       f->n_params, f->n_params, f->n_params);
    } else {
        char *key = f->buf[at];
        snprintf(key, sizeof f->buf[at], "%.*s", (int)(found - word), word);
        const char *value = found + strlen(op);
        const bool column = is_in_name_list(columns, key);
        bool known = column || is_run_setting(key);
        if (!known) BT_TRY(is_recorded(db, key, &known, err));
        if (!known) return unknown_name(columns, key, word, err);
        if (strchr("<>", *op) && !is_number(value))
            return refuse_text_for_number(value, op, word, err);
        if (strcmp(key, "state") == 0) BT_TRY(check_state(value, op, word, err));
        if (column)
            append_comparison(f, strcmp(key, "tags") == 0 ? TAGS : key, op, value, true);
        else {
            begin_setting_subquery(f, key);
            append_comparison(f, "value", op, value, false);
            bt_text_put(&f->where, ")");
        }
    }
    bt_text_put(&f->where, ")");
    return BT_OK;
}

bt_code bt_run_filter_init(bt_run_filter *f, bt_db *db, const char *const *words, size_t n,
                           bt_err *err) {
    bt_text columns;
    memset(f, 0, sizeof *f);
    bt_text_init(&f->where);
    bt_text_init(&columns);
    bt_text_put(&columns, "\n");
    bt_code code = bt_db_query(db, &(bt_query){.sql = "SELECT name FROM pragma_table_info('runs')"},
                               append_column_name, &columns, err);
    for (size_t i = 0; i < n && code == BT_OK; i++)
        code = append_filter_word(f, db, &columns, words[i], i, err);
    if (code == BT_OK && (f->where.failed || columns.failed))
        code = bt_fail(err, BT_NOMEM, "no memory for the filter");
    bt_text_release(&columns);
    return code;
}

void bt_run_filter_release(bt_run_filter *f) { bt_text_release(&f->where); }
