/* mcp_tools.h - the tools of `bitrain mcp` (mcp_tools.def): their description, and the command line of a call.
 *
 * Threads: constant tables; a command line has one owner. */
#ifndef BT_CLI_MCP_MCP_TOOLS_H
#define BT_CLI_MCP_MCP_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

/* words of a command line after the program's name */
enum { BT_MCP_WORDS = 256 };
typedef struct bt_mcp_words {
    char *word[BT_MCP_WORDS + 1]; /* ends with NULL */
    size_t n;
} bt_mcp_words;
void bt_mcp_words_release(bt_mcp_words *w); /* accepts an all-zero struct */

/* Appends the member "tools", with a JSON schema of each tool's arguments. control: includes tools that change runs. */
void bt_mcp_tools_list(bt_json *j, bool control);
/* Makes the command line of a call. arguments: an object, or NULL. BT_NOTFOUND: there is no such tool; BT_ARG: a wrong
 * argument, or a tool that needs --control. */
bt_code bt_mcp_tool_words(const char *tool, json_t *arguments, bool control, bt_mcp_words *out,
                          bt_err *err) BT_MUST_CHECK;

#endif
