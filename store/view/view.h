/* view.h - the view model: the numbers and sentences of every screen of a run. `bitrain top`, `top
 * --json`, the dashboard and reports render the same structs, so they agree.
 *
 * Order:    open -> (load, read the structs)* -> close. `load` fills the requested parts; pointers
 *           inside are valid until the next load. A part that fails returns its error and leaves the
 *           parts loaded before it unchanged.
 * Instant:  all parts describe the same step: the newest one, or `at_step` when the user scrubs back.
 * Cost:     bounded by the window and the requested columns, never by the length of the run: series
 *           and heat maps are cached as min/max/first/last buckets of 2^k steps, and a load reads new
 *           steps only. Uncached ranges above BT_VIEW_EXACT_STEPS are sampled (`exact` is false).
 * Units:    those of metrics.def: ms, MiB, bytes, 1/s, fractions 0..1, nats; seconds if the name ends
 *           in _s. NaN: unknown.
 * Terms (tested against synthetic truth; JSON: store/view/view.md):
 *   median       over ranks: the lower median, so of two ranks the faster one is the reference
 *   busy         step - wait. The slow rank waits least, so ranks are ordered by busy, not by step time
 *   blame        of a step: assigned to the last arriver (smallest wait); amount = second-smallest wait - smallest wait
 *   phase at fault  phase of the last arriver with the largest excess over the ranks' median
 *   late         arrival of a rank after the first arriver = largest wait of the step - own wait
 *   skew         of a step: last arrival - first arrival = largest wait
 *   score        relative: best rank's median busy / own; own: own best block median / own last block median
 *   what-if      mean step time if the rank's busy time were at most the median: a maximum over ranks
 *   goodput      productive part of the wall clock since the run began (store/ledger/ledger.h)
 * Threads:  one caller per bt_view and bt_db. */
#ifndef BT_STORE_VIEW_VIEW_H
#define BT_STORE_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/numbers/predicted.h"
#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/tables/derived.h"
#include "engine/base/tables/histogram.h"
#include "engine/base/tables/time_part.h"
#include "engine/base/tables/verb.h"
#include "engine/base/text.h"
#include "store/store.h"

/* ---- requested parts ---- */
enum {
    BT_VIEW_HEAD = 1,
    BT_VIEW_SERIES = 2,
    BT_VIEW_RANKS = 4,
    BT_VIEW_HEAT = 8,
    BT_VIEW_LAYERS = 16,
    BT_VIEW_EVENTS = 32,
    BT_VIEW_RUNS = 64,
    BT_VIEW_COMM = 128,
    BT_VIEW_PANEL = 256,
    BT_VIEW_SETTINGS = 512,
    BT_VIEW_ISLANDS = 1024,
    BT_VIEW_DISTRIBUTION = 2048,
    BT_VIEW_ALL = 4095
};
typedef enum { BT_X_STEP, BT_X_TOKENS, BT_X_WALL, BT_X_ACTIVE, BT_X_BYTES, BT_X_COUNT } bt_x_axis;
typedef enum {
    BT_HEAT_BUSY,
    BT_HEAT_STEP,
    BT_HEAT_WAIT,
    BT_HEAT_DATA,
    BT_HEAT_COMM,
    BT_HEAT_RSS,
    BT_HEAT_FWD,
    BT_HEAT_BWD,
    BT_HEAT_OPTIM,
    BT_HEAT_LOSS,
    BT_HEAT_VALUES
} bt_heat_value;

enum {
    /* enough for all metrics of a step, and for all metrics of a rank */
    BT_VIEW_SERIES_MAX = (int)BT_MS_COUNT > (int)BT_MR_COUNT ? (int)BT_MS_COUNT : (int)BT_MR_COUNT,
    BT_VIEW_EXACT_STEPS = 65536,
    BT_VIEW_WINDOW = BT_RECENT_STEPS,
    BT_VIEW_SAMPLES = 32
};

typedef struct bt_series_request {
    /* -1: metric is a bt_step_metric; else a bt_rank_metric of this rank */
    int rank;
    int metric;
} bt_series_request;

typedef struct bt_view_request {
    unsigned parts;  /* BT_VIEW_* */
    const char *run; /* may be NULL if BT_VIEW_RUNS is the only part */
    /* second run: its series become ghosts, and the heat map is relative to it; or NULL */
    const char *baseline;
    int64_t now_us;  /* 0: the clock */
    int64_t at_step; /* -1: the newest */
    /* series and heat map cover this much wall time up to the instant; 0: all of the run */
    double span_s;
    int64_t step0, step1; /* explicit range, which replaces span_s if step1 > 0 */
    bt_x_axis x;
    int columns; /* at most this many buckets a series (0: 256) */
    bt_series_request series[BT_VIEW_SERIES_MAX];
    int n_series;
    /* load the series only and keep head, ranks and summary; this takes a tenth of the time */
    bool bare;
    int window; /* sampled steps of the rank statistics (0: BT_VIEW_WINDOW) */
    bt_heat_value heat;
    int heat_columns;         /* 0: 120 */
    int max_events, max_runs; /* 0: 200, 500 */
    int max_marks;            /* maximum number of events marked in charts (0: none) */
    bool ends;                /* series: fill start, end and the exact steps of the extremes */
    bt_metric_panel panel;    /* panel to load; BT_PANEL_COUNT: all panels */
    int samples;              /* history length of each metric (0: BT_VIEW_SAMPLES) */
    /* tensor whose distribution is loaded; NULL or unrecorded: the first ternary tensor */
    int layer;
    const char *tensor;
} bt_view_request;

/* ---- the parts ---- */
/* What happened to a run that is not training or was restarted; the first page, `show` and the
 * API share it. Texts are complete phrases without a full stop; "": nothing to report. */
typedef struct bt_view_trouble {
    bool any;
    bt_event_level level; /* ERROR: failed or lost; WARN: stalled, restarting; INFO: the rest */
    char what[120];       /* "failed after step 122 of 500" */
    double when_s, age_s; /* seconds since 1970, and until now; NaN: not known */
    int64_t step;         /* last recorded step; -1: none */
    char why[320];        /* "rank 1 was ended by signal 9 (Killed)" */
    /* "resume: training continues from the checkpoint of step 120 and repeats 2 steps" */
    char advice[320];
    char command[400]; /* shell command of the advice, for the run's machine */
    /* control verb with the same effect on a live run; BT_VERB_COUNT: none */
    bt_verb verb;
    /* `command` restarts the ranks, and this machine has launched them */
    bool resumes;
} bt_view_trouble;

/* runnable tasks of other programs per core above which the machine's measured speed is too low */
#define BT_MEASURED_BUSY 0.25

enum { BT_VIEW_CHIPS = 5, BT_VIEW_REMARKS = 3 };
/* summary of the training, e.g. "model": "nano, 2.8 M parameters" */
typedef struct bt_view_chip {
    const char *name;
    char text[120];
} bt_view_chip;

typedef struct bt_view_head {
    char run[BT_NAME_MAX], host[BT_HOST_MAX], note[160], exit_kind[120];
    bt_run_state state;
    bool live;    /* not ended */
    double age_s; /* seconds since the last record; NaN: none yet */
    int attempt, n_attempts, world_size, ranks_reporting;
    int64_t step, steps_total; /* step: the displayed step, -1: none; steps_total 0: unknown */
    int64_t newest_step;       /* differs from step when scrubbed */
    /* newest values of fine-tuning metrics; NaN: the run has none */
    double accuracy, val_accuracy, val_f1, reward_margin, val_margin;
    /* runnable tasks of other programs per core while links and peak were measured; NaN: not
     * recorded */
    double measured_load;
    /* loss_trend: change of loss_ema per step, of which views show the sign only */
    double tokens, loss, loss_ema, loss_trend, val_loss, best_val, grad_norm, lr, loss_scale;
    double tokens_per_s, mfu, step_p50_ms, step_p95_ms, step_p99_ms, step_max_ms;
    double overlap, comm_overhead, wait_frac, bytes_wire, bytes_logical, rss_mib;
    double started_s, elapsed_s, eta_s, eta_err_s; /* started: seconds since 1970 */
    double goodput;                                /* productive part of elapsed_s */
    double time_s[BT_TIME_PARTS];                  /* they sum to elapsed_s */
    int64_t skipped, dropped; /* steps not applied in the window; records the writer lost */
    int warnings, errors;     /* events of these levels, whole run */
    int alerts;               /* warnings and errors that are not acknowledged */
    int restarts;             /* restarts by the supervisor; manual starts count as attempts only */
    char params[32], isa[32], preset[32];
    double progress, passes; /* share of the steps done; passes over the data; NaN: unknown */
    /* validation less training loss at the newest evaluation up to this step; NaN: none */
    double val_gap;
    int64_t
        memorising_step; /* step of the best evaluation of a run that memorises (view_memorising.c); -1: it learns */
    int64_t best_val_step; /* -1: none */
    /* first step of the current run of non-finite gradients (grad_norm is NaN then); -1: finite
     * or never recorded */
    int64_t grad_lost_step;
    bt_view_trouble trouble;
    bt_view_chip chip[BT_VIEW_CHIPS]; /* n_chips of them */
    int n_chips;
    char remark[BT_VIEW_REMARKS][480]; /* n_remarks complete sentences, shown by every view */
    int n_remarks;
    bool hub; /* the run belongs to a hub; its ranks are islands */
    /* planner's step and phase times for the layout of the newest attempt; step_ms NaN: no
     * prediction */
    bt_predicted predicted;
} bt_view_head;

typedef struct bt_view_series {
    bt_series_request what;
    const char *key; /* "loss" */
    bt_unit unit;
    size_t n;
    const double *x, *first, *last, *min, *max, *mean;
    const int64_t *step;  /* last step of each bucket */
    const int64_t *count; /* rows in it */
    bool exact;           /* every row of the range was read */
    bool ghost;           /* belongs to the baseline run */
    /* default y range of a chart (bt_view_usual_range); NaN: no point */
    double low, high;
    /* least_step, most_step: steps of the extremes. lost_step: first of the final steps that
     * lack the metric if earlier steps have it. -1: none */
    int64_t least_step, most_step, lost_step;
    /* means over the first and the last 2 % of the steps (at most 512), independent of the
     * number of buckets; NaN unless `ends` is set */
    double start, end;
} bt_view_series;

typedef enum {
    BT_VERDICT_OK,
    BT_VERDICT_STEADY,
    BT_VERDICT_BURSTY,
    BT_VERDICT_NODE_WIDE,
    BT_VERDICT_RECOVERING,
    BT_VERDICT_CROWDED /* slow rank of a host with more runnable tasks than cores */
} bt_verdict;
/* "ok", "late", "bursty", "node-wide", "recovering", "crowded" */
const char *bt_verdict_name(bt_verdict v);

typedef struct bt_view_rank {
    int rank, pid, threads, pp, dp_replicate, dp_shard, tp;
    char host[BT_HOST_MAX], isa[32];
    size_t n;                 /* sampled steps in the window */
    double mean[BT_MR_COUNT]; /* mean of each rank metric over the window */
    double busy_p50_ms, step_p50_ms, step_p95_ms, step_p99_ms, step_max_ms, wait_p50_ms;
    double score, score_own; /* 0..1, 1 = as good as the best */
    double blame_frac,
        lost_s;        /* share of all blame; seconds that other ranks waited for this rank */
    bt_phase fault;    /* BT_PHASE_COUNT: never blamed */
    double fault_frac; /* share of this rank's blame that the phase `fault` causes */
    double excess_ms;  /* median busy time minus the median of the ranks */
    bt_verdict verdict;
    int64_t since_step;              /* first step of a verdict other than ok; -1: unknown */
    double what_if_ms;               /* mean step time without this rank's excess */
    double late_p50_ms, late_p95_ms; /* NaN: no other rank */
    double rss_peak_mib, cpu_frac;   /* processor time / (step time * threads) */
    /* "rank 5 has been slow since step 11841; 83 % of its delay is in data" */
    char says[160];
} bt_view_rank;

typedef struct bt_view_ranks {
    size_t n;
    bt_view_rank *rank; /* ordered by rank */
    /* n indices, worst first: sorted by being late now, then blame, then excess */
    int *order;
    int64_t step0, step1;       /* the window */
    size_t steps;               /* sampled steps in it */
    double median[BT_MR_COUNT]; /* lower median of the ranks' means, separately for each metric */
    /* time of a step by phase: mean over its ranks, then over the steps. The phases add up to
     * mean_ms */
    double mean_ms, phase_ms[BT_PHASE_COUNT];
    int ranks_least, ranks_most;     /* smallest and largest number of ranks of a step */
    double step_ms;                  /* mean step time, slowest rank */
    double busy_median_ms;           /* lower median of the ranks' busy medians */
    double tokens_per_s;             /* mean over the window */
    double skew_p50_ms, skew_p95_ms; /* NaN: one rank */
    /* sentence about the host with more runnable tasks than cores, shown above the ranks; "":
     * none */
    char crowded[256];
} bt_view_ranks;

#define BT_HEAT_EVEN 1.25

typedef struct bt_view_heat {
    bt_heat_value value;
    size_t rows, cols; /* rows: ranks */
    /* (rows, cols): busy: ratio to the step's median; other values: ms, MiB, nats; NaN: none */
    const double *cell;
    /* cells are ratios to the baseline's value at the same step, or to its mean if that step is
     * missing */
    bool against;
    /* Ends of the colour scale. For nearly equal values the scale extends at least from
     * 1/BT_HEAT_EVEN to BT_HEAT_EVEN times the middle (1 for ratios), so that noise is not
     * amplified. */
    double low, high;
    const int64_t *step;  /* first step of each column */
    const double *time_s; /* wall time of each column */
    bool exact;
} bt_view_heat;

typedef struct bt_view_layer {
    int layer;
    char tensor[32];
    double value[BT_ML_COUNT];     /* newest sample */
    double neg_frac, entropy_bits; /* share of -1; bits per weight of the code distribution */
    /* the last element is the newest sample; padded with NaN at the front */
    double history[BT_ML_COUNT][BT_VIEW_SAMPLES];
} bt_view_layer;

typedef struct bt_view_layers {
    size_t n;
    bt_view_layer *layer;
    int64_t step; /* the newest sample; -1 none */
    size_t samples;
    /* step of each history element; -1: none */
    int64_t sampled[BT_VIEW_SAMPLES];
} bt_view_layers;

/* histograms of the latent weights and the gradients of one tensor for several samples; bins:
 * engine/base/tables/histogram.h */
typedef struct bt_view_tensor {
    int layer;
    char tensor[32];
    bool ternary; /* has latent weights */
} bt_view_tensor;

typedef struct bt_view_distribution {
    size_t n;
    bt_view_tensor *tensor; /* all tensors recorded at the newest sample */
    size_t at;              /* index of the selected tensor; n: none */
    int samples;            /* oldest first */
    int64_t sampled[BT_VIEW_SAMPLES];
    double weights[BT_VIEW_SAMPLES][BT_HIST_BINS], gradients[BT_VIEW_SAMPLES][BT_HIST_BINS];
} bt_view_distribution;

/* Share of the elements in bins from..to-1; NaN: the sample is empty */
double bt_view_share(const double bins[BT_HIST_BINS], int from, int to);

/* one metric of a scope, aggregated over the rows of a sample */
typedef struct bt_view_metric {
    bt_scope scope;
    int metric;                      /* bt_scopes[scope].metric[metric] */
    int64_t step;                    /* newest sample with a value; -1: none */
    size_t rows;                     /* rows of that sample */
    double mean, least, most;        /* over these rows */
    double history[BT_VIEW_SAMPLES]; /* means of the samples; NaN padded at the front */
} bt_view_metric;

/* metrics of one panel or of all panels, in the order of metrics.def */
typedef struct bt_view_panel {
    bt_metric_panel panel;
    size_t n;
    bt_view_metric metric[BT_METRICS_COUNT];
    /* step of each history element of a scope; -1: none */
    int64_t sampled[BT_SCOPE_COUNT][BT_VIEW_SAMPLES];
} bt_view_panel;

/* one kind of exchange along one mesh axis: values per step, mean of the participating ranks */
typedef struct bt_view_op {
    char op[24], axis[16]; /* "all_reduce", "dp" */
    int ranks;
    /* busy, exposed and wait NaN: ran during a larger exchange, which includes the time */
    double calls, bytes_logical, bytes_wire, busy_ms, exposed_ms, wait_ms;
    double overlap;     /* 1 - exposed / busy; NaN */
    double rate;        /* bus bandwidth: bytes sent by a rank per second in flight */
    double lost_max_ms; /* exposed + wait of the rank with the largest sum */
    int lost_rank;
    /* predicted time of these bytes on the idle link as measured at the start; ratio model /
     * busy. NaN: not measured */
    double model_ms, model_frac;
} bt_view_op;

/* measured link of a mesh axis: one round of messages between all its ranks; bytes_per_s NaN:
 * the measurement failed */
typedef struct bt_view_link {
    char axis[16];
    double latency_us, bytes_per_s;
} bt_view_link;
/* traffic per step received by `rank` from `peer`; flight_ms: mean latency of a message, NaN:
 * unknown */
typedef struct bt_view_pair {
    int rank, peer;
    double messages, bytes, flight_ms;
} bt_view_pair;

enum { BT_VIEW_LINKS = 8 };
typedef struct bt_view_comm {
    size_t n;
    bt_view_op *op;       /* ordered by lost time, largest first */
    int64_t step0, step1; /* steps of the sums; -1: none */
    size_t n_links;
    bt_view_link link[BT_VIEW_LINKS];
    /* 0 if the ranks use MPI's collectives or are too many */
    size_t n_pairs;
    bt_view_pair *pair; /* ordered by rank, then peer */
    int pair_ranks;
    int64_t pair0, pair1; /* steps of the pairs */
} bt_view_comm;

typedef struct bt_view_event {
    int64_t seq, step; /* step -1: none */
    int attempt, rank; /* rank -1: the whole run */
    double time_s;     /* since the run began */
    bt_event_level level;
    char kind[24], title[200];
} bt_view_event;

/* text generated at a validation from a fixed prompt: an event of kind "sample" */
typedef struct bt_view_text {
    int64_t step;
    char prompt[200], text[2048]; /* no control characters except line breaks */
} bt_view_text;

/* events, oldest first; total: their number in the run */
typedef struct bt_view_events {
    size_t n;
    bt_view_event *event;
    int64_t total;
    /* Events marked in charts (events.def), oldest first; the run has `markable` of them. Above
     * max_marks, failures, restarts, notes and requested changes have priority; other kinds are
     * thinned evenly. */
    size_t n_marks;
    bt_view_event *mark;
    int64_t markable;
    /* the two newest texts, newest first */
    int n_texts;
    bt_view_text text[2];
} bt_view_events;

/* a setting (from: its origin) or a recorded fact (from: "fact") */
typedef struct bt_view_setting {
    char key[64], value[240], from[120];
} bt_view_setting;

typedef struct bt_view_settings {
    size_t n;
    bt_view_setting *row; /* settings in their order, then facts by key */
} bt_view_settings;

typedef struct bt_view_run {
    char run[BT_NAME_MAX], host[BT_HOST_MAX], tags[64], note[120];
    bt_run_state state;
    int ranks, attempts;
    int64_t steps;
    double tokens, loss, best_val, tokens_per_s, step_ms, goodput, comm_overhead, mfu, rss_mib;
    double started_s, duration_s, age_s;
    double spark[64]; /* loss, oldest first */
    int n_spark;
} bt_view_run;

/* newest first */
typedef struct bt_view_runs {
    size_t n;
    bt_view_run *run;
    int64_t total;
} bt_view_runs;

typedef struct bt_view_island {
    char name[64], host[BT_HOST_MAX];
    bool recorded; /* a run of this name is in the same database */
    double value[BT_MI_COUNT];
} bt_view_island;

typedef struct bt_view_staleness {
    int64_t staleness;
    double updates;
} bt_view_staleness;

enum { BT_VIEW_ISLANDS_MAX = 64, BT_VIEW_STALENESS_MAX = 65 };
/* islands of a hub's run at the newest sample, ordered by name; empty for other runs */
typedef struct bt_view_islands {
    int64_t step; /* the newest sample; -1: none yet */
    size_t n, n_stale;
    bt_view_island island[BT_VIEW_ISLANDS_MAX];
    bt_view_staleness stale[BT_VIEW_STALENESS_MAX]; /* ascending */
    /* number of islands that train; steps of the slowest and of the fastest; sequences of a joint step */
    double training, slowest, fastest, sequences;
    double tokens_per_update; /* mean so far: the effective batch */
    double bytes;             /* bytes of the received updates */
    double updates, mean_staleness;
    double left_out;                           /* updates that were not applied */
    int64_t joined, left, lost, late, refused; /* events of the whole run */
} bt_view_islands;

typedef struct bt_view {
    bt_view_head head;
    bt_view_series series[2 * BT_VIEW_SERIES_MAX]; /* the requested series, then the baseline's */
    int n_series;
    bt_x_axis x;
    bt_view_ranks ranks;
    bt_view_heat heat;
    bt_view_layers layers;
    bt_view_distribution distribution;
    bt_view_comm comm;
    bt_view_panel panel;
    bt_view_events events;
    bt_view_settings settings;
    bt_view_islands islands;
    bt_view_runs runs;
    struct bt_view_impl *impl;
} bt_view;

bt_code bt_view_open(bt_view **out, bt_db *db, bt_err *err) BT_MUST_CHECK; /* db is borrowed */
void bt_view_request_init(bt_view_request *ask); /* sets defaults without a run */
/* BT_NOTFOUND: no such run */
bt_code bt_view_load(bt_view *v, const bt_view_request *ask, bt_err *err) BT_MUST_CHECK;
void bt_view_close(bt_view *v); /* accepts NULL */

/* Mean step time in ms if these ranks (indices into v->ranks.rank) had the median busy time */
double bt_view_what_if(const bt_view *v, const int *ranks, size_t n);
/* Smooths the series' means: each output is the average of the means on both sides, weighted by
 * keep^(distance in steps). The result does not lag and is limited to the values nearby (min to
 * max of its bucket, or of 16 steps). keep: 0..1; out: s->n values, NaN where the mean is NaN */
void bt_view_smooth(const bt_view_series *s, double keep, double *out);
/* The decay per step of an average over a share of the displayed steps, so that charts of any
 * length look equally smooth; 0 (no smoothing) for a share of less than two steps */
double bt_view_keep(double share, double steps);
/* number of steps that the series covers */
double bt_view_steps_shown(const bt_view_series *s);
/* The default y range of a run: the 5th to the 95th percentile of its steps and at least the
 * quartiles plus three times their distance on each side, limited to the actual values. The initial descent, outliers
 * and divergence are outside of this range, even if they include the newest value. */
void bt_view_usual_range(const bt_view_series *s, double *low, double *high);
/* Computes the default y range of a chart from the ranges {low, high} of its lines (NaN: none). A
 * line of another order of magnitude, such as a run that diverged, does not widen the y range. */
void bt_view_join_ranges(const double (*range)[2], size_t n, double *low, double *high);
/* nearest event before (dir < 0) or after (dir > 0) this step; -1: none */
bt_code bt_view_event_step(bt_view *v, const char *run, int64_t step, int dir, int64_t *out,
                           bt_err *err) BT_MUST_CHECK;
/* Newest step at or before time_s seconds since the run began; -1: none */
bt_code bt_view_step_at(bt_view *v, const char *run, double time_s, int64_t *out, bt_err *err)
    BT_MUST_CHECK;
/* Seconds from the beginning of the run to the step; NaN: unknown */
double bt_view_time_of(bt_view *v, const char *run, int64_t step);

/* "step", "tokens", "time", "active", "bytes" */
const char *bt_x_axis_name(bt_x_axis x);
const char *bt_x_axis_title(bt_x_axis x);
bt_unit bt_x_axis_unit(bt_x_axis x);
bool bt_x_axis_parse(const char *word, bt_x_axis *x);
const char *bt_heat_value_name(bt_heat_value v);

/* {"schema": "bitrain.view/1", "head": {...}, ...}: the parts, as documented in
 * store/view/view.md */
void bt_view_json(const bt_view *v, unsigned parts, bt_json *j, const char *key);
/* "failed after step 122 of 500, 3m 10s ago" */
const char *bt_view_trouble_line(const bt_view_trouble *t, char *buf, size_t size);
void bt_view_trouble_json(const bt_view_trouble *t, bt_json *j); /* as "trouble" */
void bt_view_islands_json(const bt_view_islands *l, bt_json *j); /* as "islands" */

#endif
