/* train_resume.c - `--resume`: finds the run and its checkpoint, and adopts the stored settings. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/given_path.h"
#include "cli/common/run_name.h"
#include "cli/train/train_parts.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/ckpt/memory/memory_state.h"
#include "engine/ckpt/state.h"
#include "engine/config/rank_setup.h"
#include "engine/config/setting_scope.h"

/* Reads a value in either form: plain text, or {"value": ..., "origin": ..., "where": "auto"}. Returns false for an
 * automatic value unless `found` is true. */
static bool read_stored_value(const json_t *v, bool found, bt_text *out) {
    bt_text_clear(out);
    if (json_is_object(v)) {
        const char *where = json_string_value(json_object_get(v, "where"));
        if (where && strcmp(where, "auto") == 0 && !found) return false;
        v = json_object_get(v, "value");
    }
    if (json_is_string(v))
        bt_text_put_bytes(out, json_string_value(v));
    else if (json_is_boolean(v))
        bt_text_put(out, json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        bt_text_printf(out, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        bt_text_printf(out, "%.17g", json_real_value(v));
    else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) bt_text_put(out, "\n");
            bt_text_put_bytes(out, json_string_value(json_array_get(v, i)));
        }
    } else
        return false;
    return !out->failed;
}

static bool same_setting_value(const char *a, const char *b) {
    char *ea = NULL, *eb = NULL;
    const double x = strtod(a, &ea), y = strtod(b, &eb);
    return strcmp(a, b) == 0 || (*a && *b && !*ea && !*eb && x == y);
}

/* The weights determine the model's shape, and the states the optimizer: the stored value may be repeated but not
 * changed. */
static bt_code check_fixed_setting(const bt_train_plan *p, size_t i, const char *stored,
                                   bt_err *err) {
    const bt_opt *opt = &p->opts.table[i];
    if (bt_setting_scope_of(opt->key).resumes != BT_SETTING_FIXED ||
        p->opts.origin[i] < BT_FROM_SET)
        return BT_OK;
    bt_text now;
    bt_text_init(&now);
    bt_opt_value(&p->opts, i, &now);
    bt_code code = BT_OK;
    if (!same_setting_value(bt_text_str(&now), stored))
        code = bt_fail(err, BT_BUSY,
                       "%s is %s in run '%s' and cannot become %s when it is resumed (a new run "
                       "can start from its weights: --set model.init_from=DIR)",
                       opt->key, stored, p->run, bt_text_str(&now));
    bt_text_release(&now);
    return code;
}

/* ---- placement ------------------------------------------------------------------------------- */

/* True if this command sets a value on which this one depends: a new layout determines the number of ranks, a new
 * number of ranks the threads. */
static bool is_placement_given(const bt_train_plan *p, const char *key) {
    static const char *const layout[] = {"mesh.pp", "mesh.dp_replicate", "mesh.dp_shard",
                                         "mesh.tp"};
    if (bt_opts_given(&p->opts, key)) return true;
    if (strcmp(key, "launch.threads") == 0) return bt_opts_given(&p->opts, "launch.ranks");
    bool told = false;
    if (strcmp(key, "launch.ranks") == 0)
        for (size_t i = 0; i < sizeof layout / sizeof layout[0]; i++)
            told |= bt_opts_given(&p->opts, layout[i]);
    return told;
}

/* To be called before other settings are adopted, while `given` still describes this call. Keeps the adopted values for
 * the greeting. */
static bt_code adopt_placement(bt_train_plan *p, const json_t *config, bt_err *err) {
    bt_text value;
    bool take[BT_OPT_MAX] = {false};
    for (size_t i = 0; i < p->opts.n; i++) {
        const char *key = p->opts.table[i].key;
        take[i] = bt_setting_scope_of(key).resumes == BT_SETTING_PLACED &&
                  !is_placement_given(p, key);
    }
    bt_text_init(&value);
    bt_code code = BT_OK;
    for (size_t i = 0; i < p->opts.n && code == BT_OK; i++) {
        const bt_opt *opt = &p->opts.table[i];
        if (!take[i] || !read_stored_value(json_object_get(config, opt->key), false, &value))
            continue;
        if (same_setting_value(bt_text_str(&value), opt->def)) continue;
        code = bt_opts_set(&p->opts, opt->key, bt_text_str(&value), BT_FROM_ENV, "the run's record",
                           err);
        bt_text_printf(&p->place, "%s%s %s", p->place.len ? " " : "",
                       opt->flag ? opt->flag : opt->key, bt_text_str(&value));
    }
    bt_text_release(&value);
    return code;
}

static bt_code add_stored_setting(bt_train_plan *p, const json_t *config, bool all_final,
                                  bt_err *err) {
    bt_text value;
    bt_text_init(&value);
    bt_code code = BT_OK;
    for (size_t i = 0; i < p->opts.n && code == BT_OK; i++) {
        const char *key = p->opts.table[i].key;
        const json_t *v = json_object_get(config, key);
        const bt_setting_resumes resumes = bt_setting_scope_of(key).resumes;
        if (!v || resumes == BT_SETTING_ANEW || resumes == BT_SETTING_PLACED) continue;
        /* in the flat list of a checkpoint every automatic value is final */
        if (all_final && (resumes == BT_SETTING_FOUND || resumes == BT_SETTING_PLANNED)) continue;
        if (!read_stored_value(v, resumes == BT_SETTING_BEGUN, &value)) continue;
        /* ignores a stored value that this version has removed if this call sets the setting */
        bool removed;
        if (bt_opt_check_removed(bt_run_removed, bt_run_removed_n, key, bt_text_str(&value),
                                 &removed, NULL) != BT_OK &&
            p->opts.origin[i] >= BT_FROM_ENV)
            continue;
        code = check_fixed_setting(p, i, bt_text_str(&value), err);
        if (code == BT_OK)
            code = bt_opts_set(&p->opts, key, bt_text_str(&value), BT_FROM_ENV, "the run's record",
                               err);
    }
    bt_text_release(&value);
    return code;
}

/* Refuses a run that was trained with a setting that this version has removed. */
static bt_code check_removed(const bt_train_plan *p, const json_t *config, bt_err *err) {
    bt_text value = {0};
    bt_code code = BT_OK;
    for (size_t i = 0; i < bt_run_removed_n && code == BT_OK; i++) {
        bool removed;
        bt_err why = BT_ERR_INIT;
        const char *key = bt_run_removed[i].key;
        if (strncmp(key, "launch.", 7) == 0) continue; /* applies to one start only */
        if (!read_stored_value(json_object_get(config, key), true, &value)) continue;
        if (bt_opt_check_removed(bt_run_removed, bt_run_removed_n, key, bt_text_str(&value),
                                 &removed, &why) != BT_OK)
            code = bt_fail(err, BT_UNSUPPORTED, "run '%s' cannot be resumed: %s", p->run, why.msg);
    }
    bt_text_release(&value);
    return code;
}

static bt_code apply_stored_config(bt_train_plan *p, const char *text, bool all_final,
                                   bt_err *err) {
    json_error_t e;
    json_t *config = json_loads(text, 0, &e);
    if (!json_is_object(config)) {
        json_decref(config);
        return bt_fail(err, BT_FORMAT, "the stored settings of run '%s' cannot be read: %s", p->run,
                       e.text);
    }
    bt_code code = check_removed(p, config, err);
    if (code == BT_OK && !all_final && !p->world) code = adopt_placement(p, config, err);
    if (code == BT_OK) code = add_stored_setting(p, config, all_final, err);
    if (!all_final) bt_text_put(&p->recorded, text);
    bt_text_put(&p->before, text);
    json_decref(config);
    return code;
}

/* ---- prediction ------------------------------------------------------------------------------ */

static bool affects_step_time(const char *key) {
    const bt_setting_resumes resumes = bt_setting_scope_of(key).resumes;
    return resumes == BT_SETTING_FOUND || resumes == BT_SETTING_PLACED ||
           strcmp(key, "train.batch_tokens") == 0;
}

static bool is_placed_as_recorded(const bt_train_plan *p, const json_t *config) {
    bool same = true;
    bt_text then, now;
    bt_text_init(&then);
    bt_text_init(&now);
    for (size_t i = 0; i < p->opts.n && same; i++) {
        const char *key = p->opts.table[i].key;
        if (!affects_step_time(key) ||
            !read_stored_value(json_object_get(config, key), true, &then))
            continue;
        bt_text_clear(&now);
        bt_opt_value(&p->opts, i, &now);
        same = same_setting_value(bt_text_str(&then), bt_text_str(&now));
    }
    bt_text_release(&then);
    bt_text_release(&now);
    return same;
}

static void restore_origin(bt_opts *o, size_t i, const json_t *recorded) {
    const char *origin = json_string_value(json_object_get(recorded, "origin")),
               *where = json_string_value(json_object_get(recorded, "where"));
    /* an automatic value became a setting of the run with its first step */
    if (!origin || !where || strcmp(where, "auto") == 0) return;
    for (int from = 0; from <= BT_FROM_FLAG; from++)
        if (strcmp(bt_origin_name((bt_opt_origin)from), origin) == 0) {
            o->origin[i] = (bt_opt_origin)from;
            snprintf(o->where[i], sizeof o->where[i], "%s", where);
        }
}

bt_code bt_train_config_json(bt_train_plan *p, bt_err *err) {
    bt_opts *shown = malloc(sizeof *shown);
    json_t *config = p->recorded.len ? json_loads(bt_text_str(&p->recorded), 0, NULL) : NULL;
    if (!shown) {
        json_decref(config);
        return bt_fail(err, BT_NOMEM, "no memory for the settings");
    }
    *shown = p->opts;
    for (size_t i = 0; config && i < shown->n; i++)
        if (strcmp(shown->where[i], "the run's record") == 0)
            restore_origin(shown, i, json_object_get(config, shown->table[i].key));
    bt_run_cfg_json(shown, &p->config_json);
    json_decref(config);
    free(shown);
    return BT_OK;
}

bt_code bt_train_keep_prediction(bt_train_plan *p, bt_err *err) {
    if (!p->recorded.len || p->world) return BT_OK;
    json_t *config = json_loads(bt_text_str(&p->recorded), 0, NULL);
    const bool same = is_placed_as_recorded(p, config);
    bt_code code = BT_OK;
    for (size_t i = 0; i < p->opts.n && code == BT_OK && !same; i++) {
        const bt_opt *opt = &p->opts.table[i];
        if (bt_setting_scope_of(opt->key).resumes == BT_SETTING_PLANNED &&
            strcmp(p->opts.where[i], "the run's record") == 0)
            code = bt_opts_set(&p->opts, opt->key, opt->def, BT_FROM_ENV, "the run's record", err);
    }
    json_decref(config);
    return code;
}

/* ---- schedule -------------------------------------------------------------------------------- */

static const char *const schedule_keys[] = {"train.steps",  "optim.schedule", "optim.lr",
                                            "optim.lr_min", "optim.lr2",      "optim.decay_frac",
                                            "optim.warmup"};

static void put_setting_change(bt_text *out, const char *key, const char *then, const char *now) {
    char *end = NULL, a[32], b[32];
    const double x = strtod(then, &end);
    if (end != then && !*end) { /* numbers are stored with all digits */
        snprintf(a, sizeof a, "%.10g", x);
        snprintf(b, sizeof b, "%.10g", strtod(now, NULL));
        then = a;
        now = b;
    }
    bt_text_printf(out, "%s%s %s -> %s", out->len ? ", " : "", key, then, now);
}

/* Computes the schedule of the stored settings. changed: names of the settings that differ now. */
static bt_code compute_stored_schedule(const bt_train_plan *p, bt_lr_schedule *out,
                                       bt_text *changed, bt_err *err) {
    bt_opts o;
    bt_text then, now;
    bt_run_cfg *cfg = malloc(sizeof *cfg);
    if (!cfg) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    bt_text_init(&then);
    bt_text_init(&now);
    json_t *stored = json_loads(bt_text_str(&p->before), 0, NULL);
    bt_code code = bt_opts_init(&o, bt_run_opts, bt_run_opts_n, cfg, err);
    for (size_t i = 0; i < sizeof schedule_keys / sizeof *schedule_keys && code == BT_OK; i++) {
        const char *key = schedule_keys[i];
        bt_text_clear(&now);
        bt_opt_value(&p->opts, bt_opt_find(p->opts.table, p->opts.n, key), &now);
        bool known = read_stored_value(json_object_get(stored, key), true, &then);
        if (p->from.steps && strcmp(key, "train.steps") == 0) { /* corrected during the run */
            bt_text_clear(&then);
            bt_text_printf(&then, "%lld", (long long)p->from.steps);
            known = true;
        }
        if (known && !same_setting_value(bt_text_str(&then), bt_text_str(&now)))
            put_setting_change(changed, key, bt_text_str(&then), bt_text_str(&now));
        code = bt_opts_set(&o, key, bt_text_str(known ? &then : &now), BT_FROM_ENV, "", err);
    }
    if (code == BT_OK) *out = bt_run_cfg_lr_schedule(cfg);
    json_decref(stored);
    bt_text_release(&then);
    bt_text_release(&now);
    free(cfg);
    return code;
}

void bt_train_warn_schedule(const bt_train_plan *p) {
    static const double noticed = 0.01;
    bt_lr_schedule then;
    const bt_lr_schedule now = bt_run_cfg_lr_schedule(&p->cfg);
    bt_text changed = {0};
    bt_err ignored = BT_ERR_INIT;
    if (!p->before.len || p->from.step < 1) return;
    if (compute_stored_schedule(p, &then, &changed, &ignored) == BT_OK && changed.len) {
        const double last = bt_schedule_lr(&then, p->from.step - 1),
                     next = bt_schedule_lr(&now, p->from.step);
        if (last > 0 && fabs(next / last - 1) > noticed)
            bt_log(BT_LOG_WARN,
                   "the schedule has changed (%s): the learning rate goes from %.3g at step %lld "
                   "to %.3g at the next, a factor of %.3g",
                   bt_text_str(&changed), last, (long long)p->from.step, next, next / last);
    }
    bt_text_release(&changed);
}

/* Copies the values of a checkpoint that are needed before it is loaded. */
static void copy_resume_state(bt_resume_point *p, const bt_ckpt_meta *meta) {
    p->lr_factor = bt_ckpt_state_real(meta, "progress", "lr_factor", 1);
    p->worse = (int64_t)bt_ckpt_state_real(meta, "early_stop", "worse", 0);
    p->steps = (int64_t)bt_ckpt_state_real(meta, "time_budget", "steps", 0);
}

bool bt_train_in_memory(const char *out, const char *memory, bt_resume_point *p) {
    bt_memory_id id;
    bt_ckpt_meta meta;
    int attempt = 0;
    int64_t step = 0;
    if (!memory[0]) return false;
    bool newer = bt_memory_state_find(memory, &id, &meta);
    if (newer && bt_ckpt_peek(out, &attempt, &step))
        newer = id.attempt > attempt || (id.attempt == attempt && id.step >= step);
    if (newer) {
        *p = (bt_resume_point){.step = id.step, .memory = true};
        snprintf(p->dir, sizeof p->dir, "%s", memory);
        copy_resume_state(p, &meta);
    }
    bt_ckpt_meta_release(&meta);
    return newer;
}

bt_code bt_train_newest(const char *out, bt_resume_point *p, bt_text *tokenizer, bt_text *why,
                        bt_err *err) {
    bt_ckpt_meta meta;
    BT_TRY(bt_ckpt_find(NULL, out, p->dir, sizeof p->dir, &meta, why, err));
    p->memory = false;
    p->step = meta.step;
    copy_resume_state(p, &meta);
    if (tokenizer) bt_text_put(tokenizer, bt_text_str(&meta.tokenizer));
    bt_ckpt_meta_release(&meta);
    return BT_OK;
}

/* ---- RUN ------------------------------------------------------------------------------------- */

typedef struct row {
    char out[PATH_MAX];
    bt_text config;
    int64_t saved; /* step of the newest recorded checkpoint; -1: none */
} row;

static bool copy_resumed_row(void *ctx, const bt_row *r) {
    row *to = ctx;
    if (r->cells[0]) snprintf(to->out, sizeof to->out, "%s", r->cells[0]);
    if (r->cells[1]) bt_text_put(&to->config, r->cells[1]);
    if (r->cells[2]) to->saved = strtoll(r->cells[2], NULL, 10);
    return false;
}

static bt_code read_recorded_run(const char *store, const char *run, row *r, bt_err *err) {
    bt_db *db = NULL;
    memset(r, 0, sizeof *r);
    r->saved = -1;
    bt_text_init(&r->config);
    BT_TRY(bt_db_open(&db, store, err));
    char name[BT_NAME_MAX];
    bt_code code = bt_db_run(db, run, name, err);
    if (code == BT_OK)
        code = bt_db_query(
            db,
            &(bt_query){.sql = "SELECT out_dir, config, (SELECT c.step FROM checkpoints c "
                               "WHERE c.run = ?1 ORDER BY c.attempt DESC, c.step "
                               "DESC LIMIT 1) FROM runs WHERE run = ?1",
                        .params = (const char *const[]){name},
                        .n_params = 1,
                        .max_rows = 1,
                        .max_s = 5},
            copy_resumed_row, r, err);
    bt_db_close(db);
    return code;
}

/* A resumed run needs the weights of model.init_from only until it has its own checkpoint. `config` may be NULL. */
static bt_code check_init_from(bt_train_plan *p, const char *config, bt_err *err) {
    static const char *const key = "model.init_from";
    if (p->from.dir[0] && p->cfg.model.init_from[0])
        return bt_opts_set(&p->opts, key, "", BT_FROM_FLAG, "the run's record", err);
    if (p->from.dir[0] || p->cfg.model.init_from[0] || !config) return BT_OK;
    json_t *stored = json_loads(config, 0, NULL);
    bt_text value;
    bt_text_init(&value);
    bt_code code = BT_OK;
    if (read_stored_value(json_object_get(stored, key), false, &value))
        code = bt_opts_set(&p->opts, key, bt_text_str(&value), BT_FROM_ENV, "the run's record",
                           err);
    bt_text_release(&value);
    json_decref(stored);
    return code;
}

/* Refuses to continue if the recorded checkpoint is missing: the folder is not mounted, was moved, or is an older
 * copy. Only the user may decide to start again or from an older step. */
static bt_code check_recorded(const bt_train_plan *p, const row *r, bt_err *err) {
    char path[PATH_MAX + 32];
    int attempt;
    int64_t step;
    if (r->saved < 0) return BT_OK;
    snprintf(path, sizeof path, "%s/step-%012lld", p->out, (long long)r->saved);
    if (access(path, F_OK) == 0) return BT_OK;
    if (bt_ckpt_peek(p->out, &attempt, &step))
        return bt_fail(
            err, BT_NOTFOUND,
            "the checkpoint after step %lld of run '%s' is not in its folder, whose newest "
            "is that after step %lld (restore it, or continue from the older one: --resume "
            "'%.200s/step-%012lld')",
            (long long)r->saved, p->run, (long long)step, p->out, (long long)step);
    return bt_fail(err, BT_NOTFOUND,
                   "the checkpoint after step %lld of run '%s' is gone: there is none in "
                   "'%.200s' (mount or restore that folder, or give its path with --out DIR; "
                   "for a new run use another --name, or 'bitrain runs rm %s' first)",
                   (long long)r->saved, p->run, p->out, p->run);
}

/* Finds the newest checkpoint in `out`, from which the run is resumed. */
static bt_code find_resume_checkpoint(bt_train_plan *p, const row *r, bt_err *err) {
    const char *config = bt_text_str(&r->config);
    BT_TRY(apply_stored_config(p, config, false, err));
    p->resume = true;
    snprintf(p->out, sizeof p->out, "%s", r->out);
    if (p->cfg.run.out[0]) BT_TRY(bt_absolute_path(p->cfg.run.out, p->out, err));
    BT_TRY(check_recorded(p, r, err)); /* before the lock, which creates the folder */
    BT_TRY(bt_train_lock(p, err));
    bt_code code = bt_train_newest(p->out, &p->from, &p->tokenizer_of, &p->why, err);
    if (code == BT_NOTFOUND) {
        p->from = (bt_resume_point){.lr_factor = 1};
        snprintf(p->reason, sizeof p->reason,
                 "resume: no checkpoint was saved, from the beginning");
    } else if (code != BT_OK)
        return code;
    else
        snprintf(p->reason, sizeof p->reason, "resume after step %lld", (long long)p->from.step);
    return check_init_from(p, config, err);
}

static bt_code resume_recorded_run(bt_train_plan *p, bt_err *err) {
    row r;
    if (p->cfg.run.name[0] && strcmp(p->cfg.run.name, p->run) != 0)
        return bt_fail(err, BT_BUSY,
                       "a resumed run keeps its name '%s' (to branch off under '%s', resume its "
                       "checkpoint folder)",
                       p->run, p->cfg.run.name);
    bt_code code = read_recorded_run(p->store, p->run, &r, err);
    if (code == BT_OK && !r.config.len)
        code = bt_fail(err, BT_FORMAT, "run '%s' has no stored settings", p->run);
    if (code == BT_OK) code = find_resume_checkpoint(p, &r, err);
    bt_text_release(&r.config);
    return code;
}

/* ---- DIR ------------------------------------------------------------------------------------- */

static bool is_same_folder(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static bt_code resume_folder(bt_train_plan *p, bt_err *err) {
    char where[PATH_MAX], parent[PATH_MAX];
    bt_ckpt_meta meta;
    BT_TRY(bt_absolute_path(p->cfg.run.resume, where, err));
    BT_TRY(bt_ckpt_find(NULL, where, p->from.dir, sizeof p->from.dir, &meta, &p->why, err));
    p->from.step = meta.step;
    copy_resume_state(&p->from, &meta);
    snprintf(p->run, sizeof p->run, "%s", p->cfg.run.name[0] ? p->cfg.run.name : meta.run);
    bt_code code = apply_stored_config(p, bt_text_str(&meta.config), true, err);
    bt_text_put(&p->tokenizer_of, bt_text_str(&meta.tokenizer));
    bt_ckpt_meta_release(&meta);
    BT_TRY(code);
    snprintf(parent, sizeof parent, "%s", p->from.dir);
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) *slash = '\0';
    row r;
    bt_err ignored = BT_ERR_INIT;
    const bool known = read_recorded_run(p->store, p->run, &r, &ignored) == BT_OK;
    bt_text_release(&r.config);
    if (p->cfg.run.out[0])
        BT_TRY(bt_absolute_path(p->cfg.run.out, p->out, err));
    else if (known)
        snprintf(p->out, sizeof p->out, "%s", r.out);
    if (known && !is_same_folder(r.out, parent))
        return bt_fail(err, BT_BUSY,
                       "run '%s' exists and keeps its checkpoints in '%s', not in '%s' (branch off "
                       "under another --name)",
                       p->run, r.out, parent);
    p->resume = known;
    snprintf(p->reason, sizeof p->reason, "resume from '%.100s' after step %lld", p->from.dir,
             (long long)p->from.step);
    return check_init_from(p, NULL, err);
}

bt_code bt_train_resume(bt_train_plan *p, bt_err *err) {
    bool folder;
    const char *what = p->cfg.run.resume, *at = strrchr(what, '@');
    bt_code code = bt_run_or_path(p->store, what, what, &folder, p->run, err);
    if (code == BT_NOTFOUND && at && strcmp(at, "@best") == 0)
        return bt_fail(
            err, BT_ARG,
            "--resume continues from the newest checkpoint of a run (a new run starts from "
            "the best: --init-from %.80s)",
            what);
    BT_TRY(code);
    return folder ? resume_folder(p, err) : resume_recorded_run(p, err);
}

void bt_train_record_passed(const bt_train_plan *p, const bt_sink *sink) {
    char title[480];
    for (const char *line = bt_text_str(&p->why), *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        snprintf(title, sizeof title, "%.*s", (int)(end - line), line);
        if (p->cfg.run.quiet || p->cfg.run.json) bt_log(BT_LOG_WARN, "%s", title);
        if (sink)
            sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_CKPT_DAMAGED,
                                               .step = p->from.step - 1,
                                               .rank = -1,
                                               .wall_us = bt_wall_us(),
                                               .title = title});
    }
}

/* The ranks of a killed supervisor may have records that it did not receive. */
void bt_train_recover(const bt_train_plan *p, bt_writer *writer) {
    static const char *const rings[] = {BT_JOB_RING_BEFORE, BT_JOB_RING};
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        char path[PATH_MAX + 32];
        int64_t steps;
        bt_err trouble = BT_ERR_INIT;
        snprintf(path, sizeof path, "%s/%s", p->out, rings[i]);
        if (bt_writer_recover(writer, p->run, path, &steps, &trouble) != BT_OK)
            fprintf(stderr, "warning: metrics: records of the killed run could not be stored: %s\n",
                    trouble.msg);
        else if (i == 0)
            unlink(path);
    }
}

void bt_train_withdraw(const bt_train_plan *p, bt_writer *writer) {
    bool withdrawn = false;
    bt_err trouble = BT_ERR_INIT;
    if (!writer) return;
    if (bt_writer_withdraw(writer, &withdrawn, &trouble) != BT_OK)
        fprintf(stderr, "warning: metrics: %s\n", trouble.msg);
    else if (withdrawn)
        fprintf(stderr,
                "bitrain train: run '%s' did not complete a step: its record and settings are as "
                "before this command\n",
                p->run);
}
