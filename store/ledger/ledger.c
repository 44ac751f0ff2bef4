/* ledger.c - converts attempts, step ends and events to intervals of the wall clock. */
#include "store/ledger/ledger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/derived.h"
#include "engine/base/tables/event.h"
#include "store/sql/sql.h"

/* Time of an event or a checkpoint, and the duration that it reports. */
typedef struct bt_ledger_mark {
    int64_t at_us, took_us, aid, step;
    int attempt;
    bt_event_effect effect;
} mark;

typedef struct attempt {
    int64_t aid, started_us, ended_us; /* ended_us 0: not ended */
    int64_t trains_us; /* time of `started` or `resumed`; 0: training has not begun */
    int64_t last_step,
        last_us;       /* newest recorded step and the time of its end; -1 and trains_us: no step */
    int64_t newest_us; /* time of the attempt's newest record */
    int number;
    bool in_order; /* it ended as intended */
    bool done;     /* the attempt ended as intended, and all steps are done */
} attempt;

/* Interval that overrides the parts of an attempt; the highest `level` has priority. */
enum { LEVEL_BASE, LEVEL_SKIP, LEVEL_STALL, LEVEL_PAUSE, LEVEL_WORK, LEVELS };
typedef struct edge {
    int64_t at_us;
    int level, change; /* change: +1 where an interval begins, -1 where it ends */
    bt_time_part part;
    int attempt;
} edge;

typedef struct reading {
    bt_ledger *l;
    sqlite3 *db;
    const char *path;
    bt_ledger_until until;
    int64_t ended_us; /* end of the run; 0: the run is live */
    attempt *attempt;
    size_t n_attempts, cap_attempts;
    edge *edge;
    size_t n_edges, cap_edges;
    int64_t cursor_us; /* the base is complete up to this time */
} reading;

static bt_code grow_ledger_array(void **p, size_t *cap, size_t need, size_t elem, bt_err *err) {
    if (need <= *cap) return BT_OK;
    size_t more = *cap ? 2 * *cap : 32;
    void *q = realloc(*p, more * elem);
    if (!q) return bt_fail(err, BT_NOMEM, "cannot add up the time of a run: out of memory");
    *p = q;
    *cap = more;
    return BT_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef bt_code (*row_fn)(reading *r, sqlite3_stmt *st, bt_err *err);

/* Calls fn for each row; ?1, ?2 = a, b. */
static bt_code each_ledger_row(reading *r, const char *sql, int64_t a, int64_t b, row_fn fn,
                               bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(r->db, r->path, sql, &st, err));
    sqlite3_bind_int64(st, 1, a);
    if (sqlite3_bind_parameter_count(st) > 1) sqlite3_bind_int64(st, 2, b);
    int rc;
    bt_code code = BT_OK;
    while (code == BT_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) code = fn(r, st, err);
    if (code == BT_OK && rc != SQLITE_DONE) code = bt_sql_fail(r->db, rc, r->path, "read", err);
    sqlite3_finalize(st);
    return code;
}

static bt_code take_ledger_run(reading *r, sqlite3_stmt *st, bt_err *err) {
    (void)err;
    r->l->begin_us = sqlite3_column_int64(st, 0);
    r->ended_us = sqlite3_column_int64(st, 1);
    r->cursor_us = r->l->begin_us;
    return BT_OK;
}

static bt_code take_ledger_attempt(reading *r, sqlite3_stmt *st, bt_err *err) {
    BT_TRY(grow_ledger_array((void **)&r->attempt, &r->cap_attempts, r->n_attempts + 1,
                             sizeof *r->attempt, err));
    attempt *a = &r->attempt[r->n_attempts++];
    *a = (attempt){.aid = sqlite3_column_int64(st, 0),
                   .number = sqlite3_column_int(st, 1),
                   .started_us = sqlite3_column_int64(st, 2),
                   .ended_us = sqlite3_column_int64(st, 3),
                   .in_order = sqlite3_column_type(st, 4) != SQLITE_NULL &&
                               sqlite3_column_int(st, 4) == 0,
                   .done = sqlite3_column_int(st, 5) != 0,
                   .last_step = -1};
    a->newest_us = a->started_us;
    if (sqlite3_column_type(st, 6) == SQLITE_NULL) return BT_OK;
    a->last_step = sqlite3_column_int64(st, 6);
    a->last_us = sqlite3_column_int64(st, 7);
    if (a->last_us > a->newest_us) a->newest_us = a->last_us;
    return BT_OK;
}

static const char attempts_sql[] =
    "SELECT a.id, a.attempt, a.started_us, a.ended_us, a.exit_code, a.exit_kind = 'done', s.step, "
    "s.wall_us"
    " FROM attempt a LEFT JOIN step s ON s.aid = a.id AND s.step = (SELECT max(step) FROM step"
    " WHERE aid = a.id) WHERE a.run = ?1 ORDER BY a.attempt";

static bt_code take_ledger_event(reading *r, sqlite3_stmt *st, bt_err *err) {
    bt_ledger *l = r->l;
    l->seen = sqlite3_column_int64(st, 0);
    const char *name = (const char *)sqlite3_column_text(st, 3);
    bt_event_kind kind = bt_event_find(name ? name : "");
    if (kind >= BT_EVENT_COUNT) return BT_OK;
    if (bt_events[kind].effect == BT_EFFECT_SKIPS && sqlite3_column_int(st, 6) == 0) return BT_OK;
    BT_TRY(
        grow_ledger_array((void **)&l->mark, &l->cap_marks, l->n_marks + 1, sizeof *l->mark, err));
    l->mark[l->n_marks++] = (mark){
        .aid = sqlite3_column_int64(st, 1),
        .at_us = sqlite3_column_int64(st, 2),
        .took_us = sqlite3_column_int64(st, 4),
        .step = sqlite3_column_int64(st, 5),
        .effect = kind == BT_EVENT_CHECKPOINT_FAILED ? BT_EFFECT_NONE : bt_events[kind].effect};
    return BT_OK;
}

static bt_code take_ledger_checkpoint(reading *r, sqlite3_stmt *st, bt_err *err) {
    bt_ledger *l = r->l;
    BT_TRY(grow_ledger_array((void **)&l->save, &l->cap_marks_saved, l->n_saves + 1,
                             sizeof *l->save, err));
    l->save[l->n_saves++] = (mark){.attempt = sqlite3_column_int(st, 0),
                                   .at_us = sqlite3_column_int64(st, 1),
                                   .took_us = sqlite3_column_int64(st, 2)};
    return BT_OK;
}

/* event kinds that separate the parts; the event of a failed checkpoint has its duration */
static bt_code compose_events_query(bt_text *sql, bt_err *err) {
    bt_text_put(sql,
                "SELECT seq, aid, t_us, kind, CAST(1000 * CASE WHEN json_valid(body) THEN "
                "coalesce(json_extract(body, '$.took_ms'), json_extract(body, '$.silent_ms'), 0) "
                "ELSE 0 END AS INTEGER), step, CASE WHEN json_valid(body) THEN "
                "coalesce(json_extract(body, '$.action') = 'skipped', 0) ELSE 0 END FROM event "
                "WHERE run = ?1 AND seq > ?2 AND kind IN (''");
    for (int k = 0; k < BT_EVENT_COUNT; k++) {
        bt_event_effect e = bt_events[k].effect;
        if ((e != BT_EFFECT_NONE && e != BT_EFFECT_SEEN) || k == BT_EVENT_CHECKPOINT_FAILED)
            bt_text_printf(sql, ", '%s'", bt_events[k].name);
    }
    bt_text_put(sql, ") ORDER BY seq");
    return sql->failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory") : BT_OK;
}

static bt_code read_ledger_rows(reading *r, int64_t run, bt_err *err) {
    bt_ledger *l = r->l;
    bt_text sql;
    if (l->run != run) bt_ledger_forget(l);
    l->run = run;
    BT_TRY(each_ledger_row(r, "SELECT created_us, ended_us FROM run WHERE id = ?1", run, 0,
                           take_ledger_run, err));
    BT_TRY(each_ledger_row(r, attempts_sql, run, 0, take_ledger_attempt, err));
    bt_text_init(&sql);
    bt_code code = compose_events_query(&sql, err);
    if (code == BT_OK)
        code = each_ledger_row(r, bt_text_str(&sql), run, l->seen, take_ledger_event, err);
    bt_text_release(&sql);
    BT_TRY(code);
    l->n_saves = 0;
    return each_ledger_row(
        r,
        "SELECT attempt, t_us, took_us FROM ckpt WHERE run = ?1 AND took_us IS NOT "
        "NULL",
        run, 0, take_ledger_checkpoint, err);
}

/* ---- attempts -------------------------------------------------------------------------------- */

static attempt *find_ledger_attempt(reading *r, int64_t aid) {
    for (size_t i = r->n_attempts; i-- > 0;)
        if (r->attempt[i].aid == aid) return &r->attempt[i];
    return NULL;
}

/* Determines from the events of an attempt when training began, whether it ended in order, and its newest record. */
static void read_attempt_bounds(reading *r) {
    for (size_t i = 0; i < r->l->n_marks; i++) {
        const mark *m = &r->l->mark[i];
        attempt *a = find_ledger_attempt(r, m->aid);
        if (!a) continue;
        if (m->at_us > a->newest_us) a->newest_us = m->at_us;
        if (m->effect == BT_EFFECT_ENDS) a->in_order = true;
        bool begins = m->effect == BT_EFFECT_BEGINS || m->effect == BT_EFFECT_RESUMES;
        if (begins && !a->trains_us) a->trains_us = m->at_us;
    }
    for (size_t i = 0; i < r->n_attempts; i++) {
        attempt *a = &r->attempt[i];
        if (!a->trains_us && a->last_step >= 0) a->trains_us = a->started_us;
        if (a->last_step < 0) a->last_us = a->trains_us;
    }
}

/* ---- the base of the ledger: parts that follow one another ----------------------------------------------------- */

static bt_code add_interval_edges(reading *r, int64_t from, int64_t to, edge e, bt_err *err) {
    if (to <= from) return BT_OK;
    BT_TRY(
        grow_ledger_array((void **)&r->edge, &r->cap_edges, r->n_edges + 2, sizeof *r->edge, err));
    e.at_us = from;
    e.change = 1;
    r->edge[r->n_edges++] = e;
    e.at_us = to;
    e.change = -1;
    r->edge[r->n_edges++] = e;
    return BT_OK;
}

/* Appends a part that fills the base from its end to the time `to`. */
static bt_code extend_base_until(reading *r, int64_t to, bt_time_part part, int number,
                                 bt_err *err) {
    if (to > r->l->end_us) to = r->l->end_us;
    edge e = {.level = LEVEL_BASE, .part = part, .attempt = number};
    BT_TRY(add_interval_edges(r, r->cursor_us, to, e, err));
    if (to > r->cursor_us) r->cursor_us = to;
    return BT_OK;
}

/* Reads step and end of the row that the query finds; returns false if there is none. */
static bool read_step_end(reading *r, const char *sql, int64_t aid, int64_t step, int64_t out[2]) {
    sqlite3_stmt *st = NULL;
    bt_err ignored;
    if (bt_sql_prepare(r->db, r->path, sql, &st, &ignored) != BT_OK) return false;
    sqlite3_bind_int64(st, 1, aid);
    sqlite3_bind_int64(st, 2, step);
    bool found = sqlite3_step(st) == SQLITE_ROW;
    for (int i = 0; i < 2 && found; i++) out[i] = sqlite3_column_int64(st, i);
    sqlite3_finalize(st);
    return found;
}

/* Returns the time at which the attempt had repeated all steps up to `reach`. With train.log_every > 1 step `reach` may
 * have no record; then its end is interpolated, assuming steps of equal length. */
static int64_t repetition_end_us(reading *r, const attempt *a, int64_t reach) {
    int64_t before[2] = {-1, a->trains_us}, after[2];
    if (a->last_step <= reach) return a->last_us;
    bool has =
        read_step_end(r,
                      "SELECT step, wall_us FROM step WHERE aid = ?1 AND step <= ?2 ORDER BY "
                      "step DESC LIMIT 1",
                      a->aid, reach, before);
    if (has && before[0] == reach) return before[1];
    if (!read_step_end(
            r,
            "SELECT step, wall_us FROM step WHERE aid = ?1 AND step > ?2 ORDER BY step LIMIT "
            "1",
            a->aid, reach, after))
        return a->last_us;
    if (!has) {
        int64_t from[2] = {0, 0};
        (void)read_step_end(r, "SELECT from_step, 0 FROM attempt WHERE id = ?1 AND ?2 >= 0", a->aid,
                            0, from);
        before[0] = from[0] - 1;
    }
    if (reach <= before[0]) return a->trains_us;
    return before[1] + (after[1] - before[1]) * (reach - before[0]) / (after[0] - before[0]);
}

/* reach: highest step recorded by an earlier attempt */
static bt_code extend_base_by_attempt(reading *r, const attempt *a, bool newest, int64_t reach,
                                      bt_err *err) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the loop has an attempt
    const bool open = a->ended_us == 0 && newest;
    bt_time_part now = BT_TIME_STARTUP; /* current activity */
    if (a->trains_us) {
        BT_TRY(extend_base_until(r, a->trains_us, BT_TIME_STARTUP, a->number, err));
        BT_TRY(
            extend_base_until(r, repetition_end_us(r, a, reach), BT_TIME_REDONE, a->number, err));
        BT_TRY(extend_base_until(r, a->last_us, BT_TIME_PRODUCTIVE, a->number, err));
        now = a->last_step < reach ? BT_TIME_REDONE : BT_TIME_PRODUCTIVE;
    }
    if (a->in_order) now = BT_TIME_STARTUP;
    if (open) {
        BT_TRY(extend_base_until(r, a->newest_us, now, a->number, err));
        return extend_base_until(r, r->l->end_us, r->until.alive ? now : BT_TIME_LOST, a->number,
                                 err);
    }
    return extend_base_until(r, a->ended_us ? a->ended_us : a->newest_us,
                             a->in_order ? BT_TIME_STARTUP : BT_TIME_LOST, a->number, err);
}

/* Classifies the time until the next attempt. */
static bt_time_part classify_gap(const attempt *before) {
    if (!before->in_order) return BT_TIME_LOST;
    return before->done ? BT_TIME_FINISHED : BT_TIME_PAUSED;
}

static bt_code extend_base_by_attempts(reading *r, bt_err *err) {
    int64_t reach = -1;
    for (size_t i = 0; i < r->n_attempts; i++) {
        const attempt *a = &r->attempt[i], *before = i > 0 ? a - 1 : NULL;
        if (before)
            BT_TRY(extend_base_until(r, a->started_us, classify_gap(before), before->number, err));
        BT_TRY(extend_base_by_attempt(r, a, i + 1 == r->n_attempts, reach, err));
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is an attempt
        if (a->last_step > reach) reach = a->last_step;
    }
    const attempt *last = r->n_attempts ? &r->attempt[r->n_attempts - 1] : NULL;
    return extend_base_until(r, r->l->end_us,
                             last && last->in_order ? BT_TIME_STARTUP : BT_TIME_LOST,
                             last ? last->number : 0, err);
}

/* ---- intervals above the base ---------------------------------------------------------------- */

static int64_t clip_time(int64_t t, int64_t least, int64_t most) {
    return t < least ? least : t > most ? most : t;
}

static bt_code add_overriding_interval(reading *r, const attempt *a, int64_t from, int64_t to,
                                       int level, bt_time_part part, bt_err *err) {
    int64_t end = a->ended_us && a->ended_us < r->l->end_us ? a->ended_us : r->l->end_us;
    if (end < a->started_us) return BT_OK;
    return add_interval_edges(r, clip_time(from, a->started_us, end),
                              clip_time(to, a->started_us, end),
                              (edge){.level = level, .part = part, .attempt = a->number}, err);
}

/* Interval from an event to the event that ends it, or to the end of the attempt. */
typedef struct running {
    const attempt *a;
    int64_t from_us;
} running;

static bt_code add_open_interval(reading *r, running *x, int64_t to, int level, bt_time_part part,
                                 bt_err *err) {
    const attempt *a = x->a;
    x->a = NULL;
    return a ? add_overriding_interval(r, a, x->from_us, to, level, part, err) : BT_OK;
}

/* Adds the interval of a step whose update was not applied, from the end of the previous step to its own end. Steps
 * without a record share the interval between two records equally. The interval is stored in m->took_us once the step
 * has ended. */
static bt_code add_skipped_step(reading *r, const attempt *a, mark *m, bt_err *err) {
    int64_t before[2] = {-1, a->trains_us}, after[2];
    if (m->took_us == 0) {
        if (!read_step_end(
                r,
                "SELECT step, wall_us FROM step WHERE aid = ?1 AND step >= ?2 ORDER BY step "
                "LIMIT 1",
                m->aid, m->step, after))
            return BT_OK;
        if (!read_step_end(
                r,
                "SELECT step, wall_us FROM step WHERE aid = ?1 AND step < ?2 ORDER BY step "
                "DESC LIMIT 1",
                m->aid, m->step, before))
            (void)read_step_end(r, "SELECT from_step - 1, ?2 FROM attempt WHERE id = ?1", m->aid,
                                a->trains_us, before);
        if (after[0] <= before[0] || m->step <= before[0] || after[1] <= before[1]) return BT_OK;
        m->took_us = (after[1] - before[1]) / (after[0] - before[0]);
        m->at_us = before[1] + m->took_us * (m->step - before[0]);
    }
    return add_overriding_interval(r, a, m->at_us - m->took_us, m->at_us, LEVEL_SKIP, BT_TIME_LOST,
                                   err);
}

static bt_code add_mark_interval(reading *r, mark *m, running *pause, running *stall, bt_err *err) {
    const attempt *a = find_ledger_attempt(r, m->aid);
    if (!a) return BT_OK;
    if (pause->a && pause->a != a)
        BT_TRY(add_open_interval(r, pause, INT64_MAX, LEVEL_PAUSE, BT_TIME_PAUSED, err));
    if (stall->a && stall->a != a)
        BT_TRY(add_open_interval(r, stall, INT64_MAX, LEVEL_STALL, BT_TIME_LOST, err));
    switch (m->effect) {
    case BT_EFFECT_NONE: /* a checkpoint that failed */
        return add_overriding_interval(r, a, m->at_us - m->took_us, m->at_us, LEVEL_WORK,
                                       BT_TIME_CHECKPOINT, err);
    case BT_EFFECT_VALIDATES:
        return add_overriding_interval(r, a, m->at_us - m->took_us, m->at_us, LEVEL_WORK,
                                       BT_TIME_VALIDATION, err);
    case BT_EFFECT_PAUSES:
        if (!pause->a) *pause = (running){a, m->at_us};
        return BT_OK;
    case BT_EFFECT_STALLS:
        if (!stall->a) *stall = (running){a, m->at_us - m->took_us};
        return BT_OK;
    case BT_EFFECT_SKIPS: return add_skipped_step(r, a, m, err);
    case BT_EFFECT_RECOVERS:
        return add_open_interval(r, stall, m->at_us, LEVEL_STALL, BT_TIME_LOST, err);
    case BT_EFFECT_CONTINUES:
    case BT_EFFECT_ENDS:
        return add_open_interval(r, pause, m->at_us, LEVEL_PAUSE, BT_TIME_PAUSED, err);
    default: return BT_OK;
    }
}

static int compare_mark_times(const void *a, const void *b) {
    const mark *x = a, *y = b;
    return x->at_us < y->at_us ? -1 : x->at_us > y->at_us;
}

/* Records recovered after a kill of rank 0 are stored after more recent records. */
static void sort_marks_by_time(bt_ledger *l) {
    for (size_t i = 1; i < l->n_marks; i++)
        if (l->mark[i].at_us < l->mark[i - 1].at_us) {
            qsort(l->mark, l->n_marks, sizeof *l->mark, compare_mark_times);
            return;
        }
}

static bt_code add_mark_intervals(reading *r, bt_err *err) {
    running pause = {0}, stall = {0};
    sort_marks_by_time(r->l);
    for (size_t i = 0; i < r->l->n_marks; i++)
        BT_TRY(add_mark_interval(r, &r->l->mark[i], &pause, &stall, err));
    BT_TRY(add_open_interval(r, &pause, INT64_MAX, LEVEL_PAUSE, BT_TIME_PAUSED, err));
    BT_TRY(add_open_interval(r, &stall, INT64_MAX, LEVEL_STALL, BT_TIME_LOST, err));
    for (size_t i = 0; i < r->l->n_saves; i++) {
        const mark *m = &r->l->save[i];
        for (size_t k = 0; k < r->n_attempts; k++)
            if (r->attempt[k].number == m->attempt)
                BT_TRY(add_overriding_interval(r, &r->attempt[k], m->at_us - m->took_us, m->at_us,
                                               LEVEL_WORK, BT_TIME_CHECKPOINT, err));
    }
    return BT_OK;
}

/* ---- edges to spans -------------------------------------------------------------------------- */

static int compare_edge_times(const void *a, const void *b) {
    const edge *x = a, *y = b;
    return x->at_us < y->at_us ? -1 : x->at_us > y->at_us;
}

typedef struct sweep {
    int open[LEVELS][BT_TIME_PARTS];
    int attempt; /* attempt of the base */
} sweep;

static bt_time_part uppermost_part(const sweep *s) {
    for (int level = LEVELS; level-- > 0;)
        for (int p = 0; p < BT_TIME_PARTS; p++)
            if (s->open[level][p] > 0) return (bt_time_part)p;
    return BT_TIME_LOST;
}

static bt_code append_ledger_span(bt_ledger *l, int64_t from, int64_t to, bt_time_part part,
                                  int number, bt_err *err) {
    bt_ledger_span *last = l->n ? &l->span[l->n - 1] : NULL;
    l->us[part] += to - from;
    if (last && last->part == part && last->attempt == number) {
        last->end_us = to;
        return BT_OK;
    }
    BT_TRY(grow_ledger_array((void **)&l->span, &l->cap, l->n + 1, sizeof *l->span, err));
    l->span[l->n++] = (bt_ledger_span){from, to, part, number};
    return BT_OK;
}

static bt_code sweep_edges(reading *r, bt_err *err) {
    bt_ledger *l = r->l;
    sweep s = {0};
    l->n = 0;
    memset(l->us, 0, sizeof l->us);
    if (r->n_edges) qsort(r->edge, r->n_edges, sizeof *r->edge, compare_edge_times);
    for (size_t i = 0; i < r->n_edges;) {
        const int64_t at = r->edge[i].at_us;
        for (; i < r->n_edges && r->edge[i].at_us == at; i++) {
            const edge *e = &r->edge[i];
            s.open[e->level][e->part] += e->change;
            if (e->level == LEVEL_BASE && e->change > 0) s.attempt = e->attempt;
        }
        if (i < r->n_edges)
            BT_TRY(append_ledger_span(l, at, r->edge[i].at_us, uppermost_part(&s), s.attempt, err));
    }
    return BT_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

static int64_t compute_ledger_end(const reading *r) {
    int64_t newest = r->l->begin_us;
    for (size_t i = 0; i < r->n_attempts; i++)
        if (r->attempt[i].newest_us > newest) newest = r->attempt[i].newest_us;
    for (size_t i = 0; i < r->l->n_saves; i++)
        if (r->l->save[i].at_us > newest) newest = r->l->save[i].at_us;
    if (r->ended_us) return r->ended_us > r->l->begin_us ? r->ended_us : r->l->begin_us;
    return r->until.now_us > newest ? r->until.now_us : newest;
}

bt_code bt_ledger_read(bt_ledger *l, sqlite3 *db, const char *path, int64_t run,
                       bt_ledger_until until, bt_err *err) {
    reading r = {.l = l, .db = db, .path = path, .until = until};
    bt_code code = read_ledger_rows(&r, run, err);
    if (code == BT_OK) {
        read_attempt_bounds(&r);
        l->end_us = compute_ledger_end(&r);
        code = extend_base_by_attempts(&r, err);
    }
    if (code == BT_OK) code = add_mark_intervals(&r, err);
    if (code == BT_OK) code = sweep_edges(&r, err);
    if (code != BT_OK) bt_ledger_forget(l);
    free(r.attempt);
    free(r.edge);
    return code;
}

void bt_ledger_forget(bt_ledger *l) {
    l->run = l->seen = 0;
    l->n = l->n_marks = l->n_saves = 0;
}

void bt_ledger_release(bt_ledger *l) {
    free(l->span);
    free(l->mark);
    free(l->save);
    *l = (bt_ledger){0};
}

double bt_ledger_s(const bt_ledger *l, bt_time_part part) { return (double)l->us[part] / 1e6; }

double bt_ledger_goodput(const bt_ledger *l) {
    return bt_derived_goodput((double)l->us[BT_TIME_PRODUCTIVE],
                              (double)(l->end_us - l->begin_us - l->us[BT_TIME_FINISHED]));
}

bt_code bt_ledger_store(bt_ledger *l, sqlite3 *db, const char *path, int64_t run, bt_err *err) {
    sqlite3_stmt *st = NULL;
    bt_text sql;
    BT_TRY(bt_ledger_read(l, db, path, run, (bt_ledger_until){0}, err));
    bt_text_init(&sql);
    bt_text_put(&sql, "UPDATE run SET ");
    for (int p = 0; p < BT_TIME_PARTS; p++)
        bt_text_printf(&sql, "%s%s_us = ?%d", p ? ", " : "", bt_times[p].key, p + 2);
    bt_text_put(&sql, " WHERE id = ?1");
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : bt_sql_prepare(db, path, bt_text_str(&sql), &st, err);
    bt_text_release(&sql);
    BT_TRY(code);
    sqlite3_bind_int64(st, 1, run);
    for (int p = 0; p < BT_TIME_PARTS; p++) sqlite3_bind_int64(st, p + 2, l->us[p]);
    int rc = sqlite3_step(st);
    if (rc != SQLITE_DONE) code = bt_sql_fail(db, rc, path, "write", err);
    sqlite3_finalize(st);
    return code;
}

bt_code bt_ledger_store_missing(sqlite3 *db, const char *path, bt_err *err) {
    bt_ledger l = {0};
    bt_code code = BT_OK;
    for (int64_t id = 0, next; code == BT_OK; id = next) {
        char sql[96];
        snprintf(sql, sizeof sql, "SELECT min(id) FROM run WHERE id > %lld AND lost_us IS NULL",
                 (long long)id);
        next = 0;
        code = bt_sql_get(db, path, sql, &next, err);
        if (next <= 0) break;
        if (code == BT_OK) code = bt_ledger_store(&l, db, path, next, err);
    }
    bt_ledger_release(&l);
    return code;
}
