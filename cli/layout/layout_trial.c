/* layout_trial.c - candidates, the command line of a trial, and what came of it. */
#include "cli/layout/layout_trial.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/clock.h"
#include "engine/base/tables/metric.h"
#include "engine/config/tune_cfg.h"
#include "engine/plan/trial_race.h"
#include "monitor/job/launch/run_once.h"

/* `bench train` warms up for two steps; what starting ranks and a model takes is a guess, and steps are timed for about
 * as long */
enum { WORDS_MOST = 192, WORD = 1100, STEPS_WARM = 2, STEPS_MOST = 16 };
static const double START_S = 0.7;

/* ---- the command line ------------------------------------------------------------------------ */

typedef struct words {
    char (*text)[WORD];
    const char *at[WORDS_MOST];
    size_t n;
} words;

/* one word: both parts together */
static void put(words *w, const char *word, const char *rest) {
    if (w->n == WORDS_MOST) return;
    snprintf(w->text[w->n], WORD, "%s%s", word, rest);
    w->at[w->n] = w->text[w->n];
    w->n++;
}

static void put_flag(words *w, const char *flag, int64_t value) {
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, value);
    put(w, flag, "");
    put(w, number, "");
}

static void put_set(words *w, const char *key, const char *value) {
    char start[128];
    snprintf(start, sizeof start, "%s=", key);
    put(w, "--set", "");
    put(w, start, value);
}

static bool starts_with(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

/* a setting that decides how long a step takes, and is no part of a layout */
static bool of_the_work(const char *key) {
    static const char *const all[] = {"model.",
                                      "parallel.codec",
                                      "comm.",
                                      "mesh.sequence",
                                      "optim.name",
                                      "train.batch_tokens",
                                      "train.precision",
                                      "train.grad",
                                      "train.z_loss",
                                      "train.overlap",
                                      "train.reproducible",
                                      "train.unit",
                                      "train.bucket_bytes"};
    if (strcmp(key, "model.init_from") == 0 || strcmp(key, "model.preset") == 0) return false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (starts_with(key, all[i])) return true;
    return false;
}

static void put_settings(words *w, const bt_opts *o, const bt_run_cfg *cfg) {
    bt_text value;
    char vocab[32];
    bt_text_init(&value);
    put(w, "--preset", "");
    put(w, cfg->preset, "");
    for (size_t i = 0; i < o->n; i++) {
        if (!of_the_work(o->table[i].key) || o->origin[i] <= BT_FROM_PRESET) continue;
        bt_text_clear(&value);
        bt_opt_value(o, i, &value);
        put_set(w, o->table[i].key, bt_text_str(&value));
    }
    bt_text_release(&value);
    snprintf(vocab, sizeof vocab, "%" PRId64, (int64_t)cfg->vocab);
    put_set(w, "model.vocab", vocab);
    put(w, "--isa", "");
    put(w, cfg->isa, "");
    put_flag(w, "--threads", cfg->threads);
    put_flag(w, "--batch-tokens", cfg->batch_tokens);
}

static void put_layout(words *w, const bt_layout *l) {
    static const char *const recompute[] = {"none", "selective", "full"};
    put_flag(w, "--pp", l->shape.pp);
    if (l->virtual_stages > 1) put_flag(w, "--virtual-stages", l->virtual_stages);
    put_flag(w, "--tp", l->shape.tp);
    put_flag(w, "--zero", l->zero);
    if (l->zero && l->shape.dp_replicate > 1) {
        put_flag(w, "--dp-shard", l->shape.dp_shard);
        put_flag(w, "--dp-replicate", l->shape.dp_replicate);
    }
    put_flag(w, "--micro-batch", l->micro_batch);
    put(w, "--recompute", "");
    put(w, recompute[l->recompute], "");
    if (l->zero == 3 && l->shape.pp == 1) put_set(w, "parallel.gather", bt_gather_name(l->gather));
}

static int64_t steps_of(const bt_layout *l) {
    return (int64_t)fmax(1, fmin(STEPS_MOST, START_S / l->time.step.step_s));
}

static void put_command(words *w, const bt_layout_choice *c, const bt_layout_job *job,
                        const bt_layout *l, int64_t steps) {
    w->n = 0;
    put(w, "bench", "");
    put(w, "train", "");
    put(w, "--json", "");
    put(w, "--data", "");
    put(w, "synth:chain", "");
    put_flag(w, "--steps", steps);
    put_flag(w, "--ranks", job->ranks);
    put_settings(w, job->opts, &c->settings);
    put_layout(w, l);
}

/* of everything on the command line, which is all that a trial depends on */
static void key_of(const words *w, char *out, size_t size) {
    XXH64_hash_t hash = 0;
    for (size_t i = 0; i < w->n; i++)
        hash = XXH3_64bits_withSeed(w->at[i], strlen(w->at[i]) + 1, hash);
    snprintf(out, size, "%016" PRIx64, (uint64_t)hash);
}

/* ---- candidates ------------------------------------------------------------------------------ */

static bool plain_training(const bt_layout_job *job) {
    const bt_run_cfg *c = job->cfg;
    return c->form == BT_FORMED_TEXT && c->tune == BT_TUNE_FULL && !c->teacher[0] &&
           !c->logits[0] && !c->hub[0] && !c->batch_ramp[0] && !c->seq_ramp[0];
}

typedef struct candidate {
    bt_layout *layout;
    bt_trial_rate found; /* step_s 0: not tried yet */
} candidate;

/* shards of the same mesh and micro-batch differ less than the model can be wrong about others */
static bool alike(const bt_layout *a, const bt_layout *b) {
    return a->shape.pp == b->shape.pp && a->virtual_stages == b->virtual_stages &&
           a->shape.tp == b->shape.tp && a->micro_batch == b->micro_batch &&
           a->recompute == b->recompute;
}

/* Of the layouts that fit and are near the first one: the best of each kind. Returns how many */
static size_t find_candidates(const bt_layouts *l, candidate out[BT_TRIALS_MOST]) {
    size_t n = 0;
    for (size_t i = 0; i < l->n && n < BT_TRIALS_MOST; i++) {
        bt_layout *x = &l->at[i];
        bool seen = !x->fits ||
                    x->time.step.step_s > (1 + BT_TRIAL_NEAR) * l->at[0].time.step.step_s;
        for (size_t k = 0; k < n; k++) seen = seen || alike(out[k].layout, x);
        if (!seen) out[n++] = (candidate){.layout = x};
    }
    return n;
}

/* of how many of them the seconds suffice for the least rounds; one alone decides nothing */
static size_t affordable(const candidate *c, size_t n, double seconds) {
    size_t k = 0;
    for (double spent = 0; k < n; k++) {
        spent += BT_RACE_ROUNDS_LEAST * (START_S + (double)(STEPS_WARM + steps_of(c[k].layout)) *
                                                       c[k].layout->time.step.step_s);
        if (spent > seconds) break;
    }
    return k >= 2 ? k : 0;
}

/* ---- trials ---------------------------------------------------------------------------------- */

static bt_code try_one(const bt_layout_job *job, const words *w, double *step_s, bt_err *err) {
    bt_text result;
    json_error_t why;
    const bt_run_once once = {.ranks = job->ranks,
                              .hosts = job->cfg->hosts,
                              .mpirun_args = job->cfg->mpirun_args,
                              .words = w->at,
                              .n_words = w->n};
    bt_text_init(&result);
    bt_code code = bt_run_once_run(&once, &result, err);
    if (code == BT_OK) {
        json_t *all = json_loads(bt_text_str(&result), 0, &why);
        *step_s = 1e-3 * json_number_value(json_object_get(all, "step_ms"));
        json_decref(all);
        if (!(*step_s > 0)) code = bt_fail(err, BT_FORMAT, "a trial told no time of a step");
    }
    bt_text_release(&result);
    return code;
}

typedef struct trials {
    bt_layout_choice *c;
    const bt_layout_job *job;
    words *w;
    candidate all[BT_TRIALS_MOST];
} trials;

static bt_code run_candidate(void *ctx, size_t i, double *took_s, double *spent_s, bt_err *err) {
    trials *t = ctx;
    const int64_t start = bt_now_ns();
    put_command(t->w, t->c, t->job, t->all[i].layout, steps_of(t->all[i].layout));
    BT_TRY(try_one(t->job, t->w, took_s, err));
    *spent_s = (double)(bt_now_ns() - start) / 1e9;
    return BT_OK;
}

static void tell(const bt_layout *l, const bt_racer *x, bt_text *told) {
    char layout[160], a[32], b[32];
    if (!told) return;
    bt_text_printf(told, "tried      %s: %s a step in %zu run%s (predicted %s)",
                   bt_layout_words(l, layout, sizeof layout),
                   bt_metric_format(a, sizeof a, 1e3 * l->trial_s, BT_UNIT_MS), x->runs,
                   x->runs == 1 ? "" : "s",
                   bt_metric_format(b, sizeof b, 1e3 * l->time.step.step_s, BT_UNIT_MS));
    if (x->ratio > 1) bt_text_printf(told, ", %.1f %% slower", 100 * (x->ratio - 1));
    bt_text_put(told, "\n");
}

static void tell_end(const bt_race *r, bt_text *told) {
    if (!told) return;
    bt_text_printf(told, "tried      %zu round%s in turn, %.0f s of %.0f s", r->rounds,
                   r->rounds == 1 ? "" : "s", r->spent_s, r->budget_s);
    bt_text_printf(told,
                   r->settled ? ": the others are slower, or within %.0f %%\n"
                              : ": not told apart within %.0f %% (a longer --trial would)\n",
                   100 * BT_RACE_NEAR);
}

static double budget_s(const bt_layout_job *job) { return job->never ? 0 : job->trial_s; }

/* A race of those that can be afforded. What each took relative to the best of them counts, so that a machine
 * that became slower meanwhile changes nothing. */
static bt_code race(trials *t, size_t n, double seconds, bt_text *told, bt_err *err) {
    bt_race r = {.n = n, .budget_s = seconds, .run = run_candidate, .ctx = t};
    BT_TRY(bt_race_run(&r, err));
    const double best_s = r.racer[r.best].median_s;
    for (size_t i = 0; i < n; i++) {
        bt_layout *l = t->all[i].layout;
        l->trial_s = t->all[i].found.step_s = best_s * r.racer[i].ratio;
        bt_rates_put_trial(&t->c->rates, &t->all[i].found);
        tell(l, &r.racer[i], told);
    }
    tell_end(&r, told);
    return BT_OK;
}

/* *fresh: something was tried that was not known. Times are compared that were taken in turn: what was
 * tried alone before is tried again with the others. */
static bt_code run_trials(trials *t, double seconds, bool *fresh, bt_text *told, bt_err *err) {
    const size_t n = find_candidates(&t->c->layouts, t->all), k = affordable(t->all, n, seconds);
    bool known = true;
    for (size_t i = 0; i < n; i++) {
        bt_trial_rate *found = &t->all[i].found;
        put_command(t->w, t->c, t->job, t->all[i].layout, 1);
        key_of(t->w, found->key, sizeof found->key);
        found->step_s = t->job->anew ? 0 : bt_rates_trial(&t->c->rates, found->key);
        if (i < k) known = known && found->step_s > 0;
    }
    if (k > 0 && !known) {
        *fresh = true;
        BT_TRY(race(t, k, seconds, told, err));
    }
    size_t tried = 0;
    for (size_t i = 0; i < n; i++) tried += t->all[i].found.step_s > 0;
    /* one alone decides nothing */
    for (size_t i = 0; i < n && tried >= 2; i++) t->all[i].layout->trial_s = t->all[i].found.step_s;
    if (tried >= 2) bt_layouts_prefer_tried(&t->c->layouts);
    return BT_OK;
}

bt_code bt_layout_trial(bt_layout_choice *c, const bt_layout_job *job, bt_text *told, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    char path[1200];
    bool fresh = false;
    words w = {.text = plain_training(job) ? calloc(WORDS_MOST, sizeof *w.text) : NULL};
    if (!w.text) return BT_OK;
    BT_TRY(bt_layout_settings(&c->search, &c->layouts.at[0], &c->settings, err));
    trials t = {.c = c, .job = job, .w = &w};
    bt_code code = run_trials(&t, budget_s(job), &fresh, told, &why);
    free(w.text);
    if (code == BT_STOPPED) return bt_fail(err, BT_STOPPED, "%s", why.msg);
    if (code != BT_OK && told)
        bt_text_printf(told, "tried      no further: %s; the order is the predictions'\n", why.msg);
    if (fresh) {
        bt_machine_rates_file(&c->rates, job->store, path, sizeof path);
        if (bt_rates_save(&c->rates, path, &why) != BT_OK && told)
            bt_text_printf(told, "warning: %s\n", why.msg);
    }
    return BT_OK;
}
