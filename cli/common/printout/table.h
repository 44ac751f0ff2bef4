/* table.h - rows of short texts in aligned columns, for people.
 *
 * Order: init -> (cell* -> end_row)* -> print -> release. The first row is the heading. Widths
 *        count characters, not bytes. */
#ifndef BT_CLI_COMMON_PRINTOUT_TABLE_H
#define BT_CLI_COMMON_PRINTOUT_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "engine/base/text.h"

enum { BT_TABLE_COLUMNS = 256 };

typedef struct bt_text_table {
    bt_text cells; /* NUL-separated, row by row */
    /* columns of the widest row; finished rows; cells of the open row */
    int n_columns, n_rows, at;
    int width[BT_TABLE_COLUMNS];
    bool right[BT_TABLE_COLUMNS]; /* all cells below the heading look like figures */
    bool text[BT_TABLE_COLUMNS];  /* a cell below the heading begins with no digit: it may be cut */
    /* bt_table_fit leaves out columns with a higher number first, and never those with 0 */
    uint8_t drop[BT_TABLE_COLUMNS];
    bool left_out[BT_TABLE_COLUMNS];
} bt_text_table;

void bt_table_init(bt_text_table *t);
void bt_table_cell(bt_text_table *t, const char *text); /* made safe for a terminal */
void bt_table_cellf(bt_text_table *t, const char *fmt, ...) BT_PRINTF(2, 3);
void bt_table_end_row(bt_text_table *t);
/* Makes lines of at most `width` columns behind the indent: leaves out columns by `drop`, then cuts the widest texts
 * (paths at their beginning) with an ellipsis. width 0: no limit. Returns how many columns it left out. */
int bt_table_fit(bt_text_table *t, const char *indent, int width);
/* columns of the terminal that standard output is, 0: it is none */
int bt_table_terminal_width(void);
void bt_table_put(const bt_text_table *t, bt_text *to, const char *indent);
void bt_table_print(const bt_text_table *t, FILE *to, const char *indent);
void bt_table_release(bt_text_table *t);

#endif
