/* model_file.c - reads any range of a tensor as fp32 from a file of any format. */
#include "engine/interop/model_file.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"

/* PIECE: elements of a row or more that one thread reads at a time */
enum { RAW_BYTES = 1 << 18, PIECE = 1 << 16, CHUNK = 1 << 20 };

/* Returns the row of the file for a row of the model: head h, half a, pair i -> head h, pair i, half a. */
static uint64_t rotary_row(const bt_model_file *s, uint64_t row) {
    const uint64_t D = (uint64_t)s->cfg.D, in = row % D;
    return row - in + in % (D / 2) * 2 + in / (D / 2);
}

static bt_code read_stored_bytes(bt_model_file *s, const bt_stored *f, uint64_t at,
                                 unsigned char *raw, size_t n, bt_err *err) {
    return bt_foreign_read(&s->stored.files[f->file], raw, n, f->at + at, err);
}

/* Returns the bytes of the buffer `raw`. */
static size_t raw_bytes(const bt_stored *f) {
    return bt_max_size(RAW_BYTES, bt_number_bytes(f->number, (size_t)f->cols));
}

static bt_code plain_rows(bt_model_file *s, const bt_stored *f, uint64_t row, size_t n, float *out,
                          unsigned char *raw, bt_err *err) {
    const size_t cols = (size_t)f->cols, row_bytes = bt_number_bytes(f->number, cols),
                 most = raw_bytes(f) / row_bytes;
    for (size_t done = 0, k; done < n; done += k) {
        k = bt_min_size(n - done, most);
        BT_TRY(read_stored_bytes(s, f, (row + done) * row_bytes, raw, k * row_bytes, err));
        bt_err why = BT_ERR_INIT;
        if (bt_number_decode(f->number, out + done * cols, raw, k * cols, &why) != BT_OK)
            return bt_fail(err, BT_FORMAT, "tensor '%s', rows from %llu: %s", f->name,
                           (unsigned long long)(row + done), why.msg);
    }
    return BT_OK;
}

static bt_code read_packed_rows(bt_model_file *s, const bt_stored *f, uint64_t row,
                                unsigned char *raw, bt_err *err) {
    return read_stored_bytes(s, f, row % f->rows * f->cols, raw, (size_t)f->cols, err);
}

static unsigned packed_shift(const bt_stored *f, uint64_t row) {
    return (unsigned)(row / f->rows) * 2;
}

/* Returns false if a code is 3. */
static bool unpack_packed_codes(int8_t *restrict codes, const unsigned char *restrict raw, size_t n,
                                unsigned shift, float *size) {
    unsigned char wrong = 0, some = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char code = (unsigned char)(raw[i] >> shift & 3u);
        wrong |= (unsigned char)(code & code >> 1);
        some |= (unsigned char)(code ^ 1u);
        codes[i] = (int8_t)(code - 1);
    }
    if (some) *size = 1;
    return !wrong;
}

static bt_code packed_row(bt_model_file *s, const bt_stored *f, uint64_t row, float *out,
                          unsigned char *raw, bt_err *err) {
    const unsigned shift = packed_shift(f, row);
    BT_TRY(read_packed_rows(s, f, row, raw, err));
    for (size_t i = 0; i < f->cols; i++) {
        const unsigned code = (unsigned)raw[i] >> shift & 3u;
        if (code == 3)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s', row %llu, input %zu has the code 3, which is not a code "
                           "of a ternary weight",
                           f->name, (unsigned long long)row, i);
        out[i] = (float)(int)code - 1.0f;
    }
    return BT_OK;
}

/* Reads rows as they are stored: values, or codes. */
static bt_code read_rows_as_stored(bt_model_file *s, const bt_stored_location *p, uint64_t row,
                                   size_t n, float *out, unsigned char *raw, bt_err *err) {
    const bt_stored *f = p->stored;
    if (p->order == BT_ROWS_PLAIN) return plain_rows(s, f, row, n, out, raw, err);
    for (size_t k = 0; k < n; k++, out += f->cols) {
        if (p->order == BT_ROWS_TURNED)
            BT_TRY(plain_rows(s, f, rotary_row(s, row + k), 1, out, raw, err));
        else
            BT_TRY(packed_row(s, f, row + k, out, raw, err));
    }
    return BT_OK;
}

/* Sizes of rows or groups, if each has one, or of all of them; the first one is then that of the first row read */
static float *sizes_from_row(const bt_stored_location *p, float *sizes, size_t row) {
    return p->inputs ? sizes + row * ((size_t)p->stored->cols / p->inputs) : sizes;
}

static bool unpack_plain_codes(const bt_stored_location *p, int8_t *codes, const unsigned char *raw,
                               float *sizes, size_t n) {
    const bt_stored *f = p->stored;
    const size_t cols = (size_t)f->cols;
    if (!p->inputs) return bt_number_codes(f->number, codes, raw, n * cols, sizes);
    const size_t bytes = bt_number_bytes(f->number, p->inputs); /* whole blocks */
    bool alike = true;
    for (size_t g = 0; g < n * (cols / p->inputs) && alike; g++)
        alike = bt_number_codes(f->number, codes + g * p->inputs, raw + g * bytes, p->inputs,
                                sizes + g);
    return alike;
}

/* Reads rows as codes, if the file has codes; *alike is unchanged if all have one size (bt_number_codes), or all of
 * each row or group (inputs), else it becomes false, and stored_rows reports the error, if any. */
static bt_code read_stored_codes(bt_model_file *s, const bt_stored_location *p, uint64_t row,
                                 size_t n, int8_t *codes, unsigned char *raw, float *sizes,
                                 bool *alike, bt_err *err) {
    const bt_stored *f = p->stored;
    const size_t cols = (size_t)f->cols, row_bytes = bt_number_bytes(f->number, cols);
    const size_t most = p->order == BT_ROWS_PLAIN ? raw_bytes(f) / row_bytes : 1;
    for (size_t done = 0, k; done < n && *alike; done += k) {
        k = bt_min_size(n - done, most);
        if (p->order == BT_ROWS_PACKED) {
            BT_TRY(read_packed_rows(s, f, row + done, raw, err));
            *alike = unpack_packed_codes(codes + done * cols, raw, cols,
                                         packed_shift(f, row + done),
                                         sizes_from_row(p, sizes, done));
            continue;
        }
        const uint64_t from = p->order == BT_ROWS_TURNED ? rotary_row(s, row + done) : row + done;
        BT_TRY(read_stored_bytes(s, f, from * row_bytes, raw, k * row_bytes, err));
        *alike = unpack_plain_codes(p, codes + done * cols, raw, sizes_from_row(p, sizes, done), k);
    }
    return BT_OK;
}

typedef struct rows_job {
    bt_model_file *s;
    const bt_stored_location *p;
    uint64_t row;
    float *out;
    bool weights; /* codes are converted to latent weights, values are checked */
    /* for codes_range, which has no `out` */
    int8_t *codes; /* NULL: they are only counted */
    bool alike;
    float
        *sizes; /* size of the nonzero codes; 0: there are none. (1), or those of rows or groups */
    uint64_t *some; /* number of nonzero codes: (1), or by_row (rows) */
    pthread_mutex_t lock;
    bt_code code; /* error of the first rows that failed */
    size_t failed;
    bt_err *err;
} rows_job;

static void rows_failed(rows_job *j, size_t begin, bt_code code, const bt_err *why) {
    pthread_mutex_lock(&j->lock);
    if (j->code == BT_OK || begin < j->failed) {
        j->code = code;
        j->failed = begin;
        if (j->err) *j->err = *why;
    }
    pthread_mutex_unlock(&j->lock);
}

/* at: element of the tensor */
static float latent_of_row(const bt_stored_location *p, uint64_t at) {
    return p->level[p->inputs ? at / p->inputs : 0];
}

/* Returns true if latent weights of the codes exist. */
static bool has_latent_weights(const bt_stored_location *p, uint64_t row, size_t n) {
    const uint64_t cols = p->stored->cols, step = p->inputs ? p->inputs : n * cols;
    bool finite = p->coded;
    for (uint64_t at = row * cols; finite && at < (row + n) * cols; at += step)
        finite = isfinite(latent_of_row(p, at)) != 0;
    return finite;
}

static bt_code convert_and_check_rows(const rows_job *j, uint64_t row, float *out, size_t elems,
                                      bt_err *err) {
    const bt_stored_location *p = j->p;
    const size_t cols = (size_t)p->stored->cols;
    for (size_t k = 0; p->coded && k < elems; k++) {
        const float level = latent_of_row(p, row * cols + k);
        out[k] = out[k] > 0 ? level : out[k] < 0 ? -level : 0;
    }
    for (size_t k = 0; p->add != 0 && k < elems; k++) out[k] += p->add;
    unsigned wrong = 0; /* x - x is 0 for every number except infinities */
    for (size_t k = 0; k < elems; k++) wrong |= out[k] - out[k] != 0;
    if (!wrong) return BT_OK;
    size_t k = 0;
    while (isfinite(out[k])) k++;
    return bt_fail(err, BT_FORMAT, "tensor '%s' contains %g, in row %llu or a later one",
                   p->stored->name, (double)out[k], (unsigned long long)row);
}

/* Reads latent weights of rows whose codes have been counted. *alike false: they must be read as floats. */
static bt_code read_latent_rows(const rows_job *j, uint64_t row, size_t n, float *restrict out,
                                int8_t *restrict codes, unsigned char *raw, bool *alike,
                                bt_err *err) {
    const size_t cols = (size_t)j->p->stored->cols;
    const size_t groups = j->p->inputs ? cols / j->p->inputs : 1, width = cols / groups;
    float *sizes = calloc(j->p->inputs ? n * groups : 1, sizeof *sizes);
    if (!sizes)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", j->p->stored->name);
    bt_code code = read_stored_codes(j->s, j->p, row, n, codes, raw, sizes, alike, err);
    free(sizes);
    for (size_t g = 0; code == BT_OK && *alike && g < n * groups; g++) {
        const float level = latent_of_row(j->p, row * cols + g * width);
        for (size_t k = g * width; k < (g + 1) * width; k++) out[k] = level * (float)codes[k];
    }
    return code;
}

static void rows_range(void *ctx, int thread, size_t begin, size_t end) {
    rows_job *j = ctx;
    const bt_stored *f = j->p->stored;
    const size_t cols = (size_t)f->cols, step = bt_max_size(1, PIECE / cols);
    const bool latent = j->weights && has_latent_weights(j->p, j->row + begin, end - begin);
    unsigned char *raw = malloc(raw_bytes(f) + (latent ? step * cols : 0));
    bt_err why = BT_ERR_INIT;
    bt_code code = raw ? BT_OK
                       : bt_fail(&why, BT_NOMEM, "cannot allocate memory to read '%s'", f->name);
    (void)thread;
    for (size_t r = begin, n; r < end && code == BT_OK; r += n) { /* pieces that fit the cache */
        float *out = j->out + r * cols;
        bool alike = latent;
        n = bt_min_size(step, end - r);
        if (latent)
            code = read_latent_rows(j, j->row + r, n, out, (int8_t *)raw + raw_bytes(f), raw,
                                    &alike, &why);
        if (code != BT_OK || alike) continue;
        code = read_rows_as_stored(j->s, j->p, j->row + r, n, out, raw, &why);
        if (code == BT_OK && j->weights)
            code = convert_and_check_rows(j, j->row + r, out, n * cols, &why);
    }
    free(raw);
    if (code != BT_OK) rows_failed(j, begin, code, &why);
}

static bt_code read_stored_rows(bt_model_file *s, const bt_stored_location *p, uint64_t row,
                                size_t n, float *out, bool weights, bt_err *err) {
    rows_job j = {.s = s,
                  .p = p,
                  .row = row,
                  .out = out,
                  .weights = weights,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .err = err};
    bt_parallel_for(n, bt_max_size(1, PIECE / (size_t)p->stored->cols), rows_range, &j);
    return j.code;
}

/* Reads the scale of this row, or of the tensor. */
static bt_code read_scale(bt_model_file *s, bt_stored_location *p, size_t row, float *scale,
                          bt_err *err) {
    *scale = 1;
    if (!p->scale) return BT_OK;
    unsigned char raw[sizeof(float)];
    const size_t bytes = bt_number_bytes(p->scale->number, 1);
    const bool one = p->scale->rows * p->scale->cols == 1;
    BT_TRY(read_stored_bytes(s, p->scale, one ? 0 : row * bytes, raw, bytes, err));
    BT_TRY(bt_number_decode(p->scale->number, scale, raw, 1, err));
    if (!isfinite(*scale) || *scale <= 0)
        return bt_fail(err, BT_FORMAT, "tensor '%s' is %g, not a positive number", p->scale->name,
                       (double)*scale);
    if (p->order == BT_ROWS_PACKED && p->inverse != (*scale > 1) && !s->doubted) {
        s->doubted = true;
        bt_text_printf(&s->notes,
                       "'%s' is %g, which suggests the other convention of the scale (by its "
                       "'linear_class' it %s): check the text that the model generates\n",
                       p->scale->name, (double)*scale, p->inverse ? "divides" : "multiplies");
    }
    if (p->inverse) *scale = 1 / *scale;
    return BT_OK;
}

static void codes_range(void *ctx, int thread, size_t begin, size_t end) {
    rows_job *j = ctx;
    const bt_stored *f = j->p->stored;
    const size_t cols = (size_t)f->cols, step = bt_max_size(1, PIECE / cols),
                 groups = j->p->inputs ? cols / j->p->inputs : 1, width = cols / groups;
    unsigned char *raw = malloc(raw_bytes(f) + step * cols);
    bt_err why = BT_ERR_INIT;
    bt_code code = raw ? BT_OK
                       : bt_fail(&why, BT_NOMEM, "cannot allocate memory to read '%s'", f->name);
    bool alike = true;
    float size = 0, *sizes = &size;
    uint64_t some = 0;
    (void)thread;
    for (size_t r = begin, n; r < end && code == BT_OK && alike; r += n) {
        int8_t *codes = j->codes ? j->codes + r * cols : (int8_t *)raw + raw_bytes(f);
        n = bt_min_size(step, end - r);
        if (j->p->inputs) sizes = j->sizes + r * groups;
        code = read_stored_codes(j->s, j->p, j->row + r, n, codes, raw, sizes, &alike, &why);
        for (size_t k = 0; k < n * groups; k++) {
            size_t zero = 0;
            for (size_t e = k * width; e < (k + 1) * width; e++) zero += codes[e] == 0;
            if (j->p->inputs) j->some[r * groups + k] = width - zero;
            some += width - zero;
        }
    }
    free(raw);
    if (code != BT_OK) rows_failed(j, begin, code, &why);
    pthread_mutex_lock(&j->lock);
    if (!alike) j->alike = false;
    if (!j->p->inputs) {
        if (size != 0 && j->sizes[0] != 0 && size != j->sizes[0]) j->alike = false;
        if (size != 0) j->sizes[0] = size;
        j->some[0] += some;
    }
    pthread_mutex_unlock(&j->lock);
}

static bt_code allocate_scales(bt_stored_location *p, size_t n, bt_err *err) {
    if (!p->s) p->s = calloc(n, sizeof *p->s);
    if (!p->level) p->level = calloc(n, sizeof *p->level);
    return p->s && p->level
               ? BT_OK
               : bt_fail(err, BT_NOMEM, "cannot allocate memory for the scales of '%s'",
                         p->stored->name);
}

bt_code bt_model_file_read_codes(bt_model_file *s, size_t i, int8_t *codes, bool *alike,
                                 bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    bt_stored_location *p = &s->places[i];
    const size_t n = p->inputs ? t->count / p->inputs : 1, each = t->count / n;
    BT_TRY(allocate_scales(p, n, err));
    bt_stored_location stored = *p;
    if (!codes && !p->inputs && stored.order == BT_ROWS_TURNED)
        stored.order = BT_ROWS_PLAIN; /* counts codes of one size */
    rows_job j = {.s = s,
                  .p = &stored,
                  .codes = codes,
                  .alike = true,
                  .sizes = calloc(n, sizeof *j.sizes),
                  .some = calloc(n, sizeof *j.some),
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .err = err};
    bt_code code = j.sizes && j.some ? BT_OK
                                     : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'",
                                               p->stored->name);
    for (size_t k = 0; code == BT_OK && k < n; k++) code = read_scale(s, p, k, &p->s[k], err);
    if (code == BT_OK) {
        bt_parallel_for(t->rows, bt_max_size(1, PIECE / t->cols), codes_range, &j);
        code = j.code;
    }
    *alike = j.alike;
    for (size_t k = 0; code == BT_OK && j.alike && k < n; k++) {
        p->s[k] *= j.sizes[k];
        p->level[k] = j.some[k] ? (float)((double)p->s[k] * (double)each / (double)j.some[k]) : 0;
    }
    p->counted = code == BT_OK && j.alike;
    free(j.sizes);
    free(j.some);
    return code;
}

/* Reports two sizes of the elements, if they are not all 0 or of one size. */
static bt_code report_unequal_sizes(const bt_stored_location *p, const float *x, size_t n,
                                    float *most, bt_err *err) {
    for (size_t k = 0; k < n; k++) {
        if (*most == 0 || (p->inputs && k % p->inputs == 0)) *most = fabsf(x[k]);
        if (*most == 0) continue;
        if (x[k] != 0 && fabsf(x[k]) != *most)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s' contains %g and %g, but a ternary %s has one scale",
                           p->stored->name, (double)*most, (double)fabsf(x[k]),
                           !p->inputs                     ? "tensor"
                           : p->inputs == p->stored->cols ? "row"
                                                          : "group of inputs");
    }
    return BT_OK;
}

/* Reports why the elements of a tensor are not codes of one size. */
static bt_code explain_codes(bt_model_file *s, size_t i, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    bt_stored_location *p = &s->places[i];
    const size_t step = CHUNK / t->cols > 0 ? CHUNK / t->cols : 1;
    float most = 0, *x = malloc(step * t->cols * sizeof *x);
    bt_code code =
        x ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", p->stored->name);
    bt_stored_location stored = *p;
    if (stored.order == BT_ROWS_TURNED) stored.order = BT_ROWS_PLAIN;
    for (size_t row = 0; code == BT_OK && row < t->rows; row += step) {
        const size_t n = bt_min_size(step, t->rows - row);
        code = read_stored_rows(s, &stored, row, n, x, false, err);
        if (code == BT_OK) code = report_unequal_sizes(p, x, n * t->cols, &most, err);
    }
    free(x);
    BT_TRY(code);
    return bt_fail(err, BT_FORMAT,
                   "tensor '%s' contains %g, which is not a possible scale of ternary weights",
                   p->stored->name, (double)most);
}

/* Computes the scale, the number of nonzero codes, and the latent weight that represents one. */
static bt_code count_stored_codes(bt_model_file *s, size_t i, bt_err *err) {
    bool alike = true;
    BT_TRY(bt_model_file_read_codes(s, i, NULL, &alike, err));
    return alike ? BT_OK : explain_codes(s, i, err);
}

bt_code bt_model_file_codes(bt_model_file *s, size_t i, int8_t *codes, bool *direct, bt_err *err) {
    *direct = s->places && s->places[i].coded && !s->view.read;
    if (!*direct) return BT_OK;
    BT_TRY(bt_model_file_read_codes(s, i, codes, direct, err));
    if (!*direct) return explain_codes(s, i, err);
    const bt_stored_location *p = &s->places[i];
    /* The absmean of latent weights has a minimum, so a smaller scale would give other codes. */
    for (size_t k = 0; *direct && k < bt_model_file_scales(s, i); k++)
        *direct = isfinite(p->level[k]) && (p->s[k] >= 1e-5f || (p->inputs && p->s[k] == 0));
    return BT_OK;
}

size_t bt_model_file_scales(const bt_model_file *s, size_t i) {
    const bt_tensor *t = &s->params.tensors[i];
    return t->tern && s->cfg.scale != BT_SCALE_TENSOR
               ? t->count / bt_scale_inputs(s->cfg.scale, t->cols)
               : 1;
}

bt_code bt_model_file_scale(bt_model_file *s, size_t i, float *scale, bt_err *err) {
    const size_t n = bt_model_file_scales(s, i);
    memset(scale, 0, n * sizeof *scale);
    if (s->view.scale) return s->view.scale(s->view.ctx, s, i, scale, err);
    if (!s->places || !s->places[i].coded) return BT_OK;
    if (!s->places[i].counted) BT_TRY(count_stored_codes(s, i, err));
    memcpy(scale, s->places[i].s, n * sizeof *scale);
    return BT_OK;
}

static bt_code model_rows(bt_model_file *s, size_t i, uint64_t row, size_t n, float *out,
                          bt_err *err) {
    bt_stored_location *p = &s->places[i];
    if (p->coded && !p->counted) BT_TRY(count_stored_codes(s, i, err));
    return read_stored_rows(s, p, row, n, out, true, err);
}

static bt_code native_read(bt_model_file *s, const bt_tensor *t, uint64_t first, uint64_t count,
                           float *out, bt_err *err) {
    return bt_ckpt_reader_read(s->ckpt,
                               &(bt_ckpt_slice){.tensor = t->name,
                                                .state = "weight",
                                                .tensor_elems = t->count,
                                                .first = first,
                                                .count = count,
                                                .data = out},
                               err);
}

bt_code bt_model_file_read(bt_model_file *s, size_t i, uint64_t first, uint64_t count, float *out,
                           bt_err *err) {
    return s->view.read ? s->view.read(s->view.ctx, s, i, first, count, out, err)
                        : bt_model_file_read_own(s, i, first, count, out, err);
}

bt_code bt_model_file_read_own(bt_model_file *s, size_t i, uint64_t first, uint64_t count,
                               float *out, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    if (s->ckpt) return native_read(s, t, first, count, out, err);
    const uint64_t cols = s->places[i].stored->cols;
    while (count > 0) {
        const uint64_t in = first % cols, row = first / cols;
        uint64_t n = count / cols * cols;
        if (in > 0 || n == 0) { /* part of a row */
            n = cols - in < count ? cols - in : count;
            BT_TRY(model_rows(s, i, row, 1, s->row, err));
            memcpy(out, s->row + in, n * sizeof *out);
        } else
            BT_TRY(model_rows(s, i, row, (size_t)(n / cols), out, err));
        first += n;
        count -= n;
        out += n;
    }
    return BT_OK;
}

bt_code bt_model_file_weights(bt_model_file *s, float *weights, bt_err *err) {
    for (size_t i = 0; i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        BT_TRY(bt_model_file_read(s, i, 0, t->count, weights + t->offset, err));
        bt_model_file_passed(s, t->count);
    }
    return BT_OK;
}

void bt_model_file_passed(bt_model_file *s, uint64_t elems) {
    bt_model_watch *w = &s->watch;
    uint64_t all = 0;
    if (!w->progress) return;
    for (size_t i = 0; i < s->params.n; i++) all += s->params.tensors[i].count;
    w->elems += elems;
    w->progress(w->ctx, fmin(1, (double)w->elems / (double)all));
}
