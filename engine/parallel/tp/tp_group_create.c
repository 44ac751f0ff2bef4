/* tp_group_create.c - chooses the kind of tensor-parallel group; the group of one rank. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/testing/testing.h"
#include "engine/parallel/tp/tp_group_internal.h"

bt_code bt_tp_group_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err) {
    *out = NULL;
    if (bt_comm_size(tp) == 1) return BT_OK;
    if (!bt_testing_tp_messages) BT_TRY(bt_tp_group_shm_create(out, tp, rows, cols, err));
    return *out ? BT_OK : bt_tp_group_messages_create(out, tp, rows, cols, err);
}

static void solo_all_gather_rows(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays,
                                 size_t rows) {
    (void)t, (void)arrays, (void)n_arrays, (void)rows;
}
static void solo_reduce_scatter_rows(bt_tp_group *t, size_t rows, size_t cols) {
    (void)t, (void)rows, (void)cols;
}
static void solo_all_gather(bt_tp_group *t, const void *mine, void *all, size_t bytes) {
    (void)t;
    memcpy(all, mine, bytes);
}
static void solo_all_reduce(bt_tp_group *t, float *x, size_t n, int group_size) {
    (void)t, (void)x, (void)n, (void)group_size;
}
static void solo_destroy(bt_tp_group *t) {
    free(t->partial);
    free(t);
}

bt_code bt_tp_group_solo(bt_tp_group **out, size_t rows, size_t cols, bt_err *err) {
    *out = calloc(1, sizeof **out);
    float *partial = aligned_alloc(64, (rows * cols + 16) / 16 * 64);
    if (!*out || !partial) {
        free(*out);
        free(partial);
        *out = NULL;
        return bt_fail(err, BT_NOMEM, "cannot take %.1f MiB for sums over leaves of the model",
                       (double)(rows * cols) * sizeof(float) / 1048576.0);
    }
    **out = (bt_tp_group){.size = 1,
                          .partial = partial,
                          .common = partial,
                          .why = BT_ERR_INIT,
                          .all_gather_rows = solo_all_gather_rows,
                          .reduce_scatter_rows = solo_reduce_scatter_rows,
                          .all_gather = solo_all_gather,
                          .all_reduce = solo_all_reduce,
                          .destroy = solo_destroy};
    return BT_OK;
}

void bt_tp_group_destroy(bt_tp_group *t) {
    if (t) t->destroy(t);
}

size_t bt_tp_group_bytes(int size, size_t rows, size_t cols, bool solo) {
    if (size == 1) return solo ? rows * cols * sizeof(float) : 0;
    size_t a = bt_tp_group_shm_bytes(size, rows, cols),
           b = bt_tp_group_messages_bytes(size, rows, cols);
    return a > b ? a : b;
}

int64_t bt_tp_group_take_busy_ns(bt_tp_group *t) {
    if (!t) return 0;
    int64_t ns = t->busy_ns;
    t->busy_ns = 0;
    return ns;
}

bt_code bt_tp_group_check(const bt_tp_group *t, bt_err *err) {
    if (!t || t->failed == BT_OK) return BT_OK;
    if (err) *err = t->why;
    return t->failed;
}
