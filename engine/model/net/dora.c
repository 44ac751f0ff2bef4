/* dora.c - weight-decomposed adapters (DoRA, arXiv:2402.09353): each output j of a frozen layer with its low-rank
 * adapter is multiplied by a factor c_j = m_j / n_j, where n_j is the norm of row j of W + scale B A, and m_j is
 * trained. As in PEFT, n is a constant in the backward pass: with z the output without factors, dz = c dy and dm_j =
 * sum of dy_j z_j / n_j. z is computed again in the backward pass.
 *
 * With dropout, the factors belong to the masked input x' alone, also as in PEFT:
 *     y = base(x) + (c - 1) base(x') + c scale B A x'
 *
 * The norms are computed when the adapters have changed (bt_model_quantise), from W as the products read it. Their sums
 * of squares are exact, so they do not depend on the ranks that hold the inputs of a row. */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/exact.h"
#include "engine/model/net/net.h"

/* Sums of larger squares of weights are rounded. */
static const double SQUARE_MOST = 16;
enum { PIECE = 1024 }; /* weights of a row processed at a time; whole blocks of BT_Q8_BLOCK */

/* Inputs k .. k+n have one scale. */
static const int8_t *row_codes(const bt_linear *l, size_t row, size_t k, size_t n, int8_t *spare) {
    const size_t rows = l->N / l->ranges, group = k / l->scale_cols, in = k % l->scale_cols;
    if (!l->packed_2bit) return l->codes + row * l->K + k;
    bt_active_kernels()->packed_2bit_codes(
        spare, l->packed + row / rows * l->packed_bytes + group * l->group_bytes, l->scale_cols,
        row % rows, in, in + n);
    return spare;
}

BT_WIDEST static void add_codes(float *v, const int8_t *codes, float scale, size_t n) {
    for (size_t i = 0; i < n; i++) v[i] += (float)codes[i] * scale;
}

BT_WIDEST static void add_values(float *v, const float *w, size_t n) {
    for (size_t i = 0; i < n; i++) v[i] += w[i];
}

/* Adds inputs k .. k+n of a row of the weight, as products read them, to v. */
static void add_weight(const bt_linear *l, float *v, size_t row, size_t k, size_t n) {
    int8_t codes[PIECE];
    float values[PIECE];
    for (size_t at = k, some; l->tern && at < k + n; at += some) {
        const size_t place = row * l->K + at;
        some = bt_min_size(k + n - at, l->scale_cols - at % l->scale_cols);
        add_codes(v + (at - k), row_codes(l, row, at, some, codes),
                  l->scales ? l->scales[place / l->scale_cols] : l->scale, some);
    }
    if (l->tern) return;
    bt_table table = l->values;
    table.rounded = table.f32 && l->adapter.rounded;
    bt_table_read(values, &table, row * l->K + k, n);
    add_values(v, values, n);
}

typedef struct squares_job {
    const bt_linear *l;
    size_t row0;
    bt_exact units;
    double (*sums)[2]; /* sums of rows from row0 on */
} squares_job;

/* The adapter's product of these rows is in a.y. */
static void sum_row_squares(void *ctx, int thread, size_t from, size_t to) {
    const squares_job *j = ctx;
    const size_t K = j->l->K;
    (void)thread;
    for (size_t r = from; r < to; r++)
        for (size_t k = 0, n; k < K; k += n) {
            float *v = j->l->adapter.y + r * K + k;
            n = bt_min_size(PIECE, K - k);
            add_weight(j->l, v, j->row0 + r, k, n);
            bt_exact_add(j->sums[r], v, n, BT_EXACT_SQUARE, &j->units);
        }
}

static void sum_squares_of_rows(const bt_linear *l, double (*sums)[2]) {
    const bt_adapter *a = &l->adapter;
    memset(sums, 0, l->N * sizeof *sums);
    for (size_t at = 0, n; at < l->N; at += n) {
        n = bt_min_size(a->chunk, l->N - at);
        bt_op_gemm(a->y, l->K, a->b + at * a->rank, a->rank, 0, a->a, l->K, 0, a->scale, n, l->K,
                   a->rank, BT_PREC_FP32, 0);
        squares_job j = {l, at, bt_exact_units(SQUARE_MOST, (double)l->tensor->whole_cols),
                         sums + at};
        bt_parallel_for(n, 1 + 65536 / l->K, sum_row_squares, &j);
    }
}

/* A row of zeros keeps the factor 1, so that its adapter can leave zero. */
static void set_factors(const bt_linear *l, double (*sums)[2]) {
    const bt_adapter *a = &l->adapter;
    for (size_t r = 0; r < l->N; r++) {
        const float norm = (float)sqrt(sums[r][0] + sums[r][1]);
        const bool none = norm == 0;  // NOLINT(clang-diagnostic-float-equal)
        a->norms[r] = norm;
        a->inverse[r] = none ? 0 : 1 / norm;
        a->factors[r] = none ? 1 : a->m[r] / norm;
        a->less[r] = a->factors[r] - 1;
    }
}

static const bt_linear *adapted_linear(const bt_model *m, size_t i) {
    const bt_layer *l = &m->layers[i / BT_ADAPTED];
    const bt_linear *all[BT_ADAPTED] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    return all[i % BT_ADAPTED];
}

static bool divides_rows(const bt_linear *l) { return l->tensor->shard == BT_SHARD_COL; }

size_t bt_dora_divided_rows(const bt_params *adapters) {
    size_t rows = 0;
    for (size_t i = 0; i < adapters->n; i++) {
        const bt_tensor *t = &adapters->tensors[i];
        if (t->row_norms && t->shard == BT_SHARD_NONE) rows += t->rows;
    }
    return rows;
}

size_t bt_dora_rows(const bt_params *adapters) {
    size_t rows = 0;
    for (size_t i = 0; i < adapters->n; i++)
        if (adapters->tensors[i].row_norms) rows += adapters->tensors[i].rows;
    return rows;
}

void bt_dora_refresh(bt_model *m) {
    const size_t n = (size_t)m->setup.cfg.L * BT_ADAPTED;
    double(*divided)[2] = m->totals;
    if (!m->whole.lora.dora) return;
    memset(m->totals, 0, m->n_totals * sizeof *m->totals);
    for (size_t i = 0; i < n; i++) {
        const bt_linear *l = adapted_linear(m, i);
        if (!l->adapter.m) continue;
        double(*sums)[2] = divides_rows(l) ? divided : m->whole_rows;
        sum_squares_of_rows(l, sums);
        if (divides_rows(l))
            divided += l->N;
        else
            set_factors(l, sums);
    }
    if (divided == m->totals) return;
    m->tp->total_sums(m, m->totals);
    divided = m->totals;
    for (size_t i = 0; i < n; i++) {
        const bt_linear *l = adapted_linear(m, i);
        if (!l->adapter.m || !divides_rows(l)) continue;
        set_factors(l, divided);
        divided += l->N;
    }
}

const float *bt_model_row_norms(const bt_model *m, const bt_tensor *magnitudes) {
    const bt_param_id id = bt_adapter_layer(magnitudes->id);
    const size_t first = (size_t)bt_net_layer(m, magnitudes->layer) * BT_ADAPTED;
    for (size_t i = first; i < first + BT_ADAPTED; i++)
        if (adapted_linear(m, i)->tensor->id == id) return adapted_linear(m, i)->adapter.norms;
    return NULL;
}

typedef struct mask_job {
    const bt_linear *l;
    const bt_linear_input *in;
    size_t r0;
} mask_job;

static void mask_codes(void *ctx, int thread, size_t from, size_t to) {
    const mask_job *j = ctx;
    const bt_adapter *a = &j->l->adapter;
    const size_t K = j->l->K;
    (void)thread;
    for (size_t r = from; r < to; r++) {
        const int8_t *codes = j->in->xq + (j->r0 + r) * K;
        a->dq[r] = j->in->dq[j->r0 + r] * a->model->lora_drop.scale;
        for (size_t k = 0; k < K; k++)
            a->xq[r * K + k] = a->x[r * K + k] < 0 || a->x[r * K + k] > 0 ? codes[k] : 0;
    }
}

/* Returns rows r0 .. r0+n of an input through the mask, whose floats are in a.x. */
static bt_linear_input masked_input(const bt_linear *l, const bt_linear_input *in, const float *src,
                                    size_t r0, size_t n) {
    const bt_adapter *a = &l->adapter;
    (void)bt_adapter_input(l, in, src, r0, n);
    if (!in->tern) return (bt_linear_input){.K = l->K, .xn = a->x};
    mask_job j = {l, in, r0};
    bt_parallel_for(n, 8, mask_codes, &j);
    return (bt_linear_input){.K = l->K, .tern = true, .xq = a->xq, .dq = a->dq};
}

/* Computes z (n, N), the output of the base for the masked input. */
static void masked_base(const bt_linear *l, float *z, const bt_linear_input *in, const float *src,
                        size_t r0, size_t n) {
    const bt_linear_input masked = masked_input(l, in, src, r0, n);
    l->frozen->fwd(l, z, &masked, masked.xn, 0, n, 0);
}

static void dropped_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                        size_t r0, size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    for (size_t at = 0, n; at < rows; at += n, y += n * l->N) {
        n = bt_min_size(a->chunk, rows - at);
        l->frozen->fwd(l, y, in, src, r0 + at, n, flags);
        masked_base(l, a->y, in, src, r0 + at, n);
        bt_op_add_columns(y, a->y, NULL, a->less, n, l->N);
        bt_adapter_down(l, a->x, n);
        bt_op_zero(a->y, n * l->N);
        bt_adapter_add(l, a->y, a->u, n);
        bt_op_add_columns(y, a->y, NULL, a->factors, n, l->N);
    }
}

static void dropped_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                       size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    const size_t width = l->N / l->ranges, col = range * width;
    const bt_grads scaled = bt_grads_f32(a->y, l->N);
    for (size_t at = 0, n; at < rows; at += n, dx += n * l->K) {
        n = bt_min_size(a->chunk, rows - at);
        const bt_grads from = bt_grads_from(dy, at, col);
        l->frozen->dx(l, range, dx, bt_grads_from(dy, at, 0), r0 + at, n, flags);
        bt_op_scale_columns(a->y + col, l->N, from, a->less + col, n, width);
        l->frozen->dx(l, range, a->x, scaled, r0 + at, n, 0);
        bt_op_scale_columns(a->y + col, l->N, from, a->factors + col, n, width);
        bt_op_gemm(a->du, a->rank, a->y + col, l->N, 0, a->b + col * a->rank, a->rank, 0, a->scale,
                   n, a->rank, width, l->prec, 0);
        bt_op_gemm(a->x, l->K, a->du, a->rank, 0, a->a, l->K, 0, 1, n, l->K, a->rank, l->prec,
                   BT_ACC);
        bt_adapter_drop_back(l, dx, a->x, r0 + at, n);
    }
}

static void dora_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                     size_t r0, size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    if (bt_adapter_drops(l)) {
        dropped_fwd(l, y, in, src, r0, rows, flags);
        return;
    }
    if (!(flags & BT_ACC)) {
        a->plain->fwd(l, y, in, src, r0, rows, flags);
        bt_op_scale_columns(y, l->N, bt_grads_f32(y, l->N), a->factors, rows, l->N);
        return;
    }
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        a->plain->fwd(l, a->y, in, src, r0 + at, n, flags & ~BT_ACC);
        bt_op_add_columns(y + at * l->N, a->y, NULL, a->factors, n, l->N);
    }
}

static void dora_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                    size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    const size_t width = l->N / l->ranges, col = range * width;
    if (bt_adapter_drops(l)) {
        dropped_dx(l, range, dx, dy, r0, rows, flags);
        return;
    }
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        bt_op_scale_columns(a->y + col, l->N, bt_grads_from(dy, at, col), a->factors + col, n,
                            width);
        a->plain->dx(l, range, dx + at * l->K, bt_grads_f32(a->y, l->N), r0 + at, n, flags);
    }
}

typedef struct magnitudes_job {
    const bt_linear *l;
    const float *dy;
    size_t rows;
} magnitudes_job;

enum { COLUMNS = 256 };

BT_WIDEST static void add_products(double *sums, const float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++) sums[i] += (double)x[i] * (double)y[i];
}

/* Each call adds the rows of a range of columns in order. */
static void add_magnitude_gradients(void *ctx, int thread, size_t from, size_t to) {
    const magnitudes_job *j = ctx;
    const bt_adapter *a = &j->l->adapter;
    const size_t N = j->l->N;
    (void)thread;
    for (size_t c = from * COLUMNS; c < bt_min_size(to * COLUMNS, N); c += COLUMNS) {
        double sums[COLUMNS] = {0};
        const size_t n = bt_min_size(COLUMNS, N - c);
        for (size_t r = 0; r < j->rows; r++)
            add_products(sums, j->dy + r * N + c, a->y + r * N + c, n);
        for (size_t i = 0; i < n; i++) a->dm[c + i] += (float)(sums[i] * (double)a->inverse[c + i]);
    }
}

static void dora_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                    size_t r0, size_t rows) {
    const bt_adapter *a = &l->adapter;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        magnitudes_job j = {l, dy.f32 + at * l->N, n};
        if (bt_adapter_drops(l)) {
            masked_base(l, a->y, in, src, r0 + at, n);
            bt_adapter_down(l, a->x, n);
            bt_adapter_add(l, a->y, a->u, n);
        } else {
            a->whole(l, a->y, in, src, r0 + at, n);
        }
        bt_parallel_for((l->N + COLUMNS - 1) / COLUMNS, 1, add_magnitude_gradients, &j);
        bt_op_scale_columns(a->y, l->N, bt_grads_from(dy, at, 0), a->factors, n, l->N);
        a->plain->dw(l, bt_grads_f32(a->y, l->N), in, src, r0 + at, n);
    }
}

static void plain_output(const bt_linear *l, float *z, const bt_linear_input *in, const float *src,
                         size_t r0, size_t n) {
    l->adapter.plain->fwd(l, z, in, src, r0, n, 0);
}

static const bt_linear_ops weight_decomposed = {dora_fwd, dora_dx, dora_dw};

void bt_dora_wire(bt_linear *l) {
    if (!l->adapter.m) return;
    l->adapter.plain = l->adapted;
    if (!l->adapter.whole) l->adapter.whole = plain_output;
    l->ops = l->adapted = &weight_decomposed;
}
