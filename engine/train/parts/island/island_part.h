/* island_part.h - what a training that is an island keeps from step to step. */
#ifndef BT_ENGINE_TRAIN_ISLAND_PART_H
#define BT_ENGINE_TRAIN_ISLAND_PART_H

#include "engine/islands/island/island.h"
#include "engine/train/trainer.h"

typedef struct bt_island_part {
    bt_trainer *trainer;
    bt_island *island; /* NULL: not joined yet */
    int64_t left;      /* steps until the next exchange with the hub */
    int64_t ahead;     /* steps since a delta that the hub has not answered; -1: there is none */
    bt_err hub_lost;   /* how the training ends when the hub never came back */
    /* sequences of this step and the next one begin here; those of the loader's step; the shares of this rank
     * that the loader has */
    int64_t begin, next, stride, share_first, share_n;
    int64_t stop_ns; /* when an exchange began in a step that was asked to stop; else 0 */
} bt_island_part;

#endif
