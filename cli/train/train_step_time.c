/* train_step_time.c - measures the step time of a plan before its run begins: a few steps of `bench train` on the
 * planned ranks, with the plan's model, data and settings, without record, validation and checkpoints. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/run_shown.h"
#include "cli/train/train_parts.h"
#include "engine/config/part_rules.h"

/* groups of settings on which the step time depends */
static const char *const GROUPS[] = {"model.",    "data.", "train.", "optim.",
                                     "parallel.", "comm.", "mesh.",  "tune."};
/* settings of the run's length and of its initial phases, which do not affect most steps */
static const struct {
    const char *key, *value;
} others[] = {
    {"train.minutes", "0"},    {"train.epochs", "0"}, {"train.tokens", "0"},
    {"train.stop_after", "0"}, {"data.val_path", ""}, {"data.val_frac", "0"},
    {"model.init_from", ""},   {"optim.warmup", "0"},
};

static bool is_measured_setting(const char *key) {
    for (size_t i = 0; i < sizeof GROUPS / sizeof GROUPS[0]; i++)
        if (strncmp(key, GROUPS[i], strlen(GROUPS[i])) == 0) return true;
    return strcmp(key, "launch.isa") == 0 || strcmp(key, "launch.threads") == 0;
}

static void put_measured_value(const bt_opts *o, size_t i, int64_t steps, bt_text *out) {
    const char *key = o->table[i].key;
    bt_text_printf(out, "%s=", key);
    if (strcmp(key, "train.steps") == 0) {
        bt_text_printf(out, "%" PRId64, steps);
        return;
    }
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (strcmp(key, others[k].key) == 0) {
            bt_text_put(out, others[k].value);
            return;
        }
    const bt_forced *part;
    for (size_t k = 0; (part = bt_forced_at(BT_FORCE_STEP_TIME, k)); k++)
        if (strcmp(key, part->key) == 0) {
            bt_text_put(out, part->value);
            return;
        }
    bt_opt_value(o, i, out);
}

static void free_measurement_words(char **words, size_t n) {
    for (size_t i = 0; words && i < n; i++) free(words[i]);
    free(words);
}

static bt_code make_measurement_words(const bt_train_plan *p, const bt_run_cfg *resolved,
                                      int64_t steps, char ***out, size_t *n, bt_err *err) {
    bt_opts *o = malloc(sizeof *o);
    char **words = calloc(2 * p->opts.n + 3, sizeof *words);
    bool failed = !o || !words;
    static const char *const first[] = {"bench", "train", "--json"};
    *n = 0;
    if (o) {
        *o = p->opts;
        o->values = (void *)(uintptr_t)resolved;
    }
    for (size_t i = 0; !failed && i < sizeof first / sizeof first[0]; i++)
        failed = !(words[(*n)++] = strdup(first[i]));
    for (size_t i = 0; !failed && i < o->n; i++) {
        if (!is_measured_setting(o->table[i].key)) continue;
        bt_text value = {0};
        put_measured_value(o, i, steps, &value);
        words[(*n)++] = strdup("--set");
        words[(*n)++] = strdup(bt_text_str(&value));
        failed = value.failed || !words[*n - 1] || !words[*n - 2];
        bt_text_release(&value);
    }
    free(o);
    *out = words;
    return failed ? bt_fail(err, BT_NOMEM, "no memory for the settings of a measurement") : BT_OK;
}

bt_code bt_train_measure_step(const bt_train_plan *p, const bt_run_cfg *resolved, int64_t steps,
                              double *step_s, bt_err *err) {
    char **words = NULL;
    size_t n = 0;
    bt_text result = {0};
    bt_code code = make_measurement_words(p, resolved, steps, &words, &n, err);
    const bt_run_once once = {.ranks = p->ranks,
                              .hosts = "",
                              .mpirun_args = p->cfg.launch.mpirun_args,
                              .words = (const char *const *)(uintptr_t)words,
                              .n_words = n};
    if (code == BT_OK)
        code = bt_run_shown(&once, "measuring steps", p->cfg.run.quiet || p->cfg.run.json, &result,
                            err);
    if (code == BT_OK) {
        json_t *r = json_loads(bt_text_str(&result), 0, NULL);
        *step_s = json_number_value(json_object_get(r, "step_ms")) / 1e3;
        json_decref(r);
        if (!(*step_s > 0))
            code = bt_fail(err, BT_FORMAT, "the measurement of a step returned no time");
    }
    bt_text_release(&result);
    free_measurement_words(words, n);
    return code;
}
