/* normal.c - normally distributed numbers of the counter-based generator: Box-Muller in double over blocks of pairs.
 *
 * Initialising a model takes one number per parameter. Log, sine and cosine are therefore polynomials without branches
 * (those of fdlibm, each with an error below one unit in the last place), which the compiler vectorises for three kinds
 * of processors. Each product is rounded separately (-ffp-contract=off), so the bits do not depend on the processor.
 *
 * The result has the bits that libm's functions would give: if a double is so close to the middle between two floats
 * that its last places decide the rounding (one in four million), it is computed again with libm. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engine/base/rng.h"

enum { PAIRS = 32 };

static const double TWO_PI = 6.283185307179586;

/* Pair p has the numbers of indices 2p and 2p+1, so a slice may begin anywhere. */
static void exact_pair(double out[2], uint64_t pair, uint64_t seed, uint64_t stream) {
    double u = bt_rng_unit(seed, stream, 2 * pair), v = bt_rng_unit(seed, stream, 2 * pair + 1);
    double r = sqrt(-2.0 * log(1.0 - u)), a = TWO_PI * v;
    out[0] = r * cos(a);
    out[1] = r * sin(a);
}

#define INLINE static inline __attribute__((always_inline))

INLINE double as_double(uint64_t b) {
    double d;
    memcpy(&d, &b, sizeof d);
    return d;
}

INLINE uint64_t as_bits(double d) {
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    return b;
}

INLINE uint64_t splitmix64_inline(uint64_t i) {
    uint64_t z = i + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Converts 53 bits like bt_rng_unit. Both summands and their sum are exact. */
INLINE double unit_from_bits(uint64_t z) {
    uint64_t n = z >> 11;
    double low = as_double((n & 0xffffffffu) | 0x4330000000000000u),
           high = as_double((n >> 32) | 0x4530000000000000u);
    return ((high - 0x1.00000001p84) + low) * 0x1p-53;
}

/* Returns log x for x in [2^-53, 1], where x = 2^k (1 + f) and 1 + f is in [sqrt(1/2), sqrt(2)). */
INLINE double log_of(double x) {
    uint64_t b = as_bits(x) + 0x3ff0000000000000u - 0x3fe6a09e00000000u;
    double k = as_double((b >> 52) + 0x4330000000000000u) - (0x1p52 + 1023.0);
    double f = as_double((b & 0xfffffffffffffu) + 0x3fe6a09e00000000u) - 1.0;
    double half = 0.5 * f * f, s = f / (2.0 + f), z = s * s, w = z * z;
    double odd = z * (6.666666666666735130e-01 +
                      w * (2.857142874366239149e-01 +
                           w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    double even = w * (3.999999999940941908e-01 +
                       w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    return s * (half + (odd + even)) + k * 1.90821492927058770002e-10 - half + f +
           k * 6.93147180369123816490e-01;
}

/* Computes sine and cosine for a in [0, 2 pi]. Subtracts the nearest multiple n of pi/2, which is stored in three
 * parts; the subtraction of the last two has the remainder x + y. */
INLINE void sin_cos(double *sine, double *cosine, double a) {
    double t = a * 6.36619772367581382433e-01 + 0x1.8p52, n = t - 0x1.8p52;
    uint64_t turns = as_bits(t);
    double r = a - n * 1.57079632673412561417e+00, w = n * 6.07710050630396597660e-11, q = r - w;
    double rest = ((r - q) - w) - n * 2.02226624879595063154e-21;
    double x = q + rest, y = (q - x) + rest;
    double z = x * x, zz = z * z, v = z * x, half = 0.5 * z, one = 1.0 - half;
    double ps = 8.33333333332248946124e-03 +
                z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06) +
                z * zz * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
    double s = x - ((z * (0.5 * y - v * ps) - y) + v * 1.66666666666666324348e-01);
    double pc = z * (4.16666666666666019037e-02 +
                     z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05)) +
                zz * zz *
                    (-2.75573143513906633035e-07 +
                     z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
    double c = one + (((1.0 - one) - half) + (z * pc - x * y));
    uint64_t swap = 0 - (turns & 1), sb = as_bits(s), cb = as_bits(c), other = (sb ^ cb) & swap;
    *sine = as_double((sb ^ other) ^ (turns & 2) << 62);
    *cosine = as_double((cb ^ other) ^ ((turns + 1) & 2) << 62);
}

/* Returns nonzero if a double within 64 last places of d rounds to another float. */
INLINE uint64_t is_near_rounding_middle(double d) {
    return ((as_bits(d) & 0x1fffffffu) - (0x10000000u - 64)) < 128;
}

/* Computes both numbers of PAIRS pairs, times sigma. Returns true if any of them may round differently with libm. */
INLINE bool normal_block(double out[2 * PAIRS], uint64_t pair, double sigma, uint64_t base) {
    double even[PAIRS], odd[PAIRS];
    uint64_t near = 0;
    for (size_t i = 0; i < PAIRS; i++) {
        uint64_t index = 2 * (pair + i);
        double r = sqrt(-2.0 * log_of(1.0 - unit_from_bits(splitmix64_inline(base ^ index)))), s, c;
        sin_cos(&s, &c, TWO_PI * unit_from_bits(splitmix64_inline(base ^ (index + 1))));
        even[i] = r * c * sigma;
        odd[i] = r * s * sigma;
        near += is_near_rounding_middle(even[i]) + is_near_rounding_middle(odd[i]);
    }
    for (size_t i = 0; i < PAIRS; i++) {
        out[2 * i] = even[i];
        out[2 * i + 1] = odd[i];
    }
    return near != 0;
}

typedef bool (*block_fn)(double out[2 * PAIRS], uint64_t pair, double sigma, uint64_t base);

static bool block_any(double out[2 * PAIRS], uint64_t pair, double sigma, uint64_t base) {
    return normal_block(out, pair, sigma, base);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static bool block_avx2(double out[2 * PAIRS], uint64_t pair,
                                                       double sigma, uint64_t base) {
    return normal_block(out, pair, sigma, base);
}

__attribute__((target("avx512f,avx512dq"))) static bool block_avx512(double out[2 * PAIRS],
                                                                     uint64_t pair, double sigma,
                                                                     uint64_t base) {
    return normal_block(out, pair, sigma, base);
}

static block_fn choose_fastest_block(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return block_avx512;
    return __builtin_cpu_supports("avx2") ? block_avx2 : block_any;
}
#else
static block_fn choose_fastest_block(void) { return block_any; }
#endif

void bt_rng_normal(float *out, size_t n, uint64_t first, float sigma, uint64_t seed,
                   uint64_t stream) {
    block_fn fill = choose_fastest_block();
    uint64_t base = bt_splitmix64(bt_splitmix64(seed) ^ stream), last = first + n;
    double normals[2 * PAIRS];
    for (uint64_t pair = first / 2; 2 * pair < last; pair += PAIRS) {
        bool near = fill(normals, pair, (double)sigma, base);
        for (size_t i = 0; near && i < 2 * PAIRS; i += 2) {
            if (!is_near_rounding_middle(normals[i]) && !is_near_rounding_middle(normals[i + 1]))
                continue;
            exact_pair(normals + i, pair + i / 2, seed, stream);
            normals[i] *= (double)sigma;
            normals[i + 1] *= (double)sigma;
        }
        uint64_t at = 2 * pair, from = at < first ? first : at,
                 to = at + 2 * PAIRS < last ? at + 2 * PAIRS : last;
        for (uint64_t i = from; i < to; i++) out[i - first] = (float)normals[i - at];
    }
}
