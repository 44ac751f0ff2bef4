/* unread_keys.h - the members of JSON objects from other programs that no reader uses, counted by name.
 *
 * A reader lists the keys that it uses and those that change nothing; every other key is added here and then refused or
 * A reader lists the keys that it uses and those that change nothing; every other key is added here and then refused or
 * with the prefix. A member whose value is null counts as absent.
 * Owns: nothing; an all-zero struct is empty. Threads: one caller. Cost: no allocation. */
#ifndef BT_ENGINE_DATA_IO_UNREAD_KEYS_H
#define BT_ENGINE_DATA_IO_UNREAD_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/text.h"

enum { BT_UNREAD_MOST = 32, BT_UNREAD_NAME = 96 };

typedef struct bt_unread {
    struct {
        char name[BT_UNREAD_NAME]; /* "key", or "within.key" */
        uint64_t count;            /* objects that have it */
    } at[BT_UNREAD_MOST];          /* in the order of first occurrence */
    size_t n;
    uint64_t more; /* occurrences of further names, beyond BT_UNREAD_MOST different ones */
} bt_unread;

/* set: may be NULL for the empty set. */
bool bt_key_in(const char *const *set, const char *key);

/* Adds the members of o that are in neither set. within: the place of o, which precedes the names ("rope_parameters"),
 * or NULL for the outermost object. An o that is NULL or no object adds nothing. */
void bt_unread_add(bt_unread *u, json_t *o, const char *within, const char *const *used,
                   const char *const *harmless);
/* Adds one occurrence of one key. */
void bt_unread_add_key(bt_unread *u, const char *within, const char *key);

/* Appends "'a', 'b.c' and 3 more"; with counts "'a' (12 rows), 'b.c' (1 row)" for the unit "row", which may be NULL.
 * At most `most` names are written. Appends nothing if no key was added. */
void bt_unread_print(bt_text *out, const bt_unread *u, size_t most, const char *unit);

#endif
