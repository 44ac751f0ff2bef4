/* hub_copy.h - an island's copy of the hub's weights, and how it is brought up to date.
 *
 * If the island has exactly the previous version, it fetches the update that the hub has published; otherwise it
 * fetches all weights. An asynchronous hub changes them during the fetch: chunks may be newer than requested and
 * of several versions. Such a copy can be trained from, but an update that some of its chunks include already must
 * not be added to it.
 * Threads: one at a time. No allocation after init. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_HUB_COPY_H
#define BT_ENGINE_ISLANDS_ISLAND_HUB_COPY_H

#include "engine/islands/island/island_client.h"
#include "engine/islands/rules/vector_code.h"

typedef struct bt_hub_copy {
    const bt_params *params; /* layout of the whole model; borrowed */
    float *x;                /* (params->total) the weights */
    int64_t version;      /* version of x, the oldest one if its chunks are of several; -1: none */
    bool same;            /* all of x is of `version` */
    bt_vector_code plain; /* fp32 */
    bt_vector_code code;  /* the job's codec, restricted to the fragment in use */
    bool coded;           /* the hub publishes updates in `code` */
    unsigned char *bytes; /* room for either */
} bt_hub_copy;

/* codec: fp32 if it has no functions */
bt_code bt_hub_copy_init(bt_hub_copy *c, const bt_params *params, const bt_codec *codec,
                         bt_err *err) BT_MUST_CHECK;
void bt_hub_copy_release(bt_hub_copy *c); /* accepts an all-zero struct */

/* Updates x to the weights of `version` or newer ones. work: (params->total) scratch. *fetched: all of x is new,
 * not only the fragment in use. If client->stranger is set, x is unchanged because the hub has no members any
 * more. */
bt_code bt_hub_copy_follow(bt_hub_copy *c, bt_island_client *client, int64_t version, float *work,
                           bool *fetched, bt_err *err) BT_MUST_CHECK;
/* Fetches one array of the hub's optimizer state as fp32 into out (params->total). *gone: see
 * bt_island_client_fetch */
bt_code bt_hub_copy_moment(bt_hub_copy *c, bt_island_client *client, bt_fetch_kind kind,
                           int64_t version, float *out, bool *gone, bt_err *err) BT_MUST_CHECK;

#endif
