/* hub_changes.h - how updates become weights, and how the hub keeps them: in its log before any island learns of
 * them, and in checkpoints.
 * Threads: one. */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_CHANGES_H
#define BT_ENGINE_ISLANDS_HUB_HUB_CHANGES_H

#include "engine/islands/hub/hub_state.h"

/* L2 norm of the member's staged update; NaN: it is no encoded array */
double bt_hub_norm(bt_hub *h, const bt_member *m);
/* Makes the member's staged update the weights. model->has_weights remains false if a value is not finite. */
void bt_hub_take_weights(bt_hub *h, const bt_member *m);

typedef struct bt_hub_change { /* a step by the mean of staged updates */
    bt_hub_applied how;
    size_t n;
    bt_member *member[BT_HUB_ISLANDS]; /* (n) in the order in which they are added */
    double weight[BT_HUB_ISLANDS];     /* (n) tokens */
} bt_hub_change;
bt_code bt_hub_change_weights(bt_hub *h, const bt_hub_change *c, bt_hub_step *step, bt_err *err)
    BT_MUST_CHECK;
/* logs the change as soon as the disk accepts it, then publishes it */
bt_code bt_hub_keep(bt_hub *h, const bt_hub_applied *a, int64_t version_before, bt_err *err)
    BT_MUST_CHECK;
/* Writes a checkpoint. If the disk refuses it and the hub may wait (bt_hub_cfg.wait), h->unsaved holds the reason,
 * an event reports it, and the result is BT_OK: the log has all that the checkpoint would contain. */
bt_code bt_hub_save(bt_hub *h, bt_err *err) BT_MUST_CHECK;
/* the first one, without which nothing can be kept: waits for the disk */
bt_code bt_hub_save_first(bt_hub *h, bt_err *err) BT_MUST_CHECK;

#endif
