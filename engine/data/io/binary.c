/* binary.c - formats that people put where text is wanted, by their magic bytes. */
#include "engine/data/io/binary.h"

#include <string.h>

static const bt_binary_kind known[] = {
    {"\x1f\x8b", 2, "gzip-compressed", "decompress it first, or name it *.gz"},
    {"\x28\xb5\x2f\xfd", 4, "zstd-compressed", "decompress it first, or name it *.zst"},
    {"\xfd"
     "7zXZ",
     5, "xz-compressed", "decompress it first"},
    {"BZh", 3, "bzip2-compressed", "decompress it first"},
    {"PK\x03\x04", 4, "a zip archive", "unpack it first"},
    {"\xff\xfe", 2, "UTF-16 text", "convert it with 'iconv -f UTF-16 -t UTF-8'"},
    {"\xfe\xff", 2, "UTF-16 text", "convert it with 'iconv -f UTF-16 -t UTF-8'"},
    {"%PDF-", 5, "a PDF document", "extract its text first"},
    {"BTSHARD\n", 8, "a token shard", "name it *.bts"},
    {"SQLite format 3", 15, "a SQLite database", "export its text first"},
};

const bt_binary_kind *bt_binary_kind_of(const char *head, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= known[i].n && memcmp(head, known[i].magic, known[i].n) == 0) return &known[i];
    return NULL;
}
