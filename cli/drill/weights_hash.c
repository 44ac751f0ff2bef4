/* weights_hash.c - one number for the content of a checkpoint, weights and optimizer states, that does not depend on
 * the layout. */
#include <stdlib.h>
#include <string.h>

#include "cli/drill/drill.h"
#include "cli/model/checkpoint_model.h"
#include "engine/ckpt/ckpt.h"
#include "engine/model/shape/params.h"

static uint64_t fnv1a_64(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static bt_code hash_all_parameters(const char *path, const bt_params *p, uint64_t *hash,
                                   bt_err *err) {
    static const char *const states[] = {"weight", "exp_avg", "exp_avg_sq"};
    size_t most = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->tensors[i].count > most) most = p->tensors[i].count;
    float *data = malloc(most * sizeof *data);
    bt_code code = data ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the largest tensor");
    *hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; code == BT_OK && i < p->n * 3; i++) {
        const bt_tensor *t = &p->tensors[i / 3];
        const bt_ckpt_slice all = {.tensor = t->name,
                                   .state = states[i % 3],
                                   .tensor_elems = t->count,
                                   .count = t->count,
                                   .data = data,
                                   .type = BT_CKPT_F32};
        code = bt_ckpt_load(path, &all, 1, err);
        if (code == BT_OK) *hash = fnv1a_64(*hash, data, t->count * sizeof *data);
    }
    free(data);
    return code;
}

bt_code bt_drill_hash(const char *out_dir, uint64_t *hash, int64_t *step, bt_err *err) {
    bt_trained whole;
    bt_params p;
    bt_model_cfg m;
    const bt_trained_how how = {
        .which = out_dir, .store = "", .weight = 1, .isa = "", .threads = 1, .B = 1};
    BT_TRY(bt_trained_load(&whole, &how, err));
    *step = whole.meta.step;
    bt_run_cfg_model(&whole.cfg, &m);
    bt_code code = bt_params_init(&p, &m, (bt_model_slice){0}, err);
    if (code == BT_OK) {
        code = hash_all_parameters(whole.path, &p, hash, err);
        bt_params_release(&p);
    }
    bt_trained_release(&whole);
    return code;
}
