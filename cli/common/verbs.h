/* verbs.h - commands with verbs (`bitrain data prepare`): one option table, the verb is the first
 * word. Private to cli. */
#ifndef BT_CLI_COMMON_VERBS_H
#define BT_CLI_COMMON_VERBS_H

#include "engine/base/opt.h"

typedef struct bt_verb {
    const char *name;
    /* keys it understands: " json out " with blanks around each */
    const char *options;
    size_t min_words, max_words; /* behind the verb */
    const char *words;           /* "PATH...", for messages */
    bt_code (*run)(void *cfg, const char *const *words, size_t n, bt_err *err);
} bt_verb;

/* parses argv into cfg and runs the verb; wrong verbs, words and options of other verbs are
 * named */
bt_code bt_verbs_run(const char *command, const bt_verb *verbs, size_t n_verbs, const bt_opt *table,
                     size_t n, void *cfg, int argc, char **argv, bt_err *err) BT_MUST_CHECK;
/* '\n'-separated list of words, and the list of an option before it (may be ""); released by the
 * caller */
bt_code bt_verbs_paths(bt_text *out, const char *list, const char *const *words, size_t n,
                       bt_err *err) BT_MUST_CHECK;
/* the cache folder of data, beside the database; makes the built-in corpus when the paths ask for
 * it */
bt_code bt_verbs_corpus(const char *paths, char *cache, size_t size, bt_err *err) BT_MUST_CHECK;
/* refuses to replace a file unless forced */
bt_code bt_verbs_may_write(const char *path, bool force, bt_err *err) BT_MUST_CHECK;

#endif
