/* kernel_calls.c - calls one kernel slot a given number of times, for count_instructions.sh: kernel_calls ISA SLOT
 * CALLS. It prints the multiply-adds (or elements) of one call. Two runs with different CALLS differ only by the
 * instructions of the calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/table/kernels.h"

enum { M = 96, N = 192, K = 512, T = 128, D = 64 };

static const bt_kernels *k;
static float *x, *y, *z, *w, *dq;
static int8_t *q, *codes;
static void *packed, *two, *scratch;
static uint32_t keys[1024];
static bt_attn_shape heads = {
    .T = T, .D = D, .ldq = D, .ldk = D, .ldv = D, .ldo = D, .scale = 0.125f};

static void *allocate_zeros(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) exit(1);
    memset(p, 0, (bytes + 127) / 64 * 64);
    return p;
}

static double call_slot(const char *slot) {
    const bt_noise noise = {.rows = keys, .salt = 1};
    const double product = (double)M * N * K;
    if (strcmp(slot, "tern_fwd") == 0)
        return k->tern_fwd(y, N, q, dq, packed, 1, 0, M, N, K, 0, scratch), product;
    if (strcmp(slot, "tern_fwd of 2 bits") == 0)
        return k->tern_fwd(y, N, q, dq, two, 1, 0, M, N, K, BT_COMPACT, scratch), product;
    if (strcmp(slot, "tern_dx8") == 0)
        return k->tern_dx8(y, K, bt_grads_f32(x, N), packed, 1, 0, M, N, K, &noise, 0, scratch),
               product;
    if (strcmp(slot, "tern_dw8") == 0)
        return k->tern_dw8(w, bt_grads_f32(x, N), q, dq, M, N, K, 0, N, &noise, scratch), product;
    if (strcmp(slot, "tern_dx") == 0)
        return k->tern_dx(y, K, x, N, packed, 1, 0, M, N, K, BT_PREC_FP32, 0, scratch), product;
    if (strcmp(slot, "gemm") == 0)
        return k->gemm(y, N, x, K, 0, w, K, 1, 1, M, N, K, BT_PREC_FP32, 0, scratch), product;
    if (strcmp(slot, "tern_gemv") == 0)
        return k->tern_gemv(y, N, q, dq, 1, (const uint8_t *)two, 1, K, 0, N, 0, scratch),
               (double)N * K;
    if (strcmp(slot, "gemv") == 0) return k->gemv(y, N, w, BT_AS_F32, x, 1, K, 0, N), (double)N * K;
    heads.int8 = strstr(slot, "int8") != NULL;
    if (strncmp(slot, "attn_fwd", 8) == 0)
        return k->attn_fwd(y, dq, x, w, z, &heads, 0, T, BT_PREC_FP32, scratch), (double)T * T * D;
    if (strncmp(slot, "attn_bwd", 8) == 0)
        return k->attn_bwd(y, y + T * D, y + 2 * T * D, x, x, dq, x, w, z, &heads, BT_PREC_FP32,
                           scratch),
               2.5 * T * T * D;
    if (strcmp(slot, "rmsnorm_quant") == 0)
        return k->rmsnorm_quant(q, dq, y, NULL, x, NULL, 1e-5f, M, K), (double)M * K;
    if (strcmp(slot, "glu") == 0) return k->glu(y, x, w, BT_ACT_RELU2, M * K), (double)M * K;
    if (strcmp(slot, "softmax_xent") == 0)
        return k->softmax_xent(dq, x, (const int32_t *)keys, 1, M, K), (double)M * K;
    if (strcmp(slot, "adamw") == 0)
        return k->adamw(w, x, y, z, 1, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, M * K),
               (double)M * K;
    if (strcmp(slot, "tern_codes") == 0)
        return k->tern_codes(codes, w, 0, 1, 0, N * K), (double)N * K;
    if (strcmp(slot, "exact_add") == 0) {
        double sum[2] = {0, 0};
        return k->exact_add(sum, x, M * K, BT_EXACT_SQUARE, 6755399441055744.0,
                            6755399441055744.0 * 0x1p-40),
               (double)M * K;
    }
    fprintf(stderr, "kernel_calls: unknown slot '%s'\n", slot);
    exit(2);
}

int main(int argc, char **argv) {
    bt_err err = BT_ERR_INIT;
    if (argc != 4 || bt_kernels_select(argv[1], &err) != BT_OK) {
        fprintf(stderr, "kernel_calls ISA SLOT CALLS: %s\n", err.msg);
        return 2;
    }
    k = bt_active_kernels();
    const size_t floats = (size_t)N * K + 4 * T * D + 4096;
    x = allocate_zeros(4 * floats), y = allocate_zeros(4 * floats), z = allocate_zeros(4 * floats),
    w = allocate_zeros(4 * floats);
    dq = allocate_zeros(4 * floats), q = allocate_zeros(floats), codes = allocate_zeros(floats);
    for (size_t i = 0; i < floats; i++) {
        x[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
        w[i] = (float)(i * 2246822519u % 1000) / 1000 - 0.5f;
        z[i] = x[i] * x[i];
        q[i] = (int8_t)(i * 40503u % 255 - 127);
        codes[i] = (int8_t)(i * 40503u % 3 - 1);
        dq[i] = 1;
    }
    packed = allocate_zeros(k->tern_bytes(N, K)),
    two = allocate_zeros(k->packed_2bit_bytes(N, K) + N * K);
    scratch = allocate_zeros(k->scratch_bytes(M, N, K, T, D));
    k->tern_pack(packed, codes, N, K, 0, N);
    k->packed_2bit_pack(two, codes, N, K, 0, N);
    double work = 0;
    for (int i = atoi(argv[3]); i > 0; i--) work = call_slot(argv[2]);
    printf("%.0f\n", work);
    return 0;
}
