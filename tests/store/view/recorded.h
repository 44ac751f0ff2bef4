/* recorded.h - records runs with a given number of steps for tests of the view model. Only one file of a test program
 * may include it. */
#ifndef BT_TESTS_STORE_VIEW_RECORDED_H
#define BT_TESTS_STORE_VIEW_RECORDED_H

#include "tests/store/view_test.h"

enum { BEGAN_S = 1700000000 };

/* a run with steps of 100 ms, of which every `every`-th has a record with its ranks */
typedef struct plan {
    const char *name;
    int ranks, world; /* world 0: equal to ranks */
    int64_t steps, every;
} plan;

/* The loss equals the step; the forward pass of a rank takes as many ms as the sum of step and rank. */
static void record_run_to(const char *path, const plan *p, bool ended) {
    bt_writer *w = NULL;
    bt_run_start start = bt_fake_run(p->name);
    int attempt;
    double values[BT_MS_COUNT], *ranks = calloc((size_t)p->ranks * BT_MR_COUNT + 1, sizeof *ranks);
    start.world_size = p->world ? p->world : p->ranks;
    start.started_us = INT64_C(1000000) * BEGAN_S;
    start.config_json = "{\"train.steps\":{\"value\":10000,\"origin\":\"flag\"}}";
    OK(bt_writer_open(&w, path, 5, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    values[BT_MS_STEP_TIME] = 100;
    values[BT_MS_BYTES_WIRE] = 7;
    values[BT_MS_SKIPPED] = 1;
    for (int64_t step = p->every - 1; step < p->steps; step += p->every) {
        values[BT_MS_TOKENS] = 10 * (double)(step + 1);
        values[BT_MS_LOSS] = (double)step;
        for (int r = 0; r < p->ranks; r++) {
            double *v = ranks + (size_t)r * BT_MR_COUNT;
            v[BT_MR_FWD] = (double)step + r;
            v[BT_MR_STEP_TIME] = 50;
            v[BT_MR_BYTES_WIRE] = 3;
        }
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx,
                                &(bt_step_record){.step = step,
                                                  .wall_us = start.started_us + 100000 * (step + 1),
                                                  .values = values,
                                                  .n_ranks = p->ranks,
                                                  .rank_values = ranks});
        if (step % 4096 == 4095) OK(bt_writer_flush(w, err));
    }
    if (ended)
        OK(bt_writer_end(w, "done", "finished", 0, err));
    else
        OK(bt_writer_flush(w, err));
    bt_writer_close(w);
    free(ranks);
}

static void record_ended_run(const char *path, const plan *p) { record_run_to(path, p, true); }

/* Requests these parts of a recorded run at its newest step. */
static bt_view_request ask_parts(const plan *p, unsigned parts) {
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = p->name;
    a.parts = parts;
    a.now_us = INT64_C(1000000) * BEGAN_S + 100000 * (p->steps + 5);
    return a;
}

#endif
