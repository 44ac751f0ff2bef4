/* compare_groups.c - mean and spread of a metric over the runs that share the value of a setting; the best group, and
 * the confidence that it is the best, from runs that form pairs. */
#include "cli/runs/compare_groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/runs/paired.h"
#include "cli/runs/run_filter.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_cfg.h"

enum { KEYS = 4, VALUE = 64, RUNS_MOST = 4096 };

typedef struct member {
    char run[BT_NAME_MAX], value[KEYS][VALUE], pair[VALUE];
    double steps;
    bt_level level;
} member;

typedef struct group {
    const member *first; /* member whose values represent the group */
    const member *best;
    size_t n, without; /* number of runs with a value, and without */
    double sum, sum_squares;
    bt_paired behind; /* differences from the best group's runs of the same pairs */
} group;

typedef struct job {
    const bt_group_cfg *cfg;
    const char *keys[KEYS], *paired; /* paired: setting whose value forms pairs; NULL: none */
    size_t n_keys, n, n_groups;
    const char *const *names; /* given names; none: all runs that match the filters */
    size_t n_names;
    member *members;
    group *groups;
    const group *winner;
    double confidence; /* confidence that the winner is the best group */
    bool full;
} job;

/* option: the option of the command line that contains the key, for the message */
static bt_code find_whole_key(const char **whole, const char *option, const char *key,
                              bt_err *err) {
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const char *dot = strrchr(bt_run_opts[i].key, '.');
        *whole = bt_run_opts[i].key;
        if (strcmp(*whole, key) == 0 || (dot && strcmp(dot + 1, key) == 0)) return BT_OK;
    }
    return bt_fail(err, BT_ARG, "%s: no setting '%.60s' (`bitrain help options` lists them)",
                   option, key);
}

static bt_code split_keys(job *j, char *text, bt_err *err) {
    for (char *rest = text, *key; (key = strsep(&rest, ",")) != NULL;) {
        const char *whole;
        BT_TRY(find_whole_key(&whole, "--group-by", key, err));
        if (j->n_keys == KEYS) return bt_fail(err, BT_ARG, "--group-by: at most %d settings", KEYS);
        j->keys[j->n_keys++] = whole;
    }
    if (j->cfg->paired[0]) BT_TRY(find_whole_key(&j->paired, "--paired", j->cfg->paired, err));
    return BT_OK;
}

static bool read_member(void *ctx, const bt_row *row) {
    job *j = ctx;
    bool wanted = j->n_names == 0;
    for (size_t i = 0; i < j->n_names; i++) wanted |= strcmp(j->names[i], row->cells[0]) == 0;
    if (!wanted) return true;
    if (j->n == RUNS_MOST) {
        j->full = true;
        return false;
    }
    member *m = &j->members[j->n++];
    snprintf(m->run, sizeof m->run, "%s", row->cells[0]);
    m->steps = row->nums[1];
    for (size_t k = 0; k < j->n_keys; k++)
        snprintf(m->value[k], VALUE, "%s", row->cells[2 + k] ? row->cells[2 + k] : "-");
    if (j->paired)
        snprintf(m->pair, VALUE, "%s", row->cells[2 + j->n_keys] ? row->cells[2 + j->n_keys] : "-");
    return true;
}

static bt_code load_group_members(job *j, bt_db *db, const char *const *filters, size_t n,
                                  bt_err *err) {
    bt_run_filter f;
    bt_text sql;
    bt_text_init(&sql);
    bt_code code = bt_run_filter_init(&f, db, filters, n, err);
    if (code == BT_OK) {
        bt_text_put(&sql, "SELECT run, steps");
        for (size_t k = 0; k < j->n_keys + (j->paired != NULL); k++)
            bt_text_printf(
                &sql, ", (SELECT value FROM configs c WHERE c.run = runs.run AND c.key = '%s')",
                k < j->n_keys ? j->keys[k] : j->paired);
        bt_text_printf(&sql, " FROM runs%s ORDER BY started_s", bt_text_str(&f.where));
        code = bt_db_query(
            db, &(bt_query){.sql = bt_text_str(&sql), .params = f.params, .n_params = f.n_params},
            read_member, j, err);
    }
    bt_run_filter_release(&f);
    bt_text_release(&sql);
    if (code == BT_OK && j->full)
        code = bt_fail(err, BT_ARG, "more than %d runs (give a filter: group=NAME)", RUNS_MOST);
    return code;
}

/* Divides words into names of runs and filters. names has room for 2 n pointers; the filters begin at n. */
static bt_code sort_words(bt_db *db, const char *const *words, size_t n, const char **names,
                          size_t *n_names, size_t *n_filters, bt_err *err) {
    const char **filters = names + n;
    *n_names = *n_filters = 0;
    for (size_t i = 0; i < n; i++) {
        double there = 0;
        BT_TRY(bt_db_value(db, "SELECT count(*) FROM runs WHERE run = ?1", words[i], &there, err));
        if (there > 0)
            names[(*n_names)++] = words[i];
        else
            filters[(*n_filters)++] = words[i];
    }
    if (*n_filters > BT_FILTER_WORDS)
        return bt_fail(err, BT_ARG, "at most %d filters", BT_FILTER_WORDS);
    return BT_OK;
}

static int compare_values(const char *a, const char *b) {
    char *ea, *eb;
    const double x = strtod(a, &ea), y = strtod(b, &eb);
    if (ea != a && !*ea && eb != b && !*eb) return (x > y) - (x < y);
    return strcmp(a, b);
}

static int compare_group_values(const void *a, const void *b) {
    const group *x = a, *y = b;
    for (int k = 0; k < KEYS; k++) {
        const int c = compare_values(x->first->value[k], y->first->value[k]);
        if (c) return c;
    }
    return 0;
}

static bool is_in_group(const job *j, const group *g, const member *m) {
    for (size_t k = 0; k < j->n_keys; k++)
        if (compare_values(g->first->value[k], m->value[k]) != 0) return false;
    return true;
}

static void add_group_member(job *j, const member *m) {
    group *g = NULL;
    for (size_t i = 0; i < j->n_groups && !g; i++)
        if (is_in_group(j, &j->groups[i], m)) g = &j->groups[i];
    if (!g) {
        g = &j->groups[j->n_groups++];
        *g = (group){.first = m};
    }
    if (isnan(m->level.value)) {
        g->without++;
        return;
    }
    g->n++;
    g->sum += m->level.value;
    g->sum_squares += m->level.value * m->level.value;
    if (!g->best || m->level.value < g->best->level.value) g->best = m;
}

static double group_mean(const group *g) { return g->n ? g->sum / (double)g->n : NAN; }

/* Standard deviation over the runs; NaN for a single run. */
static double group_deviation(const group *g) {
    if (g->n < 2) return NAN;
    const double n = (double)g->n, m = g->sum / n;
    return sqrt(fmax(0, (g->sum_squares - n * m * m) / (n - 1)));
}

static bt_code compare_with_base_group(job *j, bt_db *db, bt_at *at, bt_err *err) {
    for (size_t i = 0; i < j->n && isnan(j->cfg->at.x); i++) {
        double end;
        const char *name = j->members[i].run;
        if (!(j->members[i].steps > 0)) continue; /* it has no value */
        BT_TRY(bt_db_common_end(db, &name, 1, at->axis, &end, err));
        if (isnan(at->x) || end < at->x) at->x = end;
    }
    for (size_t i = 0; i < j->n; i++) {
        member *m = &j->members[i];
        m->level = (bt_level){.value = NAN, .noise = NAN};
        if (m->steps > 0)
            BT_TRY(bt_db_level(db, m->run, j->cfg->metric, at, j->cfg->window, &m->level, err));
        add_group_member(j, m);
    }
    qsort(j->groups, j->n_groups, sizeof *j->groups, compare_group_values);
    return BT_OK;
}

/* *out: the run of the group with this pair value; NULL: it has none */
static bt_code find_pair(const job *j, const group *g, const char *pair, const member **out,
                         bt_err *err) {
    *out = NULL;
    for (size_t i = 0; i < j->n; i++) {
        const member *m = &j->members[i];
        if (isnan(m->level.value) || strcmp(m->pair, pair) != 0 || !is_in_group(j, g, m)) continue;
        if (*out)
            return bt_fail(err, BT_ARG,
                           "runs '%s' and '%s' have the same settings and %s=%s: of a group only "
                           "one run can be of a pair (name the runs to compare)",
                           (*out)->run, m->run, j->paired, pair);
        *out = m;
    }
    return BT_OK;
}

static bt_code pair_group(const job *j, group *g, double *differences, bt_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < j->n; i++) {
        const member *best, *own, *m = &j->members[i];
        if (isnan(m->level.value) || !is_in_group(j, g, m)) continue;
        BT_TRY(find_pair(j, g, m->pair, &own, err));
        BT_TRY(find_pair(j, j->winner, m->pair, &best, err));
        if (best) differences[n++] = m->level.value - best->level.value;
    }
    g->behind = bt_paired_of(differences, n);
    return BT_OK;
}

/* The best group has the smallest mean. This group was chosen after the measurement, so its confidence is corrected for
 * all pairs of groups (Bonferroni): 1 - pairs * (largest p against another group). */
static bt_code find_winner(job *j, bt_err *err) {
    double *differences = calloc(j->n, sizeof *differences), p = 0;
    const double k = (double)j->n_groups;
    if (!differences) return bt_fail(err, BT_NOMEM, "cannot compare: out of memory");
    for (size_t i = 0; i < j->n_groups; i++)
        if (j->groups[i].n && (!j->winner || group_mean(&j->groups[i]) < group_mean(j->winner)))
            j->winner = &j->groups[i];
    bt_code code = BT_OK;
    for (size_t i = 0; code == BT_OK && j->winner && i < j->n_groups; i++) {
        group *g = &j->groups[i];
        code = pair_group(j, g, differences, err);
        const bool ahead = g->behind.mean > 0 && !isnan(g->behind.confidence);
        if (g != j->winner) p = fmax(p, ahead ? 1 - g->behind.confidence : 1);
    }
    j->confidence = j->n_groups > 1 ? fmax(0, 1 - k * (k - 1) / 2 * p) : NAN;
    free(differences);
    return code;
}

static void put_group_settings(bt_printout *o, const job *j, const group *g) {
    bt_printout_object(o, "settings");
    for (size_t k = 0; k < j->n_keys; k++)
        bt_printout_str(o, j->keys[k], j->keys[k], g->first->value[k]);
    if (o->json) bt_json_end(&o->j, '}');
}

static void put_winner(bt_printout *o, const job *j) {
    if (!j->winner) return;
    if (o->json) {
        bt_printout_object(o, "winner");
        put_group_settings(o, j, j->winner);
        bt_printout_num(o, "confidence", NULL, j->confidence, BT_UNIT_NONE);
        bt_printout_end(o);
        return;
    }
    bt_printout_line(o, "smallest mean:");
    for (size_t k = 0; k < j->n_keys; k++)
        bt_printout_line(o, " %s=%s", j->keys[k], bt_text_shown(j->winner->first->value[k]));
    bt_printout_line(o, "; confidence that it is the best of %zu: %.1f %% (runs paired by %s)\n",
                     j->n_groups, 100 * j->confidence, j->paired);
}

static void put_compared_group(bt_printout *o, const job *j, const group *g) {
    bt_printout_row(o);
    put_group_settings(o, j, g);
    bt_printout_int(o, "runs", "RUNS", (int64_t)(g->n + g->without));
    bt_printout_int(o, "without_value", NULL, (int64_t)g->without);
    bt_printout_numf(o, "mean", "MEAN", group_mean(g), 1, "%.6g");
    bt_printout_numf(o, "spread", "SPREAD", group_deviation(g), 1, "%.6g");
    bt_printout_numf(o, "smallest", "SMALLEST", g->best ? g->best->level.value : NAN, 1, "%.6g");
    bt_printout_str(o, "smallest_run", "OF RUN", g->best ? g->best->run : NULL);
    if (j->paired) {
        const bt_paired none = {.mean = NAN, .error = NAN, .confidence = NAN}, *b = &g->behind;
        if (g == j->winner) b = &none;
        bt_printout_int(o, "pairs", "PAIRS", (int64_t)b->n);
        bt_printout_numf(o, "behind", "BEHIND", b->mean, 1, "%+.6g");
        bt_printout_numf(o, "behind_error", "+-", b->error, 1, "%.2g");
        bt_printout_numf(o, "confidence", "CONFIDENCE", b->confidence, 100, "%.1f %%");
    }
    if (g->without)
        bt_printout_cellf(o, "", "(%zu without a value)", g->without);
    else
        bt_printout_str(o, NULL, "", "");
    bt_printout_end(o);
}

static bt_code print_groups(const job *j, const bt_at *at, bt_err *err) {
    static const char *const axis[] = {"tokens", "step", "time_s"}, *const words[] = {"tokens",
                                                                                      "steps",
                                                                                      "seconds"};
    bt_printout o;
    char x[64];
    bt_printout_begin(&o, j->cfg->json);
    bt_printout_version(&o);
    bt_printout_line(&o, "%s of %zu runs at %s %s, mean of %d records\n", j->cfg->metric, j->n,
                     bt_metric_format(x, sizeof x, at->x, BT_UNIT_COUNT), words[at->axis],
                     j->cfg->window);
    bt_printout_str(&o, "metric", NULL, j->cfg->metric);
    bt_printout_object(&o, "at");
    bt_printout_num(&o, axis[at->axis], NULL, at->x, BT_UNIT_COUNT);
    bt_printout_end(&o);
    bt_printout_rows(&o, "groups");
    for (size_t i = 0; i < j->n_groups; i++) put_compared_group(&o, j, &j->groups[i]);
    bt_printout_rows_end(&o, "  ");
    if (j->paired) put_winner(&o, j);
    return bt_printout_print(&o, err);
}

bt_code bt_compare_groups(bt_db *db, const bt_group_cfg *cfg, const char *const *words, size_t n,
                          bt_err *err) {
    char keys[256];
    job j = {.cfg = cfg};
    bt_at at = cfg->at;
    const char **sorted = calloc(2 * n + 2, sizeof *sorted);
    size_t n_filters = 0;
    snprintf(keys, sizeof keys, "%s", cfg->keys);
    j.members = calloc(RUNS_MOST, sizeof *j.members);
    j.groups = calloc(RUNS_MOST, sizeof *j.groups);
    bt_code code = sorted && j.members && j.groups
                       ? split_keys(&j, keys, err)
                       : bt_fail(err, BT_NOMEM, "cannot compare: out of memory");
    if (code == BT_OK) code = sort_words(db, words, n, sorted, &j.n_names, &n_filters, err);
    j.names = sorted;
    if (code == BT_OK) code = load_group_members(&j, db, sorted + n, n_filters, err);
    if (code == BT_OK && j.n == 0) code = bt_fail(err, BT_NOTFOUND, "no run matches");
    if (code == BT_OK) code = compare_with_base_group(&j, db, &at, err);
    if (code == BT_OK && j.paired) code = find_winner(&j, err);
    if (code == BT_OK) code = print_groups(&j, &at, err);
    free(sorted);
    free(j.members);
    free(j.groups);
    return code;
}
