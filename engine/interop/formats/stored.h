/* stored.h - the tensors of another program's model in its files: name, shape, type and position.
 *
 * Every position was compared with the size of its file, so reading can fail only because of the file system, or
 * because the file was truncated afterwards. Owns: the list and the open files. Threads: reading is thread-safe once
 * the list is complete. */
#ifndef BT_ENGINE_INTEROP_STORED_H
#define BT_ENGINE_INTEROP_STORED_H

#include "engine/interop/formats/formats.h"

enum { BT_STORED_MAX = 65536, BT_FOREIGN_FILES = 1024 };

typedef struct bt_stored {
    char name[BT_FOREIGN_NAME];
    bt_number number;
    int n_dims;
    /* A vector is one row. PACKED: rows of bytes, each with four rows of the tensor. */
    uint64_t rows, cols;
    int file;
    uint64_t at, bytes; /* position and size in that file */
    bool used;          /* true if a tensor of the model is read from it */
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

/* Opens a file for the list; *file becomes its index. BT_NOTFOUND, BT_IO, BT_FORMAT (not a regular file) */
bt_code bt_stored_open(bt_stored_list *l, const char *path, int *file, bt_err *err) BT_MUST_CHECK;
bt_code bt_stored_add(bt_stored_list *l, const bt_stored *t, bt_err *err) BT_MUST_CHECK;
/* Sorts the list by name. BT_FORMAT: a name occurs twice; err contains it. */
bt_code bt_stored_sort(bt_stored_list *l, bt_err *err) BT_MUST_CHECK;
/* Requires a sorted list. Returns NULL if the tensor is absent. */
bt_stored *bt_stored_find(const bt_stored_list *l, const char *name);
void bt_stored_release(bt_stored_list *l);

/* Replaces every tensor whose name ends in `joined` by n tensors, each with the given number of its rows, in their
 * order: for example "blk.3" joined becomes "blk.3" parts[k].name. Sorts the list. BT_FORMAT: the sum of the rows
 * differs. */
typedef struct bt_stored_part {
    const char *name;
    uint64_t rows;
} bt_stored_part;
bt_code bt_stored_split(bt_stored_list *l, const char *joined, const bt_stored_part *parts,
                        size_t n, bt_err *err) BT_MUST_CHECK;

/* Reads exactly n bytes. BT_FORMAT: the file ends earlier. */
bt_code bt_foreign_read(const bt_foreign_file *f, void *buf, size_t n, uint64_t at, bt_err *err)
    BT_MUST_CHECK;

/* Computes the bytes of rows x cols elements of a type. false: overflow, or a row ends within a block. */
bool bt_stored_bytes(const bt_stored *t, uint64_t *bytes);

/* Adds the tensors in the header of one file to the list (safetensors.c). */
bt_code bt_safetensors_read(bt_stored_list *l, const char *path, bt_err *err) BT_MUST_CHECK;
/* Reads model.safetensors of a folder, or the files of its model.safetensors.index.json; sorts the list. */
bt_code bt_safetensors_folder(bt_stored_list *l, const char *folder, bt_err *err) BT_MUST_CHECK;

#endif
