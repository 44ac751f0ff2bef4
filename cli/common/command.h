/* command.h - a command of bitrain: one file cmd_<name>.c, one row in commands.def. */
#ifndef BT_CLI_COMMON_COMMAND_H
#define BT_CLI_COMMON_COMMAND_H

#include <stdbool.h>

#include "engine/base/opt.h"
#include "engine/base/status.h"

/* a verb of a command (`bitrain data prepare`), as its help tells it */
typedef struct bt_verb_help {
    const char *name, *words; /* "prepare", "PATH..." */
    const char *summary;      /* one line */
    const bt_opt *options;    /* those it understands; bt_run_opts: the ones of `train` */
    size_t n_options;
} bt_verb_help;

typedef struct bt_command {
    const char *name;
    const char *summary;                 /* one line, for `bitrain help` */
    const char *args;                    /* "[CONFIG.yaml]", "RUN METRIC" */
    const char *examples;                /* lines, shown first in --help */
    const bt_opt *(*options)(size_t *n); /* its option table, or NULL */
    /* the i-th verb, false past the last one; NULL: the command has none. What *out points to is the
     * command's, until the next call. */
    bool (*verb)(size_t i, bt_verb_help *out);
    int verb_at; /* words that stand before the verb (`ctl RUN VERB`: 1) */
    /* argv after the command word. Returns BT_OK or fills err; main prints err and turns the code
     * into the exit status. A command that must exit with another status (130, ...) sets
     * *exit_status. */
    bt_code (*run)(int argc, char **argv, int *exit_status, bt_err *err);
    bool
        ranked; /* several ranks of an MPI job run it together; of any other command rank 0 alone does the work */
    int hidden; /* not in the list of `bitrain help` (rank) */
    bool
        reports; /* stdout holds a report, no data: without a stdout the command succeeds all the same */
} bt_command;

/* The table of commands (commands.def): main registers it once, before anything else, for the commands that describe
 * others (help). */
void bt_commands_register(const bt_command *const *table, size_t n);
size_t bt_command_count(void);
const bt_command *bt_command_at(size_t i);           /* in the order of the table */
const bt_command *bt_command_find(const char *name); /* NULL: there is none */

#endif
