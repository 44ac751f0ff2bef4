/* island_part.h - state of a training that is an island of a hub. */
#ifndef BT_ENGINE_TRAIN_ISLAND_PART_H
#define BT_ENGINE_TRAIN_ISLAND_PART_H

#include "engine/islands/island/island.h"
#include "engine/train/trainer.h"

typedef struct bt_island_part {
    bt_trainer *trainer;
    bt_island *island; /* NULL before joining */
    int64_t left;      /* steps until the next exchange with the hub */
    int64_t ahead;   /* steps since a delta without an answer of the hub; -1 without such a delta */
    bt_err hub_lost; /* the error that ends the training after the hub was lost */
    /* sequences of this step and the next one begin here; those of the loader's step; the shares of this rank
     * that the loader has */
    int64_t begin, next, stride, share_first, share_n;
    int64_t stop_ns; /* start of an exchange in a step with a stop request; else 0 */
} bt_island_part;

#endif
