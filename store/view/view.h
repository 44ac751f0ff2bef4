/* view.h - the view model: what a screen of a run says, as plain numbers. `bitrain top`, `top
 * --json`, the dashboard and reports all render these structs, so they cannot disagree.
 *
 * Order:    open -> (load, read the structs)* -> close. `load` fills the parts asked for; pointers
 *           inside are valid until the next load. A part that fails leaves an error; parts loaded
 *           before stay as they were.
 * Instant:  everything belongs to one instant: the newest step, or `at_step` (the screen scrubbed
 *           back in time).
 * Cost:     bounded by the window and the columns asked for, never by the length of the run: series
 *           and heat maps are kept as min/max/first/last buckets of a power-of-two number of steps;
 *           a load after new steps reads the new steps only. Ranges above BT_VIEW_EXACT_STEPS not
 *           yet loaded are sampled, and say so (`exact` false).
 * Units:    as metrics.def: ms, MiB, bytes, 1/s, fractions 0..1, nats; seconds where the name ends in _s. NaN: unknown.
 * Words (tested against synthetic truth, JSON in store/view/view.md):
 *   median       over ranks: the lower median, so that two ranks are compared with the better one
 *   busy         step - wait. The slow rank waits least: ranks are ordered by busy, never by step time
 *   blame        of a step: goes to the last arriver (smallest wait); amount = second-smallest wait - smallest wait
 *   phase at fault  the last arriver's phase with the largest excess over the ranks' median of that
 *                   phase
 *   late         of a rank: its arrival after the first arriver's = largest wait of the step - own wait
 *   skew         of a step: last arrival - first arrival = largest wait
 *   score        relative: best rank's median busy / own; own: own best block median / own last block median
 *   what-if      mean step time had the rank's busy time been at most the median: a max over ranks
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

/* ---- what to load ---- */
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
    /* every metric of a step, or every metric of a rank */
    BT_VIEW_SERIES_MAX = (int)BT_MS_COUNT > (int)BT_MR_COUNT ? (int)BT_MS_COUNT : (int)BT_MR_COUNT,
    BT_VIEW_EXACT_STEPS = 65536,
    BT_VIEW_WINDOW = BT_RECENT_STEPS,
    BT_VIEW_SAMPLES = 32
};

typedef struct bt_series_ask {
    /* -1: metric is a bt_step_metric; else a bt_rank_metric of this rank */
    int rank;
    int metric;
} bt_series_ask;

typedef struct bt_view_ask {
    unsigned parts;  /* BT_VIEW_* */
    const char *run; /* may be NULL when only BT_VIEW_RUNS is asked for */
    /* a second run whose series become ghosts and whom the heat map is held against, or NULL */
    const char *baseline;
    int64_t now_us;  /* 0: the clock */
    int64_t at_step; /* -1: the newest */
    /* series and heat map cover this much wall time up to the instant; 0: all of the run */
    double span_s;
    int64_t step0, step1; /* an explicit range instead (step1 > 0) */
    bt_x_axis x;
    int columns; /* at most this many buckets a series (0: 256) */
    bt_series_ask series[BT_VIEW_SERIES_MAX];
    int n_series;
    /* nothing but series: head, ranks and summary are left as they are, which takes a tenth of the time */
    bool bare;
    int window; /* sampled steps in rank statistics (0: BT_VIEW_WINDOW) */
    bt_heat_value heat;
    int heat_columns;         /* 0: 120 */
    int max_events, max_runs; /* 0: 200, 500 */
    int max_marks;            /* events that charts mark, at most (0: none) */
    bool ends;                /* series: start, end, and where the extremes lie exactly */
    bt_metric_panel panel;    /* whose metrics; BT_PANEL_COUNT: those of all panels */
    int samples;              /* of each of them (0: BT_VIEW_SAMPLES) */
    /* whose distribution; one that is not recorded, or NULL: the first ternary tensor's */
    int layer;
    const char *tensor;
} bt_view_ask;

/* ---- the parts ---- */
/* What happened to a run that does not train, or was started again: for its first page, `show` and
 * the API alike. Texts are complete phrases without a full stop; "" where there is nothing to
 * say. */
typedef struct bt_view_trouble {
    bool any;
    bt_event_level level; /* ERROR: failed or lost; WARN: stalled, restarting; INFO: the rest */
    char what[120];       /* "failed after step 122 of 500" */
    double when_s, age_s; /* seconds since 1970, and until now; NaN: not known */
    int64_t step;         /* the last one that was recorded; -1: none */
    char why[320];        /* "rank 1 was ended by signal 9 (Killed)" */
    char advice[320];     /* "resume it: it goes on after step 120, so 2 steps are done again" */
    char command[400];    /* that does it, as typed into a shell of the run's machine */
    /* the control verb that does it on a live run; BT_VERB_COUNT: none */
    bt_verb verb;
    /* the command starts the ranks anew, and this is the machine that they were started on */
    bool resumes;
} bt_view_trouble;

/* tasks of other programs for each processor above which the machine's measured speed is too low */
#define BT_MEASURED_BUSY 0.25

enum { BT_VIEW_CHIPS = 5, BT_VIEW_REMARKS = 2 };
/* what was trained, on what, how: "model", "nano, 2.8 M parameters" */
typedef struct bt_view_chip {
    const char *name;
    char text[120];
} bt_view_chip;

typedef struct bt_view_head {
    char run[BT_NAME_MAX], host[BT_HOST_MAX], note[160], exit_kind[120];
    bt_run_state state;
    bool live;    /* not ended */
    double age_s; /* since the last record; NaN: none yet */
    int attempt, n_attempts, world_size, ranks_reporting;
    int64_t step, steps_total; /* step: the one shown, -1 none; steps_total 0: unknown */
    int64_t newest_step;       /* differs from step when scrubbed */
    /* trend: change of the EMA a step, sign only is shown */
    /* of fine-tuning: newest known values; NaN: the run has none */
    double accuracy, val_accuracy, val_f1, reward_margin, val_margin;
    /* tasks of other programs for each processor when links and peak were measured; NaN: not recorded */
    double measured_load;
    double tokens, loss, loss_ema, loss_trend, val_loss, best_val, grad_norm, lr, loss_scale;
    double tokens_per_s, mfu, step_p50_ms, step_p95_ms, step_p99_ms, step_max_ms;
    double overlap, comm_overhead, wait_frac, bytes_wire, bytes_logical, rss_mib;
    double started_s, elapsed_s, eta_s, eta_err_s; /* started: seconds since 1970 */
    double goodput;                                /* productive part of elapsed_s */
    double time_s[BT_TIME_PARTS];                  /* they sum to elapsed_s */
    int64_t skipped, dropped; /* steps not applied in the window; records the writer lost */
    int warnings, errors;     /* events of these levels, whole run */
    int alerts;               /* those of them that nobody has acknowledged */
    int restarts;             /* by its supervisor; starts by hand are attempts, too */
    char params[32], isa[32], preset[32];
    double progress, epoch; /* share of the steps done; passes over the training data; NaN */
    int64_t best_val_step;  /* -1: none */
    /* since this step the gradient is not finite (grad_norm is NaN then); -1: it is finite, or never was known */
    int64_t grad_lost_step;
    bt_view_trouble trouble;
    bt_view_chip chip[BT_VIEW_CHIPS]; /* n_chips of them */
    int n_chips;
    char remark[BT_VIEW_REMARKS]
               [200]; /* whole sentences that every view shows; n_remarks of them */
    int n_remarks;
    bool hub; /* the run is a hub's, and its ranks are islands */
    /* of a step and its phases, by the planner, for the newest attempt's layout; step_ms NaN: nothing was predicted */
    bt_predicted predicted;
} bt_view_head;

typedef struct bt_view_series {
    bt_series_ask what;
    const char *key; /* "loss" */
    bt_unit unit;
    size_t n;
    const double *x, *first, *last, *min, *max, *mean;
    const int64_t *step;  /* last step of each bucket */
    const int64_t *count; /* rows in it */
    bool exact;           /* every row of the range was read */
    bool ghost;           /* of the baseline run */
    /* the y range that a chart shows first (bt_view_usual_range); NaN: no point */
    double low, high;
    /* the steps of the least and of the greatest value; the first step of those at the end that lack the metric, where
     * steps before have it; -1: none */
    int64_t least_step, most_step, lost_step;
    /* means over the first and the last 2 % of the steps, at most 512: the same however many buckets there are; NaN
     * unless asked for */
    double start, end;
} bt_view_series;

typedef enum {
    BT_VERDICT_OK,
    BT_VERDICT_STEADY,
    BT_VERDICT_BURSTY,
    BT_VERDICT_NODE_WIDE,
    BT_VERDICT_RECOVERING,
    BT_VERDICT_CROWDED /* late on a machine with more busy tasks than processors */
} bt_verdict;
/* "ok", "late", "bursty", "node-wide", "recovering", "crowded" */
const char *bt_verdict_name(bt_verdict v);

typedef struct bt_view_rank {
    int rank, pid, threads, pp, dp_replicate, dp_shard, tp;
    char host[BT_HOST_MAX], isa[32];
    size_t n;                 /* sampled steps in the window */
    double mean[BT_MR_COUNT]; /* of every rank metric over the window */
    double busy_p50_ms, step_p50_ms, step_p95_ms, step_p99_ms, step_max_ms, wait_p50_ms;
    double score, score_own;   /* 0..1, 1 = as good as the best */
    double blame_frac, lost_s; /* share of all blame; seconds others lost */
    bt_phase fault;            /* BT_PHASE_COUNT: never blamed */
    double fault_frac;         /* share of its blame from that phase */
    double excess_ms;          /* median busy over the ranks' median */
    bt_verdict verdict;
    int64_t since_step;              /* of a verdict other than ok; -1 */
    double what_if_ms;               /* mean step time without this rank's excess */
    double late_p50_ms, late_p95_ms; /* NaN: no other rank */
    double rss_peak_mib, cpu_frac;   /* processor time / (step time * threads) */
    /* "rank 5 has been slow since step 11841; 83 % of its delay is in data" */
    char says[160];
} bt_view_rank;

typedef struct bt_view_ranks {
    size_t n;
    bt_view_rank *rank; /* by rank number */
    /* n indices, worst first: those late now, then blame, then excess */
    int *order;
    int64_t step0, step1;       /* the window */
    size_t steps;               /* sampled steps in it */
    double median[BT_MR_COUNT]; /* lower median over the ranks of their means, each by itself */
    /* where a step goes: of each step the mean over its ranks, of these the mean over the steps. The
     * phases add up to mean_ms */
    double mean_ms, phase_ms[BT_PHASE_COUNT];
    int ranks_least, ranks_most;     /* that a step is of */
    double step_ms;                  /* mean step time, slowest rank */
    double busy_median_ms;           /* lower median of the ranks' busy medians */
    double tokens_per_s;             /* mean over the window */
    double skew_p50_ms, skew_p95_ms; /* NaN: one rank */
    /* the machine that has more busy tasks than processors, named before any rank is; "": none */
    char crowded[256];
} bt_view_ranks;

#define BT_HEAT_EVEN 1.25

typedef struct bt_view_heat {
    bt_heat_value value;
    size_t rows, cols; /* rows: ranks */
    /* (rows, cols): busy: ratio to the step's median; others ms, MiB, nats; NaN: none */
    const double *cell;
    /* cells are ratios to the baseline's value in the same steps (those it lacks: to its mean) */
    bool against;
    /* The ends of the colour scale. Of values that are even but for noise they lie at least as far
     * apart as 1/BT_HEAT_EVEN and BT_HEAT_EVEN times the middle (of ratios: of 1). */
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
    /* up to the newest sample, which is the last; NaN padded at the front */
    double history[BT_ML_COUNT][BT_VIEW_SAMPLES];
} bt_view_layer;

typedef struct bt_view_layers {
    size_t n;
    bt_view_layer *layer;
    int64_t step; /* the newest sample; -1 none */
    size_t samples;
    /* the step of each place in a history; -1 where there is none */
    int64_t sampled[BT_VIEW_SAMPLES];
} bt_view_layers;

/* how the latent weights and the gradients of a tensor were distributed, sample by sample, in the bins
 * of engine/base/tables/histogram.h */
typedef struct bt_view_tensor {
    int layer;
    char tensor[32];
    bool ternary; /* has latent weights */
} bt_view_tensor;

typedef struct bt_view_distribution {
    size_t n;
    bt_view_tensor *tensor; /* all that were recorded at the newest sample, in their order */
    size_t at;              /* the one whose distribution this is; n: none */
    int samples;            /* oldest first */
    int64_t sampled[BT_VIEW_SAMPLES];
    double weights[BT_VIEW_SAMPLES][BT_HIST_BINS], gradients[BT_VIEW_SAMPLES][BT_HIST_BINS];
} bt_view_distribution;

/* share of a sample's elements in bins from..to-1; NaN: there are none */
double bt_view_share(const double bins[BT_HIST_BINS], int from, int to);

/* one metric of a scope, over all rows of a sample together */
typedef struct bt_view_metric {
    bt_scope scope;
    int metric;                      /* bt_scopes[scope].metric[metric] */
    int64_t step;                    /* the newest sample at which it is known; -1: none */
    size_t rows;                     /* of that sample */
    double mean, least, most;        /* over them */
    double history[BT_VIEW_SAMPLES]; /* means of the samples; NaN padded at the front */
} bt_view_metric;

/* every metric of a panel, or of all, in the order of metrics.def */
typedef struct bt_view_panel {
    bt_metric_panel panel;
    size_t n;
    bt_view_metric metric[BT_METRICS_COUNT];
    /* the step of each place in a history of this scope; -1 where there is none */
    int64_t sampled[BT_SCOPE_COUNT][BT_VIEW_SAMPLES];
} bt_view_panel;

/* one kind of exchange along one axis, per step, mean of the ranks that took part */
typedef struct bt_view_op {
    char op[24], axis[16]; /* "all_reduce", "dp" */
    int ranks;
    /* busy, exposed and wait NaN: ran beside a larger exchange */
    double calls, bytes_logical, bytes_wire, busy_ms, exposed_ms, wait_ms;
    double overlap;     /* 1 - exposed / busy; NaN */
    double rate;        /* bytes a rank sends a second in flight: bus bandwidth */
    double lost_max_ms; /* exposed + wait of the rank that lost most */
    int lost_rank;
    /* time these bytes take by the link measured at the start, nothing else running; model /
     * busy. NaN: not measured */
    double model_ms, model_frac;
} bt_view_op;

/* of an axis: a round of messages between all its ranks; bytes_per_s NaN: it could not be
 * measured */
typedef struct bt_view_link {
    char axis[16];
    double latency_us, bytes_per_s;
} bt_view_link;
/* a step, received by rank; flight: mean of a message, NaN */
typedef struct bt_view_pair {
    int rank, peer;
    double messages, bytes, flight_ms;
} bt_view_pair;

enum { BT_VIEW_LINKS = 8 };
typedef struct bt_view_comm {
    size_t n;
    bt_view_op *op;       /* most lost time first */
    int64_t step0, step1; /* summed up, -1: none */
    size_t n_links;
    bt_view_link link[BT_VIEW_LINKS];
    /* none where ranks exchange through MPI's collectives, or are too many */
    size_t n_pairs;
    bt_view_pair *pair; /* by rank, then peer */
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

/* what the model wrote at a validation, going on from a fixed prompt: an event of kind "sample" */
typedef struct bt_view_text {
    int64_t step;
    char prompt[200], text[2048]; /* without control characters other than line breaks */
} bt_view_text;

/* oldest first; total in the run */
typedef struct bt_view_events {
    size_t n;
    bt_view_event *event;
    int64_t total;
    /* Those that charts mark (events.def), oldest first; `markable` of them in the run. Where there are more than
     * max_marks, failures, restarts, notes and what people changed come first; the other kinds are thinned evenly. */
    size_t n_marks;
    bt_view_event *mark;
    int64_t markable;
    /* the newest text and the one before, newest first */
    int n_texts;
    bt_view_text text[2];
} bt_view_events;

/* a setting (from: who chose it) or a recorded fact (from: "fact") */
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
    double value[BT_MI_COUNT];
} bt_view_island;

typedef struct bt_view_staleness {
    int64_t staleness;
    double updates;
} bt_view_staleness;

enum { BT_VIEW_ISLANDS_MAX = 64, BT_VIEW_STALENESS_MAX = 65 };
/* of a hub's run: its islands at the newest sample, by name; nothing of other runs */
typedef struct bt_view_islands {
    int64_t step; /* the newest sample; -1: none yet */
    size_t n, n_stale;
    bt_view_island island[BT_VIEW_ISLANDS_MAX];
    bt_view_staleness stale[BT_VIEW_STALENESS_MAX]; /* ascending */
    /* of the members: how many, steps of the slowest and the fastest, sequences of a step of all */
    double training, slowest, fastest, sequences;
    double tokens_per_update; /* mean so far: the effective batch */
    double bytes;             /* of updates that came in */
    double updates, mean_staleness;
    double left_out;                           /* updates that were not applied */
    int64_t joined, left, lost, late, refused; /* events of the whole run */
} bt_view_islands;

typedef struct bt_view {
    bt_view_head head;
    bt_view_series series[2 * BT_VIEW_SERIES_MAX]; /* those asked for, then the ghosts */
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
void bt_view_ask_init(bt_view_ask *ask); /* everything default, no run */
/* BT_NOTFOUND: no such run */
bt_code bt_view_load(bt_view *v, const bt_view_ask *ask, bt_err *err) BT_MUST_CHECK;
void bt_view_close(bt_view *v); /* accepts NULL */

/* mean step time had these ranks (indices into v->ranks.rank) been at the median; ms */
double bt_view_what_if(const bt_view *v, const int *ranks, size_t n);
/* The series' means, smoothed: each is the average of the means around it, before and after alike, weighed by
 * keep^(distance in steps). It does not lag, and it stays within the values of the steps around it (min to max of its
 * bucket, or of 16 steps). keep: 0..1; out: s->n values, NaN where the mean is NaN */
void bt_view_smooth(const bt_view_series *s, double keep, double *out);
/* what averages over a share of the steps shown keep per step; 0: none, as below two steps. Charts of any length
 * look equally smooth at the same share */
double bt_view_keep(double share, double steps);
/* how many steps such an average looks back over, and how many steps a series covers */
double bt_view_steps_shown(const bt_view_series *s);
/* Where the values of a run lie: the 5th to the 95th percentile of its steps and at least the
 * quartiles with three times their distance on each side, no further than the values go. A first descent, a few
 * outliers and an explosion lie outside, the newest value too where it is one of them. */
void bt_view_usual_range(const bt_view_series *s, double *low, double *high);
/* The usual range of several lines in one chart, from theirs {low, high} (NaN: none). A line whose values are of
 * another order than the typical line's (one run of many exploded) does not widen it. */
void bt_view_join_ranges(const double (*range)[2], size_t n, double *low, double *high);
/* nearest event before (dir < 0) or after (dir > 0) this step; -1: none */
bt_code bt_view_event_step(bt_view *v, const char *run, int64_t step, int dir, int64_t *out,
                           bt_err *err) BT_MUST_CHECK;
/* newest step whose wall time is not after time_s (since the run began); -1: none */
bt_code bt_view_step_at(bt_view *v, const char *run, double time_s, int64_t *out, bt_err *err)
    BT_MUST_CHECK;
/* seconds since the run began; NaN */
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
