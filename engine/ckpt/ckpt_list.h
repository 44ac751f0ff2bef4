/* ckpt_list.h - lists and removes the checkpoints of a folder. Private to engine/ckpt. Threads: any; no shared
 * state. */
#ifndef BT_ENGINE_CKPT_CKPT_LIST_H
#define BT_ENGINE_CKPT_CKPT_LIST_H

#include "engine/ckpt/format.h"

typedef struct ckpt_entry {
    char name[32]; /* "step-000000000100" */
    int64_t step;
    int attempt;    /* -1 if the manifest cannot be read */
    bool committed; /* has a manifest */
    bool readable;  /* has a valid seal */
} ckpt_entry;

typedef struct ckpt_list {
    ckpt_entry *entries;
    size_t n;
} ckpt_list;

/* Lists checkpoints, newest first: unreadable ones (so that their errors are reported), then by (attempt, step). */
bt_code ckpt_list_read(const char *dir, ckpt_list *out, bt_err *err) BT_MUST_CHECK;
void ckpt_list_release(ckpt_list *l);
/* Removes the manifest first (which un-commits the checkpoint), then its other files, then the folder unless it
 * contains foreign files. err may be NULL. */
void ckpt_remove(const char *folder, bt_err *err);
void ckpt_remove_file(const char *folder, const char *name);
void ckpt_remove_other_generations(const char *folder, uint64_t generation);

#endif
