/* layout_trial.c - selects candidates, composes the command line of their race and reads its result. */
#include "cli/layout/layout_trial.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cli/common/run_shown.h"
#include "cli/layout/layout_race.h"
#include "engine/base/clock.h"
#include "engine/base/system/words.h"
#include "engine/base/tables/metric.h"
#include "engine/config/tune_cfg.h"
#include "engine/observe/meter.h"
#include "engine/plan/trial_length.h"
#include "engine/plan/trial_race.h"

/* estimated time of starting ranks and of creating a trainer: a constant, plus some per parameter */
static const double START_S = 0.5, MAKE_S = 0.2, PARAM_S = 4e-9;
/* share of a host's memory that the trainers of all layouts together may use */
static const double KEEP_FRAC = 0.7;

/* ---- the command line ------------------------------------------------------------------------ */

static void append_flag_with_integer(bt_words *w, const char *flag, int64_t value) {
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, value);
    bt_words_put(w, flag);
    bt_words_put(w, number);
}

static bool has_prefix(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

static bool affects_step_but_not_layout(const char *key) {
    static const char *const all[] = {"model.",          "parallel.codec",    "comm.",
                                      "mesh.sequence",   "optim.name",        "train.batch_tokens",
                                      "train.attention", "train.overlap",     "train.reproducible",
                                      "train.unit",      "train.bucket_bytes"};
    if (strcmp(key, "model.init_from") == 0 || strcmp(key, "model.preset") == 0) return false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (has_prefix(key, all[i])) return true;
    return false;
}

/* layers 0: all layers of the model. */
static void append_trial_settings(bt_words *w, const bt_opts *o, const bt_run_cfg *cfg,
                                  int64_t layers) {
    bt_text value;
    char vocab[32], number[32];
    bt_text_init(&value);
    bt_words_put(w, "--preset");
    bt_words_put(w, cfg->model.preset);
    for (size_t i = 0; i < o->n; i++) {
        if (!affects_step_but_not_layout(o->table[i].key) || o->origin[i] <= BT_FROM_PRESET)
            continue;
        if (layers > 0 && strcmp(o->table[i].key, "model.layers") == 0) continue;
        bt_text_clear(&value);
        bt_opt_value(o, i, &value);
        bt_words_set(w, o->table[i].key, bt_text_str(&value));
    }
    bt_text_release(&value);
    snprintf(vocab, sizeof vocab, "%" PRId64, (int64_t)cfg->model.vocab);
    bt_words_set(w, "model.vocab", vocab);
    snprintf(number, sizeof number, "%" PRId64, layers);
    if (layers > 0) bt_words_set(w, "model.layers", number);
    bt_words_put(w, "--isa");
    bt_words_put(w, cfg->launch.isa);
    append_flag_with_integer(w, "--threads", cfg->launch.threads);
}

static void put_layout(bt_words *w, const bt_layout *l) {
    static const char *const recompute[] = {"none", "selective", "full"};
    append_flag_with_integer(w, "--pp", l->shape.pp);
    if (l->virtual_stages > 1) append_flag_with_integer(w, "--virtual-stages", l->virtual_stages);
    append_flag_with_integer(w, "--tp", l->shape.tp);
    append_flag_with_integer(w, "--zero", l->zero);
    if (l->zero && l->shape.dp_replicate > 1) {
        append_flag_with_integer(w, "--dp-shard", l->shape.dp_shard);
        append_flag_with_integer(w, "--dp-replicate", l->shape.dp_replicate);
    }
    append_flag_with_integer(w, "--micro-batch", l->micro_batch);
    bt_words_put(w, "--recompute");
    bt_words_put(w, recompute[l->recompute]);
    if (l->zero == 3 && l->shape.pp == 1)
        bt_words_set(w, "parallel.gather", bt_gather_name(l->gather));
}

typedef struct tried_work {
    const bt_opts *opts;
    const bt_run_cfg *settings; /* resolved */
    int ranks;
} tried_work;

/* Appends the words of `bench train` for steps of `micros` micro-batches and a model of `layers` layers (0: all). */
static void append_trial_run(bt_words *w, const tried_work *of, const bt_layout *l, int64_t micros,
                             int64_t layers) {
    bt_words_put(w, "--data");
    bt_words_put(w, "synth:chain");
    append_flag_with_integer(w, "--ranks", of->ranks);
    append_trial_settings(w, of->opts, of->settings, layers);
    append_flag_with_integer(w, "--batch-tokens",
                             of->settings->train.batch_tokens / l->accum * micros);
    put_layout(w, l);
}

static void append_real_word(bt_words *w, double value) {
    char number[32];
    snprintf(number, sizeof number, "%.9g", value);
    bt_words_put(w, number);
}

/* Hash of all words of a run: a trial is valid for exactly these words. */
static void hash_trial_words(const bt_words *w, char *out, size_t size) {
    XXH64_hash_t hash = 0;
    const char *at = bt_text_str(&w->text);
    for (size_t i = 0; i < w->n && !w->text.failed; i++, at += strlen(at) + 1)
        hash = XXH3_64bits_withSeed(at, strlen(at) + 1, hash);
    snprintf(out, size, "%016" PRIx64, (uint64_t)hash);
}

static void whole_step_key(bt_words *w, const tried_work *of, const bt_layout *l, char *out,
                           size_t size) {
    bt_words_clear(w);
    append_trial_run(w, of, l, l->accum, 0);
    hash_trial_words(w, out, size);
}

const bt_trial_rate *bt_layout_tried(const bt_opts *o, const bt_run_cfg *cfg, int ranks,
                                     const bt_rates *rates) {
    char key[sizeof rates->trials[0].key];
    bt_words w = {0};
    bt_layout l = {.virtual_stages = (int)cfg->parallel.virtual_stages,
                   .zero = (int)cfg->mesh.zero,
                   .recompute = cfg->train.recompute,
                   .gather = cfg->parallel.gather,
                   .codec = cfg->parallel.codec,
                   .micro_batch = cfg->train.micro_batch,
                   .accum = cfg->train.accum};
    bt_run_cfg_mesh(cfg, &l.shape);
    whole_step_key(&w, &(tried_work){o, cfg, ranks}, &l, key, sizeof key);
    bt_words_release(&w);
    return bt_rates_trial(rates, key);
}

/* ---- candidates ------------------------------------------------------------------------------ */

static bool is_plain_training(const bt_layout_job *job) {
    const bt_run_cfg *c = job->cfg;
    return c->data.form == BT_FORMED_TEXT && c->tune.mode == BT_TUNE_FULL && !c->tune.teacher[0] &&
           !c->tune.logits[0] && !c->islands.hub[0];
}

typedef struct candidate {
    bt_layout *layout;
    bt_trial_length length;
    bt_trial_rate found; /* step_s 0: not tried yet */
} candidate;

/* Layouts that differ only in their shards differ by less than the error of the prediction. */
static bool differ_only_in_shards(const bt_layout *a, const bt_layout *b) {
    return a->shape.pp == b->shape.pp && a->virtual_stages == b->virtual_stages &&
           a->shape.tp == b->shape.tp && a->micro_batch == b->micro_batch &&
           a->recompute == b->recompute;
}

static double trainer_creation_s(const bt_run_cfg *cfg) {
    bt_model_cfg m;
    bt_run_cfg_model(cfg, &m);
    return MAKE_S + PARAM_S * (double)bt_model_count(&m).params;
}

/* Length of a whole step: a pipeline is filled, and layer chunks need a multiple of its stages. */
static bt_trial_length whole_step_length(const bt_layout_choice *c, const bt_layout *l) {
    return (bt_trial_length){.fewest = l->shape.pp,
                             .multiple = l->virtual_stages > 1 ? l->shape.pp : 1,
                             .chunks = l->shape.pp *
                                       (l->virtual_stages > 1 ? l->virtual_stages : 1),
                             .make_s = trainer_creation_s(&c->settings),
                             .micros = l->accum,
                             .layers = c->settings.model.layers,
                             .run_s = l->time.step.step_s};
}

/* Selects the best layout of each kind among those that fit and are near the first one. Returns their number. */
static size_t find_candidates(const bt_layout_choice *c, candidate out[BT_TRIALS_MOST]) {
    const bt_layouts *l = &c->layouts;
    size_t n = 0;
    for (size_t i = 0; i < l->n && n < BT_TRIALS_MOST; i++) {
        bt_layout *x = &l->at[i];
        bool seen = !x->fits ||
                    x->time.step.step_s > (1 + BT_TRIAL_NEAR) * l->at[0].time.step.step_s;
        for (size_t k = 0; k < n; k++) seen = seen || differ_only_in_shards(out[k].layout, x);
        if (!seen) out[n++] = (candidate){.layout = x, .length = whole_step_length(c, x)};
    }
    return n;
}

/* ---- shorter steps ----------------------------------------------------------------------------- */

/* Shortens the step to fewer micro-batches, or to a model with fewer layers. */
static bool shorten_step(const bt_layout_choice *c, const bt_layout *l, bt_trial_length *x) {
    bool there_is = false;
    bt_prediction time;
    bt_run_cfg *all = malloc(sizeof *all), *cfg = malloc(sizeof *cfg);
    if (all && cfg) {
        bt_layout_search s = c->search;
        *all = *c->search.cfg;
        all->train.batch_tokens = c->settings.train.batch_tokens / l->accum * x->micros;
        all->model.layers = x->layers;
        s.cfg = all;
        s.may.micro_batch = true;
        there_is = bt_layout_settings(&s, l, cfg, NULL) == BT_OK && cfg->train.accum == x->micros &&
                   bt_time_predict(cfg, &c->rates, &s.cluster, &time, NULL) == BT_OK;
        if (there_is) x->run_s = time.step.step_s;
        if (there_is) x->make_s = trainer_creation_s(cfg);
    }
    free(all);
    free(cfg);
    return there_is;
}

typedef struct prediction {
    const bt_layout_choice *c;
    const candidate *all;
} prediction;

static bool predict_trial(void *ctx, size_t i, bt_trial_length *x) {
    const prediction *p = ctx;
    return shorten_step(p->c, p->all[i].layout, x);
}

/* Returns how many of the first candidates fit the time. */
static size_t choose_trial_lengths(const bt_layout_choice *c, candidate *all, size_t n,
                                   double seconds) {
    bt_trial_length lengths[BT_TRIALS_MOST];
    prediction p = {c, all};
    for (size_t i = 0; i < n; i++) lengths[i] = all[i].length;
    const size_t k = bt_trial_lengths(
        lengths, n,
        &(bt_trial_time){
            .seconds = seconds, .start_s = START_S, .predict = predict_trial, .ctx = &p});
    for (size_t i = 0; i < n; i++) all[i].length = lengths[i];
    return k;
}

/* ---- trials ---------------------------------------------------------------------------------- */

typedef struct trials {
    bt_layout_choice *c;
    const bt_layout_job *job;
    bt_words *w;
    candidate all[BT_TRIALS_MOST];
    double spent_s; /* already used by measuring */
    double load;    /* processor share of other programs before the trials; NaN: unknown */
} trials;

/* True if the trainers of the first k candidates fit in memory at the same time. */
static bool candidates_fit_together(const trials *t, size_t k) {
    const bt_cluster *c = &t->c->search.cluster;
    double bytes = 0;
    for (size_t i = 0; i < k; i++) bytes += t->all[i].layout->all_bytes;
    const double hosts = bt_cluster_hosts(c);
    return bytes / hosts < KEEP_FRAC * c->memory_bytes;
}

static void append_race_command(trials *t, size_t k, double seconds) {
    bt_words *w = t->w;
    bt_words_clear(w);
    bt_words_put(w, "plan");
    bt_words_put(w, BT_LAYOUT_RACE_WORD);
    append_real_word(w, seconds - START_S);
    bt_words_put(w, candidates_fit_together(t, k) ? "keep" : "anew");
    for (size_t i = 0; i < k; i++) {
        const bt_layout *l = t->all[i].layout;
        bt_words_put(w, BT_RACE_WORD);
        append_real_word(w, (double)bt_trial_steps(&t->all[i].length));
        append_real_word(w, l->time.step.step_s);
        append_real_word(w, l->time.step.step_s / t->all[i].length.run_s);
        const int64_t layers = t->all[i].length.layers;
        append_trial_run(w, &(tried_work){t->job->opts, &t->c->settings, t->job->ranks}, l,
                         t->all[i].length.micros,
                         layers < t->c->settings.model.layers ? layers : 0);
    }
}

static void report_trials(const trials *t, const candidate *tried, const json_t *x,
                          bt_text *notes) {
    const bt_layout *l = tried->layout;
    const int64_t layers = t->c->settings.model.layers;
    char layout[160], a[32], b[32], of[64] = "";
    const long long runs = json_integer_value(json_object_get(x, "runs"));
    const int64_t micros = tried->length.micros;
    if (micros < l->accum)
        snprintf(of, sizeof of, " of %" PRId64 " micro-batch%s", micros, micros == 1 ? "" : "es");
    if (tried->length.layers < layers)
        snprintf(of + strlen(of), sizeof of - strlen(of), " of %" PRId64 " of %" PRId64 " layers",
                 tried->length.layers, layers);
    bt_text_printf(notes, "tried      %s: %s a step in %lld run%s%s (predicted %s",
                   bt_layout_words(l, layout, sizeof layout),
                   bt_metric_format(a, sizeof a, 1e3 * l->trial_s, BT_UNIT_MS), runs,
                   runs == 1 ? "" : "s", of,
                   bt_metric_format(b, sizeof b, 1e3 * l->time.step.step_s, BT_UNIT_MS));
    bt_layout_why_parted(l, t->c->rates.load, t->load, notes);
    bt_text_put(notes, ")\n");
}

static void report_race_end(const json_t *all, double seconds, bt_text *notes) {
    const long long rounds = json_integer_value(json_object_get(all, "rounds"));
    const double loss = 100 * json_number_value(json_object_get(all, "loss_frac"));
    bt_text_printf(notes, "tried      %lld round%s in turn, at most %.0f s: ", rounds,
                   rounds == 1 ? "" : "s", seconds);
    if (loss < 100 * BT_RACE_LOSS)
        bt_text_printf(notes, "the choice loses %.1f %% at most on average\n", loss);
    else
        bt_text_printf(
            notes,
            "no significant difference, the choice may lose %.1f %% on average (a longer "
            "--trial decides)\n",
            loss);
}

/* Reads the result of the race, which covers the first layouts of `all` as far as time sufficed. */
static bt_code apply_race_result(trials *t, size_t n, const json_t *all, double seconds,
                                 bt_text *notes, bt_err *err) {
    const json_t *racers = json_object_get(all, "racers");
    const size_t raced = json_array_size(racers);
    if (raced < 2 || raced > n) return bt_fail(err, BT_FORMAT, "a trial returned no times");
    for (size_t i = 0; i < raced; i++) {
        const json_t *x = json_array_get(racers, i);
        const double step_s = json_number_value(json_object_get(x, "step_s"));
        if (!(step_s > 0)) return bt_fail(err, BT_FORMAT, "a trial returned no step time");
        t->all[i].layout->trial_s = t->all[i].found.step_s = step_s;
        t->all[i].layout->trial_load = t->all[i].found.load = t->load;
        bt_rates_put_trial(&t->c->rates, &t->all[i].found);
        if (notes) report_trials(t, &t->all[i], x, notes);
    }
    if (notes) report_race_end(all, seconds, notes);
    return BT_OK;
}

/* Races the first n candidates, for which the time suffices. */
static bt_code race_candidates(trials *t, size_t n, double seconds, bt_text *notes, bt_err *err) {
    bt_text result;
    json_error_t why;
    append_race_command(t, n, seconds);
    t->load = bt_machine_load_of_others();
    const char **words = bt_words_argv(t->w);
    if (!words) return bt_fail(err, BT_NOMEM, "no memory for the trial");
    const bt_run_once once = {.ranks = t->job->ranks,
                              .hosts = t->job->cfg->launch.hosts,
                              .mpirun_args = t->job->cfg->launch.mpirun_args,
                              .words = words,
                              .n_words = t->w->n};
    bt_text_init(&result);
    bt_code code = bt_run_shown(&once, "trying layouts", t->job->quiet, &result, err);
    if (code == BT_OK) {
        json_t *all = json_loads(bt_text_str(&result), 0, &why);
        code = apply_race_result(t, n, all, seconds, notes, err);
        json_decref(all);
    }
    bt_text_release(&result);
    free(words);
    return code;
}

/* Reports that the time, or the rest of it after measuring, does not suffice for two candidates. */
static void report_no_trial(const trials *t, size_t n, double seconds, bt_text *notes) {
    if (n < 2 || t->job->never || !(t->job->trial_s > 0) || !notes) return;
    const bt_trial_length first[] = {t->all[0].length, t->all[1].length};
    const double least_s = bt_trial_race_s(first, 2, 1, START_S);
    if (!t->job->trial_given && seconds < fmin(t->job->trial_s, least_s)) {
        bt_text_printf(notes,
                       "tried      nothing: measuring took %.0f of the %.0f s that there are for "
                       "both, and a short step of two layouts that are about as fast would take "
                       "%.0f s (--trial gives trying its own)\n",
                       ceil(t->spent_s), BT_PROBING_S, ceil(least_s));
        return;
    }
    bt_text_printf(notes,
                   "tried      nothing: a short step of two layouts that are about as fast would "
                   "take %.0f s, and there are %.0f (--trial)\n",
                   ceil(least_s), floor(seconds));
}

/* Sets *fresh if a new trial was measured. Only times of the same race are comparable, so an earlier trial of a single
 * candidate is repeated together with the new candidates. */
static bt_code run_trials(trials *t, double seconds, bool *fresh, bt_text *notes, bt_err *err) {
    const size_t n = find_candidates(t->c, t->all),
                 k = choose_trial_lengths(t->c, t->all, n, seconds);
    bool known = true;
    for (size_t i = 0; i < n; i++) {
        bt_trial_rate *found = &t->all[i].found;
        whole_step_key(t->w, &(tried_work){t->job->opts, &t->c->settings, t->job->ranks},
                       t->all[i].layout, found->key, sizeof found->key);
        const bt_trial_rate *known_trial = bt_rates_trial(&t->c->rates, found->key);
        if (known_trial && !t->job->anew) *found = *known_trial;
        if (i < k) known = known && found->step_s > 0;
    }
    if (k > 0 && !known) {
        *fresh = true;
        BT_TRY(race_candidates(t, k, seconds, notes, err));
    }
    size_t tried = 0;
    for (size_t i = 0; i < n; i++) tried += t->all[i].found.step_s > 0;
    if (k == 0 && tried < 2) report_no_trial(t, n, seconds, notes);
    /* a single result has nothing to compare with */
    for (size_t i = 0; i < n && tried >= 2; i++) {
        t->all[i].layout->trial_s = t->all[i].found.step_s;
        t->all[i].layout->trial_load = t->all[i].found.load;
    }
    if (tried >= 2) bt_layouts_prefer_tried(&t->c->layouts);
    return BT_OK;
}

static double trial_budget_s(const bt_layout_job *job, double spent_s) {
    if (job->never || job->trial_given) return job->never ? 0 : job->trial_s;
    return fmin(job->trial_s, fmax(0, BT_PROBING_S - spent_s));
}

bt_code bt_layout_trial(bt_layout_choice *c, const bt_layout_job *job, double spent_s,
                        bt_text *notes, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    char path[1200];
    bool fresh = false;
    bt_words w = {0};
    if (!is_plain_training(job)) return BT_OK;
    BT_TRY(bt_layout_settings(&c->search, &c->layouts.at[0], &c->settings, err));
    trials t = {.c = c, .job = job, .w = &w, .spent_s = spent_s};
    bt_code code = run_trials(&t, trial_budget_s(job, spent_s), &fresh, notes, &why);
    bt_words_release(&w);
    if (code == BT_STOPPED) return bt_fail(err, BT_STOPPED, "%s", why.msg);
    if (code != BT_OK && notes)
        bt_text_printf(notes, "tried      no further: %s; the order is the predictions'\n",
                       why.msg);
    if (fresh) {
        bt_machine_rates_file(&c->rates, job->store, path, sizeof path);
        if (bt_rates_save(&c->rates, path, &why) != BT_OK && notes)
            bt_text_printf(notes, "warning: %s\n", why.msg);
    }
    return BT_OK;
}
