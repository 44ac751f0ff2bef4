/* bench_store.c - `bitrain bench store`: measures recording and reading, with a database of its own.
 *
 *     ingest       per-rank rows per second through the whole writer (queue, transactions, summaries) until committed
 *     bytes        file size per rank row: a run with rank values minus the same run without them
 *     push         time that the training thread spends in the sink for one step
 *     commit       time from the sink's call to the commit, one step at a time
 *     runs         the list of `bitrain runs` over many runs
 *     first view   opening the file and loading every part of the view of the whole run: best of five, and its
 *                  processor time; again: the same once more */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"
#include "engine/base/clock.h"
#include "engine/base/opt.h"
#include "engine/base/small.h"
#include "store/view/view.h"
#include "store/write/manage.h"

typedef struct store_cfg {
    char dir[512], keep[512];
    int64_t ranks, steps, runs;
    bool json;
} store_cfg;

static const bt_opt store_opts[] = {
    BT_ROW_INT(store_cfg, ranks, "--ranks", "8", 1, 4096, NULL, "ranks of the run that is written"),
    BT_ROW_INT(store_cfg, steps, "--steps", "50000", 100, 1e8, "steps", "its length"),
    BT_ROW_INT(store_cfg, runs, "--runs", "1000", 1, 1e5, NULL, "runs that are listed"),
    BT_ROW_TEXT(store_cfg, dir, "--dir", "",
                "folder for the database of the measurement (default: $TMPDIR or /tmp)"),
    BT_ROW_TEXT(store_cfg, keep, "--keep", "",
                "leave the database behind as this file (for tests/bench/top_cost.py)"),
    BT_ROW_JSON(store_cfg),
};

const bt_option_set bt_bench_store_opts = BT_OPTION_SET(store_opts, store_cfg);

/* The steps are 60 ms apart, so that the writer sleeps before each step, as it does for steps slower than 20/s. */
enum { PROBES = 60 };

typedef struct figures {
    double rows_per_s, rows_per_cpu_s, steps_per_s, bytes_per_row, bytes_per_step, push_us_p50,
        push_us_p95, commit_ms_p50, commit_ms_p95, runs_ms, first_view_ms, first_view_cpu_ms,
        again_ms;
} figures;

typedef struct bench {
    const store_cfg *cfg;
    bt_progress bar;
    char dir[600], db[640];
    figures out;
} bench;

static double store_file_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size : NAN;
}

static bt_code probe_latency(bench *b, bt_err *err) {
    bt_writer *w = NULL;
    double push[PROBES], done[PROBES], values[BT_MS_COUNT],
        *all = malloc(sizeof *all * (size_t)b->cfg->ranks * BT_MR_COUNT);
    if (!all) return bt_fail(err, BT_NOMEM, "no memory for %lld ranks", (long long)b->cfg->ranks);
    bt_code code = bt_writer_open(&w, b->db, 5, err);
    if (code == BT_OK) code = bt_bench_begin(w, "latency", (int)b->cfg->ranks, err);
    for (int i = 0; i < PROBES && code == BT_OK; i++) {
        bt_progress_show(&b->bar, "committing", (double)i / PROBES, "single steps");
        bt_bench_step(i, (int)b->cfg->ranks, values, all);
        bt_sleep_ns(60000000);
        int64_t t0 = bt_now_ns();
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx,
                                &(bt_step_record){.step = i,
                                                  .wall_us = bt_wall_us(),
                                                  .values = values,
                                                  .n_ranks = (int)b->cfg->ranks,
                                                  .rank_values = all});
        push[i] = (double)(bt_now_ns() - t0) / 1e3;
        while (bt_writer_committed_step(w) < i && bt_now_ns() - t0 < 2000000000) bt_sleep_ns(50000);
        done[i] = (double)(bt_now_ns() - t0) / 1e6;
    }
    if (code == BT_OK) code = bt_writer_end(w, "done", "bench", 0, err);
    bt_writer_close(w);
    free(all);
    if (code != BT_OK) return code;
    qsort(push, PROBES, sizeof push[0], bt_compare_doubles);
    qsort(done, PROBES, sizeof done[0], bt_compare_doubles);
    b->out.push_us_p50 = push[PROBES / 2];
    b->out.push_us_p95 = push[PROBES * 95 / 100];
    b->out.commit_ms_p50 = done[PROBES / 2];
    b->out.commit_ms_p95 = done[PROBES * 95 / 100];
    return BT_OK;
}

static bool count_query_row(void *ctx, const bt_row *row) {
    (void)row;
    ++*(int64_t *)ctx;
    return true;
}

static bt_code measure_list(bench *b, bt_err *err) {
    char path[700];
    bt_writer *w = NULL;
    bt_db *db = NULL;
    int64_t rows = 0;
    snprintf(path, sizeof path, "%s/runs.db", b->dir);
    bt_code code = bt_writer_open(&w, path, 5, err);
    for (int64_t i = 0; i < b->cfg->runs && code == BT_OK; i++) {
        char name[32];
        bt_progress_show(&b->bar, "writing", (double)i / (double)b->cfg->runs, "runs");
        snprintf(name, sizeof name, "run-%lld", (long long)i);
        code = bt_bench_begin(w, name, 2, err);
        if (code == BT_OK) code = bt_writer_end(w, "done", "bench", 0, err);
    }
    bt_writer_close(w);
    bt_progress_stage(&b->bar, "reading", 0, "the list of runs");
    int64_t t0 = bt_now_ns();
    if (code == BT_OK) code = bt_db_open(&db, path, err);
    if (code == BT_OK)
        code = bt_db_query(
            db,
            &(bt_query){
                .sql = "SELECT run, state, ranks, steps, tokens, loss, best_val, tokens_per_s, "
                       "started_s, duration_s, spark, tags FROM runs ORDER BY started DESC"},
            count_query_row, &rows, err);
    b->out.runs_ms = (double)(bt_now_ns() - t0) / 1e6;
    bt_db_close(db);
    return code;
}

static bt_code time_first_view(const char *path, const bt_view_request *ask, double *first_ms,
                               double *cpu_ms, double *again_ms, bt_err *err) {
    bt_db *db = NULL;
    bt_view *v = NULL;
    int64_t t0 = bt_now_ns();
    double c0 = bt_bench_cpu_s();
    bt_code code = bt_db_open(&db, path, err);
    if (code == BT_OK) code = bt_view_open(&v, db, err);
    if (code == BT_OK) code = bt_view_load(v, ask, err);
    *first_ms = (double)(bt_now_ns() - t0) / 1e6;
    *cpu_ms = (bt_bench_cpu_s() - c0) * 1e3;
    t0 = bt_now_ns();
    if (code == BT_OK) code = bt_view_load(v, ask, err);
    *again_ms = (double)(bt_now_ns() - t0) / 1e6;
    bt_view_close(v);
    bt_db_close(db);
    return code;
}

enum { LOOKS = 5 };

static bt_code measure_view(bench *b, bt_err *err) {
    bt_view_request ask;
    bt_view_request_init(&ask);
    ask.run = "bench";
    ask.parts = BT_VIEW_ALL;
    ask.n_series = 4;
    const int metrics[] = {BT_MS_LOSS, BT_MS_TOKENS_PER_S, BT_MS_GRAD_NORM, BT_MS_LR};
    for (int i = 0; i < 4; i++)
        ask.series[i] = (bt_series_request){.rank = -1, .metric = metrics[i]};
    b->out.first_view_ms = b->out.first_view_cpu_ms = b->out.again_ms = INFINITY;
    for (int i = 0; i < LOOKS; i++) {
        double first, cpu, again;
        bt_progress_stage(&b->bar, "reading", (double)i / LOOKS, "the whole run");
        BT_TRY(time_first_view(b->db, &ask, &first, &cpu, &again, err));
        b->out.first_view_ms = fmin(b->out.first_view_ms, first);
        b->out.first_view_cpu_ms = fmin(b->out.first_view_cpu_ms, cpu);
        b->out.again_ms = fmin(b->out.again_ms, again);
    }
    return BT_OK;
}

/* Rows are not dropped because of their age, so that the file size is that of all rows. */
static bt_code disable_retention(const char *path, bt_err *err) {
    bt_writer *w = NULL;
    bt_gc_result ignored;
    BT_TRY(bt_writer_open(&w, path, 5, err));
    bt_writer_close(w);
    return bt_store_gc(path, &(bt_gc_cfg){.keep_rank_steps = 0}, 5, &ignored, err);
}

static bt_code measure_store(bench *b, bt_err *err) {
    double wall, used, ignored, rows = (double)b->cfg->ranks * (double)b->cfg->steps;
    char bare[700];
    snprintf(bare, sizeof bare, "%s/bare.db", b->dir);
    BT_TRY(disable_retention(b->db, err));
    BT_TRY(disable_retention(bare, err));
    BT_TRY(bt_bench_write_run(b->db, b->cfg->steps, (int)b->cfg->ranks, true, &b->bar, &wall, &used,
                              err));
    double bytes = store_file_bytes(b->db);
    b->out.rows_per_s = rows / wall;
    b->out.rows_per_cpu_s = rows / used;
    b->out.steps_per_s = (double)b->cfg->steps / wall;
    BT_TRY(bt_bench_write_run(bare, b->cfg->steps, (int)b->cfg->ranks, false, &b->bar, &ignored,
                              &ignored, err));
    b->out.bytes_per_step = store_file_bytes(bare) / (double)b->cfg->steps;
    b->out.bytes_per_row = (bytes - store_file_bytes(bare)) / rows;
    BT_TRY(measure_view(b, err));
    BT_TRY(probe_latency(b, err));
    return measure_list(b, err);
}

static bt_code print_store_result(const bench *b, bt_err *err) {
    const bt_figure rows[] = {
        {"rank_rows_per_s", "rank rows written", b->out.rows_per_s, "/s"},
        {"rank_rows_per_cpu_s", "rank rows written per second of processor time",
         b->out.rows_per_cpu_s, "/s"},
        {"steps_per_s", "steps written", b->out.steps_per_s, "/s"},
        {"bytes_per_rank_row", "file, per rank row", b->out.bytes_per_row, "bytes"},
        {"bytes_per_step", "file, per step without ranks", b->out.bytes_per_step, "bytes"},
        {"push_us_p50", "training thread, per step, median", b->out.push_us_p50, "us"},
        {"push_us_p95", "training thread, per step, 95 %", b->out.push_us_p95, "us"},
        {"commit_ms_p50", "step until committed, median", b->out.commit_ms_p50, "ms"},
        {"commit_ms_p95", "step until committed, 95 %", b->out.commit_ms_p95, "ms"},
        {"runs_ms", "list of all runs", b->out.runs_ms, "ms"},
        {"first_view_ms", "first view of the whole run", b->out.first_view_ms, "ms"},
        {"first_view_cpu_ms", "its processor time", b->out.first_view_cpu_ms, "ms"},
        {"view_again_ms", "the same once more", b->out.again_ms, "ms"},
    };
    const bt_figure sizes[] = {{"ranks", "ranks", (double)b->cfg->ranks, ""},
                               {"steps", "steps", (double)b->cfg->steps, ""},
                               {"runs", "runs listed", (double)b->cfg->runs, ""}};
    return bt_bench_print(b->cfg->json, "metrics database", sizes, sizeof sizes / sizeof sizes[0],
                          rows, sizeof rows / sizeof rows[0], err);
}

static void remove_files(const bench *b) {
    static const char *const names[] = {"m.db", "bare.db", "runs.db"}, *const ends[] = {"", "-wal",
                                                                                        "-shm",
                                                                                        ".lock"};
    char path[700];
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 4; k++) {
            snprintf(path, sizeof path, "%s/%s%s", b->dir, names[i], ends[k]);
            unlink(path);
        }
    }
    rmdir(b->dir);
}

bt_code bt_bench_store(bt_call *call, bt_err *err) {
    store_cfg *cfg = call->cfg;
    bench b = {.cfg = cfg};
    BT_TRY(bt_bench_folder(b.dir, sizeof b.dir, cfg->dir, err));
    snprintf(b.db, sizeof b.db, "%s/m.db", b.dir);
    bt_progress_begin(&b.bar, cfg->json);
    bt_code code = measure_store(&b, err);
    bt_progress_end(&b.bar);
    if (code == BT_OK && cfg->keep[0] && rename(b.db, cfg->keep) != 0)
        code = bt_fail_errno(
            err, BT_IO, errno,
            "cannot move the database to '%s' (name a file in the folder of --dir)", cfg->keep);
    remove_files(&b);
    return code == BT_OK ? print_store_result(&b, err) : code;
}
