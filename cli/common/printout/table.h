/* table.h - prints rows of short texts in aligned columns.
 *
 * Order: init -> (cell* -> end_row)* -> print -> release. The first row is the heading. Widths count characters, not
 * bytes. */
#ifndef BT_CLI_COMMON_PRINTOUT_TABLE_H
#define BT_CLI_COMMON_PRINTOUT_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "engine/base/text.h"

enum { BT_TABLE_COLUMNS = 256 };

typedef struct bt_text_table {
    bt_text cells; /* NUL-separated, row by row */
    /* number of columns in the widest row; of finished rows; of cells in the open row */
    int n_columns, n_rows, at;
    int width[BT_TABLE_COLUMNS];
    bool right[BT_TABLE_COLUMNS]; /* right-aligned: all cells below the heading are figures */
    bool text
        [BT_TABLE_COLUMNS]; /* may be cut: some cell below the heading does not begin with a digit */
    /* bt_table_fit removes columns with the highest number first; 0: never removed */
    uint8_t drop[BT_TABLE_COLUMNS];
    bool left_out[BT_TABLE_COLUMNS];
} bt_text_table;

void bt_table_init(bt_text_table *t);
void bt_table_cell(bt_text_table *t, const char *text); /* control characters are replaced */
void bt_table_cellf(bt_text_table *t, const char *fmt, ...) BT_PRINTF(2, 3);
void bt_table_end_row(bt_text_table *t);
/* Limits lines to `width` columns plus the indent: removes columns by `drop`, then cuts the widest texts (paths at
 * their beginning) with an ellipsis. width 0: no limit. Returns the number of removed columns. */
int bt_table_fit(bt_text_table *t, const char *indent, int width);
/* Returns the width of the terminal, or 0 if standard output is not a terminal. */
int bt_table_terminal_width(void);
void bt_table_put(const bt_text_table *t, bt_text *to, const char *indent);
void bt_table_print(const bt_text_table *t, FILE *to, const char *indent);
void bt_table_release(bt_text_table *t);

#endif
