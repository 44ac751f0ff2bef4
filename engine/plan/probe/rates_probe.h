/* rates_probe.h - measures what rates.h keeps, in seconds, by running the real parts: a pipeline
 * stage of a model for layers and head, the optimizers, the codecs, messages between ranks.
 *
 * Collective over the world; ranks measure at the same time, as they will train at the same time,
 * and agree on their mean. One thread: processor seconds, which other programs lengthen little; more
 * threads: the shortest wall time. Parts beyond the budget are left out, in order: the caller finds
 * them absent.
 * Order:    bt_rates_identify -> probe. Threads: the training thread, with the pool as it is. */
#ifndef BT_ENGINE_PLAN_PROBE_RATES_PROBE_H
#define BT_ENGINE_PLAN_PROBE_RATES_PROBE_H

#include "engine/plan/rates.h"

typedef struct bt_probe_job {
    const bt_part_shape *parts;
    size_t n_parts;
    bool machine; /* what depends on no shape as well: memory, optimizers, codecs, disk */
    /* messages between all ranks of the job; `parts` are then layers to be measured in real groups */
    bool links;
    double budget_s;      /* for all of it */
    const char *disk_dir; /* where checkpoints would go; "" measures no disk */
    void (*progress)(double done, const char *what); /* 0..1, on every rank; may be NULL */
} bt_probe_job;

bt_code bt_rates_probe(bt_rates *r, const bt_probe_job *job, bt_err *err) BT_MUST_CHECK;

/* The pieces, rates_machine.c and rates_links.c: collective as well. */
bt_code bt_rates_probe_machine(bt_rates *r, const char *disk_dir, bt_err *err) BT_MUST_CHECK;
/* one codec, all ranks at once; collective over the world. Of `none` nothing is measured */
bt_code bt_rates_probe_codec(const bt_codec *c, bt_codec_rate *out, bt_err *err) BT_MUST_CHECK;
bt_code bt_rates_probe_links(bt_rates *r, bt_err *err) BT_MUST_CHECK;

#endif
