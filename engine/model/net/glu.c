/* glu.c - the gated activation between gate, up and ffn_down. Where a kernel supports it, the norm and the quantisation
 * that follow are computed in the same pass. */
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

static uint16_t *saved_at(uint16_t *saved, size_t i) { return saved ? saved + i : NULL; }

static void fused_fwd(const bt_model *m, bt_layer *l, bt_gate_and_up y, size_t r0, size_t rows) {
    const bt_acts *a = &l->a;
    const bt_linear_input *in = &l->down_in;
    size_t F = l->gate.N;
    bt_op_glu_quant(&(bt_glu_quant){.xq = in->xq + r0 * F,
                                    .dq = in->dq + r0,
                                    .rstd = in->normed ? in->rstd + r0 : NULL,
                                    .h = a->h,
                                    .gate_saved = saved_at(a->gate_saved, r0 * F),
                                    .up_saved = saved_at(a->up_saved, r0 * F),
                                    .gate = y.gate,
                                    .up = y.up,
                                    .gain = in->gain.w,
                                    .eps = in->eps,
                                    .act = m->setup.cfg.act,
                                    .rows = rows,
                                    .F = F});
}

static void plain_fwd(const bt_model *m, bt_layer *l, bt_gate_and_up y, size_t r0, size_t rows) {
    const bt_acts *a = &l->a;
    size_t F = l->gate.N;
    bt_acts_save(saved_at(a->gate_saved, r0 * F), y.gate, rows * F);
    bt_acts_save(saved_at(a->up_saved, r0 * F), y.up, rows * F);
    bt_op_glu(a->h, y.gate, y.up, m->setup.cfg.act, rows * F);
    l->down_in.ops->fwd(&l->down_in, a->h, r0, rows);
}

/* Computes the backward pass of gate and up in bf16 through the norm, without computing h and floats again. */
static void fused_norm_bwd(const bt_model *m, bt_layer *l, bt_glu_grads d, bt_gate_and_up y,
                           size_t r0, size_t rows) {
    (void)y;
    const bt_acts *a = &l->a;
    const bt_linear_input *in = &l->down_in;
    size_t F = l->gate.N;
    bt_op_glu_norm_bwd(&(bt_glu_norm_bwd){.d = d,
                                          .dgain = in->gain.dw,
                                          .h = a->h,
                                          .sums = a->dh,
                                          .dy = a->dhn,
                                          .gain = in->gain.w,
                                          .rstd = in->rstd + r0,
                                          .gate = a->gate_saved + r0 * F,
                                          .up = a->up_saved + r0 * F,
                                          .act = m->setup.cfg.act,
                                          .rows = rows,
                                          .F = F});
}

/* Computes the backward pass from gate and up in bf16, without a norm. */
static void saved_bwd(const bt_model *m, bt_layer *l, bt_glu_grads d, bt_gate_and_up y, size_t r0,
                      size_t rows) {
    (void)y;
    const bt_acts *a = &l->a;
    size_t F = l->gate.N;
    bt_op_glu_bwd_saved(d, a->dh, a->gate_saved + r0 * F, a->up_saved + r0 * F, m->setup.cfg.act,
                        rows * F);
}

/* Computes the backward pass with floats in d. */
static void plain_bwd(const bt_model *m, bt_layer *l, bt_glu_grads d, bt_gate_and_up y, size_t r0,
                      size_t rows) {
    const bt_acts *a = &l->a;
    const bt_linear_input *in = &l->down_in;
    size_t F = l->gate.N;
    bt_act act = m->setup.cfg.act;
    bt_acts_load(&m->setup, y.gate, saved_at(a->gate_saved, r0 * F), rows * F);
    bt_acts_load(&m->setup, y.up, saved_at(a->up_saved, r0 * F), rows * F);
    if (in->normed || !in->tern) bt_op_glu(a->h, y.gate, y.up, act, rows * F);
    in->ops->restore(in, a->h, r0, rows);
    if (in->normed) in->ops->bwd(in, a->dh, a->dhn, a->h, r0, rows);
    bt_op_glu_bwd(d.gate, d.up, a->dh, y.gate, y.up, act, rows * F);
}

bt_glu bt_glu_of(const bt_layer *l) {
    const bt_linear_input *in = &l->down_in;
    bool whole_rows = !in->tp, saved = l->a.gate_saved && in->tern;
    bt_glu glu = {plain_fwd, plain_bwd};
    if (in->tern && whole_rows) glu.fwd = fused_fwd;
    if (saved && !in->normed)
        glu.bwd = saved_bwd;
    else if (saved && whole_rows)
        glu.bwd = fused_norm_bwd;
    return glu;
}
