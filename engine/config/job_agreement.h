/* job_agreement.h - what the ranks of a job find out about each other before they train: the kernel
 * set that all of them can run, and that their settings, their program and their data are the same.
 *
 * Ranks with unlike processors train together because they all compute with the best kernel set that
 * every one of them has: replicas update their weights each by itself, and only the same kernels
 * round the same.
 *
 * Ranks:    everything here is collective; where it fails, it fails on all ranks alike.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_CONFIG_JOB_AGREEMENT_H
#define BT_ENGINE_CONFIG_JOB_AGREEMENT_H

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"

typedef struct bt_isa_agreement {
    /* for this rank: what bt_kernels_select and launch.isa take from now on */
    char isa[16];
    bool changed;        /* it is not the word this rank was given */
    bool int8_attention; /* pays on every rank (bt_kernels_int8_attention_pays) */
    /* one sentence, the same on all ranks; "" where no rank gives up anything */
    char note[320];
    /* "avx512 on ranks 0-2, avx2 on rank 3": the best that each rank's processor has */
    char processors[240];
} bt_isa_agreement;

/* isa: this rank's --isa. BT_UNSUPPORTED names the rank whose processor lacks the set it was told to
 * use. */
bt_code bt_agree_isa(bt_comm *world, const char *isa, bt_isa_agreement *out, bt_err *err)
    BT_MUST_CHECK;

/* cfg: resolved, for this rank's processor alone; before bt_agree_settings. Takes the agreed set, and floats for
 * attention that nobody chose where int8 does not pay on every rank. */
void bt_isa_agreement_apply(const bt_isa_agreement *a, bt_run_cfg *cfg);

/* The settings that ranks must share (setting_scope.h), resolved, and the program. BT_ARG names the
 * first setting that differs, two ranks, and their values. */
bt_code bt_agree_settings(bt_comm *world, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* One more value that must be the same, at most 63 characters. `what` names it in the error. */
bt_code bt_agree_value(bt_comm *world, const char *what, const char *value, bt_err *err)
    BT_MUST_CHECK;

#endif
