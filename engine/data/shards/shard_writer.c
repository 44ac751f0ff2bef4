/* shard_writer.c - writes .bts files: ids pass through one block; header and tables are last, then it is renamed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/os/own_process.h"
#include "engine/base/os/unnamed_file.h"
#include "engine/data/io/file_io.h"
#include "engine/data/shards/shard_format.h"
#include "engine/data/shards/shard_open.h"

struct bt_shard_writer {
    int fd;
    char *path, *tmp; /* NULL: anonymous memory */
    bool tmp_exists;  /* false: the file has no name and disappears when the process ends */
    bt_shard_header h;
    unsigned char *block;
    size_t fill; /* bytes used in `block` */
    bt_shard_block *blocks;
    size_t blocks_cap;
    bt_shard_segment_row *segments, segment;
    size_t segments_cap;
    uint64_t *ends; /* (h.documents) */
    bt_shard_span *spans;
    size_t ends_cap, spans_cap;
};

static const char *writer_name(const bt_shard_writer *w) {
    return w->tmp ? w->tmp : "memory shard";
}

void bt_shard_abandon(bt_shard_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->tmp_exists) unlink(w->tmp);
    free(w->path);
    free(w->tmp);
    free(w->block);
    free(w->blocks);
    free(w->segments);
    free(w->ends);
    free(w->spans);
    free(w);
}

/* Opens a file without a name in the folder of path, so that a killed process leaves none. -1: not supported. */
static int open_unnamed(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                 slash ? path : ".") >= (int)sizeof folder)
        return -1;
    return bt_file_create_unnamed(folder, 0666);
}

static bt_code name_finished_shard(bt_shard_writer *w, bt_err *err) {
    if (!w->tmp_exists) {
        unlink(w->tmp);
        if (!bt_file_give_name(w->fd, w->tmp))
            return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", w->tmp);
        w->tmp_exists = true;
    }
    if (rename(w->tmp, w->path) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot rename '%s' to '%s'", w->tmp, w->path);
    w->tmp_exists = false;
    bt_file_sync_folder_of(w->path);
    return BT_OK;
}

bt_code bt_shard_writer_create(bt_shard_writer **out, const char *path, uint32_t vocab,
                               uint64_t vocab_hash, bt_err *err) {
    *out = NULL;
    if (vocab < 1 || vocab > BT_SHARD_MAX_VOCAB)
        return bt_fail(err, BT_ARG, "a vocabulary must have 1 to %d tokens, not %u",
                       BT_SHARD_MAX_VOCAB, vocab);
    bt_shard_writer *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a token shard");
    w->fd = -1;
    w->block = malloc(BT_SHARD_BLOCK);
    size_t n = path ? strlen(path) + 32 : 0;
    if (path) {
        w->path = strdup(path);
        w->tmp = malloc(n);
    }
    if (!w->block || (path && (!w->path || !w->tmp))) {
        bt_shard_abandon(w);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a token shard");
    }
    if (path) {
        snprintf(w->tmp, n, "%s.tmp.%ld", path, bt_thread_number());
        w->fd = open_unnamed(path);
        if (w->fd < 0) {
            w->fd = open(w->tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
            w->tmp_exists = w->fd >= 0;
        }
    } else {
        w->fd = bt_memory_file_create("bitrain-shard");
    }
    if (w->fd < 0) {
        bt_code code = bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", writer_name(w));
        bt_shard_abandon(w);
        return code;
    }
    memcpy(w->h.magic, BT_SHARD_MAGIC, 8);
    w->h.endian = BT_SHARD_ENDIAN;
    w->h.version = BT_SHARD_VERSION;
    w->h.id_bytes = vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
    w->h.vocab = vocab;
    w->h.vocab_hash = vocab_hash;
    w->h.block_bytes = BT_SHARD_BLOCK;
    *out = w;
    return BT_OK;
}

static bt_code grow_shard_table(void **rows, size_t *cap, size_t used, size_t row_bytes,
                                bt_err *err) {
    if (used < *cap) return BT_OK;
    size_t cap2 = *cap ? 2 * *cap : 64;
    void *p = realloc(*rows, cap2 * row_bytes);
    if (!p)
        return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for the tables of a token shard",
                       cap2 * row_bytes);
    *rows = p;
    *cap = cap2;
    return BT_OK;
}

static bt_code flush_block(bt_shard_writer *w, bt_err *err) {
    void *rows = w->blocks;
    BT_TRY(grow_shard_table(&rows, &w->blocks_cap, (size_t)w->h.n_blocks, sizeof *w->blocks, err));
    w->blocks = rows;
    BT_TRY(bt_file_pwrite(w->fd, writer_name(w), w->block, w->fill,
                          sizeof w->h + w->h.n_blocks * BT_SHARD_BLOCK, err));
    w->blocks[w->h.n_blocks++] = (bt_shard_block){XXH3_64bits(w->block, w->fill),
                                                  w->h.source_bytes};
    w->fill = 0;
    return BT_OK;
}

bt_code bt_shard_append(bt_shard_writer *w, const int32_t *ids, size_t n,
                        const uint32_t *id_lengths, bt_err *err) {
    for (size_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)ids[i];
        if (id >= w->h.vocab)
            return bt_fail(err, BT_ARG, "token id %d is outside the vocabulary of %u tokens",
                           ids[i], w->h.vocab);
        switch (w->h.id_bytes) {
        case 1: w->block[w->fill] = (unsigned char)id; break;
        case 2: memcpy(w->block + w->fill, &(uint16_t){(uint16_t)id}, 2); break;
        default: memcpy(w->block + w->fill, &id, 4);
        }
        w->fill += w->h.id_bytes;
        w->h.source_bytes += id_lengths[id];
        w->segment.source_bytes += id_lengths[id];
        if (w->fill == BT_SHARD_BLOCK) BT_TRY(flush_block(w, err));
    }
    w->h.count += n;
    w->segment.count += n;
    return BT_OK;
}

/* Adds id number w->h.count + i to the last span, or begins a span. */
static bt_code add_learned_span(bt_shard_writer *w, uint64_t id, uint32_t source_bytes,
                                bt_err *err) {
    bt_shard_span *last = w->h.n_spans ? &w->spans[w->h.n_spans - 1] : NULL;
    if (last && last->first + last->n == id && last->n < UINT32_MAX / 2) {
        last->n++;
        last->source_bytes += source_bytes;
        return BT_OK;
    }
    void *rows = w->spans;
    BT_TRY(grow_shard_table(&rows, &w->spans_cap, (size_t)w->h.n_spans, sizeof *w->spans, err));
    w->spans = rows;
    w->spans[w->h.n_spans++] = (bt_shard_span){id, 1, source_bytes};
    return BT_OK;
}

bt_code bt_shard_append_learned(bt_shard_writer *w, const int32_t *ids,
                                const unsigned char *learned, size_t n, const uint32_t *id_lengths,
                                bt_err *err) {
    uint64_t at = w->h.count;
    w->h.flags |= BT_SHARD_HAS_SPANS;
    BT_TRY(bt_shard_append(w, ids, n, id_lengths, err));
    for (size_t i = 0; i < n; i++)
        if (learned[i]) BT_TRY(add_learned_span(w, at + i, id_lengths[ids[i]], err));
    return BT_OK;
}

bt_code bt_shard_end_document(bt_shard_writer *w, bt_err *err) {
    void *rows = w->ends;
    BT_TRY(grow_shard_table(&rows, &w->ends_cap, (size_t)w->h.documents, sizeof *w->ends, err));
    w->ends = rows;
    w->ends[w->h.documents++] = w->h.count;
    return BT_OK;
}
uint64_t bt_shard_written(const bt_shard_writer *w) { return w->h.count; }

bt_code bt_shard_end_segment(bt_shard_writer *w, bt_err *err) {
    if (!w->segment.count) return BT_OK;
    void *rows = w->segments;
    BT_TRY(grow_shard_table(&rows, &w->segments_cap, (size_t)w->h.n_segments, sizeof *w->segments,
                            err));
    w->segments = rows;
    w->segments[w->h.n_segments++] = w->segment;
    w->segment = (bt_shard_segment_row){0, 0};
    return BT_OK;
}

static bt_code write_tables(bt_shard_writer *w, bt_err *err) {
    uint64_t ids_end = sizeof w->h + w->h.count * w->h.id_bytes;
    w->h.tables_at = (ids_end + 7) / 8 * 8;
    size_t pad = (size_t)(w->h.tables_at - ids_end);
    size_t blocks = (size_t)w->h.n_blocks * sizeof *w->blocks,
           segments = (size_t)w->h.n_segments * sizeof *w->segments;
    /* If ids follow the last document, the table of documents is omitted. */
    bool documents = w->h.documents ? w->ends[w->h.documents - 1] == w->h.count : !w->h.count;
    size_t ends = documents ? (size_t)w->h.documents * sizeof *w->ends : 0,
           spans = (size_t)w->h.n_spans * sizeof *w->spans,
           n = pad + blocks + segments + ends + spans;
    if (documents) w->h.flags |= BT_SHARD_HAS_DOCUMENTS;
    w->h.file_bytes = ids_end + n;
    w->h.content_hash = XXH3_64bits_withSeed(NULL, 0, w->h.count);
    for (uint64_t i = 0; i < w->h.n_blocks; i++)
        w->h.content_hash = XXH3_64bits_withSeed(&w->blocks[i].hash, sizeof w->blocks[i].hash,
                                                 w->h.content_hash);
    unsigned char *all = calloc(n + 1, 1);
    if (!all)
        return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for the tables of '%s'", n,
                       writer_name(w));
    if (blocks) memcpy(all + pad, w->blocks, blocks);
    if (segments) memcpy(all + pad + blocks, w->segments, segments);
    if (ends) memcpy(all + pad + blocks + segments, w->ends, ends);
    if (spans) memcpy(all + pad + blocks + segments + ends, w->spans, spans);
    w->h.tables_hash = XXH3_64bits(all, n);
    bt_code code = bt_file_pwrite(w->fd, writer_name(w), all, n, ids_end, err);
    free(all);
    BT_TRY(code);
    w->h.header_hash = XXH3_64bits(&w->h, offsetof(bt_shard_header, header_hash));
    return bt_file_pwrite(w->fd, writer_name(w), &w->h, sizeof w->h, 0, err);
}

static bt_code finish_shard(bt_shard_writer *w, bt_shard **opened, bt_err *err) {
    BT_TRY(bt_shard_end_segment(w, err));
    if (w->fill) BT_TRY(flush_block(w, err));
    BT_TRY(write_tables(w, err));
    if (w->path) {
        if (fsync(w->fd) != 0) return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", w->tmp);
        BT_TRY(name_finished_shard(w, err));
    }
    if (!opened) return BT_OK;
    int fd = w->fd;
    w->fd = -1;
    return bt_shard_open_fd(opened, fd, w->path ? w->path : "memory shard", err);
}

bt_code bt_shard_finish(bt_shard_writer *w, bt_shard **opened, bt_err *err) {
    if (opened) *opened = NULL;
    bt_code code = finish_shard(w, opened, err);
    bt_shard_abandon(w);
    return code;
}
