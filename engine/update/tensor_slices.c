/* tensor_slices.c - contiguous ranges, and blocks of columns. */
#include "engine/update/tensor_slices.h"

#include "engine/base/small.h"

typedef struct block {
    const bt_tensor *x;
    const char *state;
    unsigned char *data; /* address of element `begin` of the block */
    size_t begin;
    bt_moment_form form;
} block;

/* Appends elements of the block; rows: only whole rows of a block of columns. */
static void add_block_slices(const block *b, bt_range r, bool rows, bt_slices *out) {
    const bt_tensor *x = b->x;
    if (r.begin >= r.end) return;
    bt_slices_add(
        out, &(bt_ckpt_slice){.tensor = x->name,
                              .state = b->state,
                              .tensor_elems = x->whole_rows * x->whole_cols,
                              .first = bt_tensor_place(x, r.begin),
                              .count = r.end - r.begin,
                              .data = b->data + (r.begin - b->begin) * bt_moment_bytes(b->form),
                              .type = bt_ckpt_type_of(b->form),
                              .width = rows ? (uint32_t)x->cols : 0,
                              .stride = rows ? (uint32_t)x->whole_cols : 0});
}

void bt_tensor_slices_in(const bt_tensor *x, const char *state, void *data, bt_moment_form form,
                         bt_range r, bt_slices *out) {
    const block b = {x, state, data, r.begin, form};
    if (r.begin >= r.end) return;
    if (x->cols == x->whole_cols) {
        add_block_slices(&b, r, false, out);
        return;
    }
    size_t rows = bt_min_size((r.begin + x->cols - 1) / x->cols * x->cols, r.end),
           rest = bt_max_size(r.end / x->cols * x->cols, rows);
    add_block_slices(&b, (bt_range){r.begin, rows}, false, out);
    add_block_slices(&b, (bt_range){rows, rest}, true, out);
    add_block_slices(&b, (bt_range){rest, r.end}, false, out);
}

void bt_tensor_slices(const bt_tensor *x, const char *state, float *data, bt_range r,
                      bt_slices *out) {
    bt_tensor_slices_in(x, state, data, BT_MOMENT_F32, r, out);
}
