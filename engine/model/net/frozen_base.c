/* frozen_base.c - converts the tensors of the frozen base of trained adapters to the format that products read. */
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

enum { ALIGN_ELEMS = 16 };

void bt_net_compact_base(bt_params *p, const bt_model_setup *s) {
    p->total = 0;
    for (size_t i = 0; i < p->n; i++) {
        bt_tensor *t = &p->tensors[i];
        t->offset = p->total;
        if (!bt_model_shares_out(t, s->prec) && !bt_net_table8(s, t))
            p->total += (t->count + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    }
}

static bt_linear *frozen_linear(bt_model *m, const bt_tensor *t) {
    if (t->layer < 0) return NULL;
    bt_layer *l = &m->layers[bt_net_layer(m, t->layer)];
    bt_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->tensor == t) return all[i];
    return NULL;
}

static void store_ternary_codes(bt_linear *l, const float *values, float scale, bool write) {
    const size_t rows = l->N / l->ranges;
    l->scale = scale;
    for (size_t k = 0; write && k < l->ranges; k++)
        bt_op_pack_2bit(l->packed + k * l->packed_bytes, values + k * rows * l->K, 1.0f / scale,
                        rows, l->K);
}

void bt_model_base_put_rows(bt_model *m, size_t tensor, const float *values, const float *scales) {
    const bt_tensor *t = &m->params.tensors[tensor];
    bt_linear *l = frozen_linear(m, t);
    if (!l->packed_2bit) { /* quantised when all tensors are stored */
        bt_net_copy(m->w + t->offset, values, t->count);
        return;
    }
    const size_t rows = l->N / l->ranges, groups = bt_linear_groups(l);
    const bool write = !m->setup.base_elsewhere;
    if (write) memcpy(l->scales, scales, l->N * groups * sizeof *scales);
    if (write && l->by_group) bt_group_scales_done(l);
    for (size_t k = 0; write && k < l->ranges; k++)
        for (size_t g = 0; g < groups; g++)
            bt_op_pack_2bit_rows(l->packed + k * l->packed_bytes + g * l->group_bytes,
                                 values + k * rows * l->K + g * l->scale_cols, l->K,
                                 scales + k * rows * groups + g, groups, rows, l->scale_cols);
}

/* The values are whole rows. */
static void store_int8_rows(const bt_table *t, size_t first, size_t n, const float *values) {
    int8_t *codes = (int8_t *)(uintptr_t)t->i8 + first;
    if (t->half_scale)
        bt_op_q8_put(codes, (uint16_t *)(uintptr_t)t->half_scale + first / BT_Q8_BLOCK, values, n);
    else
        bt_active_kernels()->quant_rows(codes, (float *)(uintptr_t)t->scale + first / t->width,
                                        values, n / t->width, t->width);
}

static void store_dense_values(bt_model *m, const bt_linear *l, size_t first, size_t n,
                               const float *values) {
    if (l->values.i8)
        store_int8_rows(&l->values, first, n, values);
    else if (bt_model_read(l->tensor, m->setup.prec) == BT_READ_BF16)
        bt_op_save_bf16((uint16_t *)l->panel + first, values, n);
    else
        bt_net_copy((float *)l->panel + first, values, n);
}

static const bt_table *int8_table(const bt_model *m, const bt_tensor *t) {
    if (!bt_net_table8(&m->setup, t)) return NULL;
    return t->id == BT_P_EMBED ? &m->embed : &m->head;
}

void bt_model_base_put(bt_model *m, size_t tensor, size_t first, size_t n, const float *values,
                       float scale) {
    const bt_tensor *t = &m->params.tensors[tensor];
    bt_linear *l = t->linear ? frozen_linear(m, t) : NULL;
    uint16_t *table = bt_net_keeps_base(&m->setup) ? bt_model_table(m, tensor) : NULL;
    const bool write = !m->setup.base_elsewhere;
    if (l && l->packed_2bit)
        store_ternary_codes(l, values, scale, write);
    else if (!write && (int8_table(m, t) || table || (l && l->panel)))
        return;
    else if (int8_table(m, t))
        store_int8_rows(int8_table(m, t), first, n, values);
    else if (l && l->panel)
        store_dense_values(m, l, first, n, values);
    else if (table)
        bt_op_save_bf16(table + first, values, n);
    else
        bt_net_copy(m->w + t->offset + first, values, n);
}

void bt_model_base_put_tied(bt_model *m, size_t first, size_t n, const float *values) {
    const size_t C = (size_t)m->setup.cfg.C, V = (size_t)m->setup.cfg.V,
                 begin = bt_slice_vocab(&m->whole, m->setup.slice) * C, end = begin + V * C,
                 from = bt_max_size(first, begin), to = bt_min_size(first + n, end);
    if (from >= to || (m->setup.base_elsewhere && !m->tied.f32)) return;
    if (m->tied.i8)
        store_int8_rows(&m->tied, from - begin, to - from, values + (from - first));
    else if (m->tied.bf16)
        bt_op_save_bf16((uint16_t *)(uintptr_t)m->tied.bf16 + (from - begin),
                        values + (from - first), to - from);
    else if (m->tied.f32)
        bt_net_copy((float *)(uintptr_t)m->tied.f32 + (from - begin), values + (from - first),
                    to - from);
}

void bt_model_base_done(bt_model *m) {
    if (!bt_net_keeps_base(&m->setup)) bt_model_quantise(m);
    m->quantised = true;
}
