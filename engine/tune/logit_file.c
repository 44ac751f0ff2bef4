/* logit_file.c - writes and reads a teacher's logits by document; all bytes are checked before they are used. */
#include "engine/tune/logit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/kernels/table/kernels.h"

static const char MAGIC[8] = {'B', 'T', 'L', 'O', 'G', 'I', 'T', '1'};
enum { HEADER_BYTES = 64, INDEX_LEAST = 1024 };

typedef struct header {
    char magic[8];
    uint32_t k, V;
    uint64_t tokenizer, n_documents, n_rows;
    uint64_t hash; /* hash of the header, in which this field is 0, and of the index */
    uint64_t spare[2];
} header;
_Static_assert(sizeof(header) == HEADER_BYTES, "the header has no padding");

typedef struct entry {
    uint64_t key, row;
} entry;

static size_t row_bytes(uint32_t k) { return ((size_t)k * 6 + 3) / 4 * 4; }

static uint64_t index_hash(const header *h, const entry *index) {
    header plain = *h;
    plain.hash = 0;
    const uint64_t seed = XXH3_64bits(&plain, sizeof plain);
    return XXH3_64bits_withSeed(index, h->n_documents * sizeof *index, seed);
}

typedef struct document {
    size_t row, n; /* position and length in the micro-batch */
} document;

/* Finds the first document at or after *at; returns false if there is none. */
static bool next_document(const bt_logit_shape *s, const bt_batch *b, size_t *at, document *d) {
    const size_t T = (size_t)s->T, M = (size_t)s->B * T;
    const int32_t *p = b->positions;
    while (p && *at < M && p[*at] < 0) ++*at;
    if (*at >= M) return false;
    d->row = *at;
    do ++*at;
    while (*at % T && (!p || p[*at] > 0));
    d->n = *at - d->row;
    return true;
}

static size_t count_learned_tokens(const bt_batch *b, const document *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) n += b->targets[d->row + i] >= 0;
    return n;
}

static uint64_t document_key(const bt_batch *b, const document *d) {
    const uint64_t seed = XXH3_64bits(b->inputs + d->row, d->n * sizeof *b->inputs);
    return XXH3_64bits_withSeed(b->targets + d->row, d->n * sizeof *b->targets, seed);
}

struct bt_logit_writer {
    bt_logit_shape shape;
    FILE *file; /* has the name `part` until the file is complete */
    char path[1024], part[1064];
    header head;
    entry *index;
    size_t room;
    uint32_t *ids;   /* (B T, k) */
    float *logs;     /* (B T, k) */
    uint8_t *packed; /* (B T, row_bytes) */
};

static void release_logit_writer(bt_logit_writer *w) {
    free(w->index);
    free(w->ids);
    free(w->logs);
    free(w->packed);
    free(w);
}

static bt_code fail_to_write(const bt_logit_writer *w, bt_err *err) {
    return bt_fail(err, BT_IO, "cannot write '%.80s': %s", w->path, strerror(errno));
}

static bt_code write_logit_bytes(bt_logit_writer *w, const void *data, size_t n, bt_err *err) {
    return fwrite(data, 1, n, w->file) == n ? BT_OK : fail_to_write(w, err);
}

/* Creates the file. Its header is written again when its values are known. */
static bt_code open_logit_part(bt_logit_writer *w, bt_err *err) {
    w->file = fopen(w->part, "wbx");
    return w->file ? write_logit_bytes(w, &w->head, sizeof w->head, err) : fail_to_write(w, err);
}

bt_code bt_logit_writer_create(bt_logit_writer **out, const char *path, const bt_logit_shape *s,
                               bt_err *err) {
    *out = NULL;
    if (s->k < 1 || s->k > BT_TOP_MOST || s->k > s->V)
        return bt_fail(err, BT_ARG,
                       "--top-k %d is not possible: it is the number of logits that are stored of "
                       "the %d of each token, at least 1 and at most %d",
                       s->k, s->V, s->V < BT_TOP_MOST ? s->V : BT_TOP_MOST);
    const size_t M = (size_t)s->B * (size_t)s->T, k = (size_t)s->k;
    bt_logit_writer *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot allocate memory to write '%s'", path);
    w->shape = *s;
    w->head = (header){.k = (uint32_t)s->k, .V = (uint32_t)s->V, .tokenizer = s->tokenizer};
    memcpy(w->head.magic, MAGIC, sizeof MAGIC);
    w->room = INDEX_LEAST;
    w->index = malloc(w->room * sizeof *w->index);
    w->ids = malloc(M * k * sizeof *w->ids);
    w->logs = malloc(M * k * sizeof *w->logs);
    w->packed = calloc(M, row_bytes(w->head.k));
    bt_code code = w->index && w->ids && w->logs && w->packed
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory to write '%s'", path);
    (void)snprintf(w->path, sizeof w->path, "%s", path);
    (void)snprintf(w->part, sizeof w->part, "%s.part-%ld", w->path, (long)getpid());
    if (code == BT_OK && access(path, F_OK) == 0)
        code = bt_fail(err, BT_BUSY, "'%.80s' exists already (remove it, or give another path)",
                       path);
    if (code == BT_OK) code = open_logit_part(w, err);
    if (code == BT_OK) {
        *out = w;
        return BT_OK;
    }
    if (w->file) {
        (void)fclose(w->file);
        (void)unlink(w->part);
    }
    release_logit_writer(w);
    return code;
}

static bt_code add_entry(bt_logit_writer *w, uint64_t key, bt_err *err) {
    if (w->head.n_documents == w->room) {
        entry *more = realloc(w->index, 2 * w->room * sizeof *more);
        if (!more)
            return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu documents", 2 * w->room);
        w->index = more;
        w->room *= 2;
    }
    w->index[w->head.n_documents++] = (entry){key, w->head.n_rows};
    return BT_OK;
}

static bt_code add_document(bt_logit_writer *w, const bt_batch *b, const document *d, bt_err *err) {
    const size_t k = w->head.k, bytes = row_bytes(w->head.k), n = count_learned_tokens(b, d);
    size_t at = 0;
    if (n == 0) return BT_OK;
    BT_TRY(add_entry(w, document_key(b, d), err));
    for (size_t i = d->row; i < d->row + d->n; i++) {
        uint8_t *row = w->packed + at * bytes;
        if (b->targets[i] < 0) continue;
        memcpy(row, w->ids + i * k, k * sizeof *w->ids);
        bt_active_kernels()->to_half((uint16_t *)(void *)(row + k * sizeof *w->ids),
                                     w->logs + i * k, k);
        at++;
    }
    w->head.n_rows += n;
    return write_logit_bytes(w, w->packed, n * bytes, err);
}

bt_code bt_logit_writer_add(bt_logit_writer *w, bt_model *m, const bt_batch *b, bt_err *err) {
    size_t at = 0;
    document d;
    bt_model_top_logits(m, b->targets, (size_t)w->shape.k, w->ids, w->logs);
    while (next_document(&w->shape, b, &at, &d)) BT_TRY(add_document(w, b, &d, err));
    return BT_OK;
}

static int by_document_key(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static bt_code finish_logit_file(bt_logit_writer *w, bt_err *err) {
    size_t n = 0;
    if (w->head.n_rows == 0)
        return bt_fail(
            err, BT_ARG,
            "the data have no learned token, so '%s' would be empty (check the form of the data)",
            w->path);
    qsort(w->index, w->head.n_documents, sizeof *w->index, by_document_key);
    for (size_t i = 0; i < w->head.n_documents; i++)
        if (i == 0 || w->index[i].key != w->index[n - 1].key) w->index[n++] = w->index[i];
    w->head.n_documents = n;
    w->head.hash = index_hash(&w->head, w->index);
    BT_TRY(write_logit_bytes(w, w->index, n * sizeof *w->index, err));
    if (fseek(w->file, 0, SEEK_SET) != 0) return fail_to_write(w, err);
    BT_TRY(write_logit_bytes(w, &w->head, sizeof w->head, err));
    return fflush(w->file) == 0 && fsync(fileno(w->file)) == 0 ? BT_OK : fail_to_write(w, err);
}

bt_code bt_logit_writer_close(bt_logit_writer *w, bt_code code, bt_text *notes, bt_err *err) {
    if (!w) return code;
    if (code == BT_OK) code = finish_logit_file(w, err);
    if (fclose(w->file) != 0 && code == BT_OK) code = fail_to_write(w, err);
    if (code == BT_OK && rename(w->part, w->path) != 0) code = fail_to_write(w, err);
    if (code != BT_OK)
        (void)unlink(w->part);
    else
        bt_text_printf(notes,
                       "%" PRIu64 " tokens of %" PRIu64 " documents, %u logits each: %.1f MiB in "
                       "'%s'",
                       w->head.n_rows, w->head.n_documents, w->head.k,
                       (double)(w->head.n_rows * row_bytes(w->head.k)) / 1048576.0, w->path);
    release_logit_writer(w);
    return code;
}

struct bt_logit_file {
    bt_logit_shape shape;
    char path[1024];
    header head;
    const uint8_t *bytes; /* mapped */
    size_t n_bytes;
    const entry *index;
    bt_top_row *rows; /* (B T) */
};

static bt_code check_size(const bt_logit_file *f, bt_err *err) {
    uint64_t rows, index, all;
    if (memcmp(f->head.magic, MAGIC, sizeof MAGIC) != 0)
        return bt_fail(err, BT_FORMAT,
                       "tune.logits: '%.80s' is not a file of logits (bitrain eval TEACHER "
                       "--logits FILE writes one)",
                       f->path);
    if (f->head.k < 1 || f->head.k > BT_TOP_MOST || f->head.k > f->head.V ||
        __builtin_mul_overflow(f->head.n_rows, row_bytes(f->head.k), &rows) ||
        __builtin_mul_overflow(f->head.n_documents, sizeof(entry), &index) ||
        __builtin_add_overflow(rows + HEADER_BYTES, index, &all) || rows > UINT64_MAX / 2)
        return bt_fail(err, BT_FORMAT,
                       "tune.logits: the header of '%.80s' is damaged (write the file again)",
                       f->path);
    if (all == f->n_bytes) return BT_OK;
    return bt_fail(err, BT_FORMAT,
                   "tune.logits: '%.80s' is truncated: it has %zu bytes of %" PRIu64
                   " (write it again)",
                   f->path, f->n_bytes, all);
}

static bt_code check_index(const bt_logit_file *f, bt_err *err) {
    bool good = index_hash(&f->head, f->index) == f->head.hash;
    for (uint64_t i = 0; good && i < f->head.n_documents; i++)
        good = f->index[i].row < f->head.n_rows;
    return good ? BT_OK
                : bt_fail(err, BT_FORMAT,
                          "tune.logits: the index of '%.80s' is damaged (write the file again)",
                          f->path);
}

static bt_code check_logit_model(const bt_logit_file *f, bt_err *err) {
    const bt_logit_shape *s = &f->shape;
    if (f->head.V != (uint32_t)s->V)
        return bt_fail(
            err, BT_ARG,
            "tune.logits: '%.80s' is from a teacher with %u tokens, but this model has %d", f->path,
            f->head.V, s->V);
    if (f->head.tokenizer != s->tokenizer)
        return bt_fail(err, BT_ARG,
                       "tune.logits: the teacher of '%.80s' has another tokenizer than this run, "
                       "so its probabilities are those of other tokens",
                       f->path);
    if (s->k && f->head.k != (uint32_t)s->k)
        return bt_fail(err, BT_ARG,
                       "tune.top_k is %d, but '%.80s' has %u logits of each token (leave it out, "
                       "or write the file with --top-k %d)",
                       s->k, f->path, f->head.k, s->k);
    return BT_OK;
}

static bt_code map_file(bt_logit_file *f, bt_err *err) {
    struct stat st;
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0) close(fd);
        return bt_fail(err, BT_NOTFOUND, "tune.logits: cannot open '%.80s'", f->path);
    }
    f->n_bytes = (size_t)st.st_size;
    void *at = f->n_bytes >= HEADER_BYTES ? mmap(NULL, f->n_bytes, PROT_READ, MAP_SHARED, fd, 0)
                                          : MAP_FAILED;
    close(fd);
    if (at == MAP_FAILED)
        return bt_fail(err, BT_FORMAT, "tune.logits: '%.80s' is not a file of logits", f->path);
    f->bytes = at;
    memcpy(&f->head, f->bytes, sizeof f->head);
    return BT_OK;
}

bt_code bt_logit_file_open(bt_logit_file **out, const char *path, const bt_logit_shape *s,
                           bt_err *err) {
    *out = NULL;
    bt_logit_file *f = calloc(1, sizeof *f);
    if (!f) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    f->shape = *s;
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    f->rows = calloc((size_t)s->B * (size_t)s->T, sizeof *f->rows);
    bt_code code = f->rows ? map_file(f, err)
                           : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    if (code == BT_OK) code = check_size(f, err);
    if (code == BT_OK) {
        const void *index = f->bytes + HEADER_BYTES + f->head.n_rows * row_bytes(f->head.k);
        f->index = index;
        code = check_logit_model(f, err);
    }
    if (code == BT_OK) code = check_index(f, err);
    if (code != BT_OK)
        bt_logit_file_close(f);
    else
        *out = f;
    return code;
}

const bt_top_row *bt_logit_file_rows(const bt_logit_file *f, int *k) {
    *k = (int)f->head.k;
    return f->rows;
}

uint64_t bt_logit_file_hash(const bt_logit_file *f) { return f->head.hash; }

/* Returns false if the file is damaged: ids beyond the vocabulary would be written outside of the logits. */
static bool has_valid_ids(const bt_logit_file *f, const uint32_t *ids) {
    for (uint32_t i = 0; i < f->head.k; i++)
        if (ids[i] >= f->head.V) return false;
    return true;
}

bt_code bt_logit_file_batch(void *file, const bt_batch *b, bt_err *err) {
    bt_logit_file *f = file;
    const size_t bytes = row_bytes(f->head.k), M = (size_t)f->shape.B * (size_t)f->shape.T;
    document d;
    memset(f->rows, 0, M * sizeof *f->rows);
    for (size_t at = 0; next_document(&f->shape, b, &at, &d);) {
        const size_t n = count_learned_tokens(b, &d);
        const entry want = {.key = document_key(b, &d)};
        uint64_t low = 0, high = f->head.n_documents;
        if (n == 0) continue;
        while (low < high) {
            const uint64_t mid = low + (high - low) / 2;
            if (f->index[mid].key < want.key)
                low = mid + 1;
            else
                high = mid;
        }
        if (low == f->head.n_documents || f->index[low].key != want.key)
            return bt_fail(
                err, BT_ARG,
                "tune.logits: '%.80s' does not contain a document of this run with %zu tokens: it "
                "was written from other data, with another template, or with other sequences "
                "(write it from the data of this run, with its model.seq_len)",
                f->path, d.n);
        if (f->index[low].row + n > f->head.n_rows)
            return bt_fail(err, BT_FORMAT, "tune.logits: '%.80s' is damaged", f->path);
        const uint8_t *row = f->bytes + HEADER_BYTES + f->index[low].row * bytes;
        for (size_t i = d.row; i < d.row + d.n; i++) {
            if (b->targets[i] < 0) continue;
            const void *ids = row, *logs = row + f->head.k * sizeof(uint32_t);
            f->rows[i] = (bt_top_row){ids, logs};
            if (!has_valid_ids(f, ids))
                return bt_fail(err, BT_FORMAT,
                               "tune.logits: '%.80s' is damaged: it contains tokens beyond the "
                               "vocabulary (write it again)",
                               f->path);
            row += bytes;
        }
    }
    return BT_OK;
}

void bt_logit_file_close(bt_logit_file *f) {
    if (!f) return;
    if (f->bytes) (void)munmap((void *)(uintptr_t)f->bytes, f->n_bytes);
    free(f->rows);
    free(f);
}
