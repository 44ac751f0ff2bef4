/* codec.c - the rows of codec.def. */
#include "engine/parallel/grad/codec.h"

#define BT_CODEC(id, name) &bt_codec_##name,
static const bt_codec *const rows[BT_CODEC_COUNT] = {
#include "engine/parallel/grad/codec.def"
};
#undef BT_CODEC

const bt_codec *bt_codec_at(bt_codec_id id) { return rows[id]; }
