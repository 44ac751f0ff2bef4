/* printout.h - a result of a command, composed once and printed as text for people or as one JSON object.
 *
 * Order: begin -> (line | field | object ... end | rows -> (row -> field* -> end)* -> rows_end)* -> print.
 * A field has a key, its name in JSON, and a label, the heading of its table column. A field without a key is omitted
 * from JSON, one without a label from the table.
 * Outside of rows a field is part of JSON only; bt_printout_line writes text only.
 * The report owns everything that it has collected until print or release. Keys and labels are borrowed until then. */
#ifndef BT_CLI_COMMON_PRINTOUT_PRINTOUT_H
#define BT_CLI_COMMON_PRINTOUT_PRINTOUT_H

#include "cli/common/printout/table.h"
#include "engine/base/tables/metric.h"

typedef struct bt_printout {
    bool json;
    bt_text out; /* finished text, or the JSON */
    bt_json j;   /* for direct use if `json` is set */
    /* State of the open rows. Cells of the first row are held back until all headings are complete. */
    bt_text_table table;
    bt_text heads, first;
    bool in_row;
    size_t n_rows;
} bt_printout;

void bt_printout_begin(bt_printout *r, bool json);
void bt_printout_version(bt_printout *r); /* "version": 1 */
void bt_printout_line(bt_printout *r, const char *fmt, ...) BT_PRINTF(2, 3);

void bt_printout_object(bt_printout *r, const char *key); /* in JSON only */
void bt_printout_rows(bt_printout *r, const char *key);
void bt_printout_row(bt_printout *r);
void bt_printout_end(bt_printout *r); /* ends an object or a row */
/* Ends the rows and writes the table with this indent; writes nothing if there is no row. */
void bt_printout_rows_end(bt_printout *r, const char *indent);

void bt_printout_str(bt_printout *r, const char *key, const char *label, const char *s);
void bt_printout_int(bt_printout *r, const char *key, const char *label, int64_t v);
void bt_printout_bool(bt_printout *r, const char *key, bool v);
/* Text is formatted by bt_metric_format; a value that is not finite is null and "-". */
void bt_printout_num(bt_printout *r, const char *key, const char *label, double v, bt_unit unit);
/* Text is formatted by fmt, which has one conversion of a double, applied to scale x v. */
void bt_printout_numf(bt_printout *r, const char *key, const char *label, double v, double scale,
                      const char *fmt);
void bt_printout_cellf(bt_printout *r, const char *label, const char *fmt, ...) BT_PRINTF(3, 4);

/* Prints the result, JSON with a newline, and releases the report. */
bt_code bt_printout_print(bt_printout *r, bt_err *err) BT_MUST_CHECK;
/* Prints like bt_printout_print if code is BT_OK; otherwise releases the report and returns code. */
bt_code bt_printout_finish(bt_printout *r, bt_code code, bt_err *err) BT_MUST_CHECK;
void bt_printout_release(bt_printout *r);

#endif
