/* stored.h - the tensors of a foreign model in its files: name, shape, type, location.
 *
 * Every location was checked against the size of its file, so reading can only fail because of the file system, or
 * because the file was truncated since.
 * Owns: the list and the open files. Threads: reading is thread-safe once the list is complete. */
#ifndef BT_ENGINE_INTEROP_STORED_H
#define BT_ENGINE_INTEROP_STORED_H

#include "engine/interop/formats/formats.h"

enum { BT_STORED_MAX = 65536, BT_FOREIGN_FILES = 1024 };

typedef struct bt_stored {
    char name[BT_FOREIGN_NAME];
    bt_number number;
    int n_dims;
    /* a vector is one row; PACKED: of bytes, four of the tensor's rows in one */
    uint64_t rows, cols;
    int file;
    uint64_t at, bytes; /* in that file */
    bool used;          /* a tensor of the model is read from it */
} bt_stored;

typedef struct bt_foreign_file {
    char *path;
    int fd;
    uint64_t bytes;
} bt_foreign_file;

typedef struct bt_stored_list {
    bt_stored *at;
    size_t n, cap;
    bt_foreign_file *files;
    size_t n_files;
} bt_stored_list;

/* opens a file for the list; *file is its index. BT_NOTFOUND, BT_IO, BT_FORMAT (no regular file) */
bt_code bt_stored_open(bt_stored_list *l, const char *path, int *file, bt_err *err) BT_MUST_CHECK;
bt_code bt_stored_add(bt_stored_list *l, const bt_stored *t, bt_err *err) BT_MUST_CHECK;
/* sorts by name; BT_FORMAT: err has the name of a duplicate tensor */
bt_code bt_stored_sort(bt_stored_list *l, bt_err *err) BT_MUST_CHECK;
/* after sorting; NULL when absent */
bt_stored *bt_stored_find(const bt_stored_list *l, const char *name);
void bt_stored_release(bt_stored_list *l); /* accepts an all-zero struct */

/* Replaces every tensor whose name ends in `joined` by n tensors, each of the given number of its rows, in their order:
 * "blk.3" joined is "blk.3" parts[k].name. Sorts. BT_FORMAT: the rows do not add up */
typedef struct bt_stored_part {
    const char *name;
    uint64_t rows;
} bt_stored_part;
bt_code bt_stored_split(bt_stored_list *l, const char *joined, const bt_stored_part *parts,
                        size_t n, bt_err *err) BT_MUST_CHECK;

/* exactly n bytes; BT_FORMAT when the file ends before */
bt_code bt_foreign_read(const bt_foreign_file *f, void *buf, size_t n, uint64_t at, bt_err *err)
    BT_MUST_CHECK;

/* rows x cols of a type: false: overflow, or a row is not a whole number of blocks */
bool bt_stored_bytes(const bt_stored *t, uint64_t *bytes);

/* safetensors.c: adds the tensors in the header of one file to the list. */
bt_code bt_safetensors_read(bt_stored_list *l, const char *path, bt_err *err) BT_MUST_CHECK;
/* model.safetensors of a folder, or the shards of its model.safetensors.index.json; sorted */
bt_code bt_safetensors_folder(bt_stored_list *l, const char *folder, bt_err *err) BT_MUST_CHECK;

#endif
