/* expand.c - expands figures of derived.def and rows of other tables in SQL. */
#include "store/sql/expand.h"

#include <string.h>

#include "engine/base/system/ascii.h"
#include "engine/base/tables/derived.h"
#include "engine/base/tables/event.h"
#include "engine/base/tables/metric.h"
#include "engine/base/tables/time_part.h"

static bool word_letter(char c) { return bt_ascii_alnum(c) || c == '_'; }

static size_t word_length(const char *s) {
    size_t n = 0;
    while (word_letter(s[n])) n++;
    return n;
}

static bool is_whole_word(const char *s, size_t n, const char *word) {
    return strlen(word) == n && strncmp(s, word, n) == 0;
}

typedef struct span {
    const char *at;
    size_t n;
} span;

/* Writes an argument, which may contain figures and lists; multiplied by 1.0, so that integers divide like reals. */
static bt_code write_argument(bt_text *out, const span *arg, bt_err *err) {
    bt_text own;
    bt_text_init(&own);
    bt_text_putn(&own, arg->at, arg->n);
    bt_text_put(out, "(1.0 * (");
    bt_code code = own.failed ? bt_fail(err, BT_NOMEM, "cannot take memory for a question")
                              : bt_sql_expand(out, bt_text_str(&own), err);
    bt_text_put(out, "))");
    bt_text_release(&own);
    return code;
}

static bt_code write_formula(bt_text *out, const bt_derived_row *d, const char *formula,
                             const span *arg, bt_err *err) {
    while (*formula) {
        size_t n = word_length(formula);
        int k = 0;
        while (k < BT_DERIVED_ARGS && d->arg[k] && !(n && is_whole_word(formula, n, d->arg[k])))
            k++;
        if (n && k < BT_DERIVED_ARGS && d->arg[k])
            // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): every name has an argument
            BT_TRY(write_argument(out, &arg[k], err));
        else
            bt_text_putn(out, formula, n ? n : 1);
        formula += n ? n : 1;
    }
    return BT_OK;
}

/* Parses "a, f(b, c))" up to the closing parenthesis, to which *end points; returns the number of arguments. */
static int read_args(const char *s, span *arg, const char **end) {
    int n = 0, depth = 0;
    const char *from = s;
    for (;; s++) {
        bool last = *s == ')' && depth == 0;
        if (last || (*s == ',' && depth == 0)) {
            from += strspn(from, " ");
            if (n < BT_DERIVED_ARGS) arg[n] = (span){from, (size_t)(s - from)};
            n++;
            from = s + 1;
        }
        if (last || !*s) break;
        depth += (*s == '(') - (*s == ')');
    }
    *end = *s ? s : NULL;
    return n;
}

static bt_code put_derived_expression(bt_text *out, const bt_derived_row *d, const char **sql,
                                      bt_err *err) {
    span arg[BT_DERIVED_ARGS];
    const char *end;
    int wanted = 0, n = read_args(*sql + strlen(d->name) + 2, arg, &end);
    while (wanted < BT_DERIVED_ARGS && d->arg[wanted]) wanted++;
    if (!end || end[1] != '}') return bt_fail(err, BT_ARG, "'{%s(' is not closed by ')}'", d->name);
    if (n != wanted)
        return bt_fail(err, BT_ARG, "'{%s(...)}' has %d arguments, it is made from %d", d->name, n,
                       wanted);
    bool always = strcmp(d->known, "1") == 0;
    bt_text_put(out, always ? "(" : "(CASE WHEN ");
    if (!always) {
        BT_TRY(write_formula(out, d, d->known, arg, err));
        bt_text_put(out, " THEN ");
    }
    BT_TRY(write_formula(out, d, d->formula, arg, err));
    bt_text_put(out, always ? ")" : " END)");
    *sql = end + 2;
    return BT_OK;
}

static const bt_derived_row *find_derived_row(const char *brace) {
    size_t n = word_length(brace + 1);
    if (n == 0 || brace[1 + n] != '(') return NULL;
    for (size_t i = 0; i < bt_derived_n; i++)
        if (is_whole_word(brace + 1, n, bt_derived[i].name)) return &bt_derived[i];
    return NULL;
}

static const char *phase_key_of_row(int p) { return bt_rank_metrics[bt_phases[p].metric].key; }
static const char *phase_title_of_row(int p) { return bt_phases[p].title; }
static const char *time_key_of_row(int p) { return bt_times[p].key; }
static const char *time_title_of_row(int p) { return bt_times[p].title; }

/* Returns the row-th kind among those events of events.def that begin, pause, continue or end training. */
static const char *pace_kind_of_row(int row) {
    for (int k = 0; k < BT_EVENT_COUNT; k++)
        if (bt_events[k].effect >= BT_EFFECT_BEGINS && bt_events[k].effect <= BT_EFFECT_ENDS &&
            row-- == 0)
            return bt_events[k].name;
    return NULL;
}
static const char *pause_kind_of_row(int row) {
    for (int k = 0; k < BT_EVENT_COUNT; k++)
        if (bt_events[k].effect == BT_EFFECT_PAUSES && row-- == 0) return bt_events[k].name;
    return NULL;
}

static const struct list {
    const char *name;
    int n;
    const char *(*key)(int row), *(*title)(int row);
} lists[] = {{"phases", BT_PHASE_COUNT, phase_key_of_row, phase_title_of_row},
             {"times", BT_TIME_PARTS, time_key_of_row, time_title_of_row},
             {"paces", BT_EVENT_COUNT, pace_kind_of_row, pace_kind_of_row},
             {"pauses", BT_EVENT_COUNT, pause_kind_of_row, pause_kind_of_row}};

static const struct list *find_list(const char *brace) {
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (is_whole_word(brace + 1, word_length(brace + 1), lists[i].name)) return &lists[i];
    return NULL;
}

static bt_code expand_list(bt_text *out, const struct list *l, const char **sql, bt_err *err) {
    const char *between = *sql + 1 + strlen(l->name), *body = strchr(between, '|'),
               *end = body ? strchr(body, '}') : NULL;
    if (!end) return bt_fail(err, BT_ARG, "'{%s' is not closed by '|...}'", l->name);
    for (int row = 0; row < l->n && l->key(row); row++) {
        if (row) bt_text_putn(out, between, (size_t)(body - between));
        for (const char *c = body + 1; c < end; c++) {
            if (*c == '@')
                bt_text_put(out, l->key(row));
            else if (*c == '#')
                bt_text_put(out, l->title(row));
            else
                bt_text_putn(out, c, 1);
        }
    }
    *sql = end + 1;
    return BT_OK;
}

bt_code bt_sql_expand(bt_text *out, const char *sql, bt_err *err) {
    while (*sql) {
        size_t n = strcspn(sql, "{");
        bt_text_putn(out, sql, n);
        sql += n;
        if (!*sql) break;
        const bt_derived_row *d = find_derived_row(sql);
        const struct list *l = find_list(sql);
        if (d)
            BT_TRY(put_derived_expression(out, d, &sql, err));
        else if (l)
            BT_TRY(expand_list(out, l, &sql, err));
        else
            bt_text_putn(out, sql++, 1);
    }
    return out->failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory") : BT_OK;
}
