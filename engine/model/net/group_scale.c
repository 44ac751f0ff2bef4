/* group_scale.c - products of ternary weights with a scale for each group of consecutive inputs of a row
 * (model.scale=group:N). Each group is a matrix (N, inputs of the group) of its own, packed like a whole weight: the
 * int8 products of its codes are those of a layer with the scale 1, and the scales of the group are factors of the
 * columns of y, or of dy before dx. Groups are added in their order, so results do not depend on the rows computed
 * together. */
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/ternary.h"
#include "engine/model/net/net.h"

bt_linear bt_group_part(const bt_linear *l, size_t g) {
    bt_linear part = *l;
    part.K = part.scale_cols = l->scale_cols;
    part.scales = part.by_group = NULL;
    part.packed = l->packed + g * l->group_bytes;
    if (l->packed2) part.packed2 = l->packed2 + g * l->N * bt_tern2_row_bytes(part.K);
    return part;
}

void bt_group_scales_done(const bt_linear *l) {
    const size_t groups = bt_linear_groups(l);
    for (size_t n = 0; n < l->N; n++)
        for (size_t g = 0; g < groups; g++) l->by_group[g * l->N + n] = l->scales[n * groups + g];
}

/* ---- columns of a group, one after the other -------------------------------------------------- */

typedef struct gather_job {
    int8_t *out; /* (groups, rows, width) */
    const int8_t *from;
    size_t rows, ld, width, groups;
} gather_job;

static void gather_group_rows(void *ctx, int thread, size_t from, size_t to) {
    const gather_job *j = ctx;
    (void)thread;
    for (size_t r = from; r < to; r++)
        for (size_t g = 0; g < j->groups; g++)
            memcpy(j->out + (g * j->rows + r) * j->width, j->from + r * j->ld + g * j->width,
                   j->width);
}

static void gather_groups(const gather_job *j) {
    bt_parallel_for(j->rows, 1 + 65536 / j->ld, gather_group_rows, (void *)(uintptr_t)j);
}

void bt_group_pack(const bt_linear *l, const int8_t *codes) {
    const size_t rows = l->N / l->ranges;
    for (size_t k = 0; k < l->ranges; k++)
        for (size_t g = 0; g < bt_linear_groups(l); g++) {
            gather_groups(&(gather_job){l->gathered, codes + k * rows * l->K + g * l->scale_cols,
                                        rows, l->K, l->scale_cols, 1});
            bt_op_tern_pack(l->packed + k * l->packed_bytes + g * l->group_bytes, l->gathered, rows,
                            l->scale_cols);
        }
}

/* ---- products -------------------------------------------------------------------------------- */

static void add_group(const bt_linear *l, size_t g, float *y, size_t rows, bool add) {
    const float *scales = l->by_group + g * l->N;
    if (add)
        bt_op_add_columns(y, l->scaled, NULL, scales, rows, l->N);
    else
        bt_op_scale_columns(y, l->N, bt_grads_f32(l->scaled, l->N), scales, rows, l->N);
}

void bt_group_scale_fwd(const bt_linear_ops *codes, const bt_linear *l, float *y,
                        const bt_linear_input *in, size_t r0, size_t rows, int flags) {
    const size_t groups = bt_linear_groups(l);
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(BT_SCALED_ROWS, rows - at);
        gather_groups(
            &(gather_job){l->gathered, in->xq + (r0 + at) * l->K, n, l->K, l->scale_cols, groups});
        for (size_t g = 0; g < groups; g++) {
            const bt_linear part = bt_group_part(l, g);
            bt_linear_input of = *in;
            of.K = part.K;
            of.xq = l->gathered + g * n * part.K;
            of.dq = in->dq + r0 + at;
            codes->fwd(&part, l->scaled, &of, NULL, 0, n, flags & ~BT_ACC);
            add_group(l, g, y + at * l->N, n, g > 0 || flags & BT_ACC);
        }
    }
}

void bt_group_scale_dx(const bt_linear_ops *codes, const bt_linear *l, size_t range, float *dx,
                       bt_grads dy, size_t r0, size_t rows, int flags) {
    const size_t width = l->N / l->ranges, col = range * width;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(BT_SCALED_ROWS, rows - at);
        for (size_t g = 0; g < bt_linear_groups(l); g++) {
            const bt_linear part = bt_group_part(l, g);
            bt_op_scale_columns(l->scaled + col, l->N, bt_grads_from(dy, at, col),
                                l->by_group + g * l->N + col, n, width);
            codes->dx(&part, range, dx + at * l->dx_ld + g * part.K, bt_grads_f32(l->scaled, l->N),
                      r0 + at, n, flags);
        }
    }
}
