/* prepare.h - tokenises text: reads documents as a stream and writes their tokens into a shard.
 *
 * Each document is surrounded by the tokens that the tokenizer adds to a text (BOS) and followed by a separator:
 * the end-of-text token, or a newline if the vocabulary has none (bytes) and the document does not end with one.
 * Empty documents are dropped. Lines of an instruction set (instruct.h) become documents by their template, with
 * marks of learned tokens.
 * Cached shards are keyed by (path, size, time of change) of every file, field and tokenizer; a lock file lets one
 * of several processes do the work; a damaged cache file is made again. The notes of a cached shard are in a file
 * beside it.
 * Texts are encoded on `threads` threads (encode_pool.h), rows of instruction sets on the caller's.
 * Threads: one caller; several processes may prepare the same data. */
#ifndef BT_ENGINE_DATA_SHARDS_PREPARE_H
#define BT_ENGINE_DATA_SHARDS_PREPARE_H

#include "engine/base/status.h"
#include "engine/data/chat/instruct.h"
#include "engine/data/io/sources.h"
#include "engine/data/shards/shard.h"
#include "engine/data/tokenizer/tokenizer.h"

typedef struct bt_prepare_cfg {
    const bt_source *files; /* TEXT and JSONL */
    size_t n_files;
    const char *field; /* text field of JSON rows */
    uint64_t max_rows; /* maximum number of rows read from each JSON file; 0: all */
    bool skip_bad;     /* rows that cannot be used are skipped and counted, not refused */
    /* form of a line; NULL, or of kind TEXT: text in `field` */
    const bt_form_cfg *form;
    const bt_tokenizer *tokenizer;
    int threads; /* encode plain texts; 0 and 1: only the caller. The shard does not depend on it. */
    const char *path; /* path of the shard; NULL: anonymous memory */
    /* > 0: begins another shard after the document that reaches this many ids; x.bts then becomes x-00000.bts,
     * x-00001.bts, ... */
    uint64_t split_ids;
    /* may be NULL; called about every MiB of text */
    void (*progress)(void *ctx, double done, uint64_t ids);
    void *ctx;
    bt_text *notes; /* bt_documents_notes appends to it; may be NULL */
} bt_prepare_cfg;

typedef struct bt_prepare_result {
    uint64_t ids, source_bytes, documents, file_bytes;
    int shards;
} bt_prepare_result;

bt_code bt_prepare(const bt_prepare_cfg *cfg, bt_prepare_result *result, bt_shard **opened,
                   bt_err *err) BT_MUST_CHECK;
/* Opens the shard of these files from the cache, and creates it if it is missing. cache_dir "": in memory. */
bt_code bt_prepare_cached(const bt_prepare_cfg *cfg, const char *cache_dir, bt_shard **opened,
                          bt_err *err) BT_MUST_CHECK;
/* Returns the number of bytes of every id, for the shard functions; 0 for special tokens. malloc'ed, NULL if out of
 * memory. */
uint32_t *bt_id_lengths(const bt_tokenizer *t);

#endif
