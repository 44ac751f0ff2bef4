/* shard.h - token shards (.bts): a stream of token ids with a checksum over every byte.
 *
 * File, little-endian:
 *
 *     0    header, 128 bytes (shard_format.h)
 *   128    count ids of 1, 2 or 4 bytes, in blocks of 1 MiB (the last one shorter)
 *     +    zero bytes up to a multiple of 8
 *     +    n_blocks   x { u64 XXH3 of the block, u64 source bytes up to the end of the block }
 *     +    n_segments x { u64 ids, u64 source bytes }: the text files of the ids, in order
 *     +    documents  x { u64 ids up to the end of the document }         (flag 1, version 2)
 *     +    n_spans    x { u64 first id, u32 ids, u32 source bytes }: the ids that are learned, in
 *                     order, without overlap; without this table all are learned   (flag 2, version 2)
 *
 * The header contains XXH3 of itself and of everything after the ids, so a hash covers each byte of the file. Source
 * bytes are the bytes that the ids decode to; special tokens have none.
 * Writer:   streaming; memory is one block plus 16 bytes a MiB. A rename gives the file its name when it is complete
 *           and fsynced.
 * Reader:   uses pread only, so a file that shrinks or changes causes an error, never SIGBUS. `open` checks header and
 *           tables. The first read of a block checks its hash; every read checks that ids are below vocab. If the
 *           size of the file has changed, the next read fails. If its time has changed, or a file with the same
 *           header replaced it while `park` had closed it, the next read of each block checks its hash again.
 * Threads:  one caller per object. */
#ifndef BT_ENGINE_DATA_SHARDS_SHARD_H
#define BT_ENGINE_DATA_SHARDS_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

enum { BT_SHARD_BLOCK = 1 << 20, BT_SHARD_MAX_VOCAB = 1 << 20 };

typedef struct bt_shard bt_shard;
typedef struct bt_shard_writer bt_shard_writer;

typedef struct bt_shard_info {
    uint32_t id_bytes;   /* 1, 2 or 4 */
    uint32_t vocab;      /* all ids are below vocab */
    uint64_t vocab_hash; /* bt_tokenizer_hash of the tokenizer */
    uint64_t count;      /* ids */
    uint64_t source_bytes, documents;
    uint64_t n_segments, n_blocks, file_bytes;
    uint64_t content_hash; /* hash of all ids */
    /* hash of the tables; together with content_hash it covers all data of the shard */
    uint64_t tables_hash;
    bool has_documents, has_spans;
    uint64_t n_spans;
} bt_shard_info;

/* A range of ids that a model learns to write. Without spans all ids are learned. */
typedef struct bt_shard_span {
    uint64_t first;
    uint32_t n, source_bytes;
} bt_shard_span;

bt_code bt_shard_open(bt_shard **out, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_shard_close(bt_shard *s); /* accepts NULL */
/* Closes the file descriptor. The next read opens the file again and fails if its content differs. A shard in memory,
 * and a shard whose file was replaced, are not closed. */
void bt_shard_park(bt_shard *s);
bool bt_shard_is_parked(const bt_shard *s);
const bt_shard_info *bt_shard_about(const bt_shard *s);
const char *bt_shard_name(const bt_shard *s);
bt_code bt_shard_read(bt_shard *s, uint64_t first, size_t n, int32_t *out, bt_err *err)
    BT_MUST_CHECK;
void bt_shard_segment(const bt_shard *s, uint64_t i, uint64_t *count, uint64_t *source_bytes);
/* Returns the index after the last id of each document; NULL: unknown. Valid while s is open. */
const uint64_t *bt_shard_document_ends(const bt_shard *s);
const bt_shard_span *bt_shard_spans(const bt_shard *s); /* NULL: unknown; valid while s is open */
/* Returns the number of source bytes of the ids before `first`. id_lengths: source bytes of each id. */
bt_code bt_shard_bytes_before(bt_shard *s, uint64_t first, const uint32_t *id_lengths,
                              uint64_t *bytes, bt_err *err) BT_MUST_CHECK;
/* Checks every block. progress receives 0..1 and may be NULL. */
bt_code bt_shard_verify(bt_shard *s, void (*progress)(void *ctx, double done), void *ctx,
                        bt_err *err) BT_MUST_CHECK;

/* path NULL: anonymous memory instead of a file. */
bt_code bt_shard_writer_create(bt_shard_writer **out, const char *path, uint32_t vocab,
                               uint64_t vocab_hash, bt_err *err) BT_MUST_CHECK;
bt_code bt_shard_append(bt_shard_writer *w, const int32_t *ids, size_t n,
                        const uint32_t *id_lengths, bt_err *err) BT_MUST_CHECK;
/* Appends ids; learned[i] is nonzero for learned ids. A shard uses either this or bt_shard_append. */
bt_code bt_shard_append_learned(bt_shard_writer *w, const int32_t *ids,
                                const unsigned char *learned, size_t n, const uint32_t *id_lengths,
                                bt_err *err) BT_MUST_CHECK;
bt_code bt_shard_end_document(bt_shard_writer *w, bt_err *err) BT_MUST_CHECK;
bt_code bt_shard_end_segment(bt_shard_writer *w, bt_err *err) BT_MUST_CHECK;
uint64_t bt_shard_written(const bt_shard_writer *w); /* number of ids so far */
/* Completes the file and destroys the writer, also on failure. opened: receives a reader (not NULL for memory). */
bt_code bt_shard_finish(bt_shard_writer *w, bt_shard **opened, bt_err *err) BT_MUST_CHECK;
/* Removes the unfinished file; accepts NULL. */
void bt_shard_abandon(bt_shard_writer *w);

#endif
