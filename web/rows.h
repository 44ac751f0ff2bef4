/* rows.h - query results as JSON, for the answers that are plain rows. */
#ifndef BT_WEB_ROWS_H
#define BT_WEB_ROWS_H

#include "engine/base/text.h"
#include "store/store.h"

enum { BT_WEB_ROWS_MAX = 5000 };
#define BT_WEB_QUERY_S 2.0

/* the rows as an array of objects under key */
bt_code bt_web_rows(bt_json *j, const char *key, bt_db *db, const char *sql, const char *const *params, int n, bt_err *err) BT_MUST_CHECK;
void bt_web_cell(bt_json *j, const char *key, const bt_row *row, int i);        /* numbers as numbers, NULL as null */

#endif
