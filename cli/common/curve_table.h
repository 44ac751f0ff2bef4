/* curve_table.h - curves of losses over minutes, which `bitrain bench learn --curves FILE` writes and
 * `bitrain plot --curves FILE` draws.
 *
 * The file has tab-separated columns in this order: recipe corpus seed minutes tokens bits_per_byte. Lines that begin
 * with '#' are comments; the first other line names the columns. Seeds of the same recipe and corpus are averaged where
 * all of them have a validation after the same number of tokens. */
#ifndef BT_CLI_COMMON_CURVE_TABLE_H
#define BT_CLI_COMMON_CURVE_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef struct bt_curves bt_curves;

typedef struct bt_curve { /* one recipe on one corpus */
    char name[72];        /* recipe name, or "recipe corpus" if there are several corpora */
    size_t seeds, n;
    const double *minutes, *tokens, *bits; /* (n), in ascending order of tokens */
} bt_curve;

/* Reads the file. BT_NOTFOUND; BT_FORMAT names the line. */
bt_code bt_curves_read(bt_curves **out, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_curves_free(bt_curves *c); /* accepts NULL */
size_t bt_curves_count(const bt_curves *c);
bt_curve bt_curves_at(const bt_curves *c, size_t i);

/* Write the head of such a file, and one line. */
void bt_curves_head(FILE *f);
void bt_curves_put(FILE *f, const char *recipe, const char *corpus, long long seed, double minutes,
                   double tokens, double bits);

/* Adds a point of a curve to a JSON array: {minutes, tokens, bits_per_byte}. */
void bt_curves_point_json(bt_json *j, double minutes, double tokens, double bits);
bt_code bt_curves_print(const bt_curves *c, bt_err *err) BT_MUST_CHECK; /* to stdout, as JSON */

#endif
