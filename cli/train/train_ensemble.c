/* train_ensemble.c - the members of an ensemble in turn, their mean, and the student. */
#include "cli/train/train_ensemble.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "cli/common/printout/printout.h"
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

enum { POLL_NS = 20000000 };

typedef struct member { /* a training of the ensemble; the student is one, too */
    char name[BT_NAME_MAX];
    char weights[BT_NAME_MAX + 8]; /* RUN, or RUN@best where that has the lower validation loss */
    double bits;                   /* per byte held out; NaN: not measured */
} member;

typedef struct ensemble {
    const bt_train_plan *p;
    size_t n; /* members */
    member members[BT_MEMBERS_MOST], student;
    char mean_weights[BT_NAME_MAX + 8]; /* GROUP or GROUP@best, the better of both */
    double mean_bits;
    int signal; /* signal that stopped it; 0: none */
} ensemble;

/* ---- settings -------------------------------------------------------------------------------- */

bool bt_train_is_ensemble(const bt_train_plan *p) {
    return bt_opts_given(&p->opts, "run.ensemble") || p->cfg.run.distill || p->cfg.run.chain;
}

/* first run of the group whose folder is elsewhere */
static bool take_stranger(void *ctx, const bt_row *row) {
    snprintf(ctx, BT_NAME_MAX, "%s", bt_cli_cell(row, "run"));
    return false;
}

/* Refuses names under which other commands would find another model than this ensemble. */
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
    if (db && bt_db_query(db, &strangers, take_stranger, stranger, &ignored) != BT_OK)
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

bt_code bt_train_ensemble_check(const bt_train_plan *p, bt_err *err) {
    const bt_run_cfg *c = &p->cfg;
    if (!bt_opts_given(&p->opts, "run.ensemble"))
        return bt_fail(err, BT_ARG, "%s goes with --ensemble N, the number of its members",
                       c->run.distill ? "--distill" : "--chain");
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
    return check_ensemble_name(p, err);
}

/* settings that the ensemble gives its trainings itself, or that are for this command alone */
static bool is_ensemble_setting(const char *key) {
    return strncmp(key, "run.", 4) == 0 && strcmp(key, "run.note") != 0;
}

/* One line for each setting that was given, except --ensemble itself: later members extend an ensemble. */
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

/* Finished members would not have the settings of a command that differs from the one that trained them. */
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

/* the settings of the student, with the ensemble as its teacher */
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
           ", one after the other",
           p->cfg.run.ensemble, p->run, p->run, p->cfg.run.ensemble);
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

/* Measures a model, or several as one, on the validation split. */
static bt_code measure_words(const ensemble *e, const char *which, double *bits, bt_err *err) {
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

static bool is_validated(const bt_train_plan *p) {
    return p->cfg.data.val_frac > 0 || p->cfg.data.val_path[0];
}

/* RUN, or RUN@best where an older checkpoint has a lower validation loss */
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
        const char *run = e->members[k].name;
        BT_TRY(bt_run_fact(e->p->store, run, "ensemble.bits_per_byte", bits, 10, err));
        BT_TRY(bt_run_fact(e->p->store, run, "ensemble.members", members, 10, err));
    }
    return BT_OK;
}

/* Members that learned their text by heart may be better together with their newest weights or with their best ones:
 * both are measured. */
static bt_code measure_mean(ensemble *e, bt_err *err) {
    bool older = false;
    double bits;
    char best[BT_NAME_MAX + 8];
    for (size_t k = 0; k < e->n; k++) {
        older |= choose_weights(e, e->members[k].name, e->members[k].weights);
        BT_TRY(measure_words(e, e->members[k].weights, &e->members[k].bits, err));
    }
    snprintf(e->mean_weights, sizeof e->mean_weights, "%s", e->p->run);
    BT_TRY(measure_words(e, e->mean_weights, &e->mean_bits, err));
    snprintf(best, sizeof best, "%s@best", e->p->run);
    if (older) BT_TRY(measure_words(e, best, &bits, err));
    if (older && bits < e->mean_bits) {
        e->mean_bits = bits;
        memcpy(e->mean_weights, best, sizeof best);
    }
    return record_mean(e, err);
}

/* ---- trainings ------------------------------------------------------------------------------- */

static void put_word(bt_text *words, const char *word) {
    bt_text_put(words, word);
    bt_text_putn(words, "", 1);
}

static void put_setting(bt_text *words, const char *key, const char *value) {
    put_word(words, "--set");
    bt_text_printf(words, "%s=", key);
    put_word(words, value);
}

/* The command line of a training, each word ended by NUL: `--continue` begins it, or continues from its checkpoint. */
static void put_training_words(const ensemble *e, const member *m, const char *folder,
                               bt_text *words) {
    const bt_train_plan *p = e->p;
    const bool student = m == &e->student;
    const size_t k = student ? e->n : (size_t)(m - e->members);
    const char *const place[] = {"train",  "--continue", "--name", m->name,  "--store",
                                 p->store, "--out",      folder,   "--quiet"};
    char seed[24], teacher[BT_NAME_MAX + 8] = "";
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) put_word(words, place[i]);
    for (size_t i = 0; i < p->opts.n; i++) {
        bt_text value = {0};
        if (p->opts.origin[i] < BT_FROM_FILE || strcmp(p->opts.where[i], "auto") == 0 ||
            is_ensemble_setting(p->opts.table[i].key))
            continue;
        bt_opt_value(&p->opts, i, &value);
        put_setting(words, p->opts.table[i].key, bt_text_str(&value));
        bt_text_release(&value);
    }
    snprintf(seed, sizeof seed, "%" PRId64, p->cfg.run.seed + (int64_t)k);
    put_setting(words, "run.seed", seed);
    if (student)
        memcpy(teacher, e->mean_weights, sizeof teacher);
    else
        put_setting(words, "run.group", p->run);
    if (!student && p->cfg.run.chain && k > 0) choose_weights(e, e->members[k - 1].name, teacher);
    if (teacher[0]) put_setting(words, "tune.teacher", teacher);
}

typedef struct recorded {
    char state[24], out[PATH_MAX]; /* state "": there is no such run */
} recorded;

static bool take_recorded(void *ctx, const bt_row *row) {
    recorded *r = ctx;
    snprintf(r->state, sizeof r->state, "%s", bt_cli_cell(row, "state"));
    snprintf(r->out, sizeof r->out, "%s", bt_cli_cell(row, "out_dir"));
    return false;
}

/* state: as recorded; "": not begun */
static bt_code read_state(const ensemble *e, const member *m, const char *folder, char state[24],
                          bt_err *err) {
    bt_db *db = NULL;
    recorded r = {.state = ""};
    const char *const params[] = {m->name};
    bt_code code = bt_db_open(&db, e->p->store, err);
    state[0] = '\0';
    if (code == BT_NOTFOUND) return BT_OK; /* the first training makes the database */
    if (code == BT_OK)
        code = bt_db_query(db,
                           &(bt_query){.sql = "SELECT state, out_dir FROM runs WHERE run = ?1",
                                       .params = params,
                                       .n_params = 1},
                           take_recorded, &r, err);
    bt_db_close(db);
    memcpy(state, r.state, sizeof r.state);
    if (code != BT_OK || !r.state[0] || strcmp(r.out, folder) == 0) return code;
    return bt_fail(err, BT_BUSY, "run '%s' is another run, in '%.200s' (give another --name)",
                   m->name, r.out);
}

/* Starts a training and waits for its end; a signal makes it save and end. *status is that of waitpid. */
static bt_code run_child(ensemble *e, const char *log, const bt_text *words, int *status,
                         bt_err *err) {
    size_t n = 0, k = 0;
    pid_t pid;
    for (size_t i = 0; i < words->len; i++) n += words->data[i] == '\0';
    const char **argv = calloc(n + 1, sizeof *argv);
    if (!argv || words->failed) {
        free(argv);
        return bt_fail(err, BT_NOMEM, "no memory for a training");
    }
    for (const char *at = words->data; k < n; at += strlen(at) + 1) argv[k++] = at;
    const bt_child_cfg child = {.words = argv, .n_words = n, .log = log, .parts = 1};
    const bt_code code = bt_child_start(&pid, &child, err);
    while (code == BT_OK && !bt_child_ended(pid, status)) {
        const int signal = bt_child_signals(false);
        if (signal) {
            if (!e->signal) fprintf(stderr, "stopping: the same command continues later\n");
            e->signal = signal;
            bt_child_signal(pid, SIGTERM);
        }
        bt_sleep_ns(POLL_NS);
    }
    free(argv);
    return code;
}

/* Trains one model unless it is complete. BT_STOPPED: by a signal; BT_BUSY: by `bitrain ctl` */
static bt_code train_member(ensemble *e, member *m, bt_err *err) {
    char folder[PATH_MAX + BT_NAME_MAX], log[PATH_MAX + BT_NAME_MAX + 8], state[24], line[400],
        took[32];
    bt_text words = {0};
    int status = 0;
    const int64_t began = bt_now_ns();
    snprintf(folder, sizeof folder, "%s/%s", e->p->out, m->name);
    snprintf(log, sizeof log, "%s.log", folder);
    BT_TRY(read_state(e, m, folder, state, err));
    if (strcmp(state, "done") == 0) return BT_OK;
    put_training_words(e, m, folder, &words);
    bt_code code = run_child(e, log, &words, &status, err);
    bt_text_release(&words);
    BT_TRY(code);
    BT_TRY(read_state(e, m, folder, state, err));
    if (e->signal) return BT_STOPPED;
    if (status == 0 && strcmp(state, "stopped") == 0)
        return bt_fail(err, BT_BUSY, "training '%s' was stopped (the same command continues it)",
                       m->name);
    if (status != 0) {
        bt_child_last_line(log, line, sizeof line);
        return bt_fail(err, BT_IO, "training '%s' has failed: %.300s (its output: '%s')", m->name,
                       line, log);
    }
    if (!e->p->cfg.run.quiet && !e->p->cfg.run.json)
        fprintf(stderr, "%s  done  %s\n", m->name,
                bt_duration(took, sizeof took, 1e-9 * (double)(bt_now_ns() - began)));
    return BT_OK;
}

static bt_code train_ensemble_runs(ensemble *e, bt_err *err) {
    for (size_t k = 0; k < e->n; k++) BT_TRY(train_member(e, &e->members[k], err));
    snprintf(e->mean_weights, sizeof e->mean_weights, "%s", e->p->run);
    if (is_validated(e->p)) BT_TRY(measure_mean(e, err));
    if (!e->p->cfg.run.distill) return BT_OK;
    BT_TRY(train_member(e, &e->student, err));
    choose_weights(e, e->student.name, e->student.weights);
    return is_validated(e->p) ? measure_words(e, e->student.weights, &e->student.bits, err) : BT_OK;
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
    put_ensemble_model(&o, e->mean_weights, mean, e->mean_bits);
    if (e->p->cfg.run.distill)
        put_ensemble_model(&o, e->student.weights, "distilled", e->student.bits);
    bt_printout_rows_end(&o, "  ");
    const char *use = e->p->cfg.run.distill ? e->student.weights : e->mean_weights;
    bt_printout_line(&o, "\ntry next:\n  bitrain generate %s --prompt 'In the beginning'\n", use);
    return bt_printout_print(&o, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void name_members(ensemble *e) {
    for (size_t k = 0; k < e->n; k++) {
        member *m = &e->members[k];
        snprintf(m->name, sizeof m->name, "%.*s-%zu", BT_NAME_MAX - 24, e->p->run, k + 1);
        memcpy(m->weights, m->name, sizeof m->name);
        m->bits = NAN;
    }
    snprintf(e->student.name, sizeof e->student.name, "%.*s" STUDENT, BT_NAME_MAX - 24, e->p->run);
    e->student.bits = e->mean_bits = NAN;
}

bt_code bt_train_ensemble(bt_train_plan *p, int *exit_status, bt_err *err) {
    BT_TRY(bt_ckpt_prepare(p->out, true, err));
    BT_TRY(bt_run_lock(&p->run_lock, p->out, p->run, 0, err));
    BT_TRY(compare_ensemble_settings(p, err));
    BT_TRY(bt_train_inputs(p, NULL, err));
    ensemble *e = calloc(1, sizeof *e);
    if (!e) return bt_fail(err, BT_NOMEM, "no memory for an ensemble");
    e->p = p;
    e->n = (size_t)p->cfg.run.ensemble;
    name_members(e);
    if (!p->cfg.run.quiet && !p->cfg.run.json) {
        bt_train_ensemble_print_plan(p);
        fflush(stdout);
    }
    /* the trainings inherit the environment, and none of them is an ensemble */
    static const char *const variables[] = {"BITRAIN_RUN_ENSEMBLE", "BITRAIN_RUN_DISTILL",
                                            "BITRAIN_RUN_CHAIN"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) (void)unsetenv(variables[i]);
    (void)bt_child_signals(true);
    bt_code code = train_ensemble_runs(e, err);
    if (code == BT_STOPPED && e->signal) {
        *exit_status = 128 + e->signal;
        code = BT_OK;
    } else if (code == BT_OK)
        code = print_ensemble(e, err);
    free(e);
    return code;
}
