/* rollup.c - keeps incomplete blocks in memory and writes complete ones to the file. */
#include "store/write/rollup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- statistics ---- */

void bt_block_stat_add(bt_block_stat *s, double v) {
    if (!isfinite(v)) return;
    if (s->n == 0)
        *s = (bt_block_stat){1, v, v, v, v, v};
    else {
        s->n += 1;
        if (v < s->min) s->min = v;
        if (v > s->max) s->max = v;
        s->last = v;
        s->sum += v;
    }
}

void bt_block_stat_merge(bt_block_stat *into, const bt_block_stat *later) {
    if (later->n == 0) return;
    if (into->n == 0) {
        *into = *later;
        return;
    }
    into->n += later->n;
    if (later->min < into->min) into->min = later->min;
    if (later->max > into->max) into->max = later->max;
    into->last = later->last;
    into->sum += later->sum;
}

/* ---- blobs ---- */

/* Format of steps: u16 version, u16 entries; entry: u16 slot, u16 constant, u32 n, then 1 double (all values equal)
 * or 5 doubles. */
enum { VERSION = 1 };

static size_t encode_steps(const bt_block_stat *s, int n_slots, unsigned char *out) {
    uint16_t head[2] = {VERSION, 0};
    size_t at = 8;
    for (int i = 0; i < n_slots; i++) {
        if (s[i].n == 0) continue;
        bool constant = s[i].min >= s[i].max;
        uint16_t what[2] = {(uint16_t)i, constant};
        uint32_t n = (uint32_t)s[i].n;
        const double values[5] = {s[i].min, s[i].max, s[i].first, s[i].last, s[i].sum};
        memcpy(out + at, what, 4);
        memcpy(out + at + 4, &n, 4);
        at += 8;
        memcpy(out + at, values, constant ? 8 : 40);
        at += constant ? 8 : 40;
        head[1]++;
    }
    memset(out, 0, 8);
    memcpy(out, head, 4);
    return at;
}

bool bt_roll_decode_steps(const void *blob, size_t bytes, bt_block_stat *out, int n_slots) {
    const unsigned char *p = blob;
    uint16_t head[2];
    memset(out, 0, sizeof *out * (size_t)n_slots);
    if (bytes < 8) return false;
    memcpy(head, p, 4);
    if (head[0] != VERSION) return false;
    size_t at = 8;
    for (int k = 0; k < head[1]; k++) {
        uint16_t what[2];
        uint32_t n;
        double v[5];
        if (bytes - at < 16) return false;
        memcpy(what, p + at, 4);
        memcpy(&n, p + at + 4, 4);
        at += 8;
        size_t take = what[1] ? 8 : 40;
        if (bytes - at < take) return false;
        memcpy(v, p + at, take);
        at += take;
        if (what[1]) v[1] = v[2] = v[3] = v[0];
        if (what[1]) v[4] = v[0] * n;
        if (what[0] < n_slots && n > 0)
            out[what[0]] = (bt_block_stat){n, v[0], v[1], v[2], v[3], v[4]};
    }
    return true;
}

/* Format of ranks: u16 version, u16 slots, u32 ranks, then floats: level 1 (count, mean...) per rank, else 6 per
 * rank and slot. */
static size_t encode_block_ranks(const bt_block_stat *s, int n_ranks, int n_slots, int level,
                                 float *out) {
    uint16_t head[2] = {level == 1 ? VERSION : VERSION | 0x100, (uint16_t)n_slots};
    uint32_t ranks = (uint32_t)n_ranks;
    memcpy(out, head, 4);
    memcpy(out + 1, &ranks, 4);
    float *p = out + 2;
    for (int r = 0; r < n_ranks; r++) {
        const bt_block_stat *row = s + (size_t)r * (size_t)n_slots;
        double most = 0;
        for (int i = 0; i < n_slots; i++) most = row[i].n > most ? row[i].n : most;
        if (level == 1) *p++ = (float)most;
        for (int i = 0; i < n_slots; i++) {
            const bt_block_stat *t = &row[i];
            if (level == 1)
                *p++ = t->n > 0 ? (float)(t->sum / t->n) : NAN;
            else {
                const float six[6] = {(float)t->n,     (float)t->min,  (float)t->max,
                                      (float)t->first, (float)t->last, (float)t->sum};
                memcpy(p, six, sizeof six);
                p += 6;
            }
        }
    }
    return (size_t)((char *)p - (char *)out);
}

bool bt_roll_decode_ranks(const void *blob, size_t bytes, bt_rank_block *out) {
    uint16_t head[2];
    uint32_t ranks;
    if (bytes < 8) return false;
    memcpy(head, blob, 4);
    memcpy(&ranks, (const char *)blob + 4, 4);
    bool full = (head[0] & 0x100) != 0;
    size_t per_rank = full ? (size_t)head[1] * 24 : ((size_t)head[1] + 1) * 4;
    if ((head[0] & 0xFF) != VERSION || head[1] == 0 || ranks > (bytes - 8) / per_rank) return false;
    *out = (bt_rank_block){(int)ranks, head[1], full,
                           (const float *)(const void *)((const char *)blob + 8)};
    return true;
}

void bt_rank_block_stat(const bt_rank_block *b, int rank, int slot, bt_block_stat *out) {
    *out = (bt_block_stat){0};
    if (rank >= b->n_ranks || slot >= b->n_slots) return;
    if (b->full) {
        float v[6];
        memcpy(v, b->data + ((size_t)rank * (size_t)b->n_slots + (size_t)slot) * 6, sizeof v);
        *out = (bt_block_stat){v[0], v[1], v[2], v[3], v[4], v[5]};
        return;
    }
    const float *row = b->data + (size_t)rank * ((size_t)b->n_slots + 1);
    float n, mean;
    memcpy(&n, row, sizeof n);
    memcpy(&mean, row + 1 + slot, sizeof mean);
    if (n > 0 && isfinite(mean))
        *out = (bt_block_stat){n, mean, mean, mean, mean, (double)n * mean};
}

int64_t bt_roll_key(int64_t aid, int kind, int level, int64_t block) {
    return (int64_t)((uint64_t)aid << 42 | (uint64_t)kind << 41 | (uint64_t)level << 38 |
                     (uint64_t)block);
}

/* ---- slots ---- */

bt_code bt_slots_load(sqlite3 *db, const char *path, bt_slots *out, bt_err *err) {
    sqlite3_stmt *st = NULL;
    memset(out, -1, sizeof *out);
    out->n_steps = 1;
    out->n_ranks = 0;
    BT_TRY(bt_sql_prepare(
        db, path, "SELECT scope, key FROM metric WHERE scope IN ('step', 'rank') ORDER BY pos", &st,
        err));
    while (sqlite3_step(st) == SQLITE_ROW) {
        const char *scope = (const char *)sqlite3_column_text(st, 0),
                   *key = (const char *)sqlite3_column_text(st, 1);
        bool step = strcmp(scope, "step") == 0;
        int slot = step ? out->n_steps++ : out->n_ranks++;
        int i = bt_metric_find(step ? BT_SCOPE_STEP : BT_SCOPE_RANK, key);
        if (i >= 0) (step ? out->step : out->rank)[i] = slot;
    }
    sqlite3_finalize(st);
    return BT_OK;
}

bt_code bt_raw_rows(sqlite3 *db, const char *path, bt_scope scope, bt_column *cols,
                    sqlite3_stmt **out, bt_err *err) {
    bool steps = scope == BT_SCOPE_STEP;
    const bt_scope_row *row = &bt_scopes[scope];
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql,
                steps ? "SELECT step, wall_us" : "SELECT (key >> 16) & 0x3fffffff, key & 0xffff");
    for (int i = 0; i < row->n; i++) {
        bt_column_of(scope, &row->metric[i], &cols[i]);
        bt_text_printf(&sql, ", \"%s\"", cols[i].name);
    }
    bt_text_put(&sql, steps ? " FROM step WHERE aid = ? AND step >= ? AND step < ? ORDER BY step"
                            : " FROM rank_step WHERE key >= ? AND key < ? ORDER BY key");
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "out of memory")
                              : bt_sql_prepare(db, path, bt_text_str(&sql), out, err);
    bt_text_release(&sql);
    return code;
}

/* ---- the open blocks ---- */

struct bt_roll {
    sqlite3 *db;
    const char *path;
    sqlite3_stmt *put, *drop, *read_steps, *read_ranks, *read_blocks, *before;
    bt_slots slots;
    bt_column step_cols[BT_MS_COUNT], rank_cols[BT_MR_COUNT];
    /* last: newest step, -1: none; block: the open one, -1: none */
    int64_t aid, last, block[BT_ROLL_LEVELS + 1];
    bool stale, silent;
    int n_ranks;
    /* [slot]; [rank][slot] */
    bt_block_stat *steps[BT_ROLL_LEVELS + 1], *ranks[BT_ROLL_LEVELS + 1];
    float *blob; /* room for the largest */
    size_t blob_floats;
};

static void clear_roll_level(bt_roll *r, int level) {
    memset(r->steps[level], 0, sizeof(bt_block_stat) * (size_t)r->slots.n_steps);
    if (r->n_ranks)
        memset(r->ranks[level], 0,
               sizeof(bt_block_stat) * (size_t)r->n_ranks * (size_t)r->slots.n_ranks);
}

static bool grow_rank_slots(bt_roll *r, int n_ranks) {
    if (n_ranks <= r->n_ranks) return true;
    size_t row = (size_t)r->slots.n_ranks, floats = 2 + (size_t)n_ranks * (6 * row + 1);
    /* A single rank needs less than the step's own summary. */
    if (floats < r->blob_floats) floats = r->blob_floats;
    float *blob = realloc(r->blob, floats * sizeof *blob);
    if (!blob) return false;
    r->blob = blob;
    r->blob_floats = floats;
    for (int level = 1; level <= BT_ROLL_LEVELS; level++) {
        bt_block_stat *more = realloc(r->ranks[level], sizeof *more * (size_t)n_ranks * row);
        if (!more) return false;
        memset(more + (size_t)r->n_ranks * row, 0,
               sizeof *more * (size_t)(n_ranks - r->n_ranks) * row);
        r->ranks[level] = more;
    }
    r->n_ranks = n_ranks;
    return true;
}

static int store_roll_row(bt_roll *r, int kind, int level, size_t bytes) {
    sqlite3_bind_int64(r->put, 1, bt_roll_key(r->aid, kind, level, r->block[level]));
    sqlite3_bind_blob64(r->put, 2, r->blob, bytes, SQLITE_STATIC);
    int rc = sqlite3_step(r->put);
    sqlite3_reset(r->put);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static bool has_any_value(const bt_block_stat *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i].n > 0) return true;
    }
    return false;
}

/* volatile: gcc 12 -O2 loses the rounding of the last of six (double)(float) conversions in a row
 * (its SLP vectoriser) */
static double round_to_float(double v) {
    volatile float f = (float)v;
    return f;
}

/* Rounds the values to floats, as a reader of the file sees them. */
static void round_stats_to_float(bt_block_stat *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        s[i] = (bt_block_stat){round_to_float(s[i].n),    round_to_float(s[i].min),
                               round_to_float(s[i].max),  round_to_float(s[i].first),
                               round_to_float(s[i].last), round_to_float(s[i].sum)};
}

/* The file stores one value of a constant metric. */
static void recompute_constant_sums(bt_block_stat *s, int n) {
    for (int i = 0; i < n; i++)
        if (s[i].n > 0 && s[i].min >= s[i].max) s[i].sum = s[i].min * s[i].n;
}

/* Writes the open block of a level, merges it into the level above, and clears it. */
static int close_block(bt_roll *r, int level) {
    int rc = SQLITE_OK;
    size_t n_rank_stats = (size_t)r->n_ranks * (size_t)r->slots.n_ranks;
    bool ranks = n_rank_stats && has_any_value(r->ranks[level], n_rank_stats);
    if (!r->silent) {
        rc = store_roll_row(r, BT_ROLL_STEPS, level,
                            encode_steps(r->steps[level], r->slots.n_steps,
                                         (unsigned char *)r->blob));
        if (rc == SQLITE_OK && ranks)
            rc = store_roll_row(r, BT_ROLL_RANKS, level,
                                encode_block_ranks(r->ranks[level], r->n_ranks, r->slots.n_ranks,
                                                   level, r->blob));
    }
    // cppcheck-suppress arrayIndexOutOfBoundsCond ; level stays below the number of levels
    if (level > 1 && ranks) round_stats_to_float(r->ranks[level], n_rank_stats);
    recompute_constant_sums(r->steps[level], r->slots.n_steps);
    if (level < BT_ROLL_LEVELS) {
        r->block[level + 1] = r->block[level] >> BT_ROLL_SHIFT;
        for (int i = 0; i < r->slots.n_steps; i++)
            bt_block_stat_merge(&r->steps[level + 1][i], &r->steps[level][i]);
        for (size_t i = 0; ranks && i < n_rank_stats; i++)
            bt_block_stat_merge(&r->ranks[level + 1][i], &r->ranks[level][i]);
    }
    clear_roll_level(r, level);
    r->block[level] = -1;
    return rc;
}

static int enter_step(bt_roll *r, int64_t step) {
    int rc = SQLITE_OK;
    for (int level = 1; level <= BT_ROLL_LEVELS && rc == SQLITE_OK; level++) {
        if (r->block[level] >= 0 && r->block[level] != step >> (BT_ROLL_SHIFT * level))
            rc = close_block(r, level);
    }
    r->block[1] = step >> BT_ROLL_SHIFT;
    r->last = step;
    return rc;
}

static double round_to_stored_value(double v, const bt_column *c) { /* as stored in the file */
    return c->integer && isfinite(v) ? (double)llround(v * c->scale) / c->scale : v;
}

/* ---- reading back ---- */

/* Passes raw rows first <= step < end of the attempt through the open blocks, in order of steps. */
static int replay_raw_rows(bt_roll *r, int64_t first, int64_t end) {
    int rc, rank_rc = SQLITE_DONE, failed = SQLITE_OK;
    sqlite3_stmt *s = r->read_steps, *k = r->read_ranks;
    sqlite3_reset(s);
    sqlite3_reset(k);
    sqlite3_bind_int64(s, 1, r->aid);
    sqlite3_bind_int64(s, 2, first);
    sqlite3_bind_int64(s, 3, end);
    sqlite3_bind_int64(k, 1, bt_rank_key_end(r->aid, first));
    sqlite3_bind_int64(k, 2, bt_rank_key_end(r->aid, end));
    rank_rc = sqlite3_step(k);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && failed == SQLITE_OK) {
        int64_t step = sqlite3_column_int64(s, 0);
        failed = enter_step(r, step);
        bt_block_stat_add(&r->steps[1][0], (double)sqlite3_column_int64(s, 1));
        for (int i = 0; i < BT_MS_COUNT; i++)
            bt_block_stat_add(&r->steps[1][r->slots.step[i]],
                              bt_sql_number(s, 2 + i) / r->step_cols[i].scale);
        for (; rank_rc == SQLITE_ROW && sqlite3_column_int64(k, 0) <= step;
             rank_rc = sqlite3_step(k)) {
            int rank = sqlite3_column_int(k, 1);
            if (sqlite3_column_int64(k, 0) < step || rank < 0 || !grow_rank_slots(r, rank + 1))
                continue;
            bt_block_stat *row = r->ranks[1] + (size_t)rank * (size_t)r->slots.n_ranks;
            for (int i = 0; i < BT_MR_COUNT; i++)
                bt_block_stat_add(&row[r->slots.rank[i]],
                                  bt_sql_number(k, 2 + i) / r->rank_cols[i].scale);
        }
    }
    sqlite3_reset(s);
    sqlite3_reset(k);
    if (failed == SQLITE_OK && rank_rc != SQLITE_DONE && rank_rc != SQLITE_ROW) failed = rank_rc;
    return failed != SQLITE_OK ? failed : rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static void fold_blob(bt_roll *r, int kind, int level, const void *blob, size_t bytes) {
    if (kind == BT_ROLL_STEPS) {
        bt_block_stat one[256];
        int n = r->slots.n_steps < 256 ? r->slots.n_steps : 256;
        if (!bt_roll_decode_steps(blob, bytes, one, n)) return;
        for (int i = 0; i < n; i++) bt_block_stat_merge(&r->steps[level][i], &one[i]);
        return;
    }
    bt_rank_block b;
    if (!bt_roll_decode_ranks(blob, bytes, &b) || !grow_rank_slots(r, b.n_ranks)) return;
    for (int k = 0; k < b.n_ranks; k++) {
        for (int i = 0; i < b.n_slots && i < r->slots.n_ranks; i++) {
            bt_block_stat one;
            bt_rank_block_stat(&b, k, i, &one);
            bt_block_stat_merge(&r->ranks[level][(size_t)k * (size_t)r->slots.n_ranks + (size_t)i],
                                &one);
        }
    }
}

/* Returns the newest recorded step of the attempt before `step`; -1: none. */
static int64_t newest_step_before(bt_roll *r, int64_t step) {
    int64_t at = -1;
    sqlite3_bind_int64(r->before, 1, r->aid);
    sqlite3_bind_int64(r->before, 2, step);
    if (sqlite3_step(r->before) == SQLITE_ROW && sqlite3_column_type(r->before, 0) != SQLITE_NULL)
        at = sqlite3_column_int64(r->before, 0);
    sqlite3_reset(r->before);
    return at;
}

/* Restores the open blocks as they were before `next`: levels 3 and above from closed blocks below, 1 and 2 from raw
 * rows. */
static int load_open_blocks(bt_roll *r, int64_t next) {
    int rc = SQLITE_OK;
    const int64_t step = newest_step_before(r, next);
    for (int level = 1; level <= BT_ROLL_LEVELS; level++) {
        clear_roll_level(r, level);
        r->block[level] = -1;
    }
    if (step < 0) return SQLITE_OK;
    for (int level = 3; level <= BT_ROLL_LEVELS; level++) {
        int64_t from = (step >> (BT_ROLL_SHIFT * level)) << BT_ROLL_SHIFT,
                to = step >> (BT_ROLL_SHIFT * (level - 1));
        for (int kind = BT_ROLL_STEPS; kind <= BT_ROLL_RANKS && from < to; kind++) {
            sqlite3_bind_int64(r->read_blocks, 1, bt_roll_key(r->aid, kind, level - 1, from));
            sqlite3_bind_int64(r->read_blocks, 2, bt_roll_key(r->aid, kind, level - 1, to));
            while ((rc = sqlite3_step(r->read_blocks)) == SQLITE_ROW) {
                r->block[level] = step >> (BT_ROLL_SHIFT * level);
                fold_blob(r, kind, level, sqlite3_column_blob(r->read_blocks, 1),
                          (size_t)sqlite3_column_bytes(r->read_blocks, 1));
            }
            sqlite3_reset(r->read_blocks);
            if (rc != SQLITE_DONE) return rc;
        }
    }
    r->silent = true; /* complete blocks of these steps are already in the file */
    rc = replay_raw_rows(r, step >> (2 * BT_ROLL_SHIFT) << (2 * BT_ROLL_SHIFT), next);
    r->silent = false;
    return rc;
}

static int drop_blocks_from(bt_roll *r, int64_t step) {
    for (int kind = BT_ROLL_STEPS; kind <= BT_ROLL_RANKS; kind++) {
        for (int level = 1; level <= BT_ROLL_LEVELS; level++) {
            sqlite3_bind_int64(r->drop, 1,
                               bt_roll_key(r->aid, kind, level, step >> (BT_ROLL_SHIFT * level)));
            sqlite3_bind_int64(r->drop, 2, bt_roll_key(r->aid, kind, level + 1, 0));
            int rc = sqlite3_step(r->drop);
            sqlite3_reset(r->drop);
            if (rc != SQLITE_DONE) return rc;
        }
    }
    return SQLITE_OK;
}

/* ---- public ---- */

void bt_roll_start(bt_roll *r, int64_t aid) {
    r->aid = aid;
    r->last = -1;
    r->stale = false;
    for (int level = 1; level <= BT_ROLL_LEVELS; level++) {
        clear_roll_level(r, level);
        r->block[level] = -1;
    }
}

void bt_roll_forget(bt_roll *r) { r->stale = true; }

int64_t bt_roll_newest(const bt_roll *r) { return r->last; }

int bt_roll_add(bt_roll *r, const bt_step_record *rec) {
    int rc = SQLITE_OK;
    if (r->stale || rec->step <= r->last) {
        if (rec->step <= r->last) rc = drop_blocks_from(r, rec->step);
        if (rc == SQLITE_OK) rc = load_open_blocks(r, rec->step);
        if (rc != SQLITE_OK) {
            r->stale = true;
            return rc;
        }
        r->stale = false;
    }
    rc = enter_step(r, rec->step);
    if (rc != SQLITE_OK) return rc;
    bt_block_stat_add(&r->steps[1][0], (double)rec->wall_us);
    for (int i = 0; i < BT_MS_COUNT; i++)
        bt_block_stat_add(&r->steps[1][r->slots.step[i]],
                          round_to_stored_value(rec->values[i], &r->step_cols[i]));
    if (!grow_rank_slots(r, rec->n_ranks)) return SQLITE_NOMEM;
    for (int k = 0; k < rec->n_ranks; k++) {
        bt_block_stat *row = r->ranks[1] + (size_t)k * (size_t)r->slots.n_ranks;
        const double *v = rec->rank_values + (size_t)k * BT_MR_COUNT;
        for (int i = 0; i < BT_MR_COUNT; i++)
            bt_block_stat_add(&row[r->slots.rank[i]],
                              round_to_stored_value(v[i], &r->rank_cols[i]));
    }
    return SQLITE_OK;
}

bt_code bt_roll_rebuild(bt_roll *r, int64_t aid, bt_err *err) {
    bt_roll_start(r, aid);
    int rc = drop_blocks_from(r, 0);
    if (rc == SQLITE_OK) rc = replay_raw_rows(r, 0, INT64_MAX);
    return rc == SQLITE_OK ? BT_OK : bt_sql_fail(r->db, rc, r->path, "rebuild summaries of", err);
}

static bt_code prepare_rollup_statements(bt_roll *r, bt_err *err) {
    BT_TRY(bt_slots_load(r->db, r->path, &r->slots, err));
    BT_TRY(bt_sql_prepare(r->db, r->path, "INSERT OR REPLACE INTO roll(key, data) VALUES (?, ?)",
                          &r->put, err));
    BT_TRY(bt_sql_prepare(r->db, r->path, "DELETE FROM roll WHERE key >= ? AND key < ?", &r->drop,
                          err));
    BT_TRY(bt_sql_prepare(r->db, r->path,
                          "SELECT key, data FROM roll WHERE key >= ? AND key < ? ORDER BY key",
                          &r->read_blocks, err));
    BT_TRY(bt_sql_prepare(r->db, r->path, "SELECT max(step) FROM step WHERE aid = ? AND step < ?",
                          &r->before, err));
    BT_TRY(bt_raw_rows(r->db, r->path, BT_SCOPE_STEP, r->step_cols, &r->read_steps, err));
    return bt_raw_rows(r->db, r->path, BT_SCOPE_RANK, r->rank_cols, &r->read_ranks, err);
}

bt_code bt_roll_open(bt_roll **out, sqlite3 *db, const char *path, bt_err *err) {
    *out = NULL;
    bt_roll *r = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    r->db = db;
    r->path = path;
    bt_code code = prepare_rollup_statements(r, err);
    /* An entry of `steps` has at most 48 bytes. */
    r->blob_floats = 2 + (size_t)r->slots.n_steps * 12;
    r->blob = malloc(r->blob_floats * sizeof *r->blob);
    bool full = r->blob != NULL;
    for (int level = 1; level <= BT_ROLL_LEVELS && code == BT_OK; level++) {
        r->steps[level] = calloc((size_t)r->slots.n_steps, sizeof *r->steps[level]);
        full = full && r->steps[level];
    }
    if (code == BT_OK && !full)
        code = bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    if (code != BT_OK) {
        bt_roll_close(r);
        return code;
    }
    bt_roll_start(r, 0);
    *out = r;
    return BT_OK;
}

void bt_roll_close(bt_roll *r) {
    if (!r) return;
    sqlite3_stmt *all[] = {r->put,        r->drop,        r->read_steps,
                           r->read_ranks, r->read_blocks, r->before};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) sqlite3_finalize(all[i]);
    for (int level = 1; level <= BT_ROLL_LEVELS; level++) {
        free(r->steps[level]);
        free(r->ranks[level]);
    }
    free(r->blob);
    free(r);
}
