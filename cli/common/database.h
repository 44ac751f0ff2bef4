/* database.h - helpers for commands that read the metrics database: opening it, rows as CSV, times as text. */
#ifndef BT_CLI_COMMON_DATABASE_H
#define BT_CLI_COMMON_DATABASE_H

#include <limits.h>
#include <stdio.h>

#include "store/read/row_json.h"
#include "store/store.h"

/* maximum number of printed rows; a note reports the cut */
enum { BT_ROWS_MAX = 10000 };
#define BT_QUERY_S 10.0 /* default time limit of a user's query, in seconds */

/* Opens the database. store: value of --store, "" for the default path. */
bt_code bt_cli_open(bt_db **out, const char *store, bt_err *err) BT_MUST_CHECK;

/* Writes the path of `name` ("cache", "runs/NAME") in the folder of the metrics database `db`. Returns false if the
 * path is too long. */
bool bt_cli_beside(char *out, size_t size, const char *db, const char *name) BT_MUST_CHECK;

/* Sets *live if the run's state is none of done, stopped, failed and lost. */
bt_code bt_cli_run_is_live(bt_db *db, const char *run, bool *live, bt_err *err) BT_MUST_CHECK;
/* Appends "/best" to a run's checkpoint folder. Returns false if the run has no best checkpoint (ckpt.keep_best). */
bool bt_cli_best_folder(char folder[PATH_MAX]);
/* If an older checkpoint of the run has a lower validation loss, writes "validation 4.6414 at step 90, 4.9334 now"
 * (nats per token) and returns true; RUN@best is that checkpoint. Returns false and "" if the newest loss is the
 * lowest (within 0.1 %), or if there is no validation or no such checkpoint. */
bool bt_cli_best_is_older(bt_db *db, const char *run, char *text, size_t size);

void bt_cli_csv_names(FILE *to, const bt_row *row);
/* Quoted as in RFC 4180; lines end with LF. */
void bt_cli_csv_row(FILE *to, const bt_row *row);
/* Writes the text and a newline to stdout, then releases it. */
bt_code bt_cli_put(bt_text *t, bt_err *err) BT_MUST_CHECK;

/* Returns "" for NULL or a missing column. */
const char *bt_cli_cell(const bt_row *row, const char *column);
/* Returns NaN for NULL or a missing column. */
double bt_cli_num(const bt_row *row, const char *column);
/* "2025-03-01 14:02" in local time; "-" for NaN. */
const char *bt_cli_when(char buf[32], double epoch_s);
/* Draws a JSON array of losses as blocks "▇▅▃▁", at most `width` characters; "" on a terminal
 * without UTF-8. */
void bt_cli_spark(char *out, size_t size, const char *json, int width);

#endif
