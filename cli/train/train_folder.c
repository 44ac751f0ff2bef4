/* train_folder.c - files of a run: absolute paths, output folder, cache, built-in corpus. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "cli/common/skipped.h"
#include "cli/train/train_parts.h"
#include "engine/ckpt/ckpt.h"
#include "engine/data/io/sources.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/train/data/run_data.h"
#include "monitor/job/launch/builtin.h"
#include "monitor/job/run_lock.h"

/* long enough for ranks that save a large model before they exit */
enum { LOCK_WAIT_S = 60 };

/* Makes the paths of a setting absolute, so that they are valid in any folder. Words that are not a file or folder
 * here ("builtin", "synth:chain") remain unchanged. */
static bt_code make_absolute(bt_train_plan *p, const char *key, bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, key);
    char path[PATH_MAX];
    bt_text old, now;
    bt_text_init(&old);
    bt_text_init(&now);
    bt_opt_value(&p->opts, i, &old);
    bt_code code = BT_OK;
    char *rest = NULL;
    for (char *w = old.len ? strtok_r(old.data, "\n", &rest) : NULL; w && code == BT_OK;
         w = strtok_r(NULL, "\n", &rest)) {
        const bool word = strcmp(w, "builtin") == 0 || strcmp(w, "bytes") == 0 ||
                          strcmp(w, "auto") == 0;
        if (word || access(w, F_OK) != 0)
            snprintf(path, sizeof path, "%s", w);
        else
            code = bt_absolute_path(w, path, err);
        bt_text_printf(&now, "%s%s", now.len ? "\n" : "", path);
    }
    char where[sizeof p->opts.where[0]];
    memcpy(where, p->opts.where[i], sizeof where);
    if (code == BT_OK && now.len)
        code = bt_opts_set(&p->opts, key, bt_text_str(&now), p->opts.origin[i], where, err);
    bt_text_release(&old);
    bt_text_release(&now);
    return code;
}

bt_code bt_train_cache(const bt_train_plan *p, char out[PATH_MAX], bt_err *err) {
    if (p->cfg.data.cache[0]) return bt_absolute_path(p->cfg.data.cache, out, err);
    if (bt_cli_beside(out, sizeof p->cfg.data.cache, p->store, "cache")) return BT_OK;
    return bt_fail(err, BT_ARG, "folder '%.200s' is too long", out);
}

bt_code bt_train_out(const bt_train_plan *p, const char *run, char out[PATH_MAX], bt_err *err) {
    char name[BT_NAME_MAX + 8];
    if (p->cfg.run.out[0]) return bt_absolute_path(p->cfg.run.out, out, err);
    snprintf(name, sizeof name, "runs/%s", run);
    const size_t room = sizeof p->out < sizeof p->cfg.run.out ? sizeof p->out
                                                              : sizeof p->cfg.run.out;
    if (bt_cli_beside(out, room, p->store, name)) return BT_OK;
    return bt_fail(err, BT_ARG, "folder '%.200s' is too long", out);
}

bt_code bt_train_choose_folder(bt_train_plan *p, bt_err *err) {
    static const char *const files[] = {"data.path",  "data.val_path",   "data.tokenizer",
                                        "data.cache", "model.init_from", "tune.base",
                                        "tune.logits"};
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !p->cfg.run.print_config; i++)
        BT_TRY(make_absolute(p, files[i], err));
    char cache[PATH_MAX];
    if (!p->out[0]) BT_TRY(bt_train_out(p, p->run, p->out, err));
    BT_TRY(bt_opts_set(&p->opts, "run.out", p->out, BT_FROM_FLAG, "auto", err));
    if (strcmp(p->cfg.run.name, p->run) != 0) /* keeps the origin of a name that the user gave */
        BT_TRY(bt_opts_set(&p->opts, "run.name", p->run, BT_FROM_FLAG, "auto", err));
    if (p->cfg.data.cache[0]) return BT_OK;
    BT_TRY(bt_train_cache(p, cache, err));
    return bt_opts_set(&p->opts, "data.cache", cache, BT_FROM_FLAG, "auto", err);
}

/* Finds the topmost folder of the absolute `path` that does not exist; "" if all exist. */
static void find_topmost_missing_folder(const char *path, char out[PATH_MAX]) {
    out[0] = '\0';
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    while (part[1] && access(part, F_OK) != 0) {
        memcpy(out, part, strlen(part) + 1);
        char *slash = strrchr(part, '/');
        if (!slash || slash == part) return;
        *slash = '\0';
    }
}

bt_code bt_train_lock(bt_train_plan *p, bt_err *err) {
    if (p->run_lock >= 0 || p->cfg.run.print_config || p->cfg.run.dry_run ||
        bt_comm_rank(bt_comm_world()) != 0)
        return BT_OK;
    find_topmost_missing_folder(p->out, p->out_made);
    BT_TRY(bt_ckpt_prepare(p->out, !p->resume && !p->from.dir[0], err));
    return bt_run_lock(&p->run_lock, p->out, p->run, LOCK_WAIT_S, err);
}

static const char *const lock_files[] = {"attempt.lock", "run.lock"};

static bool holds_locks_alone(const char *folder) {
    DIR *d = opendir(folder);
    bool alone = d != NULL;
    for (struct dirent *e; alone && (e = readdir(d));)
        alone = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                strcmp(e->d_name, lock_files[0]) == 0 || strcmp(e->d_name, lock_files[1]) == 0;
    if (d) closedir(d);
    return alone;
}

void bt_train_unmake_out(bt_train_plan *p) {
    char path[PATH_MAX + 16];
    bt_err busy = BT_ERR_INIT;
    if (!p->out_made[0]) return;
    if (holds_locks_alone(p->out) &&
        (p->run_lock >= 0 || bt_run_lock(&p->run_lock, p->out, p->run, 0, &busy) == BT_OK))
        for (size_t i = 0; i < sizeof lock_files / sizeof *lock_files; i++) {
            snprintf(path, sizeof path, "%s/%s", p->out, lock_files[i]);
            unlink(path);
        }
    /* rmdir does not remove folders with contents, and folders that could not be created do not exist */
    snprintf(path, sizeof path, "%s", p->out);
    while (rmdir(path) == 0 || errno == ENOENT || errno == ENAMETOOLONG) {
        if (strlen(path) <= strlen(p->out_made)) break;
        *strrchr(path, '/') = '\0';
    }
    p->out_made[0] = '\0';
}

bt_code bt_train_corpus(const bt_train_plan *p, bt_err *err) {
    char path[PATH_MAX], cache[PATH_MAX];
    if (p->cfg.data.path[0] && !bt_names_builtin(p->cfg.data.path) &&
        !bt_names_builtin(p->cfg.data.val_path))
        return BT_OK;
    BT_TRY(bt_train_cache(p, cache, err));
    bt_builtin_path(path, sizeof path, cache);
    return bt_builtin_make(path, err);
}

typedef struct split_size {
    int64_t tokens, counted, epoch_tokens;
} split_size;

/* Opens the data like rank 0, so that missing, binary or too short data are reported in one line before a run is
 * recorded and a job started. The tokenised text is then in the cache, where all ranks find it. */
static bt_code open_data_split(const bt_run_cfg *c, bt_split split, split_size *out, bt_err *err) {
    bt_loader *loader = NULL;
    bt_progress bar;
    const int all = (int)(c->train.batch_tokens / c->model.seq_len),
              mine = split == BT_SPLIT_TRAIN ? all : 1;
    bt_loader_cfg cfg = bt_run_data(c);
    cfg.progress = bt_progress_tokenising;
    cfg.ctx = &bar;
    cfg.split = split;
    cfg.B = 1;
    cfg.sequences_per_step = cfg.n_sequences = mine;
    bt_progress_begin(&bar, c->run.quiet || c->run.json);
    bt_code code = bt_loader_open(&loader, &cfg, err);
    bt_progress_end(&bar);
    BT_TRY(code);
    /* The ranks of a training record these notes as events. */
    const bool own_files = split == BT_SPLIT_TRAIN || c->data.val_path[0];
    if (c->run.dry_run && !c->run.quiet && own_files)
        bt_cli_print_data_notes(bt_loader_notes(loader));
    const int64_t sequences = bt_loader_sequences(loader);
    const bool of_tokens = c->data.form > BT_FORMED_TEXT && c->data.form < BT_FORMED_PREFERENCE;
    *out = (split_size){
        .tokens = bt_loader_tokens(loader),
        .counted = of_tokens && sequences > 0 ? bt_loader_counted_in(loader, 0, sequences) : -1,
        .epoch_tokens = sequences < 0 ? -1 : sequences * c->model.seq_len};
    bt_loader_close(loader);
    return BT_OK;
}

bt_code bt_train_tokens(const bt_train_plan *p, int64_t *out, bt_err *err) {
    char cache[PATH_MAX];
    split_size all = {0};
    bt_run_cfg *c = malloc(sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    *c = p->cfg;
    c->data.val_frac = 0;
    c->data.packing = BT_PACKED_STREAM;
    c->run.dry_run = false; /* the notes are printed once */
    c->model.seq_len = c->train.batch_tokens = 8;
    bt_code code = bt_train_cache(p, cache, err);
    if (code == BT_OK && strlen(cache) < sizeof c->data.cache)
        memcpy(c->data.cache, cache, strlen(cache) + 1);
    if (code == BT_OK) code = open_data_split(c, BT_SPLIT_TRAIN, &all, err);
    *out = all.tokens;
    free(c);
    return code;
}

bt_code bt_train_sequences(const bt_train_plan *p, const bt_run_cfg *c, int64_t *out, bt_err *err) {
    split_size train;
    BT_TRY(bt_train_corpus(p, err));
    BT_TRY(open_data_split(c, BT_SPLIT_TRAIN, &train, err));
    *out = train.epoch_tokens < 0 ? -1 : train.epoch_tokens / c->model.seq_len;
    return BT_OK;
}

/* Lists the files found in folders, which may contain more than the user intended. */
static void list_found_files(const bt_sources *s, const char *words) {
    enum { SHOWN = 6 };
    bt_text names = {0};
    size_t n_words = *words != '\0';
    for (const char *w = words; *w; w++) n_words += *w == '\n';
    if (s->n <= n_words) return;
    for (size_t i = 0; i < s->n && i < SHOWN; i++) {
        char plain[200];
        bt_text_plain(plain, sizeof plain, s->items[i].path);
        bt_text_printf(&names, "%s%s", i ? ", " : "", plain);
    }
    fprintf(stderr, "note: data of %zu files: %s%s\n", s->n, bt_text_str(&names),
            s->n > SHOWN ? ", ..." : "");
    bt_text_release(&names);
}

/* Called once, by the process that starts the ranks, because they skip the same files. */
static bt_code report_skipped_sources(const bt_run_cfg *c, bt_err *err) {
    const char *const lists[] = {c->data.path, c->data.val_path};
    for (size_t i = 0; i < 2; i++) {
        bt_sources found;
        if (!lists[i][0]) continue;
        BT_TRY(bt_sources_list_glob(&found, lists[i], c->data.glob, c->data.cache, err));
        if (!c->run.quiet) list_found_files(&found, lists[i]);
        if (!c->run.quiet) bt_cli_report_skipped(&found);
        bt_sources_release(&found);
    }
    return BT_OK;
}

/* Reports the tokens that the tokenizer puts around each document; conversations use those of their template. */
static bt_code report_tokenizer_affixes(const bt_run_cfg *c, bt_err *err) {
    const bool texts = c->data.form == BT_FORM_TEXT || c->data.form == BT_FORM_COMPLETION ||
                       c->data.form == BT_FORM_LABEL;
    bt_tokenizer *t;
    bt_text around = {0};
    if (c->run.quiet || c->run.json || !texts || strncmp(c->data.path, "synth:", 6) == 0)
        return BT_OK;
    BT_TRY(bt_tokenizer_load(&t, c->data.tokenizer[0] ? c->data.tokenizer : "bytes", err));
    bt_tokenizer_describe_affixes(t, &around);
    if (around.len)
        fprintf(stderr,
                "data       each document %s, as the tokenizer's post-processor puts them\n",
                bt_text_str(&around));
    bt_text_release(&around);
    bt_tokenizer_free(t);
    return BT_OK;
}

/* FEW_TOKENS: validation tokens below which a note reports the loss as uncertain. MANY_PASSES: number of passes from
 * which a note announces memorising; more than 40 improve nothing (arXiv:2305.16264). */
enum { FEW_TOKENS = 8192, MANY_PASSES = 40 };
/* Assumed standard deviation of a token's loss in nats, typical of bytes and short tokens. */
static const double TOKEN_DEVIATION = 2;

/* Prints what to expect from little data. */
static void note_little_text(const bt_run_cfg *c, const bt_train_data *d) {
    const double passes = d->epoch_tokens > 0
                              ? (double)bt_run_cfg_tokens(c) / (double)d->epoch_tokens
                              : 0;
    const double judged = fmin((double)d->val_tokens, (double)c->train.eval_tokens);
    if (c->run.quiet || c->run.json || c->data.form != BT_FORMED_TEXT) return;
    if (d->val_tokens > 0 && judged < FEW_TOKENS)
        fprintf(stderr,
                "note: validation has %.0f tokens, so its loss is uncertain by about %.2f nats: it "
                "cannot distinguish runs that are closer than that (more text, or --val-data)\n",
                judged, TOKEN_DEVIATION / sqrt(judged));
    if (passes >= MANY_PASSES && !c->train.stop_when)
        fprintf(stderr,
                "note: the run reads its text %.0f times and will memorise it: RUN@best has the "
                "weights before that, and train.stop_when=3 ends the run then\n",
                passes);
}

bt_code bt_train_inputs(const bt_train_plan *p, bt_train_data *data, bt_err *err) {
    bt_train_data all = {0};
    const bt_run_cfg *c = &p->cfg;
    bt_db *db = NULL;
    /* An invalid database must be refused before a run's folder is created. */
    if (!c->run.no_monitor) {
        bt_code code = bt_db_open(&db, p->store, err);
        bt_db_close(db);
        if (code != BT_OK && code != BT_NOTFOUND) return code;
    }
    BT_TRY(bt_train_corpus(p, err));
    if (data) *data = all;
    if (c->launch.hosts[0]) return BT_OK; /* the ranks' disks are on other hosts */
    BT_TRY(report_skipped_sources(c, err));
    BT_TRY(report_tokenizer_affixes(c, err));
    split_size train, val = {0};
    BT_TRY(open_data_split(c, BT_SPLIT_TRAIN, &train, err));
    if (c->data.val_frac > 0 || c->data.val_path[0])
        BT_TRY(open_data_split(c, BT_SPLIT_VAL, &val, err));
    all = (bt_train_data){.seen = true,
                          .tokens = train.tokens,
                          .counted = train.counted,
                          .epoch_tokens = train.epoch_tokens,
                          .val_tokens = val.tokens,
                          .val_counted = val.counted};
    if (!p->resume) note_little_text(c, &all);
    if (data) *data = all;
    return BT_OK;
}
