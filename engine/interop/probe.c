/* probe.c - computes a model's predictions after a few prompts, to compare it with its conversion. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/generate/generate.h"
#include "engine/interop/convert.h"

enum { LONGEST = 64 };
static const size_t lengths[BT_PROBES] = {1, 3, 17, LONGEST};

static bt_code load_probed_model(bt_model_file *s, size_t T, bt_model **out, bt_err *err) {
    bt_model_setup setup = {.cfg = s->cfg, .B = 1, .prec = BT_PREC_FP32};
    setup.cfg.T = (int)T;
    BT_TRY(bt_model_create(out, &setup, err));
    BT_TRY(bt_model_file_weights(s, bt_model_weights(*out), err));
    bt_model_quantise(*out);
    return BT_OK;
}

static void log_softmax(float *out, const float *logits, size_t V) {
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < V; i++) most = fmax(most, (double)logits[i]);
    for (size_t i = 0; i < V; i++) sum += exp((double)logits[i] - most);
    for (size_t i = 0; i < V; i++) out[i] = (float)((double)logits[i] - most - log(sum));
}

/* Computes the logits after each of n prompts; their lengths may differ. */
static bt_code run_prompt(bt_model *m, const int32_t *const *ids, const size_t *n, size_t prompts,
                          float *out, bt_err *err) {
    bt_gen *g = NULL;
    const size_t V = (size_t)bt_model_config(m)->V;
    bt_code code = bt_gen_create(&g, m, err);
    for (size_t k = 0; k < prompts && code == BT_OK; k++) {
        bt_gen_reset(g);
        code = bt_gen_feed(g, ids[k], n[k], err);
        if (code == BT_OK) log_softmax(out + k * V, bt_gen_logits(g), V);
    }
    bt_gen_destroy(g);
    return code;
}

bt_code bt_model_file_log_probs(bt_model_file *s, const int32_t *ids, size_t n, float *out,
                                bt_err *err) {
    bt_model *m = NULL;
    bt_code code = load_probed_model(s, n < 2 ? 2 : n, &m, err);
    if (code == BT_OK) code = run_prompt(m, &ids, &n, 1, out, err);
    bt_model_destroy(m);
    return code;
}

bt_code bt_probe_source(bt_model_file *s, int tokens, bt_probe *out, bt_err *err) {
    int32_t drawn[BT_PROBES][LONGEST];
    const int32_t *ids[BT_PROBES];
    bt_model *m = NULL;
    for (size_t k = 0; k < BT_PROBES; k++) {
        ids[k] = drawn[k];
        for (size_t i = 0; i < lengths[k]; i++)
            drawn[k][i] = (int32_t)(bt_rng_u64(1, k, i) % (uint64_t)tokens);
    }
    *out = (bt_probe){.V = s->cfg.V,
                      .log_prob = malloc(BT_PROBES * (size_t)s->cfg.V * sizeof *out->log_prob)};
    bt_code code = out->log_prob ? load_probed_model(s, LONGEST, &m, err)
                                 : bt_fail(err, BT_NOMEM, "cannot allocate memory for logits");
    if (code == BT_OK) code = run_prompt(m, ids, lengths, BT_PROBES, out->log_prob, err);
    bt_model_destroy(m);
    return code;
}

void bt_probe_release(bt_probe *p) {
    free(p->log_prob);
    p->log_prob = NULL;
}

bt_probe_difference bt_probe_compare(const bt_probe *a, const bt_probe *b) {
    bt_probe_difference d = {0};
    const size_t V = (size_t)(a->V < b->V ? a->V : b->V);
    for (size_t k = 0; k < BT_PROBES; k++) {
        const float *x = a->log_prob + k * (size_t)a->V, *y = b->log_prob + k * (size_t)b->V;
        size_t first_x = 0, first_y = 0;
        for (size_t i = 0; i < V; i++) {
            const double off = fabs((double)x[i] - (double)y[i]);
            d.largest = fmax(d.largest, off);
            d.mean += off / (double)(BT_PROBES * V);
            if (x[i] > x[first_x]) first_x = i;
            if (y[i] > y[first_y]) first_y = i;
        }
        d.same_first += first_x == first_y;
    }
    return d;
}
