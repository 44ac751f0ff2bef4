/* export_tensorboard.c - the event files of a run: its scalars, samples, distributions and settings. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/tables/histogram.h"
#include "store/export/export.h"
#include "store/export/run_query.h"
#include "store/export/tb_file.h"

/* ---- rows ------------------------------------------------------------------------------------ */
typedef struct position {
    int64_t attempt, step;
} position;

typedef struct writing {
    bt_tb_file tb;
    double created_s;
    int64_t points;
    const bt_metric *metrics; /* tags of the columns from the fourth on */
    const char *prefix;       /* "" or "mean_" */
    const bt_export_cfg *cfg;
    double steps;
    int query, n_queries; /* index of the current query; number of queries for all files */
    int64_t rows;
    position from, to; /* rows after `from` and up to `to` */
    /* distribution that is being read, bin by bin */
    char tensor[100];
    bt_tb_at at;
    bt_tb_bins weights, gradients;
} writing;

/* Each of the n_queries queries reads the run's steps once, so the share that is done follows from the query and its
 * step. */
static void show_progress(writing *w, double step) {
    if (!w->cfg->progress || w->rows++ % 256 || !(w->steps > 0)) return;
    w->cfg->progress(w->cfg->ctx, (w->query + fmin(step / w->steps, 1)) / w->n_queries);
}

/* Every row begins with the columns step, time_s, attempt. */
static bt_tb_at read_event_position(writing *w, const bt_row *row) {
    show_progress(w, row->nums[0]);
    return (bt_tb_at){w->created_s + row->nums[1], (int64_t)row->nums[0] + 1};
}

/* Further columns: metrics in table order. */
static bool write_metrics_of_row(void *ctx, const bt_row *row) {
    writing *w = ctx;
    const bt_tb_at at = read_event_position(w, row);
    for (int i = 3; i < row->n; i++) {
        const bt_metric *m = &w->metrics[i - 3];
        char tag[160];
        if (row->types[i] == 'n') continue;
        snprintf(tag, sizeof tag, "%s/%s%s", bt_panel_name(m->panel), w->prefix, m->key);
        bt_tb_scalar(&w->tb, at, tag, row->nums[i]);
        w->points++;
    }
    return !ferror(w->tb.f);
}

/* Further columns: layer, tensor, metrics of layers. */
static bool write_layer_of_row(void *ctx, const bt_row *row) {
    writing *w = ctx;
    const bt_tb_at at = read_event_position(w, row);
    for (int i = 5; i < row->n; i++) {
        char tag[160];
        if (row->types[i] == 'n') continue;
        snprintf(tag, sizeof tag, "ternary/%s/layer%s.%.60s", bt_layer_metrics[i - 5].key,
                 row->cells[3], row->cells[4]);
        bt_tb_scalar(&w->tb, at, tag, row->nums[i]);
        w->points++;
    }
    return !ferror(w->tb.f);
}

/* Further column: the sample's body. */
static bool write_sample_of_row(void *ctx, const bt_row *row) {
    writing *w = ctx;
    bt_tb_text(&w->tb, read_event_position(w, row), "samples/text",
               row->cells[3] ? row->cells[3] : "");
    return !ferror(w->tb.f);
}

static void end_distribution(writing *w) {
    char tag[160];
    if (!w->tensor[0]) return;
    snprintf(tag, sizeof tag, "distributions/weights/%s", w->tensor);
    bt_tb_histogram(&w->tb, w->at, tag, &w->weights);
    snprintf(tag, sizeof tag, "distributions/gradients/%s", w->tensor);
    bt_tb_histogram(&w->tb, w->at, tag, &w->gradients);
    w->tensor[0] = '\0';
}

static void begin_distribution(writing *w, const char *tensor, bt_tb_at at) {
    snprintf(w->tensor, sizeof w->tensor, "%s", tensor);
    w->at = at;
    w->weights = (bt_tb_bins){.n = BT_HIST_BINS,
                              .least = -(double)BT_HIST_MIDDLE / BT_HIST_PER_SCALE};
    w->gradients = (bt_tb_bins){.n = BT_HIST_BINS};
    for (int i = 0; i < BT_HIST_BINS; i++) {
        w->weights.limit[i] = (double)(i + 1 - BT_HIST_MIDDLE) / BT_HIST_PER_SCALE;
        w->gradients.limit[i] = ldexp(1, i + 1 + BT_HIST_OCTAVE);
    }
}

/* Further columns: layer, tensor, bin, weights and gradients. Rows of one tensor and step are adjacent. */
static bool write_bin_of_row(void *ctx, const bt_row *row) {
    writing *w = ctx;
    const bt_tb_at at = read_event_position(w, row);
    const int bin = (int)row->nums[5];
    char tensor[100];
    snprintf(tensor, sizeof tensor, "layer%s.%.60s", row->cells[3], row->cells[4]);
    if (strcmp(tensor, w->tensor) != 0 || at.step != w->at.step) {
        end_distribution(w);
        begin_distribution(w, tensor, at);
    }
    if (bin >= 0 && bin < BT_HIST_BINS) {
        w->weights.count[bin] = row->nums[6];
        w->gradients.count[bin] = row->nums[7];
    }
    return !ferror(w->tb.f);
}

/* ---- queries --------------------------------------------------------------------------------- */
static void append_metric_columns(bt_text *sql, const char *format, const bt_metric *m, int n) {
    for (int i = 0; i < n; i++) bt_text_printf(sql, format, m[i].key, m[i].key);
}

/* ?2 to ?5; ?6 is the rank */
#define BETWEEN(t) \
    " AND (" t ".attempt, " t ".step) > (CAST(?2 AS INTEGER), CAST(?3 AS INTEGER)) AND (" t \
    ".attempt, " t ".step) <= (CAST(?4 AS INTEGER), CAST(?5 AS INTEGER))"
#define OF_STEP(t) \
    " JOIN steps s ON s.run = " t ".run AND s.attempt = " t ".attempt AND s.step = " t \
    ".step WHERE " t ".run = ?1 AND s.run = ?1" BETWEEN(t)

static bt_code run_counted_query(bt_db *db, bt_text *sql, int rank, bt_row_fn fn, writing *w,
                                 bt_err *err) {
    char number[5][24];
    const int64_t values[] = {w->from.attempt, w->from.step, w->to.attempt, w->to.step, rank};
    const char *params[6] = {w->cfg->run};
    for (int i = 0; i < 5; i++) {
        snprintf(number[i], sizeof number[i], "%" PRId64, values[i]);
        params[i + 1] = number[i];
    }
    const bt_code code = bt_export_query(db, sql, params, rank < 0 ? 5 : 6, fn, w, err);
    bt_text_clear(sql);
    w->query++;
    return code;
}

static bt_code write_run_events(bt_db *db, writing *w, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT s.step, s.time_s, s.attempt");
    append_metric_columns(&sql, ", s.\"%s\"", bt_step_metrics, BT_MS_COUNT);
    bt_text_put(&sql, " FROM steps s WHERE s.run = ?1" BETWEEN("s") " ORDER BY s.attempt, s.step");
    w->metrics = bt_step_metrics;
    w->prefix = "";
    bt_code code = run_counted_query(db, &sql, -1, write_metrics_of_row, w, err);
    bt_text_put(&sql, "SELECT s.step, s.time_s, s.attempt, l.layer, l.tensor");
    append_metric_columns(&sql, ", l.\"%s\"", bt_layer_metrics, BT_ML_COUNT);
    bt_text_put(&sql, " FROM layers l" OF_STEP("l") " ORDER BY l.attempt, l.step");
    if (code == BT_OK) code = run_counted_query(db, &sql, -1, write_layer_of_row, w, err);
    bt_text_put(&sql, "SELECT r.step, s.time_s, r.attempt");
    append_metric_columns(&sql, ", avg(r.\"%s\")", bt_rank_metrics, BT_MR_COUNT);
    bt_text_put(&sql, " FROM rank_steps r" OF_STEP("r") " GROUP BY r.attempt, r.step");
    w->metrics = bt_rank_metrics;
    w->prefix = "mean_";
    if (code == BT_OK) code = run_counted_query(db, &sql, -1, write_metrics_of_row, w, err);
    bt_text_put(
        &sql,
        "SELECT d.step, s.time_s, d.attempt, d.layer, d.tensor, d.bin, d.weights, d.gradients "
        "FROM distributions d" OF_STEP(
            "d") " ORDER BY d.attempt, d.step, d.layer, d.tensor, d.bin");
    if (code == BT_OK) code = run_counted_query(db, &sql, -1, write_bin_of_row, w, err);
    end_distribution(w);
    bt_text_put(&sql, "SELECT e.step, e.time_s, e.attempt, CASE WHEN json_valid(e.body) THEN "
                      "'**' || json_extract(e.body, '$.prompt') || '**' || json_extract(e.body, "
                      "'$.text') ELSE e.title END"
                      " FROM events e WHERE e.run = ?1 AND e.kind = 'sample'" BETWEEN(
                          "e") " ORDER BY e.seq");
    if (code == BT_OK) code = run_counted_query(db, &sql, -1, write_sample_of_row, w, err);
    bt_text_release(&sql);
    return code;
}

static bt_code write_rank_events(bt_db *db, writing *w, int rank, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT r.step, s.time_s, r.attempt");
    append_metric_columns(&sql, ", r.\"%s\"", bt_rank_metrics, BT_MR_COUNT);
    bt_text_put(&sql, " FROM rank_steps r" OF_STEP(
                          "r") " AND r.rank = CAST(?6 AS INTEGER) ORDER BY r.attempt, r.step");
    w->metrics = bt_rank_metrics;
    w->prefix = "";
    const bt_code code = run_counted_query(db, &sql, rank, write_metrics_of_row, w, err);
    bt_text_release(&sql);
    return code;
}

/* ---- settings -------------------------------------------------------------------------------- */
typedef struct settings {
    bt_tb_setting *at;
    size_t n, cap;
    bool failed;
} settings;

static bool append_exported_setting(void *ctx, const bt_row *row) {
    settings *s = ctx;
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 64;
        bt_tb_setting *more = realloc(s->at, cap * sizeof *more);
        s->failed = !more;
        if (!more) return false;
        s->at = more;
        s->cap = cap;
    }
    char *name = row->cells[0] ? strdup(row->cells[0]) : NULL, *text = NULL, *end = NULL;
    const char *value = row->cells[1] ? row->cells[1] : "";
    const double number = strtod(value, &end);
    if (!*value || *end) text = strdup(value);
    s->failed = !name || ((!*value || *end) && !text);
    s->at[s->n++] = (bt_tb_setting){name, text, number};
    return !s->failed;
}

static void release_exported_settings(settings *s) {
    for (size_t i = 0; i < s->n; i++) {
        free((char *)(size_t)s->at[i].name);
        free((char *)(size_t)s->at[i].text);
    }
    free(s->at);
}

/* Writes the given settings without defaults and derived values; paths, names and times are useless for a comparison
 * of runs. */
static bt_code write_hparams(bt_db *db, writing *w, bt_err *err) {
    settings s = {0};
    const bt_query q = {.sql = "SELECT key, value FROM configs WHERE run = ?1 AND key NOT LIKE "
                               "'run.%' AND key NOT LIKE 'monitor.%'",
                        .params = &w->cfg->run,
                        .n_params = 1};
    bt_code code = bt_db_query(db, &q, append_exported_setting, &s, err);
    if (code == BT_OK && s.failed) code = bt_fail(err, BT_NOMEM, "cannot export: out of memory");
    if (code == BT_OK && s.n) bt_tb_settings(&w->tb, w->created_s, w->cfg->run, s.at, s.n);
    release_exported_settings(&s);
    return code;
}

static bool append_config_text(void *ctx, const bt_row *row) {
    snprintf(ctx, 32, "%s", row->cells[0] ? row->cells[0] : "");
    return false;
}

static bt_code write_session_end(bt_db *db, writing *w, bt_err *err) {
    char state[32] = "";
    double duration;
    const bt_query q = {
        .sql = "SELECT state FROM runs WHERE run = ?1", .params = &w->cfg->run, .n_params = 1};
    BT_TRY(bt_db_query(db, &q, append_config_text, state, err));
    BT_TRY(
        bt_db_value(db, "SELECT duration_s FROM runs WHERE run = ?1", w->cfg->run, &duration, err));
    const bool done = strcmp(state, "done") == 0,
               failed = strcmp(state, "failed") == 0 || strcmp(state, "lost") == 0;
    bt_tb_ended(&w->tb, w->created_s + (duration > 0 ? duration : 0),
                done     ? BT_TB_SUCCESS
                : failed ? BT_TB_FAILURE
                         : BT_TB_RUNNING);
    return BT_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */
static bt_code make_folder(const char *path, bt_err *err) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return bt_fail_errno(err, BT_IO, errno, "cannot make folder '%s'", path);
    return BT_OK;
}

typedef struct event_file {
    char path[1200], part[1216];
    FILE *f;
    int rank; /* -1: the run as a whole */
    writing w;
} event_file;

/* The name is fixed for each run, so that a second export replaces the first: TensorBoard would show both. */
static bt_code begin_event_file(event_file *e, const char *folder, const writing *like, int rank,
                                bt_err *err) {
    char sub[1100];
    snprintf(sub, sizeof sub, rank < 0 ? "%s" : "%s/rank%d", folder, rank);
    BT_TRY(make_folder(sub, err));
    snprintf(e->path, sizeof e->path, "%s/events.out.tfevents.%.0f.bitrain.0.0", sub,
             floor(like->created_s));
    snprintf(e->part, sizeof e->part, "%s.part", e->path);
    e->rank = rank;
    e->w = *like;
    e->f = fopen(e->part, "wb");
    if (!e->f) return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", e->part);
    bt_tb_init(&e->w.tb, e->f, like->created_s);
    return BT_OK;
}

static bt_code publish_event_file(event_file *e, bt_err *err) {
    if (fflush(e->f) != 0 || ferror(e->f) || (e->part[0] && rename(e->part, e->path) != 0))
        return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", e->path);
    e->part[0] = '\0';
    return bt_tb_failed(&e->w.tb) ? bt_fail(err, BT_NOMEM, "cannot export: out of memory") : BT_OK;
}

static bt_code close_event_file(event_file *e, bt_code code, bt_err *err) {
    bt_tb_release(&e->w.tb);
    if (!e->f) return code;
    const bool bad = fclose(e->f) != 0;
    if (code == BT_OK && bad) code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", e->path);
    if (code != BT_OK && e->part[0]) remove(e->part);
    return code;
}

static bool read_position(void *ctx, const bt_row *row) {
    *(position *)ctx = (position){(int64_t)row->nums[0], (int64_t)row->nums[1]};
    return true;
}

/* With hold_back returns the step before the newest one, because samples of the newest step may not be committed. */
static bt_code find_export_end(bt_db *db, const char *run, bool hold_back, position *out,
                               bt_err *err) {
    *out = (position){-1, -1};
    const bt_query q = {.sql = hold_back ? "SELECT attempt, step FROM steps WHERE run = ?1 "
                                           "ORDER BY attempt DESC, step DESC LIMIT 1 OFFSET 1"
                                         : "SELECT attempt, step FROM steps WHERE run = ?1 "
                                           "ORDER BY attempt DESC, step DESC LIMIT 1",
                        .params = &run,
                        .n_params = 1};
    return bt_db_query(db, &q, read_position, out, err);
}

/* Writes all rows of the file between its position and `to`. */
static bt_code write_pass(bt_db *db, event_file *e, position to, int query, bool last,
                          bt_err *err) {
    const bool first = e->part[0] != '\0';
    e->w.to = to;
    e->w.query = query;
    bt_code code = BT_OK;
    if (e->rank < 0 && first) code = write_hparams(db, &e->w, err);
    if (code == BT_OK)
        code = e->rank < 0 ? write_run_events(db, &e->w, err)
                           : write_rank_events(db, &e->w, e->rank, err);
    if (code == BT_OK && e->rank < 0 && last) code = write_session_end(db, &e->w, err);
    if (to.attempt >= 0) e->w.from = to;
    return code == BT_OK ? publish_event_file(e, err) : code;
}

enum { MAIN_QUERIES = 5 };

static bt_code write_passes(bt_db *db, const bt_export_cfg *cfg, event_file *files, size_t n,
                            bt_err *err) {
    for (bool more = true; more;) {
        position to;
        more = cfg->wait && cfg->wait(cfg->ctx);
        BT_TRY(find_export_end(db, cfg->run, more, &to, err));
        for (size_t i = 0; i < n; i++)
            BT_TRY(write_pass(db, &files[i], to, i ? MAIN_QUERIES - 1 + (int)i : 0, !more, err));
    }
    return BT_OK;
}

bt_code bt_export_tensorboard(bt_db *db, const bt_export_cfg *cfg, const char *dir, bool per_rank,
                              char path[1200], int64_t *n_points, bt_err *err) {
    const char *run = cfg->run;
    char folder[1060];
    double ranks;
    writing w = {.prefix = "", .cfg = cfg, .from = {-1, -1}};
    if (strlen(dir) > 960) return bt_fail(err, BT_ARG, "folder name is too long");
    snprintf(folder, sizeof folder, "%s/%s", dir, run);
    BT_TRY(bt_db_value(db, "SELECT started_s FROM runs WHERE run = ?1", run, &w.created_s, err));
    BT_TRY(
        bt_db_value(db, "SELECT max(rank) + 1 FROM rank_steps WHERE run = ?1", run, &ranks, err));
    BT_TRY(bt_db_value(db, "SELECT steps FROM runs WHERE run = ?1", run, &w.steps, err));
    if (isnan(ranks)) ranks = 0; /* for example an imported run */
    const size_t n = 1 + (per_rank ? (size_t)ranks : 0);
    w.n_queries = MAIN_QUERIES + (int)n - 1;
    BT_TRY(make_folder(dir, err));
    BT_TRY(make_folder(folder, err));
    event_file *files = calloc(n, sizeof *files);
    if (!files) return bt_fail(err, BT_NOMEM, "no memory for %zu files", n);
    bt_code code = BT_OK;
    for (size_t i = 0; i < n && code == BT_OK; i++)
        code = begin_event_file(&files[i], folder, &w, (int)i - 1, err);
    if (code == BT_OK) code = write_passes(db, cfg, files, n, err);
    *n_points = 0;
    for (size_t i = 0; i < n; i++) {
        code = close_event_file(&files[i], code, err);
        *n_points += files[i].w.points;
    }
    snprintf(path, 1200, "%s", files[0].path);
    free(files);
    return code;
}
