/* export_runs.h - a small run with known metrics, and a recorder of the progress that an export reports. */
#ifndef BT_TESTS_STORE_EXPORT_RUNS_H
#define BT_TESTS_STORE_EXPORT_RUNS_H

#include "../store_test.h"
#include "store/export/export.h"

static const int64_t began_us = INT64_C(1700000000000000);

static void small_run(const bt_tmp *t) {
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("small");
    s.started_us = began_us;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    sink->ranks(sink->ctx, (bt_rank_info[]){{.rank = 0, .host = "n\"1"}, {.rank = 1, .host = "n2"}},
                2);
    for (int64_t step = 0; step < 3; step++) {
        double v[BT_MS_COUNT], r[2 * BT_MR_COUNT];
        for (int i = 0; i < BT_MS_COUNT; i++) v[i] = NAN;
        for (int i = 0; i < 2 * BT_MR_COUNT; i++) r[i] = NAN;
        v[BT_MS_STEP_TIME] = 250 * (double)(step + 1);
        v[BT_MS_TOKENS] = 64 * (double)(step + 1);
        if (step != 1) v[BT_MS_LOSS] = 3.5 - (double)step;
        if (step == 2) v[BT_MS_TOKENS_PER_S] = 1000.25;
        for (int k = 0; k < 2; k++) {
            double *x = r + k * BT_MR_COUNT;
            x[BT_MR_STEP_TIME] = 200 * (double)(step + 1) + 50 * k;
            x[BT_MR_DATA] = 10.5;
            x[BT_MR_FWD] = 20 + k;
            x[BT_MR_BWD] = step == 1 ? 0 : 30;
        }
        sink->step(sink->ctx, &(bt_step_record){.step = step,
                                                .wall_us = began_us + 1000000 * (step + 1),
                                                .values = v,
                                                .n_ranks = 2,
                                                .rank_values = r});
    }
    double layer[BT_ML_COUNT];
    for (int i = 0; i < BT_ML_COUNT; i++) layer[i] = NAN;
    layer[BT_ML_ZERO] = 0.25, layer[BT_ML_SCALE] = 0.5;
    sink->rows(sink->ctx, &(bt_row_record){.scope = BT_SCOPE_LAYER,
                                           .step = 1,
                                           .n = 1,
                                           .keys = (bt_key[]){{.i = 3}, {.s = "attn_q"}},
                                           .values = layer});
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_WARNING,
                                       .step = 1,
                                       .rank = 1,
                                       .wall_us = began_us + 1500000,
                                       .title = "odd \"thing\""});
    double bin[BT_MD_COUNT];
    for (int i = 0; i < BT_MD_COUNT; i++)
        bin[i] = i == 0 ? 7 : NAN; /* Only weights have a maximum. */
    sink->rows(sink->ctx, &(bt_row_record){.scope = BT_SCOPE_DISTRIBUTION,
                                           .step = 1,
                                           .n = 1,
                                           .keys = (bt_key[]){{.i = 3}, {.s = "attn_q"}, {.i = 16}},
                                           .values = bin});
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_SAMPLE,
                                       .step = 2,
                                       .rank = -1,
                                       .wall_us = began_us + 2600000,
                                       .title = "writes: b",
                                       .body = "{\"prompt\":\"a\",\"text\":\"b\"}"});
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_ANNOTATION,
                                       .step = 2,
                                       .rank = -1,
                                       .wall_us = began_us + 2500000,
                                       .title = "note"});
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

static double progress_said[8];
static int progress_times;
static void keep_progress(void *ctx, double done) {
    (void)ctx;
    if (progress_times < 8) progress_said[progress_times++] = done;
}

#endif
