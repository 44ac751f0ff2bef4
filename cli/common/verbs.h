/* verbs.h - commands with verbs (`bitrain data prepare`): one option table, the verb is the first
 * word. Private to cli. */
#ifndef BT_CLI_COMMON_VERBS_H
#define BT_CLI_COMMON_VERBS_H

#include "cli/common/command.h"
#include "engine/base/opt.h"

enum { BT_VERB_WORDS = 1024 }; /* the verb itself included */

typedef struct bt_cli_verb {
    const char *name;
    /* keys it understands: " json out " with blanks around each */
    const char *options;
    size_t min_words, max_words; /* number of words behind the verb */
    const char *words;           /* "PATH...", for messages */
    const char *summary;         /* one line, for help */
    bt_code (*run)(void *cfg, const char *const *words, size_t n, bt_err *err);
} bt_cli_verb;

/* Finds the verb among the words behind the command's name (argv; words that begin with a hyphen are
 * none): *found false where the command has no verbs or none is given; a word that is no verb fails. */
bt_code bt_command_verb(const bt_command *command, int argc, char *const *argv, bt_verb_help *out,
                        bool *found, bt_err *err) BT_MUST_CHECK;
/* the failure of a word that is none of the command's verbs; word NULL: that there is none */
bt_code bt_no_verb(const bt_command *command, const char *word, bt_err *err) BT_MUST_CHECK;
/* Describes the i-th verb; false past the last one, and where the command has none. What *out points to is valid until
 * the next call. */
bool bt_command_verb_at(const bt_command *command, size_t i, bt_verb_help *out);
/* runs the verb that the first word names; wrong verbs, words and options of other verbs are named */
bt_code bt_verbs_run(bt_call *call, bt_err *err) BT_MUST_CHECK;
/* '\n'-separated list of words, and the list of an option before it (may be ""); released by the
 * caller */
bt_code bt_verbs_paths(bt_text *out, const char *list, const char *const *words, size_t n,
                       bt_err *err) BT_MUST_CHECK;
/* Writes the cache folder of data, beside the database; creates the built-in corpus if the paths contain it. */
bt_code bt_verbs_corpus(const char *paths, char *cache, size_t size, bt_err *err) BT_MUST_CHECK;
/* refuses to replace a file unless forced */
bt_code bt_verbs_may_write(const char *path, bool force, bt_err *err) BT_MUST_CHECK;

#endif
