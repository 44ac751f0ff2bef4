/* mixture_part.c - changes the weights of the sources of a mixture during a run: adds a stage to data.mixture that
 * begins with the next step, and stores it in checkpoints. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/shards/mixture.h"
#include "engine/train/trainer_impl.h"

typedef struct mixture {
    bt_trainer *trainer;
    char before[512]; /* data.mixture before the first change; "" if unchanged */
} mixture;

/* Removes a stage that begins with this step, because no step has used it. */
static void remove_unused_stage(char *text, int64_t step) {
    char *last = strrchr(text, ',');
    if (last && strtoll(last + 1, NULL, 10) == step) *last = '\0';
}

/* Writes data.mixture with these weights from the next step on. */
static bt_code next_mixture(const bt_trainer *t, const char *weights, char *out, size_t size,
                            bt_err *err) {
    const size_t sources = bt_loader_sources(t->loader);
    bt_mixture *m;
    if (!sources)
        return bt_fail(err, BT_ARG,
                       "the run has no data.mixture: its sources are read one after the other");
    if (t->step.data_owner) return bt_fail(err, BT_ARG, "%s", t->step.data_owner);
    if (strpbrk(weights, ",="))
        return bt_fail(err, BT_ARG, "'%.60s' is not a list of weights (example: 3:1)", weights);
    char before[sizeof t->cfg.data.mixture];
    snprintf(before, sizeof before, "%s", t->cfg.data.mixture);
    remove_unused_stage(before, t->at.step);
    if (snprintf(out, size, "%s,%" PRId64 "=%s", before, t->at.step, weights) >= (int)size)
        return bt_fail(err, BT_ARG, "data.mixture has no room for more stages");
    BT_TRY(bt_mixture_create(&m, out, sources, (int)t->micro_plan.sequences, err));
    bt_mixture_destroy(m);
    return BT_OK;
}

static bt_code mixture_act(void *self, bt_trainer *t, const bt_control *c, bool evaluated,
                           bt_err *err) {
    mixture *m = self;
    (void)evaluated;
    if (!(c->verbs & BT_REQ_MIXTURE)) return BT_OK;
    char weights[128] = "", text[sizeof t->cfg.data.mixture];
    char *asked = bt_comm_rank(t->mesh.world) == 0 ? bt_control_take_mixture(t->requests) : NULL;
    if (asked) snprintf(weights, sizeof weights, "%s", asked);
    free(asked);
    BT_TRY(bt_broadcast(t->mesh.world, weights, sizeof weights, 0, err));
    bt_code code = next_mixture(t, weights, text, sizeof text, err);
    if (code == BT_ARG) { /* equal on all ranks */
        bt_telemetry_event(&t->telemetry, BT_EVENT_REFUSED, t->at.step - 1, NULL,
                           "the mixture stays: %s", err ? err->msg : "");
        return BT_OK;
    }
    BT_TRY(code);
    if (!m->before[0]) snprintf(m->before, sizeof m->before, "%s", t->cfg.data.mixture);
    memcpy(t->cfg.data.mixture, text, sizeof text);
    memcpy(t->now.data.mixture, text, sizeof text);
    BT_TRY(bt_agree(t->mesh.world, bt_trainer_open_data(t, err), err));
    bt_telemetry_event(&t->telemetry, BT_EVENT_CONTROL, t->at.step - 1, NULL,
                       "sources weigh %s from now on (data.mixture=%s)", weights, text);
    return BT_OK;
}

static void save_mixture(void *ctx, bt_json *j) {
    const mixture *m = ctx;
    bt_json_num(j, "bytes_per_token", bt_loader_bytes_per_token(m->trainer->loader));
    if (!m->before[0]) return;
    bt_json_str(j, "mixture_before", m->before);
    bt_json_str(j, "mixture", m->trainer->cfg.data.mixture);
}

static void load_mixture(void *ctx, const bt_state_values *v) {
    mixture *m = ctx;
    bt_trainer *t = m->trainer;
    const char *before = bt_state_text(v, "mixture_before"), *now = bt_state_text(v, "mixture");
    if (!before || !now || strlen(now) >= sizeof t->cfg.data.mixture) return;
    const bool as_it_began = strcmp(t->cfg.data.mixture, before) == 0;
    if (!as_it_began && strcmp(t->cfg.data.mixture, now) != 0) return;
    snprintf(m->before, sizeof m->before, "%s", before);
    snprintf(t->cfg.data.mixture, sizeof t->cfg.data.mixture, "%s", now);
    snprintf(t->now.data.mixture, sizeof t->now.data.mixture, "%s", now);
}

static void mixture_add_state(void *self, bt_trainer *t, bt_state *s) {
    (void)t;
    bt_state_add(s, &(bt_state_row){
                        .name = "data", .ctx = self, .save = save_mixture, .load = load_mixture});
}

static bt_code mixture_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)s;
    mixture *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot take memory for data.mixture");
    m->trainer = t;
    *self = m;
    return BT_OK;
}

/* Text of other sources has another loss, which is no spike. */
static bt_code mixture_before_step(void *self, bt_trainer *t, bt_err *err) {
    (void)self;
    (void)err;
    if (bt_loader_mixture_changes_at(t->loader, t->at.step)) bt_parts_new_level(t);
    return BT_OK;
}

const bt_part bt_part_mixture = {.name = "mixture",
                                 .create = mixture_create,
                                 .release = free,
                                 .add_state = mixture_add_state,
                                 .before_step = mixture_before_step,
                                 .act = mixture_act};
