/* verbs.c - finds the verb, parses its options and rejects those of other verbs. */
#include "cli/common/verbs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/given_path.h"
#include "engine/data/io/sources.h"
#include "monitor/job/launch/builtin.h"
#include "store/store.h"

enum { MAX_VERBS = 16 };

static bool verb_has_option(const bt_cli_verb *v, const char *option) {
    char key[80];
    snprintf(key, sizeof key, " %s ", option);
    return strstr(v->options, key) != NULL;
}

bool bt_command_verb_at(const bt_command *command, size_t i, bt_verb_help *out) {
    static bt_opt kept[BT_OPT_MAX];
    const bt_option_set *set = &command->options;
    if (command->verb) return command->verb(i, out);
    if (i >= command->n_verbs) return false;
    const bt_cli_verb *v = &command->verbs[i];
    *out =
        (bt_verb_help){.name = v->name, .words = v->words, .summary = v->summary, .options = kept};
    for (size_t k = 0; k < set->n; k++)
        if (verb_has_option(v, set->rows[k].key)) kept[out->n_options++] = set->rows[k];
    return true;
}

bt_code bt_no_verb(const bt_command *command, const char *word, bt_err *err) {
    const char *names[MAX_VERBS];
    bt_verb_help v;
    char all[200] = "", plain[96];
    size_t n = 0;
    for (; n < MAX_VERBS && bt_command_verb_at(command, n, &v); n++) {
        names[n] = v.name;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", n ? ", " : "", v.name);
    }
    if (!word) return bt_fail(err, BT_ARG, "'bitrain %s' needs a verb: %s", command->name, all);
    bt_text_plain(plain, sizeof plain, word);
    const char *near = bt_nearest(word, names, n);
    return near ? bt_fail(err, BT_ARG, "'bitrain %s' has no verb '%s' (did you mean '%s'?)",
                          command->name, plain, near)
                : bt_fail(err, BT_ARG, "'bitrain %s' has no verb '%s' (%s)", command->name, plain,
                          all);
}

bt_code bt_command_verb(const bt_command *command, int argc, char *const *argv, bt_verb_help *out,
                        bool *found, bt_err *err) {
    *found = false;
    if ((!command->verb && !command->verbs) || argc <= command->verb_at) return BT_OK;
    for (int i = 0; i <= command->verb_at; i++)
        if (argv[i][0] == '-') return BT_OK;
    const char *word = argv[command->verb_at];
    for (size_t i = 0; !*found && bt_command_verb_at(command, i, out); i++)
        *found = strcmp(out->name, word) == 0;
    return *found ? BT_OK : bt_no_verb(command, word, err);
}

static bt_code check_verb_options(const char *command, const bt_cli_verb *v, const bt_opts *o,
                                  bt_err *err) {
    for (size_t i = 0; i < o->n; i++)
        if (o->origin[i] != BT_FROM_DEFAULT && !verb_has_option(v, o->table[i].key))
            return bt_fail(err, BT_ARG, "'bitrain %s %s' has no option '%s'", command, v->name,
                           o->table[i].flag);
    return BT_OK;
}

bt_code bt_verbs_run(bt_call *call, bt_err *err) {
    const bt_command *command = call->command;
    const char **words = call->words;
    const size_t n_words = call->n;
    size_t i = 0;
    if (!n_words) return bt_no_verb(command, NULL, err);
    while (i < command->n_verbs && strcmp(command->verbs[i].name, words[0]) != 0) i++;
    if (i == command->n_verbs) return bt_no_verb(command, words[0], err);
    const bt_cli_verb *v = &command->verbs[i];
    BT_TRY(check_verb_options(command->name, v, &call->opts, err));
    if (n_words - 1 > v->max_words)
        return bt_fail(err, BT_ARG, "unexpected word '%s' after '%s %s %s'",
                       words[1 + v->max_words], command->name, v->name, v->words);
    if (n_words - 1 < v->min_words)
        return bt_fail(err, BT_ARG, "'bitrain %s %s' needs %s", command->name, v->name, v->words);
    return v->run(call->cfg, words + 1, n_words - 1, err);
}

bt_code bt_verbs_paths(bt_text *out, const char *list, const char *const *words, size_t n,
                       bt_err *err) {
    bt_text_init(out);
    bt_text_put(out, list);
    for (size_t i = 0; i < n; i++) {
        if (strchr(words[i], '\n')) {
            bt_text_release(out);
            return bt_fail(err, BT_ARG, "a path must not contain a newline");
        }
        if (out->len) bt_text_put(out, "\n");
        bt_text_put(out, words[i]);
    }
    if (!out->failed) return BT_OK;
    bt_text_release(out);
    return bt_fail(err, BT_NOMEM, "cannot take memory for %zu paths", n);
}

static bool has_builtin_path(const char *paths) {
    for (const char *w = paths; *w; w += strcspn(w, "\n"), w += *w == '\n')
        if (strcspn(w, "\n") == 7 && strncmp(w, "builtin", 7) == 0) return true;
    return !*paths;
}

bt_code bt_verbs_corpus(const char *paths, char *cache, size_t size, bt_err *err) {
    char store[PATH_MAX], text[PATH_MAX];
    BT_TRY(bt_store_path(store, sizeof store, "", err));
    char *slash = strrchr(store, '/');
    if (slash) *slash = '\0';
    if (snprintf(cache, size, "%s/cache", slash ? store : ".") >= (int)size)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", store);
    if (!has_builtin_path(paths)) return BT_OK;
    bt_builtin_path(text, sizeof text, cache);
    return bt_builtin_make(text, err);
}

bt_code bt_verbs_may_write(const char *path, bool force, bt_err *err) {
    if (!*path) return bt_fail(err, BT_ARG, "no --out FILE given");
    return bt_may_write(path, force, err);
}
