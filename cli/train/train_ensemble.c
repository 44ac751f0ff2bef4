/* train_ensemble.c - trains the members of an ensemble in turn, evaluates their mean, and trains the student. */
#include "cli/train/train_ensemble.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "cli/common/printout/printout.h"
#include "cli/experiment/train_group.h"
#include "cli/model/eval_text.h"
#include "cli/model/members.h"
#include "engine/base/clock.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/tune_cfg.h"
#include "engine/plan/plan.h"
#include "monitor/job/launch/child.h"
#include "monitor/job/run_lock.h"
#include "store/write/manage.h"

#define STUDENT "-distilled"

typedef struct member { /* one training of the ensemble, a member or the student */
    bt_training run;
    char weights[BT_NAME_MAX + 8]; /* RUN, or RUN@best if that has the lower validation loss */
    double bits;                   /* bits per byte of the validation split; NaN: not measured */
} member;

typedef struct ensemble {
    const bt_train_plan *p;
    size_t n; /* number of members */
    member members[BT_MEMBERS_MOST], student;
    char mean_weights[BT_NAME_MAX + 8]; /* GROUP or GROUP@best, whichever has the lower loss */
    double mean_bits;
} ensemble;

/* ---- settings -------------------------------------------------------------------------------- */

bool bt_train_is_ensemble(const bt_train_plan *p) {
    return bt_opts_given(&p->opts, "run.ensemble") || p->cfg.run.distill || p->cfg.run.chain ||
           p->cfg.run.folds;
}

/* Stores the first run of the group whose folder is outside of the ensemble's. */
static bool copy_foreign_run_name(void *ctx, const bt_row *row) {
    snprintf(ctx, BT_NAME_MAX, "%s", bt_cli_cell(row, "run"));
    return false;
}

/* Refuses names for which other commands would find another model than this ensemble. */
static bt_code check_ensemble_name(const bt_train_plan *p, bt_err *err) {
    char run[BT_NAME_MAX], stranger[BT_NAME_MAX] = "";
    bt_db *db = NULL;
    bt_err ignored = BT_ERR_INIT;
    const char *const params[] = {p->run, p->out};
    const bt_query strangers = {
        .sql = "SELECT run FROM runs WHERE bt_setting(config, 'run.group') = ?1 AND "
               "substr(out_dir, 1, length(?2) + 1) <> ?2 || '/'",
        .params = params,
        .n_params = 2};
    if (strlen(p->run) + sizeof STUDENT > BT_NAME_MAX)
        return bt_fail(err, BT_ARG,
                       "--name '%s' is too long for an ensemble: at most %d characters", p->run,
                       (int)(BT_NAME_MAX - sizeof STUDENT));
    const bool is_run = bt_db_open(&db, p->store, &ignored) == BT_OK &&
                        bt_db_run(db, p->run, run, &ignored) == BT_OK;
    if (db && bt_db_query(db, &strangers, copy_foreign_run_name, stranger, &ignored) != BT_OK)
        stranger[0] = '\0';
    bt_db_close(db);
    if (stranger[0])
        return bt_fail(
            err, BT_BUSY,
            "group '%s' has runs of another command ('%s'), which would be members (give "
            "another --name)",
            p->run, stranger);
    if (!is_run) return BT_OK;
    return bt_fail(err, BT_BUSY,
                   "'%s' is a run: an ensemble needs a name of its own, because `bitrain eval %s` "
                   "finds the run (give another --name)",
                   run, run);
}

/* A model that learned from members with other held-out parts has seen its own held-out part. */
static bt_code check_folds(const bt_train_plan *p, bt_err *err) {
    char fold[32];
    bt_fold parsed;
    const bt_run_cfg *c = &p->cfg;
    if (!c->run.folds) return BT_OK;
    if (c->run.distill || c->run.chain)
        return bt_fail(err, BT_ARG,
                       "--folds with %s is not possible: teachers would have trained on the text "
                       "that is held out from the model that learns from them (leave one out)",
                       c->run.distill ? "--distill" : "--chain");
    if (c->data.fold[0])
        return bt_fail(err, BT_ARG, "--folds sets data.fold of each member: leave it out");
    if (c->data.val_path[0] || !(c->data.val_frac > 0))
        return bt_fail(err, BT_ARG, "--folds needs a held-out part of the text, and %s has none",
                       c->data.val_path[0] ? "--val-data" : "data.val_frac=0");
    snprintf(fold, sizeof fold, "1/%" PRId64, c->run.ensemble);
    return bt_fold_parse(&parsed, fold, c->data.val_frac, err);
}

bt_code bt_train_ensemble_check(const bt_train_plan *p, bt_err *err) {
    const bt_run_cfg *c = &p->cfg;
    if (!bt_opts_given(&p->opts, "run.ensemble"))
        return bt_fail(err, BT_ARG, "%s goes with --ensemble N, the number of its members",
                       c->run.distill ? "--distill"
                       : c->run.chain ? "--chain"
                                      : "--folds");
    BT_TRY(check_folds(p, err));
    if (c->run.ensemble < 2)
        return bt_fail(err, BT_ARG,
                       "--ensemble %" PRId64
                       ": an ensemble has at least 2 members (for one model leave it out)",
                       c->run.ensemble);
    if (c->run.resume[0] || c->run.go_on)
        return bt_fail(err, BT_ARG,
                       "--ensemble is continued by the same command, with its --name: leave %s out",
                       c->run.resume[0] ? "--resume" : "--continue");
    if (c->run.detach || c->run.no_monitor)
        return bt_fail(err, BT_ARG, "--ensemble is not possible with %s (leave it out)",
                       c->run.detach ? "--detach" : "--no-monitor");
    if (c->data.form == BT_FORMED_LABEL || c->data.form == BT_FORMED_PREFERENCE)
        return bt_fail(err, BT_ARG,
                       "--ensemble is for models that predict tokens, and data.form=%s has %s",
                       c->data.form == BT_FORMED_LABEL ? "label" : "preference",
                       c->data.form == BT_FORMED_LABEL ? "classes" : "preferences");
    if (c->run.chain && c->tune.teacher[0])
        return bt_fail(
            err, BT_ARG,
            "--chain makes each member the teacher of the next one: leave --teacher out");
    if (c->tune.logits[0] && (c->run.chain || c->run.distill))
        return bt_fail(err, BT_ARG, "%s has models as teachers: leave tune.logits out",
                       c->run.chain ? "--chain" : "--distill");
    if (c->tune.relation > 0 && c->run.distill)
        return bt_fail(err, BT_UNSUPPORTED,
                       "--distill has several models as teachers, and tune.relation one: leave it "
                       "out");
    return check_ensemble_name(p, err);
}

/* True for settings that the ensemble determines for its trainings, or that apply to this command only. */
static bool is_ensemble_setting(const char *key) {
    return strncmp(key, "run.", 4) == 0 && strcmp(key, "run.note") != 0;
}

/* Writes one line for each setting that was given, except --ensemble itself, so that more members can be added
 * later. */
static void list_given_settings(const bt_train_plan *p, bt_text *out) {
    for (size_t i = 0; i < p->opts.n; i++) {
        const char *key = p->opts.table[i].key;
        const bool seed = strcmp(key, "run.seed") == 0, chain = strcmp(key, "run.chain") == 0;
        if (p->opts.origin[i] < BT_FROM_FILE || strcmp(p->opts.where[i], "auto") == 0) continue;
        if (is_ensemble_setting(key) && !seed && !chain) continue;
        const size_t from = out->len;
        bt_text_printf(out, "%s=", key);
        bt_opt_value(&p->opts, i, out);
        for (size_t k = from; k < out->len; k++)
            if (out->data[k] == '\n') out->data[k] = ',';
        bt_text_put(out, "\n");
    }
}

/* Refuses a command with other settings than the one that trained the finished members. */
static bt_code compare_ensemble_settings(const bt_train_plan *p, bt_err *err) {
    char path[PATH_MAX + 32], line[8192];
    bt_text now = {0};
    bool same = true;
    snprintf(path, sizeof path, "%s/ensemble.settings", p->out);
    list_given_settings(p, &now);
    const char *at = bt_text_str(&now);
    FILE *f = fopen(path, "r");
    bt_code code = f || errno == ENOENT
                       ? BT_OK
                       : bt_fail_errno(err, BT_IO, errno, "cannot read '%s'", path);
    while (f && same && fgets(line, sizeof line, f)) {
        const size_t n = strlen(line);
        same = strncmp(at, line, n) == 0;
        if (!same) line[strcspn(line, "\n")] = '\0';
        at += same ? n : 0;
    }
    if (f && (!same || *at))
        code =
            bt_fail(err, BT_BUSY,
                    "ensemble '%s' began with other settings: then '%.80s', now '%.*s' (give the "
                    "same, or another --name)",
                    p->run, same ? "" : line, (int)strcspn(at, "\n"), at);
    if (f) (void)fclose(f);
    if (!f && code == BT_OK) {
        bt_out_text to;
        code = bt_out_text_open(&to, path, true, err);
        if (code == BT_OK && fputs(bt_text_str(&now), to.to) < 0)
            code = bt_fail(err, BT_IO, "cannot write '%s'", path);
        code = bt_out_text_close(&to, code, err);
    }
    bt_text_release(&now);
    return code;
}

/* ---- plan ------------------------------------------------------------------------------------ */

static bt_code student_settings(const bt_train_plan *p, bt_run_cfg *out) {
    bt_model_cfg m;
    *out = p->cfg;
    out->tune.teacher_shape[0] = '\0';
    bt_run_cfg_model(&p->cfg, &m);
    for (int64_t k = 0; k < p->cfg.run.ensemble; k++)
        bt_tune_teacher_write(&m, out->tune.teacher_shape, sizeof out->tune.teacher_shape);
    if (out->launch.threads < 1) out->launch.threads = 1;
    return bt_kernels_select(out->launch.isa, NULL);
}

static size_t student_bytes(const bt_run_cfg *c) {
    return bt_plan_bytes(c, c->mesh.pp > 1 ? (int)c->launch.ranks - 1 : 0, bt_parts_memory);
}

void bt_train_ensemble_print_plan(const bt_train_plan *p) {
    char time[32], student[32], bytes[32];
    const double one = bt_train_seconds(p), n = (double)p->cfg.run.ensemble;
    bt_run_cfg *c = malloc(sizeof *c);
    printf("ensemble   %" PRId64 " trainings as above that differ by seed, %s-1 to %s-%" PRId64
           "%s, one after the other",
           p->cfg.run.ensemble, p->run, p->run, p->cfg.run.ensemble,
           p->cfg.run.folds ? " and by the part of the text that is held out" : "");
    if (isfinite(one)) printf(": %s", bt_duration(time, sizeof time, n * one));
    printf("\n");
    if (p->cfg.run.chain) printf("           each of them learns from the one before it, too\n");
    if (c && p->cfg.run.distill && student_settings(p, c) == BT_OK) {
        const double more = bt_tune_count(c).flop_token / bt_tune_count(&p->cfg).flop_token;
        printf("student    %s" STUDENT " learns from their mean", p->run);
        if (isfinite(one)) printf(": %s", bt_duration(student, sizeof student, more * one));
        printf(", %s of memory a rank\n",
               bt_metric_format(bytes, sizeof bytes, (double)student_bytes(c), BT_UNIT_BYTES));
    }
    free(c);
}

/* ---- quality --------------------------------------------------------------------------------- */

static bt_code measure_model(const ensemble *e, const char *which, double *bits, bt_err *err) {
    bt_trained t;
    bt_eval_result r;
    double *none = NULL;
    const bt_trained_how how = {.which = which,
                                .store = e->p->store,
                                .isa = e->p->cfg.launch.isa,
                                .weight = 1,
                                .threads = e->p->cfg.launch.threads,
                                .quiet = true};
    const bt_eval_job job = {.data = "", .field = "", .logits = "", .quiet = true};
    bt_code code = bt_trained_load(&t, &how, err);
    if (code == BT_OK) code = bt_eval_text(&t, &job, &r, &none, err);
    bt_trained_release(&t);
    free(none);
    *bits = code == BT_OK ? r.bits_per_byte : NAN;
    return code;
}

static bool has_validation_data(const bt_train_plan *p) {
    return p->cfg.data.val_frac > 0 || p->cfg.data.val_path[0];
}

/* Selects RUN, or RUN@best if an older checkpoint has a lower validation loss. */
static bool choose_weights(const ensemble *e, const char *run, char out[BT_NAME_MAX + 8]) {
    bt_db *db = NULL;
    bt_err ignored = BT_ERR_INIT;
    char text[120];
    const bool best = bt_db_open(&db, e->p->store, &ignored) == BT_OK &&
                      bt_cli_best_is_older(db, run, text, sizeof text);
    bt_db_close(db);
    snprintf(out, BT_NAME_MAX + 8, "%s%s", run, best ? "@best" : "");
    return best;
}

/* Records the quality of the ensemble with each of its members. */
static bt_code record_mean(const ensemble *e, bt_err *err) {
    char bits[32], members[16];
    snprintf(bits, sizeof bits, "%.6f", e->mean_bits);
    snprintf(members, sizeof members, "%zu", e->n);
    for (size_t k = 0; k < e->n; k++) {
        const char *run = e->members[k].run.name;
        BT_TRY(bt_run_fact(e->p->store, run, "ensemble.bits_per_byte", bits, 10, err));
        BT_TRY(bt_run_fact(e->p->store, run, "ensemble.members", members, 10, err));
    }
    return BT_OK;
}

/* The mean of members that memorised their text may be better with their newest or with their best weights: both are
 * measured. */
static bt_code measure_mean(ensemble *e, bt_err *err) {
    bool older = false;
    double bits;
    char best[BT_NAME_MAX + 8];
    for (size_t k = 0; k < e->n; k++) {
        older |= choose_weights(e, e->members[k].run.name, e->members[k].weights);
        BT_TRY(measure_model(e, e->members[k].weights, &e->members[k].bits, err));
    }
    if (e->p->cfg.run.folds) return BT_OK; /* no part of the text is held out from all members */
    snprintf(e->mean_weights, sizeof e->mean_weights, "%s", e->p->run);
    BT_TRY(measure_model(e, e->mean_weights, &e->mean_bits, err));
    snprintf(best, sizeof best, "%s@best", e->p->run);
    if (older) BT_TRY(measure_model(e, best, &bits, err));
    if (older && bits < e->mean_bits) {
        e->mean_bits = bits;
        memcpy(e->mean_weights, best, sizeof best);
    }
    return record_mean(e, err);
}

/* ---- trainings ------------------------------------------------------------------------------- */

/* Appends the settings of a new training; the record of a training that continues contains them. */
static void append_member_words(void *ctx, const bt_training *training, bool continues,
                                bt_words *out) {
    const ensemble *e = ctx;
    const bt_train_plan *p = e->p;
    const member *m = (const member *)training;
    const bool student = m == &e->student;
    const size_t k = student ? e->n : (size_t)(m - e->members);
    char seed[24], fold[48], teacher[BT_NAME_MAX + 8] = "";
    if (continues) return;
    for (size_t i = 0; i < p->opts.n; i++) {
        bt_text value = {0};
        const char *key = p->opts.table[i].key;
        const bool given = p->opts.origin[i] >= BT_FROM_FILE &&
                           strcmp(p->opts.where[i], "auto") != 0 &&
                           strcmp(key, "train.minutes") != 0;
        if ((!given && !bt_train_minutes_chose(p, i)) || is_ensemble_setting(key)) continue;
        /* Each fold learns the tokens of the text on which it trains. */
        const bool learns = strcmp(key, "data.tokenizer") == 0 &&
                            (bt_train_learned_tokenizer(p) || bt_train_minutes_chose(p, i));
        if (p->cfg.run.folds && learns)
            bt_text_printf(&value, "bpe:%" PRId64, p->cfg.model.vocab);
        else
            bt_opt_value(&p->opts, i, &value);
        bt_words_set(out, key, bt_text_str(&value));
        bt_text_release(&value);
    }
    snprintf(seed, sizeof seed, "%" PRId64, p->cfg.run.seed + (int64_t)k);
    bt_words_set(out, "run.seed", seed);
    if (student)
        memcpy(teacher, e->mean_weights, sizeof teacher);
    else
        bt_words_set(out, "run.group", p->run);
    if (p->cfg.run.folds) {
        snprintf(fold, sizeof fold, "%zu/%zu", k + 1, e->n);
        bt_words_set(out, "data.fold", fold);
    }
    if (!student && p->cfg.run.chain && k > 0)
        choose_weights(e, e->members[k - 1].run.name, teacher);
    if (teacher[0]) bt_words_set(out, "tune.teacher", teacher);
}

static bt_code finish_member(void *ctx, bt_training *r, bt_err *err) {
    const bt_train_plan *p = ((const ensemble *)ctx)->p;
    char log[PATH_MAX + BT_NAME_MAX + 8], line[400], took[32];
    if (r->at == BT_TRAINING_FAILED) {
        snprintf(log, sizeof log, "%s/%s.log", p->out, r->name);
        bt_child_last_line(log, line, sizeof line);
        return bt_fail(err, BT_IO, "training '%s' has failed: %.300s (its output: '%s')", r->name,
                       line, log);
    }
    if (!p->cfg.run.quiet && !p->cfg.run.json)
        fprintf(stderr, "%s  done  %s\n", r->name,
                bt_duration(took, sizeof took, 1e-9 * (double)(bt_now_ns() - r->began_ns)));
    return BT_OK;
}

/* Trains the incomplete ones of n models in turn, because each may learn from the previous one. */
static bt_code train_members(ensemble *e, member *members, size_t n, int *signal, bt_err *err) {
    bt_training *runs[BT_MEMBERS_MOST];
    for (size_t k = 0; k < n; k++) runs[k] = &members[k].run;
    bt_training_group g = {.store = e->p->store,
                           .folder = e->p->out,
                           .runs = runs,
                           .n = n,
                           .parallel = 1,
                           .retry = true,
                           .put_words = append_member_words,
                           .ended = finish_member,
                           .ctx = e};
    const bt_code code = bt_train_group(&g, err);
    *signal = g.signal;
    return code;
}

static bt_code train_ensemble_runs(ensemble *e, int *signal, bt_err *err) {
    BT_TRY(train_members(e, e->members, e->n, signal, err));
    snprintf(e->mean_weights, sizeof e->mean_weights, "%s", e->p->run);
    if (has_validation_data(e->p)) BT_TRY(measure_mean(e, err));
    if (!e->p->cfg.run.distill) return BT_OK;
    BT_TRY(train_members(e, &e->student, 1, signal, err));
    choose_weights(e, e->student.run.name, e->student.weights);
    return has_validation_data(e->p) ? measure_model(e, e->student.weights, &e->student.bits, err)
                                     : BT_OK;
}

/* ---- result ---------------------------------------------------------------------------------- */

static void put_ensemble_model(bt_printout *o, const char *weights, const char *what, double bits) {
    bt_printout_row(o);
    bt_printout_str(o, "model", "MODEL", weights);
    bt_printout_str(o, "is", NULL, what);
    bt_printout_numf(o, "bits_per_byte", "BITS PER BYTE", bits, 1, "%.4f");
    bt_printout_str(o, NULL, "", what);
    bt_printout_end(o);
}

/* Prints the mean of the members' validations, each on its own fold, and their standard deviation (divisor n - 1). */
static void print_fold_statistics(bt_printout *o, const ensemble *e) {
    double sum = 0, squares = 0;
    for (size_t k = 0; k < e->n; k++) sum += e->members[k].bits;
    const double mean = sum / (double)e->n;
    for (size_t k = 0; k < e->n; k++)
        squares += (e->members[k].bits - mean) * (e->members[k].bits - mean);
    const double deviation = sqrt(squares / (double)(e->n - 1));
    bt_printout_numf(o, "folds_mean", NULL, mean, 1, "%.6f");
    bt_printout_numf(o, "folds_deviation", NULL, deviation, 1, "%.6f");
    bt_printout_line(o,
                     "\nheld out in turn, %zu parts of the text: %.4f bits per byte, standard "
                     "deviation %.4f\n",
                     e->n, mean, deviation);
}

static bt_code print_ensemble(const ensemble *e, bt_err *err) {
    bt_printout o;
    char mean[48];
    bt_printout_begin(&o, e->p->cfg.run.json);
    bt_printout_version(&o);
    bt_printout_str(&o, "group", NULL, e->p->run);
    bt_printout_line(&o, "ensemble %s, on held-out text:\n", e->p->run);
    bt_printout_rows(&o, "models");
    for (size_t k = 0; k < e->n; k++)
        put_ensemble_model(&o, e->members[k].weights, "member", e->members[k].bits);
    snprintf(mean, sizeof mean, "mean of %zu", e->n);
    if (!e->p->cfg.run.folds) put_ensemble_model(&o, e->mean_weights, mean, e->mean_bits);
    if (e->p->cfg.run.distill)
        put_ensemble_model(&o, e->student.weights, "distilled", e->student.bits);
    bt_printout_rows_end(&o, "  ");
    if (e->p->cfg.run.folds) print_fold_statistics(&o, e);
    const char *use = e->p->cfg.run.distill ? e->student.weights
                      : e->p->cfg.run.folds ? e->members[0].weights /* their vocabularies differ */
                                            : e->mean_weights;
    bt_printout_line(&o, "\ntry next:\n  bitrain generate %s --prompt 'In the beginning'\n", use);
    return bt_printout_print(&o, err);
}

/* ---- entry ------------------------------------------------------------------------------------ */

static void name_members(ensemble *e) {
    for (size_t k = 0; k < e->n; k++) {
        member *m = &e->members[k];
        snprintf(m->run.name, sizeof m->run.name, "%.*s-%zu", BT_NAME_MAX - 24, e->p->run, k + 1);
        memcpy(m->weights, m->run.name, sizeof m->run.name);
        m->bits = NAN;
    }
    snprintf(e->student.run.name, sizeof e->student.run.name, "%.*s" STUDENT, BT_NAME_MAX - 24,
             e->p->run);
    e->student.bits = e->mean_bits = NAN;
}

bt_code bt_train_ensemble(bt_train_plan *p, int *exit_status, bt_err *err) {
    BT_TRY(bt_ckpt_prepare(p->out, true, err));
    BT_TRY(bt_run_lock(&p->run_lock, p->out, p->run, 0, err));
    BT_TRY(compare_ensemble_settings(p, err));
    BT_TRY(bt_train_minutes_keep(p, err));
    BT_TRY(bt_train_inputs(p, NULL, err));
    ensemble *e = calloc(1, sizeof *e);
    if (!e) return bt_fail(err, BT_NOMEM, "no memory for an ensemble");
    e->p = p;
    e->n = (size_t)p->cfg.run.ensemble;
    name_members(e);
    if (!p->cfg.run.quiet && !p->cfg.run.json) {
        fputs(bt_text_str(&p->recipe), stdout);
        bt_train_ensemble_print_plan(p);
        fflush(stdout);
    }
    /* Trainings inherit the environment, but must not be ensembles themselves. */
    static const char *const variables[] = {"BITRAIN_RUN_ENSEMBLE", "BITRAIN_RUN_DISTILL",
                                            "BITRAIN_RUN_CHAIN", "BITRAIN_RUN_FOLDS",
                                            "BITRAIN_TRAIN_MINUTES"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) (void)unsetenv(variables[i]);
    (void)bt_child_signals(true);
    int signal = 0;
    bt_code code = train_ensemble_runs(e, &signal, err);
    if (code == BT_STOPPED && signal) {
        *exit_status = 128 + signal;
        code = BT_OK;
    } else if (code == BT_OK)
        code = print_ensemble(e, err);
    free(e);
    return code;
}
