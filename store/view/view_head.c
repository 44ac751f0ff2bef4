/* view_head.c - loads the head of the view: displayed step, state, speed, remaining time, goodput. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/derived.h"
#include "store/read/run_ledger.h"
#include "store/read/run_state.h"
#include "store/view/view_impl.h"

/* number of newest steps for EMA and remaining time */
enum { TAIL = 256 };

typedef struct tail {
    const bt_tail_row *row;
    size_t n;
} tail;
typedef struct tail_reading {
    bt_view_impl *m;
    bt_err *err;
    bt_code code;
} tail_reading;

/* ---- the run's row --------------------------------------------------------------------------- */

typedef struct run_row {
    bt_view_head *h;
    char state[16];
    double created_s, last_s, ended_s, steps;
    int pid;
    bool found;
} run_row;

static void copy_printable_cell(char *out, size_t size, const char *cell) {
    bt_text_plain(out, size, cell ? cell : "");
}

/* A setting may be text. */
static double numeric_column(const bt_row *r, int i) {
    return r->cells[i] ? strtod(r->cells[i], NULL) : r->nums[i];
}

static bool take_head_run_row(void *ctx, const bt_row *r) {
    run_row *x = ctx;
    bt_view_head *h = x->h;
    x->found = true;
    snprintf(x->state, sizeof x->state, "%s", r->cells[0] ? r->cells[0] : "");
    h->world_size = (int)bt_whole(r->nums[1], 0);
    x->steps = r->nums[2];
    x->created_s = r->nums[3];
    x->last_s = r->nums[4];
    x->ended_s = r->nums[5];
    copy_printable_cell(h->host, sizeof h->host, r->cells[6]);
    x->pid = (int)bt_whole(r->nums[7], 0);
    h->n_attempts = (int)bt_whole(r->nums[8], 0);
    copy_printable_cell(h->note, sizeof h->note, r->cells[9]);
    copy_printable_cell(h->exit_kind, sizeof h->exit_kind, r->cells[10]);
    h->dropped = bt_whole(r->nums[11], 0);
    h->best_val = r->nums[12];
    return false;
}

/* ---- planned number of steps ----------------------------------------------------------------- */

typedef struct settings {
    double steps, tokens, batch_tokens, fact_steps;
    bt_view_impl *m;
} settings;

static bool take_head_setting(void *ctx, const bt_row *r) {
    settings *s = ctx;
    if (!r->cells[0]) return true;
    if (strcmp(r->cells[0], "train.steps") == 0)
        s->steps = numeric_column(r, 1);
    else if (strcmp(r->cells[0], "train.tokens") == 0)
        s->tokens = numeric_column(r, 1);
    else if (strcmp(r->cells[0], "train.batch_tokens") == 0)
        s->batch_tokens = numeric_column(r, 1);
    else
        copy_printable_cell(s->m->preset, sizeof s->m->preset, r->cells[1]);
    return true;
}

/* "-" marks an attempt of another layout, for which there is no prediction. */
static void read_predicted(bt_predicted *p, const char *key, const char *value) {
    char *end = NULL;
    const double ms = value ? strtod(value, &end) : NAN;
    for (int i = 0; i < BT_PREDICTED_PARTS; i++)
        if (strcmp(key, bt_predicted_key(i)) == 0)
            *bt_predicted_part(p, i) = end && end != value && *end == '\0' ? ms : (double)NAN;
}

static bool take_head_fact(void *ctx, const bt_row *r) {
    settings *s = ctx;
    if (!r->cells[0]) return true;
    if (strcmp(r->cells[0], "steps_total") == 0)
        s->fact_steps = numeric_column(r, 1);
    else if (strcmp(r->cells[0], "islands.settings") == 0)
        s->m->hub = true;
    else if (strcmp(r->cells[0], "measured.load") == 0)
        s->m->measured_load = numeric_column(r, 1);
    else if (strncmp(r->cells[0], "plan.", 5) == 0)
        read_predicted(&s->m->predicted, r->cells[0] + 5, r->cells[1]);
    else if (strcmp(r->cells[0], "isa") == 0)
        copy_printable_cell(s->m->isa, sizeof s->m->isa, r->cells[1]);
    else
        copy_printable_cell(s->m->params, sizeof s->m->params, r->cells[1]);
    return true;
}

/* True if the newest attempt has steps; repeated steps belong to the previous attempt until they are done. */
static bt_code attempt_has_steps(bt_view *v, double steps, bool *has, bt_err *err) {
    const double at = steps - 1;
    double attempt = NAN;
    if (steps > 0)
        BT_TRY(bt_vq_row(v->impl, "SELECT attempt FROM steps WHERE run = ?1 AND step = ?2",
                         v->head.run, &at, 1, &attempt, 1, err));
    *has = !isnan(attempt) && (int)bt_whole(attempt, -1) == v->head.attempt;
    return BT_OK;
}

/* Settings change with an attempt only; facts are recorded shortly after the attempt's row. */
static bt_code load_head_settings(bt_view *v, double steps, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_head *h = &v->head;
    const char *run = h->run;
    settings s = {NAN, NAN, NAN, NAN, m};
    if (!m->settings_whole) {
        m->params[0] = m->preset[0] = m->isa[0] = 0;
        m->hub = false;
        m->measured_load = NAN;
        (void)bt_predicted_read("", &m->predicted);
        BT_TRY(bt_vq_rows(m,
                          "SELECT key, value FROM configs WHERE run = ?1 AND key IN "
                          "('train.steps', 'train.tokens', 'train.batch_tokens', "
                          "'model.preset')",
                          run, NULL, 0, take_head_setting, &s, err));
        BT_TRY(bt_vq_rows(
            m,
            "SELECT key, value FROM facts WHERE run = ?1 AND key IN ('steps_total', "
            "'params', 'isa', 'islands.settings', 'measured.load') OR run = ?1 AND key BETWEEN "
            "'plan.' AND 'plan.~'",
            run, NULL, 0, take_head_fact, &s, err));
        if (isnan(m->predicted.step_ms)) (void)bt_predicted_read("", &m->predicted);
        m->steps_total = (int64_t)(s.fact_steps > 0 ? s.fact_steps
                                   : s.steps > 0    ? s.steps
                                   : s.tokens > 0 && s.batch_tokens > 0
                                       ? ceil(s.tokens / s.batch_tokens)
                                       : 0);
        BT_TRY(attempt_has_steps(v, steps, &m->settings_whole, err));
    }
    h->steps_total = m->steps_total;
    h->hub = m->hub;
    h->measured_load = m->measured_load;
    snprintf(h->params, sizeof h->params, "%s", m->params);
    snprintf(h->preset, sizeof h->preset, "%s", m->preset);
    snprintf(h->isa, sizeof h->isa, "%s", m->isa);
    h->predicted = m->predicted;
    return BT_OK;
}

/* ---- the newest steps ------------------------------------------------------------------------ */

static bool append_tail_row(void *ctx, const double *col, int n) {
    tail_reading *t = ctx;
    bt_view_impl *m = t->m;
    t->code = BT_GROW(m->tail, m->cap_tail, m->n_tail + 1, t->err);
    if (t->code != BT_OK || n < 2 + BT_MS_COUNT) return false;
    bt_tail_row *r = &m->tail[m->n_tail++];
    r->step = (int64_t)col[0];
    r->time_s = col[1];
    memcpy(r->v, col + 2, sizeof r->v);
    return true;
}

static bt_code read_tail(bt_view *v, int64_t from, int64_t to, bt_err *err) {
    tail_reading t = {v->impl, err, BT_OK};
    double args[] = {(double)from, (double)to};
    bt_code code = bt_vq_each(v->impl, v->impl->tail_sql, v->head.run, args, 2, append_tail_row, &t,
                              err);
    return code == BT_OK ? t.code : code;
}

static bt_code tail_query(bt_view_impl *m, bt_err *err) {
    bt_text sql;
    if (m->tail_sql) return BT_OK;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT step, time_s");
    for (int i = 0; i < BT_MS_COUNT; i++) bt_text_printf(&sql, ", \"%s\"", bt_step_metrics[i].key);
    bt_text_put(&sql, " FROM steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step");
    return bt_view_sql(&m->tail_sql, &sql, err);
}

/* Reads only rows newer than the cached ones. Steps may be recorded every N-th time only, so the range is widened
 * until there are enough rows. */
static bt_code load_steps_tail(bt_view *v, tail *t, bt_err *err) {
    bt_view_impl *m = v->impl;
    int64_t at = m->at_step;
    bool follows = m->n_tail > 0 && at >= m->tail_to && at - m->tail_to < TAIL;
    BT_TRY(tail_query(m, err));
    bt_code code = follows && at > m->tail_to ? read_tail(v, m->tail_to + 1, at, err) : BT_OK;
    for (int64_t width = TAIL; code == BT_OK && !follows; width *= 16) {
        int64_t from = at - width + 1 > 0 ? at - width + 1 : 0;
        m->n_tail = m->tail_first = 0;
        code = read_tail(v, from, at, err);
        if (m->n_tail >= TAIL / 8 || from == 0 || width > 100000000) break;
    }
    if (code != BT_OK) m->n_tail = m->tail_first = 0;
    if (m->n_tail - m->tail_first > TAIL) m->tail_first = m->n_tail - TAIL;
    /* moves the rows to the front, once in many calls */
    if (m->tail_first >= 3 * TAIL) {
        m->n_tail -= m->tail_first;
        memmove(m->tail, m->tail + m->tail_first, m->n_tail * sizeof *m->tail);
        m->tail_first = 0;
    }
    m->tail_to = at;
    *t = (tail){m->tail + m->tail_first, m->n_tail - m->tail_first};
    return code;
}

static double newest_known_value(const tail *t, int metric) {
    for (size_t i = t->n; i-- > 0;)
        if (!isnan(t->row[i].v[metric])) return t->row[i].v[metric];
    return NAN;
}

/* Returns the first step without a metric that earlier rows have and the newest rows lack; -1: none. */
static int64_t first_step_without_metric(const tail *t, int metric) {
    size_t i = t->n;
    while (i > 0 && isnan(t->row[i - 1].v[metric])) i--;
    return i > 0 && i < t->n ? t->row[i].step : -1;
}

static double tail_mean(const tail *t, int metric) {
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (!isnan(t->row[i].v[metric])) sum += t->row[i].v[metric], n++;
    return n ? sum / (double)n : NAN;
}

/* Returns the rows for figures of span RECENT, as in the view `runs` (store/write/apply.c). */
static tail recent_rows(const tail *t) {
    size_t n = t->n < BT_RECENT_STEPS ? t->n : BT_RECENT_STEPS;
    return (tail){t->row + (t->n - n), n};
}

static double median_of_recent_rows(const tail *t, int metric) {
    double v[BT_RECENT_STEPS];
    const tail now = recent_rows(t);
    for (size_t i = 0; i < now.n; i++) v[i] = now.row[i].v[metric];
    return bt_median_known(v, now.n);
}

static double tail_comm_overhead(const tail *t) {
    double share[BT_RECENT_STEPS], time[BT_RECENT_STEPS];
    const tail now = recent_rows(t);
    for (size_t i = 0; i < now.n; i++) {
        share[i] = now.row[i].v[BT_MS_COMM_OVERHEAD];
        time[i] = bt_derived_rank_time(now.row[i].v[BT_MS_STEP_MEAN],
                                       now.row[i].v[BT_MS_STEP_TIME]);
    }
    return bt_share_of_time(share, time, now.n);
}

static void smooth_loss(bt_view_head *h, const tail *t) {
    double ema = NAN, before = NAN, sum = 0, weight = 0;
    for (size_t i = 0; i < t->n; i++) {
        double x = t->row[i].v[BT_MS_LOSS];
        if (isnan(x)) continue;
        sum = 0.9 * sum + 0.1 * x;
        weight = 0.9 * weight + 0.1;
        ema = sum / weight;
        if (i + 1 == t->n - t->n / 4) before = ema;
    }
    h->loss_ema = ema;
    // NOLINTNEXTLINE(bugprone-integer-division): a count of steps
    h->loss_trend = t->n >= 8 ? (ema - before) / (double)(t->n / 4) : NAN;
}

/* Seconds between two times (since the run began) in which ranks trained, without pauses, stalls and starts. */
static double trained_interval_s(const bt_ledger *l, double from_s, double to_s) {
    double sum = to_s - from_s;
    for (size_t i = l->n; i-- > 0;) {
        const bt_ledger_span *p = &l->span[i];
        const double begin = (double)(p->begin_us - l->begin_us) / 1e6,
                     end = (double)(p->end_us - l->begin_us) / 1e6;
        if (end <= from_s) break;
        if (p->part == BT_TIME_PAUSED || p->part == BT_TIME_FINISHED ||
            p->part == BT_TIME_STARTUP || p->part == BT_TIME_LOST)
            sum -= fmax(0, fmin(end, to_s) - fmax(begin, from_s));
    }
    return sum;
}

static double trained_per_step(const bt_ledger *l, const bt_tail_row *a, const bt_tail_row *b) {
    return trained_interval_s(l, a->time_s, b->time_s) / (double)(b->step - a->step);
}

/* Estimates the remaining time as remaining steps x recent step time. eta_err_s follows from the spread of the mean
 * step times of eight parts of the tail. */
static void estimate_time_left(bt_view_head *h, const tail *t, const bt_ledger *l) {
    h->eta_s = h->eta_err_s = NAN;
    if (h->state != BT_STATE_RUNNING || h->steps_total <= 0 || t->n < 4) return;
    const bt_tail_row *a = &t->row[0], *b = &t->row[t->n - 1];
    double per_step = trained_per_step(l, a, b), left = (double)(h->steps_total - 1 - b->step);
    if (!(per_step > 0) || left < 0) return;
    h->eta_s = left * per_step;
    if (t->n < 32) return;
    double sum = 0, squares = 0;
    for (size_t k = 0; k < 8; k++) {
        const bt_tail_row *p = &t->row[k * (t->n - 1) / 8], *q = &t->row[(k + 1) * (t->n - 1) / 8];
        double m = trained_per_step(l, p, q);
        sum += m;
        squares += m * m;
    }
    double variance = fmax(0, squares / 8 - sum * sum / 64);
    h->eta_err_s = left * sqrt(variance / 8);
}

static bt_code compute_from_tail(bt_view *v, bt_err *err) {
    bt_view_head *h = &v->head;
    tail t = {0};
    bt_code code = load_steps_tail(v, &t, err);
    if (code != BT_OK || t.n == 0) return code;
    double ms[BT_RECENT_STEPS];
    size_t n = 0;
    const tail now = recent_rows(&t);
    h->skipped = 0;
    for (size_t i = 0; i < now.n; i++)
        if (!isnan(now.row[i].v[BT_MS_STEP_TIME])) ms[n++] = now.row[i].v[BT_MS_STEP_TIME];
    for (size_t i = 0; i < t.n; i++)
        if (t.row[i].v[BT_MS_SKIPPED] > 0) h->skipped++;
    bt_sort_doubles(ms, n);
    h->step_p50_ms = median_of_recent_rows(&t, BT_MS_STEP_TIME);
    h->step_p95_ms = bt_quantile(ms, n, 0.95);
    h->step_p99_ms = bt_quantile(ms, n, 0.99);
    h->step_max_ms = n ? ms[n - 1] : NAN;
    h->step = t.row[t.n - 1].step;
    h->tokens = newest_known_value(&t, BT_MS_TOKENS);
    h->loss = t.row[t.n - 1].v[BT_MS_LOSS];
    h->val_loss = newest_known_value(&t, BT_MS_VAL_LOSS);
    h->accuracy = newest_known_value(&t, BT_MS_ACCURACY);
    h->val_accuracy = newest_known_value(&t, BT_MS_VAL_ACCURACY);
    h->val_f1 = newest_known_value(&t, BT_MS_VAL_F1);
    h->reward_margin = newest_known_value(&t, BT_MS_REWARD_MARGIN);
    h->val_margin = newest_known_value(&t, BT_MS_VAL_MARGIN);
    h->grad_norm = t.row[t.n - 1].v[BT_MS_GRAD_NORM];
    h->grad_lost_step = first_step_without_metric(&t, BT_MS_GRAD_NORM);
    h->lr = newest_known_value(&t, BT_MS_LR);
    h->loss_scale = newest_known_value(&t, BT_MS_LOSS_SCALE);
    h->mfu = median_of_recent_rows(&t, BT_MS_MFU);
    h->tokens_per_s = median_of_recent_rows(&t, BT_MS_TOKENS_PER_S);
    h->overlap = median_of_recent_rows(&t, BT_MS_OVERLAP);
    h->comm_overhead = tail_comm_overhead(&t);
    h->bytes_wire = tail_mean(&now, BT_MS_BYTES_WIRE);
    h->bytes_logical = tail_mean(&now, BT_MS_BYTES_LOGICAL);
    h->rss_mib = newest_known_value(&t, BT_MS_RSS_MAX);
    smooth_loss(h, &t);
    return BT_OK;
}

/* ---- attempts, events, checkpoints ----------------------------------------------------------- */

typedef struct last_attempt {
    bool ended;
    int number;
} last_attempt;

/* After an evaluation during a pause, cached steps lack its validation loss and are read again. */
static bt_code forget_late_validation(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    double x[2];
    BT_TRY(bt_vq_row(m,
                     "SELECT max(seq), min(step) FROM events WHERE run = ?1 AND seq > ?2 AND kind "
                     "= 'evaluation'",
                     v->head.run, (const double[]){(double)m->validated_at}, 1, x, 2, err));
    if (isnan(x[0])) return BT_OK;
    m->validated_at = (int64_t)x[0];
    if (isnan(x[1]) || (int64_t)x[1] > m->newest_step) return BT_OK;
    m->n_tail = m->tail_first = 0;
    for (size_t i = 0; i < m->n_streams; i++)
        if (!m->stream[i].ghost) m->stream[i].n = 0;
    return BT_OK;
}

/* Cached counts are valid until there is a new event. */
static bt_code load_totals(bt_view *v, last_attempt *last, bt_err *err) {
    bt_view_head *h = &v->head;
    bt_view_impl *m = v->impl;
    double x[4];
    BT_TRY(bt_vq_row(m,
                     "SELECT attempt, ended_s FROM attempts WHERE run = ?1 ORDER BY attempt DESC "
                     "LIMIT 1",
                     h->run, NULL, 0, x, 2, err));
    *last = (last_attempt){.number = (int)bt_whole(x[0], -1), .ended = !isnan(x[1])};
    BT_TRY(bt_vq_row(m, "SELECT seq FROM events WHERE run = ?1 ORDER BY seq DESC LIMIT 1", h->run,
                     NULL, 0, x, 1, err));
    m->event_newest = bt_whole(x[0], -1);
    if (m->event_newest < 0 || m->event_newest != m->events_at) {
        BT_TRY(bt_vq_row(m,
                         "SELECT sum(level = 'warning'), sum(level = 'error'), sum(level <> 'info' "
                         "AND seq > coalesce((SELECT max(seq) FROM events WHERE run = ?1 AND"
                         " kind = 'acknowledged'), 0)), sum(kind = 'restarted') FROM events WHERE "
                         "run = ?1",
                         h->run, NULL, 0, x, 4, err));
        m->warnings = (int)bt_whole(x[0], 0);
        m->errors = (int)bt_whole(x[1], 0);
        m->alerts = (int)bt_whole(x[2], 0);
        m->restarts = (int)bt_whole(x[3], 0);
        BT_TRY(forget_late_validation(v, err));
        m->events_at = m->event_newest;
    }
    h->warnings = m->warnings;
    h->errors = m->errors;
    h->alerts = m->alerts;
    h->restarts = m->restarts;
    h->attempt = last->number;
    return BT_OK;
}

/* Drops the cache of another run, or of this run before a restart, because a restart repeats steps. */
static void drop_other_cache(bt_view *v, const run_row *x) {
    bt_view_impl *m = v->impl;
    const bt_view_head *h = &v->head;
    bool same = strcmp(m->run, h->run) == 0 && m->n_attempts == h->n_attempts &&
                m->created_s >= x->created_s && m->created_s <= x->created_s;
    if (same) return;
    snprintf(m->run, sizeof m->run, "%s", h->run);
    m->n_attempts = h->n_attempts;
    m->created_s = x->created_s;
    for (size_t i = 0; i < m->n_streams; i++)
        if (strcmp(m->stream[i].run, h->run) == 0) m->stream[i].n = 0;
    m->heat.run[0] = 0;
    m->settings_whole = false;
    m->n_tail = m->tail_first = 0;
    m->n_rows = m->row_first = m->n_judged = m->judged_first = 0;
    m->n_named = 0;
    m->events_at = m->list_at = m->newest_step = -1;
    m->validated_at = 0;
    m->layer_newest = m->pair_newest = m->distribution_newest = -2;
}

static bt_code load_times(bt_view *v, bt_err *err) {
    bt_view_head *h = &v->head;
    bt_ledger *l = &v->impl->ledger;
    BT_TRY(bt_run_ledger(l, v->impl->db, h->run, bt_run_until(h->state, v->impl->now_us), err));
    for (int p = 0; p < BT_TIME_PARTS; p++) h->time_s[p] = bt_ledger_s(l, (bt_time_part)p);
    h->elapsed_s = (double)(l->end_us - l->begin_us) / 1e6;
    h->goodput = bt_ledger_goodput(l);
    return BT_OK;
}

bt_code bt_view_load_head(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_head *h = &v->head;
    const char *run = ask->run;
    *h = (bt_view_head){.step = -1,
                        .newest_step = -1,
                        .grad_lost_step = -1,
                        .memorising_step = -1,
                        .passes = NAN,
                        .val_gap = NAN,
                        .tokens = NAN,
                        .loss = NAN,
                        .loss_ema = NAN,
                        .loss_trend = NAN,
                        .val_loss = NAN,
                        .best_val = NAN,
                        .accuracy = NAN,
                        .val_accuracy = NAN,
                        .val_f1 = NAN,
                        .reward_margin = NAN,
                        .val_margin = NAN,
                        .grad_norm = NAN,
                        .lr = NAN,
                        .measured_load = NAN,
                        .loss_scale = NAN,
                        .tokens_per_s = NAN,
                        .mfu = NAN,
                        .step_p50_ms = NAN,
                        .step_p95_ms = NAN,
                        .step_p99_ms = NAN,
                        .step_max_ms = NAN,
                        .overlap = NAN,
                        .comm_overhead = NAN,
                        .wait_frac = NAN,
                        .bytes_wire = NAN,
                        .bytes_logical = NAN,
                        .rss_mib = NAN,
                        .eta_s = NAN,
                        .eta_err_s = NAN,
                        .age_s = NAN,
                        .goodput = NAN};
    snprintf(h->run, sizeof h->run, "%s", run);
    run_row x = {.h = h};
    BT_TRY(bt_vq_rows(m,
                      "SELECT state, ranks, steps, started_s, updated_s, ended_s, host, pid, "
                      "attempts, note, exit_kind, "
                      "dropped, best_val FROM runs WHERE run = ?1",
                      run, NULL, 0, take_head_run_row, &x, err));
    if (!x.found) return bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
    drop_other_cache(v, &x);
    last_attempt last;
    BT_TRY(load_totals(v, &last, err));
    BT_TRY(load_head_settings(v, x.steps, err));
    if (!ask->now_us) BT_TRY(bt_run_now(m->db, run, &m->now_us, err));
    m->last_s = x.last_s;
    m->ended_s = x.ended_s;
    m->attempt = h->attempt;
    m->newest_step = isnan(x.steps) ? -1 : (int64_t)x.steps - 1;
    m->at_step = ask->at_step >= 0 && ask->at_step < m->newest_step ? ask->at_step : m->newest_step;
    h->newest_step = m->newest_step;
    h->started_s = x.created_s;
    double now_s = (double)m->now_us / 1e6;
    h->age_s = isnan(x.last_s) ? fmax(0, now_s - x.created_s) : fmax(0, now_s - x.last_s);
    h->state = bt_run_state_of(x.state, h->age_s, NAN, last.ended);
    h->live = bt_run_states[h->state].live;
    if (m->at_step >= 0) BT_TRY(compute_from_tail(v, err));
    h->state = bt_run_state_of(x.state, h->age_s, h->step_p95_ms / 1e3, last.ended);
    BT_TRY(load_times(v, err));
    if (m->at_step >= 0)
        estimate_time_left(h, &(tail){m->tail + m->tail_first, m->n_tail - m->tail_first},
                           &m->ledger);
    return BT_OK;
}

/* Loads only what series need; the head then contains only the run's identity. */
bt_code bt_view_load_position(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    double x[3];
    BT_TRY(bt_vq_row(m, "SELECT attempts, steps, started_s FROM runs WHERE run = ?1", ask->run,
                     NULL, 0, x, 3, err));
    if (isnan(x[2])) return bt_fail(err, BT_NOTFOUND, "no run '%s'", ask->run);
    snprintf(v->head.run, sizeof v->head.run, "%s", ask->run);
    v->head.n_attempts = (int)bt_whole(x[0], 0);
    drop_other_cache(v, &(run_row){.created_s = x[2]});
    m->newest_step = m->at_step = isnan(x[1]) ? -1 : (int64_t)x[1] - 1;
    return forget_late_validation(v, err);
}
