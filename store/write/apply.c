/* apply.c - converts records to rows. The summary columns of `run` change in the transaction of the data. */
#include "store/write/apply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/tables/derived.h"
#include "store/ledger/ledger.h"
#include "store/write/rollup.h"
#include "store/write/spark.h"
#include "store/write/start.h"

/* Minimum time between two updates of the parts of a run's time if only steps arrive. */
static const int64_t LEDGER_PACE_NS = 1000000000;

/* newest steps: inputs of the figures of span RECENT, as in store/view/view_head.c */
enum { TOOK_US, RANK_MS, SPEED, MFU, OVERHEAD, RECENT };

typedef struct summary {
    int64_t last_step, last_us, tokens, bytes_wire, rss_kib, best_val_step;
    int64_t first_step; /* lowest recorded step of this attempt, -1: none yet */
    /* newest step of this attempt and its end; -1: none */
    int64_t attempt_step, attempt_us;
    double loss, val_loss, best_val;
    double energy_j; /* NaN: unknown */
    /* values of the newest steps */
    double recent[RECENT][BT_RECENT_STEPS];
    uint64_t n_recent;
    bt_spark spark; /* loss */
} summary;

enum {
    ST_RANK,
    ST_FACT,
    ST_EVENT,
    ST_CKPT,
    ST_CLIP,
    ST_FROM,
    ST_ACCEPT_RUN, /* these three: start.h */
    ST_ACCEPT_DOC,
    ST_ACCEPTED,
    ST_SUMMARY,
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_EVENT_KNOWN,
    ST_VAL_LOSS,
    ST_VALIDATED,
    ST_COUNT
};

struct bt_apply {
    sqlite3 *db;
    const char *path;
    sqlite3_stmt *st[ST_COUNT];
    sqlite3_stmt *insert[BT_SCOPE_COUNT];
    /* metrics of each scope, in column order */
    bt_column column[BT_METRICS_COUNT], *columns[BT_SCOPE_COUNT];
    bt_apply_attempt at;
    summary now, saved; /* `saved`: values of the last commit */
    int rc;             /* first failure of the running transaction */
    bool touched;       /* a step arrived, so the summary changes */
    bool again;         /* records may have been stored before */
    bt_roll *roll;
    bt_ledger ledger;
    int64_t ledger_ns; /* time at which the parts of the run's time were stored last */
    bool marked;       /* an event or checkpoint changed the division of the run's time */
    uint64_t skipped;
    bt_sink sink;
};

/* ---- binding ---- */

static void bind_metric(sqlite3_stmt *st, int at, double v, const bt_column *c) {
    if (!isfinite(v))
        sqlite3_bind_null(st, at);
    else if (!c->integer)
        sqlite3_bind_double(st, at, v);
    else {
        double x = v * c->scale;
        sqlite3_bind_int64(st, at, x >= 9.2e18 ? INT64_MAX : x <= -9.2e18 ? INT64_MIN : llround(x));
    }
}

static void bind_text(sqlite3_stmt *st, int at, const char *s) {
    if (s)
        sqlite3_bind_text(st, at, s, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(st, at);
}

/* Binds the metrics of a row after its other columns; returns a bit mask of the infinite ones. */
static int64_t bind_metrics(bt_apply *a, bt_scope scope, const double *values) {
    int64_t infinite = 0;
    int at = bt_scope_fixed(scope) + 1;
    for (int i = 0; i < bt_scopes[scope].n; i++) {
        bind_metric(a->insert[scope], at + i, values[i], &a->columns[scope][i]);
        if (i < 62 && isinf(values[i])) infinite |= INT64_C(1) << i;
    }
    return infinite;
}

/* Runs a bound statement. Skips a row that can never be stored; any other failure fails the transaction. */
static void run_statement(bt_apply *a, sqlite3_stmt *st) {
    if (a->rc != SQLITE_OK) return;
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    switch (rc & 0xff) {
    case SQLITE_DONE:
    case SQLITE_ROW: return;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG: a->skipped++; return;
    default: a->rc = rc;
    }
}

/* ---- the sink: called by bt_record_deliver inside a transaction ------------------------------ */

static void apply_ranks(void *ctx, const bt_rank_info *ranks, size_t n) {
    bt_apply *a = ctx;
    sqlite3_stmt *st = a->st[ST_RANK];
    for (size_t i = 0; i < n; i++) {
        const bt_rank_info *r = &ranks[i];
        const int ints[] = {r->threads, r->pp, r->dp_replicate, r->dp_shard, r->tp};
        sqlite3_bind_int64(st, 1, a->at.aid);
        sqlite3_bind_int(st, 2, r->rank);
        bind_text(st, 3, r->host);
        sqlite3_bind_int(st, 4, r->pid);
        bind_text(st, 5, r->isa);
        for (int k = 0; k < 5; k++) sqlite3_bind_int(st, 6 + k, ints[k]);
        run_statement(a, st);
    }
}

static void apply_fact(void *ctx, const char *key, const char *value) {
    bt_apply *a = ctx;
    sqlite3_stmt *st = a->st[ST_FACT];
    sqlite3_bind_int64(st, 1, a->at.run);
    bind_text(st, 2, key);
    bind_text(st, 3, value);
    sqlite3_bind_int(st, 4, a->at.attempt);
    run_statement(a, st);
}

/* True for an amount that can be summed without overflow. */
static bool can_be_summed(double v) { return v >= 0 && v < 1e15; }

static void record_validation_loss(summary *s, int64_t step, double val_loss) {
    if (!isfinite(val_loss)) return;
    s->val_loss = val_loss;
    if (s->val_loss >= s->best_val) return;
    s->best_val = s->val_loss;
    s->best_val_step = step;
}

static void add_recent_step(summary *s, const double now[RECENT]) {
    for (int i = 0; i < RECENT; i++) s->recent[i][s->n_recent % BT_RECENT_STEPS] = now[i];
    s->n_recent++;
}

static void summarise_step(summary *s, const bt_step_record *r) {
    const double *v = r->values;
    double took = v[BT_MS_STEP_TIME] * 1e3;
    if (isfinite(took) && took >= 0 && took < 1e15) {
        const double now[RECENT] = {took,
                                    bt_derived_rank_time(v[BT_MS_STEP_MEAN], v[BT_MS_STEP_TIME]),
                                    v[BT_MS_TOKENS_PER_S], v[BT_MS_MFU], v[BT_MS_COMM_OVERHEAD]};
        add_recent_step(s, now);
    }
    if (s->first_step < 0 || r->step < s->first_step) s->first_step = r->step;
    s->attempt_step = s->last_step = r->step;
    s->attempt_us = s->last_us = r->wall_us;
    if (can_be_summed(v[BT_MS_TOKENS])) s->tokens = llround(v[BT_MS_TOKENS]);
    s->loss = v[BT_MS_LOSS];
    record_validation_loss(s, r->step, v[BT_MS_VAL_LOSS]);
    if (can_be_summed(v[BT_MS_BYTES_WIRE])) s->bytes_wire += llround(v[BT_MS_BYTES_WIRE]);
    if (can_be_summed(v[BT_MS_ENERGY]))
        s->energy_j = (isnan(s->energy_j) ? 0 : s->energy_j) + v[BT_MS_ENERGY];
    if (can_be_summed(v[BT_MS_RSS_MAX]) && v[BT_MS_RSS_MAX] * 1024 > (double)s->rss_kib)
        s->rss_kib = llround(v[BT_MS_RSS_MAX] * 1024);
    bt_spark_add(&s->spark, r->step, s->loss);
}

static void insert_ranks(bt_apply *a, const bt_step_record *r) {
    sqlite3_stmt *st = a->insert[BT_SCOPE_RANK];
    bool fits = a->at.aid >> BT_AID_BITS == 0 && r->step >> BT_STEP_BITS == 0;
    for (int k = 0; k < r->n_ranks && a->rc == SQLITE_OK; k++) {
        if (!fits || k >> BT_RANK_BITS) {
            a->skipped++;
            continue;
        }
        sqlite3_bind_int64(st, 1, bt_rank_key(a->at.aid, r->step, k));
        bind_metrics(a, BT_SCOPE_RANK, r->rank_values + (size_t)k * BT_MR_COUNT);
        run_statement(a, st);
    }
}

static void adopt_proposed_settings(bt_apply *a) {
    for (int i = ST_ACCEPT_RUN; i <= ST_ACCEPTED; i++) {
        sqlite3_bind_int64(a->st[i], 1, a->at.run);
        run_statement(a, a->st[i]);
    }
}

static void apply_step(void *ctx, const bt_step_record *r) {
    bt_apply *a = ctx;
    sqlite3_stmt *st = a->insert[BT_SCOPE_STEP];
    if (a->again && r->step <= a->now.attempt_step) return;
    if (a->now.first_step < 0) adopt_proposed_settings(a);
    /* Marks the steps of earlier attempts from this step on as repeated. */
    if (a->now.first_step < 0 || r->step < a->now.first_step) {
        sqlite3_bind_int64(a->st[ST_CLIP], 1, r->step);
        sqlite3_bind_int64(a->st[ST_CLIP], 2, a->at.run);
        sqlite3_bind_int(a->st[ST_CLIP], 3, a->at.attempt);
        run_statement(a, a->st[ST_CLIP]);
        if (r->step < a->at.from_step) {
            sqlite3_bind_int64(a->st[ST_FROM], 1, r->step);
            sqlite3_bind_int64(a->st[ST_FROM], 2, a->at.aid);
            run_statement(a, a->st[ST_FROM]);
        }
    }
    /* bit i: metric i was infinite; bit 62: the loss was not a number */
    int64_t flags = bind_metrics(a, BT_SCOPE_STEP, r->values);
    if (isnan(r->values[BT_MS_LOSS])) flags |= INT64_C(1) << 62;
    sqlite3_bind_int64(st, 1, a->at.aid);
    sqlite3_bind_int64(st, 2, r->step);
    sqlite3_bind_int64(st, 3, r->wall_us);
    sqlite3_bind_int64(st, 4, flags);
    run_statement(a, st);
    insert_ranks(a, r);
    if (a->rc == SQLITE_OK) a->rc = bt_roll_add(a->roll, r);
    summarise_step(&a->now, r);
    a->touched = true;
}

static void apply_rows(void *ctx, const bt_row_record *r) {
    bt_apply *a = ctx;
    const bt_scope_row *scope = &bt_scopes[r->scope];
    sqlite3_stmt *st = a->insert[r->scope];
    const bt_key *key = r->keys;
    for (size_t row = 0; row < r->n && a->rc == SQLITE_OK; row++) {
        sqlite3_bind_int64(st, 1, a->at.aid);
        sqlite3_bind_int64(st, 2, r->step);
        for (int k = 0; k < scope->n_keys; k++, key++) {
            if (scope->key[k].text)
                bind_text(st, 3 + k, key->s);
            else
                sqlite3_bind_int64(st, 3 + k, key->i);
        }
        bind_metrics(a, r->scope, r->values + row * (size_t)scope->n);
        run_statement(a, st);
    }
}

static bool is_event_stored(bt_apply *a, const bt_event *e) {
    sqlite3_stmt *st = a->st[ST_EVENT_KNOWN];
    sqlite3_bind_int64(st, 1, a->at.run);
    sqlite3_bind_int64(st, 2, a->at.aid);
    sqlite3_bind_int64(st, 3, e->wall_us);
    bind_text(st, 4, bt_events[e->kind].name);
    bind_text(st, 5, e->title);
    bool known = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_reset(st);
    return known;
}

/* Stores the loss of an evaluation during a pause or after the last step, whose step is already recorded. Other
 * evaluations are part of their step's record. */
static void store_late_validation(bt_apply *a, const bt_event *e) {
    sqlite3_stmt *st = a->st[ST_VAL_LOSS];
    double val_loss = NAN;
    if (a->rc != SQLITE_OK || !e->body || e->step < 0) return;
    bind_text(st, 1, e->body);
    if (sqlite3_step(st) == SQLITE_ROW) val_loss = bt_sql_number(st, 0);
    sqlite3_reset(st);
    if (!isfinite(val_loss)) return;
    st = a->st[ST_VALIDATED];
    sqlite3_bind_double(st, 1, val_loss);
    sqlite3_bind_int64(st, 2, e->step);
    sqlite3_bind_int64(st, 3, a->at.run);
    run_statement(a, st);
    if (a->rc != SQLITE_OK || sqlite3_changes(a->db) == 0) return;
    record_validation_loss(&a->now, e->step, val_loss);
    a->touched = true;
    bt_roll_forget(a->roll); /* open blocks contain the row without this loss */
}

static void apply_event(void *ctx, const bt_event *e) {
    bt_apply *a = ctx;
    sqlite3_stmt *st = a->st[ST_EVENT];
    if (a->again && is_event_stored(a, e)) return;
    sqlite3_bind_int64(st, 1, a->at.run);
    sqlite3_bind_int64(st, 2, a->at.aid);
    sqlite3_bind_int64(st, 3, e->wall_us);
    if (e->step >= 0)
        sqlite3_bind_int64(st, 4, e->step);
    else
        sqlite3_bind_null(st, 4);
    if (e->rank >= 0)
        sqlite3_bind_int(st, 5, e->rank);
    else
        sqlite3_bind_null(st, 5);
    bind_text(st, 6, bt_events[e->kind].name);
    sqlite3_bind_int(st, 7, (int)bt_events[e->kind].level);
    bind_text(st, 8, e->title);
    bind_text(st, 9, e->body);
    run_statement(a, st);
    if (bt_events[e->kind].effect != BT_EFFECT_NONE) a->marked = true;
    if (bt_events[e->kind].effect == BT_EFFECT_VALIDATES) store_late_validation(a, e);
    /* The engine reports the checkpoint that it found; the event has its last step. */
    if (e->step >= 0 && bt_events[e->kind].effect == BT_EFFECT_RESUMES) {
        sqlite3_bind_int64(a->st[ST_FROM], 1, e->step + 1);
        sqlite3_bind_int64(a->st[ST_FROM], 2, a->at.aid);
        run_statement(a, a->st[ST_FROM]);
    }
}

static void apply_ckpt(void *ctx, const bt_ckpt_record *c) {
    bt_apply *a = ctx;
    sqlite3_stmt *st = a->st[ST_CKPT];
    sqlite3_bind_int64(st, 1, a->at.run);
    sqlite3_bind_int64(st, 2, c->step);
    sqlite3_bind_int(st, 3, a->at.attempt);
    sqlite3_bind_int64(st, 4, c->wall_us);
    bind_text(st, 5, c->path);
    sqlite3_bind_int64(st, 6, c->bytes);
    sqlite3_bind_int64(st, 7, c->took_us);
    bind_text(st, 8, c->hash);
    run_statement(a, st);
    a->marked = true;
}

/* ---- summary ---- */

static double recent_median(const summary *s, int figure) {
    double copy[BT_RECENT_STEPS];
    memcpy(copy, s->recent[figure], sizeof copy);
    return bt_median_known(copy, s->n_recent < BT_RECENT_STEPS ? s->n_recent : BT_RECENT_STEPS);
}

static double summary_overhead(const summary *s) {
    size_t n = s->n_recent < BT_RECENT_STEPS ? s->n_recent : BT_RECENT_STEPS;
    return bt_share_of_time(s->recent[OVERHEAD], s->recent[RANK_MS], n);
}

static void write_summary(bt_apply *a, uint64_t dropped) {
    summary *s = &a->now;
    sqlite3_stmt *st = a->st[ST_SUMMARY];
    char spark[BT_SPARK_TEXT];
    bt_column real = {.integer = false};
    bt_spark_text(&s->spark, spark, sizeof spark);
    sqlite3_bind_int64(st, 1, s->last_step);
    sqlite3_bind_int64(st, 2, s->last_us);
    if (s->tokens > 0)
        sqlite3_bind_int64(st, 3, s->tokens);
    else
        sqlite3_bind_null(st, 3);
    bind_metric(st, 4, s->loss, &real);
    bind_metric(st, 5, s->val_loss, &real);
    bind_metric(st, 6, s->best_val, &real);
    if (s->best_val_step >= 0)
        sqlite3_bind_int64(st, 7, s->best_val_step);
    else
        sqlite3_bind_null(st, 7);
    bind_metric(st, 8, recent_median(s, SPEED), &real);
    bind_metric(st, 9, recent_median(s, TOOK_US), &(bt_column){.integer = true, .scale = 1});
    bind_metric(st, 10, recent_median(s, MFU), &real);
    bind_metric(st, 11, summary_overhead(s), &real);
    sqlite3_bind_int64(st, 12, s->bytes_wire);
    sqlite3_bind_int64(st, 13, s->rss_kib);
    bind_metric(st, 14, s->energy_j, &real);
    bind_text(st, 15, spark);
    sqlite3_bind_int64(st, 16, (int64_t)dropped);
    sqlite3_bind_int64(st, 17, a->at.run);
    run_statement(a, st);
}

/* Loads the newest recorded steps of the attempt and of earlier attempts, so that figures of span RECENT continue in a
 * new attempt. The search is limited, so with train.log_every fewer than BT_RECENT_STEPS may be found. */
static bt_code load_recent(bt_apply *a, const bt_apply_attempt *t, bt_err *err) {
    enum { BACK = 32 * BT_RECENT_STEPS };
    static const int metric[RECENT] = {BT_MS_STEP_TIME, BT_MS_STEP_MEAN, BT_MS_TOKENS_PER_S,
                                       BT_MS_MFU, BT_MS_COMM_OVERHEAD};
    const bt_column *cols = a->columns[BT_SCOPE_STEP];
    sqlite3_stmt *st = NULL;
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT * FROM (SELECT s.step");
    for (int i = 0; i < RECENT; i++) bt_text_printf(&sql, ", s.\"%s\"", cols[metric[i]].name);
    bt_text_printf(
        &sql,
        " FROM attempt a JOIN step s ON s.aid = a.id AND s.step < a.live_to WHERE a.run "
        "= ?1 AND (a.id = ?2 OR s.step < ?3) AND s.step >= coalesce((SELECT max(step) FROM "
        "step WHERE aid = ?2) + 1, ?3) - %d ORDER BY s.step DESC LIMIT %d) ORDER BY step",
        BACK, BT_RECENT_STEPS);
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : bt_sql_prepare(a->db, a->path, bt_text_str(&sql), &st, err);
    bt_text_release(&sql);
    BT_TRY(code);
    sqlite3_bind_int64(st, 1, t->run);
    sqlite3_bind_int64(st, 2, t->aid);
    sqlite3_bind_int64(st, 3, t->from_step);
    summary *s = &a->now;
    while (sqlite3_step(st) == SQLITE_ROW) {
        double now[RECENT];
        for (int i = 0; i < RECENT; i++) now[i] = bt_sql_number(st, 1 + i) / cols[metric[i]].scale;
        now[RANK_MS] = bt_derived_rank_time(now[RANK_MS], now[TOOK_US]);
        now[TOOK_US] *= 1e3;
        add_recent_step(s, now);
    }
    sqlite3_finalize(st);
    return BT_OK;
}

bt_code bt_apply_set_attempt(bt_apply *a, const bt_apply_attempt *t, bt_err *err) {
    sqlite3_stmt *st = NULL;
    summary *s = &a->now;
    a->at = *t;
    *s = (summary){.last_step = -1,
                   .first_step = -1,
                   .attempt_step = -1,
                   .attempt_us = -1,
                   .best_val_step = -1,
                   .spark = {.stride = 1},
                   .loss = NAN,
                   .val_loss = NAN,
                   .best_val = NAN,
                   .energy_j = NAN};
    BT_TRY(bt_sql_prepare(a->db, a->path,
                          "SELECT last_step, last_us, tokens, loss, val_loss, best_val, "
                          "best_val_step, bytes_wire,"
                          " rss_kib, spark, energy_j FROM run WHERE id = ?1",
                          &st, err));
    sqlite3_bind_int64(st, 1, t->run);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL) {
        s->last_step = sqlite3_column_int64(st, 0);
        s->last_us = sqlite3_column_int64(st, 1);
        s->tokens = sqlite3_column_int64(st, 2);
        s->loss = bt_sql_number(st, 3);
        s->val_loss = bt_sql_number(st, 4);
        s->best_val = bt_sql_number(st, 5);
        if (sqlite3_column_type(st, 6) != SQLITE_NULL)
            s->best_val_step = sqlite3_column_int64(st, 6);
        s->bytes_wire = sqlite3_column_int64(st, 7);
        s->rss_kib = sqlite3_column_int64(st, 8);
        bt_spark_parse(&s->spark, (const char *)sqlite3_column_text(st, 9), s->last_step);
        s->energy_j = bt_sql_number(st, 10);
    }
    sqlite3_finalize(st);
    BT_TRY(load_recent(a, t, err));
    a->saved = a->now;
    bt_roll_start(a->roll, t->aid);
    return BT_OK;
}

void bt_apply_reread(bt_apply *a) { bt_roll_forget(a->roll); }

/* ---- transactions ---- */

bt_code bt_apply_store_times(bt_apply *a, int64_t run, bt_err *err) {
    a->ledger_ns = bt_now_ns();
    return bt_ledger_store(&a->ledger, a->db, a->path, run, err);
}

static void store_time_parts_if_due(bt_apply *a) {
    bt_err ignored;
    if (a->rc != SQLITE_OK || (!a->touched && !a->marked)) return;
    if (!a->marked && bt_now_ns() - a->ledger_ns < LEDGER_PACE_NS) return;
    if (bt_apply_store_times(a, a->at.run, &ignored) == BT_OK) return;
    a->rc = sqlite3_extended_errcode(a->db);
    if (a->rc == SQLITE_OK) a->rc = SQLITE_NOMEM;
}

int bt_apply_transaction(bt_apply *a, const bt_record *list, uint64_t dropped) {
    a->rc = SQLITE_OK;
    a->touched = a->marked = false;
    uint64_t skipped = a->skipped;
    run_statement(a, a->st[ST_BEGIN]);
    if (a->rc != SQLITE_OK) return a->rc;
    for (const bt_record *r = list; r && a->rc == SQLITE_OK; r = r->next) {
        if (!bt_record_deliver(&r->head, r->data, &a->sink)) a->skipped++;
    }
    if (a->touched) write_summary(a, dropped + a->skipped);
    store_time_parts_if_due(a);
    if (a->rc == SQLITE_OK) run_statement(a, a->st[ST_COMMIT]);
    if (a->rc == SQLITE_OK) {
        a->saved = a->now;
        return SQLITE_OK;
    }
    if (!sqlite3_get_autocommit(a->db)) {
        sqlite3_step(a->st[ST_ROLLBACK]);
        sqlite3_reset(a->st[ST_ROLLBACK]);
    }
    a->now = a->saved;
    a->skipped = skipped;
    bt_roll_forget(a->roll);
    bt_ledger_forget(&a->ledger);
    return a->rc;
}

int bt_apply_again(bt_apply *a, int64_t known_step, const bt_record *list) {
    if (known_step > a->now.attempt_step) a->now.attempt_step = a->saved.attempt_step = known_step;
    a->again = true;
    int rc = bt_apply_transaction(a, list, 0);
    a->again = false;
    return rc;
}

int64_t bt_apply_last_step(const bt_apply *a) { return a->saved.attempt_step; }
int64_t bt_apply_last_us(const bt_apply *a) { return a->saved.attempt_us; }
uint64_t bt_apply_skipped(const bt_apply *a) { return a->skipped; }

static const char *const fixed_sql[ST_COUNT] = {
    [ST_RANK] = "INSERT OR REPLACE INTO rank(aid, rank, host, pid, isa, threads, pp, dp_replicate, "
                "dp_shard, tp) VALUES (?,?,?,?,?,?,?,?,?,?)",
    [ST_FACT] = "INSERT OR REPLACE INTO fact(run, key, value, attempt) VALUES (?,?,?,?)",
    [ST_EVENT] = "INSERT INTO event(run, aid, t_us, step, rank, kind, level, title, body) VALUES "
                 "(?,?,?,?,?,?,?,?,?)",
    [ST_CKPT] = "INSERT OR REPLACE INTO ckpt(run, step, attempt, t_us, path, bytes, took_us, hash) "
                "VALUES (?,?,?,?,?,?,?,?)",
    [ST_CLIP] = "UPDATE attempt SET live_to = min(live_to, ?) WHERE run = ? AND attempt < ?",
    [ST_FROM] = "UPDATE attempt SET from_step = ? WHERE id = ?",
    [ST_ACCEPT_RUN] = BT_START_ACCEPT_RUN,
    [ST_ACCEPT_DOC] = BT_START_ACCEPT_DOC,
    [ST_ACCEPTED] = BT_START_ACCEPTED,
    [ST_SUMMARY] =
        "UPDATE run SET last_step=?, last_us=?, tokens=?, loss=?, val_loss=?, "
        "best_val=?, best_val_step=?, tokens_per_s=?, step_us=?,"
        " mfu=?, comm_overhead=?, bytes_wire=?, rss_kib=?, energy_j=?, spark=?, dropped=?, "
        "rev=rev+1 WHERE id=?",
    [ST_EVENT_KNOWN] =
        "SELECT 1 FROM event WHERE run = ? AND aid = ? AND t_us = ? AND kind = ? AND title IS ?",
    [ST_VAL_LOSS] = "SELECT CASE WHEN json_valid(?1) THEN json_extract(?1, '$.val_loss') END",
    [ST_VALIDATED] = "UPDATE step SET val_loss = ?1 WHERE step = ?2 AND aid IN (SELECT id FROM "
                     "attempt WHERE run = ?3 AND live_to > ?2)",
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
};

static bt_code prepare_apply_statements(bt_apply *a, bt_err *err) {
    bt_column *next = a->column;
    for (int k = 0; k < BT_SCOPE_COUNT; k++) {
        const bt_scope_row *scope = &bt_scopes[k];
        bt_text sql;
        a->columns[k] = next;
        for (int i = 0; i < scope->n; i++) bt_column_of((bt_scope)k, &scope->metric[i], next++);
        bt_text_init(&sql);
        bt_schema_insert((bt_scope)k, &sql);
        bt_code code = sql.failed
                           ? bt_fail(err, BT_NOMEM, "out of memory")
                           : bt_sql_prepare(a->db, a->path, bt_text_str(&sql), &a->insert[k], err);
        bt_text_release(&sql);
        if (code != BT_OK) return code;
    }
    for (int i = 0; i < ST_COUNT; i++)
        BT_TRY(bt_sql_prepare(a->db, a->path, fixed_sql[i], &a->st[i], err));
    return BT_OK;
}

bt_code bt_apply_open(bt_apply **out, sqlite3 *db, const char *path, bt_err *err) {
    bt_apply *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    a->db = db;
    a->path = path;
    a->sink = (bt_sink){.ctx = a,
                        .ranks = apply_ranks,
                        .fact = apply_fact,
                        .step = apply_step,
                        .rows = apply_rows,
                        .event = apply_event,
                        .checkpoint = apply_ckpt};
    bt_code code = prepare_apply_statements(a, err);
    if (code == BT_OK) code = bt_roll_open(&a->roll, db, path, err);
    if (code != BT_OK) {
        bt_apply_close(a);
        return code;
    }
    *out = a;
    return BT_OK;
}

void bt_apply_close(bt_apply *a) {
    if (!a) return;
    for (int i = 0; i < ST_COUNT; i++) sqlite3_finalize(a->st[i]);
    for (int k = 0; k < BT_SCOPE_COUNT; k++) sqlite3_finalize(a->insert[k]);
    bt_roll_close(a->roll);
    bt_ledger_release(&a->ledger);
    free(a);
}
