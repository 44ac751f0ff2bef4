/* job_settings.h - the settings that all islands of a job share, as the lines of a hello.
 *
 * What makes the model, the data's order and the update must be the same everywhere; how an island
 * computes (ranks, layout, precision, batch, kernels) is its own. The first island's settings are the
 * job's: the hub has none of its own.
 * Threads: none shared. */
#ifndef BT_ENGINE_ISLANDS_RULES_JOB_SETTINGS_H
#define BT_ENGINE_ISLANDS_RULES_JOB_SETTINGS_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"

/* values of islands.mode */
enum { BT_ISLANDS_SYNC, BT_ISLANDS_PS, BT_ISLANDS_DILOCO };

/* hashes of model and data, because equal settings do not imply equal tensors or tokens */
typedef struct bt_job_hashes {
    uint64_t model,
        data; /* model: of the names and shapes of the tensors; data: of the training tokens */
} bt_job_hashes;

/* appends lines 'key=value' */
void bt_job_settings_put(bt_text *out, const bt_run_cfg *resolved, const bt_job_hashes *hashes);
/* a resolved configuration of one rank that holds the whole model. BT_ARG names a line that is no setting */
bt_code bt_job_settings_read(bt_run_cfg *out, const char *text, size_t n, bt_err *err)
    BT_MUST_CHECK;
/* BT_ARG names the first setting of `job` that `other` has otherwise, and both values */
bt_code bt_job_settings_compare(const char *job, const char *other, bt_err *err) BT_MUST_CHECK;

#endif
