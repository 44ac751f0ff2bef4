/* rollup.h - private to store/: the pyramid of summaries over steps, written as the run goes.
 *
 * A block of level L covers 16^L consecutive steps, aligned at multiples of 16^L; a row is written
 *   when its block is left. kind STEPS: per metric n, min, max, first, last, sum (double); slot 0
 *   is the wall clock of the step, in microseconds kind RANKS: one matrix for all ranks. Level 1:
 *   count and means (float). Levels 2..5: n, min, max, first, last, sum (float)
 * The newest, still open block of each level is not in the file: readers take lower levels and raw
 * rows there. Slots follow the order of the file's `metric` table, which only grows.
 * Values are those of the file (rounded to its integers), so that blocks written as the run goes
 * equal blocks made later from the raw rows, bit for bit. */
#ifndef BT_STORE_WRITE_ROLLUP_H
#define BT_STORE_WRITE_ROLLUP_H

#include <sqlite3.h>

#include "engine/base/sink.h"
#include "store/sql/sql.h"

enum { BT_ROLL_LEVELS = 5, BT_ROLL_SHIFT = 4 };
enum { BT_ROLL_STEPS = 0, BT_ROLL_RANKS = 1 };

/* n 0: no value */
typedef struct bt_block_stat {
    double n, min, max, first, last, sum;
} bt_block_stat;
/* Ignores NaN and infinities. */
void bt_block_stat_add(bt_block_stat *s, double v);
void bt_block_stat_merge(bt_block_stat *into, const bt_block_stat *later);

/* step[i], rank[i]: slot of metric i of this program; n_steps, n_ranks: number of slots, n_steps includes the clock */
typedef struct bt_slots {
    int n_steps, n_ranks, step[BT_MS_COUNT], rank[BT_MR_COUNT];
} bt_slots;
bt_code bt_slots_load(sqlite3 *db, const char *path, bt_slots *out, bt_err *err) BT_MUST_CHECK;

/* Prepares the query of one attempt's raw rows in a range of steps with all metrics of a scope,
 * in the order of the metric table. BT_SCOPE_STEP: step, wall_us, metrics from column 2 on;
 * parameters (aid, first, end). BT_SCOPE_RANK: step, rank, metrics; parameters (first key, end
 * key). cols receives the storage of each and has room for all metrics of the scope. The caller
 * finalises *out. */
bt_code bt_raw_rows(sqlite3 *db, const char *path, bt_scope scope, bt_column *cols,
                    sqlite3_stmt **out, bt_err *err) BT_MUST_CHECK;

/* Returns a rowid: blocks of one level are adjacent and in order. */
int64_t bt_roll_key(int64_t aid, int kind, int level, int64_t block);

typedef struct bt_roll bt_roll;
bt_code bt_roll_open(bt_roll **out, sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_roll_close(bt_roll *r);
void bt_roll_start(bt_roll *r, int64_t aid);
/* Adds a step; requires a transaction. Returns SQLITE_OK or the code of the failure. Steps may go back. */
int bt_roll_add(bt_roll *r, const bt_step_record *rec);
/* Makes the next call read open blocks from the file again, after a failed transaction. */
void bt_roll_forget(bt_roll *r);
/* Returns the newest step of this attempt; -1: none. */
int64_t bt_roll_newest(const bt_roll *r);
/* Deletes and recomputes all blocks of an attempt; requires a transaction. */
bt_code bt_roll_rebuild(bt_roll *r, int64_t aid, bt_err *err) BT_MUST_CHECK;

/* ---- decoding ---- */
/* Fills out[n_slots]; slots that are not in the blob get n = 0. Returns false if it is malformed. */
bool bt_roll_decode_steps(const void *blob, size_t bytes, bt_block_stat *out, int n_slots);
typedef struct bt_rank_block {
    int n_ranks, n_slots;
    bool full;
    const float *data;
} bt_rank_block;
bool bt_roll_decode_ranks(const void *blob, size_t bytes, bt_rank_block *out);
/* Contains means only: min = max = first = last = mean. */
void bt_rank_block_stat(const bt_rank_block *b, int rank, int slot, bt_block_stat *out);

#endif
