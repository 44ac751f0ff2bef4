/* json_fields.h - writes members of a struct as JSON, from a table of their keys, kinds and offsets:
 *
 *     BT_JSON_FIELDS(j, link, F(axis), F(latency_us), F_AS("rate", bytes_per_s));
 *
 * The type of a member determines its kind, unless F_KIND or F_ENUM states another one. */
#ifndef BT_BASE_SYSTEM_JSON_FIELDS_H
#define BT_BASE_SYSTEM_JSON_FIELDS_H

#include "engine/base/text.h"

typedef enum {
    BT_JSON_TEXT, /* char[] */
    BT_JSON_WORD, /* const char * */
    BT_JSON_REAL, /* double; null if not finite */
    BT_JSON_INT,
    BT_JSON_INT64,
    BT_JSON_SIZE,
    BT_JSON_BOOL,
    /* Kinds that a row must state explicitly. */
    BT_JSON_SAID,  /* char[]; null if empty */
    BT_JSON_KNOWN, /* double; NaN: the member is omitted */
    BT_JSON_AT,    /* int64_t; null if negative */
    BT_JSON_INDEX, /* int; null if negative */
    BT_JSON_ENUM   /* written as the text that the function `name` returns */
} bt_json_kind;

typedef struct bt_json_field {
    const char *key;
    bt_json_kind kind;
    size_t offset;
    const char *(*name)(int value);
} bt_json_field;

#define BT_JSON_KIND(member) \
    _Generic(((const T *)0)->member,                                   \
        double: BT_JSON_REAL,                                          \
        int: BT_JSON_INT,                                              \
        int64_t: BT_JSON_INT64,                                        \
        size_t: BT_JSON_SIZE,                                          \
        bool: BT_JSON_BOOL,                                            \
        const char *: _Generic(&((const T *)0)->member,                \
            const char *const *: BT_JSON_WORD,                         \
            default: BT_JSON_TEXT))
#define F_KIND(key, member, kind) \
    { key, kind, offsetof(T, member), NULL }
#define F_AS(key, member) F_KIND(key, member, BT_JSON_KIND(member))
#define F(member) F_AS(#member, member)
#define F_ENUM(key, member, name) \
    { key, BT_JSON_ENUM, offsetof(T, member), name }

/* Writes a step or rank; null if negative. */
void bt_json_at(bt_json *j, const char *key, int64_t v);
void bt_json_fields(bt_json *j, const void *from, const bt_json_field *f, size_t n);
/* Writes n structs of `size` bytes as an array of objects. */
void bt_json_rows(bt_json *j, const char *key, const void *rows, size_t n, size_t size,
                  const bt_json_field *f, size_t n_fields);
#define BT_JSON_FIELDS(j, from, ...) \
    do { \
        typedef __typeof__(*(from)) T; \
        static const bt_json_field fields_[] = {__VA_ARGS__}; \
        bt_json_fields(j, from, fields_, sizeof fields_ / sizeof *fields_); \
    } while (0)
/* Writes n structs as an array of objects. */
#define BT_JSON_ROWS(j, key, rows, n, ...) \
    do { \
        typedef __typeof__(*(rows)) T; \
        static const bt_json_field fields_[] = {__VA_ARGS__}; \
        bt_json_rows(j, key, rows, n, sizeof(T), fields_, sizeof fields_ / sizeof *fields_); \
    } while (0)

#endif
