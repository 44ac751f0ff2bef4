/* path.c - location of the database. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sql/sql.h"
#include "store/store.h"

bt_code bt_store_path(char *out, size_t size, const char *given, bt_err *err) {
    const char *env = getenv("BITRAIN_STORE"), *data = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    int n;
    if (given && given[0])
        n = snprintf(out, size, "%s", given);
    else if (env && env[0])
        n = snprintf(out, size, "%s", env);
    else if (data && data[0] == '/')
        n = snprintf(out, size, "%s/bitrain/bitrain.db", data);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.local/share/bitrain/bitrain.db", home);
    else
        return bt_fail(err, BT_ARG,
                       "no place for the metrics database: neither HOME nor XDG_DATA_HOME is set "
                       "(use --store FILE)");
    if (n < 0 || (size_t)n >= size || n >= BT_PATH_BYTES - 16)
        return bt_fail(err, BT_ARG,
                       "path of the metrics database is too long (%d bytes, at most %d)", n,
                       BT_PATH_BYTES - 17);
    if (strncmp(out, "file:", 5) == 0 || strcmp(out, ":memory:") == 0)
        return bt_fail(err, BT_ARG, "'%s' is not a file path (use --store FILE)", out);
    return BT_OK;
}

static void put_shell_word(bt_text *out, const char *word) {
    if (word[0] && strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_./:@%+=,-") == strlen(word)) {
        bt_text_put(out, word);
        return;
    }
    bt_text_put(out, "'");
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            bt_text_put(out, "'\\''");
        else
            bt_text_putn(out, p, 1);
    bt_text_put(out, "'");
}

void bt_store_flag(bt_text *out, const char *path) {
    char usual[BT_PATH_BYTES];
    const char *env = getenv("BITRAIN_STORE");
    bt_err ignored = BT_ERR_INIT;
    if (!(env && env[0]) && bt_store_path(usual, sizeof usual, "", &ignored) == BT_OK &&
        strcmp(usual, path) == 0)
        return;
    bt_text_put(out, " --store ");
    put_shell_word(out, path);
}

bool bt_checkpoint_there(const char *path) {
    char manifest[PATH_MAX + 16];
    if (!path || !path[0]) return false;
    snprintf(manifest, sizeof manifest, "%.*s/manifest.json", PATH_MAX, path);
    return access(manifest, F_OK) == 0;
}
