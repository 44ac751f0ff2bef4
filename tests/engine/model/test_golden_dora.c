// ctest: timeout=120 labels=golden optimised
/* Twenty losses of adapters with magnitudes (DoRA) beside a dense and a ternary base, all gradients of the first step
 * and all values after the last one equal PyTorch's in float64, with the same initial weights (golden_dora.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/golden.h"

/* The values are those of make_golden.py. */
enum { T = 64, V = 48, RANK = 4, ROWS = 4, BATCHES = 2, STEPS = 20, SEED = 3 };
#define SCALE 2.0
#define RATE 2e-3f

typedef struct kind {
    const char *name;
    bt_linear_kind linear;
    /* largest relative differences; a code of a ternary layer's input may be rounded otherwise in float32 */
    double loss, gradient, value;
} kind;
static const kind kinds[] = {{"dense", BT_LIN_DENSE, 1e-6, 2e-5, 1e-4},
                             {"bitnet158", BT_LIN_BITNET158, 1e-3, 2e-2, 1e-2}};

static bt_model *model_of(const kind *k, bool lora) {
    bt_model_setup s = {.cfg = {.L = 2,
                                .C = 32,
                                .H = 4,
                                .KV = 2,
                                .D = 8,
                                .F = 48,
                                .T = T,
                                .V = V,
                                .norm = BT_NORM_SUBLN,
                                .act = BT_ACT_RELU2,
                                .linear = k->linear,
                                .tied = true,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5,
                                .init_std = 0.08},
                        .B = ROWS,
                        .prec = BT_PREC_FP32,
                        .train = true,
                        .n_threads = 2};
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    if (lora)
        s.cfg.lora = (bt_lora){.rank = RANK, .scale = SCALE, .targets = BT_LORA_ALL, .dora = true};
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    if (!lora) bt_model_init_weights(m, SEED);
    return m;
}

static void fill_weights(bt_model *m, const kind *k) {
    bt_model *full = model_of(k, false);
    const bt_params *p = bt_model_params(full), *a = bt_model_params(m);
    bt_model_quantise(full);
    for (size_t i = 0; i < p->n; i++)
        bt_model_base_put(m, i, 0, p->tensors[i].count,
                          bt_model_weights(full) + p->tensors[i].offset,
                          (float)bt_model_quant_stat(full, i).scale);
    bt_model_base_done(m);
    bt_model_destroy(full);
    for (size_t i = 0; i < a->n; i++) {
        float *w = bt_model_weights(m) + a->tensors[i].offset;
        bt_rng_normal(w, a->tensors[i].count, 0, 0.1f, SEED, bt_hash_name(a->tensors[i].name));
        for (size_t n = 0; a->tensors[i].row_norms && n < a->tensors[i].count; n++) w[n] += 1;
    }
    bt_model_quantise(m);
}

typedef struct batch {
    int32_t inputs[ROWS * T], targets[ROWS * T];
} batch;

static void fill_batch(batch *b, int number) {
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t <= T; t++) {
            const int32_t id =
                (int32_t)(bt_rng_u64(6, (uint64_t)(number * ROWS + r), (uint64_t)t) % V);
            if (t < T) b->inputs[r * T + t] = id;
            if (t > 0) b->targets[r * T + t - 1] = id;
        }
}

/* Compares the projection on a fixed random direction, and the norm, relative to the norm. */
static void same_tensor(const char *name, const float *x, size_t n, double projection, double norm,
                        double most, const char *what) {
    float *way = malloc(n * sizeof *way);
    double along = 0, squares = 0;
    assert_non_null(way);
    bt_rng_normal(way, n, 0, 1, 11, bt_hash_name(name));
    for (size_t i = 0; i < n; i++) {
        along += (double)way[i] * (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    free(way);
    const double apart = fmax(fabs(along - projection), fabs(sqrt(squares) - norm)) / norm;
    if (!(apart < most))
        fail_msg("%s of %s: %.9g and %.9g, PyTorch %.9g and %.9g: %.2e apart", what, name, along,
                 sqrt(squares), projection, norm, apart);
}

static void run(const kind *k, const double *want, FILE *f) {
    static batch batches[BATCHES];
    bt_optim_span *spans;
    bt_model *m = model_of(k, true);
    const bt_params *p = bt_model_params(m);
    float *first = malloc(p->total * sizeof *first);
    assert_non_null(first);
    fill_weights(m, k);
    for (int i = 0; i < BATCHES; i++) fill_batch(&batches[i], i);
    bt_optim *o = model_optim(m, &spans);
    for (int step = 0; step < STEPS; step++) {
        const batch *b = &batches[step % BATCHES];
        bt_model_zero_grads(m);
        const double got = bt_model_train_micro(m, b->inputs, b->targets, 1.0 / (ROWS * T), NULL,
                                                NULL) /
                           (ROWS * T),
                     clip = 1 / (sqrt(bt_op_sum_squares(bt_model_grads(m), p->total)) + 1e-6);
        if (step == 0) memcpy(first, bt_model_grads(m), p->total * sizeof *first);
        const bt_optim_update u = {
            .t = step + 1, .grad_scale = (float)(clip < 1 ? clip : 1), .lr = RATE};
        bt_optim_step(o, bt_model_weights(m), bt_model_grads(m), &u);
        bt_model_quantise(m);
        print_message("%s step %d: %.9f, PyTorch %.9f, relative difference %+.1e\n", k->name, step,
                      got, want[step], got / want[step] - 1);
        if (!(fabs(got / want[step] - 1) < k->loss)) fail_msg("the losses differ");
    }
    for (size_t i = 0; i < p->n; i++) {
        char name[64];
        double g[2], w[2];
        assert_int_equal(fscanf(f, "%63s %lf %lf %lf %lf", name, &g[0], &g[1], &w[0], &w[1]), 5);
        const bt_tensor *t = bt_params_named(p, name);
        assert_non_null(t);
        same_tensor(name, first + t->offset, t->count, g[0], g[1], k->gradient, "the gradient");
        same_tensor(name, bt_model_weights(m) + t->offset, t->count, w[0], w[1], k->value,
                    "the last value");
    }
    free(first);
    bt_optim_destroy(o);
    free(spans);
    bt_model_destroy(m);
}

static void adapters_equal_pytorch(void **state) {
    (void)state;
    FILE *f = golden_open("golden_dora.txt");
    char word[128], line[256];
    size_t seen = 0;
    assert_non_null(f);
    for (int i = 0; i < 2; i++) assert_non_null(fgets(line, sizeof line, f)); /* comments */
    while (fscanf(f, "%127s", word) == 1) {
        double want[STEPS];
        for (int i = 0; i < STEPS; i++) assert_int_equal(fscanf(f, "%lf", &want[i]), 1);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (strcmp(kinds[k].name, word) == 0) run(&kinds[k], want, f), seen++;
    }
    (void)fclose(f);
    assert_int_equal(seen, sizeof kinds / sizeof *kinds);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(adapters_equal_pytorch)};
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}
