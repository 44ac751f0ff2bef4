/* job_agreement.h - agreement of the ranks of a job before training: a kernel set that all can run, and equal settings,
 * program and data.
 *
 * Ranks with different processors use the best kernel set that all of them have, because replicas update their weights
 * independently, and only the same kernels round equally.
 *
 * Ranks:    every function is collective and fails on all ranks alike.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_CONFIG_AGREE_JOB_AGREEMENT_H
#define BT_ENGINE_CONFIG_AGREE_JOB_AGREEMENT_H

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"

typedef struct bt_isa_agreement {
    /* this rank's argument of bt_kernels_select */
    char isa[16];
    bool changed; /* true: isa differs from this rank's --isa */
    bool
        int8_attention; /* int8 attention is faster on every rank (bt_kernels_int8_attention_pays) */
    /* one sentence, the same on all ranks; "" if every rank uses its best set */
    char note[320];
    /* the best set of each rank's processor: "avx512 on ranks 0-2, avx2 on rank 3" */
    char processors[240];
} bt_isa_agreement;

/* isa: this rank's --isa. Fails with BT_UNSUPPORTED and names the rank whose processor lacks the requested set. */
bt_code bt_agree_isa(bt_comm *world, const char *isa, bt_isa_agreement *out, bt_err *err)
    BT_MUST_CHECK;

/* Lets bt_run_cfg_resolve choose automatic values for the agreed set and for the processors of all ranks. cfg is not
 * yet resolved. */
void bt_isa_agreement_apply(const bt_isa_agreement *a, bt_run_cfg *cfg);

/* Compares version, compiler and the names of all settings. Fails with BT_ARG and names two ranks that differ. */
bt_code bt_agree_program(bt_comm *world, bt_err *err) BT_MUST_CHECK;
/* Compares the program and the resolved settings that ranks must share (setting_scope.h). Fails with BT_ARG and
 * names the first setting that differs, two ranks, and their values. */
bt_code bt_agree_settings(bt_comm *world, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Compares another value of at most 63 characters. `what` names it in the error. */
bt_code bt_agree_value(bt_comm *world, const char *what, const char *value, bt_err *err)
    BT_MUST_CHECK;

#endif
