/* fold.h - parses data.fold, the position of the held-out part of a text.
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_DATA_SHARDS_FOLD_H
#define BT_ENGINE_DATA_SHARDS_FOLD_H

#include "engine/base/status.h"
#include "engine/data/tokenizer/tokenizer.h"

/* The held-out part ends where part i of `of` equal parts of a file ends; of = 0: at the end of the file. */
typedef struct bt_fold {
    int i, of;
} bt_fold;
/* text: "I/K", or "" for the end of each file. BT_ARG: another text, or K held-out parts of val_frac would overlap. */
bt_code bt_fold_parse(bt_fold *out, const char *text, double val_frac, bt_err *err) BT_MUST_CHECK;

/* The share of a file that is held out: val_frac of it. */
bt_held_out bt_fold_held_out(const bt_fold *f, double val_frac);

#endif
