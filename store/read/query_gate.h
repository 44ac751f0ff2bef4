/* query_gate.h - permissions of statements on a reading connection: an allow-list of actions,
 * functions and pragmas for SQLite's authorizer. Everything else is refused, including features
 * of later SQLite versions. */
#ifndef BT_STORE_READ_QUERY_GATE_H
#define BT_STORE_READ_QUERY_GATE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "engine/base/status.h"

/* Installs the gate and permanently drops virtual tables other than those of JSON. snapping: borrowed for the life
 * of the connection; true while the store's own BEGIN or COMMIT runs. */
bt_code bt_query_gate_install(sqlite3 *db, const bool *snapping, const char *path, bt_err *err)
    BT_MUST_CHECK;

#endif
