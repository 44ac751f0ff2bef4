/* expand.h - private to store/: SQL in which figures and lists of the program's tables stand by name.
 *
 *     {overlap(comm_exposed_ms, comm_busy_ms)}   a row of derived.def, as SQL
 *     {phases, |round(avg(@), 2) AS @}           once a phase of phases.def: what stands between
 *                                                "{phases" and "|" separates; @ is the phase's column,
 *                                                # its name in full
 *     {times + |@_s}                             the same, once a part of times.def
 *     {paces, |'@'}, {pauses, |'@'}              once a kind of events.def that begins, pauses, goes on
 *                                                with or ends training; once a kind that pauses it
 *
 * Any other brace stays as it is. */
#ifndef BT_STORE_SQL_EXPAND_H
#define BT_STORE_SQL_EXPAND_H

#include "engine/base/status.h"
#include "engine/base/text.h"

/* BT_ARG: a figure with another number of arguments, or one that is not closed */
bt_code bt_sql_expand(bt_text *out, const char *sql, bt_err *err) BT_MUST_CHECK;

#endif
