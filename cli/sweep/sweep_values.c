/* sweep_values.c - formats the settings in which runs of a sweep differ, and compares two runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/sweep.h"

const bt_opt *bt_sweep_opt(const char *key) {
    for (size_t i = 0; i < bt_run_opts_n; i++)
        if (strcmp(bt_run_opts[i].key, key) == 0) return &bt_run_opts[i];
    return NULL;
}

void bt_sweep_put_settings(const bt_sweep_plan *p, const bt_sweep_run *r, bt_words *out) {
    const bt_sweep_file *f = p->file;
    if (f->head.config[0]) bt_words_put(out, f->head.config);
    for (size_t i = 0; i < f->n_settings; i++)
        bt_words_set(out, f->settings[i].opt->key, f->settings[i].value);
    for (size_t i = 0; i < f->n_axes; i++) bt_words_set(out, f->axes[i].opt->key, r->values[i]);
}

const char *bt_sweep_point(const bt_sweep_plan *p, const bt_sweep_run *r, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = 0;
    for (size_t i = 0; i < p->file->n_axes && used + 1 < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s=%s", i ? " " : "",
                                 p->file->axes[i].opt->key, r->values[i]);
    return buf;
}

bool bt_sweep_better(const bt_sweep_plan *p, const bt_sweep_run *a, const bt_sweep_run *b) {
    const double x = a->level.value, y = b->level.value;
    if (isnan(x) || isnan(y)) return isnan(x) == isnan(y) ? a < b : isnan(y);
    if (x < y || x > y) return p->file->head.better == 0 ? x < y : x > y;
    return a < b;
}
