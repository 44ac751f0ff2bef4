/* curve_table.c - reads a table of curves and computes the mean over seeds. */
#include "cli/common/curve_table.h"
#include "cli/common/printout/printout.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/database.h"

#define COLUMNS "recipe\tcorpus\tseed\tminutes\ttokens\tbits_per_byte"

enum { NAME = 32 };

typedef struct row {
    char recipe[NAME], corpus[NAME];
    long long seed;
    double minutes, tokens, bits;
    size_t group;
} row;

typedef struct group {
    size_t first, n, seeds; /* rows first .. first + n; seeds: number of seeds */
} group;

struct bt_curves {
    row *rows;
    group *groups;
    double *minutes, *tokens, *bits; /* points of all groups */
    size_t n_rows, n_groups;
    bool corpora; /* there are several corpora */
};

void bt_curves_head(FILE *f) { fprintf(f, "%s\n", COLUMNS); }

void bt_curves_put(FILE *f, const char *recipe, const char *corpus, long long seed, double minutes,
                   double tokens, double bits) {
    fprintf(f, "%s\t%s\t%lld\t%.4f\t%.0f\t%.4f\n", recipe, corpus, seed, minutes, tokens, bits);
}

static bool parse_curve_row(const char *line, row *r) {
    char rest;
    *r = (row){.seed = 0};
    return sscanf(line, "%31[^\t]\t%31[^\t]\t%lld\t%lf\t%lf\t%lf %c", r->recipe, r->corpus,
                  &r->seed, &r->minutes, &r->tokens, &r->bits, &rest) == 6 &&
           isfinite(r->minutes) && isfinite(r->tokens) && isfinite(r->bits);
}

static bt_code add_curve_line(bt_curves *c, const char *path, size_t number, char *line, bool *head,
                              bt_err *err) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#' || line[0] == '\0') return BT_OK;
    if (!*head) {
        *head = true;
        return strcmp(line, COLUMNS) == 0
                   ? BT_OK
                   : bt_fail(err, BT_FORMAT,
                             "'%.200s' line %zu: not the columns of curves (made by: bitrain bench "
                             "learn --curves FILE)",
                             path, number);
    }
    if (c->n_rows % 1024 == 0) {
        row *more = realloc(c->rows, (c->n_rows + 1024) * sizeof *more);
        if (!more) return bt_fail(err, BT_NOMEM, "no memory for %zu lines", c->n_rows);
        c->rows = more;
    }
    if (!parse_curve_row(line, &c->rows[c->n_rows]))
        return bt_fail(err, BT_FORMAT,
                       "'%.200s' line %zu: not a recipe, a corpus, a seed and three numbers, with "
                       "tabs between them",
                       path, number);
    c->n_rows++;
    return BT_OK;
}

static bt_code read_curve_lines(bt_curves *c, const char *path, FILE *f, bt_err *err) {
    char *line = NULL;
    size_t size = 0, number = 0;
    bool head = false;
    bt_code code = BT_OK;
    while (code == BT_OK && getline(&line, &size, f) >= 0)
        code = add_curve_line(c, path, ++number, line, &head, err);
    free(line);
    if (code == BT_OK && c->n_rows == 0)
        code = bt_fail(err, BT_FORMAT,
                       "'%.200s' has no curves (made by: bitrain bench learn "
                       "--curves FILE)",
                       path);
    return code;
}

static void find_groups(bt_curves *c) {
    for (size_t i = 0; i < c->n_rows; i++) {
        row *r = &c->rows[i];
        size_t k = 0;
        while (k < i && (strcmp(c->rows[k].recipe, r->recipe) != 0 ||
                         strcmp(c->rows[k].corpus, r->corpus) != 0))
            k++;
        r->group = k < i ? c->rows[k].group : c->n_groups++;
        c->corpora |= strcmp(r->corpus, c->rows[0].corpus) != 0;
    }
}

static int compare_group_and_tokens(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->tokens != y->tokens) return x->tokens < y->tokens ? -1 : 1;
    return (x->seed > y->seed) - (x->seed < y->seed);
}

/* Returns the number of seeds in rows first .. end, which belong to one group. */
static size_t count_seeds(const bt_curves *c, size_t first, size_t end) {
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        bool seen = false;
        for (size_t k = first; k < i && !seen; k++) seen = c->rows[k].seed == c->rows[i].seed;
        n += !seen;
    }
    return n;
}

static void compute_group_mean(bt_curves *c, size_t first, size_t end, size_t *n) {
    group *g = &c->groups[c->rows[first].group];
    *g = (group){.first = *n, .seeds = count_seeds(c, first, end)};
    for (size_t i = first, next; i < end; i = next) {
        double minutes = 0, bits = 0;
        for (next = i; next < end && c->rows[next].tokens == c->rows[i].tokens; next++) {
            minutes += c->rows[next].minutes;
            bits += c->rows[next].bits;
        }
        if (next - i != g->seeds) continue;
        c->minutes[*n] = minutes / (double)g->seeds;
        c->bits[*n] = bits / (double)g->seeds;
        c->tokens[(*n)++] = c->rows[i].tokens;
    }
    g->n = *n - g->first;
}

static bt_code compute_group_means(bt_curves *c, bt_err *err) {
    find_groups(c);
    c->groups = calloc(c->n_groups, sizeof *c->groups);
    c->minutes = calloc(c->n_rows, sizeof *c->minutes);
    c->tokens = calloc(c->n_rows, sizeof *c->tokens);
    c->bits = calloc(c->n_rows, sizeof *c->bits);
    if (!c->groups || !c->minutes || !c->tokens || !c->bits)
        return bt_fail(err, BT_NOMEM, "no memory for %zu points", c->n_rows);
    qsort(c->rows, c->n_rows, sizeof *c->rows, compare_group_and_tokens);
    size_t n = 0;
    for (size_t first = 0, end; first < c->n_rows; first = end) {
        for (end = first; end < c->n_rows && c->rows[end].group == c->rows[first].group;) end++;
        compute_group_mean(c, first, end, &n);
    }
    return BT_OK;
}

bt_code bt_curves_read(bt_curves **out, const char *path, bt_err *err) {
    *out = NULL;
    FILE *f = fopen(path, "r");
    if (!f) return bt_fail_errno(err, BT_NOTFOUND, errno, "cannot open '%.200s'", path);
    bt_curves *c = calloc(1, sizeof *c);
    bt_code code = c ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for curves");
    if (code == BT_OK) code = read_curve_lines(c, path, f, err);
    if (code == BT_OK) code = compute_group_means(c, err);
    (void)fclose(f);
    if (code == BT_OK)
        *out = c;
    else
        bt_curves_free(c);
    return code;
}

void bt_curves_free(bt_curves *c) {
    if (!c) return;
    free(c->rows);
    free(c->groups);
    free(c->minutes);
    free(c->tokens);
    free(c->bits);
    free(c);
}

size_t bt_curves_count(const bt_curves *c) { return c->n_groups; }

bt_curve bt_curves_at(const bt_curves *c, size_t i) {
    const group *g = &c->groups[i];
    bt_curve curve = {.seeds = g->seeds,
                      .n = g->n,
                      .minutes = c->minutes + g->first,
                      .tokens = c->tokens + g->first,
                      .bits = c->bits + g->first};
    const row *r = c->rows;
    while (r->group != i) r++;
    snprintf(curve.name, sizeof curve.name, "%s%s%s", r->recipe, c->corpora ? " " : "",
             c->corpora ? r->corpus : "");
    return curve;
}

void bt_curves_point_json(bt_json *j, double minutes, double tokens, double bits) {
    bt_json_object(j, NULL);
    bt_json_num(j, "minutes", minutes);
    bt_json_num(j, "tokens", tokens);
    bt_json_num(j, "bits_per_byte", bits);
    bt_json_end(j, '}');
}

bt_code bt_curves_print(const bt_curves *c, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, true);
    bt_json_array(&o.j, "curves");
    for (size_t i = 0; i < c->n_groups; i++) {
        const bt_curve x = bt_curves_at(c, i);
        bt_json_object(&o.j, NULL);
        bt_json_str(&o.j, "name", x.name);
        bt_json_int(&o.j, "seeds", (int64_t)x.seeds);
        bt_json_array(&o.j, "points");
        for (size_t k = 0; k < x.n; k++)
            bt_curves_point_json(&o.j, x.minutes[k], x.tokens[k], x.bits[k]);
        bt_json_end(&o.j, ']');
        bt_json_end(&o.j, '}');
    }
    bt_json_end(&o.j, ']');
    return bt_printout_print(&o, err);
}
