/* hub_changes.h - turns updates into weights, and stores them: in the hub's log before any island is informed, and in
 * checkpoints.
 * Threads: one. */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_CHANGES_H
#define BT_ENGINE_ISLANDS_HUB_HUB_CHANGES_H

#include "engine/islands/hub/hub_state.h"

/* Returns the L2 norm of the member's staged update; NaN: it is not an encoded array. */
double bt_hub_norm(bt_hub *h, const bt_member *m);
/* Replaces the weights by the member's staged update. model->has_weights remains false if a value is not finite. */
void bt_hub_take_weights(bt_hub *h, const bt_member *m);

typedef struct bt_hub_change { /* a change of the weights by the mean of staged updates */
    bt_hub_applied how;
    size_t n;
    bt_member *member[BT_HUB_ISLANDS]; /* (n) in the order of addition */
    double weight[BT_HUB_ISLANDS];     /* (n) their numbers of tokens */
} bt_hub_change;
bt_code bt_hub_change_weights(bt_hub *h, const bt_hub_change *c, bt_hub_step *step, bt_err *err)
    BT_MUST_CHECK;
/* Waits until the disk accepts a log record of the change, then publishes the change. */
bt_code bt_hub_keep(bt_hub *h, const bt_hub_applied *a, int64_t version_before, bt_err *err)
    BT_MUST_CHECK;
/* Writes a checkpoint. If the disk refuses it and the hub may wait (bt_hub_cfg.wait), an event reports the reason,
 * h->unsaved receives it, and the result is BT_OK, because the log contains everything that the checkpoint would. */
bt_code bt_hub_save(bt_hub *h, bt_err *err) BT_MUST_CHECK;
/* Writes the first checkpoint, which everything else needs, and waits until the disk accepts it. */
bt_code bt_hub_save_first(bt_hub *h, bt_err *err) BT_MUST_CHECK;

#endif
