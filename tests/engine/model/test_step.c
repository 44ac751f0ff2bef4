// ctest: timeout=200
/* A complete training step: the same bits for any number of threads, no allocation within it, similar losses on every
 * kernel set, quantisation statistics, the memory plan. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "tests/engine/kernels/asked_set.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/golden.h"

#if defined(__SANITIZE_ADDRESS__)
#define COUNTS_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTS_MEMORY 0
#endif
#endif
#ifndef COUNTS_MEMORY
#define COUNTS_MEMORY 1
#endif

static atomic_int allocations;

#if COUNTS_MEMORY
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

/* OpenBLAS's kernels for AVX-512 allocate within a product; these allocations are not counted. */
static void count_allocation(const void *caller) {
    Dl_info at;
    if (dladdr(caller, &at) && at.dli_fname && strstr(at.dli_fname, "openblas")) return;
    atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t n) {
    count_allocation(__builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    count_allocation(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    count_allocation(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    count_allocation(__builtin_return_address(0));
    long got = syscall(SYS_mmap, at, n, prot, flags, fd, offset);
    return (void *)got;
}
#endif

/* a small model of awkward sizes */
enum { B = 3, ODD_T = 33 };

static bt_model_cfg make_odd_setup(bt_norm_kind norm, bt_linear_kind linear) {
    return (bt_model_cfg){.L = 2,
                          .C = 40,
                          .H = 4,
                          .KV = 2,
                          .D = 10,
                          .F = 72,
                          .T = ODD_T,
                          .V = 67,
                          .norm = norm,
                          .linear = linear,
                          .act = norm == BT_NORM_PRE ? BT_ACT_SILU : BT_ACT_RELU2,
                          .tied = norm != BT_NORM_BITLINEAR,
                          .qk_norm = norm == BT_NORM_PRE,
                          .rope_theta = 1e4,
                          .norm_eps = 1e-5,
                          .init_std = 0.05};
}

typedef struct run {
    bt_model *m;
    bt_optim *o;
    bt_optim_span *spans;
    chain data;
    int32_t inputs[B * ODD_T], targets[B * ODD_T];
    int64_t t;
    double last;
} run;

static bool grad_int8, attention_int8; /* applies to runs created later */

static void run_begin(run *r, const bt_model_cfg *c, bt_prec prec) {
    memset(r, 0, sizeof *r);
    bt_err err = BT_ERR_INIT;
    bt_model_setup s = {.cfg = *c,
                        .B = B,
                        .prec = prec,
                        .train = true,
                        .n_threads = bt_threads_count(),
                        .grad_int8 = grad_int8,
                        .attention_int8 = attention_int8};
    if (bt_model_create(&r->m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_gradient_passes(r->m, true);
    r->o = model_optim(r->m, &r->spans);
    bt_model_init_weights(r->m, 1);
    bt_model_quantise(r->m);
    r->data = (chain){.seed = 1, .V = c->V};
}

static double run_step(run *r, float lr) {
    return r->last = train_step(r->m, r->o, &r->data, r->inputs, r->targets, B, 1, ++r->t, lr);
}

static void run_end(run *r) {
    bt_optim_destroy(r->o);
    free(r->spans);
    bt_model_destroy(r->m);
}

static void select_isa(const char *name) {
    bt_err err = BT_ERR_INIT;
    if (bt_kernels_select(name, &err) != BT_OK) fail_msg("%s", err.msg);
}

/* Selects the fastest set without OpenBLAS, which chooses its inner loops by the shape of each call, so that its last
 * bits depend on the number of threads. */
static void own_isa(void) {
    select_isa("auto");
    for (size_t i = 0; i < bt_kernels_slots(); i++) {
        if (strcmp(bt_kernels_slot_winner(i), "blas") == 0) select_isa("generic");
    }
}

static void set_threads(int n) {
    bt_err err = BT_ERR_INIT;
    bt_ops_release();
    if (bt_threads_init(n, &err) != BT_OK) fail_msg("%s", err.msg);
}

static void same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    own_isa();
    const bt_linear_kind kinds[] = {BT_LIN_BITNET158, BT_LIN_DENSE};
    for (size_t k = 0; k < 5; k++) {
        bt_model_cfg c = make_odd_setup(k & 1 ? BT_NORM_PRE : BT_NORM_SUBLN, kinds[k / 2 % 2]);
        grad_int8 = attention_int8 = k == 4;
        float *want = NULL;
        double loss = 0;
        for (int n = 1; n <= 4; n++) {
            set_threads(n);
            run r;
            run_begin(&r, &c, k == 0 ? BT_PREC_BF16 : BT_PREC_FP32);
            double got = 0;
            for (int i = 0; i < 4; i++) got = run_step(&r, 3e-3f);
            size_t bytes = bt_model_params(r.m)->total * sizeof(float);
            if (n == 1) {
                want = malloc(bytes);
                assert_non_null(want);
                memcpy(want, bt_model_weights(r.m), bytes);
                loss = got;
            } else {
                assert_memory_equal(&got, &loss, sizeof got);
                assert_memory_equal(bt_model_weights(r.m), want, bytes);
            }
            run_end(&r);
        }
        free(want);
    }
    set_threads(2);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    if (!COUNTS_MEMORY) skip();
    const char *sets[] = {"generic", "blas", "auto"};
    for (size_t i = 0; i < 3; i++) {
        bt_err err = BT_ERR_INIT;
        if (bt_kernels_select(sets[i], &err) != BT_OK) continue;
        /* OpenBLAS allocates a buffer the first time two threads use it at once. */
        set_threads(i == 1 ? 1 : 2);
        run r;
        bt_model_cfg c = make_odd_setup(BT_NORM_SUBLN, i == 1 ? BT_LIN_DENSE : BT_LIN_BITNET158);
        run_begin(&r, &c, BT_PREC_FP32);
        (void)run_step(&r, 1e-3f);
        int before = atomic_load(&allocations);
        void *volatile probe = malloc(1); /* Checks that the counter works. */
        free(probe);
        assert_int_equal(atomic_load(&allocations), before + 1);
        for (int k = 0; k < 3; k++) (void)run_step(&r, 1e-3f);
        (void)bt_model_eval_micro(r.m, r.inputs, r.targets);
        assert_int_equal(atomic_load(&allocations), before + 1);
        run_end(&r);
    }
    set_threads(2);
}

/* int8 attention applies to passes with gradients; validation equals that in floats, bit for bit. */
static void validation_attends_in_floats(void **state) {
    (void)state;
    own_isa();
    const bt_model_cfg c = make_odd_setup(BT_NORM_SUBLN, BT_LIN_BITNET158);
    double eval[2], train[2];
    for (int int8 = 0; int8 < 2; int8++) {
        run r;
        attention_int8 = int8;
        run_begin(&r, &c, BT_PREC_FP32);
        r.data = (chain){.seed = 1, .V = c.V};
        (void)run_step(&r, 0); /* Fills the batch without training. */
        bt_model_gradient_passes(r.m, false);
        eval[int8] = bt_model_eval_micro(r.m, r.inputs, r.targets);
        bt_model_gradient_passes(r.m, true);
        train[int8] = bt_model_train_micro(r.m, r.inputs, r.targets, 0, NULL, NULL);
        run_end(&r);
    }
    attention_int8 = false;
    assert_memory_equal(&eval[0], &eval[1], sizeof *eval);
    assert_true(train[0] != train[1] && fabs(train[0] - train[1]) < 0.02 * train[0]);
    assert_true(eval[0] == train[0]);
}

/* The model trains 20 steps on one batch. Dense models agree closely; rounding to ternary and int8 amplifies the last
 * bit of a float (see make_golden.py), so ternary models have only similar losses. */
static void every_kernel_set_follows_one_curve(void **state) {
    (void)state;
    const char *sets[] = {"generic", "blas", "avx2-plain", "avx2",         "avx512-plain",
                          "avx512",  "amx",  "neon-plain", "neon-dotprod", "neon"};
    const bt_norm_kind norms[] = {BT_NORM_SUBLN, BT_NORM_BITLINEAR, BT_NORM_PRE};
    for (size_t k = 0; k < 6; k++) {
        bool dense = k >= 3;
        bt_model_cfg c = make_odd_setup(norms[k % 3], dense ? BT_LIN_DENSE : BT_LIN_BITNET158);
        double want[20];
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
            for (int mode = 0; mode < 4; mode++) {
                int prec = mode == 0 ? BT_PREC_FP32 : BT_PREC_BF16;
                bt_err err = BT_ERR_INIT;
                if (i > 0 && !set_is_asked_for(sets[i])) continue;
                /* not supported by this machine */
                if (bt_kernels_select(sets[i], &err) != BT_OK) continue;
                /* The generic set always computes in fp32. */
                if (i == 0 && mode == 1) continue;
                grad_int8 = mode >= 2;
                attention_int8 = mode == 3;
                run r;
                run_begin(&r, &c, (bt_prec)prec);
                double tolerance = dense ? (prec == BT_PREC_FP32 ? 1e-3 : 2e-2)
                                         : (prec == BT_PREC_FP32 ? 0.08 : 0.12),
                       first = 0;
                for (int s = 0; s < 20; s++) {
                    r.data = (chain){.seed = 1, .V = c.V};
                    double got = run_step(&r, 1e-3f),
                           within = s == 0 && prec == BT_PREC_FP32 ? 5e-4 : tolerance;
                    if (i == 0 && prec == BT_PREC_FP32) want[s] = got;
                    if (s == 0) first = got;
                    if (!(fabs(got - want[s]) < within))
                        fail_msg("%s, precision %d, variant %zu, step %d: loss %.6f, generic %.6f",
                                 sets[i], prec, k, s, got, want[s]);
                }
                if (!(want[19] < first - 0.3))
                    fail_msg("%s variant %zu learns nothing: %.4f to %.4f", sets[i], k, first,
                             want[19]);
                if (getenv("BT_TEST_VERBOSE"))
                    print_message("%s precision %d variant %zu: %.4f, off by %.1e\n", sets[i], prec,
                                  k, want[19], fabs(want[19] - r.last));
                run_end(&r);
            }
        }
    }
    grad_int8 = attention_int8 = false;
    select_isa("auto");
}

/* Every draw of the noise of int8 gradients is near the float gradient, the mean over many draws is nearer, another key
 * gives another draw, and the same key the same bits. */
static void int8_gradients_are_right(bt_scale_kind scale) {
    enum { DRAWS = 24 };
    own_isa();
    bt_model_cfg c = make_odd_setup(BT_NORM_SUBLN, BT_LIN_BITNET158);
    c.scale = scale;
    if (scale > BT_SCALE_ROW) c.C = 64, c.D = 16, c.F = 96;
    run exact, noisy;
    grad_int8 = false;
    run_begin(&exact, &c, BT_PREC_FP32);
    grad_int8 = true;
    run_begin(&noisy, &c, BT_PREC_FP32);
    grad_int8 = false;
    chain_batch(&exact.data, exact.inputs, exact.targets, B, ODD_T);
    size_t n = bt_model_params(exact.m)->total;
    double *mean = calloc(n, sizeof *mean);
    float *first = calloc(n, sizeof *first);
    assert_true(mean && first);
    bt_model_zero_grads(exact.m);
    double loss = bt_model_train_micro(exact.m, exact.inputs, exact.targets, 1.0 / (B * ODD_T),
                                       NULL, NULL),
           size = 0, off = 0;
    const float *want = bt_model_grads(exact.m), *got = bt_model_grads(noisy.m);
    for (size_t i = 0; i < n; i++) size += (double)want[i] * (double)want[i];
    for (int d = 0; d < DRAWS; d++) {
        /* The last draw repeats the first. */
        bt_model_noise(noisy.m, 1, d == DRAWS - 1 ? 0 : (uint64_t)d, 99);
        bt_model_zero_grads(noisy.m);
        assert_true(bt_model_train_micro(noisy.m, exact.inputs, exact.targets, 1.0 / (B * ODD_T),
                                         NULL, NULL) == loss);
        double apart = 0;
        for (size_t i = 0; i < n; i++) {
            apart += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
            if (d < DRAWS - 1) mean[i] += (double)got[i] / (DRAWS - 1);
        }
        if (!(apart > 0 && sqrt(apart / size) < 0.05))
            fail_msg("draw %d is %.3f of the gradient away", d, sqrt(apart / size));
        if (d == 0) memcpy(first, got, n * sizeof *first);
        if (d > 0) assert_int_equal(memcmp(first, got, n * sizeof *first) == 0, d == DRAWS - 1);
        if (d == 0) off = sqrt(apart / size);
    }
    double apart = 0;
    for (size_t i = 0; i < n; i++)
        apart += (mean[i] - (double)want[i]) * (mean[i] - (double)want[i]);
    if (!(sqrt(apart / size) < 0.4 * off))
        fail_msg("the mean is %.4f of the gradient away, one draw %.4f", sqrt(apart / size), off);
    free(mean);
    free(first);
    run_end(&exact);
    run_end(&noisy);
}

static void int8_gradients_are_right_on_average(void **state) {
    (void)state;
    int8_gradients_are_right(BT_SCALE_TENSOR);
    int8_gradients_are_right(BT_SCALE_ROW);
    int8_gradients_are_right(BT_SCALE_GROUP32);
}

/* Creates a model with int8 gradients, ready for micro-batches of this many sequences. */
static bt_model *int8_model(const bt_model_cfg *c, int sequences, bt_recompute recompute,
                            bool fades) {
    bt_model_setup s = {.cfg = *c,
                        .B = sequences,
                        .prec = BT_PREC_BF16,
                        .train = true,
                        .n_threads = bt_threads_count(),
                        .recompute = recompute,
                        .fades = fades,
                        .grad_int8 = true};
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, 1);
    bt_model_quantise(m);
    bt_model_zero_grads(m);
    return m;
}

/* Between their computation and the products, the gradients of gate and up are bf16, or floats rounded to bf16,
 * depending on what a layer saves: the bits are equal. */
static void one_gradient_whatever_is_kept(void **state) {
    (void)state;
    enum { SEQUENCES = 6 };
    static int32_t inputs[SEQUENCES * 256], targets[SEQUENCES * 256];
    own_isa();
    for (int norm = 0; norm < 3; norm++) {
        bt_model_cfg c = make_odd_setup((bt_norm_kind)norm, BT_LIN_BITNET158);
        c.scale = norm == BT_NORM_PRE ? BT_SCALE_ROW : BT_SCALE_TENSOR;
        c.T = 256;
        chain data = {.seed = 1, .V = c.V};
        chain_batch(&data, inputs, targets, SEQUENCES, c.T);
        bt_model *kept = NULL;
        for (int form = 0; form < 4; form++) {
            const bool fades = form == 3;
            bt_model *m = int8_model(&c, SEQUENCES, fades ? BT_RECOMPUTE_NONE : (bt_recompute)form,
                                     fades);
            bt_model_noise(m, 1, 5, 0);
            (void)bt_model_train_micro(m, inputs, targets, 1.0 / (SEQUENCES * 256), NULL, NULL);
            const size_t n = bt_model_params(m)->total;
            if (kept && memcmp(bt_model_grads(m), bt_model_grads(kept), n * sizeof(float)) != 0)
                fail_msg("norm %d: %s gives other gradients", norm,
                         fades ? "a model that fades" : "what is recomputed");
            if (kept)
                bt_model_destroy(m);
            else
                kept = m;
        }
        bt_model_destroy(kept);
    }
}

/* The backward pass processes the feed-forward part of a long micro-batch in pieces (bt_acts_wide): two full pieces and
 * a shorter one give the bits of three micro-batches. */
static void a_long_micro_batch_is_its_pieces(void **state) {
    (void)state;
    enum { PIECE = 1024, LONG = 2560 };
    static int32_t inputs[LONG], targets[LONG];
    own_isa();
    for (int norm = 0; norm < 3; norm++) {
        bt_model_cfg c = make_odd_setup((bt_norm_kind)norm, BT_LIN_BITNET158);
        c.T = 256;
        bt_model *m[2];
        for (int k = 0; k < 2; k++)
            m[k] = int8_model(&c, (k ? LONG : PIECE) / c.T, BT_RECOMPUTE_NONE, false);
        chain data = {.seed = 1, .V = c.V};
        chain_batch(&data, inputs, targets, LONG / c.T, c.T);
        bt_model_noise(m[1], 1, 5, 0);
        (void)bt_model_train_micro(m[1], inputs, targets, 1.0 / LONG, NULL, NULL);
        for (int at = 0; at < LONG; at += PIECE) {
            bt_model_noise(m[0], 1, 5, (uint64_t)at);
            int32_t in[PIECE], out[PIECE];
            /* Tokens beyond the end give no gradient. */
            for (int i = 0; i < PIECE; i++) {
                in[i] = at + i < LONG ? inputs[at + i] : 0;
                out[i] = at + i < LONG ? targets[at + i] : -1;
            }
            (void)bt_model_train_micro(m[0], in, out, 1.0 / LONG, NULL, NULL);
        }
        const bt_params *p = bt_model_params(m[0]);
        const float *a = bt_model_grads(m[0]), *b = bt_model_grads(m[1]);
        /* The two sums of the embedding are added in another order. */
        for (size_t t = 0; t < p->n; t++) {
            bool any = !p->tensors[t].tern;
            for (size_t i = p->tensors[t].offset;
                 p->tensors[t].tern && i < p->tensors[t].offset + p->tensors[t].count; i++) {
                any = any || a[i] != 0;
                if (a[i] != b[i])
                    fail_msg("norm %d, %s: %.9g, in one %.9g", norm, p->tensors[t].name,
                             (double)a[i], (double)b[i]);
            }
            assert_true(any);
        }
        bt_model_destroy(m[0]);
        bt_model_destroy(m[1]);
    }
}

static void statistics_of_ternary_weights(void **state) {
    (void)state;
    run r;
    bt_model_cfg c = bt_preset_find("nano")->model;
    c.L = 1;
    bt_err err = BT_ERR_INIT;
    bt_model_setup s = {.cfg = c, .B = 1, .train = false, .n_threads = 1};
    if (bt_model_create(&r.m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(r.m, 1);
    bt_model_quantise(r.m);
    const bt_params *p = bt_model_params(r.m);
    const bt_tensor *gate = bt_params_get(p, 0, BT_P_FFN_GATE),
                    *embed = bt_params_get(p, -1, BT_P_EMBED);
    size_t i = (size_t)(gate - p->tensors);
    bt_quant_stat q = bt_model_quant_stat(r.m, i);
    assert_true(fabs(q.zero_frac - 0.310) < 0.01); /* P(|w| < g/2) of a Gaussian */
    assert_true(fabs(q.pos_frac - 0.345) < 0.01);
    assert_true(fabs(q.scale - 0.02 * sqrt(2 / 3.14159265)) < 2e-4);
    assert_true(q.flip_frac == 0);
    float *w = bt_model_weights(r.m) + gate->offset;
    /* A quarter of the weights changes sign: all codes in it that are not zero flip. */
    for (size_t k = 0; k < gate->count / 4; k++) w[k] = -w[k];
    bt_model_quantise(r.m);
    bt_quant_stat q2 = bt_model_quant_stat(r.m, i);
    assert_true(fabs(q2.flip_frac - 0.25 * (1 - q.zero_frac)) < 0.01);
    assert_true(q2.zero_frac == q.zero_frac && q2.scale == q.scale);
    bt_model_quantise(r.m);
    assert_true(bt_model_quant_stat(r.m, i).flip_frac == 0);
    assert_true(bt_model_quant_stat(r.m, (size_t)(embed - p->tensors)).scale == 0);
    assert_true(bt_model_quant_stat(r.m, p->n).scale == 0);
    bt_model_destroy(r.m);
}

static void the_plan_equals_the_allocation(void **state) {
    (void)state;
    bt_model_setup s = {.cfg = bt_preset_find("small")->model,
                        .B = 2,
                        .prec = BT_PREC_BF16,
                        .train = true,
                        .n_threads = 1};
    bt_arena_row rows[8];
    assert_int_equal(bt_model_plan(&s, rows, 8), 5);
    size_t params = (size_t)bt_model_count(&s.cfg).params * sizeof(float), acts[3], floats[3];
    assert_string_equal(rows[0].name, "params");
    assert_true(rows[0].bytes >= params && rows[0].bytes < params + 8192);
    assert_int_equal(rows[1].bytes, rows[0].bytes);
    for (int level = BT_RECOMPUTE_NONE; level <= BT_RECOMPUTE_FULL; level++) {
        s.recompute = (bt_recompute)level;
        (void)bt_model_plan(&s, rows, 8);
        assert_string_equal(rows[3].name, "activations");
        acts[level] = rows[3].bytes;
        s.prec = BT_PREC_FP32;
        (void)bt_model_plan(&s, rows, 8);
        floats[level] = rows[3].bytes;
        s.prec = BT_PREC_BF16;
    }
    assert_true(floats[1] < floats[0] * 3 / 4 && floats[2] < floats[1] / 2);
    assert_true(acts[0] < floats[0] * 3 / 4 && acts[1] < floats[1] * 4 / 5 && acts[2] <= floats[2]);
    assert_true(acts[1] < acts[0] * 3 / 4 && acts[2] < acts[1] * 2 / 3);
    s.train = false;
    assert_int_equal(bt_model_plan(&s, rows, 8), 5);
    assert_int_equal(rows[1].bytes, 0);
    assert_true(rows[3].bytes < acts[2] * 2 / 3);
    assert_int_equal(bt_model_plan(&s, rows, 2), 2);
    s.B = 0;
    assert_int_equal(bt_model_plan(&s, rows, 8), 0);
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_model_create(&m, &s, &err), BT_ARG);
    s.B = 1;
    s.cfg.KV = 3;
    assert_int_equal(bt_model_create(&m, &s, &err), BT_ARG);
    /* More memory than any machine has is an error, not a crash. */
    s.cfg = bt_preset_find("bitnet-2b4t")->model;
    s.B = 1 << 20;
    s.train = true;
    assert_int_equal(bt_model_create(&m, &s, &err), BT_NOMEM);
    assert_null(m);
    bt_model_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(validation_attends_in_floats),
        cmocka_unit_test(every_kernel_set_follows_one_curve),
        cmocka_unit_test(int8_gradients_are_right_on_average),
        cmocka_unit_test(one_gradient_whatever_is_kept),
        cmocka_unit_test(a_long_micro_batch_is_its_pieces),
        cmocka_unit_test(statistics_of_ternary_weights),
        cmocka_unit_test(the_plan_equals_the_allocation),
    };
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}
