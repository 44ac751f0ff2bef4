/* columns.c - storage of metrics in the base tables of their scopes: names, types, scales. */
#include <stdio.h>
#include <string.h>

#include "store/sql/sql.h"

static void replace_suffix(char *out, size_t size, const char *key, const char *from,
                           const char *to) {
    size_t n = strlen(key), m = strlen(from);
    if (n > m && strcmp(key + n - m, from) == 0) n -= m;
    snprintf(out, size, "%.*s%s", (int)n, key, to);
}

void bt_column_of(bt_scope scope, const bt_metric *m, bt_column *out) {
    *out = (bt_column){.integer = true, .scale = 1};
    snprintf(out->name, sizeof out->name, "%s", m->key);
    switch (m->unit) {
    case BT_UNIT_MS:
        replace_suffix(out->name, sizeof out->name, m->key, "_ms", "_us");
        out->scale = 1e3;
        break;
    case BT_UNIT_MIB:
        replace_suffix(out->name, sizeof out->name, m->key, "_mib", "_kib");
        out->scale = 1024;
        break;
    case BT_UNIT_BYTES:
    case BT_UNIT_COUNT: break;
    case BT_UNIT_FRAC:
        if (scope == BT_SCOPE_STEP)
            out->integer = false;
        else {
            replace_suffix(out->name, sizeof out->name, m->key, "_frac", "_ppb");
            out->scale = 1e9;
        }
        break;
    case BT_UNIT_NATS:
        /* 4 bytes instead of 8 in the table that grows fastest */
        if (scope == BT_SCOPE_RANK) {
            replace_suffix(out->name, sizeof out->name, m->key, "", "_unats");
            out->scale = 1e6;
        } else
            out->integer = false;
        break;
    default: out->integer = false;
    }
}

/* Returns the columns that precede a row's metrics. */
static const char *fixed_columns(const bt_scope_row *scope) {
    return scope->kept == BT_KEPT_STEPS    ? "aid, step, wall_us, flags"
           : scope->kept == BT_KEPT_PACKED ? "key"
                                           : "aid, step";
}

int bt_scope_fixed(bt_scope scope) {
    const bt_scope_row *s = &bt_scopes[scope];
    return s->kept == BT_KEPT_STEPS ? 4 : s->kept == BT_KEPT_PACKED ? 1 : 2 + s->n_keys;
}

void bt_schema_insert(bt_scope scope, bt_text *sql) {
    const bt_scope_row *s = &bt_scopes[scope];
    int n = bt_scope_fixed(scope) + s->n;
    bt_text_printf(sql, "INSERT OR REPLACE INTO %s(%s", s->table, fixed_columns(s));
    for (int k = 0; s->kept == BT_KEPT_SAMPLED && k < s->n_keys; k++)
        bt_text_printf(sql, ", \"%s\"", s->key[k].name);
    for (int i = 0; i < s->n; i++) {
        bt_column c;
        bt_column_of(scope, &s->metric[i], &c);
        bt_text_printf(sql, ", \"%s\"", c.name);
    }
    bt_text_put(sql, ") VALUES (");
    for (int i = 0; i < n; i++) bt_text_put(sql, i ? ",?" : "?");
    bt_text_put(sql, ")");
}

void bt_schema_keys(bt_scope scope, const char *end, bt_text *sql) {
    const bt_scope_row *s = &bt_scopes[scope];
    if (s->kept == BT_KEPT_PACKED)
        bt_text_printf(sql, "key%s", end);
    else
        bt_text_printf(sql, "aid%s, step%s", end, end);
    for (int k = 0; s->kept == BT_KEPT_SAMPLED && k < s->n_keys; k++)
        bt_text_printf(sql, ", \"%s\"%s", s->key[k].name, end);
}

void bt_schema_create(bt_scope scope, bt_text *sql) {
    const bt_scope_row *s = &bt_scopes[scope];
    bt_text_printf(sql, "CREATE TABLE IF NOT EXISTS %s(aid INTEGER NOT NULL, step INTEGER NOT NULL",
                   s->table);
    for (int k = 0; k < s->n_keys; k++)
        bt_text_printf(sql, ", \"%s\" %s NOT NULL", s->key[k].name,
                       s->key[k].text ? "TEXT" : "INTEGER");
    bt_text_put(sql, ", PRIMARY KEY(");
    bt_schema_keys(scope, "", sql);
    bt_text_put(sql, ")) STRICT, WITHOUT ROWID;");
}
