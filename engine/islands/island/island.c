/* island.c - arrays in and out of the conversation with the hub. */
#include "engine/islands/island/island.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/islands/island/exchange_thread.h"
#include "engine/islands/island/island_client.h"
#include "engine/islands/island/whole_array.h"
#include "engine/islands/rules/outer_step.h"
#include "engine/islands/rules/vector_code.h"
#include "engine/islands/zmq/island_socket.h"

static const bt_codec no_codec = {.name = "fp32"};
static const double welcome_s = 60; /* for the first one */
enum { LOOK_MS = 50 };              /* between two looks at who asks to stop */

struct bt_island {
    bt_island_cfg cfg;
    bt_whole_array all;
    bt_island_go go;
    bool gave_up;
    bool first;          /* rank 0; the rest is its alone */
    bt_island_go coming; /* what the hub said last; `go` when all ranks take it over */
    bt_exchange_thread thread;
    bool in_thread; /* it has the client, coming, start, version, bytes and all.x */
    bool rejoined;  /* what it found */
    bool away;      /* steps are done because the hub does not answer */
    bt_island_push push;
    float *sent; /* the weights of the newest delta; NULL: this mode has none */
    bool whole;  /* `start` is of one version as a whole, not only in the newest delta's fragment */
    int64_t fragments;
    size_t begin, part; /* elements of the fragment of the newest delta; all: 0, total */
    bt_island_socket *sockets[BT_HUB_PARTS]; /* (n_sockets) one for each process of the hub */
    size_t n_sockets;
    bt_island_cut cut; /* of the code that is in use */
    bt_island_client client;
    bt_text hello;
    bt_vector_code plain, code;
    float *start;    /* the hub's weights, as far as this island has them */
    float *residual; /* what encoding has lost so far; NULL: the codec loses nothing for good */
    float *kept;     /* the residual before the push that is on its way */
    unsigned char *bytes;
    int64_t version; /* of start; -1: none */
    bt_island_count count;
};

/* ---- what the client asks and tells, from whichever thread has it --------------------------------- */

static bool interrupted(void *ctx) {
    bt_island *i = ctx;
    if (i->in_thread) return atomic_load(&i->thread.cancel);
    return i->cfg.interrupted && i->cfg.interrupted(i->cfg.ctx);
}

static void tell(void *ctx, bool warning, const char *line) {
    bt_island *i = ctx;
    if (i->in_thread)
        bt_exchange_thread_note(&i->thread, warning, line);
    else if (i->cfg.tell)
        i->cfg.tell(i->cfg.ctx, warning, line);
}

/* ---- create ---------------------------------------------------------------------------------- */

static bt_code talk(void *ctx, bt_err *err);

static void put_hello(bt_island *i) {
    const bt_run_cfg *c = i->cfg.cfg;
    char host[64] = "?";
    gethostname(host, sizeof host - 1);
    bt_job_settings_put(&i->hello, c, &i->cfg.hashes);
    bt_text_printf(&i->hello, "name=%s\nhost=%s\npid=%d\nranks=%d\nsequences=%lld\nparts=%zu\n",
                   c->name[0] ? c->name : "island", host, (int)getpid(), bt_comm_size(i->cfg.world),
                   (long long)i->cfg.sequences, i->n_sockets);
}

/* an address for each process of the hub, separated by commas */
static bt_code open_sockets(bt_island *i, bt_err *err) {
    const bt_run_cfg *c = i->cfg.cfg;
    bt_curve_keys keys;
    BT_TRY(bt_curve_read(&keys, c->hub_keys, "island", true, err));
    bt_code code = BT_OK;
    for (const char *at = c->hub; code == BT_OK && *at;) {
        char address[128];
        const size_t n = strcspn(at, ",");
        if (n == 0 || n >= sizeof address || i->n_sockets == BT_HUB_PARTS)
            code = bt_fail(err, BT_ARG,
                           "--hub '%s' is no list of at most %d addresses HOST:PORT, separated by "
                           "commas",
                           c->hub, BT_HUB_PARTS);
        snprintf(address, sizeof address, "%.*s", (int)n, at);
        if (code == BT_OK)
            code = bt_island_socket_open(&i->sockets[i->n_sockets], address, &keys, err);
        i->n_sockets += code == BT_OK;
        at += n + (at[n] == ',');
    }
    bt_curve_wipe(&keys);
    if (code == BT_OK && (int64_t)i->n_sockets > (int64_t)i->all.params.n)
        code = bt_fail(err, BT_ARG, "--hub has %zu addresses for a model of %zu tensors",
                       i->n_sockets, i->all.params.n);
    return code;
}

/* what of an array in this code is for each process of the hub */
static const bt_island_cut *cut_of(bt_island *i, const bt_vector_code *code) {
    const int64_t of = (int64_t)i->n_sockets;
    bt_vector_code c = *code;
    size_t begin, n;
    for (int64_t k = 0; k < of; k++) {
        if (of > 1) bt_vector_fragment(&c, k, of, &begin, &n);
        i->cut.bytes[k] = bt_vector_bytes(&c);
    }
    return &i->cut;
}

static bt_code open_hub(bt_island *i, bt_err *err) {
    const bt_run_cfg *c = i->cfg.cfg;
    const size_t n = i->all.params.total;
    const bt_codec *codec = bt_codec_at((bt_codec_id)c->codec);
    if (!c->hub_keys[0])
        return bt_fail(err, BT_ARG,
                       "--hub needs this island's keys: --keys FILE, made by 'bitrain hub --keys "
                       "DIR NAME' where the hub runs");
    i->plain = i->code = (bt_vector_code){.params = &i->all.params, .codec = &no_codec};
    if (codec->encode) i->code.codec = codec;
    i->fragments = c->mode == BT_ISLANDS_DILOCO ? c->island_fragments : 1;
    if (i->fragments > (int64_t)i->all.params.n) i->fragments = (int64_t)i->all.params.n;
    i->part = n;
    i->start = calloc(n, sizeof *i->start);
    i->bytes = malloc(bt_vector_bytes(&i->plain) + bt_vector_bytes(&i->code));
    if (i->code.codec->state_bytes) {
        i->residual = calloc(n, sizeof *i->residual);
        i->kept = calloc(n, sizeof *i->kept);
    }
    if (c->mode == BT_ISLANDS_DILOCO) i->sent = calloc(n, sizeof *i->sent);
    BT_TRY(open_sockets(i, err));
    put_hello(i);
    if (!i->start || !i->bytes || i->hello.failed || (c->mode == BT_ISLANDS_DILOCO && !i->sent) ||
        (i->code.codec->state_bytes && (!i->residual || !i->kept)))
        return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange with the hub");
    bt_island_client_cfg client = {.n_ports = i->n_sockets,
                                   .hello = bt_text_str(&i->hello),
                                   .ctx = i,
                                   .interrupted = interrupted,
                                   .tell = tell,
                                   .patience_s = welcome_s,
                                   .lost_s = c->island_patience};
    for (size_t k = 0; k < i->n_sockets; k++)
        client.ports[k] = bt_island_socket_port(i->sockets[k]);
    BT_TRY(bt_exchange_thread_init(&i->thread, talk, i, err));
    return bt_island_client_init(&i->client, &client, err);
}

bt_code bt_island_create(bt_island **out, const bt_island_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_island *i = calloc(1, sizeof *i);
    bt_code code = i ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for the island");
    if (code == BT_OK) {
        i->cfg = *cfg;
        i->first = bt_comm_rank(cfg->world) == 0;
        i->version = -1;
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
    for (size_t k = 0; k < i->n_sockets; k++) bt_island_socket_close(i->sockets[k]);
    bt_whole_array_release(&i->all);
    bt_text_release(&i->hello);
    free(i->start);
    free(i->residual);
    free(i->kept);
    free(i->sent);
    free(i->bytes);
    free(i);
}

const bt_island_go *bt_island_now(const bt_island *i) { return &i->go; }

void bt_island_beat(bt_island *i) {
    if (i->first && !i->in_thread) bt_island_client_beat(&i->client);
}

bt_island_count bt_island_counted(const bt_island *i) { return i->count; }

bool bt_island_gave_up(const bt_island *i) { return i->gave_up; }

uint64_t bt_island_bytes(const bt_island *i) {
    uint64_t sum = 0;
    for (size_t k = 0; k < i->n_sockets; k++) {
        const bt_island_port port = bt_island_socket_port(i->sockets[k]);
        sum += port.traffic(port.ctx);
    }
    return sum;
}

/* ---- the hub's weights --------------------------------------------------------------------------- */

static bt_code fetch_update(bt_island *i, bool *gone, bt_err *err) {
    const size_t n = bt_vector_bytes(&i->code);
    BT_TRY(bt_island_client_fetch(&i->client, BT_FETCH_UPDATE, i->coming.version, i->bytes,
                                  cut_of(i, &i->code), gone, err));
    if (*gone) return BT_OK;
    if (!bt_vector_decode(&i->code, i->all.x, i->bytes, n))
        return bt_fail(err, BT_FORMAT, "the hub's update is not of this model");
    bt_vector_add(i->start, i->all.x, i->all.params.total);
    return BT_OK;
}

static bt_code fetch_weights(bt_island *i, bt_err *err) {
    const size_t n = bt_vector_bytes(&i->plain);
    bool gone = true;
    while (gone) {
        BT_TRY(bt_island_client_fetch(&i->client, BT_FETCH_WEIGHTS, i->coming.version, i->bytes,
                                      cut_of(i, &i->plain), &gone, err));
        if (i->client.stranger) return BT_OK;
    }
    if (!bt_vector_decode(&i->plain, i->start, i->bytes, n) ||
        !bt_vector_finite(i->start, i->all.params.total))
        return bt_fail(err, BT_FORMAT, "the hub's weights are not of this model, or not finite");
    return BT_OK;
}

/* `start` becomes the weights of coming.version. client.stranger: it does not, the hub knows nobody any more */
static bt_code bring(bt_island *i, bt_err *err) {
    bool gone = true;
    i->client.stranger = false;
    i->whole = i->fragments == 1;
    if (i->version == i->coming.version) return BT_OK;
    if (i->code.codec != &no_codec && i->version >= 0 && i->version + 1 == i->coming.version)
        BT_TRY(fetch_update(i, &gone, err));
    i->whole |= gone;
    if (gone && !i->client.stranger) BT_TRY(fetch_weights(i, err));
    if (!i->client.stranger) i->version = i->coming.version;
    return BT_OK;
}

static bt_code fetch_moment(bt_island *i, int k, bt_err *err) {
    const size_t n = bt_vector_bytes(&i->plain);
    bool gone = true;
    while (gone) {
        BT_TRY(bt_island_client_fetch(&i->client, (bt_fetch_kind)(BT_FETCH_MOMENT1 + k),
                                      i->go.version, i->bytes, cut_of(i, &i->plain), &gone, err));
        if (!i->client.stranger) continue;
        /* the next push meets the new hub; meanwhile the states begin at zero, as those of an optimizer do */
        memset(i->all.x, 0, i->all.params.total * sizeof *i->all.x);
        return BT_OK;
    }
    if (!bt_vector_decode(&i->plain, i->all.x, i->bytes, n))
        return bt_fail(err, BT_FORMAT, "the hub's optimizer is not of this model");
    return BT_OK;
}

/* local steps begin where the steps at the hub ended, with the optimizer's states of then */
static bt_code take_moments(bt_island *i, bt_err *err) {
    for (int k = 0; k < BT_OPTIM_STATES; k++) {
        const bt_code code = i->first ? fetch_moment(i, k, err) : BT_OK;
        BT_TRY(bt_agree(i->cfg.world, code, err));
        BT_TRY(bt_whole_array_place_state(&i->all, (size_t)k, err));
    }
    i->go.moments = 0;
    return BT_OK;
}

/* The newest weights of the hub, and what this island did since it sent its own; of a fragment's delta, the
 * other fragments stay. x: the weights now */
static void add_own_steps(bt_island *i) {
    const size_t n = i->all.params.total, begin = i->whole ? 0 : i->begin,
                 end = i->whole ? n : i->begin + i->part;
    float *x = i->all.x;
    for (size_t k = begin; k < end; k++) x[k] = i->start[k] + (x[k] - i->sent[k]);
}

/* the newest weights of the hub; of a fragment's delta, the others are as they were sent */
static void take_start(bt_island *i) {
    const size_t size = sizeof *i->start;
    if (i->whole) {
        memcpy(i->all.x, i->start, i->all.params.total * size);
        return;
    }
    memcpy(i->all.x, i->sent, i->all.params.total * size);
    memcpy(i->all.x + i->begin, i->start + i->begin, i->part * size);
}

/* what the next update is made of, for a hub that is started again meanwhile */
static void put_claim(bt_island *i) {
    const bt_island_go *g = &i->go;
    i->client.claim = (bt_island_claim){.begin = g->begin,
                                        .end = g->begin + g->steps * g->n,
                                        .next_begin = g->next_begin,
                                        .next_end = g->next_begin + g->next_steps * g->stride,
                                        .base = i->version,
                                        .kind = g->kind,
                                        .steps = g->steps};
}

/* All ranks take what rank 0 was told, or fail as it did. own: steps that were done ahead stay in the
 * weights */
static bt_code take_over(bt_island *i, bool own, bt_err *err) {
    if (i->first) i->go = i->coming;
    BT_TRY(bt_broadcast(i->cfg.world, &i->go, sizeof i->go, 0, err));
    if (own) BT_TRY(bt_whole_array_weights(&i->all, err));
    if (i->first && own) add_own_steps(i);
    if (i->first && !own) take_start(i);
    if (i->first) put_claim(i);
    BT_TRY(bt_whole_array_place(&i->all, err));
    BT_TRY(bt_update_quantise(i->cfg.update, err));
    return i->go.moments ? take_moments(i, err) : BT_OK;
}

/* what rank 0's conversation came to, on all ranks */
static bt_code agree(bt_island *i, bt_code code, bt_err *err) {
    int64_t gave_up = i->first && i->client.given_up;
    code = bt_agree(i->cfg.world, code, err);
    if (code == BT_OK) return BT_OK;
    bt_err ignored = BT_ERR_INIT;
    if (bt_broadcast(i->cfg.world, &gave_up, sizeof gave_up, 0, &ignored) == BT_OK)
        i->gave_up = gave_up != 0;
    return code;
}

/* ---- join ------------------------------------------------------------------------------------- */

static bt_code join_hub(bt_island *i, bt_err *err) {
    do {
        bt_vector_encode(&i->plain, i->bytes, i->all.x, NULL);
        i->version = -1;
        BT_TRY(bt_island_client_join(&i->client, i->bytes, cut_of(i, &i->plain), &i->coming, err));
        BT_TRY(bring(i, err));
    } while (i->client.stranger);
    return BT_OK;
}

bt_code bt_island_join(bt_island *i, bt_err *err) {
    BT_TRY(bt_whole_array_weights(&i->all, err));
    BT_TRY(agree(i, i->first ? join_hub(i, err) : BT_OK, err));
    return take_over(i, false, err);
}

/* ---- push ------------------------------------------------------------------------------------- */

static void use_fragment(bt_island *i, bt_push_kind kind) {
    i->code.first = i->code.end = i->begin = 0;
    i->part = i->all.params.total;
    if (kind == BT_PUSH_DELTA && i->fragments > 1)
        bt_vector_fragment(&i->code, i->go.fragment, i->fragments, &i->begin, &i->part);
}

/* rank 0; all.x is what the update says */
static void make_push(bt_island *i, bt_push_kind kind, const bt_island_work *w) {
    use_fragment(i, kind);
    i->push = (bt_island_push){.kind = kind,
                               .base = i->version,
                               .steps = i->go.steps,
                               .sequences = i->cfg.sequences,
                               .tokens = w ? w->tokens : 0,
                               .loss = w ? w->loss : NAN,
                               .grad_norm = w ? w->grad_norm : NAN};
    if (i->residual) memcpy(i->kept, i->residual, i->all.params.total * sizeof *i->kept);
    if (i->push.tokens > 0)
        i->push.bytes = (int64_t)bt_vector_encode(&i->code, i->bytes, i->all.x, i->residual);
}

/* the update goes up, the hub's weights come down */
static bt_code talk(void *ctx, bt_err *err) {
    bt_island *i = ctx;
    const size_t n = i->all.params.total;
    const bt_island_payload payload = {i->bytes, cut_of(i, &i->code)};
    i->rejoined = false;
    BT_TRY(bt_island_client_push(&i->client, &i->push, &payload, &i->coming, &i->rejoined, err));
    for (bool stranger = true; stranger && !(i->rejoined && i->client.want_weights);) {
        if (i->rejoined) i->version = -1;
        BT_TRY(bring(i, err));
        stranger = i->client.stranger; /* started again between its go and the fetch */
        if (stranger)
            BT_TRY(
                bt_island_client_push_again(&i->client, &i->push, &i->coming, &i->rejoined, err));
    }
    i->count.applied += !i->rejoined && i->push.tokens > 0;
    i->count.tokens += i->rejoined ? 0 : i->push.tokens;
    i->count.left_out += i->rejoined && i->push.tokens > 0;
    if (!i->rejoined) return BT_OK;
    if (i->residual) memcpy(i->residual, i->kept, n * sizeof *i->kept);
    if (!i->client.want_weights) return BT_OK;
    memcpy(i->all.x, i->start, n * sizeof *i->start);
    return join_hub(i, err);
}

static bt_code exchange(bt_island *i, bt_push_kind kind, const bt_island_work *w, bool *rejoined,
                        bt_err *err) {
    if (i->first) make_push(i, kind, w);
    BT_TRY(agree(i, i->first ? talk(i, err) : BT_OK, err));
    BT_TRY(take_over(i, false, err));
    int64_t again = i->first && i->rejoined;
    BT_TRY(bt_broadcast(i->cfg.world, &again, sizeof again, 0, err));
    *rejoined = again != 0;
    return BT_OK;
}

bt_code bt_island_gradient(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err) {
    BT_TRY(bt_whole_array_gradients(&i->all, (float)w->unscale, err));
    return exchange(i, BT_PUSH_GRADIENT, w, rejoined, err);
}

bt_code bt_island_skip(bt_island *i, bool *rejoined, bt_err *err) {
    return exchange(i, (bt_push_kind)i->go.kind, NULL, rejoined, err);
}

/* ---- deltas, which travel while the job trains on -------------------------------------------------- */

/* steps that may be done before the delta is answered: always; while the hub does not answer */
static int64_t overlap_most(const bt_island *i) {
    const int64_t asked = i->cfg.cfg->island_overlap, most = i->go.next_steps;
    return asked < most ? asked : most;
}

static int64_t away_most(const bt_island *i) {
    const bt_run_cfg *c = i->cfg.cfg;
    const int64_t asked = c->island_away < 0 ? c->inner : c->island_away, most = i->go.next_steps;
    return asked < most ? asked : most;
}

static void take_notes(bt_island *i) {
    const char *line;
    bool warning;
    while (bt_exchange_thread_take_note(&i->thread, &warning, &line))
        if (i->cfg.tell) i->cfg.tell(i->cfg.ctx, warning, line);
}

/* rank 0: until the delta is answered; with `leave` until then or until the hub is known not to answer */
static bool wait_for_answer(bt_island *i, bool leave) {
    for (bool done = false;;) {
        done = bt_exchange_thread_wait(&i->thread, leave && i->away ? 0 : LOOK_MS);
        take_notes(i);
        if (done) return true;
        if (leave && atomic_load(&i->client.lost)) return false;
        if (i->cfg.interrupted && i->cfg.interrupted(i->cfg.ctx))
            atomic_store(&i->thread.cancel, true);
    }
}

static void tell_away(bt_island *i, int64_t most) {
    char line[160];
    if (i->away || !atomic_load(&i->client.lost)) return;
    i->away = true;
    snprintf(
        line, sizeof line,
        "training goes on without it for at most %lld steps; the update of before is kept for it",
        (long long)most);
    if (i->cfg.tell) i->cfg.tell(i->cfg.ctx, true, line);
}

static void tell_back(bt_island *i, int64_t steps, bool own) {
    char line[160];
    if (!i->away) return;
    i->away = false;
    snprintf(line, sizeof line,
             "it has this island's update; %lld steps that were done meanwhile %s",
             (long long)steps, own ? "are part of the next one" : "are lost");
    if (i->cfg.tell) i->cfg.tell(i->cfg.ctx, false, line);
}

/* the thread has ended */
static bt_code settle(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err) {
    const bt_island_go before = i->go;
    int64_t found[2] = {0, 0}; /* rejoined; own steps stay */
    bt_code code = BT_OK;
    if (i->first) {
        code = bt_exchange_thread_end(&i->thread, err);
        i->in_thread = false;
        found[0] = i->rejoined;
        found[1] = steps > 0 && !i->rejoined && i->coming.begin == before.next_begin &&
                   i->coming.stride == before.stride && i->coming.steps >= steps;
        found[0] |= steps > 0 && !found[1];
        if (code == BT_OK) tell_back(i, steps, found[1]);
    }
    BT_TRY(agree(i, code, err));
    BT_TRY(bt_broadcast(i->cfg.world, found, sizeof found, 0, err));
    *state = found[0] ? BT_ISLAND_REJOINED : BT_ISLAND_SETTLED;
    return take_over(i, found[1] != 0, err);
}

bt_code bt_island_ahead(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err) {
    const int64_t overlap = overlap_most(i), away = away_most(i);
    int64_t done = 1;
    *state = BT_ISLAND_AHEAD;
    if (steps < overlap) return BT_OK; /* the same steps in every run, whenever the answer comes */
    if (i->first) done = wait_for_answer(i, steps < away);
    if (i->first && !done) tell_away(i, away);
    BT_TRY(bt_broadcast(i->cfg.world, &done, sizeof done, 0, err));
    return done ? settle(i, steps, state, err) : BT_OK;
}

bt_code bt_island_delta(bt_island *i, const bt_island_work *w, bt_island_state *state,
                        bt_err *err) {
    BT_TRY(bt_whole_array_weights(&i->all, err));
    if (i->first) {
        memcpy(i->sent, i->all.x, i->all.params.total * sizeof *i->sent);
        bt_vector_subtract(i->all.x, i->start, i->all.x, i->all.params.total);
        make_push(i, BT_PUSH_DELTA, w);
        i->in_thread = true;
        bt_exchange_thread_start(&i->thread);
    }
    return bt_island_ahead(i, 0, state, err);
}
