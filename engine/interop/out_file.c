/* out_file.c - writes files, and tensors in any form into them. */
#include "engine/interop/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/small.h"
#include "engine/base/system/reserve.h"
#include "engine/base/threads.h"
#include "engine/data/io/file_io.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/model.h"

enum { CHUNK = 1 << 20 }; /* elements */

bt_code bt_out_prepare(const char *dest, char part[4200], bt_err *err) {
    struct stat st;
    char plain[4096];
    size_t n = strlen(dest);
    while (n > 1 && dest[n - 1] == '/') n--;
    if (n == 0 || n >= sizeof plain)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", dest);
    memcpy(plain, dest, n);
    plain[n] = '\0';
    if (lstat(plain, &st) == 0)
        return bt_fail(err, BT_BUSY, "'%s' exists already (give another path, or remove it)",
                       plain);
    snprintf(part, 4200, "%s.part-%ld", plain, (long)getpid());
    return BT_OK;
}

bt_code bt_out_open(bt_out_file *f, const char *path, uint64_t bytes, bt_err *err) {
    snprintf(f->path, sizeof f->path, "%s", path);
    f->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", path);
    const int e = bytes ? bt_file_reserve(f->fd, bytes) : 0;
    if (e == 0 || e == EOPNOTSUPP || e == EINVAL) return BT_OK;
    close(f->fd);
    f->fd = -1;
    return bt_fail_errno(err, BT_IO, e, "cannot reserve %llu bytes for '%s'",
                         (unsigned long long)bytes, path);
}

bt_code bt_out_put(const bt_out_file *f, const void *data, size_t n, uint64_t at, bt_err *err) {
    return bt_file_pwrite(f->fd, f->path, data, n, at, err);
}

bt_code bt_out_close(bt_out_file *f, bt_code code, bt_err *err) {
    if (f->fd < 0) return code;
    if (code == BT_OK && fsync(f->fd) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s' to the disk", f->path);
    if (close(f->fd) != 0 && code == BT_OK)
        code = bt_fail_errno(err, BT_IO, errno, "cannot close '%s'", f->path);
    f->fd = -1;
    return code;
}

uint64_t bt_form_bytes(const bt_tensor *t, const bt_form *form) {
    return (uint64_t)t->rows * bt_number_bytes(form->number, t->cols) +
           (form->number == BT_NUM_I2_S ? BT_I2_S_TAIL : 0);
}

/* Absmean, in the blocks of the flat array in which the model adds (model/net/quantise.c). */

typedef struct sum_job {
    const float *x;
    double *sums;
    size_t offset, end, first; /* elements of the flat array; the block of sums[0] */
} sum_job;

static void sum_row_blocks(void *ctx, int thread, size_t begin, size_t end) {
    const sum_job *j = ctx;
    (void)thread;
    for (size_t b = begin; b < end; b++) {
        const size_t block = j->first + b, from = bt_max_size(block * BT_SUM_BLOCK, j->offset),
                     to = bt_min_size((block + 1) * BT_SUM_BLOCK, j->end);
        j->sums[b] = bt_active_kernels()->sum_abs(j->x + (from - j->offset), to - from);
    }
}

float bt_absmean(const bt_tensor *t, const float *x) {
    enum { BLOCKS = 256 }; /* blocks at a time */
    double sums[BLOCKS], sum = 0;
    sum_job j = {x, sums, t->offset, t->offset + t->count, t->offset / BT_SUM_BLOCK};
    const size_t last = (j.end - 1) / BT_SUM_BLOCK;
    for (size_t n; j.first <= last; j.first += n) {
        n = bt_min_size(BLOCKS, last - j.first + 1);
        bt_parallel_for(n, 16, sum_row_blocks, &j);
        for (size_t b = 0; b < n; b++) sum += sums[b];
    }
    return fmaxf((float)(sum / (double)t->count), 1e-5f);
}

/* Reorders rows of whole heads from the model's order to pairs (model_file.h). */
static void reorder_rotary_rows(unsigned char *out, const unsigned char *in, size_t rows,
                                size_t row_bytes, size_t D) {
    for (size_t r = 0; r < rows; r++) {
        const size_t k = r % D, to = r - k + k % (D / 2) * 2 + k / (D / 2);
        memcpy(out + to * row_bytes, in + r * row_bytes, row_bytes);
    }
}

typedef struct tensor_job {
    const bt_tensor *t;
    const bt_form *form;
    const bt_out_file *f;
    uint64_t at;
    size_t D, step; /* step: rows of a piece, which are whole heads */
    unsigned char *bytes, *turned;
    float *x;
    int8_t *codes; /* codes of the whole tensor */
    float *scales; /* their scales: (n_scales), one or that of each row or group */
    size_t n_scales;
} tensor_job;

/* The rows of a piece, which begins at row `row` of the tensor. */
typedef struct piece {
    const tensor_job *j;
    size_t row;
} piece;

/* Encodes codes with one scale as blocks or as floats. */
static void encode_codes(const tensor_job *j, unsigned char *out, float *x, const int8_t *codes,
                         size_t elems, float scale) {
    if (bt_number_at(j->form->number)->coded) {
        bt_number_encode_codes(j->form->number, out, codes, scale, elems);
        return;
    }
    for (size_t k = 0; k < elems; k++) x[k] = scale * (float)codes[k];
    bt_number_encode(j->form->number, out, x, elems);
}

/* Encodes the codes of n rows, from row `row` of the tensor on. */
static void encode_code_rows(const tensor_job *j, unsigned char *out, float *x, size_t row,
                             size_t n) {
    const size_t cols = j->t->cols, first = row * cols,
                 each = j->n_scales > 1 ? j->t->count / j->n_scales : n * cols; /* one scale */
    for (size_t at = 0; at < n * cols; at += each)
        encode_codes(j, out + bt_number_bytes(j->form->number, at), x + at, j->codes + first + at,
                     each,
                     j->form->unit     ? 1
                     : j->n_scales > 1 ? j->scales[(first + at) / each]
                                       : j->scales[0]);
}

static void encode_form_rows(void *ctx, int thread, size_t begin, size_t end) {
    const piece *p = ctx;
    const tensor_job *j = p->j;
    const size_t cols = j->t->cols, row_bytes = bt_number_bytes(j->form->number, cols);
    (void)thread;
    for (size_t r = begin, n; r < end; r += n) { /* pieces of whole heads */
        n = bt_min_size(j->D, end - r);
        unsigned char *out = j->bytes + r * row_bytes;
        if (j->codes)
            encode_code_rows(j, out, j->x + r * cols, p->row + r, n);
        else
            bt_number_encode(j->form->number, out, j->x + r * cols, n * cols);
        if (j->form->order == BT_ROWS_TURNED)
            reorder_rotary_rows(j->turned + r * row_bytes, out, n, row_bytes, j->D);
    }
}

static bt_code put_tensor_rows(tensor_job *j, size_t row, size_t n, bt_err *err) {
    const size_t row_bytes = bt_number_bytes(j->form->number, j->t->cols);
    const unsigned char *out = j->form->order == BT_ROWS_TURNED ? j->turned : j->bytes;
    piece p = {j, row};
    bt_parallel_for(n, j->D, encode_form_rows, &p);
    return bt_out_put(j->f, out, n * row_bytes, j->at + row * row_bytes, err);
}

/* Packed codes: a byte contains four rows: r, r + rows/4, ... */

static void pack_range(void *ctx, int thread, size_t begin, size_t end) {
    const piece *p = ctx;
    const size_t cols = p->j->t->cols, quarter = p->j->t->rows / 4 * cols;
    const int8_t *c0 = p->j->codes + p->row * cols, *c1 = c0 + quarter, *c2 = c1 + quarter,
                 *c3 = c2 + quarter;
    unsigned char *restrict out = p->j->bytes;
    (void)thread;
    for (size_t k = begin; k < end; k++)
        out[k] = (unsigned char)((c0[k] + 1) | (c1[k] + 1) << 2 | (c2[k] + 1) << 4 |
                                 (c3[k] + 1) << 6);
}

static bt_code write_packed(bt_model_file *s, tensor_job *j, bt_err *err) {
    const size_t cols = j->t->cols, quarter = j->t->rows / 4;
    for (size_t row = 0, n; row < quarter; row += n) {
        piece p = {j, row};
        n = bt_min_size(j->step, quarter - row);
        bt_parallel_for(n * cols, 65536, pack_range, &p);
        BT_TRY(bt_out_put(j->f, j->bytes, n * cols, j->at + row * cols, err));
        bt_model_file_passed(s, 4 * n * cols);
    }
    return BT_OK;
}

/* Quantises with the scales of latent weights, which also replace the scales that the file does not have (0). */
static void quantise_latent(tensor_job *j, const float *x, float *absmeans) {
    const bt_tensor *t = j->t;
    const size_t n = t->count / j->n_scales;
    if (j->n_scales > 1)
        bt_model_scale_rows(absmeans, x, j->n_scales, n);
    else
        absmeans[0] = bt_absmean(t, x);
    for (size_t k = 0; k < j->n_scales; k++) {
        bt_op_tern_codes(j->codes + k * n, x + k * n, 0, 1.0f / absmeans[k], false, n);
        if (j->scales[k] == 0) j->scales[k] = absmeans[k];
    }
}

static bt_code quantise_codes(bt_model_file *s, size_t i, tensor_job *j, bt_err *err) {
    const bt_tensor *t = j->t;
    float *x = malloc(t->count * sizeof *x), *absmeans = malloc(j->n_scales * sizeof *absmeans);
    bt_code code = x && absmeans
                       ? bt_model_file_read(s, i, 0, t->count, x, err)
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for tensor '%s'", t->name);
    if (code == BT_OK) code = bt_model_file_scale(s, i, j->scales, err);
    if (code == BT_OK) quantise_latent(j, x, absmeans);
    free(x);
    free(absmeans);
    return code;
}

static bt_code make_codes(bt_model_file *s, size_t i, tensor_job *j, bt_err *err) {
    bool direct;
    j->codes = calloc(j->t->count, 1);
    if (!j->codes)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for tensor '%s'", j->t->name);
    BT_TRY(bt_model_file_codes(s, i, j->codes, &direct, err));
    return direct ? bt_model_file_scale(s, i, j->scales, err) : quantise_codes(s, i, j, err);
}

static bt_code put_tensor(bt_model_file *s, size_t i, tensor_job *j, bt_err *err) {
    const bt_tensor *t = j->t;
    if (j->form->quantise) BT_TRY(make_codes(s, i, j, err));
    if (j->form->order == BT_ROWS_PACKED) return write_packed(s, j, err);
    for (size_t row = 0, n; row < t->rows; row += n) {
        n = bt_min_size(j->step, t->rows - row);
        if (!j->codes) BT_TRY(bt_model_file_read(s, i, row * t->cols, n * t->cols, j->x, err));
        for (size_t k = 0; j->form->subtract != 0 && k < n * t->cols; k++)
            j->x[k] -= j->form->subtract;
        BT_TRY(put_tensor_rows(j, row, n, err));
        bt_model_file_passed(s, n * t->cols);
    }
    return BT_OK;
}

/* The scale of I2_S follows the codes, even for a tensor of zeros. */
static bt_code put_i2_s_scale(const tensor_job *j, bt_err *err) {
    unsigned char tail[BT_I2_S_TAIL] = {0};
    if (j->form->number != BT_NUM_I2_S) return BT_OK;
    memcpy(tail, j->scales, sizeof *j->scales);
    return bt_out_put(j->f, tail, sizeof tail, j->at + bt_form_bytes(j->t, j->form) - sizeof tail,
                      err);
}

bt_code bt_tensor_write(bt_model_file *s, size_t i, const bt_form *form, const bt_out_file *f,
                        uint64_t at, float *scale, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    tensor_job j = {.t = t, .form = form, .f = f, .at = at, .D = (size_t)s->cfg.D};
    j.step = CHUNK / t->cols / j.D > 0 ? CHUNK / t->cols / j.D * j.D : j.D;
    const size_t elems = j.step * t->cols;
    j.n_scales = bt_model_file_scales(s, i);
    j.scales = calloc(j.n_scales, sizeof *j.scales);
    j.bytes = malloc(elems * sizeof(float));
    j.turned = malloc(elems * sizeof(float));
    j.x = malloc(elems * sizeof *j.x);
    bt_code code = j.bytes && j.turned && j.x && j.scales
                       ? put_tensor(s, i, &j, err)
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for tensor '%s'", t->name);
    if (code == BT_OK) code = put_i2_s_scale(&j, err);
    if (scale && j.scales) memcpy(scale, j.scales, j.n_scales * sizeof *scale);
    free(j.scales);
    free(j.bytes);
    free(j.turned);
    free(j.x);
    free(j.codes);
    return code;
}
