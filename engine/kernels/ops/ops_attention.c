/* ops_attention.c - attention over the thread pool: one unit is a head of a sequence, or of a document if
 * attention is restricted to documents. */
#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

typedef struct attn_job {
    float *o, *lse_out, *dq, *dk, *dv;
    const float *dout, *lse;
    const void *o_in, *q, *k, *v; /* floats, or bf16 */
    const bt_attn_shape *s;
    size_t H, KV, runs, rows;
    bt_prec prec;
} attn_job;

static size_t query_group(const attn_job *j) { return j->s->group ? j->s->group : j->H / j->KV; }

/* a unit of attention: number i of the shape's sequences or documents */
typedef struct range {
    size_t row, lse; /* its first row; offset of the (B, H, T) normalisers of head 0 */
    bool padding;
    bt_attn_shape shape; /* T: its length */
} range;

static range attention_range_at(const attn_job *j, size_t i) {
    const bt_attn_shape *s = j->s;
    range r = {.row = i * s->T, .lse = i * s->T * j->H, .shape = *s};
    if (!s->documents) return r;
    const bt_attn_document *d = &s->documents[i];
    r.row = d->row;
    r.lse = d->row / s->T * s->T * j->H + d->row % s->T;
    r.shape.T = d->n;
    r.padding = d->padding;
    return r;
}

static size_t count_query_ranges(const bt_attn_shape *s, size_t B) {
    return s->documents ? s->n_documents : B;
}

static void zero_rows(float *x, size_t ld, size_t rows, size_t D) {
    for (size_t t = 0; t < rows; t++) memset(x + t * ld, 0, D * sizeof *x);
}

/* element i of o_in, q, k or v */
static const void *address_of_element(const attn_job *j, const void *x, size_t i) {
    return (const char *)x + i * (j->s->bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* units: (range, head) */
static void do_attn_fwd(void *ctx, int thread, size_t a, size_t b) {
    const attn_job *j = ctx;
    for (size_t u = a; u < b; u++) {
        const range r = attention_range_at(j, u / j->H);
        const bt_attn_shape *s = &r.shape;
        size_t row = r.row, h = u % j->H, kv = (s->skip + h) / query_group(j);
        float *o = j->o + row * s->ldo + h * s->D;
        if (r.padding) {
            zero_rows(o, s->ldo, s->T, s->D);
            continue;
        }
        bt_active_kernels()->attn_fwd(o, j->lse_out + r.lse + h * j->s->T,
                                      address_of_element(j, j->q, row * s->ldq + h * s->D),
                                      address_of_element(j, j->k, row * s->ldk + kv * s->D),
                                      address_of_element(j, j->v, row * s->ldv + kv * s->D), s, 0,
                                      s->T, j->prec, bt_ops_scratch(thread));
    }
}

void bt_op_attn_fwd(float *o, float *lse, const void *q, const void *k, const void *v,
                    const bt_attn_shape *s, size_t B, size_t H, size_t KV, bt_prec prec) {
    attn_job j = {
        .o = o, .lse_out = lse, .q = q, .k = k, .v = v, .s = s, .H = H, .KV = KV, .prec = prec};
    bt_ops_timed("attn_fwd", 2.0 * product(B * H, s->T * s->T, s->D), 0,
                 count_query_ranges(s, B) * H, 1, do_attn_fwd, &j);
}

/* rotates a head's gradient back while it is in the cache */
static void turn_back(const bt_attn_shape *s, float *d, size_t ld, size_t row) {
    if (!s->turned) return;
    bt_rotation by = *s->turned;
    by.pos += row;
    bt_active_kernels()->rope(d, ld, &by, 1, s->T, 1, s->D);
}

/* one unit of work is a range, a kv head and a run of its query heads, in this order */
static void do_attn_bwd(void *ctx, int thread, size_t a, size_t b) {
    const attn_job *j = ctx;
    size_t group = query_group(j), each = j->s->run ? j->s->run : group / j->runs;
    for (size_t u = a; u < b; u++) {
        const range r = attention_range_at(j, u / (j->KV * j->runs));
        const bt_attn_shape *s = &r.shape;
        size_t row = r.row, piece = u % (j->KV * j->runs), kv = piece / j->runs,
               out = piece % j->runs * j->rows + row;
        float *dk = j->dk + out * s->ldk + kv * s->D, *dv = j->dv + out * s->ldv + kv * s->D;
        zero_rows(dk, s->ldk, s->T, s->D);
        zero_rows(dv, s->ldv, s->T, s->D);
        size_t first = bt_max_size(kv * group, s->skip) - s->skip,
               end = bt_min_size((kv + 1) * group - s->skip, j->H),
               run = (first / each + piece % j->runs) * each;
        for (size_t h = bt_max_size(first, run); h < bt_min_size(end, run + each); h++) {
            size_t oq = row * s->ldq + h * s->D, oo = row * s->ldo + h * s->D;
            if (r.padding) {
                zero_rows(j->dq + oq, s->ldq, s->T, s->D);
                turn_back(s, j->dq + oq, s->ldq, row);
                continue;
            }
            bt_active_kernels()->attn_bwd(j->dq + oq, dk, dv, j->dout + oo,
                                          address_of_element(j, j->o_in, oo),
                                          j->lse + r.lse + h * j->s->T,
                                          address_of_element(j, j->q, oq),
                                          address_of_element(j, j->k, row * s->ldk + kv * s->D),
                                          address_of_element(j, j->v, row * s->ldv + kv * s->D), s,
                                          j->prec, bt_ops_scratch(thread));
            turn_back(s, j->dq + oq, s->ldq, row);
        }
        turn_back(s, dk, s->ldk, row);
    }
}

void bt_op_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o,
                    const float *lse, const void *q, const void *k, const void *v,
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
    bt_ops_timed("attn_bwd", 5.0 * product(B * H, s->T * s->T, s->D), 0,
                 count_query_ranges(s, B) * KV * runs, 1, do_attn_bwd, &j);
}
