/* hub_copy.h - the hub's weights as far as an island has them, and how they follow the hub's.
 *
 * They follow by the update that the hub has published, where the island has the version before it as a whole, and
 * by all weights otherwise. While those are fetched an asynchronous hub goes on: what arrives may be newer than was
 * asked for, and its chunks of several versions. Such a copy is as good to train from, but an update that some of
 * its chunks have already must not be added to it.
 * Threads: one at a time. No allocation after init. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_HUB_COPY_H
#define BT_ENGINE_ISLANDS_ISLAND_HUB_COPY_H

#include "engine/islands/island/island_client.h"
#include "engine/islands/rules/vector_code.h"

typedef struct bt_hub_copy {
    const bt_params *params; /* of the whole model; borrowed */
    float *x;                /* (params->total) the weights */
    int64_t version;         /* of x, -1: none. Of chunks of several versions: the oldest */
    bool same;               /* all of x is of `version` */
    bt_vector_code plain;    /* fp32 */
    bt_vector_code code;     /* by the job's codec; of the fragment in use */
    bool coded;              /* the hub publishes updates in `code` */
    unsigned char *bytes;    /* room for either */
    size_t n_parts;          /* processes of the hub */
    bt_island_cut cut;
} bt_hub_copy;

/* codec: one without functions is fp32 */
bt_code bt_hub_copy_init(bt_hub_copy *c, const bt_params *params, const bt_codec *codec,
                         size_t n_parts, bt_err *err) BT_MUST_CHECK;
void bt_hub_copy_release(bt_hub_copy *c); /* accepts an all-zero struct */

/* what of an array in this code is for each process of the hub. Valid until the next call */
const bt_island_cut *bt_hub_copy_cut(bt_hub_copy *c, const bt_vector_code *code);

/* x becomes the weights of `version`, or newer ones. work: (params->total) scratch. *fetched: all of x is new, and
 * not the fragment in use alone. client->stranger: it does not, the hub knows nobody any more */
bt_code bt_hub_copy_follow(bt_hub_copy *c, bt_island_client *client, int64_t version, float *work,
                           bool *fetched, bt_err *err) BT_MUST_CHECK;
/* fp32 values of all elements into out (params->total): of the hub's optimizer. *gone: as of a fetch */
bt_code bt_hub_copy_moment(bt_hub_copy *c, bt_island_client *client, bt_fetch_kind kind,
                           int64_t version, float *out, bool *gone, bt_err *err) BT_MUST_CHECK;

#endif
