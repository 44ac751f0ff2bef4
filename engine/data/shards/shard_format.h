/* shard_format.h - layout of the header of a .bts file, for shard.c, shard_writer.c and tests that damage files. */
#ifndef BT_ENGINE_DATA_SHARDS_SHARD_FORMAT_H
#define BT_ENGINE_DATA_SHARDS_SHARD_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define BT_SHARD_MAGIC "BTSHARD\n"
/* Version 1 has neither documents nor spans. Both versions can be read. */
enum { BT_SHARD_VERSION = 2, BT_SHARD_ENDIAN = 0x01020304 };
/* Flags: the file has a table of documents, or of spans; the table may be empty. */
enum { BT_SHARD_HAS_DOCUMENTS = 1, BT_SHARD_HAS_SPANS = 2 };

typedef struct bt_shard_header {
    char magic[8];
    uint32_t endian; /* 0x01020304 in the byte order of the writer */
    uint32_t version;
    uint32_t id_bytes, vocab;
    uint64_t vocab_hash;
    uint64_t count, source_bytes;
    uint64_t n_segments, n_blocks;
    uint64_t tables_at; /* offset of the block table */
    uint64_t file_bytes;
    uint32_t block_bytes, flags;
    uint64_t documents;
    uint64_t content_hash; /* XXH3 over the block hashes */
    uint64_t tables_hash;  /* XXH3 from the end of the ids to the end of the file */
    uint64_t n_spans;
    uint64_t header_hash; /* XXH3 of the preceding bytes */
} bt_shard_header;

_Static_assert(sizeof(bt_shard_header) == 128, "the header is 128 bytes");
_Static_assert(offsetof(bt_shard_header, header_hash) == 120,
               "the header's hash is its last field");

typedef struct bt_shard_block {
    uint64_t hash, source_bytes;
} bt_shard_block;
typedef struct bt_shard_segment_row {
    uint64_t count, source_bytes;
} bt_shard_segment_row;

#endif
