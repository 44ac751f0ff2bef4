/* layouts.h - runs the same global batch on one rank and on all ranks. Before MPI starts, rank 0 trains the whole batch
 * alone, as a world of one rank, while the other ranks wait in layout_begin, which sends them the results; then all
 * ranks take part in the distributed run. The records of rank 0's sink are sent to all ranks, so that every rank
 * compares the same values. */
#ifndef BT_TESTS_MPI_LAYOUTS_H
#define BT_TESTS_MPI_LAYOUTS_H

#include <math.h>

#include "engine/base/clock.h"
#include "engine/model/net/model.h"
#include "engine/observe/meter.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/shard/shard_map.h"
#include "tests/tiny_run.h"

/* Twelve steps include three records of statistics and one evaluation. A test of rare events defines LAYOUT_LONG before
 * it includes this header. */
#ifdef LAYOUT_LONG
#define LAYOUT_LENGTH "20"
enum { LAYOUT_STEPS = 20 };
#else
#define LAYOUT_LENGTH "12"
enum { LAYOUT_STEPS = 12 };
#endif

static fake_sink alone, together;

/* Replicas are compared at fixed steps. By default the measured time of a comparison determines the next step to
 * compare, so its bytes would belong to different steps in each run. */
#define LAYOUT_BASE \
    "--lr", "3e-4", "--steps", LAYOUT_LENGTH, "--set", "train.stats_every=4", "--set", \
        "data.val_frac=0.1", "--set", "train.eval_every=10", "--set", "train.eval_tokens=480", \
        "--check-weights", "10"

/* If a file defines LAYOUT_ALL_ALONE before this header, each process computes the results of a single rank itself. */
#ifdef LAYOUT_ALL_ALONE
enum { LAYOUT_ALONE = 0 };
#else
enum { LAYOUT_ALONE = 64 };
#endif
static struct {
    void *at;        /* buffer of rank 0, which is broadcast */
    float **weights; /* alternatively, memory that layout_run allocates */
    size_t bytes;
} layout_found[LAYOUT_ALONE + 1];
static size_t layout_n_found;

static inline bool layout_started(void) { return bt_comm_size(bt_comm_world()) > 1; }

/* Returns whether this process runs alone before MPI starts; mpirun has numbered the processes in the environment. */
static inline bool layout_mine(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return layout_started() || LAYOUT_ALONE == 0 || !rank || atoi(rank) == 0;
}

static inline void layout_find(void *at, float **weights, size_t bytes) {
    if (layout_started() || LAYOUT_ALONE == 0) return;
    assert_true(layout_n_found != LAYOUT_ALONE);
    layout_found[layout_n_found].at = at;
    layout_found[layout_n_found].weights = weights;
    layout_found[layout_n_found++].bytes = bytes;
}

/* Starts MPI and sends rank 0's results to every rank. Returns false if the number of ranks differs from `ranks` (0: at
 * least two). */
static inline bool layout_begin(int ranks) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return false;
    int size = bt_comm_size(bt_comm_world());
    if (ranks ? size != ranks : size < 2) return false;
    for (size_t i = 0; i < layout_n_found; i++) {
        size_t bytes = layout_found[i].bytes;
        if (bt_broadcast(bt_comm_world(), &bytes, sizeof bytes, 0, &err) != BT_OK) return false;
        if (layout_found[i].weights && !*layout_found[i].weights)
            *layout_found[i].weights = malloc(bytes);
        void *at = layout_found[i].weights ? *layout_found[i].weights : layout_found[i].at;
        if (!at || bt_broadcast(bt_comm_world(), at, bytes, 0, &err) != BT_OK) return false;
    }
    return true;
}

/* Trains and copies the records of rank 0 to f on every rank. Before layout_begin rank 0 trains alone. */
static inline bt_train_result layout_run(fake_sink *f, const char *const *words, float **weights) {
    enum { WORDS = 128 };
    const char *all[WORDS] = {LAYOUT_BASE};
    size_t n = 0;
    while (all[n]) n++;
    while (words && *words && n + 1 < WORDS) all[n++] = *words++;
    assert_true(!words || !*words);
    bt_run_cfg cfg;
    tiny_cfg(&cfg, all);
    memset(f, 0, sizeof *f);
    size_t bytes = 0;
    if (!layout_mine()) {
        layout_find(f, NULL, offsetof(fake_sink, last_checkpoint));
        if (weights) layout_find(NULL, weights, bytes);
        return (bt_train_result){0};
    }
    bt_trainer *t = tiny_create(&cfg, f, NULL, "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    if (weights) {
        bytes = bt_model_params(bt_trainer_model(t))->total * sizeof(float);
        *weights = realloc(*weights, bytes);
        memcpy(*weights, bt_model_weights(bt_trainer_model(t)), bytes);
    }
    bt_trainer_destroy(t);
    bt_threads_release();
    layout_find(f, NULL, offsetof(fake_sink, last_checkpoint));
    if (weights) layout_find(NULL, weights, bytes);
    assert_int_equal(
        bt_broadcast(bt_comm_world(), f, offsetof(fake_sink, last_checkpoint), 0, &err), BT_OK);
    /* Only rank 0 has the medians. */
    assert_int_equal(bt_broadcast(bt_comm_world(), &r, sizeof r, 0, &err), BT_OK);
    return r;
}

static inline void layout_near(double a, double b, double tolerance, const char *what,
                               size_t step) {
    if (!(fabs(a - b) <= tolerance * fabs(a)))
        fail_msg("step %zu: %s is %.9g alone, %.9g together", step, what, a, b);
}

static inline void layout_bin_sum(const fake_sink *f, const char *tensor, int layer,
                                  double sum[BT_MD_COUNT]) {
    for (int k = 0; k < BT_MD_COUNT; k++) sum[k] = 0;
    for (size_t i = 0; i < f->n_bins; i++) {
        if (f->bins[i].layer != layer || strcmp(f->bins[i].tensor, tensor) != 0) continue;
        for (int k = 0; k < BT_MD_COUNT; k++)
            sum[k] += isnan(f->bins[i].v[k]) ? 0 : f->bins[i].v[k];
    }
}

/* Checks that every element of every tensor was counted by exactly one rank. */
static inline void layout_bins_conserve(void) {
    assert_true(alone.n_bin_calls > 0);
    assert_int_equal(alone.n_bin_calls, together.n_bin_calls);
    for (size_t i = 0; i < alone.n_layers; i++) {
        double a[BT_MD_COUNT], b[BT_MD_COUNT];
        layout_bin_sum(&alone, alone.layers[i].tensor, alone.layers[i].layer, a);
        layout_bin_sum(&together, alone.layers[i].tensor, alone.layers[i].layer, b);
        assert_true(a[BT_MD_GRADIENTS] > 0);
        for (int k = 0; k < BT_MD_COUNT; k++)
            if (a[k] != b[k])
                fail_msg("%s: %g elements alone, %g together", alone.layers[i].tensor, a[k], b[k]);
    }
}

static inline void layout_same_bins(const fake_sink *a, const fake_sink *b) {
    assert_true(a->n_bin_calls > 0 && a->n_bins > 0);
    assert_int_equal(a->n_bin_calls, b->n_bin_calls);
    assert_int_equal(a->n_bins, b->n_bins);
    for (size_t i = 0; i < a->n_bins; i++) {
        if (strcmp(a->bins[i].tensor, b->bins[i].tensor) == 0 &&
            a->bins[i].layer == b->bins[i].layer && a->bins[i].bin == b->bins[i].bin &&
            memcmp(a->bins[i].v, b->bins[i].v, sizeof a->bins[i].v) == 0)
            continue;
        fail_msg("layer %d %s, bin %d: %g and %g alone, %g and %g together", a->bins[i].layer,
                 a->bins[i].tensor, a->bins[i].bin, a->bins[i].v[0], a->bins[i].v[1],
                 b->bins[i].v[0], b->bins[i].v[1]);
    }
}

/* Compares the events and steps of the distributed run with those of one rank. */
static inline void layout_compare(double tolerance) {
    int size = bt_comm_size(bt_comm_world());
    assert_int_equal(alone.n_steps, LAYOUT_STEPS);
    assert_int_equal(together.n_steps, LAYOUT_STEPS);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const fake_step *a = &alone.steps[i], *b = &together.steps[i];
        assert_int_equal(b->step, i);
        assert_int_equal(b->n_ranks, size);
        layout_near(a->v[BT_MS_LOSS], b->v[BT_MS_LOSS], tolerance, "loss", i);
        /* The norm depends on the order of additions, so its tolerance is larger. */
        layout_near(a->v[BT_MS_GRAD_NORM], b->v[BT_MS_GRAD_NORM], 100 * tolerance, "grad_norm", i);
        assert_true(a->v[BT_MS_TOKENS] == b->v[BT_MS_TOKENS]);
        assert_true(a->v[BT_MS_LR] == b->v[BT_MS_LR]);
        assert_true(isnan(a->v[BT_MS_VAL_LOSS]) == isnan(b->v[BT_MS_VAL_LOSS]));
        if (!isnan(a->v[BT_MS_VAL_LOSS]))
            layout_near(a->v[BT_MS_VAL_LOSS], b->v[BT_MS_VAL_LOSS], tolerance, "val_loss", i);
    }
    layout_bins_conserve();
    assert_int_equal(alone.n_layer_calls, together.n_layer_calls);
    assert_int_equal(alone.n_layers, together.n_layers);
    for (size_t i = 0; i < alone.n_layers; i++) {
        double zeros = alone.layers[i].v[BT_ML_ZERO] - together.layers[i].v[BT_ML_ZERO],
               ones = alone.layers[i].v[BT_ML_POS] - together.layers[i].v[BT_ML_POS];
        if (fabs(zeros) > 0.01 || fabs(ones) > 0.01)
            fail_msg("%s: shares of codes 0 and 1 are %g and %g other together",
                     alone.layers[i].tensor, zeros, ones);
    }
    for (size_t i = 0; i < alone.n_layers; i++) {
        const double a = alone.layers[i].v[BT_ML_UPDATE], b = together.layers[i].v[BT_ML_UPDATE];
        /* A bias that is still zero has no relative update. */
        if (!isnan(a) || !isnan(b))
            layout_near(a, b, 0.02, alone.layers[i].tensor, LAYOUT_STEPS - 4);
    }
}

static inline const double *layout_op(const char *op, const char *axis, int rank) {
    for (size_t i = 0; i < together.n_comm; i++)
        if (together.comm[i].rank == rank && strcmp(together.comm[i].op, op) == 0 &&
            strcmp(together.comm[i].axis, axis) == 0)
            return together.comm[i].v;
    return NULL;
}

/* The exchanges recorded between two samples, by kind, equal the sum of all ranks' counters in these steps. */
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
        for (size_t i = NEWEST - EVERY + 1; i <= NEWEST; i++)
            by_step += together.steps[i].r[r][BT_MR_BYTES_WIRE];
        if (!(fabs(by_kind - by_step) <= 0.02 * by_step + 4096))
            fail_msg("rank %d: %.0f bytes by kind of exchange, %.0f by step", r, by_kind, by_step);
    }
}

/* Checks the bytes for each pair of sender and receiver in the second sample, which covers the steps since the first.
 * bytes: per step over all ranks, if only gradients are sent between ranks; even: buckets are small, so every pair has
 * an equal share. */
static inline void layout_pairs(double bytes, bool even) {
    enum { EVERY = 4 };
    int n = bt_comm_size(bt_comm_world());
    double sum = 0;
    assert_int_equal(together.n_pair_calls, 1);
    if (even) assert_int_equal(together.n_pairs, n * (n - 1));
    for (size_t i = 0; i < together.n_pairs; i++) {
        const double *v = together.pairs[i].v;
        double mine = v[BT_MP_BYTES] / EVERY;
        assert_true(together.pairs[i].rank != together.pairs[i].peer &&
                    together.pairs[i].step == EVERY && v[BT_MP_STEPS] == EVERY);
        assert_true(v[BT_MP_TIMED] > 0 && v[BT_MP_TIMED] <= v[BT_MP_MESSAGES] &&
                    v[BT_MP_FLIGHT] > 0);
        if (even && !(fabs(mine * n * (n - 1) - bytes) <= 0.05 * bytes))
            fail_msg("%g bytes a step from rank %d to %d of %g", mine, together.pairs[i].peer,
                     together.pairs[i].rank, bytes);
        sum += mine;
    }
    if (!(fabs(sum - bytes) <= 0.01 * bytes))
        fail_msg("%g bytes a step between all ranks, not %g", sum, bytes);
}

/* The norm of every tensor's gradient in one step equals that of one rank. */
static inline void layout_same_gradients(const fake_sink *lonely) {
    assert_int_equal(lonely->n_layers, together.n_layers);
    for (size_t i = 0; i < together.n_layers; i++) {
        layout_near(lonely->layers[i].v[BT_ML_GRAD_NORM], together.layers[i].v[BT_ML_GRAD_NORM],
                    1e-5, together.layers[i].tensor, 0);
    }
}

/* A model of 0.6 M parameters, whose bytes for notes and norms are negligible. */

#define LAYOUT_WIDE \
    "--set", "model.d_model=128", "--set", "model.d_ff=384", "--set", "train.stats_every=0", \
        "--set", "data.val_frac=0", "--set", "train.bucket_bytes=65536"

static inline void layout_wide_cfg(bt_run_cfg *cfg, const char *const *words) {
    const char *all[64] = {LAYOUT_WIDE, "--steps", "1", "--micro-batch", "2"};
    size_t n = 0;
    while (all[n]) n++;
    while (*words) all[n++] = *words++;
    tiny_cfg(cfg, all);
}

/* Returns the trainer after one step, with gradients as they were before clipping. */
static inline bt_trainer *layout_one_step(bt_run_cfg *cfg, const char *const *words) {
    layout_wide_cfg(cfg, words);
    bt_trainer *t = tiny_create(cfg, NULL, NULL, "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    return t;
}

typedef struct layout_grads {
    bt_params params;
    float *x;
} layout_grads;

static inline layout_grads layout_lonely_grads(const char *const *words) {
    bt_run_cfg cfg;
    bt_model_cfg m;
    layout_grads g;
    bt_trainer *t = layout_mine() ? layout_one_step(&cfg, words) : NULL;
    if (!t) layout_wide_cfg(&cfg, words);
    bt_run_cfg_model(&cfg, &m);
    assert_int_equal(bt_params_init(&g.params, &m, (bt_model_slice){.tp_size = 1}, NULL), BT_OK);
    g.x = malloc(g.params.total * sizeof *g.x);
    assert_non_null(g.x);
    layout_find(g.x, NULL, g.params.total * sizeof *g.x);
    if (!t) return g;
    memcpy(g.x, bt_model_grads(bt_trainer_model(t)), g.params.total * sizeof *g.x);
    bt_trainer_destroy(t);
    bt_threads_release();
    return g;
}

static inline void layout_release_grads(layout_grads *g) {
    bt_params_release(&g->params);
    free(g->x);
}

static inline double layout_rms(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

/* Compares this rank's parts of every tensor's gradient with those of one rank, element by element, and checks that
 * each replica holds every element. tolerance: relative to the rms of the tensor and to the element. */
static inline void layout_check_grads(const char *name, const char *const *words,
                                      const layout_grads *lonely, double tolerance) {
    bt_run_cfg cfg;
    bt_mesh_shape mesh;
    bt_shards shards;
    bt_err err = BT_ERR_INIT;
    bt_trainer *t = layout_one_step(&cfg, words);
    const bt_params *p = bt_model_params(bt_trainer_model(t));
    const float *grads = bt_model_grads(bt_trainer_model(t));
    bt_run_cfg_mesh(&cfg, &mesh);
    bt_mesh_coord me = bt_mesh_coord_of(&mesh, bt_comm_rank(bt_comm_world()));
    bool sharded = cfg.mesh.zero > 0 && mesh.dp_shard > 1;
    bt_shards_init(&shards, p->total, (size_t)cfg.train.bucket_bytes, mesh.dp_replicate,
                   sharded ? mesh.dp_shard : 1);
    double compared = 0;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i], *whole = bt_params_named(&lonely->params, x->name);
        const float *of = lonely->x + whole->offset;
        double rms = layout_rms(of, whole->count);
        for (size_t s = 0; s < shards.n_stripes; s++) {
            bt_range piece = bt_shards_piece(&shards, s, sharded ? me.dp_shard : 0);
            size_t from = x->offset > piece.begin ? x->offset : piece.begin,
                   to = x->offset + x->count < piece.end ? x->offset + x->count : piece.end;
            for (size_t e = from; e < to; e++) {
                double a = (double)of[bt_tensor_place(x, e - x->offset)], b = (double)grads[e];
                if (!(fabs(a - b) <= tolerance * (rms + fabs(a))))
                    fail_msg("%s: %s[%zu] is %.9g alone, %.9g together (rms %.3g)", name, x->name,
                             e - x->offset, a, b, rms);
                compared += e - x->offset >= x->first_counted;
            }
        }
    }
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(bt_all_reduce_f64(bt_comm_world(), &compared, 1, BT_SUM, &err), BT_OK);
    assert_true(compared ==
                (double)lonely->params.count * mesh.dp_replicate * (sharded ? 1 : mesh.dp_shard));
}

/* Returns how often ZeRO-3 sends every ternary weight in a step: once for each pass through a layer except the first
 * pass of a turn, or once per step with parallel.gather=step. */
static inline double layout_gathers(bool once, double micro_batches, double layers) {
    return once ? 1 : (2 * micro_batches * (layers - 1) + 1) / layers;
}

/* Returns the bytes that a rank sends per step (mean over ranks) with this many sequences in a micro-batch. r and
 * linear receive results of the run, unless NULL. */
static inline double layout_bytes(const char *const *words, const char *micro_batch,
                                  double micro_batches, bt_train_result *r, double *linear) {
    char unit[32];
    snprintf(unit, sizeof unit, "train.unit=%s", micro_batch);
    const char *all[64] = {LAYOUT_WIDE, "--steps", "2", "--micro-batch",
                           micro_batch, "--set",   unit};
    size_t n = 0;
    double got = 0;
    while (all[n]) n++;
    while (*words) all[n++] = *words++;
    *r = layout_run(&together, all, NULL);
    int ranks = together.steps[1].n_ranks;
    for (int q = 0; q < ranks; q++) {
        assert_true(together.steps[1].r[q][BT_MR_MICRO_BATCHES] == micro_batches);
        got += together.steps[1].r[q][BT_MR_BYTES_WIRE] / ranks;
    }
    *linear = atof(fake_fact(&together, "params.linear"));
    return got;
}

/* Returns the bytes of the last layout_bytes as if no codec were used. */
static inline double layout_logical_bytes(void) {
    const fake_step *s = &together.steps[1];
    double got = 0;
    for (int q = 0; q < s->n_ranks; q++) got += s->r[q][BT_MR_BYTES_LOGICAL] / s->n_ranks;
    return got;
}

/* Resumes from the newest checkpoint in a folder, or begins a run; all ranks receive rank 0's records. */
static inline void layout_part(fake_sink *f, const char *const *words, const char *resume_dir) {
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    tiny_cfg(&cfg, words);
    (void)tiny_run(&cfg, f, NULL, resume_dir);
    assert_int_equal(
        bt_broadcast(bt_comm_world(), f, offsetof(fake_sink, last_checkpoint), 0, &err), BT_OK);
}

/* Creates a folder whose path all ranks receive; rank 0 removes it at the end of the test. */
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

/* Checks in every record of every rank that the phases add up to the step. */
static inline void layout_conserves(void) {
    for (size_t i = 0; i < together.n_steps; i++) {
        for (int r = 0; r < together.steps[i].n_ranks; r++) {
            const double *v = together.steps[i].r[r];
            assert_true(fabs(fake_phases_ms(v) - v[BT_MR_STEP_TIME]) < 1e-6);
            assert_true(v[BT_MR_OTHER] > -0.001);
            assert_true(v[BT_MR_COMM_EXPOSED] >= 0 && v[BT_MR_WAIT] >= 0 && v[BT_MR_COMM_BUSY] > 0);
            assert_true(v[BT_MR_STEP_TIME] <= together.steps[i].v[BT_MS_STEP_TIME]);
        }
        assert_true(together.steps[i].v[BT_MS_COMM_OVERHEAD] >= 0 &&
                    together.steps[i].v[BT_MS_COMM_OVERHEAD] <= 1);
        assert_true(together.steps[i].v[BT_MS_OVERLAP] >= 0 &&
                    together.steps[i].v[BT_MS_OVERLAP] <= 1);
    }
}

#endif
