/* checkpoint_folder.c - finds the checkpoint folder of a run; warns if older weights in it are better. */
#include "cli/model/checkpoint_folder.h"

#include <stdio.h>
#include <string.h>

#include "cli/common/database.h"
#include "cli/common/run_name.h"
#include "engine/base/log.h"
#include "engine/base/small.h"

bool bt_trained_split_best(const char *word, char *run, size_t size) {
    static const char suffix[] = "@best";
    const size_t n = strlen(word), s = sizeof suffix - 1;
    const bool best = n > s && strcmp(word + n - s, suffix) == 0;
    snprintf(run, size, "%.*s", (int)(best ? n - s : n), word);
    return best;
}

static bt_code read_best_folder(const char *run, char folder[PATH_MAX], bt_err *err) {
    if (bt_cli_best_folder(folder)) return BT_OK;
    return bt_fail(err, BT_NOTFOUND,
                   "run '%s' has no best checkpoint: none was validated (train.eval_every, "
                   "ckpt.keep_best), or '%s' was removed",
                   run, folder);
}

/* Warns that older weights of the run have a lower loss; once per run, even if a command reads its folder twice. */
static void warn_about_best(bt_db *db, const char *run) {
    static char reported[BT_NAME_MAX];
    char better[120];
    if (strcmp(reported, run) == 0 || !bt_cli_best_is_older(db, run, better, sizeof better)) return;
    snprintf(reported, sizeof reported, "%s", run);
    fprintf(stderr, "the newest weights of %s; %s@best has the lower loss: %s\n",
            bt_text_shown(run), bt_text_shown(run), better);
}

bt_code bt_trained_folder(const char *which, const char *store, char out[PATH_MAX], bt_err *err) {
    bt_db *db = NULL;
    char run[BT_NAME_MAX], run_name[BT_NAME_MAX];
    const bool best = bt_trained_split_best(which, run_name, sizeof run_name);
    bool is_path;
    BT_TRY(bt_run_or_path(store, which, run_name, &is_path, run, err));
    snprintf(out, PATH_MAX, "%s", is_path ? which : "");
    if (is_path) return BT_OK;
    BT_TRY(bt_cli_open(&db, store, err));
    bt_code code = bt_db_run_folder(db, run, out, PATH_MAX, err);
    if (code == BT_OK && !best) warn_about_best(db, run);
    bt_db_close(db);
    BT_TRY(code);
    if (out[0] && best) return read_best_folder(run, out, err);
    return out[0] ? BT_OK : bt_fail(err, BT_NOTFOUND, "run '%s' has no checkpoint folder", run);
}

bt_code bt_trained_check_newest(const bt_text *passed_over, const char *path, bool newest,
                                bt_err *err) {
    const char *lines = bt_text_str(passed_over);
    if (!lines[0]) return BT_OK;
    if (newest)
        return bt_fail(err, BT_FORMAT,
                       "%.*s: '%.120s' is older (--allow-older uses it, with a warning)",
                       (int)bt_min_size(strcspn(lines, "\n"), 260), lines, path);
    for (const char *end; *lines; lines = end + (*end == '\n')) {
        end = lines + strcspn(lines, "\n");
        bt_log(BT_LOG_WARN, "%.*s", (int)(end - lines), lines);
    }
    bt_log(BT_LOG_WARN, "these are the older weights of '%s'", path);
    return BT_OK;
}

void bt_trained_put_passed(const bt_text *passed_over, bt_json *j) {
    char line[480];
    const char *at = bt_text_str(passed_over);
    if (!at[0]) return;
    bt_json_array(j, "passed_over");
    for (const char *end; *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        bt_json_str(j, NULL, line);
    }
    bt_json_end(j, ']');
}
