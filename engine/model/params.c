/* params.c - the tensor table of one model, from params.def. */
#include "engine/model/params.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL, LAYER };                         /* scope */
enum { NORMAL, RESID, ONE };                    /* init */
enum { ALIGN_ELEMS = 16 };

typedef struct param_row {                      /* one row of params.def, evaluated for one configuration */
    bt_param_id id;
    const char *name;
    int scope;
    int64_t rows, cols;
    int init;
    bool decay, tern;
    bt_shard_axis shard;
    bool when;
} param_row;

static void rows_for(param_row rows[BT_P_COUNT], const bt_model_cfg *c) {
    size_t i = 0;
#define ROW BT_SHARD_ROW
#define COL BT_SHARD_COL
#define NONE BT_SHARD_NONE
#define VOCAB BT_SHARD_VOCAB
#define BT_PARAM(id_, name_, scope_, rows_, cols_, init_, decay_, tern_, shard_, when_) \
    rows[i++] = (param_row){BT_P_##id_, name_, scope_, rows_, cols_, init_, decay_, tern_, shard_, when_};
#include "engine/model/params.def"
#undef BT_PARAM
#undef ROW
#undef COL
#undef NONE
#undef VOCAB
}

static bool add(bt_params *p, const param_row *r, int layer, const bt_model_cfg *c) {
    if (!r->when) return true;
    bt_tensor *t = &p->tensors[p->n];
    t->id = r->id;
    t->layer = layer;
    if (layer < 0) (void)snprintf(t->name, sizeof t->name, "%s", r->name);
    else (void)snprintf(t->name, sizeof t->name, "layers.%d.%s", layer, r->name);
    t->rows = (size_t)r->rows;
    t->cols = (size_t)r->cols;
    t->offset = p->total;
    t->decay = r->decay;
    t->linear = r->tern;
    t->tern = r->tern && c->linear != BT_LIN_DENSE;
    t->shard = r->shard;
    t->init_std = r->init == ONE ? 0.0f : (float)(r->init == RESID ? c->init_std / sqrt(2.0 * c->L) : c->init_std);
    p->index[layer + 1][r->id] = p->n++;
    size_t end = 0;
    if (__builtin_mul_overflow(t->rows, t->cols, &t->count) || __builtin_add_overflow(p->total, t->count, &end) ||
        end > SIZE_MAX / sizeof(float) - ALIGN_ELEMS) {
        return false;
    }
    p->count += t->count;
    p->total = (end + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    return true;
}

bt_code bt_params_init(bt_params *p, const bt_model_cfg *c, bt_err *err) {
    memset(p, 0, sizeof *p);
    BT_TRY(bt_model_cfg_check(c, err));
    param_row rows[BT_P_COUNT];
    rows_for(rows, c);
    size_t L = (size_t)c->L;
    p->tensors = calloc((L + 1) * BT_P_COUNT, sizeof *p->tensors);
    p->index = malloc((L + 1) * sizeof *p->index);
    if (!p->tensors || !p->index) {
        bt_params_release(p);
        return bt_fail(err, BT_NOMEM, "cannot take memory for the tensor table of %d layers", c->L);
    }
    for (size_t l = 0; l <= L; l++) {
        for (size_t i = 0; i < BT_P_COUNT; i++) p->index[l][i] = SIZE_MAX;
    }
    bool fits = true;
    size_t i = 0;
    for (; i < BT_P_COUNT && rows[i].scope == GLOBAL; i++) fits = fits && add(p, &rows[i], -1, c);
    size_t first = i;
    while (i < BT_P_COUNT && rows[i].scope == LAYER) i++;
    for (int l = 0; l < c->L; l++) {
        for (size_t j = first; j < i; j++) fits = fits && add(p, &rows[j], l, c);
    }
    for (; i < BT_P_COUNT; i++) fits = fits && add(p, &rows[i], -1, c);
    if (!fits) {
        bt_params_release(p);
        return bt_fail(err, BT_NOMEM, "a model of %d layers, width %d and vocabulary %d is larger than an address can be", c->L, c->C, c->V);
    }
    return BT_OK;
}

void bt_params_release(bt_params *p) {
    free(p->tensors);
    free(p->index);
    memset(p, 0, sizeof *p);
}

const bt_tensor *bt_params_get(const bt_params *p, int layer, bt_param_id id) {
    size_t i = p->index[layer + 1][id];
    return i == SIZE_MAX ? NULL : &p->tensors[i];
}

const bt_tensor *bt_params_named(const bt_params *p, const char *name) {
    for (size_t i = 0; i < p->n; i++) {
        if (strcmp(p->tensors[i].name, name) == 0) return &p->tensors[i];
    }
    return NULL;
}

uint64_t bt_params_hash(const bt_params *p) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        char line[128];
        (void)snprintf(line, sizeof line, "%s %zu %zu\n", t->name, t->rows, t->cols);
        for (const char *s = line; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    }
    return h;
}
