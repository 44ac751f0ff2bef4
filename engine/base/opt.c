/* opt.c - option tables: types, ranges, origins, environment, help. opt_argv.c reads arguments, opt_yaml.c YAML. */
#include "engine/base/opt.h"
#include "engine/base/system/ascii.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/opt_private.h"

static void *option_value_ptr(const bt_opts *o, size_t i) {
    return (char *)o->values + o->table[i].offset;
}

const char *bt_origin_name(bt_opt_origin origin) {
    static const char *const names[] = {"default", "preset", "file", "env", "set", "flag"};
    return (unsigned)origin < sizeof names / sizeof names[0] ? names[origin] : "?";
}

size_t bt_opt_find(const bt_opt *table, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].key, key) == 0) return i;
    return n;
}

bool bt_opts_given(const bt_opts *o, const char *key) {
    const size_t i = bt_opt_find(o->table, o->n, key);
    return i < o->n && o->origin[i] > BT_FROM_PRESET;
}

/* Like strtod, but without hexadecimal numbers, infinities and NaN. */
static double parse_decimal(const char *text, char **end) {
    const char *p = text + (*text == '-' || *text == '+');
    if (!bt_ascii_digit(*p) && !(*p == '.' && bt_ascii_digit(p[1]))) {
        *end = (char *)(uintptr_t)text;
        return 0;
    }
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        *end = (char *)(uintptr_t)text;
        return 0;
    }
    return strtod(text, end);
}

static bool parse_int(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && !bt_ascii_space(*text)) {
        *out = whole;
        return true;
    }
    double v = parse_decimal(text, &end);
    if (end == text) return false;
    static const char suffix[] = "kMGT";
    const char *s = *end ? strchr(suffix, *end == 'K' ? 'k' : *end) : NULL;
    if (s) {
        double unit = end[1] == 'i' ? 1024 : 1000;
        for (long power = s - suffix; power >= 0; power--) v *= unit;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end || v != floor(v) || fabs(v) > 9007199254740992.0) return false;
    *out = (int64_t)v;
    return true;
}

static bool parse_bool(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i & 1;
            return true;
        }
    return false;
}

/* Returns the index of `text` in "a|b|c", or -1. */
static int parse_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    int index = 0;
    for (const char *c = choices;; index++) {
        size_t len = strcspn(c, "|");
        if (len == n && strncmp(c, text, n) == 0) return index;
        if (!c[len]) return -1;
        c += len + 1;
    }
}

static void choice_at(const char *choices, int index, bt_text *out) {
    const char *c = choices;
    for (; index > 0 && *c; index--) {
        c += strcspn(c, "|");
        c += *c == '|';
    }
    bt_text_putn(out, c, strcspn(c, "|"));
}

static bt_code fail_option_value(const bt_opts *o, size_t i, const char *text, bt_opt_origin from,
                                 const char *where, const char *wanted, bt_err *err) {
    char shown[64], subject[160];
    const bt_opt *opt = &o->table[i];
    bt_text_plain(shown, sizeof shown, text);
    bool names_itself = from == BT_FROM_FLAG || from == BT_FROM_ENV;
    if (names_itself)
        snprintf(subject, sizeof subject, "%s", where);
    else if (from == BT_FROM_SET)
        snprintf(subject, sizeof subject, "--set %s", opt->key);
    else
        snprintf(subject, sizeof subject, "%s: %s", where, opt->key);
    return bt_fail(err, BT_ARG, "%s must be %s, not '%s'", subject, wanted, shown);
}

static const char *write_limit(double limit, char out[32]) {
    snprintf(out, 32, fabs(limit) < 1e16 && floor(limit) == limit ? "%.0f" : "%.15g", limit);
    return out;
}

static void range_text(const bt_opt *opt, const char *noun, char *buf, size_t size) {
    char min[32], max[32];
    snprintf(buf, size, "%s from %s to %s", noun, write_limit(opt->min, min),
             write_limit(opt->max, max));
    if (opt->unit) {
        size_t n = strlen(buf);
        snprintf(buf + n, size - n, " %s", opt->unit);
    }
}

static bt_code set_index(bt_opts *o, size_t i, const char *text, bt_opt_origin from,
                         const char *where, bt_err *err) {
    const bt_opt *opt = &o->table[i];
    void *to = option_value_ptr(o, i);
    /* an option with a stronger origin keeps its value, but the text is still validated */
    bool keep = o->origin[i] > from;
    char wanted[200];
    switch (opt->type) {
    case BT_OPT_INT: {
        int64_t v;
        range_text(opt, "a whole number", wanted, sizeof wanted);
        if (!parse_int(text, &v) || (double)v < opt->min || (double)v > opt->max)
            return fail_option_value(o, i, text, from, where, wanted, err);
        if (!keep) memcpy(to, &v, sizeof v);
        break;
    }
    case BT_OPT_REAL: {
        char *end;
        double v = parse_decimal(text, &end);
        range_text(opt, "a number", wanted, sizeof wanted);
        if (end == text || *end || !(v >= opt->min && v <= opt->max))
            return fail_option_value(o, i, text, from, where, wanted, err);
        if (!keep) memcpy(to, &v, sizeof v);
        break;
    }
    case BT_OPT_BOOL: {
        bool v;
        if (!parse_bool(text, &v))
            return fail_option_value(o, i, text, from, where, "true or false", err);
        if (!keep) memcpy(to, &v, sizeof v);
        break;
    }
    case BT_OPT_ENUM: {
        int v = parse_choice(opt->choices, text);
        snprintf(wanted, sizeof wanted, "one of %s", opt->choices);
        if (v < 0) return fail_option_value(o, i, text, from, where, wanted, err);
        if (!keep) memcpy(to, &v, sizeof v);
        break;
    }
    case BT_OPT_TEXT:
    case BT_OPT_LIST:
        snprintf(wanted, sizeof wanted, "text shorter than %zu bytes", opt->size);
        if (strlen(text) >= opt->size)
            return fail_option_value(o, i, text, from, where, wanted, err);
        if (!keep) memcpy(to, text, strlen(text) + 1);
        break;
    }
    if (!keep) {
        o->origin[i] = from;
        /* the end of a long path is kept, because it is more specific than the beginning */
        size_t n = strlen(where);
        const size_t room = sizeof o->where[i] - 1;
        if (n <= room)
            memcpy(o->where[i], where, n + 1);
        else
            snprintf(o->where[i], sizeof o->where[i], "...%s", where + n - (room - 3));
    }
    return BT_OK;
}

bt_code bt_opts_fault(bt_opts *o, bt_code code, bt_err *err) {
    if (code != BT_ARG || !o->faults || !err) return code;
    bt_text_printf(o->faults, "%s\n", err->msg);
    *err = (bt_err)BT_ERR_INIT;
    return BT_OK;
}

static bool equal_option_values(const char *a, const char *b) {
    char *end_a, *end_b;
    const double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return strcmp(a, b) == 0 || (*a && *b && !*end_a && !*end_b && !(x < y) && !(x > y));
}

static bool is_removed(const bt_opt_removed *r, const char *key, const char *text) {
    const size_t n = strlen(key);
    if (r->def) return strcmp(r->key, key) == 0;
    return strncmp(r->key, key, n) == 0 && r->key[n] == '=' && strcmp(r->key + n + 1, text) == 0;
}

bt_code bt_opt_check_removed(const bt_opt_removed *table, size_t n, const char *key,
                             const char *text, bool *found, bt_err *err) {
    char shown[64];
    size_t i = 0;
    while (i < n && !is_removed(&table[i], key, text)) i++;
    *found = i < n;
    if (!*found || (table[i].def && equal_option_values(text, table[i].def))) return BT_OK;
    bt_text_plain(shown, sizeof shown, text);
    return bt_fail(err, BT_ARG, "%s=%s: this %s was removed (%s)", key, shown,
                   table[i].def ? "setting" : "value", table[i].remedy);
}

bt_code bt_opts_set(bt_opts *o, const char *key, const char *text, bt_opt_origin from,
                    const char *where, bt_err *err) {
    bool removed;
    BT_TRY(bt_opt_check_removed(o->removed, o->n_removed, key, text, &removed, err));
    if (removed) return BT_OK;
    size_t i = bt_opt_find(o->table, o->n, key);
    if (i < o->n) return set_index(o, i, text, from, where, err);
    char shown[96];
    bt_text_plain(shown, sizeof shown, key);
    const char *near = bt_opt_nearest(o->table, o->n, key);
    bool in_file = from == BT_FROM_FILE;
    if (near)
        return bt_fail(err, BT_ARG, "%s%sunknown option '%s' (did you mean '%s'?)",
                       in_file ? where : "", in_file ? ": " : "", shown, near);
    return bt_fail(err, BT_ARG, "%s%sunknown option '%s' ('bitrain help options' lists them)",
                   in_file ? where : "", in_file ? ": " : "", shown);
}

/* Suggests a known key by spelling, by its last word ("lr" for "optim.lr"), or by its flag ("lr-schedule"). */
const char *bt_opt_nearest(const bt_opt *table, size_t n, const char *key) {
    const char *names[BT_OPT_MAX] = {0}, *last[BT_OPT_MAX] = {0};
    if (n > BT_OPT_MAX) return NULL;
    const char *word = strrchr(key, '.');
    word = word ? word + 1 : key;
    for (size_t i = 0; i < n; i++) {
        const char *dot = strrchr(table[i].key, '.');
        names[i] = table[i].key;
        last[i] = dot ? dot + 1 : table[i].key;
    }
    /* Of several keys with this last word, one in the same group is preferred. */
    const size_t group = strcspn(key, ".") + 1;
    for (int same_group = 1; same_group >= 0; same_group--)
        for (size_t i = 0; i < n; i++)
            if (strcmp(last[i], word) == 0 &&
                (!same_group || strncmp(table[i].key, key, group) == 0))
                return table[i].key;
    for (size_t i = 0; i < n; i++) {
        if (!table[i].flag || strncmp(table[i].flag, "--", 2) != 0) continue;
        const char *f = table[i].flag + 2;
        size_t k = 0;
        while (f[k] && word[k] && (f[k] == word[k] || (f[k] == '-' && word[k] == '_'))) k++;
        if (!f[k] && !word[k]) return table[i].key;
    }
    const char *near = bt_nearest(key, names, n);
    if (near) return near;
    near = bt_nearest(word, last, n);
    for (size_t i = 0; near && i < n; i++)
        if (last[i] == near) return table[i].key;
    return NULL;
}

bt_code bt_opts_init(bt_opts *o, const bt_opt *table, size_t n, void *values, bt_err *err) {
    memset(o, 0, sizeof *o);
    if (n > BT_OPT_MAX)
        return bt_fail(err, BT_ARG, "option table has %zu rows, room for %d", n, BT_OPT_MAX);
    o->table = table;
    o->n = n;
    o->values = values;
    for (size_t i = 0; i < n; i++)
        BT_TRY(set_index(o, i, table[i].def, BT_FROM_DEFAULT, "default", err));
    return BT_OK;
}

void bt_opt_env_name(char *out, size_t size, const char *name) {
    size_t n = (size_t)snprintf(out, size, "BITRAIN_");
    for (; *name && n + 1 < size; name++) {
        char c = *name;
        out[n++] = c == '.' || c == '-' ? '_' : bt_ascii_upper(c);
    }
    out[n] = '\0';
}

bt_code bt_opts_env(bt_opts *o, bt_err *err) {
    char var[96];
    for (size_t i = 0; i < o->n; i++) {
        const char *flag = o->table[i].flag;
        const char *value = NULL;
        bt_opt_env_name(var, sizeof var, o->table[i].key);
        value = getenv(var);
        if (!value && flag && strncmp(flag, "--", 2) == 0) {
            bt_opt_env_name(var, sizeof var, flag + 2);
            value = getenv(var);
        }
        if (value) BT_TRY(bt_opts_fault(o, set_index(o, i, value, BT_FROM_ENV, var, err), err));
    }
    for (size_t i = 0; i < o->n_removed; i++) {
        bool ignored;
        bt_opt_env_name(var, sizeof var, o->removed[i].key);
        const char *value = getenv(var);
        if (value)
            BT_TRY(bt_opts_fault(o,
                                 bt_opt_check_removed(o->removed, o->n_removed, o->removed[i].key,
                                                      value, &ignored, err),
                                 err));
    }
    return BT_OK;
}

static void put_shortest_real(double v, bt_text *out) {
    char buf[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    bt_text_put(out, buf);
}

void bt_opt_value(const bt_opts *o, size_t i, bt_text *out) {
    const bt_opt *opt = &o->table[i];
    const void *from = option_value_ptr(o, i);
    switch (opt->type) {
    case BT_OPT_INT: {
        int64_t v;
        memcpy(&v, from, sizeof v);
        bt_text_printf(out, "%lld", (long long)v);
        break;
    }
    case BT_OPT_REAL: {
        double v;
        memcpy(&v, from, sizeof v);
        put_shortest_real(v, out);
        break;
    }
    case BT_OPT_BOOL: {
        bool v;
        memcpy(&v, from, sizeof v);
        bt_text_put(out, v ? "true" : "false");
        break;
    }
    case BT_OPT_ENUM: {
        int v;
        memcpy(&v, from, sizeof v);
        choice_at(opt->choices, v, out);
        break;
    }
    case BT_OPT_TEXT:
    case BT_OPT_LIST: bt_text_put(out, from); break;
    }
}

const char *bt_opt_argument(const bt_opt *opt) {
    switch (opt->type) {
    case BT_OPT_INT: return "N";
    case BT_OPT_REAL: return "X";
    case BT_OPT_BOOL: return "";
    case BT_OPT_ENUM: return opt->choices;
    case BT_OPT_LIST: return "PATH...";
    case BT_OPT_TEXT: return "TEXT";
    }
    return "";
}

void bt_opt_help(const bt_opt *table, size_t n, bt_text *out) {
    enum { COLUMN = 26 };
    for (size_t i = 0; i < n; i++) {
        if (!table[i].flag) continue;
        size_t start = out->len;
        const char *arg = bt_opt_argument(&table[i]);
        const char *alias = strcmp(table[i].flag, "--out") == 0 ? "-o, " : "";
        bt_text_printf(out, "  %s%s%s%s", alias, table[i].flag, *arg ? " " : "", arg);
        size_t used = out->len - start;
        if (used + 2 > COLUMN)
            bt_text_printf(out, "\n%*s", COLUMN, "");
        else
            bt_text_printf(out, "%*s", (int)(COLUMN - used), "");
        bt_text_put(out, table[i].help);
        bool silent = table[i].type == BT_OPT_BOOL || !*table[i].def;
        if (!silent)
            bt_text_printf(out, " (default %s%s%s)", table[i].def, table[i].unit ? " " : "",
                           table[i].unit ? table[i].unit : "");
        bt_text_put(out, "\n");
    }
}
