/* tp.h - tests of tensor-parallel layouts, for several numbers of ranks. */
#ifndef BT_TESTS_MPI_TP_H
#define BT_TESTS_MPI_TP_H

#include "tests/mpi/layouts.h"

typedef struct tp_layout { const char *name, *words[20]; } tp_layout;

static const tp_layout *tp_layouts;
static size_t n_tp_layouts;
static fake_sink alone_first;

static void same_story_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < n_tp_layouts; k++) {
        layout_run(&together, tp_layouts[k].words, NULL);
        layout_compare(1e-4);
        layout_conserves();
    }
}

static void gradients_equal_tensor_by_tensor(void **state) {
    (void)state;
    for (size_t k = 0; k < n_tp_layouts; k++) {
        const char *words[24] = {"--steps", "1"};
        for (size_t i = 0; i < 20 && tp_layouts[k].words[i]; i++) words[2 + i] = tp_layouts[k].words[i];
        layout_run(&together, words, NULL);
        assert_int_equal(alone_first.n_layers, together.n_layers);
        for (size_t i = 0; i < together.n_layers; i++) {
            for (int v = 0; v < BT_ML_COUNT; v++) {
                double a = alone_first.layers[i].v[v], b = together.layers[i].v[v];
                assert_true(isnan(a) == isnan(b));
                if (!isnan(a)) layout_near(a, b, 1e-5, together.layers[i].tensor, (size_t)v);
            }
        }
    }
}

#define TP_MAIN(ranks, table)                                                                                  \
    int main(void) {                                                                                           \
        bt_err err = BT_ERR_INIT;                                                                              \
        static const char *const one_step[] = {"--steps", "1", NULL};                                          \
        tp_layouts = table;                                                                                    \
        n_tp_layouts = sizeof table / sizeof table[0];                                                         \
        layout_run(&alone, NULL, NULL);                                                                        \
        layout_run(&alone_first, one_step, NULL);                                                              \
        if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != (ranks)) return 1;                 \
        const struct CMUnitTest tests[] = {                                                                    \
            cmocka_unit_test(same_story_as_one_rank),                                                          \
            cmocka_unit_test(gradients_equal_tensor_by_tensor),                                                \
        };                                                                                                     \
        int failed = cmocka_run_group_tests(tests, NULL, NULL);                                                \
        if (failed) bt_comm_abort(1);                                                                          \
        bt_comm_finalize();                                                                                    \
        return failed;                                                                                         \
    }

#endif
