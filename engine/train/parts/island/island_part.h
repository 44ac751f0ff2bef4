/* island_part.h - state of a training that is an island of a hub. */
#ifndef BT_ENGINE_TRAIN_ISLAND_PART_H
#define BT_ENGINE_TRAIN_ISLAND_PART_H

#include "engine/islands/island/island.h"
#include "engine/train/trainer.h"

typedef struct bt_island_part {
    bt_trainer *trainer;
    bt_island *island; /* NULL before joining a hub */
    int64_t left;
    int64_t
        ahead; /* steps since a delta that the hub has not answered; -1 if every delta was answered */
    bt_err hub_lost; /* error that ends the training after the hub was lost */
    /* first sequences of this step and the next one; number of sequences of a loader step; the micro-batches of this
     * rank in the loader */
    int64_t begin, next, stride, share_first, share_n;
    int64_t stop_ns; /* start of the exchange during which a stop was requested; else 0 */
} bt_island_part;

#endif
