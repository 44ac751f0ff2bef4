/* expand.h - private to store/: expands names of figures and lists of the program's tables in
 * SQL.
 *
 *     {overlap(comm_exposed_ms, comm_busy_ms)}   a row of derived.def, as SQL
 *     {phases, |round(avg(@), 2) AS @}           once per phase of phases.def, separated by the text between
 *                                                "{phases" and "|"; @ is the phase's column, # its name
 *     {times + |@_s}                             the same, once per part of times.def
 *     {paces, |'@'}, {pauses, |'@'}              once per kind of events.def that begins, pauses, continues or
 *                                                ends training; once per kind that pauses it
 *
 * Any other brace is copied. */
#ifndef BT_STORE_SQL_EXPAND_H
#define BT_STORE_SQL_EXPAND_H

#include "engine/base/status.h"
#include "engine/base/text.h"

/* BT_ARG: wrong number of arguments, or a missing closing brace */
bt_code bt_sql_expand(bt_text *out, const char *sql, bt_err *err) BT_MUST_CHECK;

#endif
