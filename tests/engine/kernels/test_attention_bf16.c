/* Attention with q, k, v and o in bf16 (bt_attn_shape.bf16) gives the bits of the same values as floats; rotating
 * gradients within the pass gives the bits of a rotation after it. */
#include "tests/engine/kernels/isa_util.h"

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

/* Rounds x to bf16 in place and returns the same values as bf16. */
static uint16_t *bf16_of(float *x, size_t n) {
    uint16_t *half = take(n * sizeof *half, 4);
    bt_kernels_generic.to_bf16(half, x, n);
    bt_kernels_generic.from_bf16(x, half, n);
    return half;
}

static void check_bf16_heads(const bt_kernels *k, size_t T, size_t D, size_t window, bool int8) {
    bt_attn_shape s = uneven_heads(T, D, window);
    s.int8 = int8;
    bt_attn_shape kept = s;
    kept.bf16 = true;
    const size_t nq = T * s.ldq, nk = T * s.ldk, nv = T * s.ldv, no = T * s.ldo;
    float *q = floats(nq), *kk = floats(nk), *v = floats(nv), *go = floats(no), *o = filled(no, 9),
          *wo = filled(no, 9), *lse = filled(T, 9), *wl = filled(T, 9);
    q[0] = 1e-40f; /* Products treat subnormals as zero in both formats. */
    uint16_t *q16 = bf16_of(q, nq), *k16 = bf16_of(kk, nk), *v16 = bf16_of(v, nv);
    void *tmp = scratch_for(k, 1, 1, 1, T, D);
    k->attn_fwd(wo, wl, q, kk, v, &s, 0, T, BT_PREC_BF16, tmp);
    k->attn_fwd(o, lse, q16, k16, v16, &kept, 0, T, BT_PREC_BF16, tmp);
    same_bits("o of bf16", o, wo, no * 4);
    same_bits("lse of bf16", lse, wl, T * 4);
    uint16_t *o16 = bf16_of(wo, no);
    float *dq = filled(nq, 9), *wdq = filled(nq, 9), *dk = floats(nk), *wdk = copy_of(dk, nk),
          *dv = floats(nv), *wdv = copy_of(dv, nv);
    k->attn_bwd(wdq, wdk, wdv, go, wo, wl, q, kk, v, &s, BT_PREC_BF16, tmp);
    k->attn_bwd(dq, dk, dv, go, o16, wl, q16, k16, v16, &kept, BT_PREC_BF16, tmp);
    same_bits("dq of bf16", dq, wdq, nq * 4);
    same_bits("dk of bf16", dk, wdk, nk * 4);
    same_bits("dv of bf16", dv, wdv, nv * 4);
    drop_all("attention of bf16");
}

static void check_all_bf16_heads(const bt_kernels *k) {
    static const size_t T[] = {1, 2, 15, 17, 33, 64, 65, 129, 200},
                        D[] = {2, 16, 30, 32, 64, 66, 128};
    for (size_t i = 0; i < sizeof T / sizeof *T; i++)
        for (size_t j = 0; j < sizeof D / sizeof *D; j++)
            for (int int8 = 0; int8 < 2; int8++)
                check_bf16_heads(k, T[i], D[j], (i + j) % 3 ? 0 : 1 + i * i, int8);
}

static void bf16_attention_equals_floats(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    if (!bt_kernels_multiply_bf16()) skip();
    check_all_bf16_heads(bt_active_kernels());
    bt_kernels amx;
    if (emulated_amx(&amx)) check_all_bf16_heads(&amx);
}

enum { B = 2, T = 37, H = 4, KV = 2, D = 6 };

static void rotated_gradients_equal_a_separate_rotation(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    static int32_t pos[B * T];
    const size_t nq = B * T * H * D, nk = B * T * KV * D;
    const bt_attn_document documents[] = {{0, T, false}, {T, 20, false}, {T + 20, 17, true}};
    for (size_t i = 0; i < B * T; i++) pos[i] = (int32_t)(i % T);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    for (int split = 0; split < 2; split++) {
        bt_attn_shape s = {.T = T,
                           .D = D,
                           .ldq = H * D,
                           .ldk = KV * D,
                           .ldv = KV * D,
                           .ldo = H * D,
                           .scale = 0.3f,
                           .documents = split ? documents : NULL,
                           .n_documents = split ? 3 : 0};
        float *q = floats(nq), *k = floats(nk), *v = floats(nk), *go = floats(nq),
              *o = filled(nq, 0), *lse = filled(B * T * H, 0), *dq = filled(nq, 9),
              *dk = filled(nk, 9), *dv = filled(nk, 9), *wdq = filled(nq, 9), *wdk = filled(nk, 9),
              *wdv = filled(nk, 9);
        float *cosines = floats(T * D / 2), *sines = floats(T * D / 2);
        const bt_rotation by = {cosines, sines, pos, D};
        assert_int_equal(bt_threads_init(2, &err), BT_OK);
        assert_int_equal(bt_ops_plan(1, 1, 1, T, D, NULL, &err), BT_OK);
        bt_op_attn_fwd(o, lse, q, k, v, &s, B, H, KV, BT_PREC_FP32);
        bt_op_attn_bwd(wdq, wdk, wdv, go, o, lse, q, k, v, &s, B, H, KV, 1, BT_PREC_FP32);
        bt_op_rope(wdq, H * D, &by, 1, B * T, H, D);
        bt_op_rope(wdk, KV * D, &by, 1, B * T, KV, D);
        s.turned = &by;
        bt_op_attn_bwd(dq, dk, dv, go, o, lse, q, k, v, &s, B, H, KV, 1, BT_PREC_FP32);
        same_bits("dq turned back", dq, wdq, nq * 4);
        same_bits("dk turned back", dk, wdk, nk * 4);
        same_bits("dv beside them", dv, wdv, nk * 4);
        /* The heads may also be saved after rotation. */
        uint16_t *want = take(nq * sizeof *want, 4), *saved = take(nq * sizeof *saved, 4);
        float *x = copy_of(q, nq);
        bt_op_rope(q, H * D, &by, 0, B * T, H, D);
        bt_op_save_bf16(want, q, nq);
        bt_op_rope_save(saved, x, &by, B * T, H, D);
        same_bits("turned heads as bf16", saved, want, nq * 2);
        bt_threads_release();
        bt_ops_release();
        drop_all("turned heads");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_attention_equals_floats),
        cmocka_unit_test(rotated_gradients_equal_a_separate_rotation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
