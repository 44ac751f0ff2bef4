/* hub_copy.c - applies updates to the copy, or replaces its weights, and tracks its version. */
#include "engine/islands/island/hub_copy.h"

#include <stdlib.h>

#include "engine/islands/rules/outer_step.h"

enum {
    REFUSALS = 64
}; /* after so many consecutive refusals; it exceeds the number of requests in flight */
static const bt_codec no_codec = {.name = "fp32"};

bt_code bt_hub_copy_init(bt_hub_copy *c, const bt_params *params, const bt_codec *codec,
                         bt_err *err) {
    *c = (bt_hub_copy){.params = params, .version = -1};
    c->plain = c->code = (bt_vector_code){.params = params, .codec = &no_codec};
    c->coded = codec->encode != NULL;
    if (c->coded) c->code.codec = codec;
    const size_t plain = bt_vector_bytes(&c->plain), coded = bt_vector_bytes(&c->code);
    c->x = calloc(params->total, sizeof *c->x);
    c->bytes = malloc(plain > coded ? plain : coded);
    if (c->x && c->bytes) return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory for the exchange with the hub");
}

void bt_hub_copy_release(bt_hub_copy *c) {
    free(c->x);
    free(c->bytes);
    *c = (bt_hub_copy){.x = NULL};
}

static bt_code add_update(bt_hub_copy *c, bt_island_client *client, int64_t version, float *work,
                          bool *gone, bt_err *err) {
    bt_island_fetched got;
    BT_TRY(bt_island_client_fetch(client, BT_FETCH_UPDATE, version, c->bytes,
                                  bt_vector_bytes(&c->code), &got, err));
    *gone = got.gone;
    if (got.gone) return BT_OK;
    if (!bt_vector_decode(&c->code, work, c->bytes, bt_vector_bytes(&c->code)))
        return bt_fail(err, BT_FORMAT,
                       "the hub's update belongs to another model than this island's");
    bt_vector_add(c->x, work, c->params->total);
    c->version = version;
    return BT_OK;
}

static bt_code fetch_plain(bt_hub_copy *c, bt_island_client *client, bt_fetch_kind kind,
                           int64_t version, float *out, bt_island_fetched *got, bt_err *err) {
    int tries = 0;
    do {
        BT_TRY(bt_island_client_fetch(client, kind, version, c->bytes, bt_vector_bytes(&c->plain),
                                      got, err));
    } while (got->gone && !client->stranger && ++tries < REFUSALS);
    if (got->gone && client->stranger) return BT_OK;
    if (got->gone) return bt_fail(err, BT_BUSY, "the hub refused this island: %s", client->refusal);
    if (bt_vector_decode(&c->plain, out, c->bytes, bt_vector_bytes(&c->plain)) &&
        bt_vector_finite(out, c->params->total))
        return BT_OK;
    return bt_fail(
        err, BT_FORMAT,
        "the hub's weights belong to another model than this island's, or are not finite");
}

bt_code bt_hub_copy_follow(bt_hub_copy *c, bt_island_client *client, int64_t version, float *work,
                           bool *fetched, bt_err *err) {
    bt_island_fetched got = {.gone = true};
    client->stranger = *fetched = false;
    if (c->version >= version) return BT_OK;
    if (c->coded && c->same && c->version >= 0 && c->version + 1 == version)
        BT_TRY(add_update(c, client, version, work, &got.gone, err));
    if (!got.gone || client->stranger) return BT_OK;
    BT_TRY(fetch_plain(c, client, BT_FETCH_WEIGHTS, version, c->x, &got, err));
    if (got.gone) return BT_OK;
    *fetched = true;
    c->version = got.oldest;
    c->same = got.oldest == got.newest;
    return BT_OK;
}

bt_code bt_hub_copy_moment(bt_hub_copy *c, bt_island_client *client, bt_fetch_kind kind,
                           int64_t version, float *out, bool *gone, bt_err *err) {
    bt_island_fetched got;
    BT_TRY(fetch_plain(c, client, kind, version, out, &got, err));
    *gone = got.gone;
    return BT_OK;
}
