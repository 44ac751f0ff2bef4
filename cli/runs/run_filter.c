/* run_filter.c - words into a WHERE over `runs`; values go in as parameters, never as SQL. */
#include "cli/runs/run_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* longer ones first */
static const char *const ops[] = {"!=", "<=", ">=", ":", "=", "<", ">"};

/* every name "runs" has, "\nname\n"... */
static bool take_name(void *ctx, const bt_row *row) {
    bt_text_printf(ctx, "%s\n", row->cells[0]);
    return true;
}

static bool known_column(const bt_text *names, const char *key) {
    char line[170];
    snprintf(line, sizeof line, "\n%s\n", key);
    return strstr(bt_text_str(names), line) != NULL;
}

/* " AND (lhs OP ?n)" with the comparison of numbers where the value is one */
static void compare(bt_run_filter *f, const char *lhs, const char *op, const char *value) {
    char *end;
    strtod(value, &end);
    bool number = *value && *end == 0;
    f->params[f->n_params++] = value;
    if (strcmp(op, ":") == 0 && !number)
        bt_text_printf(&f->where, "instr(lower(%s), lower(?%d)) > 0", lhs, f->n_params);
    else if (number)
        bt_text_printf(&f->where, "CAST(%s AS REAL) %s CAST(?%d AS REAL)", lhs,
                       strcmp(op, ":") == 0 ? "=" : op, f->n_params);
    else
        bt_text_printf(&f->where, "%s %s ?%d", lhs, op, f->n_params);
}

static void add_word(bt_run_filter *f, const bt_text *columns, const char *word, size_t at) {
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
                       "instr(run, ?%d) > 0 OR instr(coalesce(tags, ''), ?%d) > 0 OR "
                       "instr(coalesce(note, ''), ?%d) > 0",
                       f->n_params, f->n_params, f->n_params);
    } else {
        char *key = f->buf[at];
        snprintf(key, sizeof f->buf[at], "%.*s", (int)(found - word), word);
        const char *value = found + strlen(op);
        if (known_column(columns, key))
            compare(f, key, op, value);
        else {
            f->params[f->n_params++] = key;
            bt_text_printf(&f->where,
                           "EXISTS (SELECT 1 FROM (SELECT value, run AS r, key FROM configs UNION "
                           "ALL SELECT value, run, key FROM facts)"
                           " WHERE r = runs.run AND (key = ?%d OR key LIKE '%%.' || ?%d) AND ",
                           f->n_params, f->n_params);
            compare(f, "value", op, value);
            bt_text_put(&f->where, ")");
        }
    }
    bt_text_put(&f->where, ")");
}

bt_code bt_run_filter_init(bt_run_filter *f, bt_db *db, const char *const *words, size_t n,
                           bt_err *err) {
    bt_text columns;
    memset(f, 0, sizeof *f);
    bt_text_init(&f->where);
    bt_text_init(&columns);
    bt_text_put(&columns, "\n");
    bt_code code = bt_db_query(db, "SELECT name FROM pragma_table_info('runs')", NULL, 0, 0, 0,
                               take_name, &columns, NULL, err);
    for (size_t i = 0; i < n && code == BT_OK; i++) add_word(f, &columns, words[i], i);
    if (code == BT_OK && (f->where.failed || columns.failed))
        code = bt_fail(err, BT_NOMEM, "no memory for the filter");
    bt_text_release(&columns);
    return code;
}

void bt_run_filter_release(bt_run_filter *f) { bt_text_release(&f->where); }
