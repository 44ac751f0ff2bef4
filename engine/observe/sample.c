/* sample.c - collects the rows of one scope. */
#include "engine/observe/sample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t bt_sample_bytes(bt_scope scope, size_t max_rows) {
    const bt_scope_row *row = &bt_scopes[scope];
    return max_rows * ((size_t)row->n_keys * sizeof(bt_key) + (size_t)row->n * sizeof(double));
}

bt_code bt_sample_init(bt_sample *s, bt_scope scope, size_t max_rows, bt_err *err) {
    const bt_scope_row *row = &bt_scopes[scope];
    *s = (bt_sample){.scope = scope, .max = max_rows};
    s->keys = calloc(max_rows * (size_t)row->n_keys + 1, sizeof *s->keys);
    s->values = calloc(max_rows * (size_t)row->n + 1, sizeof *s->values);
    if (!s->keys || !s->values)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu rows of '%s'", max_rows,
                       row->view);
    return BT_OK;
}

void bt_sample_release(bt_sample *s) {
    free(s->keys);
    free(s->values);
    *s = (bt_sample){.scope = s->scope};
}

double *bt_sample_add(bt_sample *s, const bt_key *keys) {
    const bt_scope_row *row = &bt_scopes[s->scope];
    assert(s->n < s->max);
    double *v = s->values + s->n * (size_t)row->n;
    memcpy(s->keys + s->n * (size_t)row->n_keys, keys, (size_t)row->n_keys * sizeof *keys);
    for (int i = 0; i < row->n; i++) v[i] = NAN;
    s->n++;
    return v;
}

void bt_sample_send(bt_sample *s, const bt_sink *sink, int64_t step) {
    const bt_row_record r = {
        .scope = s->scope, .step = step, .n = s->n, .keys = s->keys, .values = s->values};
    if (s->n > 0 && sink->rows) sink->rows(sink->ctx, &r);
    s->n = 0;
}
