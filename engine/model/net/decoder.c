/* decoder.c - decoding with key-value caches. */
#include "engine/model/net/decoder.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/ternary.h"
#include "engine/model/net/cache_attention.h"
#include "engine/model/net/net.h"

/* LOGITS_BLOCK: rows of the head computed at once. HEAD_ROWS: for fewer rows the head is read as it is stored. */
enum { LOGITS_BLOCK = 64, HEAD_ROWS = 16 };

typedef struct row {
    int slot;
    size_t seen; /* number of tokens in its attention, including itself */
} row;

struct bt_decoder {
    bt_decoder *member; /* next model of an ensemble, owned */
    float *mean; /* (M, V) sums of the ensemble's probabilities in a step; NULL: a single model */
    bt_model *m;
    int slots;
    bt_arena arena;
    float *k, *v;  /* (slots, L, T, KV * D) */
    float *scores; /* (threads, T) */
    float *wanted; /* (logits_rows, C) normed rows whose logits are requested */
    /* (V, C) the head in 16 bits if products lose no precision by it; otherwise the model's head */
    const void *head;
    bt_stored_as head_as;
    row *rows;      /* (M) */
    size_t *length; /* (slots) */
    /* tokens: (slots, T) of each slot, NULL without bt_model_short_rows; rotation: (slots) first row of its rotation */
    int32_t *tokens, *rotation;
};

static size_t slot_bytes(const bt_model_cfg *c) {
    return 2 * (size_t)c->L * (size_t)c->T * (size_t)c->KV * (size_t)c->D * sizeof(float);
}

size_t bt_decoder_slot_bytes(const bt_model *m) {
    size_t bytes = 0;
    for (; m; m = m->member) bytes += slot_bytes(&m->setup.cfg);
    return bytes;
}

typedef struct narrow_job {
    uint16_t *to; /* NULL: only checks the values */
    const float *x;
    bt_stored_as as;
    atomic_bool other; /* true if a value is not exactly representable in this type */
} narrow_job;

enum { NARROW = 4096 };

static void narrow_range(void *ctx, int thread, size_t begin, size_t end) {
    narrow_job *j = ctx;
    uint16_t some[NARROW];
    float back[NARROW];
    (void)thread;
    for (size_t i = begin, n; i < end; i += n) {
        n = bt_min_size(NARROW, end - i);
        uint16_t *to = j->to ? j->to + i : some;
        (j->as == BT_AS_F16 ? bt_active_kernels()->to_half
                            : bt_active_kernels()->to_bf16)(to, j->x + i, n);
        if (j->to) continue;
        if (atomic_load_explicit(&j->other, memory_order_relaxed)) return;
        (j->as == BT_AS_F16 ? bt_active_kernels()->from_half
                            : bt_active_kernels()->from_bf16)(back, to, n);
        if (memcmp(back, j->x + i, n * sizeof *back) != 0) atomic_store(&j->other, true);
    }
}

static bool all_representable(const bt_model *m, bt_stored_as as) {
    narrow_job j = {.x = m->head.f32, .as = as};
    bt_parallel_for((size_t)m->setup.cfg.V * (size_t)m->setup.cfg.C, NARROW, narrow_range, &j);
    return !atomic_load(&j.other);
}

/* The head has 16 bits if products round it to bf16 anyway, or if all its values were read from a file with 16 bits
 * each. The head of a model that trains may change, so it stays fp32. */
static bt_stored_as choose_head_format(const bt_model *m) {
    if (m->setup.train || !m->head.f32) return BT_AS_F32;
    if (m->head.rounded || all_representable(m, BT_AS_BF16)) return BT_AS_BF16;
    return all_representable(m, BT_AS_F16) ? BT_AS_F16 : BT_AS_F32;
}

/* Creates the decoder of one model; mixes: it is the first model of an ensemble and keeps the mean. */
static bt_code create_single_decoder(bt_decoder **out, bt_model *m, int slots, bool mixes,
                                     bt_err *err) {
    if (m->setup.slice.tp_size > 1 || m->setup.slice.pp_size > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "one tensor-parallel slice of a model cannot generate text: load the whole "
                       "checkpoint on one rank");
    if (m->setup.weight_source != BT_WEIGHTS_LOCAL)
        return bt_fail(err, BT_UNSUPPORTED,
                       "a model whose weights are distributed over several ranks cannot generate "
                       "text: load the whole checkpoint on one rank");
    bt_decoder *d = calloc(1, sizeof *d);
    if (!d) return bt_fail(err, BT_NOMEM, "cannot allocate memory for generation");
    d->m = m;
    d->slots = slots;
    d->head_as = choose_head_format(m);
    const bt_model_cfg *c = &m->setup.cfg;
    const size_t T = (size_t)c->T, M = bt_decoder_rows(d), VC = (size_t)c->V * (size_t)c->C,
                 cache = (size_t)slots * slot_bytes(c) / 2;
    bt_arena_plan(&d->arena, "generation");
    const size_t k = bt_arena_reserve(&d->arena, cache, 1),
                 v = bt_arena_reserve(&d->arena, cache, 1),
                 scores = bt_arena_reserve(&d->arena, (size_t)bt_threads_count() * T,
                                           sizeof(float)),
                 wanted = bt_arena_reserve(&d->arena, m->logits_rows * (size_t)c->C, sizeof(float)),
                 rows = bt_arena_reserve(&d->arena, M, sizeof(row)),
                 head = d->head_as != BT_AS_F32 ? bt_arena_reserve(&d->arena, VC, sizeof(uint16_t))
                                                : 0,
                 mean = mixes ? bt_arena_reserve(&d->arena, M * (size_t)c->V, sizeof(float)) : 0,
                 length = bt_arena_reserve(&d->arena, (size_t)slots, sizeof(size_t)),
                 n_tokens = bt_model_short_rows(c) ? (size_t)slots * T : 0,
                 tokens = bt_arena_reserve(&d->arena, n_tokens, sizeof(int32_t)),
                 rotation = bt_arena_reserve(&d->arena, (size_t)slots, sizeof(int32_t));
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
    if (mixes) d->mean = bt_arena_at(&d->arena, mean);
    if (n_tokens) d->tokens = bt_arena_at(&d->arena, tokens);
    d->rotation = bt_arena_at(&d->arena, rotation);
    memset(d->rotation, 0, (size_t)slots * sizeof *d->rotation);
    memset(d->length, 0, (size_t)slots * sizeof *d->length);
    d->head = m->head.f32;
    if (d->head_as != BT_AS_F32) {
        narrow_job j = {bt_arena_at(&d->arena, head), m->head.f32, d->head_as, false};
        bt_parallel_for(VC, NARROW, narrow_range, &j);
        d->head = j.to;
    }
    *out = d;
    return BT_OK;
}

bt_code bt_decoder_create(bt_decoder **out, bt_model *m, int slots, bt_err *err) {
    bt_decoder **end = out;
    *out = NULL;
    for (bt_model *x = m; x; x = x->member, end = &(*end)->member) {
        const bt_code code = create_single_decoder(end, x, slots, x == m && m->member, err);
        if (code == BT_OK) continue;
        bt_decoder_destroy(*out);
        *out = NULL;
        return code;
    }
    return BT_OK;
}

void bt_decoder_destroy(bt_decoder *d) {
    for (bt_decoder *next; d; d = next) {
        next = d->member;
        bt_arena_release(&d->arena);
        free(d);
    }
}

size_t bt_decoder_length(const bt_decoder *d, int slot) { return d->length[slot]; }
void bt_decoder_clear(bt_decoder *d, int slot) { bt_decoder_rewind(d, slot, 0); }
void bt_decoder_rewind(bt_decoder *d, int slot, size_t keep) {
    assert(keep <= d->length[slot]);
    for (; d; d = d->member) d->length[slot] = keep;
}
size_t bt_decoder_rows(const bt_decoder *d) {
    return (size_t)d->m->setup.B * (size_t)d->m->setup.cfg.T;
}

void bt_decoder_weight_bytes(const bt_decoder *d, size_t *ternary, size_t *head) {
    *ternary = *head = 0;
    for (; d; d = d->member) {
        const bt_model *m = d->m;
        const size_t word = d->head_as == BT_AS_F32 ? sizeof(float) : sizeof(uint16_t);
        *head += word * (size_t)m->setup.cfg.V * (size_t)m->setup.cfg.C;
        for (size_t i = 0; i < m->params.n; i++) {
            const bt_tensor *t = &m->params.tensors[i];
            if (t->tern) *ternary += t->rows * bt_tern2_row_bytes(t->cols);
        }
    }
}

static size_t cache_stride(const bt_decoder *d) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    return (size_t)c->T * (size_t)c->KV * (size_t)c->D;
}

static float *cache_at(const bt_decoder *d, float *cache, int slot, size_t layer) {
    return cache + ((size_t)slot * (size_t)d->m->setup.cfg.L + layer) * cache_stride(d);
}

typedef struct attend_job {
    const bt_decoder *d;
    size_t layer, first; /* first: row of job item 0 */
    size_t window;       /* 0: none */
    float scale;
    float *o;
    const float *q;
} attend_job;

/* Item i is head i % H of row first + i / H. */
static void attend_heads(void *ctx, int thread, size_t begin, size_t end) {
    const attend_job *j = ctx;
    const bt_decoder *d = j->d;
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t D = (size_t)c->D, KVD = (size_t)c->KV * D, H = (size_t)c->H,
                 group = (size_t)(c->H / c->KV);
    float *weights = d->scores + (size_t)thread * (size_t)c->T;
    for (size_t i = begin; i < end; i++) {
        const row *r = &d->rows[j->first + i / H];
        const size_t h = i % H, at = (j->first + i / H) * H * D + h * D,
                     seen = j->window ? bt_min_size(r->seen, j->window) : r->seen,
                     from = (r->seen - seen) * KVD + h / group * D;
        const bt_cached head = {.k = cache_at(d, d->k, r->slot, j->layer) + from,
                                .v = cache_at(d, d->v, r->slot, j->layer) + from,
                                .ld = KVD,
                                .seen = seen,
                                .D = D,
                                .scale = j->scale,
                                .cap = (float)c->attention_cap};
        bt_cache_attend(j->o + at, j->q + at, &head, weights);
    }
}

static void decode_attention(const bt_decoder *d, bt_layer *l, size_t layer, size_t first,
                             size_t rows) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    attend_job j = {.d = d,
                    .layer = layer,
                    .first = first,
                    .window = bt_net_window(d->m, l),
                    .scale = bt_model_query_factor(c),
                    .o = l->a.o,
                    .q = bt_net_q(l)};
    const size_t work = d->rows[first].seen * (size_t)c->D;
    bt_parallel_for(rows * (size_t)c->H, 1 + 16384 / work, attend_heads, &j);
}

/* Reads a prompt from its beginning with the kernel of the training, in fp32 like attention over the cache, so that it
 * matters little in which parts a prompt is read. */
static void attend_prompt(const bt_decoder *d, bt_layer *l, size_t first, size_t n) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t D = (size_t)c->D, HD = (size_t)c->H * D, KVD = (size_t)c->KV * D;
    const bt_attn_shape shape = {.T = n,
                                 .D = D,
                                 .ldq = HD,
                                 .ldk = KVD,
                                 .ldv = KVD,
                                 .ldo = HD,
                                 .scale = bt_model_query_factor(c),
                                 .cap = (float)c->attention_cap,
                                 .window = bt_net_window(d->m, l)};
    bt_op_attn_fwd(l->a.o + first * HD, l->a.lse, bt_net_q(l) + first * HD,
                   bt_net_k(l) + first * KVD, l->a.v + first * KVD, &shape, 1, (size_t)c->H,
                   (size_t)c->KV, BT_PREC_FP32);
}

static void run_decode_attention(bt_decoder *d, bt_layer *l, size_t layer,
                                 const bt_decode_part *parts, size_t n) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t KVD = (size_t)c->KV * (size_t)c->D;
    size_t first = 0, single = 0; /* rows single .. first are processed together */
    for (size_t p = 0; p < n; p++) {
        const size_t at = d->length[parts[p].slot] * KVD, bytes = parts[p].n * KVD * sizeof(float);
        memcpy(cache_at(d, d->k, parts[p].slot, layer) + at, bt_net_k(l) + first * KVD, bytes);
        memcpy(cache_at(d, d->v, parts[p].slot, layer) + at, l->a.v + first * KVD, bytes);
        first += parts[p].n;
    }
    first = 0;
    for (size_t p = 0; p < n; p++) {
        if (d->length[parts[p].slot] == 0 && parts[p].n > 1) {
            if (first > single) decode_attention(d, l, layer, single, first - single);
            attend_prompt(d, l, first, parts[p].n);
            single = first + parts[p].n;
        }
        first += parts[p].n;
    }
    if (first > single) decode_attention(d, l, layer, single, first - single);
}

/* Sets the positions of the rows of a step, and the number of tokens to which each row attends. */
static size_t prepare_rows(bt_decoder *d, const bt_decode_part *parts, size_t n) {
    size_t M = 0;
    for (size_t p = 0; p < n; p++) {
        const size_t length = d->length[parts[p].slot];
        assert(length + parts[p].n <= (size_t)d->m->setup.cfg.T);
        for (size_t i = 0; i < parts[p].n; i++, M++) {
            d->m->pos[M] = (int32_t)(length + i) + d->rotation[parts[p].slot];
            d->rows[M] = (row){parts[p].slot, length + i + 1};
        }
    }
    assert(M <= bt_decoder_rows(d));
    return M;
}

static void embed_parts(bt_decoder *d, const bt_decode_part *parts, size_t n) {
    const size_t C = (size_t)d->m->setup.cfg.C;
    float *x = d->m->layers[0].a.x;
    for (size_t p = 0; p < n; p++) {
        bt_op_embed(x, d->m->embed, parts[p].tokens, 0, (size_t)d->m->setup.cfg.V, parts[p].n, C);
        x += parts[p].n * C;
    }
}

/* Computes the logits of normed rows x (n, C) into the model's (n, V). Few rows are limited by the time to read the
 * head; many rows, and all rows of a scored prompt, by the products. */
static void decode_head(bt_decoder *d, const float *x, size_t n, bool all) {
    bt_model *m = d->m;
    const size_t C = (size_t)m->setup.cfg.C, V = (size_t)m->setup.cfg.V;
    if (d->head && !all && n <= HEAD_ROWS)
        bt_op_gemv(m->logits, d->head, d->head_as, x, n, V, C);
    else
        bt_op_gemm_table(m->logits, V, x, C, m->head, C, 1, n, V, C, m->setup.prec, 0);
    if (m->head_form.cap > 0) bt_op_soft_cap(m->logits, V, m->head_form.cap, n, V);
}

typedef struct wanted {
    size_t part, token;
} wanted;

/* rows collected for the head */
typedef struct collected {
    bt_decoder *d;
    bt_logits_fn fn;
    void *ctx;
    wanted who[LOGITS_BLOCK];
    size_t n, most;
    bool all;
} collected;

static void flush_rows(collected *c) {
    const size_t V = (size_t)c->d->m->setup.cfg.V;
    if (c->n == 0) return;
    decode_head(c->d, c->d->wanted, c->n, c->all);
    for (size_t k = 0; k < c->n; k++)
        c->fn(c->ctx, c->who[k].part, c->who[k].token, c->d->m->logits + k * V);
    c->n = 0;
}

static void report_logits(bt_decoder *d, const bt_decode_part *parts, size_t n, bt_logits_fn fn,
                          void *ctx) {
    bt_model *m = d->m;
    const size_t C = (size_t)m->setup.cfg.C;
    collected c = {.d = d,
                   .fn = fn,
                   .ctx = ctx,
                   .most = m->logits_rows < LOGITS_BLOCK ? m->logits_rows : LOGITS_BLOCK};
    for (size_t p = 0, first = 0; p < n; first += parts[p].n, p++) {
        const bool all = parts[p].want == BT_LOGITS_ALL;
        if (parts[p].want == BT_LOGITS_NONE) continue;
        for (size_t i = all ? 0 : parts[p].n - 1; i < parts[p].n; i++) {
            if (c.n == c.most || c.all != all) flush_rows(&c);
            c.all = all;
            bt_op_rmsnorm(d->wanted + c.n * C, NULL, m->x_final + (first + i) * C, m->final_norm.w,
                          (float)m->setup.cfg.norm_eps, 1, C);
            c.who[c.n++] = (wanted){p, i};
        }
    }
    flush_rows(&c);
}

/* Appends the tokens of the parts to the caches of their slots. */
static void decode_layers(bt_decoder *d, const bt_decode_part *parts, size_t n) {
    bt_model *m = d->m;
    const size_t M = prepare_rows(d, parts, n);
    embed_parts(d, parts, n);
    bt_net_scale_embedding(m, m->layers[0].a.x, M);
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        bt_net_qkv(m, l, M);
        run_decode_attention(d, l, (size_t)i, parts, n);
        bt_net_attn_out(m, l, M);
        bt_net_ffn(m, l, M);
    }
    for (size_t p = 0; p < n; p++) d->length[parts[p].slot] += parts[p].n;
}

/* Chooses the rotary frequencies of a slot by the length of its text. If they change, recomputes its cache. */
static void rotate_by_length(bt_decoder *d, const bt_decode_part *part) {
    const bt_model_cfg *c = &d->m->setup.cfg;
    const size_t before = d->length[part->slot], after = bt_max_size(before + part->n, part->known);
    int32_t *tokens = d->tokens + (size_t)part->slot * (size_t)c->T;
    const int32_t first = after <= bt_model_short_rows(c) ? c->T : 0;
    if (before && first != d->rotation[part->slot]) {
        const bt_decode_part again = {.slot = part->slot, .tokens = tokens, .n = before};
        d->length[part->slot] = 0;
        d->rotation[part->slot] = first;
        decode_layers(d, &again, 1);
    }
    d->rotation[part->slot] = first;
    memcpy(tokens + before, part->tokens, part->n * sizeof *tokens);
}

static void step_single_model(bt_decoder *d, const bt_decode_part *parts, size_t n, bt_logits_fn fn,
                              void *ctx) {
    if (n == 0) return;
    for (size_t p = 0; p < n && d->tokens; p++) rotate_by_length(d, &parts[p]);
    decode_layers(d, parts, n);
    if (fn) report_logits(d, parts, n, fn, ctx);
}

/* All members produce their logits in the same order, so the index of a row in `mean` is the number of its call. */
typedef struct mixing {
    float *mean;
    size_t V, n; /* n: number of calls of this member */
    bool first;
} mixing;

static void add_member_probabilities(void *ctx, size_t p, size_t i, const float *report_logits) {
    mixing *x = ctx;
    float *mean = x->mean + x->n++ * x->V;
    (void)p, (void)i;
    (x->first ? bt_net_mean_put : bt_net_mean_add)(mean, report_logits, x->V);
}

void bt_decoder_step(bt_decoder *d, const bt_decode_part *parts, size_t n, bt_logits_fn fn,
                     void *ctx) {
    mixing x = {.mean = d->mean, .V = (size_t)d->m->setup.cfg.V};
    float *mean = d->mean;
    if (!d->member) {
        step_single_model(d, parts, n, fn, ctx);
        return;
    }
    for (bt_decoder *member = d; member; member = member->member) {
        x.n = 0;
        x.first = member == d;
        step_single_model(member, parts, n, fn ? add_member_probabilities : NULL, &x);
    }
    for (size_t p = 0; p < n && fn; p++) {
        const size_t want = parts[p].want;
        if (want == BT_LOGITS_NONE) continue;
        for (size_t i = want == BT_LOGITS_ALL ? 0 : parts[p].n - 1; i < parts[p].n; i++) {
            bt_net_mean_logits(mean, x.V, bt_model_members(d->m));
            fn(ctx, p, i, mean);
            mean += x.V;
        }
    }
}
