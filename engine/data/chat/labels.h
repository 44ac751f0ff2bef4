/* labels.h - names of the classes of a classifier. In the data each row has a field `label`; the setting data.labels
 * lists the names, one a line. The number of a class is its index in that list.
 *
 * Threads: pure functions; bt_labels_scan reads files. */
#ifndef BT_ENGINE_DATA_CHAT_LABELS_H
#define BT_ENGINE_DATA_CHAT_LABELS_H

#include "engine/base/text.h"
#include "engine/data/io/json.h"
#include "engine/data/io/sources.h"

enum { BT_LABELS_MAX = 1000, BT_LABEL_BYTES = 64 };

/* Reads an object's field `label`, a text or a whole number, which is converted to its digits. BT_FORMAT: the error
 * message names the field and its fault. */
bt_code bt_label_of(json_t *object, char out[BT_LABEL_BYTES], bt_err *err) BT_MUST_CHECK;

size_t bt_labels_count(const char *list);
/* Returns "" beyond the end of the list. */
void bt_labels_name(const char *list, size_t i, char out[BT_LABEL_BYTES]);
int bt_labels_find(const char *list, const char *name); /* -1: missing */
/* Writes "a, b, c"; a long list is shortened to its first names. */
void bt_labels_text(const char *list, bt_text *out);
/* Checks that there are 2 to BT_LABELS_MAX names, all different, not empty, and shorter than BT_LABEL_BYTES. BT_ARG. */
bt_code bt_labels_check(const char *list, bt_err *err) BT_MUST_CHECK;

/* Collects the labels of files of rows, in numerical order if all are whole numbers, otherwise in byte order. BT_FORMAT
 * names file, line and field; BT_ARG: fewer than two labels, or too many. skip_bad skips rows without a label. Files
 * without rows are always skipped. */
bt_code bt_labels_scan(const bt_source *files, size_t n, bool skip_bad, bt_text *out, bt_err *err)
    BT_MUST_CHECK;

#endif
