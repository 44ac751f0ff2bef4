/* row_scale.c - ternary weights with a scale for each row, that is, for each output (model.scale=row): the absmean of
 * the row's inputs; or for each group of inputs of a row, whose scales are those of shorter rows. Products use the
 * codes like a weight with the scale 1; then the columns of y are multiplied by the scales, and so are the columns of
 * dy before dx. The gradient of the latent weights needs no scale: it passes straight through round and clamp. */
#include <math.h>
#include <stdatomic.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/exact.h"
#include "engine/model/net/net.h"

static const float ROW_SCALE_LEAST = 1e-5f;
static const double ROW_MEAN_MOST = 4;
enum { PIECE = 4096 }; /* elements converted to fp32 at a time */

typedef struct row_sums_job {
    double *sums;
    size_t K;
    bt_latent w;
    size_t first, end; /* elements */
    bt_exact units;
} row_sums_job;

static bt_exact row_units(size_t inputs) { return bt_exact_units(ROW_MEAN_MOST, (double)inputs); }

static void add_row_range(void *ctx, int thread, size_t from, size_t to) {
    const row_sums_job *j = ctx;
    const size_t row0 = j->first / j->K;
    (void)thread;
    for (size_t r = row0 + from; r < row0 + to; r++) {
        const size_t end = bt_min_size((r + 1) * j->K, j->end);
        double sum[2] = {0, 0};
        float spare[PIECE];
        for (size_t at = bt_max_size(r * j->K, j->first), n; at < end; at += n) {
            n = bt_min_size(PIECE, end - at);
            bt_exact_add(sum, bt_latent_read(j->w, at, n, spare), n, BT_EXACT_ABS, &j->units);
        }
        j->sums[r] += sum[0];
    }
}

static size_t rows_grain(size_t K) { return 1 + (size_t)8 * PIECE / K; }

void bt_row_sums_add(double *sums, const bt_tensor *t, bt_scale_kind scale, bt_latent w,
                     size_t first, size_t n) {
    row_sums_job j = {sums,      bt_scale_inputs(scale, t->cols),
                      w,         first,
                      first + n, row_units(bt_scale_inputs(scale, t->whole_cols))};
    if (n == 0) return;
    bt_parallel_for((j.end - 1) / j.K - first / j.K + 1, rows_grain(j.K), add_row_range, &j);
}

float bt_row_scale(double sum, size_t inputs) {
    return fmaxf((float)(sum / (double)inputs), ROW_SCALE_LEAST);
}

typedef struct whole_rows_job {
    float *scales;
    const float *w;
    size_t K;
} whole_rows_job;

static void scale_whole_rows(void *ctx, int thread, size_t from, size_t to) {
    const whole_rows_job *j = ctx;
    const bt_exact units = row_units(j->K);
    (void)thread;
    for (size_t r = from; r < to; r++) {
        double sum[2] = {0, 0};
        bt_exact_add(sum, j->w + r * j->K, j->K, BT_EXACT_ABS, &units);
        j->scales[r] = bt_row_scale(sum[0], j->K);
    }
}

void bt_model_scale_rows(float *scales, const float *w, size_t rows, size_t K) {
    whole_rows_job j = {scales, w, K};
    bt_parallel_for(rows, rows_grain(K), scale_whole_rows, &j);
}

bt_tern_stats bt_row_codes(const bt_linear *l, int8_t *codes, const float *w, size_t first,
                           size_t n) {
    bt_tern_stats all = {0, 0, 0};
    for (size_t at = 0, some; at < n; at += some) {
        const size_t row = (first + at) / l->scale_cols;
        some = bt_min_size(n - at, (row + 1) * l->scale_cols - (first + at));
        const bt_tern_stats s = bt_active_kernels()->tern_codes(codes + at, w + at, 0,
                                                                1.0f / l->scales[row], 0, some);
        all.zero += s.zero;
        all.pos += s.pos;
        all.flips += s.flips;
    }
    return all;
}

typedef struct row_codes_job {
    const bt_linear *l;
    _Atomic uint64_t zero, pos, flips;
} row_codes_job;

static void convert_row_range(void *ctx, int thread, size_t from, size_t to) {
    row_codes_job *j = ctx;
    const size_t K = j->l->K;
    (void)thread;
    for (size_t at = from * K, n; at < to * K; at += n) {
        float spare[PIECE];
        n = bt_min_size(PIECE, to * K - at);
        const bt_tern_stats s = bt_row_codes(j->l, j->l->codes + at,
                                             bt_latent_read(j->l->w, at, n, spare), at, n);
        atomic_fetch_add(&j->zero, s.zero);
        atomic_fetch_add(&j->pos, s.pos);
        atomic_fetch_add(&j->flips, s.flips);
    }
}

bt_tern_stats bt_row_codes_all(const bt_linear *l) {
    row_codes_job j = {.l = l};
    bt_parallel_for(l->N, rows_grain(l->K), convert_row_range, &j);
    return (bt_tern_stats){j.zero, j.pos, j.flips};
}

void bt_row_scale_fwd(const bt_linear_ops *codes, const bt_linear *l, float *y,
                      const bt_linear_input *in, const float *src, size_t r0, size_t rows,
                      int flags) {
    if (!(flags & BT_ACC)) {
        codes->fwd(l, y, in, src, r0, rows, flags);
        bt_op_scale_columns(y, l->N, bt_grads_f32(y, l->N), l->scales, rows, l->N);
        return;
    }
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(BT_SCALED_ROWS, rows - at);
        codes->fwd(l, l->scaled, in, src, r0 + at, n, flags & ~BT_ACC);
        bt_op_add_columns(y + at * l->N, l->scaled, NULL, l->scales, n, l->N);
    }
}

void bt_row_scale_dx(const bt_linear_ops *codes, const bt_linear *l, size_t range, float *dx,
                     bt_grads dy, size_t r0, size_t rows, int flags) {
    const size_t width = l->N / l->ranges, col = range * width;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(BT_SCALED_ROWS, rows - at);
        bt_op_scale_columns(l->scaled + col, l->N, bt_grads_from(dy, at, col), l->scales + col, n,
                            width);
        codes->dx(l, range, dx + at * l->K, bt_grads_f32(l->scaled, l->N), r0 + at, n, flags);
    }
}
