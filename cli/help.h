/* help.h - the output of `bitrain help`, generated from commands.def, the commands' option tables and metrics.def. */
#ifndef BT_CLI_HELP_H
#define BT_CLI_HELP_H

#include <stdio.h>

#include "cli/common/command.h"
#include "engine/base/text.h"

void bt_help_overview(FILE *to); /* the list of commands */
/* Prints examples, then options, of one verb or (verb NULL) of the whole command. */
void bt_help_command(const bt_command *command, const bt_verb_help *verb, FILE *to);
/* Prints the examples, or those of one verb, with their remarks aligned. */
void bt_help_examples(const bt_command *command, const char *verb, const char *indent,
                      bt_text *out);
/* Prints every setting of a run: key, flag, default, range. */
void bt_help_options(bt_text *out);
/* Prints the settings that have a flag, in groups, the most used first, with their values on this machine. */
void bt_help_run_options(bt_text *out);
void bt_help_presets(bt_text *out);
void bt_help_metrics(bt_text *out);
void bt_help_exit_codes(bt_text *out);
typedef struct bt_exit_meaning {
    int code;
    const char *meaning;
} bt_exit_meaning;
size_t bt_help_exit_code_count(void);
const bt_exit_meaning *bt_help_exit_code_at(size_t i);
/* Prints one JSON object: "commands", "settings", "metrics" and "exit_codes". */
void bt_help_json(bt_text *out);
/* generated blocks of README.md, between their markers */
void bt_help_markdown(bt_text *out);
void bt_help_man(bt_text *out); /* roff */
/* shell: bash, zsh or fish; otherwise BT_ARG */
bt_code bt_help_completion(const char *shell, bt_text *out, bt_err *err) BT_MUST_CHECK;

#endif
