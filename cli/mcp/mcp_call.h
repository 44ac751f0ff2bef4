/* mcp_call.h - runs this program once and returns what it printed.
 *
 * Threads: one caller. */
#ifndef BT_CLI_MCP_MCP_CALL_H
#define BT_CLI_MCP_MCP_CALL_H

#include "engine/base/status.h"
#include "engine/base/text.h"

/* words: after the program's name, ends with NULL. store: the metrics database, "" for the default. *status: exit
 * status, 128 + signal if a signal ended it. out, said: standard output and standard error, at most BT_MCP_OUTPUT bytes
 * each; more ends the program. */
enum { BT_MCP_OUTPUT = 8 << 20 };
bt_code bt_mcp_call(char *const *words, const char *store, bt_text *out, bt_text *said, int *status,
                    bt_err *err) BT_MUST_CHECK;

#endif
