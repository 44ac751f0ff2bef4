/* run_name.c - names for runs that have none. */
#include "cli/common/run_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
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
