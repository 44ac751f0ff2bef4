/* hub_model.c - the arrays of the hub, and the steps that change them. */
#include "engine/islands/hub/hub_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/islands/rules/job_settings.h"
#include "engine/islands/rules/outer_step.h"
#include "engine/update/tensor_slices.h"

static const bt_codec no_codec = {.name = "fp32"};

static bt_code make_norm(bt_hub_model *m, bt_err *err) {
    const bt_params *p = &m->setup.params;
    bt_norm_cfg norm = {.mesh = &m->mesh,
                        .exact = true,
                        .total = p->total,
                        .pieces = &m->all,
                        .n_pieces = 1,
                        .n_counted = p->n};
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        m->counted[k] = (bt_range){x->offset, x->offset + x->count};
        norm.whole_elements += (double)x->whole_rows * (double)x->whole_cols;
    }
    norm.counted = m->counted;
    return bt_norm_create(&m->norm, &norm, err);
}

static bt_code check_optimizer(const bt_hub_model *m, bt_err *err) {
    const bool own = m->cfg.islands.mode == BT_ISLANDS_DILOCO && m->cfg.islands.warmup == 0;
    for (size_t k = 0; k < m->setup.params.n; k++)
        if (!own && bt_optim_rule_of((bt_optim_id)m->cfg.optim.name, &m->spans[k])->whole_matrix)
            return bt_fail(err, BT_UNSUPPORTED,
                           "--optimizer %s updates whole matrices, which the hub cannot do: use "
                           "adamw or lion, or --mode diloco with islands.warmup=0",
                           bt_optim_info_of((bt_optim_id)m->cfg.optim.name)->name);
    return BT_OK;
}

static bt_code check_fragments(const bt_hub_model *m, bt_err *err) {
    if (m->cfg.islands.fragments == 1 || m->cfg.islands.mode != BT_ISLANDS_DILOCO) return BT_OK;
    if (!bt_codec_at((bt_codec_id)m->cfg.parallel.codec)->encode)
        return bt_fail(err, BT_ARG, "islands.fragments needs a codec, such as --codec int8");
    if (m->cfg.islands.staleness == 0) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "islands.fragments needs islands that step together: set --staleness 0");
}

static bt_code create_hub_arrays(bt_hub_model *m, bt_err *err) {
    bt_mesh_shape shape;
    BT_TRY(bt_rank_setup_init(&m->setup, &m->cfg, 0, err));
    bt_run_cfg_mesh(&m->cfg, &shape);
    BT_TRY(bt_mesh_resolve(&shape, 1, err));
    BT_TRY(bt_mesh_create(&m->mesh, &shape, bt_comm_world(), err));
    const bt_params *p = &m->setup.params;
    m->n = p->total;
    m->all = (bt_range){0, m->n};
    m->up = (bt_vector_code){.params = p, .codec = &no_codec};
    const bt_codec *codec = bt_codec_at((bt_codec_id)m->cfg.parallel.codec);
    if (codec->encode) m->up.codec = codec;
    m->down = m->up;
    m->fragments = m->cfg.islands.mode == BT_ISLANDS_DILOCO ? m->cfg.islands.fragments : 1;
    if (m->fragments > (int64_t)p->n) m->fragments = (int64_t)p->n;
    bt_hub_model_use(m, -1);
    m->update_version = m->encoded = -1;
    m->lr = bt_run_cfg_lr_schedule(&m->cfg);
    m->spans = calloc(p->n, sizeof *m->spans);
    m->counted = calloc(p->n, sizeof *m->counted);
    m->theta = calloc(m->n, sizeof *m->theta);
    m->mean = calloc(m->n, sizeof *m->mean);
    m->work = calloc(m->n, sizeof *m->work);
    m->momentum = m->cfg.islands.mode == BT_ISLANDS_DILOCO ? calloc(m->n, sizeof *m->momentum)
                                                           : NULL;
    m->published = codec->encode ? calloc(m->n, sizeof *m->published) : m->theta;
    m->update = malloc(bt_vector_bytes(&m->down));
    if (!m->spans || !m->counted || !m->theta || !m->mean || !m->work || !m->published ||
        !m->update || (m->cfg.islands.mode == BT_ISLANDS_DILOCO && !m->momentum))
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a model of %zu elements", m->n);
    bt_params_spans(m->spans, p, &m->cfg);
    BT_TRY(check_optimizer(m, err));
    BT_TRY(check_fragments(m, err));
    const bt_optim_cfg optim = bt_run_cfg_optim(&m->cfg);
    BT_TRY(bt_optim_create(&m->optim, &optim, m->spans, p->n, m->all, err));
    return make_norm(m, err);
}

bt_code bt_hub_model_create(bt_hub_model **out, const bt_run_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_hub_model *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the hub's model");
    m->cfg = *cfg;
    const bt_code code = create_hub_arrays(m, err);
    if (code != BT_OK)
        bt_hub_model_destroy(m);
    else
        *out = m;
    return code;
}

void bt_hub_model_destroy(bt_hub_model *m) {
    if (!m) return;
    bt_norm_destroy(m->norm);
    bt_optim_destroy(m->optim);
    if (m->published != m->theta) free(m->published);
    free(m->theta);
    free(m->mean);
    free(m->work);
    free(m->momentum);
    free(m->update);
    free(m->spans);
    free(m->counted);
    bt_mesh_release(&m->mesh);
    bt_rank_setup_release(&m->setup);
    free(m);
}

size_t bt_hub_model_memory(const bt_hub_model *m) {
    const size_t arrays = 3u + (m->momentum ? 1 : 0) + (m->published != m->theta ? 1 : 0);
    return arrays * m->n * sizeof *m->theta + bt_vector_bytes(&m->down) +
           bt_optim_bytes((bt_optim_id)m->cfg.optim.name, (bt_states_kind)m->cfg.optim.states,
                          m->spans, m->setup.params.n, m->all);
}

static bt_vector_code plain_code(const bt_hub_model *m) {
    return (bt_vector_code){.params = &m->setup.params, .codec = &no_codec};
}

bool bt_hub_model_set_weights(bt_hub_model *m, const void *bytes, size_t n) {
    const bt_vector_code plain = plain_code(m);
    if (!bt_vector_decode_into(&plain, m->theta, bytes, n) || !bt_vector_finite(m->theta, m->n))
        return false;
    if (m->published != m->theta) memcpy(m->published, m->theta, m->n * sizeof *m->theta);
    m->encoded = -1;
    return m->has_weights = true;
}

void bt_hub_model_use(bt_hub_model *m, int64_t fragment) {
    m->up.first = m->up.end = m->begin = 0;
    m->part = m->n;
    if (fragment >= 0 && m->fragments > 1)
        bt_vector_fragment(&m->up, fragment, m->fragments, &m->begin, &m->part);
    m->down.first = m->up.first;
    m->down.end = m->up.end;
}

int64_t bt_hub_model_fragment(const bt_hub_model *m) {
    return (m->version - m->updates) % m->fragments;
}

static bool add_updates_as_tree(bt_hub_model *m, const bt_hub_part *parts, size_t n, double total,
                                float *out, bool *no_memory) {
    if (n == 1) {
        if (!bt_vector_decode_into(&m->up, out, parts->bytes, parts->n)) return false;
        if (parts->weight != total)
            bt_vector_scale(out + m->begin, (float)(parts->weight / total), m->part);
        return true;
    }
    size_t left = 1;
    while (2 * left < n) left *= 2;
    float *right = calloc(m->n, sizeof *right);
    *no_memory |= !right;
    const bool ok = right && add_updates_as_tree(m, parts, left, total, out, no_memory) &&
                    add_updates_as_tree(m, parts + left, n - left, total, right, no_memory);
    if (ok) bt_vector_add(out + m->begin, right + m->begin, m->part);
    free(right);
    return ok;
}

bool bt_hub_model_mean(bt_hub_model *m, const bt_hub_part *parts, size_t n, bt_err *err) {
    double total = 0;
    bool no_memory = false;
    for (size_t i = 0; i < n; i++) total += parts[i].weight;
    if (n && total > 0 && add_updates_as_tree(m, parts, n, total, m->mean, &no_memory)) return true;
    if (no_memory)
        bt_fail(err, BT_NOMEM, "cannot allocate memory to add the updates of %zu islands", n);
    else
        bt_fail(err, BT_FORMAT, "an update is not an encoded array of this model");
    return false;
}

bt_code bt_hub_model_gradient_step(bt_hub_model *m, int64_t position, double factor,
                                   bt_hub_step *out, bt_err *err) {
    BT_TRY(bt_norm_compute(m->norm, m->mean, 1, &out->grad_norm, err));
    out->lr = bt_schedule_lr(&m->lr, position) * factor;
    out->decay = bt_schedule_decay(&m->lr, position);
    out->applied = isfinite(out->grad_norm);
    if (!out->applied) return BT_OK;
    const double clip =
        m->cfg.optim.clip /
        (out->grad_norm + 1e-6); /* the formula of a training without a hub (train/step.c) */
    const bt_optim_update how = {.t = m->updates + 1,
                                 .grad_scale = m->cfg.optim.clip > 0 && clip < 1 ? (float)clip
                                                                                 : 1.0f,
                                 .lr = (float)out->lr,
                                 .decay = (float)out->decay};
    bt_optim_step(m->optim, m->theta, m->mean, &how);
    m->updates++;
    m->version++;
    return BT_OK;
}

void bt_hub_model_outer_step(bt_hub_model *m, double islands) {
    const bt_run_cfg *c = &m->cfg;
    const double mu = c->islands.outer_momentum < 0 ? bt_outer_momentum(islands)
                                                    : c->islands.outer_momentum;
    bt_outer_nesterov(m->theta + m->begin, m->momentum + m->begin, m->mean + m->begin, m->part,
                      (float)c->islands.outer_lr, (float)mu);
    m->version++;
}

void bt_hub_model_average(bt_hub_model *m, double eta) {
    bt_outer_average(m->theta + m->begin, m->mean + m->begin, m->part, (float)eta);
    m->version++;
}

void bt_hub_model_publish(bt_hub_model *m) {
    if (m->published == m->theta) return;
    const size_t at = m->begin, n = m->part;
    bt_vector_subtract(m->work + at, m->theta + at, m->published + at, n);
    memset(m->mean + at, 0, n * sizeof *m->mean); /* the codec's residual is zero */
    m->encoded = -1;
    m->update_bytes = bt_vector_encode(&m->down, m->update, m->work, m->mean);
    if (!bt_vector_decode_into(&m->down, m->work, m->update, m->update_bytes)) return;
    bt_vector_add(m->published + at, m->work + at, n);
    m->update_version = m->version;
}

static void put_fp32_bytes(bt_hub_model *m, const float *x, size_t *n) {
    const bt_vector_code plain = plain_code(m);
    *n = bt_vector_encode(&plain, m->work, x, NULL);
}

/* Copies optimizer state k of every tensor that has this state. */
static void copy_moments(bt_hub_model *m, size_t k, size_t *n) {
    float *at = m->work;
    for (size_t i = 0; i < m->setup.params.n; i++) {
        const bt_tensor *x = &m->setup.params.tensors[i];
        const bt_range all = {x->offset, x->offset + x->count};
        if (!bt_optim_read(m->optim, i, k, all, at)) memset(at, 0, x->count * sizeof *at);
        at += x->count;
    }
    *n = (size_t)(at - m->work) * sizeof *at;
}

const void *bt_hub_model_bytes(bt_hub_model *m, int kind, size_t *n) {
    if (kind == BT_FETCH_UPDATE) {
        *n = m->update_bytes;
        return m->update_version == m->version ? m->update : NULL;
    }
    if (kind < BT_FETCH_WEIGHTS || kind > BT_FETCH_MOMENT2) return NULL;
    if (m->encoded != kind || m->encoded_version != m->version) {
        if (kind == BT_FETCH_WEIGHTS)
            put_fp32_bytes(m, m->published, &m->encoded_bytes);
        else
            copy_moments(m, (size_t)(kind - BT_FETCH_MOMENT1), &m->encoded_bytes);
        m->encoded = kind;
        m->encoded_version = m->version;
    }
    *n = m->encoded_bytes;
    return m->work;
}

void bt_hub_model_slices(bt_hub_model *m, bt_slices *out) {
    const bt_params *p = &m->setup.params;
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        const bt_range all = {0, x->count};
        const bt_optim_rule *rule = bt_optim_rule_of((bt_optim_id)m->cfg.optim.name, &m->spans[k]);
        bt_tensor_slices(x, "weight", m->theta + x->offset, all, out);
        for (size_t s = 0; s < rule->n_states; s++)
            bt_tensor_slices_in(x, rule->state_names[s], bt_optim_state(m->optim, k, s, x->offset),
                                bt_optim_form(rule, (bt_states_kind)m->cfg.optim.states, s), all,
                                out);
        if (m->momentum) bt_tensor_slices(x, "outer_momentum", m->momentum + x->offset, all, out);
        if (m->published != m->theta)
            bt_tensor_slices(x, "published", m->published + x->offset, all, out);
    }
}

bool bt_hub_model_local_steps(const bt_hub_model *m) {
    const bt_run_cfg *c = &m->cfg;
    const int64_t warmup = c->islands.warmup < 0 ? c->train.steps / 10 : c->islands.warmup;
    return c->islands.mode == BT_ISLANDS_DILOCO && m->updates >= warmup;
}

bt_push_kind bt_hub_model_push_kind(const bt_hub_model *m) {
    return bt_hub_model_local_steps(m) ? BT_PUSH_DELTA : BT_PUSH_GRADIENT;
}

bool bt_hub_model_together(const bt_hub_model *m) {
    const bt_run_cfg *c = &m->cfg;
    return c->islands.staleness == 0 ||
           (c->islands.mode != BT_ISLANDS_PS && !bt_hub_model_local_steps(m));
}
