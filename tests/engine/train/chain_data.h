/* chain_data.h - a loader of synthetic data (synth:chain), a tenth of which is the validation split. */
#ifndef BT_TESTS_ENGINE_TRAIN_CHAIN_DATA_H
#define BT_TESTS_ENGINE_TRAIN_CHAIN_DATA_H

#include "engine/data/shards/loader.h"

static inline bt_loader_cfg chain_data(int B, int T, int V) {
    return (bt_loader_cfg){.paths = "synth:chain",
                           .tokenizer = "bytes",
                           .val_paths = "",
                           .val_frac = 0.1,
                           .cache_dir = "",
                           .B = B,
                           .T = T,
                           .V = V,
                           .seed = 4};
}

#endif
