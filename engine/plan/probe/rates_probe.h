/* rates_probe.h - measures the rates of rates.h within seconds by running the real code: a pipeline stage of a model
 * for layers and head, the optimizers, the codecs, messages between ranks.
 *
 * Collective over the world. Ranks measure at the same time, because they train at the same time, and store their mean.
 * With one thread a rate is processor seconds, which other programs change little; with more threads it is the shortest
 * wall time. Parts that exceed the budget are skipped, later parts first, and are absent from the result.
 * Order:    bt_rates_identify -> probe. Threads: the training thread, with the present thread pool. */
#ifndef BT_ENGINE_PLAN_PROBE_RATES_PROBE_H
#define BT_ENGINE_PLAN_PROBE_RATES_PROBE_H

#include "engine/plan/rates.h"

typedef struct bt_probe_job {
    const bt_part_shape *parts;
    size_t n_parts;
    /* also measure memory, optimizers, codecs and disk, which do not depend on a shape */
    bool machine;
    /* measure messages between all ranks of the job; `parts` then lists layers to measure in real groups */
    bool links;
    double budget_s;      /* seconds for the whole probe */
    const char *disk_dir; /* folder of the checkpoints; "" skips the disk */
    /* called on every rank with 0..1; may be NULL */
    void (*progress)(double done, const char *what);
} bt_probe_job;

bt_code bt_rates_probe(bt_rates *r, const bt_probe_job *job, bt_err *err) BT_MUST_CHECK;

/* Parts of the probe (rates_machine.c, rates_links.c), also collective over the world. */
bt_code bt_rates_probe_machine(bt_rates *r, const char *disk_dir, bt_err *err) BT_MUST_CHECK;
/* Measures one codec on all ranks at once. The codec `none` is skipped. */
bt_code bt_rates_probe_codec(const bt_codec *c, bt_codec_rate *out, bt_err *err) BT_MUST_CHECK;
bt_code bt_rates_probe_links(bt_rates *r, bt_err *err) BT_MUST_CHECK;

#endif
