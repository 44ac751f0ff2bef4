/* gguf.h - the head of a GGUF file: its keys with their values, and its tensors.
 *
 *     magic "GGUF" | u32 version | u64 tensors | u64 keys | keys | tensor infos | padding | data
 *
 * Every count is compared with the remaining bytes before anything is allocated. Refused: versions except 2 and 3,
 * duplicate keys and names, nested arrays, keys of more than 256 bytes, texts of more than 1 MiB, an alignment
 * that is not a power of two up to 64 KiB, more than four dimensions, unknown types, tensors that are not
 * contiguous within the file.
 * Owns: keys and short values; arrays remain in the file. Threads: one caller. */
#ifndef BT_ENGINE_INTEROP_GGUF_H
#define BT_ENGINE_INTEROP_GGUF_H

#include "engine/interop/formats/stored.h"

typedef enum {
    BT_GGUF_U8,
    BT_GGUF_I8,
    BT_GGUF_U16,
    BT_GGUF_I16,
    BT_GGUF_U32,
    BT_GGUF_I32,
    BT_GGUF_F32,
    BT_GGUF_BOOL,
    BT_GGUF_TEXT,
    BT_GGUF_ARRAY,
    BT_GGUF_U64,
    BT_GGUF_I64,
    BT_GGUF_F64,
    BT_GGUF_TYPES
} bt_gguf_type;

typedef struct bt_gguf_kv {
    char *key;
    bt_gguf_type type, element; /* element: the type of an array's elements */
    char *text;                 /* TEXT */
    int64_t whole;              /* integers, BOOL */
    double real;                /* F32, F64, and integers */
    uint64_t count, at; /* ARRAY: number of elements, and offset of the first one in the file */
} bt_gguf_kv;

typedef struct bt_gguf {
    bt_gguf_kv *kv;
    size_t n;
    int file; /* index in the list of files */
} bt_gguf;

/* Reads the head of a file, adds its tensors to the list, and sorts the list. */
bt_code bt_gguf_read(bt_gguf *g, bt_stored_list *l, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_gguf_release(bt_gguf *g);
const bt_gguf_kv *bt_gguf_find(const bt_gguf *g, const char *key); /* NULL if absent */
const char *bt_gguf_text(const bt_gguf *g, const char *key);       /* NULL: absent, or not a text */

/* Calls `each` with every element of an array of texts (text, bytes) or of whole numbers (value). */
typedef bt_code (*bt_gguf_each)(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                                bt_err *err);
bt_code bt_gguf_walk(const bt_gguf_kv *kv, const bt_foreign_file *f, bt_gguf_each each, void *ctx,
                     bt_err *err) BT_MUST_CHECK;

#endif
