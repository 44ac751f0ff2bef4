/* hub_parts.h - a hub of several processes, which are the ranks of one MPI job.
 *
 * Each process owns a run of the model's tensors (hub_model.h) with their optimizer states. It receives the chunks
 * of updates and serves the fetches of this run at its own address. Only the first process manages rounds, clocks
 * and data, like a hub of one process. For operations on the whole model it sends an order, which all processes
 * execute together:
 *
 *     first process         all other processes
 *     bt_hub_all_X          bt_hub_execute, which does the same X
 *
 * An update is complete when all processes have received their part. It is acknowledged when all have stored it, so
 * that all have the same version of the weights between two orders. The processes start and end together: a killed job
 * continues from the newest update that all had stored (hub_state.h). In a hub of one process bt_hub_all_X does X.
 * Threads: one. Errors are the same on all processes. */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_PARTS_H
#define BT_ENGINE_ISLANDS_HUB_HUB_PARTS_H

#include "engine/islands/hub/hub_state.h"

/* The island's settings become those of the job. */
bt_code bt_hub_all_job(bt_hub *h, const char *text, size_t n, bt_err *err) BT_MUST_CHECK;
/* Announces the member's current incarnation; each process drops an update of an earlier incarnation. */
bt_code bt_hub_all_member(bt_hub *h, const bt_member *m, bt_err *err) BT_MUST_CHECK;
/* *have: all processes have received all chunks of the member's update `seq` of this kind (bt_push_kind). */
bt_code bt_hub_all_have(bt_hub *h, bt_member *m, uint64_t seq, int64_t kind, bool *have,
                        bt_err *err) BT_MUST_CHECK;
/* L2 norm of the member's staged update; NaN: it is not an encoded array. */
bt_code bt_hub_all_norm(bt_hub *h, const bt_member *m, double *norm, bt_err *err) BT_MUST_CHECK;
/* Makes the member's staged update the weights. model->has_weights remains false if a value is not finite. */
bt_code bt_hub_all_weights(bt_hub *h, const bt_member *m, bt_err *err) BT_MUST_CHECK;

typedef struct bt_hub_change { /* one step with the mean of staged updates */
    bt_hub_applied how;
    size_t n;
    uint32_t member[BT_HUB_ISLANDS]; /* (n) indices in bt_hub.members, in the order of addition */
    double weight[BT_HUB_ISLANDS];   /* (n) tokens */
} bt_hub_change;
bt_code bt_hub_all_change(bt_hub *h, const bt_hub_change *c, bt_hub_step *step, bt_err *err)
    BT_MUST_CHECK;
/* Logs the change, then publishes it. Updates of members that were not applied are dropped. */
bt_code bt_hub_all_keep(bt_hub *h, const bt_hub_applied *a, int64_t version_before, bt_err *err)
    BT_MUST_CHECK;
/* Writes a checkpoint of the whole model. If the disk refuses it and the hub may wait (bt_hub_cfg.wait),
 * h->unsaved holds the reason, an event reports it, and the result is BT_OK. */
bt_code bt_hub_all_save(bt_hub *h, bt_err *err) BT_MUST_CHECK;
/* Writes the first checkpoint, before which nothing can be logged; waits for the disk. */
bt_code bt_hub_all_save_first(bt_hub *h, bt_err *err) BT_MUST_CHECK;
bt_code bt_hub_all_end(bt_hub *h, bt_err *err) BT_MUST_CHECK; /* ends the other processes */

/* Called on all processes except the first: executes a pending order, if any. *end: it was the last one. */
bt_code bt_hub_execute(bt_hub *h, bool *end, bt_err *err) BT_MUST_CHECK;

#endif
