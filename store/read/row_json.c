/* row_json.c - prints cells by their SQLite types. */
#include "store/read/row_json.h"

void bt_row_cell_json(bt_json *j, const char *key, const bt_row *row, int i) {
    switch (row->types[i]) {
    case 'i': bt_json_raw(j, key, row->cells[i]); break;
    case 'r': bt_json_num(j, key, row->nums[i]); break;
    case 'n': bt_json_null(j, key); break;
    default: bt_json_str(j, key, row->cells[i]);
    }
}

void bt_row_cell_document(bt_json *j, const char *key, const bt_row *row, int i) {
    const char *text = row->cells[i];
    if (text && (text[0] == '{' || text[0] == '['))
        bt_json_document(j, key, text);
    else
        bt_row_cell_json(j, key, row, i);
}

void bt_row_json(bt_json *j, const bt_row *row) {
    bt_json_object(j, NULL);
    for (int i = 0; i < row->n; i++) bt_row_cell_json(j, row->names[i], row, i);
    bt_json_end(j, '}');
}

static bool put_json_row(void *ctx, const bt_row *row) {
    bt_row_json(ctx, row);
    return true;
}

bt_code bt_rows_json(bt_json *j, const char *key, bt_db *db, const bt_query *q, bt_err *err) {
    bt_json_array(j, key);
    bt_code code = bt_db_query(db, q, put_json_row, j, err);
    bt_json_end(j, ']');
    return code;
}
