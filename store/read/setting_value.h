/* setting_value.h - the SQL function bt_setting(config, key): the value of one setting in the recorded
 * configuration of a run.
 *
 * The view configs would parse a whole configuration (22 kB) into rows; this function scans the text
 * for the key instead, which takes a few microseconds a run. The text is {"key": {"value": V, ...}, ...} or
 * {"key": V, ...}. Returns V as text ("0.002", "true"), NULL if the configuration has no such key or V
 * is null. */
#ifndef BT_STORE_READ_SETTING_VALUE_H
#define BT_STORE_READ_SETTING_VALUE_H

#include "store/sql/sql.h"

#define BT_SETTING_FUNCTION "bt_setting"

int bt_setting_value_install(sqlite3 *db); /* SQLite's code */

#endif
