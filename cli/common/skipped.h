/* skipped.h - messages about skipped data: files of a folder that are not text, rows, keys. */
#ifndef BT_CLI_COMMON_SKIPPED_H
#define BT_CLI_COMMON_SKIPPED_H

#include "engine/data/io/sources.h"

/* Prints one line on standard error; nothing if no file was skipped. */
void bt_cli_report_skipped(const bt_sources *s);
/* Prints the lines of bt_documents_notes on standard error, each as a warning or a note. */
void bt_cli_print_data_notes(const char *notes);

#endif
