/* interop_fixture.h - where the small models of other programs lie (made by make_interop_golden.py),
 * temporary folders, and what the models should say. */
#ifndef BT_TESTS_INTEROP_FIXTURE_H
#define BT_TESTS_INTEROP_FIXTURE_H

#include <jansson.h>
#include <math.h>

#include "engine/base/threads.h"
#include "engine/interop/convert.h"
#include "engine/kernels/table/kernels.h"
#include "tests/engine/data/data_fixture.h"

/* a file of tests/engine/interop/golden; one of eight rotating buffers */
static inline const char *golden_path(const char *name) {
    static char ring[8][512];
    static unsigned turn;
    const char *src = getenv("BT_SRC");
    char *p = ring[turn++ % 8];
    snprintf(p, sizeof ring[0], "%s/tests/engine/interop/golden/%s", src ? src : ".", name);
    return p;
}

static inline int interop_setup(void **state) {
    bt_err err;
    if (bt_kernels_select("auto", &err) != BT_OK || bt_threads_init(2, &err) != BT_OK) return -1;
    return fixture_setup(state);
}

static inline int interop_teardown(void **state) {
    bt_threads_release();
    return fixture_teardown(state);
}

/* what transformers says (fp32): per prompt the ids and the logits of the last position */
typedef struct expected {
    size_t n;
    struct {
        size_t n_ids;
        int32_t ids[64];
        size_t V;
        double *logits, *no_act_quant;
    } prompts[4];
} expected;

static inline double *reals_of(json_t *list, size_t *n) {
    double *x;
    *n = json_array_size(list);
    if (!*n) return NULL;
    x = malloc(*n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < *n; i++) x[i] = json_number_value(json_array_get(list, i));
    return x;
}

static inline void expected_read(expected *e, const char *model) {
    char name[128];
    json_error_t why;
    snprintf(name, sizeof name, "%s/expected.json", model);
    json_t *root = json_load_file(golden_path(name), 0, &why), *p;
    size_t k, same;
    assert_non_null(root);
    *e = (expected){.n = json_array_size(json_object_get(root, "prompts"))};
    assert_in_range(e->n, 1, 4);
    json_array_foreach(json_object_get(root, "prompts"), k, p) {
        json_t *ids = json_object_get(p, "ids");
        e->prompts[k].n_ids = json_array_size(ids);
        assert_in_range(e->prompts[k].n_ids, 1, 64);
        for (size_t i = 0; i < e->prompts[k].n_ids; i++)
            e->prompts[k].ids[i] = (int32_t)json_integer_value(json_array_get(ids, i));
        e->prompts[k].logits = reals_of(json_object_get(p, "logits"), &e->prompts[k].V);
        e->prompts[k].no_act_quant = reals_of(json_object_get(p, "no_act_quant"), &same);
        assert_true(same == 0 || same == e->prompts[k].V);
    }
    json_decref(root);
}

static inline void expected_release(expected *e) {
    for (size_t k = 0; k < e->n; k++) {
        free(e->prompts[k].logits);
        free(e->prompts[k].no_act_quant);
    }
}

/* largest difference of log probabilities to what is expected; the median over the prompts where
 * activations are rounded to int8: a tie that falls the other way in fp32 costs up to 0.1 */
static inline double worst_difference(bt_model_file *s, const expected *e, bool median) {
    double worst[4] = {0};
    for (size_t k = 0; k < e->n; k++) {
        const size_t V = e->prompts[k].V;
        float *got = malloc(V * sizeof *got);
        double sum = 0, most = -INFINITY;
        bt_err err = BT_ERR_INIT;
        assert_non_null(got);
        assert_int_equal((size_t)s->cfg.V, V);
        if (bt_model_file_log_probs(s, e->prompts[k].ids, e->prompts[k].n_ids, got, &err) != BT_OK)
            fail_msg("%s", err.msg);
        for (size_t i = 0; i < V; i++) most = fmax(most, e->prompts[k].logits[i]);
        for (size_t i = 0; i < V; i++) sum += exp(e->prompts[k].logits[i] - most);
        for (size_t i = 0; i < V; i++)
            worst[k] = fmax(worst[k],
                            fabs((double)got[i] - (e->prompts[k].logits[i] - most - log(sum))));
        free(got);
    }
    for (size_t i = 0; i < e->n; i++) /* sort */
        for (size_t k = i + 1; k < e->n; k++)
            if (worst[k] < worst[i]) {
                const double x = worst[i];
                worst[i] = worst[k];
                worst[k] = x;
            }
    return median ? worst[(e->n - 1) / 2] : worst[e->n - 1];
}

static inline bt_model_file *open_golden(const char *name) {
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_file_open(&s, golden_path(name), &err) != BT_OK) fail_msg("%s", err.msg);
    return s;
}

#endif
