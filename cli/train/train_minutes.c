/* train_minutes.c - turns a time budget into a plan: `--minutes M` chooses vocabulary, model size, number of steps, and
 * the strength of regularisers for the resulting number of passes over the text (engine/plan/recipe/text_recipe.h).
 * Settings that were given do not change.
 *
 * Steps are measured before the run begins. The resulting number of steps is recorded with the run like any other
 * setting, and train.time_budget corrects it during the run. A resumed run continues with the corrected number. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/given_path.h"
#include "cli/train/train_parts.h"
#include "engine/base/clock.h"
#include "engine/base/tables/derived.h"
#include "engine/config/tune_cfg.h"
#include "engine/plan/recipe/text_recipe.h"

/* Seconds of a run outside of its steps. START_S: start of the ranks, reading the data, first quantisation; END_S:
 * last checkpoint and sample of text. */
static const double START_S = 2, END_S = 1;
/* Share of the steps' time that is reserved for dropout and the average of the weights, which are chosen after the
 * measurement (5 %), and for checkpoints, statistics and other programs on the machine. */
static const double RESERVE = 0.1;
/* Time of an evaluation relative to training on as many tokens. */
static const double FORWARD = 0.35;
/* A teacher adds this share to the time of a step of `nano` (tests/bench/results/little_text.md). */
static const double TEACHER = 0.55;
/* Evaluations during a run take this share of its time at most, in a run that is too short for the default number. */
static const double EVALUATION_SHARE = 0.1;
enum { MEASURED_STEPS = 10, EVALUATIONS = 10 };

static bool is_given_by_user(const bt_train_plan *p, const char *key) {
    return p->opts.origin[bt_opt_find(p->opts.table, p->opts.n, key)] > BT_FROM_PRESET;
}

static const char *find_conflict_with_minutes(const bt_run_cfg *c) {
    return c->launch.hosts[0]                        ? "--hosts"
           : c->tune.mode == BT_TUNE_LORA            ? "--tune lora"
           : c->tune.teacher[0]                      ? "--teacher"
           : c->tune.logits[0]                       ? "tune.logits"
           : c->islands.hub[0]                       ? "--hub"
           : c->data.form != BT_FORMED_TEXT          ? "a --form other than text"
           : c->data.mixture[0]                      ? "data.mixture"
           : strncmp(c->data.path, "synth:", 6) == 0 ? "synthetic data"
                                                     : NULL;
}

static bool is_from_record(const bt_train_plan *p, const char *key) {
    return strcmp(p->opts.where[bt_opt_find(p->opts.table, p->opts.n, key)], "the run's record") ==
           0;
}

/* A resumed run has the number of steps to which train.time_budget has corrected it, or the given one without further
 * corrections. */
static bt_code adopt_corrected_steps(bt_train_plan *p, bt_err *err) {
    char steps[32];
    if (p->from.steps == 0) return BT_OK;
    if (!is_from_record(p, "train.steps"))
        return bt_opts_set(&p->opts, "train.time_budget", "0", BT_FROM_FLAG, "--steps", err);
    snprintf(steps, sizeof steps, "%" PRId64, p->from.steps);
    return bt_opts_set(&p->opts, "train.steps", steps, BT_FROM_ENV, "train.time_budget", err);
}

bt_code bt_train_minutes_begin(bt_train_plan *p, bt_err *err) {
    BT_TRY(adopt_corrected_steps(p, err));
    if (!(p->cfg.train.minutes > 0)) return BT_OK;
    if ((p->resume || p->from.dir[0]) && is_from_record(p, "train.minutes")) return BT_OK;
    if (p->resume || p->from.dir[0])
        return bt_fail(err, BT_ARG,
                       "--minutes plans a new run, and a resumed one keeps the schedule it began "
                       "with (leave --minutes out; --steps N extends it)");
    if (p->world)
        return bt_fail(err, BT_ARG,
                       "--minutes measures steps before ranks start, and these have been started "
                       "already (give --steps N)");
    const char *with = find_conflict_with_minutes(&p->cfg);
    if (with)
        return bt_fail(err, BT_ARG,
                       "--minutes with %s is not possible: it plans the training of a model on "
                       "plain text on this machine (give --steps N)",
                       with);
    p->began_ns = bt_now_ns();
    return BT_OK;
}

static bt_code set_unless_given(bt_train_plan *p, const char *key, const char *value, bt_err *err) {
    char where[32];
    if (is_given_by_user(p, key)) return BT_OK;
    snprintf(where, sizeof where, "--minutes %.6g", p->cfg.train.minutes);
    return bt_opts_set(&p->opts, key, value, BT_FROM_PRESET, where, err);
}

static bt_code set_chosen_number(bt_train_plan *p, const char *key, int64_t value, bt_err *err) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return set_unless_given(p, key, text, err);
}

static bt_code set_recipe_shape(bt_train_plan *p, const bt_recipe_shape *s, bt_err *err) {
    BT_TRY(set_chosen_number(p, "model.layers", s->layers, err));
    BT_TRY(set_chosen_number(p, "model.d_model", s->d_model, err));
    BT_TRY(set_chosen_number(p, "model.heads", s->heads, err));
    BT_TRY(set_chosen_number(p, "model.kv_heads", s->heads, err));
    BT_TRY(set_chosen_number(p, "model.d_ff", s->d_ff, err));
    return bt_run_cfg_preset_rate(&p->opts, &p->cfg, err);
}

/* A given preset, shape or initial weights determine the model. */
static bool model_is_given(const bt_train_plan *p) {
    static const char *const keys[] = {"model.preset",   "model.layers",   "model.d_model",
                                       "model.heads",    "model.d_ff",     "model.kv_heads",
                                       "model.head_dim", "model.init_from"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (is_given_by_user(p, keys[i])) return true;
    return false;
}

/* The trainings of an ensemble share the time. A model with teachers computes their predictions, too; the student has
 * all members as teachers. */
static double count_trainings_in_time(const bt_train_plan *p) {
    const double n = (double)p->cfg.run.ensemble;
    if (!(n >= 1)) return 1;
    return n + (p->cfg.run.chain ? (n - 1) * TEACHER : 0) +
           (p->cfg.run.distill ? 1 + n * TEACHER : 0);
}

double bt_train_minutes_of_one(const bt_train_plan *p) {
    return p->cfg.train.minutes / count_trainings_in_time(p);
}

/* Returns the time for the steps of one training. */
static double time_left_s(const bt_train_plan *p) {
    const double all_s = 60 * p->cfg.train.minutes - (double)(bt_now_ns() - p->began_ns) / 1e9;
    return all_s / count_trainings_in_time(p) - START_S - END_S;
}

static bt_code minutes_too_short(const bt_train_plan *p, double step_s, bt_err *err) {
    char step[32] = "";
    if (step_s > 0) bt_metric_format(step, sizeof step, 1e3 * step_s, BT_UNIT_MS);
    return bt_fail(
        err, BT_ARG,
        "--minutes %.6g is too short: starting, measuring and ending take about %.0f s%s%s",
        p->cfg.train.minutes,
        ceil(60 * p->cfg.train.minutes - count_trainings_in_time(p) * time_left_s(p)),
        step_s > 0 ? ", and a step takes " : "", step);
}

typedef struct minutes_plan {
    int64_t epoch_tokens; /* tokens of one pass over the training data */
    int64_t batch;        /* tokens of one step */
    int64_t steps;
    double step_s;  /* measured */
    double token_s; /* seconds per token in the fastest measurement; 0: not measured */
    bool chosen;    /* the model was chosen among the shapes of the recipe */
    double params, passes;
} minutes_plan;

static bt_code resolve_settings_again(const bt_train_plan *p, bt_run_cfg **c, bt_err *err) {
    free(*c);
    return bt_train_resolve_open(p, c, err);
}

static bt_code measure_model(const bt_train_plan *p, bt_run_cfg **c, minutes_plan *m, bt_err *err) {
    BT_TRY(resolve_settings_again(p, c, err));
    m->batch = (*c)->train.batch_tokens;
    m->params = (double)bt_tune_count(*c).params;
    BT_TRY(bt_train_measure_step(p, *c, MEASURED_STEPS, &m->step_s, err));
    const double token_s = m->step_s / (double)m->batch;
    if (m->token_s == 0 || token_s < m->token_s) m->token_s = token_s;
    return BT_OK;
}

/* Chooses the model by the FLOP rate of the measured one, then measures the chosen model. A larger model has a
 * higher rate, so the error of the choice leads to more tokens. */
static bt_code choose_recipe_shape(bt_train_plan *p, bt_run_cfg **c, minutes_plan *m, bt_err *err) {
    enum { MOST = 16 };
    double tokens[MOST] = {0}, params[MOST] = {0};
    const double rate = bt_tune_count(*c).flop_token * (double)m->batch / m->step_s;
    const int64_t layers = (*c)->model.layers, width = (*c)->model.d_model;
    for (size_t i = 0; i < bt_recipe_shapes() && i < MOST; i++) {
        const bt_recipe_shape *s = bt_recipe_shape_at(i);
        bt_run_cfg *x = *c;
        x->model.layers = s->layers;
        x->model.d_model = s->d_model;
        x->model.heads = x->model.kv_heads = s->heads;
        x->model.d_ff = s->d_ff;
        const bt_model_counts n = bt_tune_count(x);
        tokens[i] = time_left_s(p) * rate / n.flop_token;
        params[i] = (double)n.params;
    }
    const bt_recipe_shape *best = bt_recipe_shape_at(bt_recipe_choose(tokens, params));
    m->chosen = true;
    BT_TRY(set_recipe_shape(p, best, err));
    if (best->layers == layers && best->d_model == width) return resolve_settings_again(p, c, err);
    m->token_s = 0;
    return measure_model(p, c, m, err);
}

static double evaluation_tokens(const bt_run_cfg *c, int64_t epoch_tokens) {
    const double frac = c->data.val_frac;
    if (c->data.val_path[0]) return (double)c->train.eval_tokens;
    return fmin((double)c->train.eval_tokens, (double)epoch_tokens * frac / (1 - frac));
}

static double seconds_per_evaluation(const bt_run_cfg *c, const minutes_plan *m) {
    return FORWARD * m->token_s * evaluation_tokens(c, m->epoch_tokens);
}

/* Number of evaluations during the run, without the one at its end: the default, or fewer in a short run. */
static int64_t count_evaluations(const bt_train_plan *p, const bt_run_cfg *c,
                                 const minutes_plan *m) {
    const double one_s = seconds_per_evaluation(c, m),
                 fit = EVALUATION_SHARE * time_left_s(p) / one_s;
    return one_s > 0 && fit < EVALUATIONS ? (int64_t)fmax(1, floor(fit)) : EVALUATIONS;
}

static int64_t steps_in_time(const bt_train_plan *p, const bt_run_cfg *c, const minutes_plan *m) {
    const double evaluations_s = (double)(count_evaluations(p, c, m) + 1) *
                                 seconds_per_evaluation(c, m);
    return (int64_t)floor((time_left_s(p) - evaluations_s) / ((1 + RESERVE) * m->step_s));
}

/* Chooses the tokens of a step for the tokens that fit into the time, and measures such steps. */
static bt_code choose_batch(bt_train_plan *p, bt_run_cfg **c, minutes_plan *m, bt_err *err) {
    if (is_given_by_user(p, "train.batch_tokens") || is_given_by_user(p, "train.micro_batch") ||
        is_given_by_user(p, "train.accum"))
        return BT_OK;
    const double run_tokens = (double)steps_in_time(p, *c, m) * (double)m->batch;
    const int64_t batch = bt_recipe_batch(run_tokens, p->ranks * (*c)->model.seq_len);
    if (batch == m->batch) return BT_OK;
    BT_TRY(set_chosen_number(p, "train.batch_tokens", batch, err));
    return measure_model(p, c, m, err);
}

static bt_code choose_number_of_steps(bt_train_plan *p, const bt_run_cfg *c, minutes_plan *m,
                                      bt_err *err) {
    m->steps = steps_in_time(p, c, m);
    if (m->steps < 1) return minutes_too_short(p, m->step_s, err);
    m->passes = bt_derived_passes((double)m->steps * (double)m->batch, (double)m->epoch_tokens);
    const int64_t n = count_evaluations(p, c, m);
    if (n < EVALUATIONS && !is_given_by_user(p, "train.evals_per_epoch"))
        BT_TRY(set_chosen_number(p, "train.eval_every", (m->steps + n - 1) / n, err));
    /* The members of an ensemble keep to one plan. */
    if (!p->cfg.run.ensemble)
        BT_TRY(set_chosen_number(p, "train.time_budget", (int64_t)time_left_s(p), err));
    return set_chosen_number(p, "train.steps", m->steps, err);
}

static bt_code choose_strengths(bt_train_plan *p, const minutes_plan *m, bt_text *words,
                                bt_err *err) {
    const bt_recipe_run run = {(double)m->steps, m->passes, m->params, (double)m->epoch_tokens};
    for (size_t i = 0; i < bt_recipe_strengths(); i++) {
        const bt_recipe_strength s = bt_recipe_strength_at(i, &run);
        if (bt_opt_find(p->opts.table, p->opts.n, s.key) == p->opts.n) continue;
        if (!s.value[0] || is_given_by_user(p, s.key)) continue;
        BT_TRY(set_unless_given(p, s.key, s.value, err));
        bt_text_printf(words, "%s%s=%s", words->len ? ", " : "", s.key, s.value);
    }
    return BT_OK;
}

static void describe_minutes_plan(bt_train_plan *p, const bt_run_cfg *c, const minutes_plan *m,
                                  const bt_text *strengths) {
    char tokens[32], rate[32], epoch[32], params[32], step[32];
    bt_text *out = &p->recipe;
    const double all = (double)m->steps * (double)m->batch;
    bt_metric_format(tokens, sizeof tokens, all, BT_UNIT_COUNT);
    bt_metric_format(rate, sizeof rate, (double)m->batch / m->step_s, BT_UNIT_COUNT);
    bt_metric_format(epoch, sizeof epoch, (double)m->epoch_tokens, BT_UNIT_COUNT);
    bt_metric_format(params, sizeof params, m->params, BT_UNIT_COUNT);
    bt_metric_format(step, sizeof step, 1e3 * m->step_s, BT_UNIT_MS);
    bt_text_printf(out,
                   "plan       %.6g minute%s: %" PRId64 " steps of %" PRId64
                   " tokens, measured as %s each (%s tokens/s), are %.3g passes over the %s tokens "
                   "of the text\n",
                   p->cfg.train.minutes,
                   p->cfg.train.minutes > 1 || p->cfg.train.minutes < 1 ? "s" : "", m->steps,
                   m->batch, step, rate, m->passes, epoch);
    bt_text_printf(out,
                   "plan       model of %" PRId64 " layers, width %" PRId64
                   ": %s parameters, %.3g tokens for each (%s); vocabulary %" PRId64 "\n",
                   c->model.layers, c->model.d_model, params, all / m->params,
                   m->chosen ? "the largest of the recipe that gets enough in the time"
                             : "as given",
                   c->model.vocab);
    if (strengths->len)
        bt_text_printf(out,
                       "plan       %s for so many passes and %.3g parameters for each token of the "
                       "text\n",
                       bt_text_str(strengths), m->params / (double)m->epoch_tokens);
    if (m->passes < 1)
        bt_text_printf(out,
                       "plan       the time is too short for one pass: %.0f %% of the text is read "
                       "(%.2g minutes read all of it)\n",
                       100 * m->passes, ceil(10 * p->cfg.train.minutes / m->passes) / 10);
}

/* ---- the plan of an ensemble ----------------------------------------------------------------- */

static bt_code find_plan_path(const bt_train_plan *p, char *path, size_t size, bt_err *err) {
    char out[PATH_MAX];
    BT_TRY(bt_train_out(p, p->run, out, err));
    snprintf(path, size, "%s/ensemble.plan", out);
    return BT_OK;
}

/* The members of an ensemble have one plan, also those that a later command trains. *found: the plan exists. */
static bt_code read_ensemble_plan(bt_train_plan *p, bool *found, bt_err *err) {
    char path[PATH_MAX + 32], line[2048];
    *found = false;
    if (!p->cfg.run.ensemble || !p->run[0]) return BT_OK;
    BT_TRY(find_plan_path(p, path, sizeof path, err));
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT) return BT_OK;
    if (!f) return bt_fail_errno(err, BT_IO, errno, "cannot read '%s'", path);
    bt_code code = BT_OK;
    while (code == BT_OK && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *value = strchr(line, '=');
        if (value) *value++ = '\0';
        code = value ? set_unless_given(p, line, value, err)
                     : bt_fail(err, BT_FORMAT, "'%s': '%.40s' is not KEY=VALUE", path, line);
    }
    (void)fclose(f);
    *found = code == BT_OK;
    if (*found) bt_text_printf(&p->recipe, "plan       as in '%s'\n", path);
    return code;
}

bool bt_train_minutes_chose(const bt_train_plan *p, size_t i) {
    static const char source[] = "--minutes ";
    return p->began_ns && (strcmp(p->opts.table[i].key, "data.tokenizer") == 0 ||
                           strncmp(p->opts.where[i], source, sizeof source - 1) == 0);
}

bt_code bt_train_minutes_keep(const bt_train_plan *p, bt_err *err) {
    char path[PATH_MAX + 32];
    bt_out_text to;
    if (!p->began_ns) return BT_OK;
    BT_TRY(find_plan_path(p, path, sizeof path, err));
    if (access(path, F_OK) == 0) return BT_OK;
    bt_code code = bt_out_text_open(&to, path, true, err);
    for (size_t i = 0; code == BT_OK && i < p->opts.n; i++) {
        bt_text value = {0};
        if (!bt_train_minutes_chose(p, i)) continue;
        bt_opt_value(&p->opts, i, &value);
        if (fprintf(to.to, "%s=%s\n", p->opts.table[i].key, bt_text_str(&value)) < 0)
            code = bt_fail(err, BT_IO, "cannot write '%s'", path);
        bt_text_release(&value);
    }
    return bt_out_text_close(&to, code, err);
}

bt_code bt_train_minutes(bt_train_plan *p, bt_err *err) {
    bt_run_cfg *c = NULL;
    minutes_plan m = {0};
    int64_t sequences = 0;
    bool planned;
    bt_text strengths = {0};
    if (!p->began_ns) return BT_OK;
    if (p->cfg.run.detach)
        return set_chosen_number(p, "train.steps", 1,
                                 err); /* the detached process creates the plan */
    BT_TRY(read_ensemble_plan(p, &planned, err));
    if (planned) return BT_OK;
    if (time_left_s(p) <= 0) return minutes_too_short(p, 0, err);
    bt_code code = bt_train_resolve_open(p, &c, err);
    if (code == BT_OK) code = bt_train_sequences(p, c, &sequences, err);
    if (code == BT_OK) m.epoch_tokens = sequences * c->model.seq_len;
    if (code == BT_OK) code = measure_model(p, &c, &m, err);
    if (code == BT_OK && !model_is_given(p)) code = choose_recipe_shape(p, &c, &m, err);
    if (code == BT_OK) code = choose_batch(p, &c, &m, err);
    if (code == BT_OK) code = choose_number_of_steps(p, c, &m, err);
    if (code == BT_OK) code = choose_strengths(p, &m, &strengths, err);
    if (code == BT_OK) describe_minutes_plan(p, c, &m, &strengths);
    bt_text_release(&strengths);
    free(c);
    return code;
}
