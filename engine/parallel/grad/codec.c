/* codec.c - looks up rows of codec.def. */
#include "engine/parallel/grad/codec.h"

#define BT_CODEC(id, name) &bt_codec_##name,
static const bt_codec *const rows[BT_CODEC_COUNT] = {
#include "engine/parallel/grad/codec.def"
};
#undef BT_CODEC

const bt_codec *bt_codec_at(bt_codec_id id) { return rows[id]; }

bt_codec_id bt_codec_back(bt_codec_id id) {
    for (int i = 0; rows[id]->back && i < BT_CODEC_COUNT; i++)
        if (rows[i] == rows[id]->back) return (bt_codec_id)i;
    return id;
}
