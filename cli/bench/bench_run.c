/* bench_run.c - generates steps, ranks and layers of a run and passes them to a sink. */
#include "cli/bench/bench_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/common/printout/printout.h"
#include "cli/version/version.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"

double bt_bench_cpu_s(void) { return (double)bt_cpu_ns() / 1e9; }

static double step_noise(int64_t step, uint64_t stream) {
    return bt_rng_unit(1, stream, (uint64_t)step);
}

void bt_bench_step(int64_t step, int ranks, double *values, double *all) {
    static const double base[BT_MR_COUNT] = {[BT_MR_DATA] = 4,
                                             [BT_MR_FWD] = 90,
                                             [BT_MR_BWD] = 180,
                                             [BT_MR_COMM_EXPOSED] = 12,
                                             [BT_MR_OPTIM] = 15};
    double slowest = 0;
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    for (int r = 0; r < ranks; r++) {
        double *v = all + (size_t)r * BT_MR_COUNT, busy = 0;
        for (int i = 0; i < BT_MR_COUNT; i++) {
            v[i] = base[i] * (0.9 + 0.2 * step_noise(step, (uint64_t)(r * BT_MR_COUNT + i)));
            busy += v[i];
        }
        v[BT_MR_STEP_TIME] = busy;
        v[BT_MR_LOSS] = 2 + 3 * exp(-(double)step / 1000) + 0.1 * step_noise(step, (uint64_t)r);
        v[BT_MR_COMM_BUSY] = 3 * v[BT_MR_COMM_EXPOSED];
        v[BT_MR_MONITOR] = 0.2;
        v[BT_MR_BYTES_LOGICAL] = 108e6;
        v[BT_MR_BYTES_WIRE] = 54e6;
        v[BT_MR_RSS] = 700 + 20 * step_noise(step, 77);
        v[BT_MR_CPU] = 2 * busy;
        v[BT_MR_MICRO_BATCHES] = 4;
        slowest = fmax(slowest, busy);
    }
    for (int r = 0; r < ranks; r++) {
        double *v = all + (size_t)r * BT_MR_COUNT;
        v[BT_MR_WAIT] = slowest - v[BT_MR_STEP_TIME];
        v[BT_MR_STEP_TIME] = slowest;
    }
    values[BT_MS_TOKENS] = 4096.0 * (double)(step + 1);
    values[BT_MS_LOSS] = 2 + 3 * exp(-(double)step / 1000) + 0.02 * step_noise(step, 5);
    values[BT_MS_GRAD_NORM] = 0.3 + 0.1 * step_noise(step, 6);
    values[BT_MS_LR] = 1e-3;
    values[BT_MS_TOKENS_PER_S] = 4096e3 / slowest;
    values[BT_MS_STEP_TIME] = slowest;
    values[BT_MS_MFU] = 0.3 + 0.01 * step_noise(step, 7);
    values[BT_MS_BYTES_LOGICAL] = 108e6 * ranks;
    values[BT_MS_BYTES_WIRE] = 54e6 * ranks;
    values[BT_MS_RSS_MAX] = 720;
}

bt_code bt_bench_begin(bt_writer *w, const char *name, int ranks, bt_err *err) {
    int attempt;
    bt_run_start s = {.name = name,
                      .reason = "start",
                      .argv = "bitrain bench store",
                      .config_json = "{}",
                      .host = "bench",
                      .user = "",
                      .build = bt_version_text(),
                      .mpi = "",
                      .note = "",
                      .out_dir = "",
                      .world_size = ranks,
                      .pid = (int)getpid()};
    return bt_writer_begin(w, &s, &attempt, err);
}

/* steps are generated in advance, STRETCH at a time, so that the measured time does not include the generation */
enum { STRETCH = 1024 };

bt_code bt_bench_write_run(const char *path, int64_t steps, int ranks, bool with_ranks,
                           bt_progress *bar, double *wall_s, double *used_s, bt_err *err) {
    bt_writer *w = NULL;
    double *values = malloc(sizeof *values * STRETCH * BT_MS_COUNT),
           *all = malloc(sizeof *all * STRETCH * (size_t)ranks * BT_MR_COUNT);
    if (!values || !all) {
        free(values);
        free(all);
        return bt_fail(err, BT_NOMEM, "no memory for %d ranks", ranks);
    }
    bt_code code = bt_writer_open(&w, path, 5, err);
    if (code == BT_OK) code = bt_bench_begin(w, "bench", ranks, err);
    *wall_s = *used_s = 0;
    for (int64_t first = 0; first < steps && code == BT_OK; first += STRETCH) {
        bt_progress_show(bar, "writing", (double)first / (double)steps, "steps");
        int64_t n = steps - first < STRETCH ? steps - first : STRETCH;
        for (int64_t i = 0; i < n; i++)
            bt_bench_step(first + i, ranks, values + i * BT_MS_COUNT,
                          all + i * ranks * BT_MR_COUNT);
        int64_t t0 = bt_now_ns();
        double c0 = bt_bench_cpu_s();
        const bt_sink *sink = bt_writer_sink(w);
        for (int64_t i = 0; i < n; i++) {
            sink->step(sink->ctx,
                       &(bt_step_record){.step = first + i,
                                         .wall_us = 1700000000000000 + (first + i) * 300000,
                                         .values = values + i * BT_MS_COUNT,
                                         .n_ranks = with_ranks ? ranks : 0,
                                         .rank_values = all + i * ranks * BT_MR_COUNT});
        }
        code = bt_writer_flush(w, err);
        *wall_s += (double)(bt_now_ns() - t0) / 1e9;
        *used_s += bt_bench_cpu_s() - c0;
    }
    if (code == BT_OK) code = bt_writer_end(w, "done", "bench", 0, err);
    bt_writer_close(w);
    free(values);
    free(all);
    return code;
}

bt_code bt_bench_folder(char *out, size_t size, const char *given, bt_err *err) {
    const char *tmp = getenv("TMPDIR");
    snprintf(out, size, "%.500s/bitrain-bench-XXXXXX",
             given[0]        ? given
             : tmp && tmp[0] ? tmp
                             : "/tmp");
    return mkdtemp(out) ? BT_OK
                        : bt_fail(err, BT_IO, "cannot make a folder like '%s' (--dir)", out);
}

bt_code bt_bench_print(bool json, const char *title, const bt_figure *sizes, size_t n_sizes,
                       const bt_figure *rows, size_t n_rows, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, json);
    bt_printout_version(&o);
    bt_printout_line(&o, "%s:", title);
    for (size_t i = 0; i < n_sizes; i++) {
        bt_printout_int(&o, sizes[i].key, NULL, (int64_t)sizes[i].value);
        bt_printout_line(&o, "%s %.0f %s", i ? "," : "", sizes[i].value, sizes[i].words);
    }
    bt_printout_line(&o, "\n");
    for (size_t i = 0; i < n_rows; i++) {
        bt_printout_num(&o, rows[i].key, NULL, rows[i].value, BT_UNIT_NONE);
        bt_printout_line(&o, "  %-58s %12.4g %s\n", rows[i].words, rows[i].value, rows[i].unit);
    }
    return bt_printout_print(&o, err);
}
