/* elements.c - converts elements of each type to floats and back: fp16, bf16, and the blocks of ggml.
 *
 *     Q8_0   32: fp16 d, 32 x int8 q                  x = d q
 *     TQ2_0  256: 64 bytes of codes, fp16 d           two blocks of kernels/table/ternary.h
 *     TQ1_0  256: 32 + 16 bytes of five codes each, 4 bytes of four, fp16 d. Byte m of the 32 holds
 *            codes 32 n + m (n = 0..4), of the 16 codes 160 + 16 n + m, of the 4 codes
 *            240 + 4 n + m (n = 0..3); first digit most significant, in base 3, as a fraction of 256
 *
 * Verified byte for byte against the packers of the `gguf` package (tests/engine/interop). */
#include <math.h>
#include <string.h>

#include "engine/interop/formats/formats.h"
#include "engine/interop/formats/quantised.h"
#include "engine/kernels/table/half.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/ternary.h"

enum { Q8 = 32, TQ = 256, TQ2_CODES = 64, TQ1_CODES = 52, SOME = 2048 };

static uint16_t u16_at(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static void put_u16(unsigned char *p, uint16_t v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

/* Elements in files may have any alignment. */
static void decode_16(bt_number t, float *out, const unsigned char *in, size_t n) {
    uint16_t some[SOME];
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < SOME ? n - i : SOME;
        memcpy(some, in + 2 * i, 2 * k);
        (t == BT_NUM_F16 ? bt_active_kernels()->from_half
                         : bt_active_kernels()->from_bf16)(out + i, some, k);
    }
}

static void decode_q8(float *out, const unsigned char *in, size_t n) {
    for (size_t b = 0; b < n / Q8; b++, in += 34) {
        const float d = bt_half_to_float(u16_at(in));
        for (size_t i = 0; i < Q8; i++) out[b * Q8 + i] = d * (float)(int8_t)in[2 + i];
    }
}

static bt_code decode_tq2(float *out, const unsigned char *in, size_t n, bt_err *err) {
    int8_t codes[TQ];
    for (size_t b = 0; b < n / TQ; b++, in += 66) {
        const float d = bt_half_to_float(u16_at(in + TQ2_CODES));
        BT_TRY(bt_tern2_unpack(codes, in, 1, TQ, err));
        for (size_t i = 0; i < TQ; i++) out[b * TQ + i] = d * (float)codes[i];
    }
    return BT_OK;
}

static float unpack_base3_digit(unsigned char byte, size_t n) {
    static const unsigned pow3[] = {1, 3, 9, 27, 81};
    const unsigned q = byte * pow3[n] & 0xffu;
    return (float)(int)(q * 3 >> 8) - 1.0f;
}

static void decode_tq1(float *out, const unsigned char *in, size_t n) {
    for (size_t b = 0; b < n / TQ; b++, in += 54) {
        const float d = bt_half_to_float(u16_at(in + TQ1_CODES));
        float *x = out + b * TQ;
        for (size_t k = 0; k < 5; k++) {
            for (size_t m = 0; m < 32; m++) x[32 * k + m] = d * unpack_base3_digit(in[m], k);
            for (size_t m = 0; m < 16; m++)
                x[160 + 16 * k + m] = d * unpack_base3_digit(in[32 + m], k);
            for (size_t m = 0; k < 4 && m < 4; m++)
                x[240 + 4 * k + m] = d * unpack_base3_digit(in[48 + m], k);
        }
    }
}

bt_code bt_number_decode(bt_number t, float *out, const unsigned char *in, size_t n, bt_err *err) {
    switch (t) {
    case BT_NUM_F32: memcpy(out, in, n * sizeof *out); break;
    case BT_NUM_F16:
    case BT_NUM_BF16: decode_16(t, out, in, n); break;
    case BT_NUM_Q8_0: decode_q8(out, in, n); break;
    case BT_NUM_TQ2_0: return decode_tq2(out, in, n, err);
    case BT_NUM_TQ1_0: decode_tq1(out, in, n); break;
    default:
        if (bt_quantised_decode(t, out, in, n)) return BT_OK;
        if (t == BT_NUM_I2_S) return bt_fail(err, BT_FORMAT, "a code of i2_s is not 0, 1 or 2");
        return bt_fail(err, BT_UNSUPPORTED, "elements of type %d cannot be read in blocks", (int)t);
    }
    return BT_OK;
}

/* Returns true if x is the common size of a tensor's nonzero elements. If *size is 0, x becomes this size. */
static bool is_common_size(float x, float *size) {
    if (*size == 0) *size = x;
    return x == *size && isfinite(x);
}

static bool convert_floats_to_codes(int8_t *restrict codes, const float *restrict x, size_t n,
                                    float *size) {
    float most = *size;
    for (size_t i = 0; most == 0 && i < n; i++) most = fabsf(x[i]);
    if (most != 0 && !is_common_size(most, size)) return false;
    unsigned wrong = 0;
    for (size_t i = 0; i < n; i++) {
        codes[i] = (int8_t)((x[i] > 0) - (x[i] < 0));
        wrong |= (x[i] != 0) & (fabsf(x[i]) != most);
    }
    return !wrong;
}

/* Multiplies 256 codes by the sign of d, or by 0 if d is 0; returns false if |d| is not the common size. */
static bool apply_block_scale(int8_t *codes, float d, float *size) {
    unsigned any = 0;
    for (size_t i = 0; i < TQ; i++) any |= (unsigned)(codes[i] != 0);
    if (!isfinite(d) || (any && d != 0 && !is_common_size(fabsf(d), size))) return false;
    if (d == 0) memset(codes, 0, TQ);
    for (size_t i = 0; d < 0 && i < TQ; i++) codes[i] = (int8_t)-codes[i];
    return true;
}

static void unpack_digits(int8_t *restrict codes, const unsigned char *restrict in, size_t m,
                          unsigned pow3) {
    for (size_t i = 0; i < m; i++) {
        const uint16_t q = (uint16_t)(in[i] * pow3 & 0xffu);
        codes[i] = (int8_t)((uint16_t)(q * 3u) >> 8) - 1;
    }
}

static void tq1_block(int8_t *codes, const unsigned char *in) {
    static const unsigned pow3[] = {1, 3, 9, 27, 81};
    for (size_t k = 0; k < 5; k++) {
        unpack_digits(codes + 32 * k, in, 32, pow3[k]);
        unpack_digits(codes + 160 + 16 * k, in + 32, 16, pow3[k]);
        if (k < 4) unpack_digits(codes + 240 + 4 * k, in + 48, 4, pow3[k]);
    }
}

bool bt_number_codes(bt_number t, int8_t *codes, const unsigned char *in, size_t n, float *size) {
    if (t == BT_NUM_TQ1_0 || t == BT_NUM_TQ2_0) {
        const size_t bytes = bt_number_bytes(t, TQ);
        for (size_t b = 0; b < n / TQ; b++, in += bytes, codes += TQ) {
            if (t == BT_NUM_TQ1_0)
                tq1_block(codes, in);
            else if (bt_tern2_unpack(codes, in, 1, TQ, NULL) != BT_OK)
                return false;
            if (!apply_block_scale(codes, bt_half_to_float(u16_at(in + bytes - 2)), size))
                return false;
        }
        return true;
    }
    float x[SOME];
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < SOME ? n - i : SOME;
        if (bt_number_decode(t, x, in + bt_number_bytes(t, i), k, NULL) != BT_OK ||
            !convert_floats_to_codes(codes + i, x, k, size))
            return false;
    }
    return true;
}

static void encode_16(bt_number t, unsigned char *out, const float *in, size_t n) {
    uint16_t some[SOME];
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < SOME ? n - i : SOME;
        (t == BT_NUM_F16 ? bt_active_kernels()->to_half : bt_active_kernels()->to_bf16)(some,
                                                                                        in + i, k);
        memcpy(out + 2 * i, some, 2 * k);
    }
}

/* Rounds like the packers of ggml: multiplies by 1/d of the unrounded d, and rounds halves away from zero. */
static void encode_q8(unsigned char *out, const float *in, size_t n) {
    for (size_t b = 0; b < n / Q8; b++, out += 34) {
        float most = 0;
        for (size_t i = 0; i < Q8; i++) most = fmaxf(most, fabsf(in[b * Q8 + i]));
        const float d = most / 127.0f, inv = d != 0 ? 1.0f / d : 0.0f;
        put_u16(out, bt_float_to_half(d));
        for (size_t i = 0; i < Q8; i++)
            out[2 + i] = (unsigned char)(int8_t)roundf(in[b * Q8 + i] * inv);
    }
}

void bt_number_encode(bt_number t, unsigned char *out, const float *in, size_t n) {
    if (t == BT_NUM_F32) memcpy(out, in, n * sizeof *in);
    if (t == BT_NUM_F16 || t == BT_NUM_BF16) encode_16(t, out, in, n);
    if (t == BT_NUM_Q8_0) encode_q8(out, in, n);
}

static unsigned char pack_base3_digits(const int8_t *codes, size_t step, size_t n) {
    unsigned q = 0;
    for (size_t k = 0; k < 5; k++) q = q * 3 + (k < n ? (unsigned)(codes[k * step] + 1) : 0);
    return (unsigned char)((q * 256 + 242) / 243);
}

static void encode_tq1(unsigned char *out, const int8_t *c) {
    for (size_t m = 0; m < 32; m++) out[m] = pack_base3_digits(c + m, 32, 5);
    for (size_t m = 0; m < 16; m++) out[32 + m] = pack_base3_digits(c + 160 + m, 16, 5);
    for (size_t m = 0; m < 4; m++) out[48 + m] = pack_base3_digits(c + 240 + m, 4, 4);
}

/* Byte j of a block contains the codes j, 32 + j, 64 + j and 96 + j, the first one in the upper bits. */
static void encode_i2_s(unsigned char *out, const int8_t *codes, size_t n) {
    for (size_t i = 0; i < n; i += 128, codes += 128)
        for (size_t j = 0; j < 32; j++)
            *out++ = (unsigned char)((codes[j] + 1) << 6 | (codes[32 + j] + 1) << 4 |
                                     (codes[64 + j] + 1) << 2 | (codes[96 + j] + 1));
}

static void encode_q2_0(unsigned char *out, const int8_t *codes, float scale, size_t n) {
    for (size_t b = 0; b < n / 64; b++, out += 18, codes += 64) {
        bool any = false;
        memset(out, 0, 18);
        for (size_t i = 0; i < 64; i++) {
            any |= codes[i] != 0;
            out[2 + i / 4] |= (unsigned char)((codes[i] + 1) << i % 4 * 2);
        }
        put_u16(out, any ? bt_float_to_half(scale) : 0);
    }
}

void bt_number_encode_codes(bt_number t, unsigned char *out, const int8_t *codes, float scale,
                            size_t n) {
    if (t == BT_NUM_I2_S) {
        encode_i2_s(out, codes, n);
        return;
    }
    if (t == BT_NUM_Q2_0) {
        encode_q2_0(out, codes, scale, n);
        return;
    }
    const size_t bytes = bt_number_bytes(t, TQ);
    for (size_t b = 0; b < n / TQ; b++, out += bytes, codes += TQ) {
        bool any = false;
        for (size_t i = 0; i < TQ; i++) any |= codes[i] != 0;
        if (t == BT_NUM_TQ2_0)
            bt_tern2_pack(out, codes, 1, TQ);
        else
            encode_tq1(out, codes);
        put_u16(out + bytes - 2, any ? bt_float_to_half(scale) : 0);
    }
}
