/* verbs.c - finds the verb, reads its options, refuses those of other verbs. */
#include "cli/common/verbs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/data/io/sources.h"
#include "monitor/job/launch/builtin.h"
#include "store/store.h"

enum { MAX_WORDS = 1024 };

static bt_code no_verb(const char *command, const bt_verb *verbs, size_t n, const char *word,
                       bt_err *err) {
    const char *names[16];
    char all[200] = "";
    for (size_t i = 0; i < n && i < 16; i++) {
        names[i] = verbs[i].name;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    if (!word) return bt_fail(err, BT_ARG, "'bitrain %s' needs a verb: %s", command, all);
    const char *near = bt_nearest(word, names, n);
    return near ? bt_fail(err, BT_ARG, "'bitrain %s' has no verb '%s' (did you mean '%s'?)",
                          command, word, near)
                : bt_fail(err, BT_ARG, "'bitrain %s' has no verb '%s' (%s)", command, word, all);
}

static bt_code check_options(const char *command, const bt_verb *v, const bt_opts *o, bt_err *err) {
    for (size_t i = 0; i < o->n; i++) {
        char key[80];
        snprintf(key, sizeof key, " %s ", o->table[i].key);
        if (o->origin[i] != BT_FROM_DEFAULT && !strstr(v->options, key))
            return bt_fail(err, BT_ARG, "'bitrain %s %s' has no option '%s'", command, v->name,
                           o->table[i].flag);
    }
    return BT_OK;
}

bt_code bt_verbs_run(const char *command, const bt_verb *verbs, size_t n_verbs, const bt_opt *table,
                     size_t n, void *cfg, int argc, char **argv, bt_err *err) {
    static const char *words[MAX_WORDS];
    bt_opts o;
    size_t n_words = 0, i = 0;
    bool help;
    BT_TRY(bt_opts_init(&o, table, n, cfg, err));
    BT_TRY(bt_opts_argv(&o, argc, argv, words, MAX_WORDS, &n_words, &help, err));
    if (!n_words) return no_verb(command, verbs, n_verbs, NULL, err);
    while (i < n_verbs && strcmp(verbs[i].name, words[0]) != 0) i++;
    if (i == n_verbs) return no_verb(command, verbs, n_verbs, words[0], err);
    const bt_verb *v = &verbs[i];
    BT_TRY(check_options(command, v, &o, err));
    if (n_words - 1 > v->max_words)
        return bt_fail(err, BT_ARG, "unexpected word '%s' behind '%s %s %s'",
                       words[1 + v->max_words], command, v->name, v->words);
    if (n_words - 1 < v->min_words)
        return bt_fail(err, BT_ARG, "'bitrain %s %s' needs %s", command, v->name, v->words);
    return v->run(cfg, words + 1, n_words - 1, err);
}

bt_code bt_verbs_paths(bt_text *out, const char *list, const char *const *words, size_t n,
                       bt_err *err) {
    bt_text_init(out);
    bt_text_put(out, list);
    for (size_t i = 0; i < n; i++) {
        if (strchr(words[i], '\n')) {
            bt_text_release(out);
            return bt_fail(err, BT_ARG, "a path may not hold a newline");
        }
        if (out->len) bt_text_put(out, "\n");
        bt_text_put(out, words[i]);
    }
    if (!out->failed) return BT_OK;
    bt_text_release(out);
    return bt_fail(err, BT_NOMEM, "cannot take memory for %zu paths", n);
}

static bool names_builtin(const char *paths) {
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
    if (!names_builtin(paths)) return BT_OK;
    bt_builtin_path(text, sizeof text, cache);
    return bt_builtin_make(text, err);
}

bt_code bt_verbs_may_write(const char *path, bool force, bt_err *err) {
    if (!*path) return bt_fail(err, BT_ARG, "no --out FILE given");
    if (force || access(path, F_OK) != 0) return BT_OK;
    return bt_fail(err, BT_BUSY, "'%s' exists already (--force replaces it)", path);
}
