/* labels.h - names of the classes of a classifier: in the data a field `label` of each line, in the
 * settings (data.labels) a list, one name a line. The number of a class is its place in the list.
 *
 * Threads: pure functions; scan reads files. */
#ifndef BT_ENGINE_DATA_CHAT_LABELS_H
#define BT_ENGINE_DATA_CHAT_LABELS_H

#include "engine/base/text.h"
#include "engine/data/io/json.h"
#include "engine/data/io/sources.h"

enum { BT_LABELS_MAX = 1000, BT_LABEL_BYTES = 64 };

/* Reads the name in an object's field `label`: a text, or a whole number, which becomes its digits. BT_FORMAT: err
 * has the field and its fault. */
bt_code bt_label_of(json_t *object, char out[BT_LABEL_BYTES], bt_err *err) BT_MUST_CHECK;

size_t bt_labels_count(const char *list);
/* Returns "" beyond the end of the list. */
void bt_labels_name(const char *list, size_t i, char out[BT_LABEL_BYTES]);
int bt_labels_find(const char *list, const char *name); /* -1: missing */
/* Writes "a, b, c", only the first few of many. */
void bt_labels_text(const char *list, bt_text *out);
/* Checks that names are not empty, shorter than BT_LABEL_BYTES, all different, and 2 to BT_LABELS_MAX in number.
 * BT_ARG. */
bt_code bt_labels_check(const char *list, bt_err *err) BT_MUST_CHECK;

/* Collects the labels of files of rows, in numerical order if all are whole numbers, otherwise in byte order.
 * BT_FORMAT names file, line and field; BT_ARG: fewer than two, or too many. skip_bad: skips rows without a label.
 * Other kinds of files are always skipped. */
bt_code bt_labels_scan(const bt_source *files, size_t n, bool skip_bad, bt_text *out, bt_err *err)
    BT_MUST_CHECK;

#endif
