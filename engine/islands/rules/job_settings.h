/* job_settings.h - the settings that all islands of a job share, as the lines of a hello.
 *
 * Settings that determine the model, the order of the data and the update must be equal on all islands. Each island has
 * its own settings for how it computes (ranks, layout, precision, batch, kernels). The hub has no settings of its own:
 * the job uses those of the first island.
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

/* Appends lines 'key=value'. */
void bt_job_settings_put(bt_text *out, const bt_run_cfg *resolved, const bt_job_hashes *hashes);
/* Reads a resolved configuration of one rank that holds the whole model. BT_ARG names a line that is not a setting. */
bt_code bt_job_settings_read(bt_run_cfg *out, const char *text, size_t n, bt_err *err)
    BT_MUST_CHECK;
/* BT_ARG names the first setting that differs between `job` and `other`, with both values. */
bt_code bt_job_settings_compare(const char *job, const char *other, bt_err *err) BT_MUST_CHECK;

#endif
