/* command.h - a command of bitrain: one file cmd_<name>.c, one row in commands.def. */
#ifndef BT_CLI_COMMON_COMMAND_H
#define BT_CLI_COMMON_COMMAND_H

#include "engine/base/opt.h"
#include "engine/base/status.h"

typedef struct bt_command {
    const char *name;
    const char *summary;                 /* one line, for `bitrain help` */
    const char *args;                    /* "[CONFIG.yaml]", "RUN METRIC" */
    const char *examples;                /* lines, shown first in --help */
    const bt_opt *(*options)(size_t *n); /* its option table, or NULL */
    /* of a command whose verbs have tables of their own: that of a verb, NULL where there is no such verb */
    const bt_opt *(*verb_options)(const char *verb, size_t *n);
    /* argv after the command word. Returns BT_OK or fills err; main prints err and turns the code
     * into the exit status. A command that must exit with another status (130, ...) sets
     * *exit_status. */
    bt_code (*run)(int argc, char **argv, int *exit_status, bt_err *err);
    int hidden; /* not in the list of `bitrain help` (rank) */
} bt_command;

extern const bt_command *const bt_commands[];
extern const size_t bt_commands_n;
const bt_command *bt_command_find(const char *name);

#endif
