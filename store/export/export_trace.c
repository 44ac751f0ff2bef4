/* export_trace.c - writes Chrome trace JSON (chrome://tracing, Perfetto), in which ts and dur are microseconds. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/export/export.h"
#include "store/export/run_query.h"

typedef struct tracing {
    FILE *to;
    bool any, failed;  /* failed: out of memory for a name */
    int64_t origin_us; /* start of the first step: ts 0 */
    const bt_export_cfg *cfg;
    int64_t first, last;
    double *end_us; /* (n_ranks) end of the newest span of each rank; the format forbids overlap */
    size_t n_ranks;
} tracing;

/* Returns NULL if out of memory. */
static double *rank_end_us(tracing *t, int rank) {
    if ((size_t)rank >= t->n_ranks) {
        const size_t n = (size_t)rank + 64;
        double *more = realloc(t->end_us, n * sizeof *more);
        if (!more) return NULL;
        for (size_t i = t->n_ranks; i < n; i++) more[i] = -INFINITY;
        t->end_us = more;
        t->n_ranks = n;
    }
    return &t->end_us[rank];
}

static void separate_trace_event(tracing *t) {
    fputs(t->any ? ",\n" : "\n", t->to);
    t->any = true;
}

static void put_trace_span(tracing *t, int rank, int lane, const char *name, double ts, double dur,
                           int64_t step) {
    separate_trace_event(t);
    fprintf(t->to,
            "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":"
            "{\"step\":%" PRId64 "}}",
            name, rank, lane, ts, dur, step);
}

/* Columns: step, end_us, step_ms of the slowest rank, loss, tokens_per_s. */
static bool write_step_counters(void *ctx, const bt_row *row) {
    tracing *t = ctx;
    double start = row->nums[1] - row->nums[2] * 1e3 - (double)t->origin_us;
    static const char *const names[] = {"loss", "tokens_per_s"};
    for (int i = 0; i < 2; i++) {
        if (row->types[3 + i] == 'n') continue;
        separate_trace_event(t);
        fprintf(
            t->to,
            "{\"name\":\"%s\",\"ph\":\"C\",\"pid\":0,\"tid\":0,\"ts\":%.3f,\"args\":{\"%s\":%.9g}}",
            names[i], start, names[i], row->nums[3 + i]);
    }
    return !ferror(t->to);
}

/* Columns: step, end_us, slowest step_ms, rank, step_ms, then phases. */
static bool write_rank_phases(void *ctx, const bt_row *row) {
    tracing *t = ctx;
    int64_t step = (int64_t)row->nums[0];
    int rank = (int)row->nums[3];
    if (t->cfg->progress && rank == 0)
        t->cfg->progress(t->cfg->ctx, (double)(step - t->first) / (double)(t->last - t->first + 1));
    /* A step's end and its duration are measured by different clocks, so a computed start may precede the end of the
     * previous step. */
    double *last = rank_end_us(t, rank);
    double at = row->nums[1] - row->nums[2] * 1e3 - (double)t->origin_us;
    const double end = at + row->nums[4] * 1e3;
    char name[40];
    t->failed |= !last;
    if (!last) return false;
    at = fmax(at, *last);
    *last = fmax(end, *last);
    if (!(end > at)) return true;
    snprintf(name, sizeof name, "step %" PRId64, step + 1);
    put_trace_span(t, rank, 0, name, at, end - at, step);
    for (int i = 0; i < BT_PHASE_COUNT && at < end; i++) {
        double us = row->nums[5 + i] * 1e3;
        if (!(us > 0)) continue; /* NaN, too */
        us = fmin(us, end - at);
        put_trace_span(t, rank, 1, bt_phases[i].title, at, us, step);
        at += us;
    }
    return !ferror(t->to);
}

/* If there was not enough memory for the name, releases it, marks the export as failed and returns false. */
static bool check_trace_name(tracing *t, bt_text *name) {
    if (!name->failed) return true;
    t->failed = true;
    bt_text_release(name);
    return false;
}

static bool write_rank_names(void *ctx, const bt_row *row) {
    static const char *const lanes[] = {"steps", "phases"};
    tracing *t = ctx;
    bt_text name;
    bt_json j;
    int rank = (int)row->nums[0];
    bt_text_init(&name);
    bt_json_begin(&j, &name);
    char label[160];
    snprintf(label, sizeof label, "rank %d%s%s", rank, row->cells[1] ? " on " : "",
             row->cells[1] ? row->cells[1] : "");
    bt_json_str(&j, NULL, label);
    if (!check_trace_name(t, &name)) return false;
    separate_trace_event(t);
    fprintf(t->to,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":%s}}",
            rank, bt_text_str(&name));
    bt_text_release(&name);
    separate_trace_event(t);
    fprintf(t->to,
            "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_"
            "index\":%d}}",
            rank, rank);
    for (int i = 0; i < 2; i++) {
        separate_trace_event(t);
        fprintf(t->to,
                "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
                "\"%s\"}}",
                rank, i, lanes[i]);
    }
    return !ferror(t->to);
}

static bool write_trace_event(void *ctx, const bt_row *row) {
    tracing *t = ctx;
    bt_text title;
    bt_json j;
    bt_text_init(&title);
    bt_json_begin(&j, &title);
    bt_json_str(&j, NULL, row->cells[1] ? row->cells[1] : "");
    if (!check_trace_name(t, &title)) return false;
    separate_trace_event(t);
    fprintf(t->to, "{\"name\":%s,\"ph\":\"i\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"s\":\"%s\"}",
            bt_text_str(&title), row->types[2] == 'n' ? 0 : (int)row->nums[2],
            row->nums[0] - (double)t->origin_us, row->types[2] == 'n' ? "g" : "p");
    bt_text_release(&title);
    return !ferror(t->to);
}

static bool read_time_origin(void *ctx, const bt_row *row) {
    *(double *)ctx = row->nums[0];
    return false;
}

/* Wall time of a step's end in microseconds. */
#define END_US "(s.time_s + u.started_s) * 1e6"
#define WINDOW " s.run = ?1 AND s.step BETWEEN CAST(?2 AS INTEGER) AND CAST(?3 AS INTEGER)"

bt_code bt_export_trace(bt_db *db, const bt_export_cfg *cfg, int64_t first, int64_t last, FILE *to,
                        bt_err *err) {
    char a[24], b[24];
    const char *run = cfg->run, *params[] = {run, a, b};
    double origin = NAN;
    tracing t = {.to = to, .cfg = cfg, .first = first, .last = last};
    snprintf(a, sizeof a, "%" PRId64, first);
    snprintf(b, sizeof b, "%" PRId64, last);
    BT_TRY(bt_db_query(
        db,
        &(bt_query){
            .sql = "SELECT min(" END_US
                   " - s.step_ms * 1e3) FROM steps s JOIN runs u ON u.run = s.run WHERE" WINDOW,
            .params = params,
            .n_params = 3},
        read_time_origin, &origin, err));
    if (isnan(origin))
        return bt_fail(err, BT_NOTFOUND, "run '%s' has no steps %" PRId64 " to %" PRId64, run,
                       first + 1, last + 1);
    t.origin_us = (int64_t)origin;
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT r.step, " END_US ", s.step_ms, r.rank, r.step_ms");
    for (int i = 0; i < BT_PHASE_COUNT; i++)
        bt_text_printf(&sql, ", r.%s", bt_rank_metrics[bt_phases[i].metric].key);
    bt_text_put(&sql, " FROM steps s JOIN runs u ON u.run = s.run JOIN rank_steps r ON r.run = "
                      "s.run AND r.attempt = s.attempt AND r.step = s.step"
                      " WHERE r.run = ?1 AND" WINDOW " ORDER BY s.attempt, s.step, r.rank");
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":\"phases of a step are sums; their "
          "order inside the step is drawn, not measured\"},\"traceEvents\":[",
          to);
    bt_code code = bt_db_query(
        db,
        &(bt_query){.sql = "SELECT rank, max(host) FROM ranks WHERE run = ?1 GROUP BY rank",
                    .params = params,
                    .n_params = 1},
        write_rank_names, &t, err);
    if (code == BT_OK)
        code = bt_db_query(
            db,
            &(bt_query){.sql =
                            "SELECT s.step, " END_US
                            ", s.step_ms, s.loss, s.tokens_per_s FROM steps s JOIN runs u ON u.run "
                            "= s.run WHERE" WINDOW " ORDER BY s.attempt, s.step",
                        .params = params,
                        .n_params = 3},
            write_step_counters, &t, err);
    if (code == BT_OK) code = bt_export_query(db, &sql, params, 3, write_rank_phases, &t, err);
    if (code == BT_OK)
        code = bt_db_query(
            db,
            &(bt_query){.sql =
                            "SELECT (s.time_s + u.started_s) * 1e6, s.title, s.rank FROM events s "
                            "JOIN runs u ON u.run = s.run WHERE" WINDOW,
                        .params = params,
                        .n_params = 3},
            write_trace_event, &t, err);
    fputs("\n]}\n", to);
    bt_text_release(&sql);
    free(t.end_us);
    if (code == BT_OK && t.failed) code = bt_fail(err, BT_NOMEM, "cannot export: out of memory");
    if (code == BT_OK && ferror(to))
        code = bt_fail_errno(err, BT_IO, errno, "cannot write the trace");
    return code;
}
