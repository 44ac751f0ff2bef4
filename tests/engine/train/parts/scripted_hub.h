/* scripted_hub.h - replaces the functions of island.h by scripted replies and records their arguments, for tests
 * without a hub. Only one file of a test program may include it. */
#ifndef BT_TESTS_ENGINE_TRAIN_SCRIPTED_HUB_H
#define BT_TESTS_ENGINE_TRAIN_SCRIPTED_HUB_H

#include "engine/train/parts/island/island_part.h"
#include "engine/train/trainer_impl.h"
#include "tests/tiny_run.h"

enum { BATCH = 16, STEP_TOKENS = 512, MOST = 16 };

typedef enum { GRADIENT, DELTA, AHEAD, SKIP } call_kind;

typedef struct answer {
    bt_code code;
    bool again; /* the update was rejected and must be repeated */
    bool ahead; /* no reply to the delta has arrived yet */
    bt_update_outcome outcome;
    bt_island_go go;
} answer;

typedef struct call {
    call_kind kind;
    bt_island_work work;
    int64_t step, ahead; /* step of the training; number of steps since the delta was sent */
} call;

struct bt_island {
    bt_island_cfg cfg;
};

static struct {
    bt_island_go first;
    answer answers[MOST];
    call calls[MOST];
    size_t n_calls, n_beats, n_ends;
    bool gives_up;
    void (*on_call)(bt_trainer *t);
    bt_island_count count;
    struct bt_island island;
    bt_island_go now;
    bt_update_outcome outcome;
} hub;

bt_code bt_island_create(bt_island **out, const bt_island_cfg *cfg, bt_err *err) {
    const bt_trainer *t = ((const bt_island_part *)cfg->ctx)->trainer;
    (void)err;
    hub.island.cfg = *cfg;
    assert_ptr_equal(cfg->cfg, &t->cfg);
    assert_ptr_equal(cfg->update, &t->update);
    assert_ptr_equal(cfg->world, bt_comm_world());
    assert_true(cfg->hashes.model == bt_params_hash(&t->setup.params));
    assert_true(cfg->hashes.data == bt_loader_hash(t->loader));
    assert_int_equal(cfg->sequences, BATCH);
    *out = &hub.island;
    return BT_OK;
}

bt_code bt_island_join(bt_island *i, bt_err *err) {
    (void)i, (void)err;
    hub.now = hub.first;
    return BT_OK;
}

static bt_code take(call_kind kind, const bt_island_work *w, int64_t ahead, bool *again,
                    bool *unanswered, bt_err *err) {
    bt_trainer *t = ((bt_island_part *)hub.island.cfg.ctx)->trainer;
    assert_true(hub.n_calls < MOST);
    const answer *a = &hub.answers[hub.n_calls];
    call *c = &hub.calls[hub.n_calls++];
    *c = (call){.kind = kind, .step = t->at.step, .ahead = ahead};
    if (w) c->work = *w;
    assert_int_equal(atomic_load(&t->page->at), BT_AT_HUB);
    assert_int_equal(atomic_load(&t->page->step), t->at.step);
    if (hub.on_call) hub.on_call(t);
    if (a->code != BT_OK) return bt_fail(err, a->code, "the hub is gone");
    *again = a->again;
    *unanswered = a->ahead;
    if (a->ahead) return BT_OK;
    hub.now = a->go;
    hub.outcome = a->outcome;
    return BT_OK;
}

static bt_code take_delta(call_kind kind, const bt_island_work *w, int64_t ahead,
                          bt_island_state *state, bt_err *err) {
    bool again = false, unanswered = false;
    BT_TRY(take(kind, w, ahead, &again, &unanswered, err));
    *state = unanswered ? BT_ISLAND_AHEAD : again ? BT_ISLAND_REJOINED : BT_ISLAND_SETTLED;
    return BT_OK;
}

bt_code bt_island_gradient(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err) {
    bool unanswered;
    (void)i;
    return take(GRADIENT, w, 0, rejoined, &unanswered, err);
}

bt_code bt_island_skip(bt_island *i, bool *rejoined, bt_err *err) {
    bool unanswered;
    (void)i;
    return take(SKIP, NULL, 0, rejoined, &unanswered, err);
}

bt_code bt_island_delta(bt_island *i, const bt_island_work *w, bt_island_state *state,
                        bt_err *err) {
    (void)i;
    return take_delta(DELTA, w, 0, state, err);
}

bt_code bt_island_ahead(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err) {
    (void)i;
    return take_delta(AHEAD, NULL, steps, state, err);
}

const bt_island_go *bt_island_now(const bt_island *i) { return i ? &hub.now : NULL; }
bt_update_outcome bt_island_outcome(const bt_island *i) { return i ? hub.outcome : 0; }
bool bt_island_gave_up(const bt_island *i) { return i && hub.gives_up; }
bt_island_count bt_island_counted(const bt_island *i) {
    return i ? hub.count : (bt_island_count){0};
}
void bt_island_beat(bt_island *i) { hub.n_beats += i != NULL; }
void bt_island_end(bt_island *i) { hub.n_ends += i != NULL; }
void bt_island_destroy(bt_island *i) { (void)i; }

static inline bt_island_go go_of(bt_push_kind kind, int64_t clock, int64_t steps, int64_t batch,
                                 int64_t every) {
    return (bt_island_go){.kind = kind,
                          .clock = clock,
                          .steps = steps,
                          .begin = batch * BATCH,
                          .stride = every * BATCH,
                          .n = BATCH,
                          .islands = every,
                          .lr = NAN,
                          .grad_norm = NAN,
                          .decay = NAN};
}

#endif
