/* shard.c - reads .bts files and checks all content before use. */
#include "engine/data/shards/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/data/io/file_io.h"
#include "engine/data/shards/shard_format.h"
#include "engine/data/shards/shard_open.h"

struct bt_shard {
    int fd; /* -1: closed until the next read */
    char *name;
    struct stat seen; /* file status at the last check; blocks stay checked while it is unchanged */
    /* hash of the header, which contains the hashes of every block and table */
    uint64_t header_hash;
    bool touched; /* its time changed, or another file with the same header replaced it */
    bt_shard_info info;
    uint64_t tables_at;
    bt_shard_block *blocks;
    bt_shard_segment_row *segments;
    uint64_t *ends;         /* (documents) NULL: none */
    bt_shard_span *spans;   /* (n_spans) NULL: none */
    unsigned char *checked; /* (n_blocks) */
    unsigned char *raw;     /* (block size) bytes of one block */
};

/* Formats "token shard 'x.bts' is corrupt: what", with the byte if it is known. */
#define CORRUPT(err, name, ...) bt_shard_corrupt(err, name, __VA_ARGS__)

static bt_code BT_PRINTF(3, 4)
    bt_shard_corrupt(bt_err *err, const char *name, const char *fmt, ...) {
    bt_err what;
    va_list ap;
    va_start(ap, fmt);
    bt_failv(&what, BT_FORMAT, fmt, ap);
    va_end(ap);
    return bt_fail(err, BT_FORMAT, "token shard '%s' %s", name, what.msg);
}

static bt_code check_header(const bt_shard_header *h, uint64_t file_bytes, const char *name,
                            bt_err *err) {
    if (memcmp(h->magic, BT_SHARD_MAGIC, 8) != 0)
        return CORRUPT(
            err, name,
            "is not a token shard: wrong magic at byte 0 (make one with 'bitrain data prepare')");
    if (h->endian == 0x04030201u)
        return CORRUPT(err, name, "was written on a machine of the other byte order (byte 8)");
    if (h->endian != BT_SHARD_ENDIAN)
        return CORRUPT(err, name, "is corrupt: byte order mark 0x%08x at byte 8", h->endian);
    if (h->version < 1 || h->version > BT_SHARD_VERSION)
        return CORRUPT(err, name,
                       "has format version %u at byte 12; this program reads versions 1 to %d",
                       h->version, BT_SHARD_VERSION);
    uint64_t hash = XXH3_64bits(h, offsetof(bt_shard_header, header_hash));
    if (hash != h->header_hash)
        return CORRUPT(err, name,
                       "is corrupt: the header's hash is %016llx, its bytes 0..119 give %016llx",
                       (unsigned long long)h->header_hash, (unsigned long long)hash);
    if (h->id_bytes != 1 && h->id_bytes != 2 && h->id_bytes != 4)
        return CORRUPT(err, name, "is corrupt: id size %u at byte 16 (1, 2 or 4)", h->id_bytes);
    if (h->vocab < 1 || h->vocab > BT_SHARD_MAX_VOCAB)
        return CORRUPT(err, name, "is corrupt: vocabulary of %u at byte 20 (1..%d)", h->vocab,
                       BT_SHARD_MAX_VOCAB);
    if (h->block_bytes != BT_SHARD_BLOCK)
        return CORRUPT(err, name, "is corrupt: block size %u at byte 80 (%d)", h->block_bytes,
                       BT_SHARD_BLOCK);
    if (h->version == 1 && (h->flags || h->n_spans))
        return CORRUPT(err, name, "is corrupt: reserved header bytes are not zero");
    if ((h->flags & ~(uint32_t)(BT_SHARD_HAS_DOCUMENTS | BT_SHARD_HAS_SPANS)) ||
        (h->n_spans && !(h->flags & BT_SHARD_HAS_SPANS)))
        return CORRUPT(err, name, "is corrupt: flags %u at byte 84 for %llu spans", h->flags,
                       (unsigned long long)h->n_spans);
    if (h->file_bytes != file_bytes)
        return CORRUPT(err, name, "is %s: it has %llu bytes, its header gives %llu",
                       file_bytes < h->file_bytes ? "truncated" : "corrupt (trailing bytes)",
                       (unsigned long long)file_bytes, (unsigned long long)h->file_bytes);
    /* Each count is checked against the size of the file before it is multiplied. */
    if (h->count > (file_bytes - sizeof *h) / h->id_bytes)
        return CORRUPT(err, name, "is corrupt: %llu ids at byte 32 do not fit into it",
                       (unsigned long long)h->count);
    uint64_t ids_end = sizeof *h + h->count * h->id_bytes, tables_at = (ids_end + 7) / 8 * 8;
    if (h->tables_at != tables_at)
        return CORRUPT(err, name, "is corrupt: table offset %llu at byte 64, should be %llu",
                       (unsigned long long)h->tables_at, (unsigned long long)tables_at);
    uint64_t n_blocks = (h->count * h->id_bytes + BT_SHARD_BLOCK - 1) / BT_SHARD_BLOCK;
    if (h->n_blocks != n_blocks)
        return CORRUPT(err, name, "is corrupt: %llu blocks at byte 56, should be %llu",
                       (unsigned long long)h->n_blocks, (unsigned long long)n_blocks);
    uint64_t n_ends = h->flags & BT_SHARD_HAS_DOCUMENTS ? h->documents : 0;
    if (tables_at > file_bytes || h->n_segments > file_bytes / sizeof(bt_shard_segment_row) ||
        n_ends > file_bytes / sizeof(uint64_t) || h->n_spans > file_bytes / sizeof(bt_shard_span) ||
        tables_at + n_blocks * sizeof(bt_shard_block) +
                h->n_segments * sizeof(bt_shard_segment_row) + n_ends * sizeof(uint64_t) +
                h->n_spans * sizeof(bt_shard_span) !=
            file_bytes)
        return CORRUPT(err, name,
                       "is corrupt: %llu blocks and %llu segments do not fill its %llu bytes",
                       (unsigned long long)n_blocks, (unsigned long long)h->n_segments,
                       (unsigned long long)file_bytes);
    return BT_OK;
}

static bt_code check_documents(const bt_shard *s, const bt_shard_header *h, bt_err *err) {
    uint64_t at = 0;
    for (uint64_t i = 0; s->ends && i < h->documents; i++) {
        if (s->ends[i] < at || s->ends[i] > h->count)
            return CORRUPT(err, s->name, "is corrupt: document %llu ends outside it",
                           (unsigned long long)i);
        at = s->ends[i];
    }
    if (s->ends && at != h->count)
        return CORRUPT(err, s->name, "is corrupt: the documents do not cover its ids");
    at = 0;
    for (uint64_t i = 0; i < h->n_spans; i++) {
        if (s->spans[i].first < at || s->spans[i].first > h->count ||
            s->spans[i].n > h->count - s->spans[i].first)
            return CORRUPT(err, s->name, "is corrupt: span %llu of learned ids is out of place",
                           (unsigned long long)i);
        at = s->spans[i].first + s->spans[i].n;
    }
    return BT_OK;
}

static bt_code check_tables(const bt_shard *s, const bt_shard_header *h, bt_err *err) {
    XXH64_hash_t content = XXH3_64bits_withSeed(NULL, 0, h->count);
    uint64_t before = 0;
    for (uint64_t i = 0; i < h->n_blocks; i++) {
        content = XXH3_64bits_withSeed(&s->blocks[i].hash, sizeof s->blocks[i].hash, content);
        if (s->blocks[i].source_bytes < before)
            return CORRUPT(err, s->name, "is corrupt: source bytes of block %llu go backwards",
                           (unsigned long long)i);
        before = s->blocks[i].source_bytes;
    }
    if (before != h->source_bytes)
        return CORRUPT(err, s->name,
                       "is corrupt: the blocks hold %llu source bytes, the header gives %llu",
                       (unsigned long long)before, (unsigned long long)h->source_bytes);
    if (content != h->content_hash)
        return CORRUPT(err, s->name,
                       "is corrupt: content hash at byte 96 differs from the block table");
    uint64_t ids = 0, bytes = 0;
    for (uint64_t i = 0; i < h->n_segments; i++) {
        if (s->segments[i].count > h->count - ids ||
            s->segments[i].source_bytes > h->source_bytes - bytes)
            return CORRUPT(err, s->name, "is corrupt: segment %llu passes the end",
                           (unsigned long long)i);
        ids += s->segments[i].count;
        bytes += s->segments[i].source_bytes;
    }
    if (ids != h->count || bytes != h->source_bytes)
        return CORRUPT(err, s->name, "is corrupt: the segments do not cover its ids");
    return check_documents(s, h, err);
}

static bt_code read_shard_tables(bt_shard *s, const bt_shard_header *h, bt_err *err) {
    uint64_t ids_end = sizeof *h + h->count * h->id_bytes;
    size_t n = (size_t)(h->file_bytes - ids_end), pad = (size_t)(h->tables_at - ids_end), got;
    unsigned char *all = malloc(n ? n : 1);
    s->blocks = calloc((size_t)h->n_blocks + 1, sizeof *s->blocks);
    s->segments = calloc((size_t)h->n_segments + 1, sizeof *s->segments);
    bool documents = h->flags & BT_SHARD_HAS_DOCUMENTS, spans = h->flags & BT_SHARD_HAS_SPANS;
    if (documents) s->ends = calloc((size_t)h->documents + 1, sizeof *s->ends);
    if (spans) s->spans = calloc((size_t)h->n_spans + 1, sizeof *s->spans);
    s->checked = calloc((size_t)h->n_blocks + 1, 1);
    s->raw = malloc(BT_SHARD_BLOCK);
    bt_code code = BT_OK;
    if (!all || !s->blocks || !s->segments || !s->checked || !s->raw || (documents && !s->ends) ||
        (spans && !s->spans)) {
        code = bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for the tables of '%s'", 2 * n,
                       s->name);
    } else if ((code = bt_file_pread(s->fd, s->name, all, n, ids_end, &got, err)) != BT_OK) {
        ;
    } else if (got != n) {
        code = CORRUPT(err, s->name, "was truncated while it was opened (byte %llu)",
                       (unsigned long long)(ids_end + got));
    } else if (XXH3_64bits(all, n) != h->tables_hash) {
        code = CORRUPT(err, s->name,
                       "is corrupt: its tables (bytes %llu..%llu) do not match their hash",
                       (unsigned long long)ids_end, (unsigned long long)h->file_bytes - 1);
    } else {
        for (size_t i = 0; i < pad && code == BT_OK; i++)
            if (all[i])
                code = CORRUPT(err, s->name, "is corrupt: byte %llu should be zero",
                               (unsigned long long)(ids_end + i));
        size_t block_bytes = (size_t)h->n_blocks * sizeof *s->blocks;
        memcpy(s->blocks, all + pad, block_bytes);
        size_t segment_bytes = (size_t)h->n_segments * sizeof *s->segments,
               end_bytes = documents ? (size_t)h->documents * sizeof *s->ends : 0;
        const unsigned char *ends = all + pad + block_bytes + segment_bytes;
        memcpy(s->segments, all + pad + block_bytes, segment_bytes);
        if (documents) memcpy(s->ends, ends, end_bytes);
        if (spans) memcpy(s->spans, ends + end_bytes, (size_t)h->n_spans * sizeof *s->spans);
        if (code == BT_OK) code = check_tables(s, h, err);
    }
    free(all);
    return code;
}

bt_code bt_shard_open_fd(bt_shard **out, int fd, const char *name, bt_err *err) {
    *out = NULL;
    bt_shard *s = calloc(1, sizeof *s);
    if (!s || !(s->name = strdup(name))) {
        free(s);
        close(fd);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for '%s'", name);
    }
    s->fd = fd;
    bt_shard_header h;
    size_t got;
    bt_code code;
    if (fstat(fd, &s->seen) != 0) {
        code = bt_fail_errno(err, BT_IO, errno, "cannot examine '%s'", name);
    } else if (!S_ISREG(s->seen.st_mode)) {
        code = bt_fail(err, BT_ARG, "'%s' is not a file", name);
    } else if ((code = bt_file_pread(fd, name, &h, sizeof h, 0, &got, err)) != BT_OK) {
        ;
    } else if (got < sizeof h) {
        code = CORRUPT(err, name, "is truncated: %zu bytes, the header alone has %zu", got,
                       sizeof h);
    } else if ((code = check_header(&h, (uint64_t)s->seen.st_size, name, err)) == BT_OK) {
        s->info = (bt_shard_info){h.id_bytes,
                                  h.vocab,
                                  h.vocab_hash,
                                  h.count,
                                  h.source_bytes,
                                  h.documents,
                                  h.n_segments,
                                  h.n_blocks,
                                  h.file_bytes,
                                  h.content_hash,
                                  h.tables_hash,
                                  h.flags & BT_SHARD_HAS_DOCUMENTS,
                                  h.flags & BT_SHARD_HAS_SPANS,
                                  h.n_spans};
        s->tables_at = h.tables_at;
        s->header_hash = h.header_hash;
        code = read_shard_tables(s, &h, err);
    }
    if (code != BT_OK) {
        bt_shard_close(s);
        return code;
    }
    *out = s;
    return BT_OK;
}

bt_code bt_shard_open(bt_shard **out, const char *path, bt_err *err) {
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno, "cannot open '%s'",
                             path);
    return bt_shard_open_fd(out, fd, path, err);
}

void bt_shard_close(bt_shard *s) {
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    free(s->name);
    free(s->blocks);
    free(s->segments);
    free(s->ends);
    free(s->spans);
    free(s->checked);
    free(s->raw);
    free(s);
}

const bt_shard_info *bt_shard_about(const bt_shard *s) { return &s->info; }
const char *bt_shard_name(const bt_shard *s) { return s->name; }
const uint64_t *bt_shard_document_ends(const bt_shard *s) { return s->ends; }
const bt_shard_span *bt_shard_spans(const bt_shard *s) { return s->spans; }

void bt_shard_segment(const bt_shard *s, uint64_t i, uint64_t *count, uint64_t *source_bytes) {
    *count = s->segments[i].count;
    *source_bytes = s->segments[i].source_bytes;
}

static int32_t read_raw_id(const unsigned char *raw, size_t i, uint32_t id_bytes) {
    if (id_bytes == 1) return raw[i];
    if (id_bytes == 2) {
        uint16_t v;
        memcpy(&v, raw + 2 * i, 2);
        return v;
    }
    int32_t v;
    memcpy(&v, raw + 4 * i, 4);
    return v;
}

/* Converts n raw ids, the first of which is id number `first`, and checks them against the vocabulary. */
static bt_code widen_ids(const bt_shard *s, const unsigned char *raw, uint64_t first, size_t n,
                         int32_t *out, bt_err *err) {
    uint32_t vocab = s->info.vocab, worst = 0;
    switch (s->info.id_bytes) {
    case 1:
        for (size_t i = 0; i < n; i++) {
            out[i] = raw[i];
            worst |= (uint32_t)out[i] >= vocab;
        }
        break;
    case 2:
        for (size_t i = 0; i < n; i++) {
            out[i] = read_raw_id(raw, i, 2);
            worst |= (uint32_t)out[i] >= vocab;
        }
        break;
    default:
        for (size_t i = 0; i < n; i++) {
            out[i] = read_raw_id(raw, i, 4);
            worst |= (uint32_t)out[i] >= vocab;
        }
        break;
    }
    if (!worst) return BT_OK;
    size_t i = 0;
    while ((uint32_t)out[i] < vocab) i++;
    return CORRUPT(err, s->name,
                   "is corrupt: id %u at byte %llu (position %llu) is outside its vocabulary of %u",
                   (uint32_t)out[i],
                   (unsigned long long)(sizeof(bt_shard_header) + (first + i) * s->info.id_bytes),
                   (unsigned long long)(first + i), vocab);
}

static bool is_unchanged_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

void bt_shard_park(bt_shard *s) {
    struct stat now;
    if (s->fd < 0 || stat(s->name, &now) != 0 || !is_unchanged_file(&now, &s->seen)) return;
    close(s->fd);
    s->fd = -1;
}

bool bt_shard_is_parked(const bt_shard *s) { return s->fd < 0; }

/* Makes the next read of every block check it again. */
static void unmark_checked_blocks(bt_shard *s, const struct stat *now) {
    s->seen = *now;
    s->touched = true;
    memset(s->checked, 0, (size_t)s->info.n_blocks);
}

static bt_code reopen_shard(bt_shard *s, bt_err *err) {
    struct stat now;
    bt_shard_header h;
    size_t got = 0;
    s->fd = open(s->name, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open '%s' again", s->name);
    if (fstat(s->fd, &now) == 0 && is_unchanged_file(&now, &s->seen)) return BT_OK;
    if (bt_file_pread(s->fd, s->name, &h, sizeof h, 0, &got, err) == BT_OK && got == sizeof h &&
        h.header_hash == s->header_hash &&
        XXH3_64bits(&h, offsetof(bt_shard_header, header_hash)) == h.header_hash) {
        unmark_checked_blocks(s, &now);
        return BT_OK;
    }
    close(s->fd);
    s->fd = -1;
    return CORRUPT(err, s->name, "was replaced while in use by a file of other content");
}

/* Compares content instead of dates, because copies, backups and purge policies change dates. */
static bt_code check_unchanged(bt_shard *s, bt_err *err) {
    struct stat now;
    if (s->fd < 0) BT_TRY(reopen_shard(s, err));
    if (fstat(s->fd, &now) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot examine '%s'", s->name);
    if (now.st_size != s->seen.st_size)
        return CORRUPT(err, s->name, "was changed while in use (%lld bytes, had %lld)",
                       (long long)now.st_size, (long long)s->seen.st_size);
    if (now.st_mtim.tv_sec != s->seen.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != s->seen.st_mtim.tv_nsec)
        unmark_checked_blocks(s, &now);
    return BT_OK;
}

static bt_code read_shard_bytes(bt_shard *s, uint64_t offset, size_t n, unsigned char *raw,
                                bt_err *err) {
    size_t got;
    BT_TRY(bt_file_pread(s->fd, s->name, raw, n, offset, &got, err));
    if (got != n)
        return CORRUPT(err, s->name, "was truncated while in use (byte %llu is missing)",
                       (unsigned long long)(offset + got));
    return BT_OK;
}

static size_t block_size(const bt_shard *s, uint64_t block) {
    uint64_t left = s->info.count * s->info.id_bytes - block * BT_SHARD_BLOCK;
    return left < BT_SHARD_BLOCK ? (size_t)left : BT_SHARD_BLOCK;
}

static bt_code check_block(bt_shard *s, uint64_t block, bt_err *err) {
    size_t n = block_size(s, block), ids = n / s->info.id_bytes,
           per = BT_SHARD_BLOCK / s->info.id_bytes;
    uint64_t at = sizeof(bt_shard_header) + block * BT_SHARD_BLOCK;
    BT_TRY(read_shard_bytes(s, at, n, s->raw, err));
    uint64_t hash = XXH3_64bits(s->raw, n);
    if (hash != s->blocks[block].hash)
        return CORRUPT(err, s->name,
                       "%s: block %llu (bytes %llu..%llu) has hash %016llx, expected %016llx",
                       s->touched ? "was changed while in use" : "is corrupt",
                       (unsigned long long)block, (unsigned long long)at,
                       (unsigned long long)(at + n - 1), (unsigned long long)hash,
                       (unsigned long long)s->blocks[block].hash);
    int32_t wide[1024];
    for (size_t i = 0; i < ids; i += 1024) {
        size_t k = ids - i < 1024 ? ids - i : 1024;
        BT_TRY(widen_ids(s, s->raw + i * s->info.id_bytes, block * per + i, k, wide, err));
    }
    s->checked[block] = 1;
    return BT_OK;
}

bt_code bt_shard_read(bt_shard *s, uint64_t first, size_t n, int32_t *out, bt_err *err) {
    if (first > s->info.count || n > s->info.count - first)
        return bt_fail(err, BT_ARG,
                       "ids %llu..%llu are outside token shard '%s', which has %llu ids",
                       (unsigned long long)first, (unsigned long long)(first + n), s->name,
                       (unsigned long long)s->info.count);
    if (!n) return BT_OK;
    BT_TRY(check_unchanged(s, err));
    uint32_t w = s->info.id_bytes;
    uint64_t from = first * w / BT_SHARD_BLOCK, to = ((first + n) * w - 1) / BT_SHARD_BLOCK;
    for (uint64_t b = from; b <= to; b++)
        if (!s->checked[b]) BT_TRY(check_block(s, b, err));
    while (n) {
        size_t k = n < BT_SHARD_BLOCK / 4 ? n : BT_SHARD_BLOCK / 4;
        BT_TRY(read_shard_bytes(s, sizeof(bt_shard_header) + first * w, k * w, s->raw, err));
        BT_TRY(widen_ids(s, s->raw, first, k, out, err));
        first += k;
        out += k;
        n -= k;
    }
    return BT_OK;
}

bt_code bt_shard_bytes_before(bt_shard *s, uint64_t first, const uint32_t *id_lengths,
                              uint64_t *bytes, bt_err *err) {
    uint64_t per = BT_SHARD_BLOCK / s->info.id_bytes, block = first / per;
    *bytes = block ? s->blocks[block - 1].source_bytes : 0;
    if (first % per == 0) return BT_OK;
    BT_TRY(check_unchanged(s, err));
    BT_TRY(check_block(s, block, err));
    for (size_t i = 0; i < first % per; i++)
        *bytes += id_lengths[read_raw_id(s->raw, i, s->info.id_bytes)];
    return BT_OK;
}

bt_code bt_shard_verify(bt_shard *s, void (*progress)(void *ctx, double done), void *ctx,
                        bt_err *err) {
    BT_TRY(check_unchanged(s, err));
    for (uint64_t b = 0; b < s->info.n_blocks; b++) {
        BT_TRY(check_block(s, b, err));
        if (progress && b % 16 == 15) progress(ctx, (double)(b + 1) / (double)s->info.n_blocks);
    }
    return check_unchanged(s, err);
}
