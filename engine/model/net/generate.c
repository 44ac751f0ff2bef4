/* generate.c - decoding with a key-value cache. */
#include "engine/model/net/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

struct bt_gen {
    bt_model *m;
    bt_arena arena;
    float *k, *v;  /* (L, T, KV * D) */
    float *scores; /* (H, T) */
    float *logits; /* (V) */
    bt_sampler *sampler;
    int32_t *tokens; /* (T) what the cache holds */
    size_t length;   /* tokens in the cache */
    size_t seen;
};

bt_code bt_gen_create(bt_gen **out, bt_model *m, bt_err *err) {
    *out = NULL;
    if (m->setup.slice.tp_size > 1 || m->setup.slice.pp_size > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "one slice of a model cannot generate: load its checkpoint as a whole");
    if (m->setup.weight_source != BT_WEIGHTS_LOCAL)
        return bt_fail(err, BT_UNSUPPORTED,
                       "a model whose weights lie with several ranks cannot generate: load its "
                       "checkpoint as a whole");
    bt_gen *g = calloc(1, sizeof *g);
    if (!g) return bt_fail(err, BT_NOMEM, "cannot take memory for generation");
    g->m = m;
    const bt_model_cfg *c = &m->setup.cfg;
    size_t T = (size_t)c->T, V = (size_t)c->V,
           cache = (size_t)c->L * T * (size_t)c->KV * (size_t)c->D;
    bt_arena_plan(&g->arena, "generation");
    size_t k = bt_arena_reserve(&g->arena, cache, sizeof(float)),
           v = bt_arena_reserve(&g->arena, cache, sizeof(float));
    size_t scores = bt_arena_reserve(&g->arena, (size_t)c->H * T, sizeof(float)),
           logits = bt_arena_reserve(&g->arena, V, sizeof(float));
    size_t tokens = bt_arena_reserve(&g->arena, T, sizeof(int32_t));
    bt_code code = bt_arena_commit(&g->arena, err);
    if (code == BT_OK) code = bt_sampler_create(&g->sampler, V, err);
    if (code != BT_OK) {
        bt_gen_destroy(g);
        return code;
    }
    g->k = bt_arena_at(&g->arena, k);
    g->v = bt_arena_at(&g->arena, v);
    g->scores = bt_arena_at(&g->arena, scores);
    g->logits = bt_arena_at(&g->arena, logits);
    g->tokens = bt_arena_at(&g->arena, tokens);
    *out = g;
    return BT_OK;
}

void bt_gen_destroy(bt_gen *g) {
    if (!g) return;
    bt_sampler_destroy(g->sampler);
    bt_arena_release(&g->arena);
    free(g);
}

void bt_gen_reset(bt_gen *g) {
    g->length = 0;
    g->seen = 0;
}

const float *bt_gen_logits(const bt_gen *g) { return g->logits; }
size_t bt_gen_seen(const bt_gen *g) { return g->seen; }

/* ---- forward over the cache ------------------------------------------------------------------ */
/* One token leaves a matrix product nothing to reuse: rows are read once, straight from memory, in
 * sixteen lanes that compilers turn into vectors without being allowed to reorder sums. */
enum { LANES = 16 };

static float dot(const float *a, const float *b, size_t n) {
    float lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
    }
    for (; i < n; i++) sum += a[i] * b[i];
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* y[0..n) = sum over t of p[t] * v[t * ld + 0..n) */
static void weighted_sum(float *y, const float *p, const float *v, size_t ld, size_t rows,
                         size_t n) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float lane[LANES] = {0};
        for (size_t t = 0; t < rows; t++) {
            for (size_t j = 0; j < LANES; j++) lane[j] += p[t] * v[t * ld + i + j];
        }
        memcpy(y + i, lane, sizeof lane);
    }
    for (; i < n; i++) {
        y[i] = 0;
        for (size_t t = 0; t < rows; t++) y[i] += p[t] * v[t * ld + i];
    }
}

static void softmax_row(float *s, size_t n) {
    float top = s[0], sum = 0;
    for (size_t i = 1; i < n; i++) top = fmaxf(top, s[i]);
    for (size_t i = 0; i < n; i++) sum += s[i] = expf(s[i] - top);
    for (size_t i = 0; i < n; i++) s[i] /= sum;
}

typedef struct attend_job {
    const bt_gen *g;
    float *o;
    const float *q, *k, *v;
    size_t n;
} attend_job;

static void attend_heads(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    const attend_job *j = ctx;
    const bt_model_cfg *c = &j->g->m->setup.cfg;
    size_t D = (size_t)c->D, KVD = (size_t)c->KV * D, group = (size_t)(c->H / c->KV);
    float scale = 1.0f / sqrtf((float)D);
    for (size_t h = begin; h < end; h++) {
        float *s = j->g->scores + h * (size_t)c->T;
        for (size_t t = 0; t < j->n; t++)
            s[t] = scale * dot(j->q + h * D, j->k + t * KVD + h / group * D, D);
        softmax_row(s, j->n);
        weighted_sum(j->o + h * D, s, j->v + h / group * D, KVD, j->n, D);
    }
}

/* one query token, all heads, against the first n cached positions */
static void attend(const bt_gen *g, float *o, const float *q, const float *k, const float *v,
                   size_t n) {
    attend_job j = {g, o, q, k, v, n};
    size_t work = n * (size_t)g->m->setup.cfg.D;
    bt_parallel_for((size_t)g->m->setup.cfg.H, 1 + 16384 / work, attend_heads, &j);
}

static void attention(bt_gen *g, bt_layer *l, float *k, float *v, size_t n) {
    const bt_model_cfg *c = &g->m->setup.cfg;
    size_t D = (size_t)c->D, HD = (size_t)c->H * D, KVD = (size_t)c->KV * D;
    memcpy(k + g->length * KVD, bt_net_k(l), n * KVD * sizeof(float));
    memcpy(v + g->length * KVD, l->a.v, n * KVD * sizeof(float));
    if (g->length == 0 && n > 1) { /* a prompt: the training kernel */
        bt_attn_shape shape = {.T = n,
                               .D = D,
                               .ldq = HD,
                               .ldk = KVD,
                               .ldv = KVD,
                               .ldo = HD,
                               .scale = 1.0f / sqrtf((float)D)};
        bt_op_attn_fwd(l->a.o, l->a.lse, bt_net_q(l), bt_net_k(l), l->a.v, &shape, 1, (size_t)c->H,
                       (size_t)c->KV, g->m->setup.prec);
        return;
    }
    for (size_t i = 0; i < n; i++)
        attend(g, l->a.o + i * HD, bt_net_q(l) + i * HD, k, v, g->length + i + 1);
}

/* n tokens at positions length .. length+n-1; there is room */
static void forward(bt_gen *g, const int32_t *tokens, size_t n) {
    bt_model *m = g->m;
    const bt_model_cfg *c = &m->setup.cfg;
    size_t C = (size_t)c->C, V = (size_t)c->V, stride = (size_t)c->T * (size_t)c->KV * (size_t)c->D;
    bt_net_positions(m, 1, n, g->length);
    bt_op_embed(m->layers[0].a.x, m->embed, tokens, n, C);
    for (int i = 0; i < c->L; i++) {
        bt_layer *l = &m->layers[i];
        bt_net_qkv(m, l, n);
        attention(g, l, g->k + (size_t)i * stride, g->v + (size_t)i * stride, n);
        bt_net_attn_out(m, l, n);
        bt_net_ffn(m, l, n);
    }
    float *xn = m->layers[0].a.xn;
    bt_op_rmsnorm(xn, NULL, m->x_final + (n - 1) * C, m->final_norm.w, (float)c->norm_eps, 1, C);
    bt_op_gemv(g->logits, m->head.f32, xn, V, C);
    memmove(g->tokens + g->length, tokens, n * sizeof *tokens);
    g->length += n;
}

bt_code bt_gen_feed(bt_gen *g, const int32_t *tokens, size_t n, bt_err *err) {
    size_t T = (size_t)g->m->setup.cfg.T;
    if (n == 0) return bt_fail(err, BT_ARG, "nothing to generate from: the prompt holds no token");
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= g->m->setup.cfg.V) {
            return bt_fail(err, BT_ARG,
                           "token %d at position %zu is outside the model's vocabulary of %d",
                           (int)tokens[i], i, g->m->setup.cfg.V);
        }
    }
    g->seen += n;
    while (n > 0) {
        if (g->length == T) { /* full: start again from the younger half */
            size_t keep = T / 2;
            g->length = 0;
            if (keep > 0) forward(g, g->tokens + (T - keep), keep);
        }
        size_t take = n < T - g->length ? n : T - g->length;
        forward(g, tokens, take);
        tokens += take;
        n -= take;
    }
    return BT_OK;
}

int32_t bt_gen_sample(bt_gen *g, const bt_sampling *s) {
    return bt_sampler_draw(g->sampler, g->logits, s, (bt_history){g->tokens, g->length}, g->seen);
}

bt_code bt_gen_next(bt_gen *g, const bt_sampling *s, int32_t *token, bt_err *err) {
    *token = bt_gen_sample(g, s);
    return bt_gen_feed(g, token, 1, err);
}
