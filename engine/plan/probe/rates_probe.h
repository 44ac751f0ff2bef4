/* rates_probe.h - measures the rates of rates.h within seconds by running the real code: pipeline stages with a layer
 * or a head, optimizers, codecs, messages between ranks.
 *
 * Collective over the world. All ranks measure at the same time, as they train, and store the mean. With one thread a
 * rate is processor time, which other programs hardly affect; with more threads it is the shortest wall time. If the
 * budget is used up, the remaining parts are not measured and are missing in the result.
 * Order:    bt_rates_identify -> probe. Threads: the training thread, with its thread pool. */
#ifndef BT_ENGINE_PLAN_PROBE_RATES_PROBE_H
#define BT_ENGINE_PLAN_PROBE_RATES_PROBE_H

#include "engine/plan/rates.h"

typedef struct bt_probe_job {
    const bt_part_shape *parts;
    size_t n_parts;
    /* true: measure also memory, optimizers, codecs and disk, which do not depend on a shape */
    bool machine;
    /* true: measure messages between all ranks of the job; `parts` then lists layers to measure in real groups */
    bool links;
    double budget_s;      /* seconds for the whole probe */
    const char *disk_dir; /* folder of the checkpoints; "" skips the disk */
    /* called on every rank with the share done, 0..1; may be NULL */
    void (*progress)(double done, const char *what);
} bt_probe_job;

bt_code bt_rates_probe(bt_rates *r, const bt_probe_job *job, bt_err *err) BT_MUST_CHECK;

/* Measures the machine (rates_machine.c); collective over the world, like all functions here. */
bt_code bt_rates_probe_machine(bt_rates *r, const char *disk_dir, bt_err *err) BT_MUST_CHECK;
/* Measures one codec on all ranks at once. The codec `none` is skipped. */
bt_code bt_rates_probe_codec(const bt_codec *c, bt_codec_rate *out, bt_err *err) BT_MUST_CHECK;
bt_code bt_rates_probe_links(bt_rates *r, bt_err *err) BT_MUST_CHECK;

#endif
