/* command.h - a command of bitrain: one file cmd_<name>.c, one row in commands.def. */
#ifndef BT_CLI_COMMON_COMMAND_H
#define BT_CLI_COMMON_COMMAND_H

#include <stdbool.h>

#include "engine/base/opt.h"
#include "engine/base/status.h"

/* A verb of a command (`bitrain data prepare`), as its help describes it. */
typedef struct bt_verb_help {
    const char *name, *words; /* for example "prepare", "PATH..." */
    const char *summary;
    const bt_opt *options; /* options of the command; bt_run_opts: those of `train` */
    size_t n_options;
} bt_verb_help;

typedef struct bt_option_set {
    const bt_opt *rows; /* bt_run_opts (bt_run_opts_n rows): the options of `train` */
    size_t n, cfg_bytes;
} bt_option_set;
#define BT_OPTION_SET(rows, S) \
    { rows, sizeof(rows) / sizeof *(rows), sizeof(S) }

/* Rows shared by many commands, for a struct S with the fields json, store (char[1024]) and quiet. */
#define BT_ROW_JSON(S) BT_ROW_FLAG(S, json, "--json", "one JSON object")
#define BT_ROW_STORE(S) BT_ROW_TEXT(S, store, "--store", "", "metrics database")
#define BT_ROW_QUIET(S) BT_ROW_FLAG(S, quiet, "--quiet", "no progress bar")

/* Arguments of one call of a command, parsed by its option set. Valid while the command runs. */
typedef struct bt_call {
    void *cfg; /* struct filled from the option set */
    bt_opts opts;
    const char **words; /* positional arguments, NULL-terminated */
    size_t n;
    int *exit_status; /* set if the exit status differs from that of the returned code */
    const struct bt_command *command;
} bt_call;

struct bt_cli_verb;

typedef struct bt_command {
    const char *name;
    const char *summary;  /* one line of `bitrain help` */
    const char *args;     /* for example "[CONFIG.yaml]", "RUN METRIC" */
    const char *examples; /* lines at the top of --help */
    bt_option_set options;
    const char *train_hint; /* remedy for an option of `train`; NULL: a general one */
    size_t max_words;
    const char *word_hint; /* remedy for a positional argument too many; NULL: --help */
    const char *no_word;   /* error if there is no positional argument; NULL: none is required */
    /* Verbs: a table (verbs.h) of functions, or a function that describes the i-th verb and returns false past the
     * last one. *out is valid until the next call. */
    const struct bt_cli_verb *verbs;
    size_t n_verbs;
    bool (*verb)(size_t i, bt_verb_help *out);
    int verb_at; /* number of words before the verb (`ctl RUN VERB`: 1) */
    void (*edit)(int argc,
                 char **argv); /* completes the arguments before they are parsed; may be NULL */
    /* Returns BT_OK or fills err; main prints err and turns the code into the exit status. */
    bt_code (*run)(bt_call *call, bt_err *err);
    /* Used instead of `run` by a command that parses its own arguments (those after the command word). */
    bt_code (*run_argv)(int argc, char **argv, int *exit_status, bt_err *err);
    bool ranked; /* all ranks of an MPI job run the command; otherwise rank 0 alone runs it */
    int hidden;  /* `bitrain help` does not list this command (rank) */
    bool
        reports; /* stdout contains a report, not data: the command succeeds even if stdout is closed */
} bt_command;

/* Registers the table of commands (commands.def), which help describes. main calls it first. */
void bt_commands_register(const bt_command *const *table, size_t n);
size_t bt_command_count(void);
const bt_command *bt_command_at(size_t i);
const bt_command *bt_command_find(const char *name); /* NULL if there is no such command */

/* Runs the command with the arguments after its name. */
bt_code bt_command_run(const bt_command *command, int argc, char **argv, int *exit_status,
                       bt_err *err) BT_MUST_CHECK;
size_t bt_option_count(const bt_option_set *set);

#endif
