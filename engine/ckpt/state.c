/* state.c - converts rows of state to slices and JSON values, and back. */
#include "engine/ckpt/state.h"
#include "engine/base/system/json_starved.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bt_slices_add(bt_slices *l, const bt_ckpt_slice *s) {
    if (s->count == 0 || l->failed) return;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        bt_ckpt_slice *more = realloc(l->at, cap * sizeof *more);
        if (!more) {
            l->failed = true;
            return;
        }
        l->at = more;
        l->cap = cap;
    }
    l->at[l->n++] = *s;
}

bt_code bt_slices_done(const bt_slices *l, bt_err *err) {
    return l->failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the list of %zu slices",
                               2 * l->cap)
                     : BT_OK;
}

void bt_slices_release(bt_slices *l) {
    free(l->at);
    *l = (bt_slices){0};
}

/* A bt_state_values is a jansson object, or NULL. */
static const json_t *state_value(const bt_state_values *v, const char *key) {
    return json_object_get((const json_t *)v, key);
}

int64_t bt_state_int(const bt_state_values *v, const char *key, int64_t otherwise) {
    const json_t *x = state_value(v, key);
    return json_is_integer(x) ? (int64_t)json_integer_value(x) : otherwise;
}

bool bt_state_bool(const bt_state_values *v, const char *key, bool otherwise) {
    const json_t *x = state_value(v, key);
    return json_is_boolean(x) ? json_is_true(x) : otherwise;
}

double bt_state_real(const bt_state_values *v, const char *key, double otherwise) {
    const json_t *x = state_value(v, key);
    return json_is_number(x) ? json_number_value(x) : otherwise;
}

const char *bt_state_text(const bt_state_values *v, const char *key) {
    return json_string_value(state_value(v, key));
}

size_t bt_state_ints(const bt_state_values *v, const char *key, int64_t *out, size_t most) {
    const json_t *list = state_value(v, key);
    const size_t all = json_array_size(list), n = all < most ? all : most;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, all - n + i);
        if (!json_is_integer(x)) return 0;
        out[i] = (int64_t)json_integer_value(x);
    }
    return n;
}

size_t bt_state_count(const bt_state_values *v, const char *key) {
    return json_array_size(state_value(v, key));
}

double bt_ckpt_state_real(const bt_ckpt_meta *m, const char *row, const char *key,
                          double otherwise) {
    json_t *all = json_loads(bt_text_str(&m->state), 0, NULL);
    double x = bt_state_real((bt_state_values *)json_object_get(all, row), key, otherwise);
    json_decref(all);
    return x;
}

void bt_ckpt_state_text(const bt_ckpt_meta *m, const char *row, const char *key,
                        const char *otherwise, char *out, size_t size) {
    json_t *all = json_loads(bt_text_str(&m->state), 0, NULL);
    const char *text = bt_state_text((bt_state_values *)json_object_get(all, row), key);
    snprintf(out, size, "%s", text ? text : otherwise);
    json_decref(all);
}

void bt_state_add(bt_state *s, const bt_state_row *row) {
    assert(s->n < BT_STATE_ROWS);
    for (size_t i = 0; i < s->n; i++) assert(strcmp(s->rows[i].name, row->name) != 0);
    s->rows[s->n++] = *row;
}

bt_code bt_state_slices(const bt_state *s, bt_state_use use, bt_slices *out, bt_err *err) {
    *out = (bt_slices){0};
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].slices) s->rows[i].slices(s->rows[i].ctx, use, out);
    bt_code code = bt_slices_done(out, err);
    if (code != BT_OK) bt_slices_release(out);
    return code;
}

bt_code bt_state_save_values(const bt_state *s, bt_text *out, bt_err *err) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->rows[i].save) continue;
        bt_json_object(&j, s->rows[i].name);
        s->rows[i].save(s->rows[i].ctx, &j);
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, '}');
    return out->failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the checkpoint's state")
                       : BT_OK;
}

bt_code bt_state_load_values(const bt_state *s, const bt_text *values, bt_err *err) {
    json_error_t e;
    json_t *all = json_loads(bt_text_str(values), 0, &e);
    if (!all && bt_json_starved(&e))
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the checkpoint's state");
    if (!json_is_object(all)) {
        json_decref(all);
        return bt_fail(err, BT_FORMAT, "the state in the checkpoint's manifest cannot be read: %s",
                       e.text);
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].load)
            s->rows[i].load(s->rows[i].ctx,
                            (const bt_state_values *)json_object_get(all, s->rows[i].name));
    json_decref(all);
    return BT_OK;
}
