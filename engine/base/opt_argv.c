/* opt_argv.c - parses an argument vector by an option table. */
#include "engine/base/opt.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/opt_private.h"

typedef struct scan { /* remaining words of the argument vector */
    int argc, at;
    char *const *argv;
} scan;

static bool looks_like_option(const char *word) {
    return word[0] == '-' && word[1] != '\0' && !(word[1] >= '0' && word[1] <= '9') &&
           word[1] != '.';
}

/* "-o" and "--out" are the same option in every table. */
static bool is_flag(const char *flag, const char *word, size_t n) {
    if (strlen(flag) == n && strncmp(flag, word, n) == 0) return true;
    return n == 2 && strncmp(word, "-o", n) == 0 && strcmp(flag, "--out") == 0;
}

/* Returns the index of the option with the first n letters of word; o->n: none. *negated: it is --no-FLAG. */
static size_t find_flag(const bt_opts *o, const char *word, size_t n, bool *negated) {
    *negated = false;
    for (size_t i = 0; i < o->n; i++)
        if (o->table[i].flag && is_flag(o->table[i].flag, word, n)) return i;
    if (n > 5 && strncmp(word, "--no-", 5) == 0)
        for (size_t i = 0; i < o->n; i++) {
            const char *flag = o->table[i].flag;
            if (!flag || o->table[i].type != BT_OPT_BOOL || strlen(flag) != n - 3) continue;
            if (strncmp(flag + 2, word + 5, n - 5) == 0) {
                *negated = true;
                return i;
            }
        }
    return o->n;
}

/* Suggests the equivalent of an option of another program, such as "--learning-rate", or reports why there is none.
 * Returns false if no such option is known. */
static bool suggest_for_foreign_flag(const bt_opts *o, const char *given, const char *shown,
                                     bt_err *err) {
    char key[72];
    size_t n = 0;
    for (const char *c = given + 2; *c && n + 1 < sizeof key; c++) key[n++] = *c == '-' ? '_' : *c;
    key[n] = '\0';
    for (size_t i = 0; i < o->n_aliases; i++) {
        const bt_opt_alias *a = &o->aliases[i];
        if (strcmp(a->key, key) != 0) continue;
        const size_t k = bt_opt_find(o->table, o->n, a->ours);
        if (k == o->n)
            bt_fail(err, BT_ARG, "unknown option '%s'%s%s", shown,
                    *a->why ? ": it " : " of another program", a->why);
        else if (o->table[k].flag)
            bt_fail(err, BT_ARG, "unknown option '%s' (did you mean '%s'?)", shown,
                    o->table[k].flag);
        else
            bt_fail(err, BT_ARG, "unknown option '%s' (did you mean '--set %s=VALUE'?)", shown,
                    a->ours);
        return true;
    }
    return false;
}

static bt_code fail_unknown_flag(const bt_opts *o, const char *word, size_t n, bt_err *err) {
    char given[72], shown[72];
    const char *flags[BT_OPT_MAX + 2];
    size_t count = 0;
    snprintf(given, sizeof given, "%.*s", (int)(n < sizeof given ? n : sizeof given - 1), word);
    bt_text_plain(shown, sizeof shown, given);
    for (size_t i = 0; i < o->n; i++)
        if (o->table[i].flag) flags[count++] = o->table[i].flag;
    if (strncmp(given, "--", 2) == 0 && suggest_for_foreign_flag(o, given, shown, err))
        return BT_ARG;
    flags[count++] = "--help";
    flags[count++] = "--set";
    for (size_t i = 0; i < o->n_removed; i++)
        if (strcmp(o->removed[i].key, given) == 0)
            return bt_fail(err, BT_ARG, "%s was removed (%s)", given, o->removed[i].remedy);
    for (size_t i = 0; i < o->n_other; i++)
        if (o->other_table[i].flag && strcmp(o->other_table[i].flag, given) == 0)
            return bt_fail(err, BT_ARG, "unknown option '%s' (%s)", shown, o->other_hint);
    const char *near = bt_nearest(given, flags, count);
    if (near) return bt_fail(err, BT_ARG, "unknown option '%s' (did you mean '%s'?)", shown, near);
    if (strncmp(given, "--", 2) == 0) {
        const char *key = bt_opt_nearest(o->table, o->n, given + 2);
        if (key)
            return bt_fail(err, BT_ARG, "unknown option '%s' (did you mean '--set %s=VALUE'?)",
                           shown, key);
    }
    return bt_fail(err, BT_ARG, "unknown option '%s' ('--help' lists the options)", shown);
}

static bt_code set_pair(bt_opts *o, const char *pair, bt_err *err) {
    char key[96], shown[96];
    const char *eq = strchr(pair, '=');
    bt_text_plain(shown, sizeof shown, pair);
    if (!eq) return bt_fail(err, BT_ARG, "--set needs KEY=VALUE, not '%s'", shown);
    if ((size_t)(eq - pair) >= sizeof key)
        return bt_fail(err, BT_ARG, "unknown option '%s'", shown);
    memcpy(key, pair, (size_t)(eq - pair));
    key[eq - pair] = '\0';
    return bt_opts_set(o, key, eq + 1, BT_FROM_SET, "--set", err);
}

/* Lists are stored with one word per line, so a word may not contain a line feed. */
static bt_code check_single_line(const bt_opt *opt, const char *word, bt_err *err) {
    char shown[200];
    if (!strchr(word, '\n')) return BT_OK;
    bt_text_plain(shown, sizeof shown, word);
    return bt_fail(err, BT_ARG,
                   "%s: the name '%s' contains a line feed, which a list cannot store: rename the "
                   "file, or pass its folder",
                   opt->flag, shown);
}

/* Appends the words up to the next option to the value of a list option; a repeated flag appends further words. */
static bt_code set_list(bt_opts *o, size_t i, const char *given, scan *s, bt_err *err) {
    const bt_opt *opt = &o->table[i];
    bt_text items;
    bt_text_init(&items);
    if (o->origin[i] == BT_FROM_FLAG) bt_opt_value(o, i, &items);
    size_t before = items.len;
    bt_code code = given ? check_single_line(opt, given, err) : BT_OK;
    for (int k = s->at; !given && code == BT_OK && k < s->argc && !looks_like_option(s->argv[k]);
         k++)
        code = check_single_line(opt, s->argv[k], err);
    if (code != BT_OK) {
        bt_text_release(&items);
        return code;
    }
    if (given)
        bt_text_printf(&items, "%s%s", items.len ? "\n" : "", given);
    else
        for (; s->at < s->argc && !looks_like_option(s->argv[s->at]); s->at++)
            bt_text_printf(&items, "%s%s", items.len ? "\n" : "", s->argv[s->at]);
    code = items.failed
               ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the words of %s", opt->flag)
           : items.len == before
               ? bt_fail(err, BT_ARG, "%s needs at least one value", opt->flag)
               : bt_opts_set(o, opt->key, bt_text_str(&items), BT_FROM_FLAG, opt->flag, err);
    bt_text_release(&items);
    return code;
}

static bt_code set_flag(bt_opts *o, const char *word, scan *s, bt_err *err) {
    const char *eq = strchr(word, '=');
    size_t n = eq ? (size_t)(eq - word) : strlen(word);
    const char *value = eq ? eq + 1 : NULL;
    if (n == 5 && strncmp(word, "--set", 5) == 0) {
        if (!value && s->at < s->argc) value = s->argv[s->at++];
        if (!value) return bt_fail(err, BT_ARG, "--set needs KEY=VALUE");
        return set_pair(o, value, err);
    }
    bool negated;
    size_t i = find_flag(o, word, n, &negated);
    if (i == o->n) {
        /* the word after an unknown option is its value, not a second error */
        if (o->faults && !value && s->at < s->argc && !looks_like_option(s->argv[s->at])) s->at++;
        return fail_unknown_flag(o, word, n, err);
    }
    const bt_opt *opt = &o->table[i];
    if (negated && value) return bt_fail(err, BT_ARG, "%.*s takes no value", (int)n, word);
    if (opt->type == BT_OPT_LIST) return set_list(o, i, value, s, err);
    if (opt->type == BT_OPT_BOOL && !value) value = negated ? "false" : "true";
    if (!value && s->at < s->argc && !looks_like_option(s->argv[s->at])) value = s->argv[s->at++];
    if (!value)
        return bt_fail(err, BT_ARG, "%s needs a value (%s)", opt->flag, bt_opt_argument(opt));
    return bt_opts_set(o, opt->key, value, BT_FROM_FLAG, opt->flag, err);
}

bt_code bt_opts_argv(bt_opts *o, int argc, char *const *argv, const char **positional,
                     size_t max_pos, size_t *n_pos, bool *help, bt_err *err) {
    scan s = {argc, 0, argv};
    bool options_ended = false;
    *n_pos = 0;
    *help = false;
    while (s.at < argc) {
        const char *word = argv[s.at++];
        if (!options_ended && strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            *help = true;
            return BT_OK;
        } else if (!options_ended && looks_like_option(word)) {
            BT_TRY(bt_opts_fault(o, set_flag(o, word, &s, err), err));
        } else if (*n_pos == max_pos) {
            char shown[96];
            bt_text_plain(shown, sizeof shown, word);
            return bt_fail(err, BT_ARG, "unexpected word '%s' (%s)", shown,
                           o->word_hint ? o->word_hint : "--help lists the arguments");
        } else {
            positional[(*n_pos)++] = word;
        }
    }
    return BT_OK;
}
