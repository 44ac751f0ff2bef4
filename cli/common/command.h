/* command.h - a command of bitrain: one file cmd_<name>.c, one row in commands.def. */
#ifndef BT_CLI_COMMON_COMMAND_H
#define BT_CLI_COMMON_COMMAND_H

#include <stdbool.h>

#include "engine/base/opt.h"
#include "engine/base/status.h"

/* a verb of a command (`bitrain data prepare`), as its help describes it */
typedef struct bt_verb_help {
    const char *name, *words; /* "prepare", "PATH..." */
    const char *summary;      /* one line */
    const bt_opt *options;    /* its options; bt_run_opts: those of `train` */
    size_t n_options;
} bt_verb_help;

/* an option table, and the size of the struct that it describes */
typedef struct bt_option_set {
    const bt_opt *rows; /* bt_run_opts: those of `train`, whose number is bt_run_opts_n */
    size_t n, cfg_bytes;
} bt_option_set;
#define BT_OPTION_SET(rows, S) \
    { rows, sizeof(rows) / sizeof *(rows), sizeof(S) }

/* rows that many commands have, for a struct S with the fields json, store (char[1024]) and quiet */
#define BT_ROW_JSON(S) BT_ROW_FLAG(S, json, "--json", "one JSON object")
#define BT_ROW_STORE(S) BT_ROW_TEXT(S, store, "--store", "", "metrics database")
#define BT_ROW_QUIET(S) BT_ROW_FLAG(S, quiet, "--quiet", "no progress bar")

/* The arguments of one call of a command, read by its option set. Valid while the command runs. */
typedef struct bt_call {
    void *cfg; /* the struct of the option set */
    bt_opts opts;
    const char **words; /* the arguments that are no options; NULL behind the last */
    size_t n;
    int *exit_status; /* set where the command must end with another status than that of its code */
    const struct bt_command *command;
} bt_call;

struct bt_cli_verb;

typedef struct bt_command {
    const char *name;
    const char *summary;  /* one line, for `bitrain help` */
    const char *args;     /* "[CONFIG.yaml]", "RUN METRIC" */
    const char *examples; /* lines, shown first in --help */
    bt_option_set options;
    size_t max_words;
    const char *no_word; /* the error where no word is given; NULL: none is needed */
    /* its verbs: a table (verbs.h) whose functions do the work, or a function that describes the i-th one and returns
     * false past the last one. What *out points to is valid until the next call. */
    const struct bt_cli_verb *verbs;
    size_t n_verbs;
    bool (*verb)(size_t i, bt_verb_help *out);
    int verb_at; /* words before the verb (`ctl RUN VERB`: 1) */
    void (*edit)(int argc,
                 char **argv); /* completes the arguments before they are read; may be NULL */
    /* Returns BT_OK or fills err; main prints err and turns the code into the exit status. */
    bt_code (*run)(bt_call *call, bt_err *err);
    /* instead of run: a command that reads its own arguments, those after the command word */
    bt_code (*run_argv)(int argc, char **argv, int *exit_status, bt_err *err);
    bool
        ranked; /* several ranks of an MPI job run it together; of any other command rank 0 alone does the work */
    int hidden; /* not in the list of `bitrain help` (rank) */
    bool
        reports; /* stdout holds a report, no data: without a stdout the command succeeds all the same */
} bt_command;

/* Registers the table of commands (commands.def) for the commands that describe others (help). main calls it once,
 * first. */
void bt_commands_register(const bt_command *const *table, size_t n);
size_t bt_command_count(void);
const bt_command *bt_command_at(size_t i);           /* in the order of the table */
const bt_command *bt_command_find(const char *name); /* NULL: there is none */

/* runs the command with the arguments after its name */
bt_code bt_command_run(const bt_command *command, int argc, char **argv, int *exit_status,
                       bt_err *err) BT_MUST_CHECK;
size_t bt_option_count(const bt_option_set *set);

#endif
