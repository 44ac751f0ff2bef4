/* job_settings.h - the settings that all islands of a job share, as the lines of a hello.
 *
 * Settings of the model, the order of the data and the update must be equal on all islands. Settings that only affect
 * how an island computes (ranks, layout, precision, batch, kernels) may differ. The hub has no such settings: the job
 * uses those of the first island. Threads: no shared state. */
#ifndef BT_ENGINE_ISLANDS_RULES_JOB_SETTINGS_H
#define BT_ENGINE_ISLANDS_RULES_JOB_SETTINGS_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"

/* values of islands.mode */
enum { BT_ISLANDS_SYNC, BT_ISLANDS_PS, BT_ISLANDS_DILOCO };

/* Hashes of model and data, because equal settings do not guarantee equal tensors and tokens. */
typedef struct bt_job_hashes {
    /* model: hash of names and shapes of the tensors; data: hash of the training tokens */
    uint64_t model, data;
} bt_job_hashes;

/* Appends lines 'key=value'. */
void bt_job_settings_put(bt_text *out, const bt_run_cfg *resolved, const bt_job_hashes *hashes);
/* Reads a resolved configuration for one rank with the whole model. BT_ARG names a line that is not a setting. */
bt_code bt_job_settings_read(bt_run_cfg *out, const char *text, size_t n, bt_err *err)
    BT_MUST_CHECK;
/* BT_ARG: the error names the first setting that differs between `job` and `other`, with both values. */
bt_code bt_job_settings_compare(const char *job, const char *other, bt_err *err) BT_MUST_CHECK;

#endif
