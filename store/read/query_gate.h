/* query_gate.h - what a statement on a reading connection may do: an allow-list of actions, functions
 * and pragmas, for SQLite's authorizer. Anything that is not on it is refused, also what a later
 * SQLite brings. */
#ifndef BT_STORE_READ_QUERY_GATE_H
#define BT_STORE_READ_QUERY_GATE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "engine/base/status.h"

/* snapping: borrowed, for as long as the connection lives; true while our own BEGIN or COMMIT is at
 * work, which are allowed then. Virtual tables other than those of JSON are dropped for good. */
bt_code bt_query_gate_install(sqlite3 *db, const bool *snapping, const char *path, bt_err *err)
    BT_MUST_CHECK;

#endif
