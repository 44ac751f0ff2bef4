/* lens.h - named SQL queries about a run: those of lens.def, and the user's own.
 *
 * A user's lens is a file NAME.sql in $BITRAIN_LENSES, else $XDG_CONFIG_HOME/bitrain/lenses,
 * else ~/.config/bitrain/lenses: one SELECT with ?1 = the run; a first line "-- words" describes
 * it. A user's lens hides a shipped lens of the same name. */
#ifndef BT_STORE_READ_LENS_H
#define BT_STORE_READ_LENS_H

#include "engine/base/status.h"
#include "engine/base/text.h"

/* file "": shipped with bitrain */
typedef struct bt_lens {
    char name[64], about[200], file[1100];
    bt_text sql;
} bt_lens;

/* Finds a lens; release it when BT_OK. The message of BT_NOTFOUND contains the most similar name. */
bt_code bt_lens_find(const char *name, bt_lens *out, bt_err *err) BT_MUST_CHECK;
/* Lists all lenses, the user's first, and skips unreadable files. The caller releases each lens, then frees the
 * list. */
bt_code bt_lens_list(bt_lens **out, size_t *n, bt_err *err) BT_MUST_CHECK;
void bt_lens_release(bt_lens *l);

#endif
