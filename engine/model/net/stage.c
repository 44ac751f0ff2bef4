/* stage.c - forward and backward passes of a stage's layers, with the data exchanged with its neighbours. */
#include "engine/model/net/stage.h"

#include "engine/model/net/net.h"

void bt_model_chunk(bt_model *m, int chunk) { m->chunk = &m->chunks[chunk]; }

void bt_model_slot(bt_model *m, int slot) {
    for (int i = 0; i < m->chunk->n; i++) bt_net_point(m, m->chunk->first + i, slot);
}

bool bt_model_begins(const bt_model *m) { return bt_net_begins(m); }
bool bt_model_ends(const bt_model *m) { return bt_net_ends(m); }

size_t bt_stage_elems(const bt_model_setup *s) {
    return bt_slice_rows(s, (size_t)s->B * (size_t)s->cfg.T) * (size_t)s->cfg.C;
}

float *bt_model_stage_in(bt_model *m) { return m->layers[m->chunk->first].a.x; }
const float *bt_model_stage_out(const bt_model *m) { return m->x_final; }
float *bt_model_stage_dx(bt_model *m) { return m->layers[0].a.dx; }

/* In a whole model the order of passes ensures that the memory of a tensor-parallel group is never written before all
 * ranks have read it. Several forward passes in a row, or backward passes, would not ensure it, so a barrier precedes
 * each. */
void bt_model_stage_forward(bt_model *m, const int32_t *inputs) {
    m->tp->meet(m);
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
}

void bt_model_stage_synchronise(bt_model *m) {
    if (m->n_chunks > 1) m->tp->meet(m);
}

bool bt_model_has_reference(const bt_model *m) {
    return m->dpo.on && bt_prefer_has_reference(m->dpo.loss);
}

void bt_model_stage_reference(bt_model *m, const int32_t *inputs, const int32_t *targets) {
    m->tp->meet(m);
    bt_net_reference(m, inputs, targets);
}

void bt_model_stage_backward(bt_model *m, const int32_t *inputs, bt_grad_ready_fn ready,
                             void *ready_ctx) {
    m->tp->meet(m);
    bt_net_backward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T, ready, ready_ctx);
}

size_t bt_stage_tied_elems(const bt_model_setup *s) {
    bt_model_slice p = s->slice;
    bool mine = bt_slice_is_first_stage(p) != bt_slice_is_last_stage(p);
    if (!s->cfg.tied || !mine || s->cfg.classes) return 0;
    if (s->cfg.lora.rank) return 0; /* Both stages read the same frozen table. */
    size_t first = bt_slice_vocab(&s->cfg, p);
    p.tp_rank++;
    return ((p.tp_size > 1 ? bt_slice_vocab(&s->cfg, p) : (size_t)s->cfg.V) - first) *
           (size_t)s->cfg.C;
}

void *bt_model_tied(bt_model *m, size_t *elem) {
    const bt_table *t = bt_slice_is_first_stage(m->setup.slice) ? &m->embed : &m->tied;
    *elem = t->bf16 ? sizeof *t->bf16 : sizeof *t->f32;
    return (void *)(uintptr_t)(t->bf16 ? (const void *)t->bf16 : t->f32);
}

float *bt_model_tied_grads(bt_model *m) {
    return bt_slice_is_first_stage(m->setup.slice) ? m->d_embed : m->d_tied;
}
