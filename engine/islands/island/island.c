/* island.c - converts arrays for the exchange with the hub and coordinates the ranks. */
#include "engine/islands/island/island.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/islands/island/exchange_thread.h"
#include "engine/islands/island/hub_copy.h"
#include "engine/islands/island/island_client.h"
#include "engine/islands/island/whole_array.h"
#include "engine/islands/rules/outer_step.h"
#include "engine/islands/zmq/island_socket.h"

static const double welcome_s = 60; /* time limit for the first welcome */
enum { LOOK_MS = 50 };              /* interval of polling for a stop request */

struct bt_island {
    bt_island_cfg cfg;
    bt_whole_array all;
    bt_island_go go;
    bool gave_up;
    bool first;          /* true on rank 0, which alone uses the following members */
    bt_island_go coming; /* the hub's newest go; it becomes `go` when all ranks accept it */
    bt_exchange_thread thread;
    bool in_thread;            /* the thread alone uses client, coming, hub, residual and all.x */
    bool rejoined;             /* the thread found that the island had to rejoin */
    bt_update_outcome outcome; /* outcome of the newest push */
    bool away;                 /* steps continue although the hub does not respond */
    bt_island_push push;
    float *sent; /* weights when the newest delta was sent; NULL: this mode has no deltas */
    bool whole;  /* true: all of hub.x is new; false: only the fragment of the newest delta */
    int64_t fragments;
    /* fragment of the newest delta: first element and number; without fragments 0 and total */
    size_t begin, part;
    bt_island_socket *socket;
    bt_island_client client;
    bt_text hello;
    bt_hub_copy hub;
    float *residual; /* accumulated encoding error; NULL: the codec has no error feedback */
    float *kept;     /* the residual before the push that is in flight */
    bt_island_count count;
};

static bool is_island_stopping(void *ctx) {
    bt_island *i = ctx;
    if (i->in_thread) return atomic_load(&i->thread.cancel);
    return i->cfg.interrupted && i->cfg.interrupted(i->cfg.ctx);
}

static void report_line(void *ctx, bool warning, const char *line) {
    bt_island *i = ctx;
    if (i->in_thread)
        bt_exchange_thread_note(&i->thread, warning, line);
    else if (i->cfg.tell)
        i->cfg.tell(i->cfg.ctx, warning, line);
}

static bt_code exchange_with_hub(void *ctx, bt_err *err);

static void put_hello(bt_island *i) {
    const bt_run_cfg *c = i->cfg.cfg;
    char host[64] = "?";
    gethostname(host, sizeof host - 1);
    bt_job_settings_put(&i->hello, c, &i->cfg.hashes);
    bt_text_printf(&i->hello, "name=%s\nhost=%s\npid=%d\nranks=%d\nsequences=%lld\n",
                   c->run.name[0] ? c->run.name : "island", host, (int)getpid(),
                   bt_comm_size(i->cfg.world), (long long)i->cfg.sequences);
}

static bt_code open_island_socket(bt_island *i, bt_err *err) {
    const bt_run_cfg *c = i->cfg.cfg;
    bt_curve_keys keys;
    if (strchr(c->islands.hub, ','))
        return bt_fail(err, BT_ARG,
                       "--hub '%.60s' is a list, but a hub has a single address HOST:PORT",
                       c->islands.hub);
    BT_TRY(bt_curve_read(&keys, c->islands.keys, "island", true, err));
    const bt_code code = bt_island_socket_open(&i->socket, c->islands.hub, &keys,
                                               c->islands.link_timeout, err);
    bt_curve_wipe(&keys);
    return code;
}

static bt_code open_hub(bt_island *i, bt_err *err) {
    const bt_run_cfg *c = i->cfg.cfg;
    const size_t n = i->all.params.total;
    const bt_codec *codec = bt_codec_at((bt_codec_id)c->parallel.codec);
    if (!c->islands.keys[0])
        return bt_fail(err, BT_ARG,
                       "--hub needs this island's keys: --keys FILE, made by 'bitrain hub --keys "
                       "DIR NAME' where the hub runs");
    BT_TRY(open_island_socket(i, err));
    BT_TRY(bt_hub_copy_init(&i->hub, &i->all.params, codec, err));
    i->fragments = c->islands.mode == BT_ISLANDS_DILOCO ? c->islands.fragments : 1;
    if (i->fragments > (int64_t)i->all.params.n) i->fragments = (int64_t)i->all.params.n;
    i->part = n;
    const bool owes = codec->encode && codec->state_bytes;
    if (owes) {
        i->residual = calloc(n, sizeof *i->residual);
        i->kept = calloc(n, sizeof *i->kept);
    }
    if (c->islands.mode == BT_ISLANDS_DILOCO) i->sent = calloc(n, sizeof *i->sent);
    put_hello(i);
    if (i->hello.failed || (c->islands.mode == BT_ISLANDS_DILOCO && !i->sent) ||
        (owes && (!i->residual || !i->kept)))
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the exchange with the hub");
    const bt_island_client_cfg client = {.port = bt_island_socket_port(i->socket),
                                         .hello = bt_text_str(&i->hello),
                                         .ctx = i,
                                         .interrupted = is_island_stopping,
                                         .tell = report_line,
                                         .patience_s = welcome_s,
                                         .lost_s = c->islands.patience};
    BT_TRY(bt_exchange_thread_init(&i->thread, exchange_with_hub, i, err));
    return bt_island_client_init(&i->client, &client, err);
}

bt_code bt_island_create(bt_island **out, const bt_island_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_island *i = calloc(1, sizeof *i);
    bt_code code = i ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for the island");
    if (code == BT_OK) {
        i->cfg = *cfg;
        i->first = bt_comm_rank(cfg->world) == 0;
        bt_text_init(&i->hello);
        code = bt_whole_array_create(&i->all, cfg->update, cfg->world, err);
    }
    if (code == BT_OK && i->first) code = open_hub(i, err);
    code = bt_agree(cfg->world, code, err);
    if (code != BT_OK)
        bt_island_destroy(i);
    else
        *out = i;
    return code;
}

void bt_island_end(bt_island *i) {
    bt_exchange_thread_release(&i->thread);
    i->in_thread = false;
}

void bt_island_destroy(bt_island *i) {
    if (!i) return;
    bt_island_end(i);
    if (i->client.in) bt_island_client_leave(&i->client);
    bt_island_client_release(&i->client);
    bt_island_socket_close(i->socket);
    bt_whole_array_release(&i->all);
    bt_text_release(&i->hello);
    bt_hub_copy_release(&i->hub);
    free(i->residual);
    free(i->kept);
    free(i->sent);
    free(i);
}

const bt_island_go *bt_island_now(const bt_island *i) { return &i->go; }

void bt_island_beat(bt_island *i) {
    if (i->first && !i->in_thread) bt_island_client_beat(&i->client);
}

bt_island_count bt_island_counted(const bt_island *i) { return i->count; }

bt_update_outcome bt_island_outcome(const bt_island *i) { return i->outcome; }

bool bt_island_gave_up(const bt_island *i) { return i->gave_up; }

/* Updates hub.x to the weights of coming.version. If client.stranger is set, the hub has no members
 * and hub.x does not change. */
static bt_code follow_hub_weights(bt_island *i, bt_err *err) {
    BT_TRY(bt_hub_copy_follow(&i->hub, &i->client, i->coming.version, i->all.x, &i->whole, err));
    i->whole |= i->fragments == 1;
    return BT_OK;
}

static bt_code fetch_moment(bt_island *i, int k, bt_err *err) {
    bool gone;
    BT_TRY(bt_hub_copy_moment(&i->hub, &i->client, (bt_fetch_kind)(BT_FETCH_MOMENT1 + k),
                              i->go.version, i->all.x, &gone, err));
    /* the next push is sent to the new hub; until then optimizer states are zero, as at the start of a training */
    if (gone) memset(i->all.x, 0, i->all.params.total * sizeof *i->all.x);
    return BT_OK;
}

/* Fetches the optimizer states of the hub's newest step, from which inner steps continue. */
static bt_code fetch_moments(bt_island *i, bt_err *err) {
    for (int k = 0; k < BT_OPTIM_STATES; k++) {
        const bt_code code = i->first ? fetch_moment(i, k, err) : BT_OK;
        BT_TRY(bt_agree(i->cfg.world, code, err));
        BT_TRY(bt_whole_array_place_state(&i->all, (size_t)k, err));
    }
    i->go.moments = 0;
    return BT_OK;
}

/* Adds the change of the weights since the push to the hub's newest weights, in x. For the delta of a fragment, the
 * other fragments keep their values. */
static void add_own_steps(bt_island *i) {
    const size_t n = i->all.params.total, begin = i->whole ? 0 : i->begin,
                 end = i->whole ? n : i->begin + i->part;
    float *x = i->all.x;
    for (size_t k = begin; k < end; k++) x[k] = i->hub.x[k] + (x[k] - i->sent[k]);
}

/* Adopts the hub's newest weights. For the delta of a fragment, the others return to their values at the push. */
static void adopt_start_weights(bt_island *i) {
    const size_t size = sizeof *i->hub.x;
    if (i->whole) {
        memcpy(i->all.x, i->hub.x, i->all.params.total * size);
        return;
    }
    memcpy(i->all.x, i->sent, i->all.params.total * size);
    memcpy(i->all.x + i->begin, i->hub.x + i->begin, i->part * size);
}

/* Records the content of the next update, for the case that the hub restarts before applying it. */
static void save_claim(bt_island *i) {
    const bt_island_go *g = &i->go;
    i->client.claim = (bt_island_claim){.begin = g->begin,
                                        .end = g->begin + g->steps * g->n,
                                        .next_begin = g->next_begin,
                                        .next_end = g->next_begin + g->next_steps * g->stride,
                                        .base = i->hub.version,
                                        .kind = g->kind,
                                        .steps = g->steps};
}

/* All ranks adopt the go of rank 0, or fail like rank 0. own: the change by steps that were done ahead is kept. */
static bt_code adopt_go(bt_island *i, bool own, bt_err *err) {
    if (i->first) i->go = i->coming;
    BT_TRY(bt_broadcast(i->cfg.world, &i->go, sizeof i->go, 0, err));
    if (own) BT_TRY(bt_whole_array_weights(&i->all, err));
    if (i->first && own) add_own_steps(i);
    if (i->first && !own) adopt_start_weights(i);
    if (i->first) save_claim(i);
    BT_TRY(bt_whole_array_place(&i->all, err));
    BT_TRY(bt_update_quantise(i->cfg.update, err));
    return i->go.moments ? fetch_moments(i, err) : BT_OK;
}

/* All ranks receive the result of rank 0's exchange. */
static bt_code agree_on_exchange(bt_island *i, bt_code code, bt_err *err) {
    int64_t gave_up = i->first && i->client.given_up;
    code = bt_agree(i->cfg.world, code, err);
    if (code == BT_OK) return BT_OK;
    bt_err ignored = BT_ERR_INIT;
    if (bt_broadcast(i->cfg.world, &gave_up, sizeof gave_up, 0, &ignored) == BT_OK)
        i->gave_up = gave_up != 0;
    return code;
}

static bt_code join_hub(bt_island *i, bt_err *err) {
    do {
        bt_vector_encode(&i->hub.plain, i->hub.bytes, i->all.x, NULL);
        i->hub.version = -1;
        BT_TRY(bt_island_client_join(&i->client, i->hub.bytes, bt_vector_bytes(&i->hub.plain),
                                     &i->coming, err));
        BT_TRY(follow_hub_weights(i, err));
    } while (i->client.stranger);
    return BT_OK;
}

bt_code bt_island_join(bt_island *i, bt_err *err) {
    BT_TRY(bt_whole_array_weights(&i->all, err));
    BT_TRY(agree_on_exchange(i, i->first ? join_hub(i, err) : BT_OK, err));
    return adopt_go(i, false, err);
}

static void select_push_fragment(bt_island *i, bt_push_kind kind) {
    bt_vector_code *code = &i->hub.code;
    code->first = code->end = i->begin = 0;
    i->part = i->all.params.total;
    if (kind == BT_PUSH_DELTA && i->fragments > 1)
        bt_vector_fragment(code, i->go.fragment, i->fragments, &i->begin, &i->part);
}

/* On rank 0, all.x contains the gradient, or `sent` the weights after the inner steps. */
static void make_push(bt_island *i, bt_push_kind kind, const bt_island_work *w) {
    select_push_fragment(i, kind);
    i->push = (bt_island_push){.kind = kind,
                               .base = i->hub.version,
                               .steps = i->go.steps,
                               .sequences = i->cfg.sequences,
                               .tokens = w ? w->tokens : 0,
                               .loss = w ? w->loss : NAN,
                               .grad_norm = w ? w->grad_norm : NAN};
}

/* Encodes the payload of the push. For a delta the thread does this during the next steps. */
static void encode_push(bt_island *i) {
    const size_t at = i->begin, n = i->part;
    if (i->push.tokens == 0) return;
    if (i->push.kind == BT_PUSH_DELTA)
        bt_vector_subtract(i->all.x + at, i->hub.x + at, i->sent + at, n);
    if (i->residual) memcpy(i->kept + at, i->residual + at, n * sizeof *i->kept);
    i->push.bytes = (int64_t)bt_vector_encode(&i->hub.code, i->hub.bytes, i->all.x, i->residual);
}

/* If the update was not applied, restores the earlier residual and fetches all weights of the hub. */
static void apply_push_outcome(bt_island *i) {
    const size_t at = i->begin, n = i->part;
    i->outcome = i->rejoined ? BT_UPDATE_LOST : (bt_update_outcome)i->coming.outcome;
    if (i->push.tokens == 0) return; /* the step was skipped */
    i->count.applied += i->outcome == BT_UPDATE_APPLIED;
    i->count.tokens += i->outcome == BT_UPDATE_APPLIED ? i->push.tokens : 0;
    if (i->outcome == BT_UPDATE_APPLIED) return;
    i->count.left_out++;
    if ((size_t)i->outcome < BT_UPDATE_OUTCOMES) i->count.by_outcome[i->outcome]++;
    if (i->residual) memcpy(i->residual + at, i->kept + at, n * sizeof *i->kept);
    if (!i->rejoined) report_line(i, true, bt_update_outcome_help(i->outcome));
}

/* Returns true if all weights must be fetched, because a fragment's delta was not applied but others include it. */
static bool needs_all_weights(const bt_island *i) {
    return i->rejoined || (i->fragments > 1 && i->coming.outcome != BT_UPDATE_APPLIED);
}

static bt_code exchange_with_hub(void *ctx, bt_err *err) {
    bt_island *i = ctx;
    encode_push(i);
    i->rejoined = false;
    BT_TRY(
        bt_island_client_push(&i->client, &i->push, i->hub.bytes, &i->coming, &i->rejoined, err));
    for (bool stranger = true; stranger && !(i->rejoined && i->client.want_weights);) {
        if (needs_all_weights(i)) i->hub.version = -1;
        BT_TRY(follow_hub_weights(i, err));
        stranger = i->client.stranger; /* the hub restarted between its go and this fetch */
        if (stranger)
            BT_TRY(
                bt_island_client_push_again(&i->client, &i->push, &i->coming, &i->rejoined, err));
    }
    apply_push_outcome(i);
    if (!i->rejoined || !i->client.want_weights) return BT_OK;
    memcpy(i->all.x, i->hub.x, i->all.params.total * sizeof *i->hub.x);
    return join_hub(i, err);
}

/* Returns true if steps are repeated on the data of the new go. */
static bool restarts_from_hub(const bt_island *i) {
    return i->rejoined || i->outcome == BT_UPDATE_CLOSED || i->outcome == BT_UPDATE_LATE;
}

/* Broadcasts the outcome that rank 0 received. */
static bt_code share_outcome(bt_island *i, bool *back, bool *own, bt_err *err) {
    int64_t found[3] = {*back, *own, i->outcome};
    BT_TRY(bt_broadcast(i->cfg.world, found, sizeof found, 0, err));
    *back = found[0] != 0;
    *own = found[1] != 0;
    i->outcome = (bt_update_outcome)found[2];
    return BT_OK;
}

static bt_code exchange_round(bt_island *i, bt_push_kind kind, const bt_island_work *w,
                              bool *rejoined, bt_err *err) {
    bool own = false;
    if (i->first) make_push(i, kind, w);
    BT_TRY(agree_on_exchange(i, i->first ? exchange_with_hub(i, err) : BT_OK, err));
    BT_TRY(adopt_go(i, false, err));
    *rejoined = i->first && restarts_from_hub(i);
    return share_outcome(i, rejoined, &own, err);
}

bt_code bt_island_gradient(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err) {
    BT_TRY(bt_whole_array_gradients(&i->all, (float)w->unscale, err));
    return exchange_round(i, BT_PUSH_GRADIENT, w, rejoined, err);
}

bt_code bt_island_skip(bt_island *i, bool *rejoined, bt_err *err) {
    return exchange_round(i, (bt_push_kind)i->go.kind, NULL, rejoined, err);
}

/* Returns the number of steps that are always done before the delta is acknowledged. */
static int64_t max_overlap_steps(const bt_island *i) {
    const int64_t asked = i->cfg.cfg->islands.overlap, most = i->go.next_steps;
    return asked >= 0 && asked < most ? asked : most;
}

static int64_t max_steps_without_hub(const bt_island *i) {
    const bt_run_cfg *c = i->cfg.cfg;
    const int64_t asked = c->islands.away < 0 ? c->islands.inner : c->islands.away,
                  most = i->go.next_steps;
    return asked < most ? asked : most;
}

static void log_exchange_notes(bt_island *i) {
    char line[BT_EXCHANGE_LINE];
    bool warning;
    while (bt_exchange_thread_take_note(&i->thread, &warning, line))
        if (i->cfg.tell) i->cfg.tell(i->cfg.ctx, warning, line);
}

/* Called on rank 0: waits for the reply to the delta, or, with `leave`, until the hub is known to be silent. */
static bool wait_for_reply(bt_island *i, bool leave) {
    for (bool done = false;;) {
        done = bt_exchange_thread_wait(&i->thread, leave && i->away ? 0 : LOOK_MS);
        log_exchange_notes(i);
        if (done) return true;
        if (leave && atomic_load(&i->client.lost)) return false;
        if (i->cfg.interrupted && i->cfg.interrupted(i->cfg.ctx))
            atomic_store(&i->thread.cancel, true);
    }
}

static bool is_answered(bt_island *i) {
    const bool done = bt_exchange_thread_wait(&i->thread, 0);
    log_exchange_notes(i);
    return done;
}

static void report_hub_lost(bt_island *i, int64_t most) {
    char line[160];
    if (i->away || !atomic_load(&i->client.lost)) return;
    i->away = true;
    snprintf(
        line, sizeof line,
        "training continues without it for at most %lld steps; the previous update is kept for it",
        (long long)most);
    if (i->cfg.tell) i->cfg.tell(i->cfg.ctx, true, line);
}

static void report_hub_back(bt_island *i, int64_t steps, bool own) {
    char line[160];
    if (!i->away) return;
    i->away = false;
    snprintf(line, sizeof line,
             "it has this island's update; %lld steps that were done meanwhile %s",
             (long long)steps, own ? "are part of the next one" : "are lost");
    if (i->cfg.tell) i->cfg.tell(i->cfg.ctx, false, line);
}

static bt_code apply_reply(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err) {
    const bt_island_go before = i->go;
    bool back = false, own = false;
    bt_code code = BT_OK;
    if (i->first) {
        code = bt_exchange_thread_end(&i->thread, err);
        i->in_thread = false;
        back = restarts_from_hub(i);
        /* steps after an update that was not applied began from weights that include it */
        own = steps > 0 && !back && i->outcome == BT_UPDATE_APPLIED &&
              i->coming.begin == before.next_begin && i->coming.stride == before.stride &&
              i->coming.steps >= steps;
        back |= steps > 0 && !own;
        if (code == BT_OK) report_hub_back(i, steps, own);
    }
    BT_TRY(agree_on_exchange(i, code, err));
    BT_TRY(share_outcome(i, &back, &own, err));
    *state = back ? BT_ISLAND_REJOINED : BT_ISLAND_SETTLED;
    return adopt_go(i, own, err);
}

bt_code bt_island_ahead(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err) {
    const int64_t overlap = max_overlap_steps(i), away = max_steps_without_hub(i);
    int64_t done = 1;
    *state = BT_ISLAND_AHEAD;
    const bool looks = i->cfg.cfg->islands.overlap < 0;
    /* every run does the same number of steps, regardless of the time of the reply */
    if (steps < overlap && !looks) return BT_OK;
    if (i->first) done = steps < overlap ? is_answered(i) : wait_for_reply(i, steps < away);
    if (i->first && !done) report_hub_lost(i, away);
    BT_TRY(bt_broadcast(i->cfg.world, &done, sizeof done, 0, err));
    return done ? apply_reply(i, steps, state, err) : BT_OK;
}

bt_code bt_island_delta(bt_island *i, const bt_island_work *w, bt_island_state *state,
                        bt_err *err) {
    BT_TRY(bt_whole_array_weights(&i->all, err));
    if (i->first) {
        float *weights = i->all.x;
        i->all.x = i->sent;
        i->sent = weights;
        make_push(i, BT_PUSH_DELTA, w);
        i->in_thread = true;
        bt_exchange_thread_start(&i->thread);
    }
    return bt_island_ahead(i, 0, state, err);
}
