/* train_epochs.c - converts settings that count epochs to steps. The number of sequences is determined here, before
 * the plan is settled; the tokenised text is then in the cache, where the ranks find it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "engine/config/ramp.h"
#include "engine/config/resolve_impl.h"

static bool comes_from_record(const bt_opts *o, const char *key) {
    return strcmp(o->where[bt_opt_find(o->table, o->n, key)], "the run's record") == 0;
}

/* True if this call set the value, not the preset or the record of a resumed run. */
static bool is_given_by_this_call(const bt_opts *o, const char *key) {
    return bt_opts_given(o, key) && !comes_from_record(o, key);
}

/* If a setting in epochs has its default, the setting in steps of the same pair is in effect. */
static bool has_default_value(const bt_opts *o, const char *key) {
    const size_t i = bt_opt_find(o->table, o->n, key);
    bt_text value = {0};
    bt_opt_value(o, i, &value);
    const bool equal = strcmp(bt_text_str(&value), o->table[i].def) == 0;
    bt_text_release(&value);
    return equal;
}

static bt_code check_only_one_given(const bt_opts *o, const char *key, const char *other,
                                    bt_err *err) {
    if (!is_given_by_this_call(o, key) || !is_given_by_this_call(o, other) ||
        has_default_value(o, key))
        return BT_OK;
    return bt_fail(err, BT_ARG, "%s and %s determine the same value: give only one of them", key,
                   other);
}

bt_code bt_train_check_pairs(const bt_opts *o, bt_text *faults, bt_err *err) {
    static const char *const pairs[][2] = {
        {"train.epochs", "train.steps"},        {"train.epochs", "train.tokens"},
        {"train.minutes", "train.steps"},       {"train.minutes", "train.tokens"},
        {"train.minutes", "train.epochs"},      {"train.evals_per_epoch", "train.eval_every"},
        {"ckpt.saves_per_epoch", "ckpt.every"}, {"optim.warmup_ratio", "optim.warmup"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        BT_TRY(
            bt_collect_fault(faults, check_only_one_given(o, pairs[i][0], pairs[i][1], err), err));
    return BT_OK;
}

bt_code bt_train_resolve_open(const bt_train_plan *p, bt_run_cfg **out, bt_err *err) {
    char cache[PATH_MAX];
    bt_run_cfg *c = *out = malloc(sizeof *c); /* on the heap because the struct is large */
    if (!c) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    *c = p->cfg;
    c->train.steps = INT32_MAX;
    c->train.tokens = 0;
    BT_TRY(bt_train_cache(p, cache, err));
    if (strlen(cache) < sizeof c->data.cache) memcpy(c->data.cache, cache, strlen(cache) + 1);
    return bt_run_cfg_resolve(c, p->ranks, err);
}

static bt_code set_step_count(bt_train_plan *p, const char *key, const char *of, int64_t n,
                              int64_t sequences, bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, of);
    char text[32], where[48];
    bt_text value = {0};
    bt_opt_value(&p->opts, i, &value);
    snprintf(text, sizeof text, "%" PRId64, n > 1 ? n : 1);
    snprintf(where, sizeof where, "%s %.12s, %" PRId64 " sequences", strchr(of, '.') + 1,
             bt_text_str(&value), sequences);
    bt_text_release(&value);
    /* The origin ranks below the user's, so that a printed configuration contains only the epochs. */
    const bool recorded = comes_from_record(&p->opts, key);
    return bt_opts_set(&p->opts, key, text, recorded ? p->opts.origin[i] : BT_FROM_PRESET, where,
                       err);
}

static int64_t steps_of_epochs(const bt_run_cfg *c, int64_t sequences) {
    const double all = ceil(c->train.epochs * (double)sequences - 1e-6);
    const double each = (double)c->train.batch_tokens / (double)c->model.seq_len;
    return (int64_t)ceil(all / each - 1e-9);
}

static bt_code set_step_counts(bt_train_plan *p, const bt_run_cfg *c, int64_t sequences,
                               bt_err *err) {
    const double epoch = (double)sequences * (double)c->model.seq_len /
                         (double)c->train.batch_tokens;
    if (is_given_by_this_call(&p->opts, "train.epochs"))
        BT_TRY(set_step_count(p, "train.steps", "train.epochs", steps_of_epochs(c, sequences),
                              sequences, err));
    if (is_given_by_this_call(&p->opts, "train.evals_per_epoch") && c->train.evals_per_epoch > 0)
        BT_TRY(set_step_count(p, "train.eval_every", "train.evals_per_epoch",
                              llround(epoch / c->train.evals_per_epoch), sequences, err));
    if (is_given_by_this_call(&p->opts, "ckpt.saves_per_epoch") && c->ckpt.saves_per_epoch > 0)
        BT_TRY(set_step_count(p, "ckpt.every", "ckpt.saves_per_epoch",
                              llround(epoch / c->ckpt.saves_per_epoch), sequences, err));
    return BT_OK;
}

bt_code bt_train_epochs(bt_train_plan *p, bt_err *err) {
    bt_run_cfg *c = NULL;
    int64_t sequences = 0;
    BT_TRY(bt_train_check_pairs(&p->opts, NULL, err));
    const bool epochs = is_given_by_this_call(&p->opts, "train.epochs") && p->cfg.train.epochs > 0,
               evals = is_given_by_this_call(&p->opts, "train.evals_per_epoch") &&
                       p->cfg.train.evals_per_epoch > 0,
               saves = is_given_by_this_call(&p->opts, "ckpt.saves_per_epoch") &&
                       p->cfg.ckpt.saves_per_epoch > 0;
    /* the record of a resumed run contains its number of steps */
    if (!epochs && !evals && !saves) return BT_OK;
    const char *key = epochs  ? "train.epochs"
                      : evals ? "train.evals_per_epoch"
                              : "ckpt.saves_per_epoch";
    if (p->cfg.islands.hub[0])
        return bt_fail(err, BT_ARG,
                       "%s with --hub is not possible: the hub deals out the data (use --steps)",
                       key);
    bt_code code = bt_train_resolve_open(p, &c, err);
    if (code == BT_OK) code = bt_train_sequences(p, c, &sequences, err);
    if (code == BT_OK && sequences < 0)
        code = bt_fail(err, BT_ARG, "%s: '%.100s' is endless and has no epochs (use --steps)", key,
                       c->data.path);
    if (code == BT_OK) code = set_step_counts(p, c, sequences, err);
    free(c);
    return code;
}
