/* read_csv.c - a table with a header line: commas, semicolons or tabs between the cells, quotes as in RFC 4180. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/import/foreign_run.h"

enum { COLUMNS_MOST = 1024 };

/* Reads one cell at *at and moves *at behind it and its separator. *last: the cell ends its line. */
static bool read_cell(const char **at, char separator, bt_text *cell, bool *last) {
    const char *p = *at;
    bt_text_clear(cell);
    const bool quoted = *p == '"';
    if (quoted) p++;
    while (*p && (quoted || (*p != separator && *p != '\n'))) {
        if (quoted && *p == '"') {
            if (p[1] != '"') break;
            p++;
        }
        if (quoted || *p != '\r') bt_text_putn(cell, p, 1);
        p++;
    }
    if (quoted) {
        if (*p != '"') return false; /* the quote does not end */
        p++;
        if (*p == '\r') p++;
        if (*p && *p != separator && *p != '\n') return false;
    }
    *last = *p != separator;
    *at = p + (*p != '\0');
    return !cell->failed;
}

static double parse_cell_number(const bt_text *cell) {
    char *end;
    const double v = strtod(bt_text_str(cell), &end);
    return cell->len && !*end ? v : NAN;
}

typedef struct columns {
    char *name[COLUMNS_MOST];
    double value[COLUMNS_MOST]; /* cells of the current line; NaN: empty or not a number */
    bool has_number[COLUMNS_MOST];
    size_t n;
    int step, wall; /* index; -1: none */
} columns;

static bt_code read_header(columns *c, const char **at, char separator, const char *path,
                           bt_err *err) {
    bt_text cell = {0};
    bt_code code = BT_OK;
    for (bool last = false; !last && code == BT_OK;) {
        if (c->n == COLUMNS_MOST)
            code = bt_fail(err, BT_UNSUPPORTED, "'%s' has more than %d columns", path,
                           COLUMNS_MOST);
        else if (!read_cell(at, separator, &cell, &last) ||
                 !(c->name[c->n] = strdup(bt_text_str(&cell))))
            code = bt_fail(err, BT_FORMAT, "'%s': the header line is not CSV", path);
        else
            c->n++;
    }
    bt_text_release(&cell);
    for (size_t i = 0; i < c->n; i++) {
        if (c->step < 0 && bt_is_step_name(c->name[i])) c->step = (int)i;
        if (c->wall < 0 && bt_is_wall_name(c->name[i])) c->wall = (int)i;
    }
    if (code == BT_OK && c->step < 0)
        code = bt_fail(err, BT_FORMAT,
                       "'%s' has no column for the step (step, global_step or iteration) in its "
                       "first line",
                       path);
    return code;
}

static bool add_csv_line(bt_foreign_run *r, columns *c) {
    const double step = c->value[c->step];
    if (!(fabs(step) < 1e15)) return true; /* a line without a step */
    for (size_t i = 0; i < c->n; i++) {
        if ((int)i == c->step || (int)i == c->wall || isnan(c->value[i])) continue;
        c->has_number[i] = true;
        if (!bt_foreign_run_add(r, (int64_t)step, c->wall < 0 ? NAN : c->value[c->wall], c->name[i],
                                c->value[i]))
            return false;
    }
    return true;
}

bt_code bt_read_csv(bt_foreign_run *r, const char *path, const char *text, bt_err *err) {
    columns *c = calloc(1, sizeof *c);
    bt_text cell = {0};
    if (!c) return bt_fail(err, BT_NOMEM, "no memory for '%s'", path);
    c->step = c->wall = -1;
    const char *at = text;
    if (strncmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
    const size_t head = strcspn(at, "\n");
    const char separator = memchr(at, '\t', head) ? '\t' : memchr(at, ',', head) ? ',' : ';';
    bt_code code = read_header(c, &at, separator, path, err);
    for (int64_t line = 2; code == BT_OK && *at; line++) {
        bool last = false;
        size_t n = 0;
        for (size_t i = 0; i < c->n; i++) c->value[i] = NAN;
        while (!last && code == BT_OK) {
            if (!read_cell(&at, separator, &cell, &last))
                code = bt_fail(err, BT_FORMAT, "'%s', line %lld: the quotes are not closed", path,
                               (long long)line);
            else if (n < c->n)
                c->value[n++] = parse_cell_number(&cell);
            else
                code = bt_fail(err, BT_FORMAT, "'%s', line %lld has more than %zu cells", path,
                               (long long)line, c->n);
        }
        if (code == BT_OK && !add_csv_line(r, c))
            code = bt_fail(err, BT_NOMEM, "no memory for '%s'", path);
    }
    for (size_t i = 0; i < c->n; i++) {
        if (code == BT_OK && !c->has_number[i] && (int)i != c->step && (int)i != c->wall)
            (void)bt_foreign_run_unused(r, c->name[i]);
        free(c->name[i]);
    }
    bt_text_release(&cell);
    free(c);
    return code;
}
