/* curve_keys.h - the key files by which the hub and its islands authenticate each other.
 *
 *     DIR/hub.key          public and secret key of the hub; mode 0600
 *     DIR/hub.pub          its public key, for islands whose keys are created elsewhere
 *     DIR/NAME.key         keys of an island, and the hub's public key; mode 0600. An island needs only this file
 *     DIR/allowed/NAME.pub public keys that the hub accepts; it reads them at every connection
 *
 * A file has lines 'word = key' of Z85 text. A secret file that is readable by other users is refused.
 * Threads: no shared state. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_CURVE_KEYS_H
#define BT_ENGINE_ISLANDS_ZMQ_CURVE_KEYS_H

#include <stdbool.h>

#include "engine/base/status.h"

enum { BT_CURVE_KEY = 41 }; /* 40 characters of Z85, and the terminating zero */

typedef struct bt_curve_keys {
    char own_public[BT_CURVE_KEY], own_secret[BT_CURVE_KEY];
    char hub[BT_CURVE_KEY]; /* in an island: the hub's public key; in the hub: "" */
} bt_curve_keys;

/* Creates the keys of an island, and those of the hub if dir has none. made: the island's keys are new. Existing keys
 * of an island are never replaced; BT_ARG: they belong to another hub. */
bt_code bt_curve_make(const char *dir, const char *island, bool *made, bt_err *err) BT_MUST_CHECK;
/* path: a key file, or a folder that contains `name`.key. want_hub: it must contain the hub's key. */
bt_code bt_curve_read(bt_curve_keys *out, const char *path, const char *name, bool want_hub,
                      bt_err *err) BT_MUST_CHECK;
void bt_curve_allowed_dir(char *out, size_t size, const char *path);
/* Returns true if a file NAME.pub in dir contains this public key; `name` receives NAME. */
bool bt_curve_allowed(const char *dir, const char *key, char *name, size_t size);
void bt_curve_wipe(bt_curve_keys *k);

#endif
