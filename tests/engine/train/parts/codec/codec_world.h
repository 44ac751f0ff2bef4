/* codec_world.h - a trainer without MPI and model for tests of the codec choice: collectives, link speed and
 * optimizer are defined here. Include it in one test program only. */
#ifndef BT_TESTS_CODEC_WORLD_H
#define BT_TESTS_CODEC_WORLD_H

#include <math.h>
#include <stdio.h>

#include "engine/parallel/mpi/link.h"
#include "tests/engine/train/said.h"

#include "engine/train/parts/codec/codec_part.h"
#include "engine/train/trainer_impl.h"

enum { TENSORS = 3, STAGE = 2 }; /* number of tensors of all stages, and of this rank's stage */

static bt_trainer t;
static bt_codec_choice choice;
static bt_residual residual;
static bt_payload_tensor payloads[STAGE];
static bt_tensor own[STAGE], all[TENSORS];

/* ---- collectives and optimizer ------------------------------------------------------------------ */

/* values of another rank, which a maximum reduction takes where they are larger */
static double others[3];
static double owed_by[3]; /* squared norm of this rank's residual, per tensor of all stages */
static double squares[3]; /* squared norms of the gradients */
static double unscaled;   /* loss scale passed to the optimizer */
static bt_link link_found;
static bt_link_work link_work;
static int links, reducers, host_of[8], sums;
static bt_text raised; /* second moments raised: "tensor share " */

int bt_comm_rank(const bt_comm *c) {
    (void)c;
    return 1;
}

bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *err) {
    (void)c, (void)err;
    for (size_t i = 0; i < n && op == BT_MAX; i++)
        if (n <= 3 && others[i] > x[i]) x[i] = others[i];
    /* All four ranks have the same values. */
    for (size_t i = 0; i < n && op == BT_SUM; i++) x[i] *= 4;
    sums += op == BT_SUM;
    return BT_OK;
}

void bt_mesh_dp_hosts(const bt_mesh_shape *s, int rank, int *hosts) {
    assert_true(s == &t.setup.shape && rank == 1);
    memcpy(hosts, host_of, (size_t)t.setup.dp * sizeof *hosts);
}

bt_code bt_link_measure_long(bt_link *out, bt_comm *c, const bt_link_work *work, bt_err *err) {
    (void)c, (void)err;
    links++;
    link_work = *work;
    *out = link_found;
    return BT_OK;
}

double bt_link_s(const bt_link *l, double rounds, double bytes) {
    return l->bytes_per_s > 0 ? rounds * l->latency_s + bytes / l->bytes_per_s : NAN;
}

bt_payload_form bt_rank_setup_form(const bt_rank_setup *s) {
    return (bt_payload_form){.codec = bt_codec_at((bt_codec_id)s->cfg->parallel.codec)};
}

bt_code bt_update_tensor_squares(bt_update *u, double unscale, const double **out, bt_err *err) {
    (void)err;
    assert_ptr_equal(u, &t.update);
    unscaled = unscale;
    *out = squares;
    return BT_OK;
}

void bt_update_raise_second_moments(bt_update *u, size_t k, double share) {
    assert_ptr_equal(u, &t.update);
    bt_text_printf(&raised, "%zu %g ", k, share);
}

void bt_residual_squares(const bt_residual *r, double *out) {
    assert_ptr_equal(r, &residual);
    for (int i = 0; i < TENSORS; i++) out[i] += owed_by[i];
}

/* Runs the hook that the part registers for the end of a step. */
static inline bt_code step(const bt_step_outcome *o, bt_err *err) {
    BT_TRY(bt_codec_choice_step(&choice, &t, &residual, o, err));
    if (!bt_codec_choice_stale(&choice, &t)) return BT_OK;
    reducers++;
    bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
    return BT_OK;
}

/* ---- the trainer --------------------------------------------------------------------------------- */

#define PLAIN_BITS 32.0
#define NAME(id) bt_codec_at(BT_CODEC_##id)->name

static inline void begin(bt_codec_id codec, const char *budget) {
    static const char *const names[] = {"embed", "layers.0.up", "layers.1.up"};
    bt_err err = BT_ERR_INIT;
    memset(&t, 0, sizeof t);
    memset(payloads, 0, sizeof payloads);
    memset(others, 0, sizeof others);
    memset(owed_by, 0, sizeof owed_by);
    memset(host_of, 0, sizeof host_of);
    for (int i = 0; i < TENSORS; i++) {
        all[i].number = (size_t)i;
        snprintf(all[i].name, sizeof all[i].name, "%s", names[i]);
        squares[i] = 1;
    }
    /* This stage holds the tensors in another order and lacks the first one. */
    own[0] = all[2], own[1] = all[1];
    links = reducers = sums = 0;
    t.cfg.parallel.codec = codec;
    t.cfg.parallel.codec_warmup = 3;
    t.cfg.comm.residual_cap = 4;
    t.cfg.train.bucket_bytes = 1 << 20;
    snprintf(t.cfg.comm.budget, sizeof t.cfg.comm.budget, "%s", budget);
    t.setup.cfg = &t.cfg;
    t.setup.dp = 4;
    t.setup.replicas = 1;
    t.setup.params = (bt_params){.tensors = own, .n = STAGE, .total = 1 << 22};
    t.setup.payload_tensors = payloads;
    t.update.table = (bt_params){.tensors = all, .n = TENSORS};
    t.at.step = 1;
    bt_text_clear(&heard);
    bt_text_clear(&raised);
    assert_int_equal(bt_codec_choice_create(&choice, &t, &err), BT_OK);
    bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
}

static inline void end(void) { bt_codec_choice_release(&choice); }

#endif
