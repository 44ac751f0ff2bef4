/* replicas_part.c - compares the weights of data-parallel replicas (train.check_weights_every), also before each
 * checkpoint. A difference ends the run and names the damaged rank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/train/trainer_impl.h"
#include "engine/update/replica_check.h"
#include "engine/update/suspect.h"

typedef struct replicas {
    bt_replica_check check;
    int64_t checked_step; /* step of the last successful comparison; -1 before the first */
    int64_t next_check;   /* step of the next comparison, if its cost determines the interval */
    int64_t checked_ns;   /* time of the last comparison */
    bt_suspect
        suspect; /* difference of the previous attempt that has not been attributed to a rank */
} replicas;

static bt_code replicas_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t, (void)s;
    replicas *r = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot take memory for the comparison of replicas");
    r->checked_step = r->suspect.step = -1;
    *self = r;
    return BT_OK;
}

static void replicas_release(void *self) {
    replicas *r = self;
    bt_replica_check_release(&r->check);
    free(r);
}

static bt_code replicas_model_made(void *self, bt_trainer *t, bt_err *err) {
    replicas *r = self;
    bt_replica_check_release(&r->check);
    return bt_replica_check_init(&r->check, &t->update, err);
}

static bt_code replicas_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    replicas *r = self;
    if (stage != BT_LOAD_RESUMED) return BT_OK;
    return bt_suspect_read(t->cfg.run.out, &t->mesh, t->at.step, &r->suspect, err);
}

static void blame_event(bt_trainer *t, int rank, const char *host, const char *tensor,
                        const char *title) {
    bt_text body;
    bt_json j;
    bt_text_init(&body);
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "cause", "replicas_differ");
    bt_json_str(&j, "tensor", tensor);
    bt_json_int(&j, "rank", rank);
    bt_json_str(&j, "host", host);
    bt_json_end(&j, '}');
    bt_telemetry_event_of(&t->telemetry, BT_EVENT_HARDWARE, rank, t->at.step - 1,
                          bt_text_str(&body), title);
    bt_text_release(&body);
}

static void record_difference(bt_trainer *t, const bt_replica_blame *b) {
    char title[400];
    const bool tie = !b->majority;
    if (tie)
        snprintf(title, sizeof title,
                 "weights of %s differ after step %" PRId64
                 " between rank %d (host '%s') and rank %d (host '%s'): repeating the step from a "
                 "checkpoint shows which of them is damaged",
                 b->tensor, t->at.step, b->rank[0], b->host[0], b->rank[1], b->host[1]);
    else
        snprintf(title, sizeof title,
                 "weights of %s on rank %d (host '%s') are damaged after step %" PRId64
                 ": the majority of replicas has other values",
                 b->tensor, b->rank[0], b->host[0], t->at.step);
    blame_event(t, tie ? -1 : b->rank[0], b->host[0], b->tensor, title);
    if (tie && bt_comm_rank(t->mesh.world) == 0)
        bt_suspect_write(t->cfg.run.out, &t->mesh, &(bt_suspect){.step = t->at.step, .blame = *b});
}

static bt_code compare_now(replicas *r, bt_trainer *t, bt_err *err) {
    bt_replica_blame blame = {0};
    const bt_code code = bt_replica_check_run(&r->check, t->at.step, &blame, err);
    if (!blame.found) return code;
    record_difference(t, &blame);
    /* a pending checkpoint has compared its weights, so it is finished first */
    bt_err unsaved = BT_ERR_INIT;
    if (bt_saver_finish(&t->saver, &unsaved) != BT_OK) bt_log(BT_LOG_WARN, "%s", unsaved.msg);
    return code;
}

/* Determines which of two differing ranks of the previous attempt was damaged. */
static bt_code resolve_suspicion(replicas *r, bt_trainer *t, bt_err *err) {
    char title[300];
    int which;
    const bt_replica_blame b = r->suspect.blame;
    BT_TRY(bt_suspect_resolve(t->cfg.run.out, &r->suspect, &r->check, &which, err));
    if (which < 0) return BT_OK;
    snprintf(title, sizeof title,
             "step %" PRId64 " was repeated: rank %d (host '%s') had damaged weights of %s",
             t->at.step, b.rank[which], b.host[which], b.tensor);
    blame_event(t, b.rank[which], b.host[which], b.tensor, title);
    return BT_OK;
}

/* Chooses the step of the next comparison from the cost of the last one (train.check_weights_every=-1); equal on all
 * ranks. began_ns: start of the last comparison. */
static bt_code plan_next_check(replicas *r, bt_trainer *t, int64_t began_ns, bt_err *err) {
    const int64_t now = bt_now_ns(), steps = t->at.step - r->checked_step;
    double worst[2] = {(double)(now - began_ns),
                       0}; /* longest comparison, and the negated shortest step */
    if (r->checked_ns > 0 && steps > 0)
        worst[1] = -(double)(began_ns - r->checked_ns) / (double)steps;
    BT_TRY(bt_all_reduce_f64(t->mesh.world, worst, 2, BT_MAX, err));
    r->next_check = t->at.step + bt_replica_check_every(worst[0], -worst[1]);
    r->checked_ns = now;
    return BT_OK;
}

/* Compares replicas at most once for each step. */
static bt_code compare_replicas(replicas *r, bt_trainer *t, bt_err *err) {
    if (t->cfg.replicas.check_weights_every == 0 || r->checked_step == t->at.step ||
        t->setup.dp == 1)
        return BT_OK;
    const int64_t began = bt_now_ns();
    BT_TRY(compare_now(r, t, err));
    if (r->suspect.step == t->at.step) BT_TRY(resolve_suspicion(r, t, err));
    if (t->cfg.replicas.check_weights_every < 0) BT_TRY(plan_next_check(r, t, began, err));
    r->checked_step = t->at.step;
    return BT_OK;
}

static bt_code check_replica_weights(void *self, bt_trainer *t, bt_check_reason why, bt_err *err) {
    replicas *r = self;
    if (why == BT_CHECK_BEFORE_SAVE) return compare_replicas(r, t, err);
    if (t->setup.dp > 1) BT_TRY(compare_now(r, t, err));
    if (!t->cfg.run.out[0])
        return BT_OK; /* without checkpoints there is no better state to return to */
    return bt_replica_check_finite(&r->check, t->at.step, err);
}

static bt_code replicas_after_update(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const replicas *r = self;
    (void)o, (void)err;
    bt_replica_check_test_flip(&r->check, t->at.step + 1);
    return BT_OK;
}

static bool replicas_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    const replicas *r = self;
    (void)o;
    return bt_every(t->at.step, t->cfg.replicas.check_weights_every) || bt_trainer_at_end(t) ||
           (t->cfg.replicas.check_weights_every < 0 && t->at.step >= r->next_check) ||
           r->suspect.step == t->at.step;
}

static bt_code replicas_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o;
    return compare_replicas(self, t, err);
}

const bt_part bt_part_replicas = {.name = "replicas",
                                  .create = replicas_create,
                                  .release = replicas_release,
                                  .model_made = replicas_model_made,
                                  .load = replicas_load,
                                  .after_update = replicas_after_update,
                                  .due = replicas_due,
                                  .after_step = replicas_after_step,
                                  .phase = BT_MR_MONITOR,
                                  .check_weights = check_replica_weights};
