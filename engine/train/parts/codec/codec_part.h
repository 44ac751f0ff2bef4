/* codec_part.h - state of gradient compression. */
#ifndef BT_ENGINE_TRAIN_CODEC_PART_H
#define BT_ENGINE_TRAIN_CODEC_PART_H

#include "engine/parallel/grad/unit_rounding.h"
#include "engine/train/parts/codec/codec_choice.h"
#include "engine/update/residual.h"

typedef struct bt_codec_part {
    bt_residual residual; /* part of the gradients that the codec has not sent yet */
    /* used in reproducible training; units are not rounded if it has no groups */
    bt_unit_rounding rounding;
    bt_codec_choice choice;
} bt_codec_part;

#endif
