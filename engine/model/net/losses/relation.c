/* relation.c - a student learns the attention relations of one layer from its teacher (MiniLMv2, arXiv:2012.15828;
 * BitDistill, arXiv:2510.13998).
 *
 * Queries, keys and values as attention reads them, (M, N) each, are divided into n equal parts of their columns. A
 * relation is R = softmax(A A^T / sqrt(N / n)) of one part A over the tokens of a document, in both directions. The
 * loss of a learned token is weight / n times the sum over q, k, v and the parts of KL(teacher's row || student's row).
 * With P = weight grad_scale / n (R - R') in rows of learned tokens and 0 in all other rows,
 *     dA = (P + P^T) A / sqrt(N / n)
 * Rows of R are computed in blocks, separately for each document, in an order that depends on nothing else. */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/net.h"

/* products of one part of the columns, over one document */
typedef struct relation_job {
    const float *x, *taught; /* first row of the document */
    float *dx;
    size_t ldx, ldt, width, taught_width; /* row strides; columns of the part */
    size_t n, ld;                         /* tokens of the document; row stride of the blocks */
    const int32_t *targets;
    float *own_rows, *taught_rows; /* (BT_RELATION_ROWS, ld) logits, then R - R' */
    double *losses;                /* (n) divergences are added */
    float factor;                  /* weight grad_scale / n */
    size_t at;                     /* first row of the block */
} relation_job;

enum { PIECE = 1024 }; /* number of columns whose logits are on the stack */

/* Computes own = factor (R - R'); returns the divergence. */
static double relation_row(float *own, float *taught, size_t n, float factor) {
    const bt_kernels *k = bt_active_kernels();
    const int32_t nowhere = -1;
    const float one = 1;
    float x[PIECE], y[PIECE];
    bt_row_stat s, t;
    double cross = 0;
    k->row_lse(&s, own, &nowhere, 1, n);
    k->row_lse(&t, taught, &nowhere, 1, n);
    const float own_share = (float)(1 / s.sum), taught_share = (float)(1 / t.sum);
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t m = bt_min_size(n - at, PIECE);
        float *p = own + at, *q = taught + at;
        memcpy(x, p, m * sizeof *x);
        memcpy(y, q, m * sizeof *y);
        k->row_softmax(p, &s.a, &own_share, &nowhere, 0, 1, m);
        k->row_softmax(q, &t.a, &one, &nowhere, 0, 1, m);
        for (size_t i = 0; i < m; i++) cross += (double)q[i] * ((double)y[i] - (double)x[i]);
        for (size_t i = 0; i < m; i++) p[i] = factor * (p[i] - taught_share * q[i]);
    }
    return cross / t.sum - ((double)t.a + log(t.sum)) + ((double)s.a + log(s.sum));
}

static void relation_rows(void *ctx, int thread, size_t begin, size_t end) {
    const relation_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        float *own = j->own_rows + r * j->ld;
        if (j->targets[j->at + r] < 0)
            memset(own, 0, j->n * sizeof *own);
        else
            j->losses[j->at + r] += relation_row(own, j->taught_rows + r * j->ld, j->n, j->factor);
    }
}

static void relate_part(relation_job *j) {
    const float by = (float)(1 / sqrt((double)j->width)),
                taught_by = (float)(1 / sqrt((double)j->taught_width));
    for (j->at = 0; j->at < j->n; j->at += BT_RELATION_ROWS) {
        const size_t rows = bt_min_size(j->n - j->at, BT_RELATION_ROWS);
        const float *x = j->x + j->at * j->ldx;
        bt_op_gemm(j->own_rows, j->ld, x, j->ldx, 0, j->x, j->ldx, 1, by, rows, j->n, j->width,
                   BT_PREC_FP32, 0);
        bt_op_gemm(j->taught_rows, j->ld, j->taught + j->at * j->ldt, j->ldt, 0, j->taught, j->ldt,
                   1, taught_by, rows, j->n, j->taught_width, BT_PREC_FP32, 0);
        bt_parallel_for(rows, 1, relation_rows, j);
        bt_op_gemm(j->dx + j->at * j->ldx, j->ldx, j->own_rows, j->ld, 0, j->x, j->ldx, 0, by, rows,
                   j->width, j->n, BT_PREC_FP32, BT_ACC);
        bt_op_gemm(j->dx, j->ldx, j->own_rows, j->ld, 1, x, j->ldx, 0, by, j->n, j->width, rows,
                   BT_PREC_FP32, BT_ACC);
    }
}

static void relate_document(bt_model *m, const bt_model *teacher, bt_attn_document d,
                            const int32_t *targets, double grad_scale) {
    const bt_relation *r = &m->relation, *t = &teacher->relation;
    const size_t parts = (size_t)m->distil.relation_heads;
    if (d.padding) return;
    for (int i = 0; i < BT_RELATIONS; i++) {
        const size_t N = r->width[i], K = t->width[i];
        relation_job j = {.ldx = N,
                          .ldt = K,
                          .width = N / parts,
                          .taught_width = K / parts,
                          .n = d.n,
                          .ld = (size_t)m->setup.cfg.T,
                          .targets = targets + d.row,
                          .own_rows = r->own_rows,
                          .taught_rows = r->taught_rows,
                          .losses = r->losses + d.row,
                          .factor = (float)(m->distil.relation * grad_scale / (double)parts)};
        for (size_t part = 0; part < parts; part++) {
            j.x = r->x[i] + d.row * N + part * j.width;
            j.dx = r->dx[i] + d.row * N + part * j.width;
            j.taught = t->x[i] + d.row * K + part * j.taught_width;
            relate_part(&j);
        }
    }
}

void bt_net_relation_loss(bt_model *m, const bt_model *teacher, const int32_t *targets,
                          double grad_scale) {
    const bt_relation *r = &m->relation;
    const size_t B = (size_t)m->setup.B, T = (size_t)m->setup.cfg.T, M = B * T;
    memset(r->losses, 0, M * sizeof *r->losses);
    for (int i = 0; i < BT_RELATIONS; i++) memset(r->dx[i], 0, M * r->width[i] * sizeof(float));
    for (size_t i = 0; i < m->n_documents; i++)
        relate_document(m, teacher, m->documents[i], targets, grad_scale);
    for (size_t b = 0; b < B && !m->n_documents; b++)
        relate_document(m, teacher, (bt_attn_document){b * T, T, false}, targets, grad_scale);
    const double factor = m->distil.relation / m->distil.relation_heads;
    for (size_t i = 0; i < M; i++)
        m->row_loss[i] = (float)((double)m->row_loss[i] + factor * r->losses[i]);
}
