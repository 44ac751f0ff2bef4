/* prepare.h - tokenises text: reads documents as a stream and writes their tokens into a shard.
 *
 * Each document is surrounded by the tokens that the tokenizer adds to a text (BOS) and followed by a separator:
 * the end-of-text token, or, if the vocabulary has none (bytes), a newline unless the document ends with one. Empty
 * documents are dropped. Rows of an instruction data set (instruct.h) are rendered by their chat template and have
 * marks of learned tokens. The key of a cached shard contains path, size and modification time of every file, the field
 * and the tokenizer. A lock file ensures that only one of several processes creates a shard; a damaged shard is created
 * again. A file beside the shard has its notes. `threads` threads encode texts (encode_pool.h); the caller's thread
 * encodes rows of instruction data sets. Threads: one caller; several processes may prepare the same data. */
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
    bool skip_bad;     /* true skips and counts unusable rows; false refuses them */
    /* How a row becomes text. NULL or kind TEXT: it is the text in `field`. */
    const bt_form_cfg *form;
    const bt_tokenizer *tokenizer;
    int threads;      /* number of threads that encode plain text; 0 or 1: only the caller's */
    const char *path; /* path of the shard; NULL: anonymous memory */
    /* > 0: starts another shard after the document that reaches this many ids: x-00000.bts, x-00001.bts, ... */
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
/* Opens the shard of these files in the cache, or creates it. cache_dir "": in memory. */
bt_code bt_prepare_cached(const bt_prepare_cfg *cfg, const char *cache_dir, bt_shard **opened,
                          bt_err *err) BT_MUST_CHECK;
/* Returns the number of source bytes of every id, 0 for special tokens. The caller frees it; NULL: out of memory. */
uint32_t *bt_id_lengths(const bt_tokenizer *t);

#endif
