/* isa_generic.h - the plain-loop slots of isa_generic_gemm.c, for the table in isa_generic.c. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_GENERIC_H
#define BT_ENGINE_KERNELS_ISA_ISA_GENERIC_H

#include "engine/kernels/table/kernels.h"

size_t bt_generic_tern_bytes(size_t N, size_t K);
void bt_generic_tern_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                          size_t n1);
size_t bt_generic_packed_2bit_bytes(size_t N, size_t K);
void bt_generic_packed_2bit_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                                 size_t n1);
void bt_generic_packed_2bit_codes(int8_t *codes, const void *packed, size_t K, size_t n, size_t k0,
                                  size_t k1);
void bt_generic_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq,
                         const void *packed, float scale, size_t m0, size_t m1, size_t N, size_t K,
                         int flags, void *scratch);
void bt_generic_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                        float scale, size_t m0, size_t m1, size_t N, size_t K, bt_prec prec,
                        int flags, void *scratch);
void bt_generic_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                        size_t M, size_t N, size_t K, size_t n0, size_t n1, bt_prec prec,
                        void *scratch);
void bt_generic_tern_dx8(float *dx, size_t lddx, bt_grads dy, const void *packed, float scale,
                         size_t m0, size_t m1, size_t N, size_t K, const bt_noise *noise, int flags,
                         void *scratch);
void bt_generic_tern_dw8(float *dw, bt_grads dy, const int8_t *xq, const float *dq, size_t M,
                         size_t N, size_t K, size_t n0, size_t n1, const bt_noise *noise,
                         void *scratch);
size_t bt_generic_w8_bytes(size_t N, size_t K);
void bt_generic_w8_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                        size_t n1);
void bt_generic_w8_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                       const float *row_scale, size_t m0, size_t m1, size_t N, size_t K,
                       const bt_noise *noise, int flags, void *scratch);
void bt_generic_w8_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const int8_t *codes,
                       const float *row_scale, size_t m0, size_t m1, size_t N, size_t K,
                       void *scratch);
void bt_generic_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b,
                     size_t ldb, int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec,
                     int flags, void *scratch);
void bt_generic_attn_fwd(float *o, float *lse, const void *q, const void *k, const void *v,
                         const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec, void *scratch);
void bt_generic_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o,
                         const float *lse, const void *q, const void *k, const void *v,
                         const bt_attn_shape *s, bt_prec prec, void *scratch);
void bt_generic_tern_gemv(float *y, size_t ldy, const int8_t *xq, const float *dq, size_t M,
                          const uint8_t *packed2, float scale, size_t K, size_t n0, size_t n1,
                          int flags, void *scratch);
size_t bt_generic_scratch_bytes(size_t M, size_t N, size_t K, size_t T, size_t D);

#endif
