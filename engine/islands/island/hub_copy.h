/* hub_copy.h - an island's copy of the hub's weights. If the copy has exactly the previous version, the island fetches
 * the update that the hub has published; otherwise it fetches all weights. An asynchronous hub changes weights during
 * the fetch, so chunks may be newer than requested and of several versions. Training may continue from such a copy, but
 * an update that some chunks already include must not be added to it. Threads: one at a time. No allocation after
 * init. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_HUB_COPY_H
#define BT_ENGINE_ISLANDS_ISLAND_HUB_COPY_H

#include "engine/islands/island/island_client.h"
#include "engine/islands/rules/vector_code.h"

typedef struct bt_hub_copy {
    const bt_params *params; /* layout of the whole model; borrowed */
    float *x;                /* (params->total) the weights */
    int64_t version;         /* version of x; if chunks have several, the oldest; -1: none */
    bool same;               /* all of x has `version` */
    bt_vector_code plain;    /* fp32 */
    bt_vector_code code;     /* the job's codec, restricted to the selected fragment */
    bool coded;              /* the hub publishes updates in `code` */
    unsigned char *bytes;    /* buffer for either code */
} bt_hub_copy;

/* codec: without functions it means fp32. */
bt_code bt_hub_copy_init(bt_hub_copy *c, const bt_params *params, const bt_codec *codec,
                         bt_err *err) BT_MUST_CHECK;
void bt_hub_copy_release(bt_hub_copy *c); /* accepts an all-zero struct */

/* Updates x to the weights of `version` or newer. work: (params->total) scratch. *fetched: all of x is new, not only
 * the selected fragment. If client->stranger is set, the hub no longer has members, and x is unchanged. */
bt_code bt_hub_copy_follow(bt_hub_copy *c, bt_island_client *client, int64_t version, float *work,
                           bool *fetched, bt_err *err) BT_MUST_CHECK;
/* Fetches one array of the hub's optimizer states as fp32 into out. *gone: see bt_island_client_fetch. */
bt_code bt_hub_copy_moment(bt_hub_copy *c, bt_island_client *client, bt_fetch_kind kind,
                           int64_t version, float *out, bool *gone, bt_err *err) BT_MUST_CHECK;

#endif
