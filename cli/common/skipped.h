/* skipped.h - messages about data that were left out: files of a folder that hold no text, rows, keys. */
#ifndef BT_CLI_COMMON_SKIPPED_H
#define BT_CLI_COMMON_SKIPPED_H

#include "engine/data/io/sources.h"

/* one line on standard error; none if no file was skipped */
void bt_cli_report_skipped(const bt_sources *s);
/* the lines of bt_documents_notes, each as a warning or a note on standard error */
void bt_cli_print_data_notes(const char *notes);

#endif
