/* kinds_of_runs.h - one small run of each kind that a view supports, in one database. */
#ifndef BT_TESTS_STORE_KINDS_OF_RUNS_H
#define BT_TESTS_STORE_KINDS_OF_RUNS_H

#include "tests/store/hub_record.h"
#include "tests/store/synth_run.h"

/* A run without rank records that has only these step metrics: each has the value (step + 1) / 10, rates (step + 1) /
 * 100. */
typedef struct bt_plain_run {
    const char *name, *argv, *config_json, *note, *state, *exit_kind;
    int64_t steps, val_every; /* val_every 0: val_loss at every step if it is among the metrics */
    int n_metrics;
    bt_step_metric metric[8];
} bt_plain_run;

static inline bool bt_is_validation(bt_step_metric m) {
    return m == BT_MS_VAL_LOSS || m == BT_MS_VAL_ACCURACY || m == BT_MS_VAL_F1 ||
           m == BT_MS_VAL_MARGIN;
}

static inline void bt_record_plain(const char *path, const bt_plain_run *p) {
    const bt_run_start start = {.name = p->name,
                                .reason = strcmp(p->exit_kind, "imported") ? "start" : "import",
                                .argv = p->argv,
                                .config_json = p->config_json,
                                .host = "nodes",
                                .user = "",
                                .build = "",
                                .mpi = "",
                                .note = p->note,
                                .out_dir = "",
                                .world_size = 1,
                                .pid = 1,
                                .started_us = INT64_C(1700000000000000)};
    double values[BT_MS_COUNT];
    bt_writer *w = NULL;
    int attempt;
    OK(bt_writer_open(&w, path, 10, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *to = bt_writer_sink(w);
    for (int64_t s = 0; s < p->steps; s++) {
        for (int k = 0; k < BT_MS_COUNT; k++) values[k] = NAN;
        for (int k = 0; k < p->n_metrics; k++) {
            const bt_step_metric m = p->metric[k];
            const bool due = p->val_every == 0 || (s + 1) % p->val_every == 0;
            const bool share = bt_step_metrics[m].unit == BT_UNIT_FRAC;
            if (due || !bt_is_validation(m)) values[m] = (double)(s + 1) / (share ? 100 : 10);
        }
        to->step(to->ctx, &(bt_step_record){.step = s,
                                            .wall_us = start.started_us + 100000 * (s + 1),
                                            .values = values});
    }
    OK(bt_writer_end(w, p->state, p->exit_kind, strcmp(p->state, "done") != 0, err));
    bt_writer_close(w);
}

/* Writes these runs: one (a single rank), four (four ranks, one of them slow), resumed (failed and restarted), live
 * (not ended), hub (two islands), import-a and import-b (validation losses only), failed-first (no step), and sft, dpo
 * and labels (fine-tuning). */
static inline void bt_kinds_of_runs(const char *path) {
    static const bt_plain_run plain[] = {
        {"import-a",
         "bitrain runs import",
         "{}",
         "curve",
         "done",
         "imported",
         6,
         0,
         2,
         {BT_MS_TOKENS, BT_MS_VAL_LOSS}},
        {"import-b",
         "bitrain runs import",
         "{}",
         "curve",
         "done",
         "imported",
         6,
         0,
         2,
         {BT_MS_TOKENS, BT_MS_VAL_LOSS}},
        {"failed-first",
         "bitrain train",
         "{\"train.steps\":{\"value\":10,\"origin\":\"flag\"}}",
         "",
         "failed",
         "error",
         0,
         0,
         0,
         {BT_MS_TOKENS}},
        {"sft",
         "bitrain train",
         "{\"data.form\":{\"value\":\"messages\",\"origin\":\"flag\"}}",
         "",
         "done",
         "finished",
         23,
         5,
         4,
         {BT_MS_TOKENS, BT_MS_LOSS, BT_MS_COUNTED, BT_MS_VAL_LOSS}},
        {"dpo",
         "bitrain train",
         "{\"data.form\":{\"value\":\"preference\",\"origin\":\"flag\"}}",
         "",
         "done",
         "finished",
         23,
         5,
         7,
         {BT_MS_TOKENS, BT_MS_LOSS, BT_MS_ACCURACY, BT_MS_REWARD_MARGIN, BT_MS_VAL_LOSS,
          BT_MS_VAL_ACCURACY, BT_MS_VAL_MARGIN}},
        {"labels",
         "bitrain train",
         "{\"data.form\":{\"value\":\"label\",\"origin\":\"flag\"}}",
         "",
         "done",
         "finished",
         23,
         5,
         6,
         {BT_MS_TOKENS, BT_MS_LOSS, BT_MS_ACCURACY, BT_MS_VAL_LOSS, BT_MS_VAL_ACCURACY,
          BT_MS_VAL_F1}}};
    bt_synth s = bt_synth_default("one");
    s.ranks = 1;
    s.steps = 60;
    OK(bt_synth_make(path, &s, err));
    s = bt_synth_default("four");
    s.straggler = 2;
    s.excess = 1;
    OK(bt_synth_make(path, &s, err));
    s = bt_synth_default("resumed");
    s.fail_at = 120;
    s.resume_from = 100;
    s.down_s = 3;
    OK(bt_synth_make(path, &s, err));
    s = bt_synth_default("live");
    s.steps = 60;
    s.live = true;
    OK(bt_synth_make(path, &s, err));
    record_hub(path);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) bt_record_plain(path, &plain[i]);
}

#endif
