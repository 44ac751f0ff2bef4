/* fuzz_shard.c - arbitrary bytes as a shard of tokens are opened, checked and read without a fault. The hashes of every
 * second input are corrected, so that later checks are reached. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/data/shards/shard_format.h"
#include "engine/data/shards/shard_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Hashes the ranges in the header if they are inside the file. */
static void correct_shard_hashes(uint8_t *s, size_t n) {
    bt_shard_header h;
    memcpy(&h, s, sizeof h);
    memcpy(h.magic, BT_SHARD_MAGIC, 8);
    h.endian = BT_SHARD_ENDIAN;
    h.version = BT_SHARD_VERSION;
    h.block_bytes = BT_SHARD_BLOCK;
    h.file_bytes = n;
    h.flags &= 3;
    h.vocab = h.vocab % BT_SHARD_MAX_VOCAB + 1;
    h.id_bytes = h.id_bytes % 4 == 3 ? 4 : h.id_bytes % 4 ? h.id_bytes % 4 : 1;
    uint64_t room = n - sizeof h;
    h.count = room ? h.count % (room / h.id_bytes + 1) : 0;
    uint64_t end = sizeof h + h.count * h.id_bytes;
    h.tables_at = (end + 7) / 8 * 8;
    h.n_blocks = (h.count * h.id_bytes + BT_SHARD_BLOCK - 1) / BT_SHARD_BLOCK;
    for (uint64_t i = 0, at = h.tables_at; i < h.n_blocks && at + 16 <= n; i++, at += 16) {
        uint64_t from = sizeof h + i * BT_SHARD_BLOCK,
                 k = end - from < BT_SHARD_BLOCK ? end - from : BT_SHARD_BLOCK,
                 hash = XXH3_64bits(s + from, k);
        memcpy(s + at, &hash, 8);
    }
    uint64_t left = h.tables_at + h.n_blocks * 16 <= n ? n - h.tables_at - h.n_blocks * 16 : 0;
    h.n_spans = h.flags & BT_SHARD_HAS_SPANS ? h.n_spans % (left / 16 + 1) : 0;
    left -= h.n_spans * 16;
    if (h.flags & BT_SHARD_HAS_DOCUMENTS) {
        h.documents %= left / 8 + 1;
        left -= h.documents * 8;
    }
    h.n_segments = left / 16;
    h.content_hash = XXH3_64bits_withSeed(NULL, 0, h.count);
    for (uint64_t i = 0, at = h.tables_at; i < h.n_blocks && at + 16 <= n; i++, at += 16)
        h.content_hash = XXH3_64bits_withSeed(s + at, 8, h.content_hash);
    h.tables_hash = XXH3_64bits(s + end, n - end);
    h.header_hash = XXH3_64bits(&h, offsetof(bt_shard_header, header_hash));
    memcpy(s, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!n) return 0;
    size_t m = n - 1;
    uint8_t *s = malloc(m + 1);
    memcpy(s, data + 1, m);
    if ((data[0] & 1) && m >= sizeof(bt_shard_header)) correct_shard_hashes(s, m);
    int fd = memfd_create("fuzz", 0);
    bt_shard *shard;
    bt_err err;
    if (fd >= 0 && write(fd, s, m) == (ssize_t)m &&
        bt_shard_open_fd(&shard, fd, "fuzz", &err) == BT_OK) {
        int32_t ids[64];
        uint64_t count = bt_shard_about(shard)->count, bytes;
        uint32_t *lengths = calloc(bt_shard_about(shard)->vocab, sizeof *lengths);
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t first = i * count / 4;
            if (bt_shard_read(shard, first, count - first < 64 ? (size_t)(count - first) : 64, ids,
                              &err) != BT_OK)
                break;
            if (bt_shard_bytes_before(shard, first, lengths, &bytes, &err) != BT_OK) break;
        }
        (void)(bt_shard_verify(shard, NULL, NULL, &err) == BT_OK);
        free(lengths);
        bt_shard_close(shard);
    }
    free(s);
    return 0;
}
