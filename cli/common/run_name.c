/* run_name.c - generates names of runs; resolves a word as a run in the database or as a path. */
#include "cli/common/run_name.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "store/store.h"

static const char *const adjectives[] = {
    "amber",  "bold",   "brave",  "brisk", "calm",   "clever", "coral",  "crisp",   "dapper",
    "eager",  "early",  "fair",   "fleet", "gentle", "glad",   "golden", "happy",   "hardy",
    "honest", "humble", "jolly",  "keen",  "kind",   "late",   "light",  "lively",  "lucky",
    "mellow", "merry",  "mild",   "neat",  "nimble", "noble",  "olive",  "patient", "plain",
    "polite", "proud",  "quick",  "quiet", "rapid",  "ready",  "silver", "sharp",   "shy",
    "simple", "sober",  "steady", "still", "stout",  "sunny",  "swift",  "tidy",    "trusty",
    "vivid",  "warm",   "wide",   "wise",  "witty",  "young"};
static const char *const nouns[] = {
    "ant",    "badger", "bear",  "beaver",  "bison",  "carp",   "cat",   "crane",  "crow",  "deer",
    "dingo",  "dove",   "duck",  "eagle",   "elk",    "falcon", "finch", "fox",    "frog",  "gecko",
    "goat",   "goose",  "hare",  "hawk",    "heron",  "horse",  "ibex",  "jay",    "koala", "lark",
    "lemur",  "lion",   "llama", "lynx",    "marten", "mole",   "moose", "moth",   "mouse", "newt",
    "otter",  "owl",    "panda", "pike",    "pony",   "puma",   "quail", "rabbit", "raven", "robin",
    "salmon", "seal",   "snail", "sparrow", "stork",  "swan",   "tiger", "toad",   "trout", "wolf"};

bt_code bt_run_make_name(const char *store, char name[BT_NAME_MAX], bt_err *err) {
    enum {
        A = sizeof adjectives / sizeof *adjectives,
        N = sizeof nouns / sizeof *nouns,
        TRIES = 200
    };
    bt_db *db = NULL;
    bt_err ignored = BT_ERR_INIT;
    double runs = 0;
    if (bt_db_open(&db, store, &ignored) == BT_OK &&
        bt_db_value(db, "SELECT count(*) FROM runs", "", &runs, &ignored) != BT_OK)
        runs = 0;
    const uint64_t seed = (uint64_t)bt_wall_us() ^ (uint64_t)getpid() << 40;
    bt_code code = BT_BUSY;
    for (uint64_t i = 0; i < TRIES && code == BT_BUSY; i++) {
        char taken[BT_NAME_MAX];
        uint64_t r = bt_splitmix64(seed + i), later = i / 20;
        snprintf(name, BT_NAME_MAX, "%s-%s-%.0f", adjectives[r % A], nouns[(r >> 20) % N],
                 runs + 1 + (double)later);
        if (!db || bt_db_run(db, name, taken, &ignored) == BT_NOTFOUND) code = BT_OK;
    }
    bt_db_close(db);
    return code == BT_OK
               ? BT_OK
               : bt_fail(err, BT_BUSY, "cannot make up a name that is free (give one with --name)");
}

static void list_checkpoints(const char *folder, bt_text *out) {
    enum { SHOWN = 8 };
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "step-", 5) != 0 || strchr(e->d_name, '.')) continue;
        if (n++ < SHOWN)
            bt_text_printf(out, "%s'%s/%s'", n == 1 ? ", and by path " : ", ", folder, e->d_name);
    }
    if (n > SHOWN) bt_text_printf(out, " and %d more", n - SHOWN);
    if (d) closedir(d);
}

/* If "book@30" was not found but the run "book" exists, replaces the error by one that lists the valid suffixes. */
static void explain_suffix(bt_db *db, const char *word, bt_err *why) {
    char name[BT_NAME_MAX], run[BT_NAME_MAX], folder[PATH_MAX], best[PATH_MAX];
    const char *at = strrchr(word, '@');
    bt_err ignored = BT_ERR_INIT;
    bt_text list = {0};
    if (!at || at - word >= BT_NAME_MAX) return;
    snprintf(name, sizeof name, "%.*s", (int)(at - word), word);
    if (bt_db_run(db, name, run, &ignored) != BT_OK ||
        bt_db_run_folder(db, run, folder, sizeof folder, &ignored) != BT_OK)
        return;
    snprintf(best, sizeof best, "%s", folder);
    const bool has_best = bt_cli_best_folder(best);
    list_checkpoints(folder, &list);
    bt_fail(why, BT_NOTFOUND,
            "run '%s' has no '%.40s': its checkpoints are '%s' (the newest)%s%s%s%.500s", run, at,
            run, has_best ? ", '" : "", has_best ? run : "", has_best ? "@best'" : "",
            bt_text_str(&list));
    bt_text_release(&list);
}

bt_code bt_run_or_path(const char *store, const char *word, const char *name, bool *is_path,
                       char run[BT_NAME_MAX], bt_err *err) {
    static char reported[BT_NAME_MAX]; /* a command that resolves a word twice reports it once */
    struct stat st;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    *is_path = strchr(word, '/') != NULL;
    if (*is_path) return BT_OK;
    const bool exists = strcmp(word, "last") != 0 && stat(word, &st) == 0;
    bt_code code = bt_cli_open(&db, store, &why);
    if (code == BT_OK) code = bt_db_run(db, name, run, &why);
    if (code == BT_OK && exists && strcmp(reported, run) != 0) {
        snprintf(reported, sizeof reported, "%s", run);
        fprintf(stderr,
                "'%s' is taken as the run of that name, not as the %s here (write './%s')\n", word,
                S_ISDIR(st.st_mode) ? "folder" : "file", word);
    }
    *is_path = code != BT_OK && exists;
    if (*is_path) code = BT_OK;
    if (code == BT_NOTFOUND && db && strchr(word, '.') && !strchr(word, '@'))
        bt_fail(&why, code,
                "there is neither a file nor a run '%.200s' (`bitrain runs` lists runs)", word);
    else if (code == BT_NOTFOUND && db)
        explain_suffix(db, word, &why);
    bt_db_close(db);
    if (code != BT_OK && err) *err = why;
    return code;
}
