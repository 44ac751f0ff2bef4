/* tp.h - tests of tensor-parallel layouts for several numbers of ranks: the records, and the gradients and ternary
 * statistics of step 0 tensor by tensor, equal those of one rank of the same model; the phases add up to the step. */
#ifndef BT_TESTS_MPI_TP_H
#define BT_TESTS_MPI_TP_H

#include "tests/mpi/layouts.h"

enum { TP_SHAPE = 20, TP_WORDS = 16, TP_SHAPES = 8 };

typedef struct tp_shape {
    const char *name, *words[TP_SHAPE];
} tp_shape;
typedef struct tp_layout {
    const char *name;
    int shape;
    const char *words[TP_WORDS];
} tp_layout;

static struct { fake_sink run; } tp_lonely[TP_SHAPES];

static inline bt_train_result tp_run(fake_sink *f, const tp_shape *shape, const tp_layout *l) {
    const char *words[4 + TP_SHAPE + TP_WORDS + 1] = {"--set", "train.stats_every=1000"};
    size_t n = 2;
    for (size_t i = 0; i < TP_SHAPE && shape->words[i]; i++) words[n++] = shape->words[i];
    for (size_t i = 0; l && i < TP_WORDS && l->words[i]; i++) words[n++] = l->words[i];
    return layout_run(f, words, NULL);
}

static inline void tp_same_tensors(void) {
    for (size_t i = 0; i < together.n_layers; i++) {
        for (int v = 0; v < BT_ML_COUNT; v++) {
            double a = alone.layers[i].v[v], b = together.layers[i].v[v];
            /* One rank sends no bytes. */
            if (v == BT_ML_RESIDUAL || v == BT_ML_GRAD_BITS) continue;
            assert_true(isnan(a) == isnan(b));
            if (!isnan(a))
                layout_near(a, b, v == BT_ML_UPDATE ? 1e-3 : 1e-5, together.layers[i].tensor,
                            (size_t)v);
        }
    }
}

/* A different order of additions may change a rounding to the ternary or int8 grid, and one changed code changes the
 * model. So the bound over all steps is that of fp32, and the bound of gradients that of one step. */
static inline void tp_compare(const tp_shape *shapes, const tp_layout *l) {
    alone = tp_lonely[l->shape].run;
    print_message("%s, %s\n", shapes[l->shape].name, l->name);
    bt_train_result r = tp_run(&together, &shapes[l->shape], l);
    layout_compare(1e-4);
    layout_conserves();
    const double *tp_group = layout_op("reduce_scatter", "tp", 0);
    /* Layouts named without "tp" have no tensor-parallel group. */
    bool one = strstr(l->name, "tp ") == NULL;
    /* Exchanges of the tensor-parallel group have rows of their own. */
    assert_true(((tp_group ? tp_group : layout_op("all_reduce", "tp", 0)) == NULL) == one);
    assert_true(r.params > 0);
    tp_same_tensors();
}

/* A checkpoint that `writer` wrote after five of eight steps resumes in every other layout with the losses of the
 * uninterrupted run. */
static inline void tp_part(fake_sink *f, const tp_shape *shapes, const tp_layout *l,
                           const char *dir, const char *stop_after, const char *resume_dir) {
    const char *words[64] = {"--steps", "8", "--lr", "1e-3", "--stop-after", stop_after};
    size_t n = 6;
    if (dir) {
        words[n++] = "--out";
        words[n++] = dir;
    }
    for (size_t i = 0; i < TP_SHAPE && shapes[l->shape].words[i]; i++)
        words[n++] = shapes[l->shape].words[i];
    for (size_t i = 0; i < TP_WORDS && l->words[i]; i++) words[n++] = l->words[i];
    layout_part(f, words, resume_dir);
}

static inline void tp_goes_on(const tp_shape *shapes, const tp_layout *writer,
                              const tp_layout *others, size_t n) {
    static fake_sink whole, first, rest;
    char dir[64];
    layout_folder(dir);
    tp_part(&whole, shapes, writer, NULL, "0", "");
    tp_part(&first, shapes, writer, dir, "5", "");
    for (size_t k = 0; k < n; k++) {
        tp_part(&rest, shapes, &others[k], NULL, "0", dir);
        assert_int_equal(rest.n_steps, 3);
        for (size_t i = 0; i < 3; i++)
            layout_near(whole.steps[5 + i].v[BT_MS_LOSS], rest.steps[i].v[BT_MS_LOSS], 1e-4,
                        others[k].name, 5 + i);
    }
    layout_remove(dir);
}

/* settings that change sizes and precision during the run */
#define TP_CHANGING \
    "--set", "train.seq_ramp=0.4", "--set", "train.dense_steps=6", "--set", "model.logit_cap=8", \
        "--set", "model.init_out=zero", "--set", "model.post_norm=true", "--set", \
        "model.embed_scale=true", "--set", "model.scale=row"

static inline void tp_run_reproducible(fake_sink *f, const char *const *more) {
    const char *words[48] = {0};
    static const char *const exact[] = {
        "--set", "train.reproducible=true", "--lr", "5e-3", "--set", "train.unit=2"};
    size_t n = 0;
    while (*more) words[n++] = *more++;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) words[n++] = exact[i];
    layout_run(f, words, NULL);
}

/* Compares the losses and gradient norms of one rank's run with those of `together`. */
static inline void tp_same_bits(const fake_sink *one, size_t layout) {
    assert_int_equal(together.n_steps, LAYOUT_STEPS);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const double *a = one->steps[i].v, *b = together.steps[i].v;
        if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
            fail_msg("layout %zu, step %zu: loss %.17g, norm %.17g alone; %.17g, %.17g together",
                     layout, i, a[BT_MS_LOSS], a[BT_MS_GRAD_NORM], b[BT_MS_LOSS],
                     b[BT_MS_GRAD_NORM]);
        assert_true((isnan(a[BT_MS_VAL_LOSS]) && isnan(b[BT_MS_VAL_LOSS])) ||
                    a[BT_MS_VAL_LOSS] == b[BT_MS_VAL_LOSS]);
    }
}

/* Trains alone, before MPI starts, and then begins the tests on all ranks. */
static inline int tp_begin(const tp_shape *shapes, size_t n, int ranks) {
    for (size_t i = 0; i < n; i++) tp_run(&tp_lonely[i].run, &shapes[i], NULL);
    return layout_begin(ranks);
}

static inline int tp_end(int failed) {
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}

#endif
