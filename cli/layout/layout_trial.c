/* layout_trial.c - candidates, the command line of their race, and what came of it. */
#include "cli/layout/layout_trial.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cli/common/run_shown.h"
#include "cli/layout/layout_race.h"
#include "engine/base/tables/metric.h"
#include "engine/config/tune_cfg.h"
#include "engine/plan/trial_race.h"

/* a run is of as many steps as about RUN_S holds. What starting ranks and making a layout takes, beside a nanosecond or
 * two a parameter, are guesses */
enum { WORDS_MOST = 768, WORD = 1100, STEPS_MOST = 16 };
static const double RUN_S = 0.3, START_S = 0.5, MAKE_S = 0.2, PARAM_S = 4e-9;
/* of a host's memory, for the trainers of all layouts at the same time */
static const double KEEP_FRAC = 0.7;

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
    return (int64_t)fmax(1, fmin(STEPS_MOST, RUN_S / l->time.step.step_s));
}

/* as `bench train` would have them */
static void put_run(words *w, const bt_layout_choice *c, const bt_layout_job *job,
                    const bt_layout *l) {
    put(w, "--data", "");
    put(w, "synth:chain", "");
    put_flag(w, "--ranks", job->ranks);
    put_settings(w, job->opts, &c->settings);
    put_layout(w, l);
}

static void put_real(words *w, double value) {
    char number[32];
    snprintf(number, sizeof number, "%.9g", value);
    put(w, number, "");
}

/* of all the words of a run, on which a trial depends */
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

/* about what the least rounds of the first k of them take */
static double least_s(const bt_layout_choice *c, const candidate *all, size_t k) {
    bt_model_cfg m;
    bt_run_cfg_model(&c->settings, &m);
    double spent = START_S;
    for (size_t i = 0; i < k; i++) {
        const bt_layout *l = all[i].layout;
        const double steps = (double)(BT_RACE_WARM + BT_RACE_ROUNDS_LEAST * steps_of(l));
        spent += MAKE_S + PARAM_S * (double)bt_model_count(&m).params + steps * l->time.step.step_s;
    }
    return spent;
}

/* of how many of them the seconds suffice; one alone decides nothing */
static size_t affordable(const bt_layout_choice *c, const candidate *all, size_t n,
                         double seconds) {
    size_t k = n;
    while (k > 1 && least_s(c, all, k) > seconds) k--;
    return k >= 2 ? k : 0;
}

/* ---- trials ---------------------------------------------------------------------------------- */

typedef struct trials {
    bt_layout_choice *c;
    const bt_layout_job *job;
    words *w;
    candidate all[BT_TRIALS_MOST];
} trials;

/* the trainers of the first k of them at the same time */
static bool all_fit(const trials *t, size_t k) {
    const bt_cluster *c = &t->c->search.cluster;
    double bytes = 0;
    for (size_t i = 0; i < k; i++) bytes += t->all[i].layout->all_bytes;
    const double hosts = ceil((double)c->ranks / c->ranks_per_host);
    return bytes / hosts < KEEP_FRAC * c->memory_bytes;
}

static void put_race(trials *t, size_t k, double seconds) {
    words *w = t->w;
    w->n = 0;
    put(w, "plan", "");
    put(w, BT_LAYOUT_RACE_WORD, "");
    put_real(w, seconds - START_S);
    put(w, all_fit(t, k) ? "keep" : "anew", "");
    for (size_t i = 0; i < k; i++) {
        const bt_layout *l = t->all[i].layout;
        put(w, BT_RACE_WORD, "");
        put_real(w, (double)steps_of(l));
        put_real(w, l->time.step.step_s);
        put_run(w, t->c, t->job, l);
    }
}

static void tell(const bt_layout *l, const json_t *x, bt_text *told) {
    char layout[160], a[32], b[32];
    const long long runs = json_integer_value(json_object_get(x, "runs"));
    bt_text_printf(told, "tried      %s: %s a step in %lld run%s (predicted %s)\n",
                   bt_layout_words(l, layout, sizeof layout),
                   bt_metric_format(a, sizeof a, 1e3 * l->trial_s, BT_UNIT_MS), runs,
                   runs == 1 ? "" : "s",
                   bt_metric_format(b, sizeof b, 1e3 * l->time.step.step_s, BT_UNIT_MS));
}

static void tell_end(const json_t *all, double seconds, bt_text *told) {
    const long long rounds = json_integer_value(json_object_get(all, "rounds"));
    const double loss = 100 * json_number_value(json_object_get(all, "loss_frac"));
    bt_text_printf(told, "tried      %lld round%s in turn, at most %.0f s: ", rounds,
                   rounds == 1 ? "" : "s", seconds);
    if (loss < 100 * BT_RACE_LOSS)
        bt_text_printf(told, "the choice loses %.1f %% at most on average\n", loss);
    else
        bt_text_printf(told,
                       "not told apart, the choice may lose %.1f %% on average (a longer --trial "
                       "would tell)\n",
                       loss);
}

/* Of those that the ranks had time for: the first ones. */
static bt_code take_result(trials *t, size_t n, const json_t *all, double seconds, bt_text *told,
                           bt_err *err) {
    const json_t *racers = json_object_get(all, "racers");
    const size_t raced = json_array_size(racers);
    if (raced < 2 || raced > n) return bt_fail(err, BT_FORMAT, "a trial told no times");
    for (size_t i = 0; i < raced; i++) {
        const json_t *x = json_array_get(racers, i);
        const double step_s = json_number_value(json_object_get(x, "step_s"));
        if (!(step_s > 0)) return bt_fail(err, BT_FORMAT, "a trial told no time of a step");
        t->all[i].layout->trial_s = t->all[i].found.step_s = step_s;
        bt_rates_put_trial(&t->c->rates, &t->all[i].found);
        if (told) tell(t->all[i].layout, x, told);
    }
    if (told) tell_end(all, seconds, told);
    return BT_OK;
}

/* of those that can be afforded */
static bt_code race(trials *t, size_t n, double seconds, bt_text *told, bt_err *err) {
    bt_text result;
    json_error_t why;
    put_race(t, n, seconds);
    const bt_run_once once = {.ranks = t->job->ranks,
                              .hosts = t->job->cfg->hosts,
                              .mpirun_args = t->job->cfg->mpirun_args,
                              .words = t->w->at,
                              .n_words = t->w->n};
    bt_text_init(&result);
    bt_code code = bt_run_shown(&once, "trying layouts", t->job->quiet, &result, err);
    if (code == BT_OK) {
        json_t *all = json_loads(bt_text_str(&result), 0, &why);
        code = take_result(t, n, all, seconds, told, err);
        json_decref(all);
    }
    bt_text_release(&result);
    return code;
}

/* the seconds do not suffice for two of them */
static void tell_nothing(const trials *t, size_t n, double seconds, bt_text *told) {
    if (n < 2 || !(seconds > 0) || !told) return;
    bt_text_printf(told,
                   "tried      nothing: two layouts that are about as fast would take %.0f s, and "
                   "there are %.0f (--trial)\n",
                   ceil(least_s(t->c, t->all, 2)), seconds);
}

/* *fresh: something was tried that was not known. Times are compared that were taken in turn: what was
 * tried alone before is tried again with the others. */
static bt_code run_trials(trials *t, double seconds, bool *fresh, bt_text *told, bt_err *err) {
    const size_t n = find_candidates(&t->c->layouts, t->all),
                 k = affordable(t->c, t->all, n, seconds);
    bool known = true;
    for (size_t i = 0; i < n; i++) {
        bt_trial_rate *found = &t->all[i].found;
        t->w->n = 0;
        put_run(t->w, t->c, t->job, t->all[i].layout);
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
    if (k == 0 && tried < 2) tell_nothing(t, n, seconds, told);
    /* one alone decides nothing */
    for (size_t i = 0; i < n && tried >= 2; i++) t->all[i].layout->trial_s = t->all[i].found.step_s;
    if (tried >= 2) bt_layouts_prefer_tried(&t->c->layouts);
    return BT_OK;
}

static double budget_s(const bt_layout_job *job) { return job->never ? 0 : job->trial_s; }

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
