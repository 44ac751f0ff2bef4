/* blocks.c - covers a range of steps with the largest blocks that fit. */
#include "store/read/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/sql.h"
#include "store/write/rollup.h"

enum { ATTEMPTS_MAX = 4096 };

/* live steps first <= step < end of an attempt */
typedef struct span {
    int64_t aid, first, end, raw_from;
    int attempt;
} span;

typedef struct walk {
    sqlite3 *db;
    const char *path;
    const bt_blocks_request *ask;
    bt_block_fn fn;
    void *ctx;
    bt_slots slots;
    bt_column step_cols[BT_MS_COUNT], rank_cols[BT_MR_COUNT];
    sqlite3_stmt *level[BT_ROLL_LEVELS + 1], *one, *raw_steps, *raw_ranks;
    const span *at;
    bt_block_stat *decoded; /* [slots.n_steps] */
    bt_block_stat steps[BT_MS_COUNT], *ranks;
    int cap_ranks;
    int64_t delivered; /* smaller steps were delivered */
    bool stopped;
} walk;

static bt_code fail_block_query(walk *w, int rc, bt_err *err) {
    return bt_sql_fail(w->db, rc, w->path, "read", err);
}

static bt_code reserve_block_ranks(walk *w, int n_ranks, bt_err *err) {
    if (n_ranks <= w->cap_ranks) return BT_OK;
    bt_block_stat *more = realloc(w->ranks, sizeof *more * (size_t)n_ranks * BT_MR_COUNT);
    if (!more) return bt_fail(err, BT_NOMEM, "cannot read %d ranks: out of memory", n_ranks);
    w->ranks = more;
    w->cap_ranks = n_ranks;
    return BT_OK;
}

static void deliver_block(walk *w, int64_t step0, int64_t step1, bt_block_stat wall, int n_ranks) {
    /* The first block of an attempt may begin before the attempt. */
    if (step0 < w->delivered) step0 = w->delivered;
    w->delivered = step1 + 1;
    bt_block b = {step0, step1, w->at->attempt, w->steps, wall, n_ranks, n_ranks ? w->ranks : NULL};
    if (!w->fn(w->ctx, &b)) w->stopped = true;
}

static bt_block_stat single_value_stat(double v) {
    return isnan(v) ? (bt_block_stat){0} : (bt_block_stat){1, v, v, v, v, v};
}

static void bind_range(sqlite3_stmt *st, int64_t aid, int64_t first, int64_t end) {
    sqlite3_bind_int64(st, 1, aid);
    sqlite3_bind_int64(st, 2, first);
    sqlite3_bind_int64(st, 3, end);
}

/* Reads the ranks of one step; the cursor k is at its first row or before it. */
static bt_code read_rank_values(walk *w, sqlite3_stmt *k, int *rc, int64_t step, int *n_ranks,
                                bt_err *err) {
    *n_ranks = 0;
    for (; *rc == SQLITE_ROW && sqlite3_column_int64(k, 0) <= step; *rc = sqlite3_step(k)) {
        int rank = sqlite3_column_int(k, 1);
        if (sqlite3_column_int64(k, 0) < step || rank < 0 || rank > 1000000) continue;
        BT_TRY(reserve_block_ranks(w, rank + 1, err));
        for (; *n_ranks <= rank; ++*n_ranks)
            memset(w->ranks + (size_t)*n_ranks * BT_MR_COUNT, 0, sizeof *w->ranks * BT_MR_COUNT);
        for (int i = 0; i < BT_MR_COUNT; i++)
            w->ranks[(size_t)rank * BT_MR_COUNT + (size_t)i] =
                single_value_stat(bt_sql_number(k, 2 + i) / w->rank_cols[i].scale);
    }
    return *rc == SQLITE_ROW || *rc == SQLITE_DONE ? BT_OK : fail_block_query(w, *rc, err);
}

static bt_code deliver_raw_rows(walk *w, int64_t first, int64_t end, bt_err *err) {
    bind_range(w->raw_steps, w->at->aid, first, end);
    sqlite3_bind_int64(w->raw_ranks, 1, bt_rank_key_end(w->at->aid, first));
    sqlite3_bind_int64(w->raw_ranks, 2, bt_rank_key_end(w->at->aid, end));
    int rc, rank_rc = w->ask->ranks ? sqlite3_step(w->raw_ranks) : SQLITE_DONE;
    bt_code code = BT_OK;
    while (code == BT_OK && !w->stopped && (rc = sqlite3_step(w->raw_steps)) == SQLITE_ROW) {
        int64_t step = sqlite3_column_int64(w->raw_steps, 0);
        int n_ranks = 0;
        for (int i = 0; i < BT_MS_COUNT; i++)
            w->steps[i] =
                single_value_stat(bt_sql_number(w->raw_steps, 2 + i) / w->step_cols[i].scale);
        code = read_rank_values(w, w->raw_ranks, &rank_rc, step, &n_ranks, err);
        if (code == BT_OK)
            deliver_block(w, step, step,
                          single_value_stat((double)sqlite3_column_int64(w->raw_steps, 1)),
                          n_ranks);
    }
    if (code == BT_OK && !w->stopped && rc != SQLITE_DONE) code = fail_block_query(w, rc, err);
    sqlite3_reset(w->raw_steps);
    sqlite3_reset(w->raw_ranks);
    return code;
}

static bt_code damaged_summary(const walk *w, bt_err *err) {
    return bt_fail(err, BT_FORMAT,
                   "metrics database '%s' has a damaged summary (mend it with `bitrain runs gc "
                   "--rebuild`)",
                   w->path);
}

static bt_code read_rank_block(walk *w, int level, int64_t block, int *n_ranks, bt_err *err) {
    bt_rank_block b;
    bt_code code = BT_OK;
    *n_ranks = 0;
    sqlite3_bind_int64(w->one, 1, bt_roll_key(w->at->aid, BT_ROLL_RANKS, level, block));
    int rc = sqlite3_step(w->one);
    if (rc == SQLITE_ROW && !bt_roll_decode_ranks(sqlite3_column_blob(w->one, 0),
                                                  (size_t)sqlite3_column_bytes(w->one, 0), &b))
        code = damaged_summary(w, err);
    else if (rc == SQLITE_ROW) {
        code = reserve_block_ranks(w, b.n_ranks, err);
        for (int k = 0; code == BT_OK && k < b.n_ranks; k++) {
            for (int i = 0; i < BT_MR_COUNT; i++)
                bt_rank_block_stat(&b, k, w->slots.rank[i],
                                   &w->ranks[(size_t)k * BT_MR_COUNT + (size_t)i]);
        }
        *n_ranks = b.n_ranks;
    } else if (rc != SQLITE_DONE)
        code = fail_block_query(w, rc, err);
    sqlite3_reset(w->one);
    return code;
}

static bt_code read_block(walk *w, int level, sqlite3_stmt *st, int64_t block, bt_err *err) {
    int n_ranks = 0;
    int64_t size = (int64_t)1 << (BT_ROLL_SHIFT * level);
    if (!bt_roll_decode_steps(sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1),
                              w->decoded, w->slots.n_steps))
        return damaged_summary(w, err);
    for (int i = 0; i < BT_MS_COUNT; i++) w->steps[i] = w->decoded[w->slots.step[i]];
    if (w->ask->ranks) BT_TRY(read_rank_block(w, level, block, &n_ranks, err));
    deliver_block(w, block * size, (block + 1) * size - 1, w->decoded[0], n_ranks);
    return BT_OK;
}

/* Delivers steps first <= step < end: whole blocks of this level; the rest, and steps without a block, from the
 * level below. */
static bt_code deliver_level_blocks(walk *w, int level, int64_t first, int64_t end, bt_err *err) {
    if (first >= end || w->stopped) return BT_OK;
    if (level == 0) return deliver_raw_rows(w, first, end, err);
    int64_t size = (int64_t)1 << (BT_ROLL_SHIFT * level), a = (first + size - 1) / size,
            b = end / size, pos = first;
    if (a >= b) return deliver_level_blocks(w, level - 1, first, end, err);
    sqlite3_stmt *st = w->level[level];
    sqlite3_bind_int64(st, 1, bt_roll_key(w->at->aid, BT_ROLL_STEPS, level, a));
    sqlite3_bind_int64(st, 2, bt_roll_key(w->at->aid, BT_ROLL_STEPS, level, b));
    bt_code code = BT_OK;
    int rc = SQLITE_DONE;
    while (code == BT_OK && !w->stopped && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t block = sqlite3_column_int64(st, 0) -
                        bt_roll_key(w->at->aid, BT_ROLL_STEPS, level, 0);
        code = deliver_level_blocks(w, level - 1, pos, block * size, err);
        if (code == BT_OK && !w->stopped) code = read_block(w, level, st, block, err);
        pos = (block + 1) * size;
    }
    sqlite3_reset(st);
    if (code == BT_OK && !w->stopped && rc != SQLITE_DONE) code = fail_block_query(w, rc, err);
    return code == BT_OK ? deliver_level_blocks(w, level - 1, pos, end, err) : code;
}

static bt_code list_live_spans(walk *w, span **out, int *n, bt_err *err) {
    sqlite3_stmt *st = NULL;
    *out = calloc(ATTEMPTS_MAX, sizeof **out);
    if (!*out) return bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory");
    BT_TRY(bt_sql_prepare(w->db, w->path,
                          "SELECT a.id, a.attempt, a.live_to, a.raw_from FROM attempt a JOIN run r "
                          "ON r.id = a.run WHERE r.name = ? AND a.live_to > 0"
                          " ORDER BY a.attempt",
                          &st, err));
    sqlite3_bind_text(st, 1, w->ask->run, -1, SQLITE_STATIC);
    int rc = SQLITE_DONE;
    while (*n < ATTEMPTS_MAX && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t to = sqlite3_column_int64(st, 2);
        span s = {.aid = sqlite3_column_int64(st, 0),
                  .attempt = sqlite3_column_int(st, 1),
                  .first = 0,
                  .end = to,
                  .raw_from = sqlite3_column_int64(st, 3)};
        if (s.first < w->ask->step0) s.first = w->ask->step0;
        if (s.end > w->ask->step1 + 1) s.end = w->ask->step1 + 1;
        if (s.first < s.end) (*out)[(*n)++] = s;
    }
    bt_code code = rc == SQLITE_ROW || rc == SQLITE_DONE ? BT_OK : fail_block_query(w, rc, err);
    sqlite3_finalize(st);
    return code;
}

static bt_code prepare_block_statements(walk *w, bt_err *err) {
    BT_TRY(bt_slots_load(w->db, w->path, &w->slots, err));
    w->decoded = calloc((size_t)w->slots.n_steps, sizeof *w->decoded);
    if (!w->decoded) return bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory");
    for (int level = 1; level <= BT_ROLL_LEVELS; level++)
        BT_TRY(bt_sql_prepare(w->db, w->path,
                              "SELECT key, data FROM roll WHERE key >= ? AND key < ? ORDER BY key",
                              &w->level[level], err));
    BT_TRY(bt_sql_prepare(w->db, w->path, "SELECT data FROM roll WHERE key = ?", &w->one, err));
    BT_TRY(bt_raw_rows(w->db, w->path, BT_SCOPE_STEP, w->step_cols, &w->raw_steps, err));
    return bt_raw_rows(w->db, w->path, BT_SCOPE_RANK, w->rank_cols, &w->raw_ranks, err);
}

static int largest_level_within(int64_t max_steps) {
    int level = 0;
    while (level < BT_ROLL_LEVELS && (int64_t)1 << (BT_ROLL_SHIFT * (level + 1)) <= max_steps)
        level++;
    return level;
}

bt_code bt_blocks_walk(bt_db *db, const bt_blocks_request *ask, bt_block_fn fn, void *ctx,
                       bt_err *err) {
    walk w = {.db = bt_db_handle(db), .path = bt_db_path(db), .ask = ask, .fn = fn, .ctx = ctx};
    span *spans = NULL;
    int n = 0, level = largest_level_within(ask->max_steps);
    bt_code code = prepare_block_statements(&w, err);
    if (code == BT_OK) code = list_live_spans(&w, &spans, &n, err);
    for (int i = 0; i < n && code == BT_OK && !w.stopped; i++) {
        const span *s = w.at = &spans[i];
        int64_t summed = ask->ranks && level == 0 && s->raw_from > s->first
                             ? (s->raw_from < s->end ? s->raw_from : s->end)
                             : s->first;
        /* summaries replace deleted rank rows */
        code = deliver_level_blocks(&w, 1, s->first, summed, err);
        if (code == BT_OK) code = deliver_level_blocks(&w, level, summed, s->end, err);
    }
    for (int i = 1; i <= BT_ROLL_LEVELS; i++) sqlite3_finalize(w.level[i]);
    sqlite3_finalize(w.one);
    sqlite3_finalize(w.raw_steps);
    sqlite3_finalize(w.raw_ranks);
    free(w.decoded);
    free(w.ranks);
    free(spans);
    return code;
}
