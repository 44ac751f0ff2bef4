/* Every optimizer equals its formula, ranges equal the whole, an update can be reconstructed, and every schedule has
 * exact values. */
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
#include "engine/optim/lr_schedule.h"
#include "engine/optim/optim.h"

enum { N = 10000 };

static bt_optim_cfg cfg_of(bt_optim_id kind) {
    return (bt_optim_cfg){.kind = kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95};
}

static bt_optim_span make_span(size_t begin, size_t end, bool decay, bool matrix, float lr_factor) {
    return (bt_optim_span){
        .begin = begin, .end = end, .decay = decay, .matrix = matrix, .lr_factor = lr_factor};
}

static float *draw_normals(uint64_t stream, float sigma) {
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    bt_rng_normal(x, N, 0, sigma, 1, stream);
    return x;
}

static bt_optim *optim_of(bt_optim_id kind, const bt_optim_span *spans, size_t n, size_t begin,
                          size_t end) {
    bt_optim *o = NULL;
    bt_err err = BT_ERR_INIT;
    bt_optim_cfg cfg = cfg_of(kind);
    if (bt_optim_create(&o, &cfg, spans, n, (bt_range){begin, end}, &err) != BT_OK)
        fail_msg("%s", err.msg);
    return o;
}

/* one element computed in double precision by its rule's formula */
typedef struct element {
    double w, m, v;
} element;

static int held_at; /* The second moment is constant after this update; 0: never. */

static void adamw_formula(element *e, double g, double lr, double decay, int t) {
    e->m = 0.9 * e->m + 0.1 * g;
    const bool held = held_at && t > held_at;
    if (!held) e->v = 0.95 * e->v + 0.05 * g * g;
    double mhat = e->m / (1 - pow(0.9, t)), vhat = e->v / (1 - pow(0.95, held ? held_at : t));
    e->w -= lr * (mhat / (sqrt(vhat) + 1e-8) + decay * e->w);
}

static void lion_formula(element *e, double g, double lr, double decay, int t) {
    double c = 0.9 * e->m + 0.1 * g;
    (void)t;
    e->w -= lr * ((c > 0) - (c < 0) + decay * e->w);
    e->m = 0.95 * e->m + 0.05 * g;
}

static void assert_rule_formula(bt_optim_id kind, void (*formula)(element *e, double g, double lr,
                                                                  double decay, int t)) {
    /* elements 100 to 112 are padding and never changed */
    const bt_optim_span spans[] = {make_span(0, 100, false, false, 1),
                                   make_span(112, 5000, true, true, 1),
                                   make_span(5000, N, false, true, 0.25f)};
    bt_optim *o = optim_of(kind, spans, 3, 0, N);
    float *w = draw_normals(1, 0.1f), padding[12];
    element *want = calloc(N, sizeof *want);
    assert_non_null(want);
    for (size_t i = 0; i < N; i++) want[i].w = (double)w[i];
    memcpy(padding, w + 100, sizeof padding);
    bt_optim_update u = {.grad_scale = 0.5f, .lr = 1e-2f, .decay = 0.1f};
    for (u.t = 1; u.t <= 5; u.t++) {
        float *g = draw_normals(10 + (uint64_t)u.t, 1.0f);
        u.held_at = u.t > held_at ? held_at : 0;
        bt_optim_step(o, w, g, &u);
        for (size_t i = 0; i < N; i++)
            if (i < 100 || i >= 112)
                formula(&want[i], (double)g[i] * 0.5, i < 5000 ? 1e-2 : 0.25e-2,
                        i >= 112 && i < 5000 ? 0.1 : 0, (int)u.t);
        free(g);
    }
    assert_memory_equal(padding, w + 100, sizeof padding);
    for (size_t i = 0; i < N; i++)
        if ((i < 100 || i >= 112) && !(fabs((double)w[i] - want[i].w) < 2e-6))
            fail_msg("%s: w[%zu] = %.9g, formula %.9g", bt_optim_info_of(kind)->name, i,
                     (double)w[i], want[i].w);
    for (size_t i = 112; i < N; i++) {
        size_t which = i < 5000 ? 1 : 2;
        assert_true(fabs((double)*(float *)bt_optim_state(o, which, 0, i) - want[i].m) < 1e-6);
        const float *v = bt_optim_state(o, which, 1, i);
        assert_true(kind == BT_OPTIM_LION ? v == NULL : fabs((double)*v - want[i].v) < 1e-6);
    }
    bt_optim_destroy(o);
    free(want);
    free(w);
}

static void rules_follow_their_formulas(void **state) {
    (void)state;
    assert_rule_formula(BT_OPTIM_ADAMW, adamw_formula);
    assert_rule_formula(BT_OPTIM_LION, lion_formula);
    held_at = 3;
    assert_rule_formula(BT_OPTIM_ADAMW, adamw_formula);
    held_at = 0;
}

/* The number, names and bytes of states follow from the rule of each span. */
static void states_are_those_of_the_rule(void **state) {
    (void)state;
    const bt_optim_span spans[] = {make_span(0, 4096, true, true, 1),
                                   make_span(4096, 8192, false, false, 1)};
    for (int k = 0; k < BT_OPTIM_COUNT; k++) {
        const bt_optim_info *info = bt_optim_info_of((bt_optim_id)k);
        size_t elems = 4096 * (info->matrices->n_states + info->rest->n_states);
        bt_optim *o = optim_of((bt_optim_id)k, spans, 2, 0, 8192);
        assert_int_equal(bt_optim_bytes((bt_optim_id)k, BT_STATES_FP32, spans, 2,
                                        (bt_range){0, 8192}),
                         elems * sizeof(float));
        for (size_t i = 0; i < 2; i++) {
            const bt_optim_rule *rule = bt_optim_rule_of((bt_optim_id)k, &spans[i]);
            assert_ptr_equal(rule, i == 0 ? info->matrices : info->rest);
            for (size_t s = 0; s < BT_OPTIM_STATES; s++) {
                assert_true((bt_optim_state(o, i, s, spans[i].begin) != NULL) ==
                            (s < rule->n_states));
                assert_true((rule->state_names[s] != NULL) == (s < rule->n_states));
            }
            assert_null(bt_optim_state(o, i, 0, spans[i].end));
        }
        bt_optim_destroy(o);
    }
}

/* The change reconstructed from the states equals the change that was made. */
static void an_update_can_be_reconstructed(void **state) {
    (void)state;
    const bt_optim_span spans[] = {make_span(0, 5000, true, false, 1),
                                   make_span(5000, N, false, false, 1)};
    const struct {
        size_t span, begin, end;
    } looks[] = {{0, 1000, 5000}, {1, 5000, N}, {0, 1001, 1002}, {1, 7000, 7000}};
    const bt_optim_id kinds[] = {BT_OPTIM_ADAMW, BT_OPTIM_LION};
    for (size_t kind = 0; kind < 2; kind++) {
        bt_optim *o = optim_of(kinds[kind], spans, 2, 1000, N);
        float *w = draw_normals(1, 0.1f), *before = malloc(N * sizeof *before);
        assert_non_null(before);
        bt_optim_update u = {.grad_scale = 0.5f, .lr = 1e-2f, .decay = 0.1f};
        for (u.t = 1; u.t <= 4; u.t++) {
            float *g = draw_normals(10 + (uint64_t)u.t, 1.0f);
            memcpy(before, w, N * sizeof *w);
            bt_optim_step(o, w, g, &u);
            for (size_t k = 0; k < sizeof looks / sizeof looks[0]; k++) {
                double change = 0, squares = 0, want_change = 0, want_squares = 0;
                bt_optim_change(o, looks[k].span, (bt_range){looks[k].begin, looks[k].end}, w, g,
                                &u, &change, &squares);
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
}

/* Three owners of a third each give the same bits as one owner of the whole array. */
static void ranges_equal_the_whole(void **state) {
    (void)state;
    const bt_optim_span spans[] = {make_span(0, 3000, true, true, 1),
                                   make_span(3008, 7000, false, true, 1),
                                   make_span(7008, N, true, false, 1)};
    const size_t cuts[] = {0, 3333, 6500, N};
    for (int kind = 0; kind < BT_OPTIM_COUNT; kind++) {
        float *whole = draw_normals(1, 0.1f), *sliced = draw_normals(1, 0.1f);
        bt_optim *all = optim_of((bt_optim_id)kind, spans, 3, 0, N), *some[3];
        for (size_t i = 0; i < 3; i++)
            some[i] = optim_of((bt_optim_id)kind, spans, 3, cuts[i], cuts[i + 1]);
        bt_optim_update u = {.grad_scale = 1.0f, .lr = 1e-3f, .decay = 0.1f};
        for (u.t = 1; u.t <= 4; u.t++) {
            float *g = draw_normals(20 + (uint64_t)u.t, 1.0f);
            bt_optim_step(all, whole, g, &u);
            for (size_t i = 0; i < 3; i++) bt_optim_step(some[i], sliced, g, &u);
            free(g);
        }
        assert_memory_equal(whole, sliced, N * sizeof *whole);
        for (size_t i = 0; i < 3; i++) {
            for (size_t s = 0; s < 3; s++) {
                size_t from = cuts[i] > spans[s].begin ? cuts[i] : spans[s].begin,
                       to = cuts[i + 1] < spans[s].end ? cuts[i + 1] : spans[s].end;
                for (size_t k = 0; k < BT_OPTIM_STATES && from < to; k++) {
                    const float *a = bt_optim_state(some[i], s, k, from),
                                *b = bt_optim_state(all, s, k, from);
                    assert_true((a != NULL) == (b != NULL));
                    if (a) assert_memory_equal(a, b, (to - from) * sizeof *a);
                }
            }
            bt_optim_destroy(some[i]);
        }
        bt_optim_destroy(all);
        free(sliced);
        free(whole);
    }
}

/* N elements in rows of COLS: the position of element i if the two halves of the columns are stored separately. */
enum { COLS = 100, HALF = COLS / 2 };
static size_t cut_place(size_t i) { return i % COLS / HALF * (N / 2) + i / COLS * HALF + i % HALF; }

/* Returns the span of the whole and those of the halves; the noise key changes within a half. */
static bt_optim_span span_in_halves(bt_optim_span half[2]) {
    bt_optim_span one = make_span(0, N, true, true, 1);
    one.name = 7;
    one.first = 60000;
    one.cols = one.stride = COLS;
    for (size_t b = 0; b < 2; b++) {
        half[b] = one;
        half[b].begin = b * N / 2;
        half[b].end = half[b].begin + N / 2;
        half[b].first += b * HALF;
        half[b].cols = HALF;
    }
    return one;
}

/* Compressed states of a tensor divided into blocks of columns, each in two ranges, have the bits of the whole; the
 * weights are near those of fp32 states. */
static void compressed_states_do_not_depend_on_the_division(void **state) {
    (void)state;
    for (int kind = 0; kind < BT_OPTIM_COUNT; kind++)
        for (int as = BT_STATES_BF16; as <= BT_STATES_LOG8; as++) {
            bt_optim_cfg cfg = cfg_of((bt_optim_id)kind);
            bt_optim *whole, *exact, *parts[3];
            bt_err err = BT_ERR_INIT;
            bt_optim_span block[2];
            const bt_optim_span one = span_in_halves(block);
            float *w = draw_normals(1, 0.1f), *near = draw_normals(1, 0.1f),
                  *cut = draw_normals(1, 0.1f), *cut_g = draw_normals(1, 1);
            for (size_t i = 0; i < N; i++) cut[cut_place(i)] = w[i];
            assert_int_equal(bt_optim_create(&exact, &cfg, &one, 1, (bt_range){0, N}, &err), BT_OK);
            cfg.states = (bt_states_kind)as;
            cfg.seed = 3;
            const bt_range ranges[] = {{0, 1777}, {1777, 7001}, {7001, N}};
            assert_int_equal(bt_optim_create(&whole, &cfg, &one, 1, (bt_range){0, N}, &err), BT_OK);
            for (size_t i = 0; i < 3; i++)
                assert_int_equal(bt_optim_create(&parts[i], &cfg, block, 2, ranges[i], &err),
                                 BT_OK);
            bt_optim_update u = {.grad_scale = 1.0f, .lr = 1e-3f, .decay = 0.1f};
            for (u.t = 1; u.t <= 6; u.t++) {
                float *g = draw_normals(20 + (uint64_t)u.t, 0.01f);
                for (size_t i = 0; i < N; i++) cut_g[cut_place(i)] = g[i];
                bt_optim_step(whole, w, g, &u);
                bt_optim_step(exact, near, g, &u);
                for (size_t i = 0; i < 3; i++) bt_optim_step(parts[i], cut, cut_g, &u);
                free(g);
            }
            double apart = 0, moved = 0;
            for (size_t i = 0; i < N; i++) {
                const size_t at = cut_place(i), b = at >= N / 2;
                assert_memory_equal(&w[i], &cut[at], sizeof *w);
                apart += fabs((double)w[i] - (double)near[i]);
                moved += 6e-3;
                for (size_t k = 0; k < BT_OPTIM_STATES; k++) {
                    float x = 0, y = 0;
                    const size_t part = at >= 7001 ? 2 : at >= 1777;
                    const bool there = bt_optim_read(whole, 0, k, (bt_range){i, i + 1}, &x);
                    assert_true(bt_optim_read(parts[part], b, k, (bt_range){at, at + 1}, &y) ==
                                there);
                    assert_true(x == y);
                }
            }
            assert_true(apart < 0.2 * moved);
            bt_optim_destroy(whole);
            bt_optim_destroy(exact);
            for (size_t i = 0; i < 3; i++) bt_optim_destroy(parts[i]);
            free(w);
            free(near);
            free(cut);
            free(cut_g);
        }
}

/* Weights in bf16 with states of any format: a tensor divided into blocks of columns has the bits of the whole, and a
 * single call with values rounds as the step does. */
static void weights_of_bf16_do_not_depend_on_the_division(void **state) {
    (void)state;
    for (int kind = 0; kind < BT_OPTIM_MUON; kind++)
        for (int as = BT_STATES_FP32; as <= BT_STATES_LOG8; as++) {
            bt_optim_cfg cfg = cfg_of((bt_optim_id)kind);
            bt_optim *whole, *parts[2];
            bt_err err = BT_ERR_INIT;
            uint16_t *w = malloc(N * sizeof *w), *cut = malloc(N * sizeof *cut);
            float *begin = draw_normals(1, 0.1f), *cut_g = draw_normals(1, 1);
            assert_true(w && cut);
            bt_optim_span block[2], one = span_in_halves(block);
            one.weights = w;
            for (size_t b = 0; b < 2; b++) block[b].weights = cut + b * N / 2;
            one.form = block[0].form = block[1].form = BT_MOMENT_BF16;
            bt_moment_convert(w, BT_MOMENT_BF16, begin, BT_MOMENT_F32, N);
            for (size_t i = 0; i < N; i++) cut[cut_place(i)] = w[i];
            cfg.states = (bt_states_kind)as;
            cfg.seed = 3;
            const bt_range ranges[] = {{0, 1777}, {1777, N}};
            assert_int_equal(bt_optim_create(&whole, &cfg, &one, 1, (bt_range){0, N}, &err), BT_OK);
            for (size_t i = 0; i < 2; i++)
                assert_int_equal(bt_optim_create(&parts[i], &cfg, block, 2, ranges[i], &err),
                                 BT_OK);
            bt_optim_update u = {.grad_scale = 1.0f, .lr = 1e-3f, .decay = 0.1f};
            for (u.t = 1; u.t <= 4; u.t++) {
                float *g = draw_normals(20 + (uint64_t)u.t, 0.01f);
                for (size_t i = 0; i < N; i++) cut_g[cut_place(i)] = g[i];
                bt_optim_step(whole, NULL, g, &u);
                for (size_t i = 0; i < 2; i++) bt_optim_step(parts[i], NULL, cut_g, &u);
                free(g);
            }
            for (size_t i = 0; i < N; i++) assert_int_equal(w[i], cut[cut_place(i)]);
            for (size_t i = 0; i < 2; i++) bt_optim_destroy(parts[i]);
            bt_optim_destroy(whole);
            free(begin);
            free(cut_g);
            free(w);
            free(cut);
        }
}

/* Updates far smaller than the distance between two bf16 numbers are applied in the mean: the sum of many equals that
 * of fp32. Rounding to nearest would change no weight. */
static void small_updates_are_applied_in_the_mean(void **state) {
    (void)state;
    enum { STEPS = 64 };
    const float at = 1.0f + 1.0f / 128, rate = 1e-4f; /* half the distance: 39 of these updates */
    for (int kind = 0; kind < BT_OPTIM_COUNT; kind++) {
        bt_optim_cfg cfg = cfg_of((bt_optim_id)kind);
        bt_optim *o;
        bt_err err = BT_ERR_INIT;
        uint16_t *w = malloc(N * sizeof *w);
        float *g = malloc(N * sizeof *g);
        assert_true(w && g);
        bt_optim_span one = make_span(0, N, true, true, 1);
        one.name = 7;
        one.weights = w;
        one.form = BT_MOMENT_BF16;
        for (size_t i = 0; i < N; i++) {
            g[i] = 1;
            w[i] = bt_moment_to_bf16(at, BT_MOMENT_NEAREST);
        }
        cfg.seed = 11;
        assert_int_equal(bt_optim_create(&o, &cfg, &one, 1, (bt_range){0, N}, &err), BT_OK);
        double mean = 0, moved = 0;
        for (int64_t t = 1; t <= STEPS; t++) {
            if (kind != BT_OPTIM_MUON) {
                bt_optim_step(o, NULL, g, &(bt_optim_update){.t = t, .grad_scale = 1, .lr = rate});
                continue;
            }
            /* For whole matrices the caller rounds. */
            float next[N];
            bt_moment_convert(next, BT_MOMENT_F32, w, BT_MOMENT_BF16, N);
            for (size_t i = 0; i < N; i++) next[i] -= rate;
            bt_optim_round_weights(o, 0, (bt_range){0, N / 3}, next, t);
            bt_optim_round_weights(o, 0, (bt_range){N / 3, N}, next + N / 3, t);
        }
        for (size_t i = 0; i < N; i++) {
            const double x = (double)bt_moment_of_bf16(w[i]);
            mean += x / N;
            moved += x != (double)at;
        }
        /* AdamW and Lion step by the rate if all gradients are one. */
        if (!(fabs(mean - ((double)at - STEPS * (double)rate)) < 5e-4))
            fail_msg("%s: the mean is %.6f", bt_optim_info_of((bt_optim_id)kind)->name, mean);
        assert_true(moved > 0.3 * N && moved < 0.9 * N);
        bt_optim_destroy(o);
        free(w);
        free(g);
    }
}

static void bad_settings_are_refused(void **state) {
    (void)state;
    bt_optim *o = NULL;
    bt_err err = BT_ERR_INIT;
    const double bad[][4] = {{1.0, 0.95, 1e-8, 0},
                             {0.9, -0.1, 1e-8, 0},
                             {0.9, 0.95, -1, 0},
                             {NAN, 0.95, 1e-8, 0},
                             {0.9, 0.95, 1e-8, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const bt_optim_cfg cfg = {
            .beta1 = bad[i][0], .beta2 = bad[i][1], .eps = bad[i][2], .momentum = bad[i][3]};
        assert_int_equal(bt_optim_create(&o, &cfg, NULL, 0, (bt_range){0, 10}, &err), BT_ARG);
    }
    bt_optim_cfg cfg = cfg_of(BT_OPTIM_ADAMW);
    assert_int_equal(bt_optim_create(&o, &cfg, NULL, 0, (bt_range){10, 5}, &err), BT_ARG);
    assert_null(o);
    /* a rank that owns no elements */
    assert_int_equal(bt_optim_create(&o, &cfg, NULL, 0, (bt_range){5, 5}, &err), BT_OK);
    bt_optim_step(o, NULL, NULL, &(bt_optim_update){.t = 1, .lr = 1});
    bt_optim_destroy(o);
    bt_optim_destroy(NULL);
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("%.15g, expected %.15g", got, want);
}

static void every_schedule_has_its_rates(void **state) {
    (void)state;
    bt_lr_schedule s = {.kind = BT_SCHED_CONSTANT,
                        .steps = 100,
                        .warmup = 10,
                        .lr = 2e-3,
                        .lr_min_frac = 0.1,
                        .decay_frac = 0.2,
                        .weight_decay = 0.1};
    /* The warm-up is linear and reaches the peak in its last step. */
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
    /* After a third of the way cos(pi/3) = 1/2. */
    near(bt_schedule_lr(&s, 39), 2e-4 + 0.5 * 1.8e-3 * 1.5);
    near(bt_schedule_lr(&s, 54), 1.1e-3);
    near(bt_schedule_lr(&s, 99), 2e-4);

    s.kind = BT_SCHED_WSD; /* The rate falls in the last 20 steps. */
    near(bt_schedule_lr(&s, 9), 2e-3);
    near(bt_schedule_lr(&s, 79), 2e-3);
    near(bt_schedule_lr(&s, 89), 1.1e-3);
    near(bt_schedule_lr(&s, 99), 2e-4);
    s.decay_frac = 0;
    near(bt_schedule_lr(&s, 99), 2e-3);

    s.kind = BT_SCHED_RANGE; /* A constant factor between steps, independent of the warm-up. */
    s.steps = 5, s.lr = 1, s.lr_min_frac = 1e-4;
    for (int i = 0; i < 5; i++) near(bt_schedule_lr(&s, i), pow(10, i - 4));
    near(bt_schedule_lr(&s, 9), 1);

    /* BitNet: both stages of the rate end at zero after the last step, the second with its own peak; weight decay ends
     * with the first stage. */
    s = (bt_lr_schedule){.kind = BT_SCHED_BITNET,
                         .steps = 1000,
                         .warmup = 0,
                         .lr = 1.5e-3,
                         .lr2 = 1e-3,
                         .weight_decay = 0.1};
    near(bt_schedule_lr(&s, 0), 1.5e-3);
    near(bt_schedule_lr(&s, 250), 1.5e-3 * 0.75);
    near(bt_schedule_lr(&s, 499), 1.5e-3 * 0.501);
    /* 0.75e-3 to 0.5e-3, as in the figure of the BitNet training FAQ */
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
    /* A run shorter than its warm-up still has a finite rate. */
    near(bt_schedule_lr(&s, 0), 1.5e-5);
    /* Every schedule of every length remains in [0, lr]. */
    for (int kind = BT_SCHED_CONSTANT; kind <= BT_SCHED_RANGE; kind++) {
        for (int64_t steps = 1; steps < 30; steps++) {
            for (int64_t warmup = 0; warmup < 40; warmup += 7) {
                bt_lr_schedule any = {.kind = (bt_sched_kind)kind,
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

/* Values below a share of the mean are raised to it; no other value changes. */
static void states_are_raised_to_a_share_of_their_mean(void **state) {
    (void)state;
    static const bt_states_kind kinds[] = {BT_STATES_FP32, BT_STATES_BF16, BT_STATES_LOG8};
    const bt_optim_span all = make_span(0, N, false, true, 1);
    const bt_range r = {100, 9001};
    static float before[N], after[N];
    float *w = draw_normals(1, 1), *g = draw_normals(2, 1);
    for (size_t i = 0; i < N; i += 3) g[i] *= 1e-3f;
    for (size_t k = 0; k < 3; k++) {
        bt_optim *o = NULL;
        bt_err err = BT_ERR_INIT;
        bt_optim_cfg cfg = cfg_of(BT_OPTIM_ADAMW);
        const bt_optim_update u = {.t = 1, .grad_scale = 1, .lr = 1e-3f};
        cfg.states = kinds[k];
        assert_int_equal(bt_optim_create(&o, &cfg, &all, 1, (bt_range){0, N}, &err), BT_OK);
        bt_optim_step(o, w, g, &u);
        assert_true(bt_optim_read(o, 0, 1, (bt_range){0, N}, before));
        double sum = 0;
        for (size_t i = r.begin; i < r.end; i++) sum += (double)before[i];
        const double least = 0.25 * sum / (double)(r.end - r.begin);
        bt_optim_raise(o, 0, 1, r, 0.25);
        bt_optim_raise(o, 0, 2, r, 0.25); /* The state does not exist. */
        assert_true(bt_optim_read(o, 0, 1, (bt_range){0, N}, after));
        for (size_t i = 0; i < N; i++) {
            const bool raised = i >= r.begin && i < r.end && (double)before[i] < least;
            if (raised)
                assert_true(fabs((double)after[i] / least - 1) < 0.1);
            else
                assert_true(after[i] == before[i]);
        }
        bt_optim_destroy(o);
    }
    free(w);
    free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_raised_to_a_share_of_their_mean),
        cmocka_unit_test(rules_follow_their_formulas),
        cmocka_unit_test(states_are_those_of_the_rule),
        cmocka_unit_test(an_update_can_be_reconstructed),
        cmocka_unit_test(ranges_equal_the_whole),
        cmocka_unit_test(compressed_states_do_not_depend_on_the_division),
        cmocka_unit_test(weights_of_bf16_do_not_depend_on_the_division),
        cmocka_unit_test(small_updates_are_applied_in_the_mean),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(every_schedule_has_its_rates),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
