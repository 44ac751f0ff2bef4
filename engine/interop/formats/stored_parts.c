/* stored_parts.c - divides joined tensors of a file, such as q, k and v, into those of formats.def. */
#include <stdio.h>
#include <string.h>

#include "engine/interop/formats/stored.h"

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0;
}

/* Describes the rows [from, from + p->rows) of a tensor as a tensor with another name. */
static bt_code describe_part(bt_stored *out, const bt_stored *whole, const char *joined,
                             const bt_stored_part *p, uint64_t from, bt_err *err) {
    const uint64_t row_bytes = whole->bytes / whole->rows;
    const int stem = (int)(strlen(whole->name) - strlen(joined));
    *out = *whole;
    if (snprintf(out->name, sizeof out->name, "%.*s%s", stem, whole->name, p->name) >=
        (int)sizeof out->name)
        return bt_fail(err, BT_FORMAT, "a name made from that of tensor '%s' would be too long",
                       whole->name);
    out->rows = p->rows;
    out->at = whole->at + from * row_bytes;
    out->bytes = p->rows * row_bytes;
    return BT_OK;
}

static bt_code split_tensor(bt_stored_list *l, size_t i, const char *joined,
                            const bt_stored_part *parts, size_t n, bt_err *err) {
    const bt_stored whole = l->at[i];
    uint64_t rows = 0, from = 0;
    for (size_t k = 0; k < n; k++) rows += parts[k].rows;
    if (whole.rows != rows || whole.number == BT_NUM_PACKED)
        return bt_fail(
            err, BT_FORMAT,
            "tensor '%s' has %llu rows, but should have %llu according to the model's sizes",
            whole.name, (unsigned long long)whole.rows, (unsigned long long)rows);
    for (size_t k = 0; k < n; k++) {
        bt_stored part;
        BT_TRY(describe_part(&part, &whole, joined, &parts[k], from, err));
        if (k == 0)
            l->at[i] = part;
        else
            BT_TRY(bt_stored_add(l, &part, err));
        from += parts[k].rows;
    }
    return BT_OK;
}

bt_code bt_stored_split(bt_stored_list *l, const char *joined, const bt_stored_part *parts,
                        size_t n, bt_err *err) {
    const size_t n_whole = l->n;
    for (size_t i = 0; i < n_whole; i++)
        if (ends_with(l->at[i].name, joined)) BT_TRY(split_tensor(l, i, joined, parts, n, err));
    return bt_stored_sort(l, err);
}
