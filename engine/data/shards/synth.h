/* synth.h - data of known entropy, the stream of bench/peer_torch.py: x' = (5x + 17 + e) mod V with
 * e the low two bits of splitmix64(seed + i): log 4 nats a token once the rule is learnt. `random`
 * is splitmix64(seed + i) mod V.
 * Cost:     a sequential read is a few ns an id; a jump forward ~1 ns an id skipped, a jump back
 *           starts again at 0 (each e is independent, so no closed form exists); memory is one
 *           state. */
#ifndef BT_ENGINE_DATA_SHARDS_SYNTH_H
#define BT_ENGINE_DATA_SHARDS_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_synth {
    uint64_t seed, V;
    bool random;
    uint64_t at, x; /* chain: id number `at` is x */
} bt_synth;

/* "synth:chain", "synth:random" */
void bt_synth_init(bt_synth *s, const char *name, int V, uint64_t seed);
void bt_synth_read(bt_synth *s, uint64_t first, size_t n, int32_t *out);

#endif
