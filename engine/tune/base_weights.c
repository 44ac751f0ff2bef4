/* base_weights.c - reads the base tensor by tensor into the format of its model, and computes its hash. */
#include "engine/tune/base_weights.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/small.h"

#include "engine/interop/init_from.h"
#include "engine/interop/out_file.h"

enum { PIECE = 1 << 20 }; /* elements */

static int64_t to_53_bits(uint64_t h) { return (int64_t)(h >> 11) + 1; }

/* Tensors are read into `x`: linear layers as a whole (for their scale), others in rows. m NULL: only hashes them. */
typedef struct reading {
    bt_model_file *file;
    bt_model *m;
    float *x, *scales; /* scales: those of the rows or groups of a ternary tensor */
    XXH3_state_t *state;
    uint64_t h;
} reading;

static size_t most_scales(const bt_params *p, bt_scale_kind scale) {
    size_t most = 1;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        if (t->tern) most = bt_max_size(most, t->count / bt_scale_inputs(scale, t->cols));
    }
    return most;
}

static size_t largest_tensor_room(const bt_params *p) {
    size_t most = PIECE;
    for (size_t i = 0; i < p->n; i++)
        most = bt_max_size(most, p->tensors[i].linear ? p->tensors[i].count : p->tensors[i].cols);
    return most;
}

/* A range that is contiguous both in the block and in the whole tensor: one row of the block, or all of its rows. */
typedef struct block_run {
    size_t begin, n; /* position and length in the whole tensor */
} block_run;

static block_run block_row_run(const bt_tensor *t, size_t row) {
    return (block_run){(t->row0 + row) * t->whole_cols + t->col0,
                       t->cols == t->whole_cols ? t->count : t->cols};
}

/* Moves the block of the whole tensor in x to the beginning of x. */
static void cut_block(float *x, const bt_tensor *t) {
    size_t at = 0;
    for (block_run run; at < t->count; at += run.n) {
        run = block_row_run(t, at / t->cols);
        memmove(x + at, x + run.begin, run.n * sizeof *x);
    }
}

/* Stores this slice's block of a ternary tensor, which r->x contains completely. */
static void store_ternary(reading *r, size_t i, float scale) {
    const bt_tensor *t = &bt_model_base(r->m)->tensors[i];
    const bt_scale_kind kind = bt_model_config(r->m)->scale;
    const bool rows = kind != BT_SCALE_TENSOR;
    const size_t inputs = bt_scale_inputs(kind, t->whole_cols);
    if (rows)
        bt_model_scale_rows(r->scales, r->x + t->row0 * t->whole_cols,
                            t->rows * (t->whole_cols / inputs), inputs);
    cut_block(r->x, t);
    if (rows)
        bt_model_base_put_rows(r->m, i, r->x, r->scales);
    else
        bt_model_base_put(r->m, i, 0, t->count, r->x, scale);
}

/* Stores elements at .. at+n of the whole tensor, which r->x contains. */
static void store_block(reading *r, size_t i, uint64_t at, uint64_t n, float scale) {
    const bt_tensor *t = &bt_model_base(r->m)->tensors[i];
    if (t->tern) {
        store_ternary(r, i, scale);
        return;
    }
    block_run run;
    for (size_t own = 0; own < t->count; own += run.n) {
        run = block_row_run(t, own / t->cols);
        const size_t from = bt_max_size(run.begin, at), to = bt_min_size(run.begin + run.n, at + n);
        if (from < to)
            bt_model_base_put(r->m, i, own + from - run.begin, to - from, r->x + (from - at), 0);
    }
}

/* Stores the part of a tensor that the model has: none of other stages, except for the copy of a tied embedding. */
static void store_elements(reading *r, const bt_tensor *t, uint64_t at, uint64_t n, float scale) {
    const bt_params *base = bt_model_base(r->m);
    const bt_tensor *own = bt_params_get(base, t->layer, t->id);
    if (t->id == BT_P_EMBED) bt_model_base_put_tied(r->m, at, n, r->x);
    if (own) store_block(r, (size_t)(own - base->tensors), at, n, scale);
}

/* f NULL: the file does not have this norm, whose values then are one. */
static bt_code read_tensor(reading *r, const bt_tensor *t, const bt_tensor *f, bt_err *err) {
    (void)XXH3_64bits_reset_withSeed(r->state, r->h);
    const uint64_t step = t->linear ? t->count : bt_max_size(PIECE / t->cols, 1) * t->cols;
    for (uint64_t at = 0, n; at < t->count; at += n) {
        n = t->count - at < step ? t->count - at : step;
        for (uint64_t k = 0; !f && k < n; k++) r->x[k] = 1.0f;
        if (f)
            BT_TRY(bt_model_file_read_own(r->file, (size_t)(f - r->file->params.tensors), at, n,
                                          r->x, err));
        (void)XXH3_64bits_update(r->state, r->x, n * sizeof *r->x);
        if (r->m) store_elements(r, t, at, n, t->tern ? bt_absmean(f, r->x) : 0);
    }
    r->h = XXH3_64bits_digest(r->state);
    return BT_OK;
}

/* p: the tensors of the whole model, so that every rank computes the same hash. */
static bt_code read_table(bt_base_weights *b, bt_model_file *file, bt_model *m, const bt_params *p,
                          bt_err *err) {
    reading r = {.file = file,
                 .m = m,
                 .x = malloc(largest_tensor_room(p) * sizeof *r.x),
                 .scales = malloc(most_scales(p, m ? bt_model_config(m)->scale : BT_SCALE_TENSOR) *
                                  sizeof *r.scales),
                 .state = XXH3_createState()};
    bt_code code = r.x && r.scales && r.state
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", file->path);
    for (size_t i = 0; code == BT_OK && i < p->n; i++) {
        code = read_tensor(&r, &p->tensors[i], bt_params_named(&file->params, p->tensors[i].name),
                           err);
        bt_model_file_passed(file, p->tensors[i].count);
    }
    (void)XXH3_freeState(r.state);
    free(r.x);
    free(r.scales);
    if (code == BT_OK) b->hash = to_53_bits(r.h);
    return code;
}

static bt_code read_base_tensors(bt_base_weights *b, bt_model_file *file, bt_model *m,
                                 bt_err *err) {
    bt_params whole;
    const bt_model_cfg base = bt_params_base(bt_model_config(m));
    BT_TRY(bt_params_init(&whole, &base, (bt_model_slice){0}, err));
    bt_code code = read_table(b, file, m, &whole, err);
    bt_params_release(&whole);
    return code;
}

bt_code bt_base_weights_hash(bt_base_weights *b, bt_model_file *file, bt_err *err) {
    return read_table(b, file, NULL, &file->params, err);
}

static bt_code check_base_model(const bt_model *m, bt_model_file *file, bt_text *notes,
                                bt_err *err) {
    const bt_model_cfg base = bt_params_base(bt_model_config(m));
    if (file->cfg.lora.rank)
        return bt_fail(err, BT_ARG,
                       "the base '%.200s' contains only adapters: give the model with which they "
                       "were trained, or merge them first (bitrain convert --merge)",
                       file->path);
    return bt_init_from_check(file, &base, notes, err);
}

bt_code bt_base_weights_load(bt_base_weights *b, bt_model *m, const char *path, bt_text *notes,
                             bt_err *err) {
    bt_model_file *file = NULL;
    if (!bt_model_base(m)) return BT_OK;
    bt_code code = bt_model_file_open(&file, path, err);
    if (code == BT_OK) {
        file->watch = b->watch;
        code = check_base_model(m, file, notes, err);
    }
    if (code == BT_OK) code = read_base_tensors(b, file, m, err);
    if (code == BT_OK) bt_text_put(notes, bt_text_str(&file->notes));
    bt_model_file_close(file);
    if (code == BT_OK) bt_model_base_done(m);
    return code;
}

static void save_base_hash(void *ctx, bt_json *j) {
    bt_json_int(j, "hash", ((const bt_base_weights *)ctx)->hash);
}

static void load_base_hash(void *ctx, const bt_state_values *v) {
    ((bt_base_weights *)ctx)->trained_on = bt_state_int(v, "hash", 0);
}

void bt_base_weights_add_state(bt_base_weights *b, bt_state *s) {
    bt_state_add(s, &(bt_state_row){
                        .name = "base", .ctx = b, .save = save_base_hash, .load = load_base_hash});
}

int64_t bt_base_weights_of(const bt_ckpt_meta *m) {
    return (int64_t)bt_ckpt_state_real(m, "base", "hash", 0);
}

bt_code bt_base_weights_check(const bt_base_weights *b, const char *path, bt_err *err) {
    if (!b->hash || !b->trained_on || b->hash == b->trained_on) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "the adapters were trained with another base than '%.200s', whose weights "
                   "differ (give their base with tune.base, or --base)",
                   path);
}
