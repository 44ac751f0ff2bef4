/* row_json.h - writes rows of a query as JSON: numbers as numbers, infinite values and NULL as null. */
#ifndef BT_STORE_READ_ROW_JSON_H
#define BT_STORE_READ_ROW_JSON_H

#include "engine/base/text.h"
#include "store/store.h"

/* key NULL: inside an array */
void bt_row_cell_json(bt_json *j, const char *key, const bt_row *row, int i);
/* Writes a cell with a JSON object or array as that value; any other text as a string. */
void bt_row_cell_document(bt_json *j, const char *key, const bt_row *row, int i);
void bt_row_json(bt_json *j, const bt_row *row); /* one object */
/* Writes all rows as an array of objects under the key. */
bt_code bt_rows_json(bt_json *j, const char *key, bt_db *db, const bt_query *q, bt_err *err)
    BT_MUST_CHECK;

#endif
