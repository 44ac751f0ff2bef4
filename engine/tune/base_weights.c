/* base_weights.c - reads the tensors of the base whole, on every rank, and hashes them. */
#include "engine/tune/base_weights.h"

#include <stdlib.h>
#include <xxhash.h>

#include "engine/interop/init_from.h"

enum { PIECE = 1 << 20 }; /* elements */

/* norms that the file lacks stay at one */
static bt_code read_all(bt_model *m, bt_model_file *file, bt_err *err) {
    const bt_params *p = bt_model_base(m);
    float *w = bt_model_base_weights(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i], *f = bt_params_named(&file->params, t->name);
        for (size_t k = 0; !f && k < t->count; k++) w[t->offset + k] = 1.0f;
        if (f)
            BT_TRY(bt_model_file_read(file, (size_t)(f - file->params.tensors), 0, t->count,
                                      w + t->offset, err));
    }
    return BT_OK;
}

static int64_t as_kept(uint64_t h) { return (int64_t)(h >> 11) + 1; }

static int64_t hash_of(bt_model *m) {
    const bt_params *p = bt_model_base(m);
    uint64_t h = 0;
    for (size_t i = 0; i < p->n; i++)
        h = XXH3_64bits_withSeed(bt_model_base_weights(m) + p->tensors[i].offset,
                                 p->tensors[i].count * sizeof(float), h);
    return as_kept(h);
}

/* as hash_of, of the model that has been read from the file */
static bt_code hash_file(bt_model_file *file, float *piece, XXH3_state_t *state, uint64_t *h,
                         bt_err *err) {
    for (size_t i = 0; i < file->params.n; i++) {
        const uint64_t count = file->params.tensors[i].count;
        (void)XXH3_64bits_reset_withSeed(state, *h);
        for (uint64_t at = 0, n; at < count; at += n) {
            n = count - at < PIECE ? count - at : PIECE;
            BT_TRY(bt_model_file_read_own(file, i, at, n, piece, err));
            (void)XXH3_64bits_update(state, piece, n * sizeof *piece);
        }
        *h = XXH3_64bits_digest(state);
    }
    return BT_OK;
}

bt_code bt_base_weights_hash(bt_base_weights *b, bt_model_file *file, bt_err *err) {
    uint64_t h = 0;
    float *piece = malloc(PIECE * sizeof *piece);
    XXH3_state_t *state = XXH3_createState();
    bt_code code = piece && state
                       ? hash_file(file, piece, state, &h, err)
                       : bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", file->path);
    (void)XXH3_freeState(state);
    free(piece);
    if (code == BT_OK) b->hash = as_kept(h);
    return code;
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
    if (code == BT_OK) code = read_all(m, file, err);
    bt_model_file_close(file);
    BT_TRY(code);
    b->hash = hash_of(m);
    bt_model_quantise(m);
    return BT_OK;
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
