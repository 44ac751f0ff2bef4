/* decoder.c - decoding with key-value caches. */
#include "engine/model/net/decoder.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

typedef struct row { /* of a step */
    int slot;
    size_t seen; /* tokens that its attention sees, itself included */
} row;

struct bt_decoder {
    bt_model *m;
    int slots;
    bt_arena arena;
    float *k, *v;   /* (slots, L, T, KV * D) */
    float *scores;  /* (threads, T) */
    float *wanted;  /* (logits_rows, C) normed rows whose logits are wanted */
    row *rows;      /* (M) */
    size_t *length; /* (slots) */
};

size_t bt_decoder_slot_bytes(const bt_model_cfg *c) {
    return 2 * (size_t)c->L * (size_t)c->T * (size_t)c->KV * (size_t)c->D * sizeof(float);
}

bt_code bt_decoder_create(bt_decoder **out, bt_model *m, int slots, bt_err *err) {
    *out = NULL;
    if (m->setup.slice.tp_size > 1 || m->setup.slice.pp_size > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "one slice of a model cannot generate: load its checkpoint as a whole");
    if (m->setup.weight_source != BT_WEIGHTS_LOCAL)
        return bt_fail(err, BT_UNSUPPORTED,
                       "a model whose weights lie with several ranks cannot generate: load its "
                       "checkpoint as a whole");
    bt_decoder *d = calloc(1, sizeof *d);
    if (!d) return bt_fail(err, BT_NOMEM, "cannot take memory for generation");
    d->m = m;
    d->slots = slots;
    const bt_model_cfg *c = &m->setup.cfg;
    const size_t T = (size_t)c->T, M = bt_decoder_rows(d),
                 cache = (size_t)slots * bt_decoder_slot_bytes(c) / 2;
    bt_arena_plan(&d->arena, "generation");
    const size_t k = bt_arena_reserve(&d->arena, cache, 1),
                 v = bt_arena_reserve(&d->arena, cache, 1),
                 scores = bt_arena_reserve(&d->arena, (size_t)bt_threads_count() * T,
                                           sizeof(float)),
                 wanted = bt_arena_reserve(&d->arena, m->logits_rows * (size_t)c->C, sizeof(float)),
                 rows = bt_arena_reserve(&d->arena, M, sizeof(row)),
                 length = bt_arena_reserve(&d->arena, (size_t)slots, sizeof(size_t));
    bt_code code = bt_arena_commit(&d->arena, err);
    if (code != BT_OK) {
        bt_decoder_destroy(d);
        return code;
    }
    d->k = bt_arena_at(&d->arena, k);
    d->v = bt_arena_at(&d->arena, v);
    d->scores = bt_arena_at(&d->arena, scores);
    d->wanted = bt_arena_at(&d->arena, wanted);
    d->rows = bt_arena_at(&d->arena, rows);
    d->length = bt_arena_at(&d->arena, length);
    memset(d->length, 0, (size_t)slots * sizeof *d->length);
    *out = d;
    return BT_OK;
}

void bt_decoder_destroy(bt_decoder *d) {
    if (!d) return;
    bt_arena_release(&d->arena);
    free(d);
}

size_t bt_decoder_length(const bt_decoder *d, int slot) { return d->length[slot]; }
void bt_decoder_clear(bt_decoder *d, int slot) { d->length[slot] = 0; }
void bt_decoder_rewind(bt_decoder *d, int slot, size_t keep) {
    assert(keep <= d->length[slot]);
    d->length[slot] = keep;
}
size_t bt_decoder_rows(const bt_decoder *d) {
    return (size_t)d->m->setup.B * (size_t)d->m->setup.cfg.T;
}

/* ---- attention over the cache ---------------------------------------------------------------- */
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

static size_t cache_stride(const bt_decoder *d) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    return (size_t)c->T * (size_t)c->KV * (size_t)c->D;
}

/* keys or values of a layer in a slot's cache: (T, KV * D) */
static float *cache_at(const bt_decoder *d, float *cache, int slot, size_t layer) {
    return cache + ((size_t)slot * (size_t)d->m->setup.cfg.L + layer) * cache_stride(d);
}

typedef struct attend_job {
    const bt_decoder *d;
    size_t layer, first; /* row of job item 0 */
    float *o;
    const float *q;
} attend_job;

/* item i: head i % H of row first + i / H */
static void attend_heads(void *ctx, int thread, size_t begin, size_t end) {
    const attend_job *j = ctx;
    const bt_decoder *d = j->d;
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t D = (size_t)c->D, KVD = (size_t)c->KV * D, H = (size_t)c->H,
                 group = (size_t)(c->H / c->KV);
    const float scale = 1.0f / sqrtf((float)D);
    float *s = d->scores + (size_t)thread * (size_t)c->T;
    for (size_t i = begin; i < end; i++) {
        const row *r = &d->rows[j->first + i / H];
        const size_t h = i % H, at = (j->first + i / H) * H * D + h * D;
        const float *k = cache_at(d, d->k, r->slot, j->layer) + h / group * D,
                    *v = cache_at(d, d->v, r->slot, j->layer) + h / group * D;
        for (size_t t = 0; t < r->seen; t++) s[t] = scale * dot(j->q + at, k + t * KVD, D);
        softmax_row(s, r->seen);
        weighted_sum(j->o + at, s, v, KVD, r->seen, D);
    }
}

static void attend(const bt_decoder *d, bt_layer *l, size_t layer, size_t first, size_t rows) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    attend_job j = {d, layer, first, l->a.o, bt_net_q(l)};
    const size_t work = d->rows[first].seen * (size_t)c->D;
    bt_parallel_for(rows * (size_t)c->H, 1 + 16384 / work, attend_heads, &j);
}

/* a prompt from its beginning: the training kernel */
static void attend_prompt(const bt_decoder *d, bt_layer *l, size_t first, size_t n) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t D = (size_t)c->D, HD = (size_t)c->H * D, KVD = (size_t)c->KV * D;
    const bt_attn_shape shape = {.T = n,
                                 .D = D,
                                 .ldq = HD,
                                 .ldk = KVD,
                                 .ldv = KVD,
                                 .ldo = HD,
                                 .scale = 1.0f / sqrtf((float)D)};
    bt_op_attn_fwd(l->a.o + first * HD, l->a.lse, bt_net_q(l) + first * HD,
                   bt_net_k(l) + first * KVD, l->a.v + first * KVD, &shape, 1, (size_t)c->H,
                   (size_t)c->KV, d->m->setup.prec);
}

static void attention(bt_decoder *d, bt_layer *l, size_t layer, const bt_decode_part *parts,
                      size_t n) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t KVD = (size_t)c->KV * (size_t)c->D;
    size_t first = 0, single = 0; /* rows single .. first are attended to together */
    for (size_t p = 0; p < n; p++) {
        const size_t at = d->length[parts[p].slot] * KVD, bytes = parts[p].n * KVD * sizeof(float);
        memcpy(cache_at(d, d->k, parts[p].slot, layer) + at, bt_net_k(l) + first * KVD, bytes);
        memcpy(cache_at(d, d->v, parts[p].slot, layer) + at, l->a.v + first * KVD, bytes);
        first += parts[p].n;
    }
    first = 0;
    for (size_t p = 0; p < n; p++) {
        if (d->length[parts[p].slot] == 0 && parts[p].n > 1) {
            if (first > single) attend(d, l, layer, single, first - single);
            attend_prompt(d, l, first, parts[p].n);
            single = first + parts[p].n;
        }
        first += parts[p].n;
    }
    if (first > single) attend(d, l, layer, single, first - single);
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* rows of the step into the model's positions, and what each row's attention sees */
static size_t place_rows(bt_decoder *d, const bt_decode_part *parts, size_t n) {
    size_t M = 0;
    for (size_t p = 0; p < n; p++) {
        const size_t length = d->length[parts[p].slot];
        assert(length + parts[p].n <= (size_t)d->m->setup.cfg.T);
        for (size_t i = 0; i < parts[p].n; i++, M++) {
            d->m->pos[M] = (int32_t)(length + i);
            d->rows[M] = (row){parts[p].slot, length + i + 1};
        }
    }
    assert(M <= bt_decoder_rows(d));
    return M;
}

static void embed(bt_decoder *d, const bt_decode_part *parts, size_t n) {
    const size_t C = (size_t)d->m->setup.cfg.C;
    float *x = d->m->layers[0].a.x;
    for (size_t p = 0; p < n; p++) {
        bt_op_embed(x, d->m->embed, parts[p].tokens, parts[p].n, C);
        x += parts[p].n * C;
    }
}

/* logits of normed rows x (n, C) -> the model's (n, V) */
static void head(bt_decoder *d, const float *x, size_t n) {
    bt_model *m = d->m;
    const size_t C = (size_t)m->setup.cfg.C, V = (size_t)m->setup.cfg.V;
    if (n == 1)
        bt_op_gemv(m->logits, m->head.f32, x, V, C);
    else
        bt_op_gemm_table(m->logits, V, x, C, m->head, C, 1, n, V, C, m->setup.prec, 0);
}

typedef struct wanted {
    size_t part, token;
} wanted;

static void logits(bt_decoder *d, const bt_decode_part *parts, size_t n, bt_logits_fn fn,
                   void *ctx) {
    enum { BLOCK = 64 };
    bt_model *m = d->m;
    const size_t C = (size_t)m->setup.cfg.C, V = (size_t)m->setup.cfg.V,
                 most = m->logits_rows < BLOCK ? m->logits_rows : BLOCK;
    wanted who[BLOCK];
    size_t have = 0, first = 0;
    for (size_t p = 0; p < n; first += parts[p].n, p++) {
        size_t i = parts[p].want == BT_LOGITS_ALL    ? 0
                   : parts[p].want == BT_LOGITS_LAST ? parts[p].n - 1
                                                     : parts[p].n;
        for (; i < parts[p].n || (p == n - 1 && have); i++) {
            if (i < parts[p].n) {
                bt_op_rmsnorm(d->wanted + have * C, NULL, m->x_final + (first + i) * C,
                              m->final_norm.w, (float)m->setup.cfg.norm_eps, 1, C);
                who[have++] = (wanted){p, i};
            }
            const bool last = p == n - 1 && i + 1 >= parts[p].n;
            if (have < most && !last) continue;
            head(d, d->wanted, have);
            for (size_t k = 0; k < have; k++) fn(ctx, who[k].part, who[k].token, m->logits + k * V);
            have = 0;
        }
    }
}

void bt_decoder_step(bt_decoder *d, const bt_decode_part *parts, size_t n, bt_logits_fn fn,
                     void *ctx) {
    bt_model *m = d->m;
    const size_t M = place_rows(d, parts, n);
    if (M == 0) return;
    embed(d, parts, n);
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        bt_net_qkv(m, l, M);
        attention(d, l, (size_t)i, parts, n);
        bt_net_attn_out(m, l, M);
        bt_net_ffn(m, l, M);
    }
    for (size_t p = 0; p < n; p++) d->length[parts[p].slot] += parts[p].n;
    if (fn) logits(d, parts, n, fn, ctx);
}
