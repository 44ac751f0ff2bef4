/* island_memory.c - computes the memory of an island for the memory plan. */
#include "engine/islands/island/island.h"
#include "engine/parallel/grad/codec.h"

size_t bt_island_bytes(const bt_rank_setup *s) {
    const bt_codec *codec = bt_codec_at((bt_codec_id)s->cfg->parallel.codec);
    const bt_model_slice whole = {.tp_rank = 0};
    bt_params params;
    size_t arrays = 1;
    if (bt_params_init(&params, &s->model.cfg, whole, NULL) != BT_OK) return 0;
    if (bt_mesh_rank_of(&s->shape, &s->me) == 0) {
        arrays += 2; /* the hub's weights, and their encoded form */
        if (codec->encode && codec->state_bytes) arrays += 2;       /* residual, kept */
        if (s->cfg->islands.mode == BT_ISLANDS_DILOCO) arrays += 1; /* sent */
    }
    const size_t bytes = arrays * params.total * sizeof(float);
    bt_params_release(&params);
    return bytes;
}
