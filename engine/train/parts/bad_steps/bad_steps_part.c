/* bad_steps_part.c - repeats a step whose loss or gradient is not finite or is a spike, and then applies or skips it or
 * ends the run.
 *
 *                         the repetition is good      the repetition is bad
 *   with other bits       hardware: applied           hardware: BT_DAMAGED
 *   with the same bits    -                           data or model: train.on_bad_step
 * The check precedes the update, so nothing has to be undone. Each rank compares the digest of its own losses and
 * gradients from before the exchange, which identifies the rank whose bits changed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/base/sink.h"
#include "engine/base/system/json_fields.h"
#include "engine/train/parts/bad_steps/guard.h"
#include "engine/train/parts/bad_steps/skipped_data.h"
#include "engine/train/trainer_impl.h"

enum { ON_BAD_SKIP, ON_BAD_RETRY, ON_BAD_STOP };

typedef struct own_digest { /* digest of this rank's own losses and gradients in one step */
    bt_grad_digest grads;
    uint64_t losses;
} own_digest;

/* ---- digests ---------------------------------------------------------------------- */

static own_digest digest_step(const bt_trainer *t) {
    own_digest d;
    memset(&d, 0, sizeof d); /* the padding is compared too */
    d.grads = bt_reducer_digest(t->reducer);
    d.losses = XXH3_64bits(bt_micro_loss(&t->micro, 0), (size_t)t->micro_plan.n * sizeof(double));
    return d;
}

typedef struct rank_row { /* one rank's row of the comparison */
    int changed;          /* its digest differs from the first computation */
    int finite;           /* its own gradients were finite in the first computation */
    char host[BT_HOST_MAX];
} rank_row;

typedef struct culprits {
    int n, first;   /* number of ranks whose digest changed; the lowest of them, or -1 */
    char who[160];  /* example: "rank 1 (host 'a')" */
    int not_finite; /* lowest rank with non-finite gradients, or -1 */
    char host[BT_HOST_MAX];
} culprits;

static void put_rank_list(const rank_row *rows, int n, culprits *c) {
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

static bt_code compare_own_digests(bt_trainer *t, const own_digest *before, culprits *c,
                                   bt_err *err) {
    const own_digest now = digest_step(t);
    const int n = bt_comm_size(t->mesh.world);
    rank_row mine = {.changed = memcmp(&now, before, sizeof now) != 0,
                     .finite = bt_grad_digest_finite(&before->grads)},
             *rows = calloc((size_t)n, sizeof *rows);
    gethostname(mine.host, sizeof mine.host - 1);
    bt_code code = rows ? BT_OK
                        : bt_fail(err, BT_NOMEM, "cannot take memory for %d ranks' digests", n);
    code = bt_agree(t->mesh.world, code, err);
    if (code == BT_OK) code = bt_all_gather(t->mesh.world, &mine, sizeof mine, rows, err);
    if (code == BT_OK) put_rank_list(rows, n, c);
    free(rows);
    return code;
}

/* ---- description and events ----------------------------------------------------------------------------------- */

typedef struct bad_step {
    bt_step_verdict verdict;
    bt_spike spike;
    const char *tensor; /* first tensor with a non-finite gradient, or NULL */
    char what[160];     /* example: "gradient of layers.0.attn_q is not finite" */
    double first_norm;  /* gradient norm of the first computation */
    own_digest digest;
    culprits ranks;
    bool same; /* both computations had equal bits on every rank */
} bad_step;

typedef struct bad_steps {
    bt_guard guard;
    bt_skipped skipped;
    bool repeating;
    bad_step step;
} bad_steps;

static bt_code describe_bad_step(bt_trainer *t, bad_step *b, bt_err *err) {
    const double *squares;
    const bt_spike *s = &b->spike;
    switch (b->verdict) {
    case BT_STEP_GOOD: break;
    case BT_STEP_NOT_FINITE:
        BT_TRY(bt_update_tensor_squares(&t->update, 1 / t->step.loss_scale, &squares, err));
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
static void report_bad_step(bt_trainer *t, const bad_step *b, bt_event_kind kind,
                            const char *action, const char *title) {
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
        BT_JSON_FIELDS(&j, &b->spike, F(value), F(median), F(z));
    }
    bt_json_int(&j, "first_sequence", bt_trainer_first_sequence(t));
    bt_json_int(&j, "sequences", t->micro_plan.sequences);
    bt_json_end(&j, '}');
    bt_telemetry_event_of(&t->telemetry, kind, b->ranks.first, t->at.step, bt_text_str(&body),
                          title);
    bt_text_release(&body);
}

/* ---- comparison of both computations ----------------------------------------------------------------------------- */

static bool same_bits(double a, double b) { return isnan(a) ? isnan(b) : a == b; }

static bt_code compare_times(bt_trainer *t, bad_step *b, const bt_step_outcome *out, bt_err *err) {
    BT_TRY(compare_own_digests(t, &b->digest, &b->ranks, err));
    b->same = b->ranks.n == 0 && same_bits(b->first_norm, out->grad_norm);
    return BT_OK;
}

/* ---- decision -------------------------------------------------------------------------------- */

static bt_step_facts facts_of(const bt_trainer *t, const bt_step_outcome *o) {
    return (bt_step_facts){.loss = t->cfg.train.reproducible ? o->global_loss : o->worst_loss,
                           .grad_norm = o->grad_norm,
                           .loss_finite = !o->loss_bad};
}

static bt_code blame_hardware(bad_steps *s, bt_trainer *t, const bt_step_outcome *out,
                              bt_err *err) {
    char title[512];
    const bad_step *b = &s->step;
    const bt_step_facts now = facts_of(t, out);
    if (bt_guard_classify(&s->guard, &now, NULL) == BT_STEP_GOOD) {
        snprintf(
            title, sizeof title,
            "%s, but not when computed again: a fault of the hardware of %s; the second result "
            "is applied",
            b->what, b->ranks.who);
        report_bad_step(t, b, BT_EVENT_HARDWARE, "applied", title);
        return BT_OK;
    }
    snprintf(title, sizeof title,
             "%s, computed again with other bits and no better: a fault of the hardware of %s",
             b->what, b->ranks.who);
    report_bad_step(t, b, BT_EVENT_HARDWARE, "ended", title);
    return bt_fail(err, BT_DAMAGED, "step %" PRId64 ": %s (resume from the newest checkpoint)",
                   t->at.step + 1, title);
}

static bt_code skip_bad_step(bad_steps *s, bt_trainer *t, bt_verdict *verdict, bt_err *err) {
    char title[512];
    const bad_step *b = &s->step;
    const int64_t n = t->micro_plan.sequences, first = bt_trainer_first_sequence(t);
    bt_guard_bad(&s->guard);
    if (b->verdict != BT_STEP_NOT_FINITE && s->guard.in_row >= s->guard.patience) {
        snprintf(title, sizeof title,
                 "%s, as in the %d steps before: taken as the new level, steps are applied again",
                 b->what, s->guard.in_row - 1);
        report_bad_step(t, b, BT_EVENT_BAD_STEP, "accepted", title);
        bt_guard_forget(&s->guard);
        return BT_OK;
    }
    snprintf(title, sizeof title,
             "step skipped: %s, same bits on retry; batch dropped (sequences %" PRId64
             " to %" PRId64 "), %d in a row",
             b->what, first, first + n - 1, s->guard.in_row);
    report_bad_step(t, b, BT_EVENT_BAD_STEP, "skipped", title);
    *verdict = BT_SKIP;
    BT_TRY(bt_skipped_add(&s->skipped, first, n, err));
    return bt_guard_verdict(&s->guard, t->at.step + 1, b->tensor, err);
}

static bt_code end_run_after_bad_step(bt_trainer *t, const bad_step *b, const char *again,
                                      bt_err *err) {
    char title[300];
    snprintf(title, sizeof title, "%s%s", b->what, again);
    report_bad_step(t, b, BT_EVENT_BAD_STEP, "ended", title);
    return bt_fail(err, BT_CHECK,
                   "step %" PRId64 ": %s; train.on_bad_step=%s ends the run (resume from the "
                   "newest checkpoint; train.on_bad_step=skip omits the batch)",
                   t->at.step + 1, title, again[0] ? "retry" : "stop");
}

static bt_code classify_first_attempt(bad_steps *s, bt_trainer *t, const bt_step_outcome *o,
                                      bt_verdict *verdict, bt_err *err) {
    const bt_step_facts facts = facts_of(t, o);
    bad_step *b = &s->step;
    *b = (bad_step){.spike = {.z = NAN}, .ranks = {.first = -1}};
    b->verdict = bt_guard_classify(&s->guard, &facts, &b->spike);
    if (b->verdict == BT_STEP_GOOD) return BT_OK;
    BT_TRY(describe_bad_step(t, b, err));
    if (t->cfg.bad_steps.on_bad_step == ON_BAD_STOP) return end_run_after_bad_step(t, b, "", err);
    b->first_norm = o->grad_norm;
    b->digest = digest_step(t);
    s->repeating = true;
    *verdict = BT_AGAIN;
    return BT_OK;
}

static bt_code classify_repetition(bad_steps *s, bt_trainer *t, const bt_step_outcome *o,
                                   bt_verdict *verdict, bt_err *err) {
    s->repeating = false;
    BT_TRY(compare_times(t, &s->step, o, err));
    if (!s->step.same) return blame_hardware(s, t, o, err);
    /* damaged weights make every batch bad, and a checkpoint contains correct weights */
    BT_TRY(bt_parts_check_weights(t, BT_CHECK_SUSPECTED, err));
    if (t->cfg.bad_steps.on_bad_step == ON_BAD_RETRY)
        return end_run_after_bad_step(t, &s->step, ", the same bits when computed again", err);
    return skip_bad_step(s, t, verdict, err);
}

/* ---- part ------------------------------------------------------------------------------------ */

static bt_code bad_steps_create(bt_trainer *t, const bt_trainer_setup *setup, void **self,
                                bt_err *err) {
    (void)t;
    bad_steps *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot take memory for the history of steps");
    s->guard.patience = (int)setup->cfg->bad_steps.max_bad_steps;
    s->guard.spike_limit = setup->cfg->bad_steps.spike_limit;
    s->guard.window = setup->cfg->bad_steps.spike_window;
    *self = s;
    return BT_OK;
}

static void bad_steps_release(void *self) {
    bad_steps *s = self;
    bt_skipped_release(&s->skipped);
    free(s);
}

static void bad_steps_add_state(void *self, bt_trainer *t, bt_state *state) {
    bad_steps *s = self;
    (void)t;
    bt_guard_add_state(&s->guard, state);
    bt_skipped_add_state(&s->skipped, state);
}

static bt_code bad_steps_verdict(void *self, bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict,
                                 bt_err *err) {
    bad_steps *s = self;
    BT_TRY(s->repeating ? classify_repetition(s, t, o, verdict, err)
                        : classify_first_attempt(s, t, o, verdict, err));
    o->bad = *verdict == BT_SKIP;
    if (*verdict != BT_APPLY) return BT_OK;
    const bt_step_facts facts = facts_of(t, o);
    bt_guard_good(&s->guard, &facts);
    return BT_OK;
}

static void new_level(void *self) { bt_guard_forget(&((bad_steps *)self)->guard); }

const bt_part bt_part_bad_steps = {.name = "bad_steps",
                                   .create = bad_steps_create,
                                   .release = bad_steps_release,
                                   .add_state = bad_steps_add_state,
                                   .judge = bad_steps_verdict,
                                   .new_level = new_level};
