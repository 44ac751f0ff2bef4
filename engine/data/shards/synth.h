/* synth.h - synthetic data of known entropy, equal to the stream of bench/peer_torch.py.
 *
 * chain: x' = (5x + 17 + e) mod V, where e is the low two bits of splitmix64(seed + i); a model that has learned the
 * rule has a loss of log 4 nats a token. random: splitmix64(seed + i) mod V.
 * Cost: a sequential read takes a few ns an id. A jump forward takes about 1 ns for each id skipped, and a jump back
 * starts again at id 0, because no closed form exists. */
#ifndef BT_ENGINE_DATA_SHARDS_SYNTH_H
#define BT_ENGINE_DATA_SHARDS_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_synth {
    uint64_t seed, V;
    bool random;
    uint64_t at, x; /* chain: x is id number `at` */
} bt_synth;

/* name: "synth:chain" or "synth:random". */
void bt_synth_init(bt_synth *s, const char *name, int V, uint64_t seed);
void bt_synth_read(bt_synth *s, uint64_t first, size_t n, int32_t *out);

#endif
