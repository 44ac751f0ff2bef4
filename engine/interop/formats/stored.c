/* stored.c - the list of stored tensors, and the reading of their bytes. */
#include "engine/interop/formats/stored.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/io/file_io.h"
#include "engine/data/io/file_kind.h"

/* Refuses files of other known kinds: a Git LFS pointer, a pickle of PyTorch, an archive. */
static bt_code refuse_other_kinds(int fd, const char *path, bt_err *err) {
    char head[BT_FILE_KIND_HEAD];
    size_t n;
    BT_TRY(bt_file_pread(fd, path, head, sizeof head, 0, &n, err));
    const bt_file_kind *kind = bt_file_kind_of(head, n);
    return !kind || kind->model ? BT_OK : bt_file_kind_refuse(kind, "the model file", path, err);
}

bt_code bt_stored_open(bt_stored_list *l, const char *path, int *file, bt_err *err) {
    struct stat st;
    if (l->n_files == BT_FOREIGN_FILES)
        return bt_fail(err, BT_FORMAT, "a model may have at most %d files", BT_FOREIGN_FILES);
    bt_foreign_file *more = realloc(l->files, (l->n_files + 1) * sizeof *more);
    if (!more) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the list of files");
    l->files = more;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno, "cannot open '%s'",
                             path);
    char *copy = strdup(path);
    bt_code code = copy ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for a file name");
    if (code == BT_OK && fstat(fd, &st) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot stat '%s'", path);
    if (code == BT_OK && !S_ISREG(st.st_mode))
        code = bt_fail(err, BT_FORMAT, "'%s' is not a regular file", path);
    if (code == BT_OK) code = refuse_other_kinds(fd, path, err);
    if (code != BT_OK) {
        free(copy);
        close(fd);
        return code;
    }
    *file = (int)l->n_files;
    l->files[l->n_files++] = (bt_foreign_file){copy, fd, (uint64_t)st.st_size};
    return BT_OK;
}

bt_code bt_stored_add(bt_stored_list *l, const bt_stored *t, bt_err *err) {
    if (l->n == BT_STORED_MAX)
        return bt_fail(err, BT_FORMAT, "there are more than %d tensors", BT_STORED_MAX);
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 256;
        bt_stored *more = realloc(l->at, cap * sizeof *more);
        if (!more) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu tensors", cap);
        l->at = more;
        l->cap = cap;
    }
    l->at[l->n++] = *t;
    return BT_OK;
}

static int by_stored_name(const void *a, const void *b) {
    return strcmp(((const bt_stored *)a)->name, ((const bt_stored *)b)->name);
}

bt_code bt_stored_sort(bt_stored_list *l, bt_err *err) {
    if (l->n > 1) qsort(l->at, l->n, sizeof *l->at, by_stored_name);
    for (size_t i = 1; i < l->n; i++)
        if (strcmp(l->at[i - 1].name, l->at[i].name) == 0)
            return bt_fail(err, BT_FORMAT, "tensor '%s' occurs twice", l->at[i].name);
    return BT_OK;
}

bt_stored *bt_stored_find(const bt_stored_list *l, const char *name) {
    bt_stored key;
    if (strlen(name) >= sizeof key.name || l->n == 0) return NULL;
    strcpy(key.name, name);
    return bsearch(&key, l->at, l->n, sizeof *l->at, by_stored_name);
}

void bt_stored_release(bt_stored_list *l) {
    for (size_t i = 0; i < l->n_files; i++) {
        close(l->files[i].fd);
        free(l->files[i].path);
    }
    free(l->files);
    free(l->at);
    memset(l, 0, sizeof *l);
}

bt_code bt_foreign_read(const bt_foreign_file *f, void *buf, size_t n, uint64_t at, bt_err *err) {
    size_t got;
    BT_TRY(bt_file_pread(f->fd, f->path, buf, n, at, &got, err));
    if (got == n) return BT_OK;
    return bt_fail(err, BT_FORMAT,
                   "'%s' ends at byte %llu, but %llu more bytes were expected (truncated)", f->path,
                   (unsigned long long)(at + got), (unsigned long long)(n - got));
}

bool bt_stored_bytes(const bt_stored *t, uint64_t *bytes) {
    const bt_number_row *n = bt_number_at(t->number);
    uint64_t blocks;
    if (t->number == BT_NUM_PACKED) return !__builtin_mul_overflow(t->rows, t->cols, bytes);
    if (t->cols % n->block != 0) return false;
    return !__builtin_mul_overflow(t->rows, t->cols / n->block, &blocks) &&
           !__builtin_mul_overflow(blocks, (uint64_t)n->bytes, bytes) && *bytes <= INT64_MAX;
}
