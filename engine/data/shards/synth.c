/* synth.c - computes the synthetic chain up to the requested token, 16 steps per division. */
#include "engine/data/shards/synth.h"

#include <string.h>

#include "engine/base/rng.h"

void bt_synth_init(bt_synth *s, const char *name, int V, uint64_t seed) {
    *s = (bt_synth){.seed = seed, .V = (uint64_t)V, .random = strcmp(name, "synth:random") == 0};
}

static uint64_t synth_noise(const bt_synth *s, uint64_t i) {
    return bt_splitmix64(s->seed + i) & 3;
}

/* Without a division for each step: 5^16 * 2^20 + ... < 2^58. */
static void advance_chain_to(bt_synth *s, uint64_t to) {
    if (to < s->at) s->at = s->x = 0;
    while (to - s->at >= 16) {
        uint64_t x = s->x;
        for (uint64_t i = 0; i < 16; i++) x = 5 * x + 17 + synth_noise(s, s->at + i);
        s->x = x % s->V;
        s->at += 16;
    }
    for (; s->at < to; s->at++) s->x = (5 * s->x + 17 + synth_noise(s, s->at)) % s->V;
}

void bt_synth_read(bt_synth *s, uint64_t first, size_t n, int32_t *out) {
    if (s->random) {
        for (size_t i = 0; i < n; i++)
            out[i] = (int32_t)(bt_splitmix64(s->seed + first + i) % s->V);
        return;
    }
    advance_chain_to(s, first);
    for (size_t i = 0; i < n; i++, s->at++) {
        out[i] = (int32_t)s->x;
        s->x = (5 * s->x + 17 + synth_noise(s, s->at)) % s->V;
    }
}
