/* model.c - properties of a model, pointers to its activations and gradients, and passes of a micro-batch. */
#include "engine/model/net/model.h"

#include <math.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

const bt_model_cfg *bt_model_config(const bt_model *m) { return &m->whole; }
bt_model_slice bt_model_slice_of(const bt_model *m) { return m->setup.slice; }
float *bt_model_grads(bt_model *m) { return m->own_g; }
void bt_model_source(bt_model *m, bt_layer_source *s) { m->source = s; }

static void point_input(bt_linear_input *in, float *rstd, int8_t *xq, float *dq, float *xn) {
    in->rstd = rstd, in->xq = xq, in->dq = dq, in->xn = xn;
}

void bt_net_point(bt_model *m, int layer, int slot) {
    bt_layer *l = &m->layers[layer];
    bt_acts *a = &l->a;
    float *xn;
    const bt_chunk *c = m->chunks;
    while (layer >= c->first + c->n) c++;
    bt_acts_point(a, &m->acts_plan, &m->acts_arena,
                  (size_t)(slot * m->setup.cfg.chunk_L + layer - c->first));
    xn = m->setup.cfg.linear != BT_LIN_DENSE && !m->setup.fades ? NULL : a->xn;
    if (m->dxn) a->dxn = m->dxn;
    if (layer > c->first) m->layers[layer - 1].x_out = a->x;
    /* The output of a chunk's last layer. Every other output is the input of the next layer. */
    l->x_out = m->x_final ? m->x_final : a->x;
    point_input(&l->attn_in, a->attn_rstd, a->attn_xq, a->attn_dq, xn);
    point_input(&l->o_in, a->o_rstd, a->o_xq, a->o_dq, a->on);
    point_input(&l->ffn_in, a->ffn_rstd, a->ffn_xq, a->ffn_dq, xn);
    point_input(&l->down_in, a->down_rstd, a->down_xq, a->down_dq, a->hn);
}

/* The frozen base has no gradients. */
static void point_adapters(bt_model *m, float *g) {
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        bt_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof linears / sizeof *linears; k++) {
            bt_adapter *a = &linears[k]->adapter;
            a->da = bt_at_tensor(g, a->a_tensor);
            a->db = bt_at_tensor(g, a->b_tensor);
            a->dm = bt_at_tensor(g, a->m_tensor);
        }
    }
}

void bt_model_grads_into(bt_model *m, float *grads) {
    float *g = m->g = grads ? grads : m->own_g;
    m->classes.dw = bt_at_tensor(g, m->classes.tensor);
    if (m->adapters.n) {
        point_adapters(m, g);
        return;
    }
    const bt_tensor *embed = bt_params_get(&m->params, -1, BT_P_EMBED);
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        bt_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        bt_gain *gains[] = {&l->attn_in.gain, &l->o_in.gain, &l->ffn_in.gain, &l->down_in.gain,
                            &l->q_norm,       &l->k_norm,    &l->q_bias,      &l->k_bias,
                            &l->v_bias,       &l->attn_post, &l->ffn_post};
        for (size_t k = 0; k < sizeof linears / sizeof *linears; k++)
            linears[k]->dw = bt_at_tensor(g, linears[k]->tensor);
        for (size_t k = 0; k < sizeof gains / sizeof *gains; k++)
            gains[k]->dw = bt_at_tensor(g, gains[k]->tensor);
    }
    m->final_norm.dw = bt_at_tensor(g, m->final_norm.tensor);
    m->d_embed = bt_at_tensor(g, embed);
    m->d_head = m->d_tied
                    ? m->d_tied
                    : bt_at_tensor(g, m->setup.cfg.tied ? embed
                                                        : bt_params_get(&m->params, -1, BT_P_HEAD));
}

/* Computes the forward pass, and the loss's gradient in a.dxn. */
static double loss_and_gradient(bt_model *m, const int32_t *inputs, const int32_t *targets,
                                double grad_scale) {
    if (m->dpo.on) return bt_net_preference_loss(m, inputs, targets, grad_scale);
    if (m->distil.teacher || m->distil.rows)
        return bt_net_distil_loss(m, inputs, targets, grad_scale);
    m->head_form.inputs = inputs;
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
    bt_span_begin(BT_MR_BWD);
    int64_t begin = bt_span_ns(BT_MR_BWD);
    double loss = bt_net_head_loss(m, targets, (float)grad_scale);
    /* because one third of the head's products is forward work */
    bt_span_transfer(BT_MR_FWD, (bt_span_ns(BT_MR_BWD) - begin) / 3);
    bt_span_end();
    return loss;
}

double bt_model_train_micro(bt_model *m, const int32_t *inputs, const int32_t *targets,
                            double grad_scale, bt_grad_ready_fn ready, void *ready_ctx) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_acts *a = &m->layers[0].a;
    size_t B = (size_t)m->setup.B, T = (size_t)c->T;
    double loss = loss_and_gradient(m, inputs, targets, grad_scale);
    bt_span_begin(BT_MR_BWD);
    bt_net_ready(m, m->classes.tensor, ready, ready_ctx);
    if (!c->tied && !m->adapters.n)
        bt_net_ready(m, bt_params_get(&m->params, -1, BT_P_HEAD), ready, ready_ctx);
    float *dy = m->tp->reduce_grad(m, a->dxn, B * T);
    if (m->dpo.on && m->adapters.n && m->dpo.loss != BT_PREFER_REWARD)
        bt_net_preference_scale(m, dy);
    m->tp->norm_bwd(m, &(bt_norm_bwd){.gain = &m->final_norm,
                                      .dx = a->dx,
                                      .dy = dy,
                                      .x = m->x_final,
                                      .rstd = m->final_rstd,
                                      .M = B * T});
    bt_net_ready(m, m->final_norm.tensor, ready, ready_ctx);
    bt_net_backward(m, inputs, B, T, ready, ready_ctx);
    bt_span_end();
    return loss;
}

/* Returns the sum of the token losses of an ensemble, after the pass and the loss of m itself. */
static double ensemble_loss(bt_model *m, const int32_t *inputs, const int32_t *targets) {
    const size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T, n = bt_model_members(m);
    double loss = 0;
    for (bt_model *x = m->member; x; x = x->member) {
        bt_net_forward_member(m, x, inputs);
        (void)bt_net_head_loss(x, targets, 0);
    }
    for (size_t r = 0; r < M; r++) {
        double least = (double)m->row_loss[r], sum = 0;
        if (targets[r] < 0) continue;
        for (const bt_model *x = m->member; x; x = x->member)
            least = fmin(least, (double)x->row_loss[r]);
        for (const bt_model *x = m; x; x = x->member) sum += exp(least - (double)x->row_loss[r]);
        m->row_loss[r] = (float)(least - log(sum / (double)n));
        loss += (double)m->row_loss[r];
    }
    return loss;
}

double bt_model_eval_micro(bt_model *m, const int32_t *inputs, const int32_t *targets) {
    if (m->dpo.on) return bt_net_preference_loss(m, inputs, targets, 0);
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
    const double loss = bt_net_head_loss(m, targets, 0.0f);
    return m->member ? ensemble_loss(m, inputs, targets) : loss;
}

void bt_model_dpo(bt_model *m, bt_dpo how) {
    m->dpo = how;
    m->dpo.on = how.on && m->reference && (m->adapters.n || !bt_prefer_has_reference(how.loss));
}

bt_score bt_model_take_score(bt_model *m) {
    bt_score s = m->score;
    m->score = (bt_score){0};
    const size_t K = (size_t)m->setup.cfg.classes;
    if (K) memset(m->classes.confusion, 0, K * K * sizeof *m->classes.confusion);
    return s;
}

void bt_model_forward_tokens(bt_model *m, const int32_t *inputs, size_t n) {
    bt_model_documents(m, NULL);
    bt_net_forward(m, inputs, 1, n);
}

int32_t bt_model_draw(bt_model *m, const bt_draw *how, size_t n) {
    bt_net_final_norm(m, n);
    return m->tp->draw(m, how, n);
}
