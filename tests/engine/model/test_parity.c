/* Loss and every gradient of tiny models against PyTorch's autograd (golden_tiny.bin, made by
 * make_golden.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "tests/engine/model/golden.h"

typedef struct record {
    int32_t n[15];
    double d[4];
    uint32_t count;
    float *grads;
} record;

static void read_record(FILE *f, record *r) {
    assert_int_equal(fread(r->n, sizeof r->n, 1, f), 1);
    assert_int_equal(fread(r->d, sizeof r->d, 1, f), 1);
    assert_int_equal(fread(&r->count, sizeof r->count, 1, f), 1);
    assert_in_range(r->count, 1, 1 << 20);
    r->grads = malloc(r->count * sizeof *r->grads);
    assert_non_null(r->grads);
    assert_int_equal(fread(r->grads, sizeof *r->grads, r->count, f), r->count);
}

static void check(const record *r) {
    const int32_t *n = r->n;
    bt_model_setup s = {.B = n[13], .prec = BT_PREC_FP32, .train = true, .n_threads = 1};
    s.cfg = (bt_model_cfg){.L = n[0],
                           .C = n[1],
                           .H = n[2],
                           .KV = n[3],
                           .D = n[4],
                           .F = n[5],
                           .T = n[6],
                           .V = n[7],
                           .norm = (bt_norm_kind)n[8],
                           .act = (bt_act)n[9],
                           .linear = (bt_linear_kind)n[10],
                           .tied = n[11] != 0,
                           .qk_norm = n[12] != 0,
                           .norm_eps = r->d[0],
                           .init_std = r->d[1],
                           .rope_theta = r->d[2]};
    uint64_t seed = (uint64_t)n[14];
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, seed);
    bt_model_quantise(m);
    int32_t inputs[256], targets[256];
    size_t M = (size_t)(s.B * s.cfg.T), V = (size_t)s.cfg.V;
    assert_in_range(M, 1, 256);
    for (size_t i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(seed, 0, i) % V);
        targets[i] = (int32_t)(bt_rng_u64(seed, 1, i) % V);
    }
    bt_model_zero_grads(m);
    double loss = bt_model_train_micro(m, inputs, targets, 1.0, NULL, NULL);
    if (!(fabs(loss - r->d[3]) < 1e-5 * r->d[3]))
        fail_msg("loss %.9g, PyTorch %.9g", loss, r->d[3]);
    const bt_params *p = bt_model_params(m);
    assert_int_equal(p->count, r->count);
    const float *want = r->grads;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        const float *got = bt_model_grads(m) + t->offset;
        double diff = 0, norm = 0;
        for (size_t k = 0; k < t->count; k++) {
            diff += ((double)got[k] - (double)want[k]) * ((double)got[k] - (double)want[k]);
            norm += (double)want[k] * (double)want[k];
        }
        if (!(sqrt(diff) <= 1e-4 * sqrt(norm)))
            fail_msg("gradient of %s differs from PyTorch's by %.2e of its norm", t->name,
                     sqrt(diff / norm));
        want += t->count;
    }
    bt_model_destroy(m);
}

static void every_gradient_equals_pytorch(void **state) {
    (void)state;
    FILE *f = golden_open("golden_tiny.bin");
    assert_non_null(f);
    char magic[8];
    uint32_t n = 0;
    assert_int_equal(fread(magic, sizeof magic, 1, f), 1);
    assert_memory_equal(magic, "btgold1", 8);
    assert_int_equal(fread(&n, sizeof n, 1, f), 1);
    assert_in_range(n, 6, 100);
    for (uint32_t i = 0; i < n; i++) {
        record r = {0};
        read_record(f, &r);
        check(&r);
        free(r.grads);
    }
    assert_int_equal(fgetc(f), EOF);
    (void)fclose(f);
}

static int start(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    return bt_kernels_select("auto", &err) != BT_OK;
}

static int stop(void **state) {
    (void)state;
    bt_ops_release();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_gradient_equals_pytorch)};
    return cmocka_run_group_tests(tests, start, stop);
}
