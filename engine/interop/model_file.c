/* model_file.c - what the readers of all formats share: any stretch of a tensor as fp32. */
#include "engine/interop/model_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RAW_BYTES = 1 << 20, CHUNK = 1 << 20 };

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_there(const char *folder, const char *name) {
    char path[4400];
    snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    return access(path, F_OK) == 0;
}

bt_container bt_model_file_kind(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return BT_IN_NATIVE;
    if (!S_ISDIR(st.st_mode)) return BT_IN_GGUF;
    return is_there(path, "config.json") && !is_there(path, "manifest.json") ? BT_IN_HF
                                                                             : BT_IN_NATIVE;
}

bt_code bt_model_file_open(bt_model_file **out, const char *path, bt_err *err) {
    bt_model_file *s = *out = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", path);
    s->arch = BT_ARCH_COUNT;
    s->container = bt_model_file_kind(path);
    snprintf(s->path, sizeof s->path, "%s", path);
    bt_code code = s->container == BT_IN_HF     ? bt_model_file_open_hf(s, err)
                   : s->container == BT_IN_GGUF ? bt_model_file_open_gguf(s, err)
                                                : bt_model_file_open_native(s, err);
    if (code == BT_OK && s->tokenizer && bt_tokenizer_vocab(s->tokenizer) > s->cfg.V)
        code = bt_fail(err, BT_FORMAT,
                       "'%.300s': the tokenizer has %d tokens, the model's vocabulary %d", path,
                       bt_tokenizer_vocab(s->tokenizer), s->cfg.V);
    if (code == BT_OK) return BT_OK;
    bt_model_file_close(s);
    *out = NULL;
    return code;
}

void bt_model_file_close(bt_model_file *s) {
    if (!s) return;
    if (s->view.release) s->view.release(s->view.ctx);
    bt_ckpt_reader_close(s->ckpt);
    bt_ckpt_meta_release(&s->meta);
    bt_stored_release(&s->stored);
    bt_params_release(&s->params);
    bt_tokenizer_free(s->tokenizer);
    bt_text_release(&s->notes);
    free(s->places);
    free(s->raw);
    free(s->row);
    free(s);
}

bt_code bt_model_file_tables(bt_model_file *s, bt_err *err) {
    BT_TRY(bt_params_init(&s->params, &s->cfg, (bt_model_slice){0}, err));
    size_t longest = 0;
    for (size_t i = 0; i < s->params.n; i++)
        if (s->params.tensors[i].cols > longest) longest = s->params.tensors[i].cols;
    s->places = calloc(s->params.n, sizeof *s->places);
    s->raw = malloc(RAW_BYTES > 4 * longest ? RAW_BYTES : 4 * longest);
    s->row = malloc(longest * sizeof *s->row);
    if (s->places && s->raw && s->row) return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", s->path);
}

bt_code bt_model_file_check_shape(const bt_tensor *t, const bt_stored *f, bt_row_order order,
                                  bt_err *err) {
    const uint64_t rows = order == BT_ROWS_PACKED ? t->rows / 4 : t->rows;
    if (f->rows == rows && f->cols == t->cols && (order != BT_ROWS_PACKED || t->rows % 4 == 0))
        return BT_OK;
    return bt_fail(err, BT_FORMAT,
                   "tensor '%s' is %llu x %llu, but the model's sizes make it %llu x %zu", f->name,
                   (unsigned long long)f->rows, (unsigned long long)f->cols,
                   (unsigned long long)rows, t->cols);
}

static void name_some(bt_text *list, const char *name, size_t *n) {
    if (++*n <= 3) bt_text_printf(list, "%s%s", *n > 1 ? ", " : "", name);
}

bt_code bt_model_file_complete(bt_model_file *s,
                               bool (*extra)(const bt_model_file *s, const char *name),
                               bt_err *err) {
    bt_text list = {0};
    size_t n = 0;
    bt_code code = BT_OK;
    for (size_t i = 0; i < s->params.n; i++)
        if (!s->places[i].stored) name_some(&list, s->params.tensors[i].name, &n);
    if (n > 0)
        code = bt_fail(err, BT_FORMAT, "%zu tensor%s of the model %s missing: %s%s", n,
                       n > 1 ? "s" : "", n > 1 ? "are" : "is", bt_text_str(&list),
                       n > 3 ? ", ..." : "");
    bt_text_clear(&list);
    n = 0;
    for (size_t i = 0; code == BT_OK && i < s->stored.n; i++) {
        const bt_stored *t = &s->stored.at[i];
        if (t->used) continue;
        if (extra(s, t->name))
            bt_text_printf(&s->notes, "tensor '%s' is not used\n", t->name);
        else
            name_some(&list, t->name, &n);
    }
    if (n > 0)
        code = bt_fail(err, BT_UNSUPPORTED,
                       "%zu tensor%s for which the architecture has no place: %s%s", n,
                       n > 1 ? "s" : "", bt_text_str(&list), n > 3 ? ", ..." : "");
    bt_text_release(&list);
    return code;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* row of ours -> row of the file: head h, half a, pair i -> head h, pair i, half a */
static uint64_t turned(const bt_model_file *s, uint64_t row) {
    const uint64_t D = (uint64_t)s->cfg.D, in = row % D;
    return row - in + in % (D / 2) * 2 + in / (D / 2);
}

static bt_code bytes_of(bt_model_file *s, const bt_stored *f, uint64_t at, size_t n, bt_err *err) {
    return bt_foreign_read(&s->stored.files[f->file], s->raw, n, f->at + at, err);
}

static bt_code plain_rows(bt_model_file *s, const bt_stored_place *p, uint64_t row, size_t n,
                          float *out, bt_err *err) {
    const bt_stored *f = p->stored;
    const size_t cols = (size_t)f->cols, row_bytes = bt_number_bytes(f->number, cols),
                 most = RAW_BYTES / row_bytes > 0 ? RAW_BYTES / row_bytes : 1;
    for (size_t done = 0, k; done < n; done += k) {
        k = n - done < most ? n - done : most;
        BT_TRY(bytes_of(s, f, (row + done) * row_bytes, k * row_bytes, err));
        bt_err why = BT_ERR_INIT;
        if (bt_number_decode(f->number, out + done * cols, s->raw, k * cols, &why) != BT_OK)
            return bt_fail(err, BT_FORMAT, "tensor '%s', rows from %llu: %s", f->name,
                           (unsigned long long)(row + done), why.msg);
    }
    return BT_OK;
}

static bt_code packed_row(bt_model_file *s, const bt_stored_place *p, uint64_t row, float *out,
                          bt_err *err) {
    const bt_stored *f = p->stored;
    const unsigned shift = (unsigned)(row / f->rows) * 2;
    BT_TRY(bytes_of(s, f, row % f->rows * f->cols, (size_t)f->cols, err));
    for (size_t i = 0; i < f->cols; i++) {
        const unsigned code = (unsigned)s->raw[i] >> shift & 3u;
        if (code == 3)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s', row %llu, input %zu holds the code 3, which no ternary "
                           "weight has",
                           f->name, (unsigned long long)row, i);
        out[i] = (float)(int)code - 1.0f;
    }
    return BT_OK;
}

/* as stored: values, or codes */
static bt_code stored_rows(bt_model_file *s, const bt_stored_place *p, uint64_t row, size_t n,
                           float *out, bt_err *err) {
    if (p->order == BT_ROWS_PLAIN) return plain_rows(s, p, row, n, out, err);
    for (size_t k = 0; k < n; k++, out += p->stored->cols) {
        if (p->order == BT_ROWS_TURNED)
            BT_TRY(plain_rows(s, p, turned(s, row + k), 1, out, err));
        else
            BT_TRY(packed_row(s, p, row + k, out, err));
    }
    return BT_OK;
}

/* ---- codes ----------------------------------------------------------------------------------- */

static bt_code read_scale(bt_model_file *s, bt_stored_place *p, float *scale, bt_err *err) {
    *scale = 1;
    if (!p->scale) return BT_OK;
    BT_TRY(bytes_of(s, p->scale, 0, (size_t)p->scale->bytes, err));
    BT_TRY(bt_number_decode(p->scale->number, scale, s->raw, 1, err));
    if (!isfinite(*scale) || *scale <= 0)
        return bt_fail(err, BT_FORMAT, "tensor '%s' is %g, not a positive number", p->scale->name,
                       (double)*scale);
    if (p->order == BT_ROWS_PACKED && p->inverse != (*scale > 1) && !s->doubted) {
        s->doubted = true;
        bt_text_printf(&s->notes,
                       "'%s' is %g, which looks like the other convention of the scale (its "
                       "'linear_class' says that it %s): look at what the model writes\n",
                       p->scale->name, (double)*scale, p->inverse ? "divides" : "multiplies");
    }
    if (p->inverse) *scale = 1 / *scale;
    return BT_OK;
}

/* the scale, how many codes are not zero, and the latent weight that stands for one */
static bt_code count_codes(bt_model_file *s, size_t i, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    bt_stored_place *p = &s->places[i];
    const size_t step = CHUNK / t->cols > 0 ? CHUNK / t->cols : 1;
    float scale, most = 0, *x = malloc(step * t->cols * sizeof *x);
    uint64_t some = 0;
    if (!x) return bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", p->stored->name);
    bt_code code = read_scale(s, p, &scale, err);
    bt_stored_place stored = *p;
    if (stored.order == BT_ROWS_TURNED) stored.order = BT_ROWS_PLAIN; /* any order counts alike */
    for (size_t row = 0; code == BT_OK && row < t->rows; row += step) {
        const size_t n = t->rows - row < step ? t->rows - row : step;
        code = stored_rows(s, &stored, row, n, x, err);
        for (size_t k = 0; code == BT_OK && k < n * t->cols; k++) {
            const float size = fabsf(x[k]);
            if (!(size > 0)) continue;
            if (most == 0) most = size;
            if (size != most)
                code = bt_fail(err, BT_FORMAT,
                               "tensor '%s' holds %g and %g: a ternary tensor has one scale",
                               p->stored->name, (double)most, (double)size);
            some++;
        }
    }
    free(x);
    BT_TRY(code);
    p->s = most * scale;
    p->level = some ? (float)((double)p->s * (double)t->count / (double)some) : 0;
    p->counted = true;
    return BT_OK;
}

bt_code bt_model_file_scale(bt_model_file *s, size_t i, float *scale, bt_err *err) {
    *scale = 0;
    if (s->view.scale) return s->view.scale(s->view.ctx, s, i, scale, err);
    if (!s->places || !s->places[i].coded) return BT_OK;
    if (!s->places[i].counted) BT_TRY(count_codes(s, i, err));
    *scale = s->places[i].s;
    return BT_OK;
}

/* ---- any stretch ------------------------------------------------------------------------------ */

static bt_code model_rows(bt_model_file *s, size_t i, uint64_t row, size_t n, float *out,
                          bt_err *err) {
    bt_stored_place *p = &s->places[i];
    if (p->coded && !p->counted) BT_TRY(count_codes(s, i, err));
    BT_TRY(stored_rows(s, p, row, n, out, err));
    const size_t elems = n * (size_t)s->params.tensors[i].cols;
    for (size_t k = 0; p->coded && k < elems; k++)
        out[k] = out[k] > 0 ? p->level : out[k] < 0 ? -p->level : 0;
    float wrong = 0; /* x - x is 0 for every number but infinities */
    for (size_t k = 0; k < elems; k++) wrong = out[k] - out[k] == 0 ? wrong : out[k];
    if (isfinite(wrong) && wrong == 0) return BT_OK;
    return bt_fail(err, BT_FORMAT, "tensor '%s' holds %g in its rows from %llu", p->stored->name,
                   (double)wrong, (unsigned long long)row);
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
    while (count > 0) {
        const uint64_t in = first % t->cols, row = first / t->cols;
        uint64_t n = count / t->cols * t->cols;
        if (in > 0 || n == 0) { /* part of a row */
            n = t->cols - in < count ? t->cols - in : count;
            BT_TRY(model_rows(s, i, row, 1, s->row, err));
            memcpy(out, s->row + in, n * sizeof *out);
        } else
            BT_TRY(model_rows(s, i, row, (size_t)(n / t->cols), out, err));
        first += n;
        count -= n;
        out += n;
    }
    return BT_OK;
}

bt_code bt_model_file_weights(bt_model_file *s, float *weights, bt_err *err) {
    for (size_t i = 0; i < s->params.n; i++)
        BT_TRY(bt_model_file_read(s, i, 0, s->params.tensors[i].count,
                                  weights + s->params.tensors[i].offset, err));
    return BT_OK;
}
