/* hub_state.h - the persistent state of a hub: checkpoints, and a log of the updates since the newest checkpoint.
 *
 *     DIR/step-000000000120/   a checkpoint (ckpt/ckpt.h): weights, optimizer states and, as values, the settings,
 *                              the members with their last update, the leased data
 *     DIR/updates.log          records of {head, the values of a checkpoint, the mean that was applied}
 *
 * A record is on disk before any island is informed that its update was applied. A hub that restarts in DIR reads
 * the checkpoint and applies the means of the log with the same rules, so that it computes the same bits. A record
 * that was cut when the process died was never acknowledged.
 * Threads: the hub's. */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_STATE_H
#define BT_ENGINE_ISLANDS_HUB_HUB_STATE_H

#include "engine/islands/hub/hub_server.h"

typedef struct bt_hub_state bt_hub_state;

/* Creates the folder if needed and restores the hub's state, before h has members. replayed: number of updates applied
 * from the log. BT_BUSY: another hub uses the folder. */
bt_code bt_hub_state_open(bt_hub_state **out, bt_hub *h, const char *dir, int64_t *replayed,
                          bt_err *err) BT_MUST_CHECK;
void bt_hub_state_close(bt_hub_state *s); /* accepts NULL */

enum { BT_APPLIED_NOTHING = -1, BT_APPLIED_AVERAGE = 3 };
typedef struct bt_hub_applied { /* one update of the weights */
    int64_t kind;               /* bt_push_kind, or a constant above */
    int64_t position; /* position in the learning-rate schedule; for a delta its fragment */
    double
        /* learning-rate factor; for an average its eta; for a delta the number of islands in the mean */
        factor;
} bt_hub_applied;
/* Appends a record after a step and the update of members, before any island is informed. model->mean must still be the
 * mean of the step. Without a state nothing is done. */
bt_code bt_hub_state_log(bt_hub_state *s, const bt_hub_applied *a, int64_t version_before,
                         bt_err *err) BT_MUST_CHECK;
bt_code bt_hub_state_save(bt_hub_state *s, bt_err *err) BT_MUST_CHECK;
/* A checkpoint is due when the log exceeds this multiple of the weights in fp32. */
enum { BT_HUB_LOG_MODELS = 16 };
bool bt_hub_state_due(const bt_hub_state *s);
/* Returns the maximum disk space for checkpoints and log of a hub with this model, in bytes. */
int64_t bt_hub_state_need(const bt_hub_model *m);

#endif
