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

/* the name in an object's field `label`: a text, or a whole number, which becomes its digits. BT_FORMAT: err has
 * the field and its fault */
bt_code bt_label_of(json_t *object, char out[BT_LABEL_BYTES], bt_err *err) BT_MUST_CHECK;

size_t bt_labels_count(const char *list);
/* "" where the list is shorter */
void bt_labels_name(const char *list, size_t i, char out[BT_LABEL_BYTES]);
int bt_labels_find(const char *list, const char *name); /* -1: it is not there */
/* "a, b, c", the first few of many */
void bt_labels_text(const char *list, bt_text *out);
/* names are not empty, shorter than BT_LABEL_BYTES, all different, and 2 to BT_LABELS_MAX. BT_ARG */
bt_code bt_labels_check(const char *list, bt_err *err) BT_MUST_CHECK;

/* All labels of files of rows, in the order of their numbers where all are whole numbers, else in byte
 * order, whatever the order of the lines. BT_FORMAT names file, line and field; BT_ARG where they are
 * fewer than two or too many. skip_bad: rows
 * without a label are skipped. Other kinds of files always are. */
bt_code bt_labels_scan(const bt_source *files, size_t n, bool skip_bad, bt_text *out, bt_err *err)
    BT_MUST_CHECK;

#endif
