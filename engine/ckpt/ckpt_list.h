/* ckpt_list.h - lists and removes the checkpoints of a folder. Private to engine/ckpt. Threads: any. */
#ifndef BT_ENGINE_CKPT_CKPT_LIST_H
#define BT_ENGINE_CKPT_CKPT_LIST_H

#include "engine/ckpt/format.h"

typedef struct ckpt_entry {
    char name[32]; /* "step-000000000100" */
    int64_t step;
    int attempt;    /* -1 if the manifest cannot be read */
    bool committed; /* has a manifest */
    bool readable;  /* its manifest has a valid hash */
} ckpt_entry;

typedef struct ckpt_list {
    ckpt_entry *entries;
    size_t n;
} ckpt_list;

/* Lists checkpoints: first unreadable ones, for their errors, then by (attempt, step), newest first. */
bt_code ckpt_list_read(const char *dir, ckpt_list *out, bt_err *err) BT_MUST_CHECK;
void ckpt_list_release(ckpt_list *l);
/* Removes the manifest first, which revokes the commit, then the other files of the checkpoint, then its folder, unless
 * files of others are in it. err may be NULL. */
void ckpt_remove(const char *folder, bt_err *err);
void ckpt_remove_file(const char *folder, const char *name);
void ckpt_remove_other_generations(const char *folder, uint64_t generation);

#endif
