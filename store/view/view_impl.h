/* view_impl.h - private to store/view: numeric queries with cached statements, growing arrays,
 * bucketed row streams.
 *
 * A stream reads the rows of one run (whole steps, or one rank) into buckets of 2^k steps aligned
 * to multiples of their size. New steps extend the last buckets; when there are too many buckets,
 * neighbours merge. So no row is read twice, and the picture of a growing run does not jitter. */
#ifndef BT_STORE_VIEW_VIEW_IMPL_H
#define BT_STORE_VIEW_VIEW_IMPL_H

#include "store/ledger/ledger.h"
#include "store/view/view.h"

enum { BT_VQ_STATEMENTS = 80, BT_VQ_COLUMNS = 320 };

typedef struct bt_bucket {
    int64_t key, step, rows;                /* key = step / size; step: last step of the bucket */
    double tokens, time_s, active_s, bytes; /* values of the bucket's last row */
} bt_bucket;

typedef struct bt_stat {
    double first, last, min, max, sum;
    int64_t n;
    int64_t last_step, min_step, max_step; /* steps of the newest, smallest and largest value */
    int64_t lost; /* 1 + first step without a value after the last value; 0: none */
    bool near;    /* last_step, min_step and max_step are ends of blocks, not exact */
} bt_stat;

typedef struct bt_stream {
    char run[BT_NAME_MAX];
    int rank, n_metrics, metric[BT_VIEW_SERIES_MAX];
    int n_attempts; /* attempts of the run at the time of reading; a restart may repeat steps */
    int64_t from, next, size; /* covers steps from .. next-1 in buckets of `size` */
    size_t n, cap;
    bt_bucket *bucket;
    bt_stat *stat; /* (n, n_metrics) */
    double active_s, bytes;
    bool exact, ghost; /* ghost: belongs to the baseline */
    char *sql;
    /* displayed values: (metric, value, column). Buckets below `settled` are final; filled:
     * number of buckets with a value */
    bt_x_axis x;
    size_t settled, columns, filled[BT_VIEW_SERIES_MAX];
    bool skip[BT_VIEW_SERIES_MAX];
    double *shown;
    int64_t *shown_int;
    uint64_t used; /* number of the last load that used this stream */
} bt_stream;

/* busy, late and saved are computed together with the blame of the step */
typedef struct bt_rank_row {
    int64_t step;
    int rank;
    double v[BT_MR_COUNT], busy, late, saved;
} bt_rank_row;

typedef struct bt_rank_step_stats { /* statistics of a step of the rank window */
    int64_t step;
    size_t rows;
    int blamed; /* blamed rank; -1: none */
    bt_phase fault;
    double amount, slowest, skew;
    double mean_ms, phase_ms[BT_PHASE_COUNT]; /* over its ranks */
} bt_rank_step_stats;

typedef struct bt_tail_row {
    int64_t step;
    double time_s, v[BT_MS_COUNT];
} bt_tail_row;

/* sums for the heat map: columns of `size` steps, extended while a run grows */
typedef struct bt_heat_cache {
    char run[BT_NAME_MAX];
    int attempts;
    bt_heat_value value;
    bool ratio;                /* ratios to the median of the step */
    size_t rows, cols, stride; /* arrays are (rows, stride); the first `cols` columns are used */
    /* column i covers steps from (first_key + i) * size on; next: first step not read */
    int64_t size, first_key, next;
    bool exact;
    double *sum, *count;
    size_t cap_sum, cap_count;
} bt_heat_cache;

/* requested range of a run; cached data are valid for the same range only */
typedef struct bt_requested_range {
    double span_s;
    int64_t step0, step1;
} bt_requested_range;

/* cache of bt_view_load_summary; reloaded after an event, an attempt or a change of run */
typedef struct bt_summary {
    char run[BT_NAME_MAX], preset[32], data[200], schedule[24];
    int n_attempts;
    bool whole; /* settings and facts are complete */
    double created_s;
    double lr_peak; /* newest peak set on the live run; NaN: never changed */
    bool has_data;
    double lr, data_tokens, epoch_tokens, batch_tokens, seq_len, zero, virtual_stages;
    int64_t events_at, best_val_step, ckpt_step;
    char failure[320], stall[320], asked[320], reason[320];
    double failure_s;
    int pid;
} bt_summary;

/* one evaluation; NaN: the loss is unknown */
typedef struct bt_evaluated {
    int64_t step;
    double val, train; /* val_loss and train_loss of the view `evaluations` */
} bt_evaluated;

typedef struct bt_view_impl {
    bt_db *db;
    struct {
        char *sql;
        void *stmt;
    } statement[BT_VQ_STATEMENTS];
    int n_statements;
    int64_t now_us;
    /* Name, attempts and creation time of the displayed run identify the cached data below. After a change
     * bt_view_load_head drops all cached data, so other parts need not check. Streams and heat maps of a baseline are
     * cached under their own keys. */
    char run[BT_NAME_MAX];
    int n_attempts, attempt; /* attempt of the newest step */
    int64_t newest_step, at_step;
    double created_s, last_s, ended_s;
    /* copied from the run's settings and facts */
    double measured_load;
    char params[32], preset[32], isa[32];
    bt_predicted predicted;
    /* settings are complete, because facts are written before the first step */
    bool settings_whole;
    bool hub;
    int64_t steps_total;
    /* caches */
    bt_stream *stream;
    size_t n_streams;
    uint64_t loads;
    char *tail_sql, *rank_sql, *op_sql;
    /* newest steps up to tail_to, from index tail_first on, for percentiles, EMA and remaining
     * time */
    bt_tail_row *tail;
    size_t n_tail, tail_first, cap_tail;
    int64_t tail_to;
    bt_rank_row *row; /* rank window from index row_first on, ordered by step and rank */
    size_t n_rows, row_first, cap_rows;
    bt_rank_step_stats *judged; /* steps of the rank window, from index judged_first on */
    size_t n_judged, judged_first, cap_judged;
    int64_t row_to; /* newest step read */
    int row_window;
    bt_view_rank *named; /* identities of the newest attempt's ranks, without measurements */
    size_t n_named, cap_named;
    /* seq of the run's newest event; the counts below are those at events_at (-1: not read) */
    int64_t event_newest, events_at;
    int warnings, errors, alerts, restarts;
    bt_ledger ledger, other;    /* ledgers of the displayed run and of a run in the list */
    int64_t validated_at;       /* seq of the newest evaluation read */
    int64_t list_at, list_step; /* newest event (-1: none) and step in v->events */
    int list_max, list_marks;
    int64_t layer_newest; /* sample in v->layers; -2: none */
    bt_requested_range layer_range;
    int64_t distribution_newest; /* sample in v->distribution; -2: none */
    bt_requested_range distribution_range;
    int64_t pair_newest; /* sample in v->comm.pair; -2: none */
    bt_summary summary;
    struct {                    /* evaluations up to the displayed step */
        char run[BT_NAME_MAX];  /* "": not read */
        int64_t event, at_step; /* newest event and displayed step when they were read */
        double val_gap;
        bool memorises;
        bt_evaluated best, newest; /* set if the run memorises */
    } memorising;
    char settings_of[BT_NAME_MAX]; /* run and attempt of v->settings */
    int settings_attempt;
    size_t cap_settings;
    double *work; /* scratch of the statistics */
    size_t cap_work;
    bool *at_median; /* for each rank: assume the median busy time (bt_view_what_if) */
    size_t cap_at_median;
    /* arrays of the public pointers */
    bt_heat_cache heat, heat_base;
    double *heat_cell, *heat_time, *heat_work;
    int64_t *heat_step;
    size_t cap_heat_cell, cap_heat_time, cap_heat_work, cap_heat_step;
    size_t cap_ranks, cap_order, cap_layers, cap_tensors, cap_ops, cap_pairs, cap_events, cap_marks,
        cap_runs;
} bt_view_impl;

/* Calls fn for each row of numeric columns; NULL and text become NaN. ?1 = run, ?2.. = args. fn returns false to
 * stop. */
typedef bool (*bt_vq_fn)(void *ctx, const double *col, int n);
bt_code bt_vq_each(bt_view_impl *m, const char *sql, const char *run, const double *args,
                   int n_args, bt_vq_fn fn, void *ctx, bt_err *err) BT_MUST_CHECK;
/* Calls fn with text, too: cells[i] is NULL unless it is text. */
bt_code bt_vq_rows(bt_view_impl *m, const char *sql, const char *run, const double *args,
                   int n_args, bt_row_fn fn, void *ctx, bt_err *err) BT_MUST_CHECK;
bt_code bt_vq_row(bt_view_impl *m, const char *sql, const char *run, const double *args, int n_args,
                  double *out, int n_out, bt_err *err) BT_MUST_CHECK;
void bt_vq_release(bt_view_impl *m);
/* Returns the cached text of a frequent query, owned by the caller; releases sql. */
bt_code bt_view_sql(char **keep, bt_text *sql, bt_err *err) BT_MUST_CHECK;

/* ---- view_tools.c ---- */
/* Makes room for `need` elements; BT_NOMEM. */
bt_code bt_view_grow(void **p, size_t *cap, size_t need, size_t elem, bt_err *err) BT_MUST_CHECK;
#define BT_GROW(ptr, cap, need, err) \
    bt_view_grow((void **)&(ptr), &(cap), (need), sizeof *(ptr), err)
double bt_lower_median(double *v, size_t n);            /* reorders v; NaN if n is 0 */
double bt_quantile(double *sorted, size_t n, double q); /* nearest rank; NaN if n is 0 */
void bt_sort_doubles(double *v, size_t n);

bt_code bt_view_load_head(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
/* Replaces bt_view_load_head for a bare request: run, attempts, newest step. BT_NOTFOUND. */
bt_code bt_view_load_position(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
/* Loads progress, chips and trouble; requires a head with state and ranks. */
bt_code bt_view_load_summary(bt_view *v, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_texts(bt_view *v, int64_t until_step, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_settings(bt_view *v, bt_err *err) BT_MUST_CHECK;
void bt_view_chips_json(const bt_view_head *h, bt_json *j);
/* ---- view_memorising.c ---- */
/* Returns the index of the evaluation since which the run memorises, or n. e: ascending by step. */
size_t bt_memorising_since(const bt_evaluated *e, size_t n);
/* Fills val_gap and memorising_step of a head that has its passes, and appends a remark on a run that memorises. */
bt_code bt_view_memorising(bt_view *v, bt_err *err) BT_MUST_CHECK;
/* ---- view_remarks.c ---- */
bt_code bt_view_load_remarks(bt_view *v, bt_err *err) BT_MUST_CHECK;
void bt_view_remarks_json(const bt_view_head *h, bt_json *j);
bt_code bt_view_load_series(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
/* Fills the exact steps of the extremes of a series and, if requested, start and end (view_series_ends.c). */
bt_code bt_view_series_ends(bt_view *v, const char *run, const int64_t steps[2], bt_view_series *s,
                            bool near, bt_err *err) BT_MUST_CHECK;
/* Metric k exists for few steps only (validation): its points belong to those steps, not to the ends of their
 * buckets. */
bool bt_view_few_steps(const bt_stream *s, size_t k);
/* Writes the steps with an evaluation, ascending, to work[0 .. *n - 1] of the view. */
bt_code bt_view_evaluated_steps(bt_view *v, const char *run, size_t *n, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_ranks(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_heat(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_layers(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_distribution(bt_view *v, const bt_view_request *ask, bt_err *err)
    BT_MUST_CHECK;
void bt_view_distribution_json(const bt_view_distribution *d, bt_json *j);
bt_code bt_view_load_comm(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_panel(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_events(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_islands(bt_view *v, bt_err *err) BT_MUST_CHECK;
bt_code bt_view_load_runs(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;

/* Returns the steps of the requested range, up to the displayed step. */
bt_code bt_view_range(bt_view *v, const bt_view_request *ask, int64_t *from, int64_t *to,
                      bt_err *err) BT_MUST_CHECK;
bt_requested_range bt_view_requested_range(const bt_view_request *ask);
bool bt_view_range_same(const bt_requested_range *a, const bt_requested_range *b);
/* Returns the newest step not after `to` at which the scope was sampled; -1: none. */
bt_code bt_view_sample_before(bt_view *v, bt_scope scope, int64_t to, int64_t *out, bt_err *err)
    BT_MUST_CHECK;
typedef struct bt_sample_steps {
    int max, n; /* max: requested number, at most BT_VIEW_SAMPLES */
    int64_t step[BT_VIEW_SAMPLES];
} bt_sample_steps;
/* Samples of a scope spread evenly over from..newest, oldest first; the last one is `newest`,
 * which must be a sample */
bt_code bt_view_samples(bt_view *v, bt_scope scope, int64_t from, int64_t newest,
                        bt_sample_steps *out, bt_err *err) BT_MUST_CHECK;
void bt_view_panel_json(const bt_view_panel *p, bt_json *j);
/* Reads the rank rows of `window` sampled steps up to `to` into impl->row. */
bt_code bt_view_rank_window(bt_view *v, int64_t to, int window, bt_err *err) BT_MUST_CHECK;
/* Fills verdict, since_step and score_own from medians per block (blocks, ranks). */
void bt_view_verdicts(bt_view_ranks *r, const double *busy_median, const int64_t *block_step,
                      size_t blocks);
/* Describes overloaded hosts and sets the verdict of their slow ranks to crowded. over: use the past tense. */
void bt_view_crowded(bt_view_ranks *r, bool over);
bt_code bt_view_heat_scale(bt_view *v, bt_err *err) BT_MUST_CHECK;
void bt_view_stream_release(bt_stream *s);

static inline int64_t bt_whole(double v, int64_t none) {
    return v >= -9e15 && v <= 9e15 ? (int64_t)v : none;
}

#endif
