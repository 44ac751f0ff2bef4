/* runs_verbs.c - the verbs of `bitrain runs`: rm, tag, note, rename, gc, repair, import. */
#include "cli/runs/runs_verbs.h"
#include "cli/common/printout/printout.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/common/progress.h"
#include "cli/common/run_folder.h"
#include "cli/runs/import_curves.h"
#include "engine/base/tables/metric.h"
#include "store/write/manage.h"

enum { NAMES_MAX = 64 };
#define WAIT_S 5.0

/* Removes repeated names, such as "last" beside the run's own, keeping the first; returns how many remain. */
static size_t remove_repeated_names(char names[][BT_NAME_MAX], size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < kept && strcmp(names[k], names[i]) != 0) k++;
        if (k == kept) memmove(names[kept++], names[i], BT_NAME_MAX);
    }
    return kept;
}

/* Resolves words to names of existing runs, so that a misspelt name is reported before anything changes. */
static bt_code resolve_run_names(const char *path, const char *const *words, size_t n,
                                 char names[][BT_NAME_MAX], bt_err *err) {
    bt_db *db = NULL;
    if (n == 0) return bt_fail(err, BT_ARG, "no run given (`bitrain runs` lists them)");
    if (n > NAMES_MAX) return bt_fail(err, BT_ARG, "at most %d runs at once", NAMES_MAX);
    BT_TRY(bt_db_open(&db, path, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < n && code == BT_OK; i++) code = bt_db_run(db, words[i], names[i], err);
    bt_db_close(db);
    return code;
}

typedef struct folders {
    char path[NAMES_MAX][PATH_MAX];
    size_t n;
    int checkpoints;
    int64_t bytes;
} folders;

static void add_run_folder(folders *f, const char *path) {
    int checkpoints;
    int64_t bytes;
    if (!path[0] || !bt_run_folder_measure(path, &checkpoints, &bytes)) return;
    snprintf(f->path[f->n++], PATH_MAX, "%s", path);
    f->checkpoints += checkpoints;
    f->bytes += bytes;
}

/* Asks again before deletion, because records can be restored only by training from a checkpoint. */
static bool may_delete(const folders *f, const bt_runs_verb_cfg *cfg) {
    char answer[8] = "", bytes[32];
    if (cfg->checkpoints) return true;
    if (cfg->yes || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return false;
    fprintf(stderr, "delete %d checkpoint%s as well, %s in '%s'%s? [y/N] ", f->checkpoints,
            f->checkpoints == 1 ? "" : "s",
            bt_metric_format(bytes, sizeof bytes, (double)f->bytes, BT_UNIT_BYTES),
            bt_text_shown(f->path[0]), f->n > 1 ? " and others" : "");
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* Removes the folders as well, because otherwise a new run could not have the same name. */
static bt_code remove_run_folders(const folders *f, const bt_runs_verb_cfg *cfg, bt_err *err) {
    char bytes[32];
    if (!f->n) return BT_OK;
    if (!may_delete(f, cfg)) {
        for (size_t i = 0; i < f->n; i++)
            fprintf(stderr,
                    "checkpoints remain in '%s' (to delete them: --checkpoints with `runs rm`, or "
                    "now: rm -r "
                    "'%s')\n",
                    bt_text_shown(f->path[i]), bt_text_shown(f->path[i]));
        return BT_OK;
    }
    for (size_t i = 0; i < f->n; i++) {
        bool left;
        BT_TRY(bt_run_folder_remove(f->path[i], &left, err));
        if (left)
            fprintf(stderr, "'%s' contains other files, which are kept\n",
                    bt_text_shown(f->path[i]));
    }
    printf("deleted %d checkpoint%s, %s\n", f->checkpoints, f->checkpoints == 1 ? "" : "s",
           bt_metric_format(bytes, sizeof bytes, (double)f->bytes, BT_UNIT_BYTES));
    return BT_OK;
}

static bt_code confirm_removal(size_t n, bool yes, bt_err *err) {
    char answer[8] = "";
    if (yes) return BT_OK;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return bt_fail(err, BT_BUSY, "removing %zu run%s for good needs --yes", n,
                       n == 1 ? "" : "s");
    fprintf(stderr, "remove the records of %zu run%s for good? [y/N] ", n, n == 1 ? "" : "s");
    if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
        return bt_fail(err, BT_BUSY, "nothing was removed");
    return BT_OK;
}

static bt_code run_rm(const char *path, const char *const *words, size_t n,
                      const bt_runs_verb_cfg *cfg, bt_err *err) {
    char names[NAMES_MAX][BT_NAME_MAX], folder[PATH_MAX];
    const char *list[NAMES_MAX];
    bt_db *db = NULL;
    BT_TRY(resolve_run_names(path, words, n, names, err));
    n = remove_repeated_names(names, n);
    BT_TRY(confirm_removal(n, cfg->yes, err));
    folders *f = calloc(1, sizeof *f);
    if (!f) return bt_fail(err, BT_NOMEM, "no memory for the folders of %zu runs", n);
    bt_code code = bt_db_open(&db, path, err);
    for (size_t i = 0; i < n && code == BT_OK; i++) {
        list[i] = names[i];
        code = bt_db_run_folder(db, list[i], folder, sizeof folder, err);
        if (code == BT_OK) add_run_folder(f, folder);
    }
    bt_db_close(db);
    if (code == BT_OK) code = bt_runs_remove(path, list, n, WAIT_S, err);
    if (code == BT_OK) printf("removed %zu run%s\n", n, n == 1 ? "" : "s");
    if (code == BT_OK) code = remove_run_folders(f, cfg, err);
    free(f);
    return code;
}

static bt_code run_tag(const char *path, const char *const *words, size_t n,
                       const bt_runs_verb_cfg *cfg, bt_err *err) {
    char name[1][BT_NAME_MAX], tags[256];
    (void)cfg;
    BT_TRY(resolve_run_names(path, words, n ? 1 : 0, name, err));
    BT_TRY(bt_run_tag(path, name[0], words + 1, n - 1, WAIT_S, tags, err));
    printf("%s: %s\n", bt_text_shown(name[0]), tags[0] ? bt_text_shown(tags) : "no tags");
    return BT_OK;
}

static bool print_note_cell(void *ctx, const bt_row *row) {
    const char *note = row->cells[0] ? row->cells[0] : "";
    if (!note[0])
        fprintf(stderr, "run '%s' has no note (bitrain runs note %s TEXT)\n", bt_text_shown(ctx),
                bt_text_shown(ctx));
    /* newlines are kept; an invalid byte becomes U+FFFD, which has three bytes */
    while (*note) {
        char line[BT_NOTE_MAX + 1], plain[3 * BT_NOTE_MAX + 1];
        const size_t n = strcspn(note, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, note);
        bt_text_plain(plain, sizeof plain, line);
        puts(plain);
        note += n + (note[n] == '\n');
    }
    return false;
}

static bt_code print_note(const char *path, const char *run, bt_err *err) {
    bt_db *db = NULL;
    char name[BT_NAME_MAX];
    snprintf(name, sizeof name, "%s", run);
    BT_TRY(bt_db_open(&db, path, err));
    bt_code code = bt_db_query(
        db,
        &(bt_query){.sql = "SELECT note FROM runs WHERE run = ?1", .params = &run, .n_params = 1},
        print_note_cell, name, err);
    bt_db_close(db);
    return code;
}

static bt_code run_note(const char *path, const char *const *words, size_t n,
                        const bt_runs_verb_cfg *cfg, bt_err *err) {
    char name[1][BT_NAME_MAX];
    bt_text text;
    BT_TRY(resolve_run_names(path, words, n ? 1 : 0, name, err));
    if (n == 1 && !cfg->clear) return print_note(path, name[0], err);
    if (n > 1 && cfg->clear) return bt_fail(err, BT_ARG, "--clear takes no text for the note");
    bt_text_init(&text);
    for (size_t i = 1; i < n; i++) bt_text_printf(&text, "%s%s", i > 1 ? " " : "", words[i]);
    bt_code code = text.failed ? bt_fail(err, BT_NOMEM, "no memory for the note")
                               : bt_run_note(path, name[0], bt_text_str(&text), WAIT_S, err);
    if (code == BT_OK) printf("%s: %s\n", bt_text_shown(name[0]), text.len ? "noted" : "no note");
    bt_text_release(&text);
    return code;
}

static bt_code run_rename(const char *path, const char *const *words, size_t n,
                          const bt_runs_verb_cfg *cfg, bt_err *err) {
    char name[1][BT_NAME_MAX];
    (void)cfg;
    if (n != 2) return bt_fail(err, BT_ARG, "rename needs two names: bitrain runs rename OLD NEW");
    BT_TRY(resolve_run_names(path, words, 1, name, err));
    BT_TRY(bt_run_rename(path, name[0], words[1], WAIT_S, err));
    printf("%s is %s now\n", name[0], words[1]);
    return BT_OK;
}

static bt_code run_gc(const char *path, const char *const *words, size_t n,
                      const bt_runs_verb_cfg *cfg, bt_err *err) {
    bt_gc_result r;
    bt_progress bar;
    char a[32], b[32];
    if (n) return bt_fail(err, BT_ARG, "'bitrain runs gc' takes no word, not '%.60s'", words[0]);
    const bt_gc_cfg gc = {.keep_rank_steps = cfg->keep_steps,
                          .rebuild = cfg->rebuild,
                          .compact = true,
                          .progress = {bt_progress_of, &bar}};
    bt_progress_begin(&bar, cfg->json);
    bt_code code = bt_store_gc(path, &gc, WAIT_S, &r, err);
    bt_progress_end(&bar);
    if (code != BT_OK) return code;
    bt_printout o;
    bt_printout_begin(&o, cfg->json);
    bt_printout_version(&o);
    bt_printout_int(&o, "orphan_rows", NULL, r.orphan_rows);
    bt_printout_int(&o, "rank_rows", NULL, r.rank_rows);
    bt_printout_int(&o, "bytes_before", NULL, r.bytes_before);
    bt_printout_int(&o, "bytes_after", NULL, r.bytes_after);
    bt_printout_line(&o, "%s -> %s; %lld old rank rows went, %lld rows of removed runs\n",
                     bt_metric_format(a, sizeof a, (double)r.bytes_before, BT_UNIT_BYTES),
                     bt_metric_format(b, sizeof b, (double)r.bytes_after, BT_UNIT_BYTES),
                     (long long)r.rank_rows, (long long)r.orphan_rows);
    return bt_printout_print(&o, err);
}

static bt_code run_repair(const char *path, const char *const *words, size_t n,
                          const bt_runs_verb_cfg *cfg, bt_err *err) {
    bt_repair_result r;
    bt_progress bar;
    const bt_store_progress progress = {bt_progress_of, &bar};
    if (n)
        return bt_fail(err, BT_ARG, "'bitrain runs repair' takes no word, not '%.60s'", words[0]);
    bt_progress_begin(&bar, cfg->json);
    bt_code code = bt_store_repair(path, WAIT_S, &progress, &r, err);
    bt_progress_end(&bar);
    if (code != BT_OK) return code;
    bt_printout o;
    bt_printout_begin(&o, cfg->json);
    bt_printout_version(&o);
    bt_printout_bool(&o, "sound", r.sound);
    bt_printout_str(&o, "moved_to", NULL, r.moved_to[0] ? r.moved_to : NULL);
    bt_printout_int(&o, "rows", NULL, r.rows);
    bt_printout_int(&o, "rows_of_backups", NULL, r.rows_of_backups);
    bt_printout_int(&o, "incomplete_tables", NULL, r.incomplete_tables);
    if (r.sound)
        bt_printout_line(&o, "nothing to repair: every page of '%s' is sound\n", path);
    else
        bt_printout_line(&o,
                         "%lld rows saved from the damaged file, %lld that only a backup had%s\n",
                         (long long)r.rows, (long long)r.rows_of_backups,
                         r.incomplete_tables ? "; some rows are lost" : "");
    if (!r.sound && r.moved_to[0])
        bt_printout_line(&o, "the damaged file is '%s' now\n", r.moved_to);
    return bt_printout_print(&o, err);
}

static bt_code run_import(const char *path, const char *const *words, size_t n,
                          const bt_runs_verb_cfg *cfg, bt_err *err) {
    if (n == 0)
        return bt_fail(
            err, BT_ARG,
            "no file given (TensorBoard's event files, CSV, trainer_state.json, or curves "
            "of 'bitrain bench learn --curves FILE')");
    if (cfg->name[0] && n > 1)
        return bt_fail(err, BT_ARG, "--name is for one file, and %zu are given", n);
    for (size_t i = 0; i < n; i++) BT_TRY(bt_curves_import(path, words[i], cfg->name, WAIT_S, err));
    return BT_OK;
}

static const struct {
    const char *name;
    bt_code (*run)(const char *path, const char *const *words, size_t n,
                   const bt_runs_verb_cfg *cfg, bt_err *err);
} verbs[] = {
    {"rm", run_rm}, {"tag", run_tag},       {"note", run_note},     {"rename", run_rename},
    {"gc", run_gc}, {"repair", run_repair}, {"import", run_import},
};

bool bt_runs_is_verb(const char *word) {
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(word, verbs[i].name) == 0) return true;
    }
    return false;
}

const char *bt_runs_nearest_verb(const char *word) {
    const char *names[sizeof verbs / sizeof verbs[0]];
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) names[i] = verbs[i].name;
    return bt_nearest(word, names, sizeof verbs / sizeof verbs[0]);
}

bt_code bt_runs_verb(const char *verb, const char *const *words, size_t n,
                     const bt_runs_verb_cfg *cfg, bt_err *err) {
    char path[1024];
    BT_TRY(bt_store_path(path, sizeof path, cfg->store, err));
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verb, verbs[i].name) == 0) return verbs[i].run(path, words, n, cfg, err);
    }
    return bt_fail(err, BT_ARG, "'bitrain runs' has no verb '%.40s'", verb);
}
