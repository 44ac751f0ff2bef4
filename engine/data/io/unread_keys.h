/* unread_keys.h - counts by name the members of foreign JSON objects that no reader uses.
 *
 * A reader lists the keys that it uses and those that change nothing. It adds every other key here, and then refuses
 * the object or reports these keys. A member whose value is null counts as absent.
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
        uint64_t count;            /* number of objects that have the key */
    } at[BT_UNREAD_MOST];          /* in the order of first occurrence */
    size_t n;
    uint64_t more; /* occurrences of all keys beyond the first BT_UNREAD_MOST different ones */
} bt_unread;

/* set may be NULL, the empty set. */
bool bt_key_in(const char *const *set, const char *key);

/* Adds the members of o that are in neither set. within: prefix of the names, such as "rope_parameters", or NULL for
 * the outermost object. If o is NULL or not an object, nothing is added. */
void bt_unread_add(bt_unread *u, json_t *o, const char *within, const char *const *used,
                   const char *const *harmless);
void bt_unread_add_key(bt_unread *u, const char *within, const char *key);

/* Appends "'a', 'b.c' and 3 more"; with counts "'a' (12 rows), 'b.c' (1 row)" for the unit "row", which may be NULL.
 * At most `most` names are written. Appends nothing if no key was added. */
void bt_unread_print(bt_text *out, const bt_unread *u, size_t most, const char *unit);

#endif
