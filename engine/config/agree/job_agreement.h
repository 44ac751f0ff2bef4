/* job_agreement.h - before training, the ranks of a job agree on a kernel set that all can run, and on equal settings,
 * program and data.
 *
 * Ranks with different processors use the best kernel set that all have, because replicas update their weights
 * independently, and only equal kernels round equally.
 *
 * Ranks:    every function is collective and fails on all ranks alike.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_CONFIG_AGREE_JOB_AGREEMENT_H
#define BT_ENGINE_CONFIG_AGREE_JOB_AGREEMENT_H

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"

typedef struct bt_isa_agreement {
    char isa[16]; /* This rank's argument of bt_kernels_select. */
    bool changed; /* isa differs from this rank's --isa */
    /* int8 attention is faster on every rank (bt_kernels_int8_attention_pays) */
    bool int8_attention;
    char note[320]; /* One sentence, equal on all ranks; "" if every rank uses its best set. */
    /* Best set of each rank's processor: "avx512 on ranks 0-2, avx2 on rank 3". */
    char processors[240];
} bt_isa_agreement;

/* isa: this rank's --isa. BT_UNSUPPORTED: the error names the rank whose processor lacks the requested set. */
bt_code bt_agree_isa(bt_comm *world, const char *isa, bt_isa_agreement *out, bt_err *err)
    BT_MUST_CHECK;

/* Makes bt_run_cfg_resolve use the agreed set and the processors of all ranks. cfg must not be resolved yet. */
void bt_isa_agreement_apply(const bt_isa_agreement *a, bt_run_cfg *cfg);

/* Compares version, compiler and names of all settings. BT_ARG: the error names two ranks that differ. */
bt_code bt_agree_program(bt_comm *world, bt_err *err) BT_MUST_CHECK;
/* Compares the program, and those resolved settings that ranks must share (setting_scope.h). BT_ARG: the error names
 * the first setting that differs, two ranks and their values. */
bt_code bt_agree_settings(bt_comm *world, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Compares another value of at most 63 characters, which the error calls `what`. */
bt_code bt_agree_value(bt_comm *world, const char *what, const char *value, bt_err *err)
    BT_MUST_CHECK;

#endif
