/* layouts.h - the same global batch on one rank and on all of them. Each process first runs the whole batch alone (before
 * MPI starts it is a world of one), then takes part in the distributed run. What rank 0's sink heard is given to all ranks,
 * so that all compare and fail alike.
 * The learning rate is small because ternary training is chaotic: one code that rounds the other way after a sum in another
 * order is a different model, and at 3e-3 the curves part by 1e-3 within ten steps. */
#ifndef BT_TESTS_MPI_LAYOUTS_H
#define BT_TESTS_MPI_LAYOUTS_H

#include <math.h>

#include "engine/base/clock.h"
#include "engine/model/model.h"
#include "engine/parallel/comm.h"
#include "engine/train/meter.h"
#include "tests/tiny_run.h"

enum { LAYOUT_STEPS = 20 };

static fake_sink alone, together;

#define LAYOUT_BASE "--lr", "3e-4", "--steps", "20", "--set", "train.stats_every=4", "--set", "data.val_frac=0.1", "--set", "train.eval_every=6", "--set", "train.eval_tokens=480"

/* runs and leaves what rank 0 heard in f, on every rank */
static inline bt_train_result layout_run(fake_sink *f, const char *const *words, float **weights) {
    const char *all[64] = {LAYOUT_BASE};
    size_t n = 0;
    while (all[n]) n++;
    while (words && *words) all[n++] = *words++;
    bt_run_cfg cfg;
    tiny_cfg(&cfg, all);
    memset(f, 0, sizeof *f);
    bt_trainer *t = tiny_create(&cfg, f, NULL, "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    if (weights) {
        size_t bytes = bt_model_params(bt_trainer_model(t))->total * sizeof(float);
        *weights = realloc(*weights, bytes);
        memcpy(*weights, bt_model_weights(bt_trainer_model(t)), bytes);
    }
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(bt_broadcast(bt_comm_world(), f, offsetof(fake_sink, last_checkpoint), 0, &err), BT_OK);
    assert_int_equal(bt_broadcast(bt_comm_world(), &r, sizeof r, 0, &err), BT_OK);      /* medians are known to rank 0 */
    return r;
}

static inline void layout_near(double a, double b, double tolerance, const char *what, size_t step) {
    if (!(fabs(a - b) <= tolerance * fabs(a))) fail_msg("step %zu: %s is %.9g alone, %.9g together", step, what, a, b);
}

/* the distributed run tells the same story as the lonely one */
static inline void layout_compare(double tolerance) {
    int size = bt_comm_size(bt_comm_world());
    assert_int_equal(alone.n_steps, LAYOUT_STEPS);
    assert_int_equal(together.n_steps, LAYOUT_STEPS);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const fake_step *a = &alone.steps[i], *b = &together.steps[i];
        assert_int_equal(b->step, i);
        assert_int_equal(b->n_ranks, size);
        layout_near(a->v[BT_MS_LOSS], b->v[BT_MS_LOSS], tolerance, "loss", i);
        layout_near(a->v[BT_MS_GRAD_NORM], b->v[BT_MS_GRAD_NORM], 100 * tolerance, "grad_norm", i);      /* a sensitive thing */
        assert_true(a->v[BT_MS_TOKENS] == b->v[BT_MS_TOKENS]);
        assert_true(a->v[BT_MS_LR] == b->v[BT_MS_LR]);
        assert_true(isnan(a->v[BT_MS_VAL_LOSS]) == isnan(b->v[BT_MS_VAL_LOSS]));
        if (!isnan(a->v[BT_MS_VAL_LOSS])) layout_near(a->v[BT_MS_VAL_LOSS], b->v[BT_MS_VAL_LOSS], tolerance, "val_loss", i);
    }
    assert_int_equal(alone.n_layer_calls, together.n_layer_calls);
    assert_int_equal(alone.n_layers, together.n_layers);
}

static inline const double *layout_op(const char *op, const char *axis, int rank) {
    for (size_t i = 0; i < together.n_comm; i++)
        if (together.comm[i].rank == rank && strcmp(together.comm[i].op, op) == 0 && strcmp(together.comm[i].axis, axis) == 0) return together.comm[i].v;
    return NULL;
}

/* the exchanges by kind since the sample before the last add up to what the meter of each rank counted in these steps */
static inline void layout_traffic(void) {
    enum { EVERY = 4, NEWEST = (LAYOUT_STEPS - 1) / EVERY * EVERY };
    assert_int_equal(together.n_comm_calls, NEWEST / EVERY + 1);
    for (int r = 0; r < bt_comm_size(bt_comm_world()); r++) {
        double by_kind = 0, by_step = 0;
        for (size_t i = 0; i < together.n_comm; i++) {
            const double *v = together.comm[i].v;
            if (together.comm[i].rank != r) continue;
            assert_true(v[BT_MC_STEPS] == EVERY && together.comm[i].step == NEWEST);
            assert_true(v[BT_MC_EXPOSED] >= 0 && v[BT_MC_WAIT] >= 0 && v[BT_MC_BUSY] >= 0);
            by_kind += v[BT_MC_BYTES_WIRE];
        }
        for (size_t i = NEWEST - EVERY + 1; i <= NEWEST; i++) by_step += together.steps[i].r[r][BT_MR_BYTES_WIRE];
        if (!(fabs(by_kind - by_step) <= 0.02 * by_step + 4096)) fail_msg("rank %d: %.0f bytes by kind of exchange, %.0f by step", r, by_kind, by_step);
    }
}

/* the norm of every tensor's gradient, of one step, as one rank has it */
static inline void layout_same_gradients(const fake_sink *lonely) {
    assert_int_equal(lonely->n_layers, together.n_layers);
    for (size_t i = 0; i < together.n_layers; i++) {
        layout_near(lonely->layers[i].v[BT_ML_GRAD_NORM], together.layers[i].v[BT_ML_GRAD_NORM], 1e-5, together.layers[i].tensor, 0);
    }
}

/* a folder that all ranks know, made and removed by rank 0 when all have come */
static inline void layout_folder(char dir[64]) {
    bt_err err = BT_ERR_INIT;
    snprintf(dir, 64, "/tmp/bt-layouts-XXXXXX");
    if (bt_comm_rank(bt_comm_world()) == 0) assert_non_null(mkdtemp(dir));
    assert_int_equal(bt_broadcast(bt_comm_world(), dir, 64, 0, &err), BT_OK);
}

static inline void layout_remove(const char *dir) {
    bt_err err = BT_ERR_INIT;
    char command[96];
    assert_int_equal(bt_barrier(bt_comm_world(), &err), BT_OK);
    if (bt_comm_rank(bt_comm_world()) != 0) return;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* on every record of every rank the phases add up, and the parts of it are sane */
static inline void layout_conserves(void) {
    for (size_t i = 0; i < together.n_steps; i++) {
        for (int r = 0; r < together.steps[i].n_ranks; r++) {
            const double *v = together.steps[i].r[r];
            assert_true(fabs(bt_meter_phases_ms(v) - v[BT_MR_STEP_TIME]) < 1e-6);
            assert_true(v[BT_MR_OTHER] > -0.001);
            assert_true(v[BT_MR_COMM_EXPOSED] >= 0 && v[BT_MR_WAIT] >= 0 && v[BT_MR_COMM_BUSY] > 0);
            assert_true(v[BT_MR_STEP_TIME] <= together.steps[i].v[BT_MS_STEP_TIME]);
        }
        assert_true(together.steps[i].v[BT_MS_COMM_OVERHEAD] >= 0 && together.steps[i].v[BT_MS_COMM_OVERHEAD] <= 1);
        assert_true(together.steps[i].v[BT_MS_OVERLAP] >= 0 && together.steps[i].v[BT_MS_OVERLAP] <= 1);
    }
}

#endif
