/* AdamW against its formula, slices against the whole, and the exact values of every schedule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "engine/base/rng.h"
#include "engine/kernels/ops/ops.h"
#include "engine/optim/optim.h"

enum { N = 10000 };

static const bt_optim_cfg CFG = {0.9, 0.95, 1e-8};

static float *normals(uint64_t stream, float sigma) {
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    bt_rng_normal(x, N, 0, sigma, 1, stream);
    return x;
}

static bt_optim *optim_of(size_t begin, size_t end) {
    bt_optim *o = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_optim_create(&o, &CFG, begin, end, &err) != BT_OK) fail_msg("%s", err.msg);
    return o;
}

static void adamw_follows_its_formula(void **state) {
    (void)state;
    bt_optim *o = optim_of(0, N);
    float *w = normals(1, 0.1f);
    double *want = calloc(N, sizeof *want), *m = calloc(N, sizeof *m), *v = calloc(N, sizeof *v);
    assert_true(want && m && v);
    for (size_t i = 0; i < N; i++) want[i] = (double)w[i];
    /* 100..112: padding, never touched */
    const bt_optim_span spans[] = {{0, 100, false}, {112, 5000, true}, {5000, N, false}};
    double lr = 1e-2, decay = 0.1, scale = 0.5;
    for (int t = 1; t <= 5; t++) {
        float *g = normals(10 + (uint64_t)t, 1.0f);
        bt_optim_step(o, w, g, spans, 3, t, (float)scale, (float)lr, (float)decay);
        for (size_t i = 0; i < N; i++) {
            if (i >= 100 && i < 112) continue;
            double gi = (double)g[i] * scale;
            m[i] = 0.9 * m[i] + 0.1 * gi;
            v[i] = 0.95 * v[i] + 0.05 * gi * gi;
            double mhat = m[i] / (1 - pow(0.9, t)), vhat = v[i] / (1 - pow(0.95, t));
            want[i] -= lr *
                       (mhat / (sqrt(vhat) + 1e-8) + (i >= 112 && i < 5000 ? decay : 0) * want[i]);
        }
        free(g);
    }
    for (size_t i = 0; i < N; i++) {
        if (!(fabs((double)w[i] - want[i]) < 2e-6))
            fail_msg("w[%zu] = %.9g, formula %.9g", i, (double)w[i], want[i]);
    }
    assert_int_equal(bt_optim_states(o), 2);
    assert_string_equal(bt_optim_state_name(o, 0), "exp_avg");
    assert_string_equal(bt_optim_state_name(o, 1), "exp_avg_sq");
    for (size_t i = 112; i < N; i++) {
        assert_true(fabs((double)bt_optim_state(o, 0)[i] - m[i]) < 1e-6);
        assert_true(fabs((double)bt_optim_state(o, 1)[i] - v[i]) < 1e-6);
    }
    assert_true(bt_optim_state(o, 0)[105] == 0.0f);
    assert_true(bt_optim_bytes(0, N) >= 2 * N * sizeof(float));
    bt_optim_destroy(o);
    free(v);
    free(m);
    free(want);
    free(w);
}

/* the change read back from the moments is the change that was made */
static void an_update_can_be_told_afterwards(void **state) {
    (void)state;
    bt_optim *o = optim_of(1000, N);
    float *w = normals(1, 0.1f), *before = malloc(N * sizeof *before);
    assert_non_null(before);
    const bt_optim_span spans[] = {{0, 5000, true}, {5000, N, false}};
    const struct {
        size_t begin, end;
        float decay;
    } looks[] = {{1000, 5000, 0.1f}, {5000, N, 0}, {1001, 1002, 0.1f}, {7000, 7000, 0}};
    for (int t = 1; t <= 4; t++) {
        float *g = normals(10 + (uint64_t)t, 1.0f);
        memcpy(before, w, N * sizeof *w);
        bt_optim_step(o, w, g, spans, 2, t, 0.5f, 1e-2f, 0.1f);
        for (size_t k = 0; k < sizeof looks / sizeof looks[0]; k++) {
            double change = 0, squares = 0, want_change = 0, want_squares = 0;
            bt_optim_change(o, w, looks[k].begin, looks[k].end, t, 1e-2f, looks[k].decay, &change,
                            &squares);
            for (size_t i = looks[k].begin; i < looks[k].end; i++) {
                double d = (double)w[i] - (double)before[i];
                want_change += d * d;
                want_squares += (double)before[i] * (double)before[i];
            }
            assert_true(fabs(change - want_change) <= 1e-4 * want_change &&
                        fabs(squares - want_squares) <= 1e-5 * want_squares);
        }
        free(g);
    }
    bt_optim_destroy(o);
    free(before);
    free(w);
}

/* three owners of a third each do what one owner of everything does, to the bit */
static void slices_equal_the_whole(void **state) {
    (void)state;
    const bt_optim_span spans[] = {{0, 3000, true}, {3008, 7000, false}, {7008, N, true}};
    const size_t cuts[] = {0, 3333, 6500, N};
    float *whole = normals(1, 0.1f), *sliced = normals(1, 0.1f);
    bt_optim *all = optim_of(0, N), *part[3];
    for (size_t i = 0; i < 3; i++) part[i] = optim_of(cuts[i], cuts[i + 1]);
    for (int t = 1; t <= 4; t++) {
        float *g = normals(20 + (uint64_t)t, 1.0f);
        bt_optim_step(all, whole, g, spans, 3, t, 1.0f, 1e-3f, 0.1f);
        for (size_t i = 0; i < 3; i++)
            bt_optim_step(part[i], sliced, g, spans, 3, t, 1.0f, 1e-3f, 0.1f);
        free(g);
    }
    assert_memory_equal(whole, sliced, N * sizeof *whole);
    for (size_t i = 0; i < 3; i++) {
        size_t n = (cuts[i + 1] - cuts[i]) * sizeof(float);
        assert_memory_equal(bt_optim_state(part[i], 0), bt_optim_state(all, 0) + cuts[i], n);
        assert_memory_equal(bt_optim_state(part[i], 1), bt_optim_state(all, 1) + cuts[i], n);
        bt_optim_destroy(part[i]);
    }
    bt_optim_destroy(all);
    free(sliced);
    free(whole);
}

static void bad_settings_are_refused(void **state) {
    (void)state;
    bt_optim *o = NULL;
    bt_err err = BT_ERR_INIT;
    const bt_optim_cfg bad[] = {
        {1.0, 0.95, 1e-8}, {0.9, -0.1, 1e-8}, {0.9, 0.95, -1}, {NAN, 0.95, 1e-8}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(bt_optim_create(&o, &bad[i], 0, 10, &err), BT_ARG);
    assert_int_equal(bt_optim_create(&o, &CFG, 10, 5, &err), BT_ARG);
    assert_null(o);
    /* a rank that owns nothing */
    assert_int_equal(bt_optim_create(&o, &CFG, 5, 5, &err), BT_OK);
    bt_optim_step(o, NULL, NULL, NULL, 0, 1, 1, 1, 1);
    bt_optim_destroy(o);
    bt_optim_destroy(NULL);
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("%.15g, expected %.15g", got, want);
}

static void schedules(void **state) {
    (void)state;
    bt_schedule s = {.kind = BT_SCHED_CONSTANT,
                     .steps = 100,
                     .warmup = 10,
                     .lr = 2e-3,
                     .lr_min_frac = 0.1,
                     .decay_frac = 0.2,
                     .weight_decay = 0.1};
    /* warm-up: a line that reaches the peak with its last step */
    near(bt_schedule_lr(&s, 0), 2e-4);
    near(bt_schedule_lr(&s, 4), 1e-3);
    near(bt_schedule_lr(&s, 9), 2e-3);
    near(bt_schedule_lr(&s, 99), 2e-3);
    near(bt_schedule_lr(&s, 100000), 2e-3);
    near(bt_schedule_decay(&s, 99), 0.1);

    s.kind = BT_SCHED_LINEAR; /* 90 steps from the peak to a tenth */
    near(bt_schedule_lr(&s, 9), 2e-3);
    near(bt_schedule_lr(&s, 54), 1.1e-3);
    near(bt_schedule_lr(&s, 99), 2e-4);
    near(bt_schedule_lr(&s, 150), 2e-4);

    s.kind = BT_SCHED_COSINE;
    near(bt_schedule_lr(&s, 4), 1e-3);
    near(bt_schedule_lr(&s, 9), 2e-3);
    /* a third of the way: cos(pi/3) = 1/2 */
    near(bt_schedule_lr(&s, 39), 2e-4 + 0.5 * 1.8e-3 * 1.5);
    near(bt_schedule_lr(&s, 54), 1.1e-3);
    near(bt_schedule_lr(&s, 99), 2e-4);

    s.kind = BT_SCHED_WSD; /* the last 20 steps fall */
    near(bt_schedule_lr(&s, 9), 2e-3);
    near(bt_schedule_lr(&s, 79), 2e-3);
    near(bt_schedule_lr(&s, 89), 1.1e-3);
    near(bt_schedule_lr(&s, 99), 2e-4);
    s.decay_frac = 0;
    near(bt_schedule_lr(&s, 99), 2e-3);

    /* BitNet: both lines aim at zero after the last step, the second from its own peak; decay ends
     *         with the first */
    s = (bt_schedule){.kind = BT_SCHED_BITNET,
                      .steps = 1000,
                      .warmup = 0,
                      .lr = 1.5e-3,
                      .lr2 = 1e-3,
                      .weight_decay = 0.1};
    near(bt_schedule_lr(&s, 0), 1.5e-3);
    near(bt_schedule_lr(&s, 250), 1.5e-3 * 0.75);
    near(bt_schedule_lr(&s, 499), 1.5e-3 * 0.501);
    /* 0.75e-3 to 0.5e-3: the figure of the BitNet training FAQ */
    near(bt_schedule_lr(&s, 500), 1e-3 * 0.5);
    near(bt_schedule_lr(&s, 999), 1e-3 * 0.001);
    near(bt_schedule_lr(&s, 1000), 0);
    near(bt_schedule_decay(&s, 499), 0.1);
    near(bt_schedule_decay(&s, 500), 0.0);
    s.lr2 = 0; /* default: two thirds */
    near(bt_schedule_lr(&s, 500), 0.5e-3);
    s.warmup = 100;
    near(bt_schedule_lr(&s, 49), 0.5 * 1.5e-3 * (1 - 0.049));
    near(bt_schedule_lr(&s, 250), 1.5e-3 * 0.75);
    s.steps = 1;
    near(bt_schedule_lr(&s, 0), 1.5e-5); /* shorter than its warm-up: still a number */
    /* no schedule of any length leaves [0, lr] */
    for (int kind = BT_SCHED_CONSTANT; kind <= BT_SCHED_BITNET; kind++) {
        for (int64_t steps = 1; steps < 30; steps++) {
            for (int64_t warmup = 0; warmup < 40; warmup += 7) {
                bt_schedule any = {.kind = (bt_sched_kind)kind,
                                   .steps = steps,
                                   .warmup = warmup,
                                   .lr = 1,
                                   .lr_min_frac = 0.1,
                                   .lr2 = 0.5,
                                   .decay_frac = 0.5};
                for (int64_t t = -1; t < steps + 5; t++)
                    assert_true(bt_schedule_lr(&any, t) >= 0 && bt_schedule_lr(&any, t) <= 1);
            }
        }
    }
}

static int start(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    return bt_kernels_select("auto", &err) != BT_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_follows_its_formula),
        cmocka_unit_test(an_update_can_be_told_afterwards),
        cmocka_unit_test(slices_equal_the_whole),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(schedules),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
