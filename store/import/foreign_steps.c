/* foreign_steps.c - collects the values of a foreign run and brings its steps into order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/import/foreign_run.h"

static bool has_name_line(const bt_text *lines, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = bt_text_str(lines); *at;) {
        const size_t line = strcspn(at, "\n");
        if (line == n && memcmp(at, name, n) == 0) return true;
        at += line + (at[line] == '\n');
    }
    return false;
}

bool bt_foreign_run_unused(bt_foreign_run *r, const char *name) {
    enum { NAMES_MOST = 1000 };
    if (strchr(name, '\n') || r->n_unused == NAMES_MOST || has_name_line(&r->unused, name))
        return true;
    r->n_unused++;
    bt_text_printf(&r->unused, "%s%s", r->unused.len ? "\n" : "", name);
    return !r->unused.failed;
}

bool bt_foreign_run_add(bt_foreign_run *r, int64_t step, double wall_s, const char *name,
                        double value) {
    const int metric = bt_metric_of_name(name);
    if (metric < 0) return bt_foreign_run_unused(r, name);
    bt_foreign_step *last = r->n ? &r->at[r->n - 1] : NULL;
    if (!last || last->step != step) {
        if (r->n == r->cap) {
            const size_t cap = r->cap ? 2 * r->cap : 256;
            bt_foreign_step *at = realloc(r->at, cap * sizeof *at);
            if (!at) return false;
            r->at = at;
            r->cap = cap;
        }
        last = &r->at[r->n];
        *last = (bt_foreign_step){.step = step, .wall_s = wall_s, .arrival = r->n};
        r->n++;
        for (int i = 0; i < BT_MS_COUNT; i++) last->values[i] = NAN;
    }
    if (isfinite(wall_s)) last->wall_s = wall_s;
    last->values[metric] = value;
    return true;
}

static int compare_steps_then_arrival(const void *a, const void *b) {
    const bt_foreign_step *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->arrival > y->arrival) - (x->arrival < y->arrival);
}

void bt_foreign_run_merge(bt_foreign_run *r) {
    size_t kept = 0;
    if (r->n) qsort(r->at, r->n, sizeof *r->at, compare_steps_then_arrival);
    for (size_t i = 0; i < r->n; i++) {
        if (!kept || r->at[kept - 1].step != r->at[i].step) {
            r->at[kept++] = r->at[i];
            continue;
        }
        bt_foreign_step *to = &r->at[kept - 1];
        if (isfinite(r->at[i].wall_s)) to->wall_s = r->at[i].wall_s;
        for (int v = 0; v < BT_MS_COUNT; v++)
            if (!isnan(r->at[i].values[v])) to->values[v] = r->at[i].values[v];
    }
    r->n = kept;
}
