/* database.h - functions for the commands over the metrics database: opening it, rows as CSV, times as text. */
#ifndef BT_CLI_COMMON_DATABASE_H
#define BT_CLI_COMMON_DATABASE_H

#include <limits.h>
#include <stdio.h>

#include "store/read/row_json.h"
#include "store/store.h"

/* a longer list is cut, with a note */
enum { BT_ROWS_MAX = 10000 };
#define BT_QUERY_S 10.0 /* seconds that a user's query may take by default */

/* store: the value of --store, "" for the default place */
bt_code bt_cli_open(bt_db **out, const char *store, bt_err *err) BT_MUST_CHECK;

/* Writes the path of `name` ("cache", "runs/NAME") in the folder of the metrics database `db`. Returns false if it
 * is too long. */
bool bt_cli_beside(char *out, size_t size, const char *db, const char *name) BT_MUST_CHECK;

/* ---- a run ---- */
/* its state is none of done, stopped, failed and lost */
bt_code bt_cli_run_is_live(bt_db *db, const char *run, bool *live, bt_err *err) BT_MUST_CHECK;
/* adds "/best" to the folder of a run's checkpoints; false: no checkpoint is kept there as the best (ckpt.keep_best) */
bool bt_cli_best_folder(char folder[PATH_MAX]);
/* For a run whose newest weights are not its best: writes "validation 4.6414 at step 90, 4.9334 now", nats per
 * token; RUN@best is the checkpoint of the lower one. Returns false and "" if the newest validation loss is the
 * lowest one (to a thousandth), if there was none, or if no such checkpoint is kept. */
bool bt_cli_best_is_older(bt_db *db, const char *run, char *text, size_t size);

/* ---- rows ---- */
void bt_cli_csv_names(FILE *to, const bt_row *row);
/* quoted as in RFC 4180, lines end with LF */
void bt_cli_csv_row(FILE *to, const bt_row *row);
/* writes to stdout with a newline, releases */
bt_code bt_cli_put(bt_text *t, bt_err *err) BT_MUST_CHECK;

/* ---- people ---- */
/* "" for NULL or no such column */
const char *bt_cli_cell(const bt_row *row, const char *column);
/* NaN for NULL or no such column */
double bt_cli_num(const bt_row *row, const char *column);
/* "2025-03-01 14:02" in local time; "-" for NaN */
const char *bt_cli_when(char buf[32], double epoch_s);
/* JSON array of losses -> blocks "▇▅▃▁", at most width characters; "" where the terminal has no
 * UTF-8 */
void bt_cli_spark(char *out, size_t size, const char *json, int width);

#endif
