/* model_weights.c - which weights are trained and in which formats; initial weights and the keys of gradient rounding,
 * which depend only on the seed and on positions. */
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/ternary.h"
#include "engine/model/net/net.h"

const bt_params *bt_model_params(const bt_model *m) {
    return m->adapters.n ? &m->adapters : &m->params;
}

const bt_params *bt_model_base(const bt_model *m) { return m->adapters.n ? &m->params : NULL; }
float *bt_model_weights(bt_model *m) { return m->adapters.n ? m->adapter_w : m->w; }
bt_latent bt_model_latent(const bt_model *m, size_t tensor) {
    if (!m->adapters.n) return m->latents[tensor];
    return (bt_latent){m->adapter_w + m->adapters.tensors[tensor].offset, BT_MOMENT_F32};
}

bt_moment_form bt_model_latent_form(const bt_model_setup *s, const bt_tensor *t) {
    return bt_net_latent_apart(s) && t->tern ? BT_MOMENT_BF16 : BT_MOMENT_F32;
}

const float *bt_latent_read(bt_latent w, size_t first, size_t n, float *spare) {
    const void *at = bt_latent_at(w, first);
    if (w.form == BT_MOMENT_F32) return at;
    bt_active_kernels()->moment_load(spare, at, w.form, n);
    return spare;
}

float bt_model_weight_at(const bt_model *m, size_t at) {
    const bt_params *p = bt_model_params(m);
    float spare;
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *t = &p->tensors[k];
        if (at >= t->offset && at < t->offset + t->count)
            return *bt_latent_read(bt_model_latent(m, k), at - t->offset, 1, &spare);
    }
    return 0;
}

enum { INIT_PIECE = 4096 };

typedef struct init_job {
    bt_latent w;
    const bt_tensor *t;
    size_t first;
    float std;
    uint64_t seed, stream;
} init_job;

/* A value depends on the position of the element in the tensor, so this processes parts of the block's rows. */
static void init_range(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    const init_job *j = ctx;
    bool rows = j->t->cols == j->t->whole_cols;
    for (size_t i = begin, n; i < end; i += n) {
        n = end - i;
        if (!rows && n > j->t->cols - (j->first + i) % j->t->cols)
            n = j->t->cols - (j->first + i) % j->t->cols;
        if (j->w.form != BT_MOMENT_F32) n = n < INIT_PIECE ? n : INIT_PIECE;
        const size_t at = j->first + i;
        float some[INIT_PIECE], *out = j->w.form == BT_MOMENT_F32 ? bt_latent_at(j->w, at) : some;
        bt_rng_normal(out, n, bt_tensor_place(j->t, at), j->std, j->seed, j->stream);
        if (out == some)
            bt_moment_convert(bt_latent_at(j->w, at), j->w.form, some, BT_MOMENT_F32, n);
    }
}

/* Initialises with U(-spread, spread), zeros, or the norms of rows. */
static void init_adapter(const bt_model *m, float *w, const bt_tensor *t, size_t from, size_t to,
                         uint64_t seed) {
    uint64_t stream = bt_hash_name(t->name);
    if (t->row_norms) {
        const float *norms = bt_model_row_norms(m, t) + (from - t->offset);
        memcpy(w + (from - t->offset), norms, (to - from) * sizeof *w);
        return;
    }
    for (size_t k = from - t->offset; k < to - t->offset; k++)
        w[k] = t->spread * (float)(2 * bt_rng_unit(seed, stream, bt_tensor_place(t, k)) - 1);
}

void bt_model_init_range(bt_model *m, uint64_t seed, size_t begin, size_t end) {
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        const bt_latent w = bt_model_latent(m, i);
        size_t from = t->offset > begin ? t->offset : begin,
               to = t->offset + t->count < end ? t->offset + t->count : end;
        if (from >= to) continue;
        if (t->adapter) {
            init_adapter(m, w.at, t, from, to, seed);
        } else if (t->init_std > 0) {
            init_job j = {w, t, from - t->offset, t->init_std, seed, bt_hash_name(t->name)};
            bt_parallel_for(to - from, 4096, init_range, &j);
        } else {
            const float x = t->zero ? 0.0f : 1.0f;
            for (size_t k = from - t->offset; k < to - t->offset; k++)
                bt_moment_convert(bt_latent_at(w, k), w.form, &x, BT_MOMENT_F32, 1);
        }
    }
}

void bt_model_init_weights(bt_model *m, uint64_t seed) {
    bt_model_init_range(m, seed, 0, bt_model_params(m)->total);
}

void bt_model_zero_grads(bt_model *m) { bt_op_zero(m->own_g, bt_model_params(m)->total); }

void bt_model_noise(bt_model *m, uint64_t seed, uint64_t step, uint64_t first_row) {
    size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T;
    uint64_t stream = bt_rng_u64(seed, bt_hash_name("gradient noise"), step);
    for (size_t i = 0; m->noise_rows && i < M; i++)
        m->noise_rows[i] = (uint32_t)bt_rng_u64(seed, stream, first_row + i);
}

bool bt_net_reads_bf16(bt_prec prec) { return prec == BT_PREC_BF16 && bt_kernels_multiply_bf16(); }

bt_read bt_model_read(const bt_tensor *t, bt_prec prec) {
    bool matrix = t->linear || t->id == BT_P_EMBED || t->id == BT_P_HEAD;
    if (t->tern) return BT_READ_CODES;
    return matrix && bt_net_reads_bf16(prec) ? BT_READ_BF16 : BT_READ_FP32;
}

size_t bt_read_bytes(bt_read as, size_t n) {
    if (as == BT_READ_CODES) return bt_tern2_row_bytes(n);
    return n * (as == BT_READ_BF16 ? sizeof(uint16_t) : sizeof(float));
}

bool bt_model_shares_out(const bt_tensor *t, bt_prec prec) {
    return t->linear || bt_model_read(t, prec) == BT_READ_BF16;
}

uint16_t *bt_model_table(bt_model *m, size_t tensor) {
    bt_param_id id = m->params.tensors[tensor].id;
    const bt_table *t = id == BT_P_EMBED ? &m->embed : id == BT_P_HEAD ? &m->head : NULL;
    return t ? (uint16_t *)(uintptr_t)t->bf16 : NULL;
}
