/* codec_none.c - gradients as fp32, sent from and received into their arrays. */
#include "engine/parallel/grad/codec.h"

const bt_codec bt_codec_none = {
    .name = "none",
    .order_exact = true,
};
