/* sha256.c - blocks of 64 bytes, the last of them padded with the length (FIPS 180-4, sections 5.1.1 and 6.2).
 * Its constants are made as the standard says where they come from: the first 32 bits of the fractions of roots of
 * primes. */
#include "engine/base/numbers/sha256.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, ROUNDS = 64, WORDS = 8 };

typedef struct sha256 {
    uint32_t h[WORDS], k[ROUNDS];
} sha256;

static bool is_prime(unsigned n) {
    for (unsigned d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return true;
}

static uint32_t fraction(long double x) { return (uint32_t)((x - floorl(x)) * 0x1p32L); }

static void begin(sha256 *s) {
    unsigned prime = 2;
    for (size_t i = 0; i < ROUNDS; prime++) {
        if (!is_prime(prime)) continue;
        if (i < WORDS) s->h[i] = fraction(sqrtl((long double)prime));
        s->k[i++] = fraction(cbrtl((long double)prime));
    }
}

static uint32_t turn(uint32_t x, unsigned n) { return x >> n | x << (32 - n); }

static void add_block(sha256 *s, const unsigned char *p) {
    uint32_t w[ROUNDS], v[WORDS];
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (size_t i = 16; i < ROUNDS; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (size_t i = 0; i < ROUNDS; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                             ((e & v[5]) ^ (~e & v[6])) + s->k[i] + w[i],
                       two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                             ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (size_t i = 0; i < WORDS; i++) s->h[i] += v[i];
}

void bt_sha256_hex(char out[BT_SHA256_HEX], const void *data, size_t n) {
    const unsigned char *p = data;
    unsigned char last[2 * BLOCK] = {0};
    const size_t whole = n / BLOCK * BLOCK, rest = n - whole,
                 end = rest + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    sha256 s;
    begin(&s);
    for (size_t at = 0; at < whole; at += BLOCK) add_block(&s, p + at);
    if (rest) memcpy(last, p + whole, rest);
    last[rest] = 0x80;
    for (size_t i = 0; i < 8; i++) last[end - 1 - i] = (unsigned char)((uint64_t)n * 8 >> 8 * i);
    for (size_t at = 0; at < end; at += BLOCK) add_block(&s, last + at);
    for (size_t i = 0; i < WORDS; i++) snprintf(out + 8 * i, 9, "%08x", s.h[i]);
}
