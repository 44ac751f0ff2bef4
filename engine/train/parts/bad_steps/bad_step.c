/* bad_step.c - a step whose loss or gradient is not finite, or a spike: computed again, then applied,
 * skipped or the end of the run.
 *
 *     the second time        is good                      is bad
 *     with other bits        hardware: applied            hardware: BT_DAMAGED
 *     with the same bits     -                            data or model: train.on_bad_step
 * Weights and optimizer states are still those of before the step, because a step is judged before it
 * is applied: nothing has to be undone. Each rank compares the digest of its own losses and gradients,
 * taken before those of other ranks are added; so the rank whose bits changed is known. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/base/sink.h"
#include "engine/train/trainer_impl.h"

/* ---- what a rank computed ---------------------------------------------------------------------- */

static bt_own_digest own_digest(const bt_trainer *t) {
    bt_own_digest d;
    memset(&d, 0, sizeof d); /* compared as bytes */
    d.grads = bt_reducer_digest(t->reducer);
    d.losses = XXH3_64bits(bt_micro_loss(&t->micro, 0), (size_t)t->micro_plan.n * sizeof(double));
    return d;
}

typedef struct rank_row { /* what the others are told */
    int changed;          /* its own bits are not those of the first time */
    int finite;           /* its own gradients, the first time */
    char host[BT_HOST_MAX];
} rank_row;

typedef struct culprits {
    int n, first;   /* ranks whose bits changed; the lowest of them, -1 */
    char who[160];  /* "rank 1 (host 'a')", "ranks 0, 1", "no rank by itself" */
    int not_finite; /* lowest rank whose own gradients were not finite, -1 */
    char host[BT_HOST_MAX];
} culprits;

static void tell_ranks(const rank_row *rows, int n, culprits *c) {
    size_t at = 0;
    c->n = 0;
    c->first = c->not_finite = -1;
    for (int r = 0; r < n; r++) {
        if (!rows[r].finite && c->not_finite < 0) c->not_finite = r;
        if (!rows[r].changed) continue;
        if (c->n++ == 0) {
            c->first = r;
            snprintf(c->host, sizeof c->host, "%s", rows[r].host);
        }
        if (at + 32 < sizeof c->who)
            at += (size_t)snprintf(c->who + at, sizeof c->who - at, "%s%d", c->n > 1 ? ", " : "",
                                   r);
    }
    if (c->n == 1)
        snprintf(c->who, sizeof c->who, "rank %d (host '%s')", c->first, c->host);
    else if (c->n > 1) {
        char list[sizeof c->who - 8];
        snprintf(list, sizeof list, "%.*s", (int)sizeof list - 1, c->who);
        snprintf(c->who, sizeof c->who, "ranks %s", list);
    } else
        snprintf(c->who, sizeof c->who, "no rank by itself (the exchange between them)");
}

static bt_code compare(bt_trainer *t, const bt_own_digest *before, culprits *c, bt_err *err) {
    const bt_own_digest now = own_digest(t);
    const int n = bt_comm_size(t->mesh.world);
    rank_row mine = {.changed = memcmp(&now, before, sizeof now) != 0,
                     .finite = bt_grad_digest_finite(&before->grads)},
             *rows = calloc((size_t)n, sizeof *rows);
    gethostname(mine.host, sizeof mine.host - 1);
    bt_code code = rows ? BT_OK
                        : bt_fail(err, BT_NOMEM, "cannot take memory for %d ranks' digests", n);
    code = bt_agree(t->mesh.world, code, err);
    if (code == BT_OK) code = bt_all_gather(t->mesh.world, &mine, sizeof mine, rows, err);
    if (code == BT_OK) tell_ranks(rows, n, c);
    free(rows);
    return code;
}

/* ---- telling ----------------------------------------------------------------------------------- */

typedef struct bad_step { /* of one step, from its first computation to the decision */
    bt_step_verdict verdict;
    bt_spike spike;
    const char *tensor; /* whose gradient is not finite; NULL */
    char what[160];     /* "gradient of layers.0.attn_q is not finite" */
    bt_step_outcome first;
    bt_own_digest digest;
    culprits ranks;
    bool same; /* the second time had the same bits on every rank */
} bad_step;

static bt_code describe(bt_trainer *t, bad_step *b, bt_err *err) {
    const double *squares;
    const bt_spike *s = &b->spike;
    switch (b->verdict) {
    case BT_STEP_GOOD: break;
    case BT_STEP_NOT_FINITE:
        BT_TRY(bt_update_tensor_squares(&t->update, 1 / t->loss_scale.value, &squares, err));
        b->tensor = bt_guard_find(&t->update.table, squares);
        snprintf(b->what, sizeof b->what, "%s%s is not finite", b->tensor ? "gradient of " : "loss",
                 b->tensor ? b->tensor : "");
        break;
    case BT_STEP_LOSS_SPIKE:
    case BT_STEP_NORM_SPIKE:
        snprintf(b->what, sizeof b->what, "%s %.4g is a spike (median %.4g, z %.0f)",
                 b->verdict == BT_STEP_LOSS_SPIKE ? "loss" : "gradient norm", s->value, s->median,
                 s->z);
        break;
    }
    return BT_OK;
}

/* action: "applied", "skipped", "accepted", "ended" */
static void tell(bt_trainer *t, const bad_step *b, bt_event_kind kind, const char *action,
                 const char *title) {
    static const char *const causes[] = {"", "not_finite", "loss_spike", "norm_spike"};
    bt_text body;
    bt_json j;
    bt_text_init(&body);
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "cause", causes[b->verdict]);
    bt_json_str(&j, "action", action);
    bt_json_bool(&j, "same_bits", b->same);
    if (b->tensor) bt_json_str(&j, "tensor", b->tensor);
    if (b->ranks.n > 0) {
        bt_json_int(&j, "rank", b->ranks.first);
        bt_json_str(&j, "host", b->ranks.host);
    }
    if (!isnan(b->spike.z)) {
        bt_json_num(&j, "value", b->spike.value);
        bt_json_num(&j, "median", b->spike.median);
        bt_json_num(&j, "z", b->spike.z);
    }
    bt_json_int(&j, "first_sequence", bt_trainer_first_sequence(t));
    bt_json_int(&j, "sequences", t->micro_plan.sequences);
    bt_json_end(&j, '}');
    bt_telemetry_event_of(&t->telemetry, kind, b->ranks.first, t->at.step, bt_text_str(&body),
                          title);
    bt_text_release(&body);
}

/* ---- again --------------------------------------------------------------------------------------- */

/* What was asked for the first time is not forgotten. */
static bt_code compute_again(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    const bt_micro_plan *p = &t->micro_plan;
    const bt_control asked = out->control;
    bt_residual_undo(&t->residual);
    if (t->island)
        t->island_next = -1; /* the data are dealt out again */
    else
        BT_TRY(bt_loader_move(t->loader, t->at.step, (int)(p->first * t->cfg.micro_batch),
                              (int)(p->n * t->cfg.micro_batch), err));
    BT_TRY(bt_step_gradients(t, out, err));
    out->control.verbs |= asked.verbs;
    if (out->control.lr_bits == 0) out->control.lr_bits = asked.lr_bits;
    return BT_OK;
}

static bool same_bits(double a, double b) { return isnan(a) ? isnan(b) : a == b; }

static bt_code second_time(bt_trainer *t, bad_step *b, bt_step_outcome *out, bt_err *err) {
    b->first = *out;
    b->digest = own_digest(t);
    BT_TRY(compute_again(t, out, err));
    BT_TRY(compare(t, &b->digest, &b->ranks, err));
    b->same = b->ranks.n == 0 && same_bits(b->first.grad_norm, out->grad_norm);
    return BT_OK;
}

/* ---- the decision -------------------------------------------------------------------------------- */

static bt_code blame_hardware(bt_trainer *t, const bad_step *b, const bt_step_outcome *out,
                              bool *apply, bt_err *err) {
    char title[512];
    const bt_step_facts now = bt_step_facts_of(t, out);
    if (bt_guard_judge(&t->guard, &now, NULL) == BT_STEP_GOOD) {
        snprintf(
            title, sizeof title,
            "%s, but not when computed again: a fault of the hardware of %s; the second result "
            "is applied",
            b->what, b->ranks.who);
        tell(t, b, BT_EVENT_HARDWARE, "applied", title);
        *apply = true;
        return BT_OK;
    }
    snprintf(title, sizeof title,
             "%s, computed again with other bits and no better: a fault of the hardware of %s",
             b->what, b->ranks.who);
    tell(t, b, BT_EVENT_HARDWARE, "ended", title);
    return bt_fail(err, BT_DAMAGED, "step %" PRId64 ": %s (go on from the newest checkpoint)",
                   t->at.step + 1, title);
}

/* Weights that a fault has changed make every batch look bad; a checkpoint has them as they were. */
static bt_code check_weights(bt_trainer *t, bt_err *err) {
    if (t->setup.dp > 1) BT_TRY(bt_trainer_compare_replicas(t, err));
    if (!t->cfg.out[0]) return BT_OK; /* there is no checkpoint */
    return bt_replica_check_finite(&t->replica_check, t->at.step, err);
}

static bt_code skip(bt_trainer *t, const bad_step *b, bool *apply, bt_err *err) {
    char title[512];
    const int64_t n = t->micro_plan.sequences, first = bt_trainer_first_sequence(t);
    bt_guard_bad(&t->guard);
    if (b->verdict != BT_STEP_NOT_FINITE && t->guard.in_row >= t->guard.patience) {
        snprintf(title, sizeof title,
                 "%s, as in the %d steps before: taken as the new level, steps are applied again",
                 b->what, t->guard.in_row - 1);
        tell(t, b, BT_EVENT_BAD_STEP, "accepted", title);
        bt_guard_forget(&t->guard);
        *apply = true;
        return BT_OK;
    }
    snprintf(
        title, sizeof title,
        "step not applied: %s, the same bits when computed again: its batch (sequences %" PRId64
        " to %" PRId64 ") is skipped, %d in a row",
        b->what, first, first + n - 1, t->guard.in_row);
    tell(t, b, BT_EVENT_BAD_STEP, "skipped", title);
    bt_residual_undo(&t->residual);
    BT_TRY(bt_skipped_add(&t->skipped, first, n, err));
    return bt_guard_verdict(&t->guard, t->at.step + 1, b->tensor, err);
}

static bt_code end_run(bt_trainer *t, const bad_step *b, const char *again, bt_err *err) {
    char title[300];
    snprintf(title, sizeof title, "%s%s", b->what, again);
    tell(t, b, BT_EVENT_BAD_STEP, "ended", title);
    return bt_fail(err, BT_CHECK,
                   "step %" PRId64 ": %s; train.on_bad_step=%s ends the run (go on from the newest "
                   "checkpoint, with train.on_bad_step=skip to leave the batch out)",
                   t->at.step + 1, title, again[0] ? "retry" : "stop");
}

bt_code bt_bad_step(bt_trainer *t, bt_step_outcome *out, bool *apply, bt_err *err) {
    const bt_step_facts facts = bt_step_facts_of(t, out);
    bad_step b = {.spike = {.z = NAN}, .ranks = {.first = -1}};
    *apply = true;
    b.verdict = bt_guard_judge(&t->guard, &facts, &b.spike);
    if (b.verdict == BT_STEP_GOOD) return BT_OK;
    *apply = false;
    BT_TRY(describe(t, &b, err));
    if (t->cfg.on_bad_step == BT_BAD_STEP_STOP) return end_run(t, &b, "", err);
    BT_TRY(second_time(t, &b, out, err));
    if (!b.same) return blame_hardware(t, &b, out, apply, err);
    BT_TRY(check_weights(t, err));
    if (t->cfg.on_bad_step == BT_BAD_STEP_RETRY)
        return end_run(t, &b, ", the same bits when computed again", err);
    return skip(t, &b, apply, err);
}
