/* mixture.h - chooses the source of each sequence of a run, by weights that may change at given steps.
 *
 * The choice depends only on the number of the sequence, so a resumed run on any layout continues with the next
 * sequence. A period has as many sequences as the sum of the reduced weights; in it each source occurs as often as its
 * weight, as evenly spread as possible (smooth weighted round robin).
 * Text: "3:1", or "3:1,5000=1:1" for other weights from step 5000 on. Weights have up to four decimals.
 * Threads: constant after create. */
#ifndef BT_ENGINE_DATA_SHARDS_MIXTURE_H
#define BT_ENGINE_DATA_SHARDS_MIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_mixture bt_mixture;

/* n: number of sources. sequences_per_step: sum over all ranks. BT_ARG: the error describes the fault in the text. */
bt_code bt_mixture_create(bt_mixture **out, const char *text, size_t n, int sequences_per_step,
                          bt_err *err) BT_MUST_CHECK;
void bt_mixture_destroy(bt_mixture *m); /* accepts NULL */

/* Returns how many of the first n sequences of the run are from source k. */
uint64_t bt_mixture_count(const bt_mixture *m, size_t k, uint64_t n);

typedef struct bt_mixture_pick {
    size_t source;
    uint64_t index; /* number of earlier sequences from this source */
} bt_mixture_pick;
bt_mixture_pick bt_mixture_at(const bt_mixture *m, uint64_t sequence);
/* Returns true if other weights than those of the sequence before begin with this one. */
bool bt_mixture_changes_at(const bt_mixture *m, uint64_t sequence);

#endif
