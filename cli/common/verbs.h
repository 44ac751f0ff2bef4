/* verbs.h - commands with verbs (`bitrain data prepare`): one option table; the first word is the verb. Private to
 * cli. */
#ifndef BT_CLI_COMMON_VERBS_H
#define BT_CLI_COMMON_VERBS_H

#include "cli/common/command.h"
#include "engine/base/opt.h"

enum { BT_VERB_WORDS = 1024 }; /* includes the verb */

typedef struct bt_cli_verb {
    const char *name;
    /* keys of its options, each surrounded by spaces: " json out " */
    const char *options;
    size_t min_words, max_words; /* number of words after the verb */
    const char *words;           /* "PATH...", for messages */
    const char *summary;
    bt_code (*run)(void *cfg, const char *const *words, size_t n, bt_err *err);
} bt_cli_verb;

/* Finds the verb among the words after the command's name; words that begin with a hyphen are ignored. *found is
 * false if the command has no verbs or none is given. Fails if the word is not a verb. */
bt_code bt_command_verb(const bt_command *command, int argc, char *const *argv, bt_verb_help *out,
                        bool *found, bt_err *err) BT_MUST_CHECK;
/* Returns the error for a word that is not a verb of the command; word NULL: the verb is missing. */
bt_code bt_no_verb(const bt_command *command, const char *word, bt_err *err) BT_MUST_CHECK;
/* Describes the i-th verb; returns false past the last one and for a command without verbs. *out is valid until the
 * next call. */
bool bt_command_verb_at(const bt_command *command, size_t i, bt_verb_help *out);
/* Runs the verb that the first word names. Refuses an unknown verb, a wrong number of words and options of other
 * verbs. */
bt_code bt_verbs_run(bt_call *call, bt_err *err) BT_MUST_CHECK;
/* Joins the words, and the list of an option before them (may be ""), with newlines. The caller releases the result. */
bt_code bt_verbs_paths(bt_text *out, const char *list, const char *const *words, size_t n,
                       bt_err *err) BT_MUST_CHECK;
/* Writes the path of the data cache, beside the database. Creates the built-in corpus if the paths contain it. */
bt_code bt_verbs_corpus(const char *paths, char *cache, size_t size, bt_err *err) BT_MUST_CHECK;
/* Refuses to replace a file unless `force` is set. */
bt_code bt_verbs_may_write(const char *path, bool force, bt_err *err) BT_MUST_CHECK;

#endif
