/* base_weights.c - reads the base tensor by tensor into the form that its model keeps, and hashes it. */
#include "engine/tune/base_weights.h"

#include <stdlib.h>
#include <xxhash.h>

#include "engine/interop/init_from.h"
#include "engine/interop/out_file.h"

enum { PIECE = 1 << 20 }; /* elements */

static int64_t as_kept(uint64_t h) { return (int64_t)(h >> 11) + 1; }

/* Tensors pass through `x`, a linear layer's as a whole (its scale is a mean), others in pieces; m NULL:
 * only the hash is wanted */
typedef struct reading {
    bt_model_file *file;
    bt_model *m;
    float *x;
    XXH3_state_t *state;
    uint64_t h;
} reading;

static size_t room_for(const bt_params *p) {
    size_t most = PIECE;
    for (size_t i = 0; i < p->n; i++)
        if (p->tensors[i].linear && p->tensors[i].count > most) most = p->tensors[i].count;
    return most;
}

/* f NULL: a norm that the file lacks, which is one everywhere */
static bt_code read_tensor(reading *r, const bt_tensor *t, const bt_tensor *f, size_t i,
                           bt_err *err) {
    (void)XXH3_64bits_reset_withSeed(r->state, r->h);
    const uint64_t step = t->linear ? t->count : PIECE;
    for (uint64_t at = 0, n; at < t->count; at += n) {
        n = t->count - at < step ? t->count - at : step;
        for (uint64_t k = 0; !f && k < n; k++) r->x[k] = 1.0f;
        if (f)
            BT_TRY(bt_model_file_read_own(r->file, (size_t)(f - r->file->params.tensors), at, n,
                                          r->x, err));
        (void)XXH3_64bits_update(r->state, r->x, n * sizeof *r->x);
        if (r->m) bt_model_base_put(r->m, i, at, n, r->x, t->tern ? bt_absmean(f, r->x) : 0);
    }
    r->h = XXH3_64bits_digest(r->state);
    return BT_OK;
}

static bt_code read_all(bt_base_weights *b, bt_model_file *file, bt_model *m, bt_err *err) {
    const bt_params *p = m ? bt_model_base(m) : &file->params;
    reading r = {
        .file = file, .m = m, .x = malloc(room_for(p) * sizeof *r.x), .state = XXH3_createState()};
    bt_code code = r.x && r.state
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", file->path);
    for (size_t i = 0; code == BT_OK && i < p->n; i++)
        code = read_tensor(&r, &p->tensors[i], bt_params_named(&file->params, p->tensors[i].name),
                           i, err);
    (void)XXH3_freeState(r.state);
    free(r.x);
    if (code == BT_OK) b->hash = as_kept(r.h);
    return code;
}

bt_code bt_base_weights_hash(bt_base_weights *b, bt_model_file *file, bt_err *err) {
    return read_all(b, file, NULL, err);
}

static bt_code check(const bt_model *m, const bt_model_file *file, bt_text *told, bt_err *err) {
    bt_model_cfg base = *bt_model_config(m);
    base.lora = (bt_lora){0};
    if (file->cfg.lora.rank)
        return bt_fail(err, BT_ARG,
                       "the base '%.200s' holds adapters alone: give the model that they were "
                       "trained beside, or merge them first (bitrain convert --merge)",
                       file->path);
    return bt_init_from_check(file, &base, told, err);
}

bt_code bt_base_weights_load(bt_base_weights *b, bt_model *m, const char *path, bt_text *told,
                             bt_err *err) {
    bt_model_file *file = NULL;
    if (!bt_model_base(m)) return BT_OK;
    bt_code code = bt_model_file_open(&file, path, err);
    if (code == BT_OK) code = check(m, file, told, err);
    if (code == BT_OK) code = read_all(b, file, m, err);
    bt_model_file_close(file);
    if (code == BT_OK) bt_model_base_done(m);
    return code;
}

static void save(void *ctx, bt_json *j) {
    bt_json_int(j, "hash", ((const bt_base_weights *)ctx)->hash);
}

static void load(void *ctx, const bt_state_values *v) {
    ((bt_base_weights *)ctx)->trained_on = bt_state_int(v, "hash", 0);
}

void bt_base_weights_add_state(bt_base_weights *b, bt_state *s) {
    bt_state_add(s, &(bt_state_row){.name = "base", .ctx = b, .save = save, .load = load});
}

int64_t bt_base_weights_of(const bt_ckpt_meta *m) {
    return (int64_t)bt_ckpt_state_real(m, "base", "hash", 0);
}

bt_code bt_base_weights_check(const bt_base_weights *b, const char *path, bt_err *err) {
    if (!b->hash || !b->trained_on || b->hash == b->trained_on) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "the adapters were trained beside another base than '%.200s': its weights differ "
        "(name theirs with tune.base, or --base)",
        path);
}
