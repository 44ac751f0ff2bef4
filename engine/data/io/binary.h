/* binary.h - tells what is no text by its first bytes. Pure. Threads: any. */
#ifndef BT_ENGINE_DATA_IO_BINARY_H
#define BT_ENGINE_DATA_IO_BINARY_H

#include <stddef.h>

typedef struct bt_binary_kind {
    const char *magic;
    size_t n;
    const char *what, *remedy; /* "gzip-compressed", "decompress it first" */
} bt_binary_kind;

/* the format whose first bytes these are; NULL: none that is known */
const bt_binary_kind *bt_binary_kind_of(const char *head, size_t n);

#endif
