/* evaluate.c - validation over a fixed set of sequences. */
#include "engine/train/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/micro/micro_schedule.h"
#include "engine/model/net/stage.h"
#include "engine/parallel/schedule/pass_order.h"

struct bt_evaluator {
    bt_comm *dp;
    int B, T;
    bool pairs;
    /* (classes, classes) result of the last run; NULL if no classifier */
    double *confusion;
    uint64_t hash;
    int64_t n_micro; /* micro-batches of this rank */
    /* (ranks * n_micro) token losses of every micro-batch, in order */
    double *sums;
    int32_t *inputs, *targets; /* (n_micro, B, T); targets of padding are -1 */
    int32_t *positions;        /* (n_micro, B, T); NULL if sequences do not consist of documents */
    double bytes_per_token;
    bt_text notes;
    void (*progress)(void *ctx, double done);
    void *ctx;
    bt_evaluator_seen seen;
    void *seen_ctx;
};

/* Reads this rank's micro-batches. Sequences from number `wanted` on are padding without targets. */
static bt_code read_share(bt_evaluator *e, bt_loader_cfg *cfg, int64_t wanted, bt_err *err) {
    size_t per_micro = (size_t)e->B * (size_t)e->T;
    e->inputs = calloc((size_t)e->n_micro * per_micro, sizeof *e->inputs);
    e->targets = calloc((size_t)e->n_micro * per_micro, sizeof *e->targets);
    e->sums = calloc((size_t)e->n_micro * (size_t)bt_comm_size(e->dp), sizeof *e->sums);
    if (cfg->packing > BT_PACKING_STREAM)
        e->positions = calloc((size_t)e->n_micro * per_micro, sizeof *e->positions);
    if (!e->inputs || !e->targets || !e->sums ||
        (cfg->packing > BT_PACKING_STREAM && !e->positions))
        return bt_fail(err, BT_NOMEM,
                       "cannot keep %zu validation tokens in memory (lower train.eval_tokens)",
                       (size_t)e->n_micro * per_micro);

    bt_loader *l = NULL;
    BT_TRY(bt_loader_open(&l, cfg, err));
    bt_code code = BT_OK;
    for (int64_t i = 0; i < e->n_micro && code == BT_OK; i++) {
        bt_batch batch;
        code = bt_loader_next(l, &batch, err);
        if (code != BT_OK) break;
        memcpy(e->inputs + (size_t)i * per_micro, batch.inputs, per_micro * sizeof *e->inputs);
        memcpy(e->targets + (size_t)i * per_micro, batch.targets, per_micro * sizeof *e->targets);
        if (batch.positions)
            memcpy(e->positions + (size_t)i * per_micro, batch.positions,
                   per_micro * sizeof *e->positions);
        for (int b = 0; b < e->B; b++) {
            if (cfg->first_sequence + i * e->B + b < wanted) continue;
            int32_t *row = e->targets + (size_t)i * per_micro + (size_t)b * (size_t)e->T;
            for (int t = 0; t < e->T; t++) row[t] = -1;
        }
    }
    e->bytes_per_token = bt_loader_bytes_per_token(l);
    bt_loader_close(l);
    return code;
}

bt_code bt_evaluator_open(bt_evaluator **out, const bt_loader_cfg *data, int64_t tokens,
                          bt_comm *dp, bt_err *err) {
    *out = NULL;
    bt_evaluator *e = calloc(1, sizeof *e);
    if (!e) return bt_fail(err, BT_NOMEM, "cannot take memory for the evaluation");
    e->dp = dp;
    e->B = data->B;
    e->T = data->T;
    e->pairs = data->form.kind == BT_FORM_PREFERENCE;

    bt_loader_cfg cfg = *data;
    cfg.split = BT_SPLIT_VAL;
    cfg.shuffle = false;
    cfg.first_step = 0;
    cfg.sequences_per_step = cfg.B;
    cfg.first_sequence = 0;
    cfg.n_sequences = cfg.B;
    bt_loader *peek = NULL;
    bt_code code = bt_loader_open(&peek, &cfg, err);
    int64_t wanted = tokens < cfg.T ? 1 : tokens / cfg.T;
    if (code == BT_OK) {
        int64_t available = bt_loader_sequences(peek);
        if (available > 0 && wanted > available) wanted = available;
        e->hash = bt_loader_hash(peek);
        bt_text_put(&e->notes, bt_loader_notes(peek));
        bt_loader_close(peek);

        int64_t ranks = bt_comm_size(dp), per_round = ranks * e->B;
        e->n_micro = (wanted + per_round - 1) / per_round;
        cfg.n_sequences = (int)(e->n_micro * e->B);
        cfg.first_sequence = bt_comm_rank(dp) * cfg.n_sequences;
        cfg.sequences_per_step = (int)(ranks * cfg.n_sequences);
        code = read_share(e, &cfg, wanted, err);
    }
    if (code != BT_OK) {
        bt_evaluator_close(e);
        return code;
    }
    *out = e;
    return BT_OK;
}

/* Computes one chunk of layers for a micro-batch; the last chunk gives the loss. */
static bt_code evaluate_chunk(bt_model *m, bt_pipe *pipe, const int32_t *inputs,
                              const int32_t *targets, double *loss, bt_err *err) {
    BT_TRY(bt_micro_reference(pipe, m, inputs, targets, err));
    if (!bt_model_begins(m)) BT_TRY(bt_pipe_recv(pipe, BT_PIPE_DOWN, bt_model_stage_in(m), err));
    if (bt_model_ends(m)) {
        bt_model_stage_synchronise(m);
        *loss = bt_model_eval_micro(m, inputs, targets);
        return BT_OK;
    }
    bt_model_stage_forward(m, inputs);
    return bt_pipe_send(pipe, BT_PIPE_DOWN, bt_model_stage_out(m), err);
}

/* F1 of label k: 2 correct / (predicted + true) */
static double macro_f1(const double *confusion, size_t classes) {
    double sum = 0;
    size_t n = 0;
    for (size_t k = 0; k < classes; k++) {
        double both = 0;
        for (size_t i = 0; i < classes; i++)
            both += confusion[k * classes + i] + confusion[i * classes + k];
        if (both == 0) continue;
        sum += 2 * confusion[k * classes + k] / both;
        n++;
    }
    return n ? sum / (double)n : NAN;
}

static bt_code add_confusion(bt_evaluator *e, bt_model *m, bt_pipe *pipe, double *f1, bt_err *err) {
    const size_t classes = (size_t)bt_model_config(m)->classes, n = classes * classes;
    *f1 = NAN;
    if (classes < 2) return BT_OK;
    if (!e->confusion) e->confusion = malloc(n * sizeof *e->confusion);
    if (!e->confusion)
        return bt_fail(err, BT_NOMEM, "cannot take memory for a table of %zu labels", classes);
    memcpy(e->confusion, bt_model_confusion(m), n * sizeof *e->confusion);
    if (pipe) BT_TRY(bt_pipe_sum(pipe, e->confusion, n, err));
    BT_TRY(bt_all_reduce_f64(e->dp, e->confusion, n, BT_SUM, err));
    *f1 = macro_f1(e->confusion, classes);
    return BT_OK;
}

/* Returns an order of forward passes only. */
static bt_pass_order forward_order(const bt_model *m, int64_t micros) {
    const bt_model_slice part = bt_model_slice_of(m);
    return (bt_pass_order){.stages = part.pp_size > 1 ? part.pp_size : 1,
                           .stage = part.pp_stage,
                           .chunks = bt_slice_chunks(part),
                           .micros = micros};
}

bt_code bt_evaluator_run(bt_evaluator *e, bt_model *m, bt_pipe *pipe, bt_eval_result *out,
                         bt_err *err) {
    size_t per_micro = (size_t)e->B * (size_t)e->T,
           all = (size_t)e->n_micro * (size_t)bt_comm_size(e->dp);
    double *mine = e->sums + (size_t)e->n_micro * (size_t)bt_comm_rank(e->dp), nats = 0;
    int64_t tokens = 0;
    memset(e->sums, 0, all * sizeof *e->sums);
    (void)bt_model_take_score(m);
    if (pipe) BT_TRY(bt_pipe_begin(pipe, e->n_micro * bt_micro_messages(m), 0, err));
    const bt_pass_order order = forward_order(m, e->n_micro);
    for (int64_t k = 0; k < order.chunks * e->n_micro; k++) {
        const bt_pass x = bt_pass_forward(&order, k);
        const int64_t i = x.micro;
        const int32_t *targets = e->targets + (size_t)i * per_micro;
        bt_model_chunk(m, x.chunk);
        bt_model_documents(m, e->positions ? e->positions + (size_t)i * per_micro : NULL);
        BT_TRY(evaluate_chunk(m, pipe, e->inputs + (size_t)i * per_micro, targets, &mine[i], err));
        if (x.chunk < order.chunks - 1) continue;
        const bt_batch b = {.inputs = e->inputs + (size_t)i * per_micro,
                            .targets = targets,
                            .positions = e->positions ? e->positions + (size_t)i * per_micro
                                                      : NULL};
        if (e->seen) BT_TRY(e->seen(e->seen_ctx, m, &b, err));
        for (size_t j = 0; j < per_micro; j++) tokens += targets[j] >= 0;
        if (e->progress) e->progress(e->ctx, (double)(i + 1) / (double)e->n_micro);
    }
    bt_model_chunk(m, 0);
    if (pipe) BT_TRY(bt_pipe_end(pipe, err));
    if (pipe) BT_TRY(bt_pipe_sum(pipe, mine, (size_t)e->n_micro, err));
    /* Each entry is non-zero on one rank only, so the sum is exact and the order is the same for any number of
     * ranks. */
    BT_TRY(bt_all_reduce_f64(e->dp, e->sums, all, BT_SUM, err));
    BT_TRY(bt_all_reduce_i64(e->dp, &tokens, 1, BT_SUM, err));
    for (size_t i = 0; i < all; i++) nats += e->sums[i];
    BT_TRY(add_confusion(e, m, pipe, &out->macro_f1, err));
    bt_score score = bt_model_take_score(m);
    if (pipe) BT_TRY(bt_pipe_sum(pipe, &score.n, sizeof score / sizeof score.n, err));
    BT_TRY(bt_all_reduce_f64(e->dp, &score.n, sizeof score / sizeof score.n, BT_SUM, err));
    if (e->pairs) tokens = (int64_t)score.n;
    out->nats = nats / (double)tokens;
    out->bits_per_byte = e->pairs || e->confusion ? NAN : out->nats / M_LN2 / e->bytes_per_token;
    out->tokens = tokens;
    out->accuracy = score.n > 0 ? score.right / score.n : NAN;
    out->margin = e->pairs ? score.margin / score.n : NAN;
    return BT_OK;
}

void bt_evaluator_watch(bt_evaluator *e, void (*progress)(void *ctx, double done), void *ctx) {
    e->progress = progress;
    e->ctx = ctx;
}

void bt_evaluator_visit(bt_evaluator *e, bt_evaluator_seen seen, void *ctx) {
    e->seen = seen;
    e->seen_ctx = ctx;
}

const double *bt_evaluator_confusion(const bt_evaluator *e) { return e->confusion; }

int64_t bt_evaluator_micros(const bt_evaluator *e) { return e->n_micro; }

const int32_t *bt_evaluator_tokens(const bt_evaluator *e, size_t *n) {
    *n = (size_t)e->T;
    return e->inputs;
}

double bt_evaluator_bytes_per_token(const bt_evaluator *e) { return e->bytes_per_token; }

size_t bt_evaluator_bytes(const bt_evaluator *e) {
    return e ? (e->positions ? 3 : 2) * sizeof(int32_t) * (size_t)e->n_micro * (size_t)e->B *
                   (size_t)e->T
             : 0;
}

const char *bt_evaluator_notes(const bt_evaluator *e) { return e ? bt_text_str(&e->notes) : ""; }

uint64_t bt_evaluator_hash(const bt_evaluator *e) { return e ? e->hash : 0; }

void bt_evaluator_close(bt_evaluator *e) {
    if (!e) return;
    free(e->inputs);
    free(e->targets);
    free(e->positions);
    free(e->sums);
    free(e->confusion);
    bt_text_release(&e->notes);
    free(e);
}
