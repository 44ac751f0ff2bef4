/* probe_group.c - exchanges with simulated ranks. */
#include "engine/plan/probe/probe_group.h"

#include <stdlib.h>
#include <string.h>

typedef struct probe_group {
    bt_tp_group t; /* first member, because a bt_tp_group pointer is cast to this type */
    bool settled;
} probe_group;

/* Copies the rows of rank 0 to the rows of all other ranks. */
static void probe_gather_rows(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays,
                              size_t rows) {
    size_t own = bt_tp_first_row(rows, 1, t->size);
    if (((const probe_group *)t)->settled) return;
    for (size_t i = 0; i < n_arrays; i++)
        for (size_t r = own; own > 0 && r < rows; r++)
            memcpy((char *)arrays[i].x + r * arrays[i].row_bytes,
                   (const char *)arrays[i].x + r % own * arrays[i].row_bytes, arrays[i].row_bytes);
}

static void reduce_scatter_rows(bt_tp_group *t, size_t rows, size_t cols) {
    (void)t, (void)rows, (void)cols;
}

/* Even skip_copies does not skip this: it is only a few bytes, and results computed from them must be finite. */
static void probe_gather(bt_tp_group *t, const void *mine, void *all, size_t bytes) {
    for (int k = 0; k < t->size; k++) memcpy((char *)all + (size_t)k * bytes, mine, bytes);
}

static void reduce_nothing(bt_tp_group *t, float *x, size_t n, int group_size) {
    (void)t, (void)x, (void)n, (void)group_size;
}

static void probe_destroy(bt_tp_group *t) {
    free(t->partial);
    free(t->common);
    free(t);
}

bt_code bt_probe_group_create(bt_tp_group **out, int size, size_t rows, size_t cols, bt_err *err) {
    const size_t bytes = (rows * cols + 16) / 16 * 64;
    probe_group *g = calloc(1, sizeof *g);
    float *partial = aligned_alloc(64, bytes), *common = aligned_alloc(64, bytes);
    *out = NULL;
    if (!g || !partial || !common) {
        free(g);
        free(partial);
        free(common);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to measure a slice of %d", size);
    }
    memset(partial, 0, bytes);
    memset(common, 0, bytes);
    g->t = (bt_tp_group){.size = size,
                         .partial = partial,
                         .common = common,
                         .why = BT_ERR_INIT,
                         .all_gather_rows = probe_gather_rows,
                         .reduce_scatter_rows = reduce_scatter_rows,
                         .all_gather = probe_gather,
                         .all_reduce = reduce_nothing,
                         .destroy = probe_destroy};
    *out = &g->t;
    return BT_OK;
}

void bt_probe_group_skip_copies(bt_tp_group *t) { ((probe_group *)t)->settled = true; }
