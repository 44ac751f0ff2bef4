/* json_fields.c - writes members of a struct as JSON according to their kinds. */
#include "engine/base/system/json_fields.h"

#include <math.h>

void bt_json_at(bt_json *j, const char *key, int64_t v) {
    if (v >= 0)
        bt_json_int(j, key, v);
    else
        bt_json_null(j, key);
}

static void put_field(bt_json *j, const bt_json_field *f, const char *at) {
    switch (f->kind) {
    case BT_JSON_TEXT: bt_json_str(j, f->key, at); break;
    case BT_JSON_SAID: bt_json_str(j, f->key, at[0] ? at : NULL); break;
    case BT_JSON_WORD: bt_json_str(j, f->key, *(const char *const *)(const void *)at); break;
    case BT_JSON_REAL: bt_json_num(j, f->key, *(const double *)(const void *)at); break;
    case BT_JSON_KNOWN:
        if (!isnan(*(const double *)(const void *)at))
            bt_json_num(j, f->key, *(const double *)(const void *)at);
        break;
    case BT_JSON_INT: bt_json_int(j, f->key, *(const int *)(const void *)at); break;
    case BT_JSON_INT64: bt_json_int(j, f->key, *(const int64_t *)(const void *)at); break;
    case BT_JSON_SIZE: bt_json_int(j, f->key, (int64_t) * (const size_t *)(const void *)at); break;
    case BT_JSON_AT: bt_json_at(j, f->key, *(const int64_t *)(const void *)at); break;
    case BT_JSON_INDEX: bt_json_at(j, f->key, *(const int *)(const void *)at); break;
    case BT_JSON_BOOL: bt_json_bool(j, f->key, *(const bool *)(const void *)at); break;
    case BT_JSON_ENUM: bt_json_str(j, f->key, f->name(*(const int *)(const void *)at)); break;
    }
}

void bt_json_fields(bt_json *j, const void *from, const bt_json_field *f, size_t n) {
    for (size_t i = 0; i < n; i++) put_field(j, &f[i], (const char *)from + f[i].offset);
}

void bt_json_rows(bt_json *j, const char *key, const void *rows, size_t n, size_t size,
                  const bt_json_field *f, size_t n_fields) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) {
        bt_json_object(j, NULL);
        bt_json_fields(j, (const char *)rows + i * size, f, n_fields);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}
