/* model_notes.h - prints what the reader of a model file reported (bt_model_file.notes): one line each. */
#ifndef BT_CLI_MODEL_MODEL_NOTES_H
#define BT_CLI_MODEL_MODEL_NOTES_H

#include "engine/base/text.h"

/* Prints each line of `notes` on standard error, "PATH: line", and moves it to the end of `kept`. */
void bt_notes_collect(bt_text *kept, bt_text *notes, const char *path);
/* The member "notes" of a report: an array with one text per line. */
void bt_notes_json(bt_json *j, const bt_text *notes);

#endif
