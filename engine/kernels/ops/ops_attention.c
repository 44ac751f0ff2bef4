/* ops_attention.c - attention over the thread pool: one unit is a head of a sequence. */
#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

typedef struct attn_job {
    float *o, *lse_out, *dq, *dk, *dv;
    const float *dout, *o_in, *lse, *q, *k, *v;
    const bt_attn_shape *s;
    size_t H, KV, runs, rows;
    bt_prec prec;
} attn_job;

static size_t group_of(const attn_job *j) { return j->s->group ? j->s->group : j->H / j->KV; }

/* units: (sequence, head) */
static void do_attn_fwd(void *ctx, int thread, size_t a, size_t b) {
    const attn_job *j = ctx;
    const bt_attn_shape *s = j->s;
    for (size_t u = a; u < b; u++) {
        size_t row = u / j->H * s->T, h = u % j->H, kv = (s->skip + h) / group_of(j);
        bt_k()->attn_fwd(j->o + row * s->ldo + h * s->D, j->lse_out + u * s->T,
                         j->q + row * s->ldq + h * s->D, j->k + row * s->ldk + kv * s->D,
                         j->v + row * s->ldv + kv * s->D, s, 0, s->T, j->prec,
                         bt_ops_scratch(thread));
    }
}

void bt_op_attn_fwd(float *o, float *lse, const float *q, const float *k, const float *v,
                    const bt_attn_shape *s, size_t B, size_t H, size_t KV, bt_prec prec) {
    attn_job j = {
        .o = o, .lse_out = lse, .q = q, .k = k, .v = v, .s = s, .H = H, .KV = KV, .prec = prec};
    bt_ops_timed("attn_fwd", 2.0 * product(B * H, s->T * s->T, s->D), 0, B * H, 1, do_attn_fwd, &j);
}

/* units: (sequence, kv head, run of its query heads in order) */
static void do_attn_bwd(void *ctx, int thread, size_t a, size_t b) {
    const attn_job *j = ctx;
    const bt_attn_shape *s = j->s;
    size_t group = group_of(j), each = s->run ? s->run : group / j->runs;
    for (size_t u = a; u < b; u++) {
        size_t seq = u / (j->KV * j->runs), row = seq * s->T, piece = u % (j->KV * j->runs),
               kv = piece / j->runs, out = piece % j->runs * j->rows + row;
        float *dk = j->dk + out * s->ldk + kv * s->D, *dv = j->dv + out * s->ldv + kv * s->D;
        for (size_t t = 0; t < s->T; t++) {
            memset(dk + t * s->ldk, 0, s->D * sizeof *dk);
            memset(dv + t * s->ldv, 0, s->D * sizeof *dv);
        }
        size_t first = bt_max_size(kv * group, s->skip) - s->skip,
               end = bt_min_size((kv + 1) * group - s->skip, j->H),
               run = (first / each + piece % j->runs) * each;
        for (size_t h = bt_max_size(first, run); h < bt_min_size(end, run + each); h++) {
            size_t oq = row * s->ldq + h * s->D, oo = row * s->ldo + h * s->D;
            bt_k()->attn_bwd(j->dq + oq, dk, dv, j->dout + oo, j->o_in + oo,
                             j->lse + (seq * j->H + h) * s->T, j->q + oq,
                             j->k + row * s->ldk + kv * s->D, j->v + row * s->ldv + kv * s->D, s,
                             j->prec, bt_ops_scratch(thread));
        }
    }
}

void bt_op_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const float *o,
                    const float *lse, const float *q, const float *k, const float *v,
                    const bt_attn_shape *s, size_t B, size_t H, size_t KV, size_t runs,
                    bt_prec prec) {
    attn_job j = {.dq = dq,
                  .runs = runs,
                  .rows = B * s->T,
                  .dk = dk,
                  .dv = dv,
                  .dout = dout,
                  .o_in = o,
                  .lse = lse,
                  .q = q,
                  .k = k,
                  .v = v,
                  .s = s,
                  .H = H,
                  .KV = KV,
                  .prec = prec};
    bt_ops_timed("attn_bwd", 5.0 * product(B * H, s->T * s->T, s->D), 0, B * KV * runs, 1,
                 do_attn_bwd, &j);
}
