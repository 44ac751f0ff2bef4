/* island.c - arrays in and out of the conversation with the hub. */
#include "engine/islands/island/island.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/islands/island/island_client.h"
#include "engine/islands/island/whole_array.h"
#include "engine/islands/rules/outer_step.h"
#include "engine/islands/rules/vector_code.h"
#include "engine/islands/zmq/island_socket.h"

static const bt_codec no_codec = {.name = "fp32"};
static const double patience_s = 60;

struct bt_island {
    bt_island_cfg cfg;
    bt_whole_array all;
    bt_island_go go;
    bool first; /* rank 0; the rest is its alone */
    bt_island_socket *socket;
    bt_island_client client;
    bt_text hello;
    bt_vector_code plain, code;
    float *start;    /* the hub's weights, as far as this island has them */
    float *residual; /* what encoding has lost so far; NULL: the codec loses nothing for good */
    float *kept;     /* the residual before the push that is on its way */
    unsigned char *bytes;
    int64_t version; /* of start; -1: none */
};

/* ---- create ---------------------------------------------------------------------------------- */

static void put_hello(bt_island *i) {
    const bt_run_cfg *c = i->cfg.cfg;
    char host[64] = "?";
    gethostname(host, sizeof host - 1);
    bt_job_settings_put(&i->hello, c, &i->cfg.hashes);
    bt_text_printf(&i->hello, "name=%s\nhost=%s\npid=%d\nranks=%d\nsequences=%lld\n",
                   c->name[0] ? c->name : "island", host, (int)getpid(), bt_comm_size(i->cfg.world),
                   (long long)i->cfg.sequences);
}

static bt_code open_hub(bt_island *i, bt_err *err) {
    const bt_run_cfg *c = i->cfg.cfg;
    const size_t n = i->all.params.total;
    const bt_codec *codec = bt_codec_at((bt_codec_id)c->codec);
    bt_curve_keys keys;
    if (!c->hub_keys[0])
        return bt_fail(err, BT_ARG,
                       "--hub needs this island's keys: --keys FILE, made by 'bitrain hub --keys "
                       "DIR NAME' where the hub runs");
    i->plain = i->code = (bt_vector_code){.params = &i->all.params, .codec = &no_codec};
    if (codec->encode) i->code.codec = codec;
    i->start = calloc(n, sizeof *i->start);
    i->bytes = malloc(bt_vector_bytes(&i->plain) + bt_vector_bytes(&i->code));
    if (i->code.codec->state_bytes) {
        i->residual = calloc(n, sizeof *i->residual);
        i->kept = calloc(n, sizeof *i->kept);
    }
    put_hello(i);
    if (!i->start || !i->bytes || i->hello.failed ||
        (i->code.codec->state_bytes && (!i->residual || !i->kept)))
        return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange with the hub");
    BT_TRY(bt_curve_read(&keys, c->hub_keys, "island", true, err));
    bt_code code = bt_island_socket_open(&i->socket, c->hub, &keys, err);
    bt_curve_wipe(&keys);
    if (code != BT_OK) return code;
    const bt_island_client_cfg client = {.port = bt_island_socket_port(i->socket),
                                         .hello = bt_text_str(&i->hello),
                                         .ctx = i->cfg.ctx,
                                         .interrupted = i->cfg.interrupted,
                                         .tell = i->cfg.tell,
                                         .patience_s = patience_s};
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

void bt_island_destroy(bt_island *i) {
    if (!i) return;
    if (i->client.in) bt_island_client_leave(&i->client);
    bt_island_client_release(&i->client);
    bt_island_socket_close(i->socket);
    bt_whole_array_release(&i->all);
    bt_text_release(&i->hello);
    free(i->start);
    free(i->residual);
    free(i->kept);
    free(i->bytes);
    free(i);
}

const bt_island_go *bt_island_now(const bt_island *i) { return &i->go; }

void bt_island_beat(bt_island *i) {
    if (i->first) bt_island_client_beat(&i->client);
}

uint64_t bt_island_bytes(const bt_island *i) {
    if (!i->socket) return 0;
    const bt_island_port port = bt_island_socket_port(i->socket);
    return port.traffic(port.ctx);
}

/* ---- the hub's weights --------------------------------------------------------------------------- */

static bt_code fetch_update(bt_island *i, bool *gone, bt_err *err) {
    const size_t n = bt_vector_bytes(&i->code);
    BT_TRY(
        bt_island_client_fetch(&i->client, BT_FETCH_UPDATE, i->go.version, i->bytes, n, gone, err));
    if (*gone) return BT_OK;
    if (!bt_vector_decode(&i->code, i->all.x, i->bytes, n))
        return bt_fail(err, BT_FORMAT, "the hub's update is not of this model");
    bt_vector_add(i->start, i->all.x, i->all.params.total);
    return BT_OK;
}

static bt_code fetch_weights(bt_island *i, bt_err *err) {
    const size_t n = bt_vector_bytes(&i->plain);
    bool gone = true;
    while (gone)
        BT_TRY(bt_island_client_fetch(&i->client, BT_FETCH_WEIGHTS, i->go.version, i->bytes, n,
                                      &gone, err));
    if (!bt_vector_decode(&i->plain, i->start, i->bytes, n) ||
        !bt_vector_finite(i->start, i->all.params.total))
        return bt_fail(err, BT_FORMAT, "the hub's weights are not of this model, or not finite");
    return BT_OK;
}

/* rank 0: `start` becomes the weights of go.version */
static bt_code bring(bt_island *i, bt_err *err) {
    bool gone = true;
    if (i->version == i->go.version) return BT_OK;
    if (i->code.codec != &no_codec && i->version >= 0 && i->version + 1 == i->go.version)
        BT_TRY(fetch_update(i, &gone, err));
    if (gone) BT_TRY(fetch_weights(i, err));
    i->version = i->go.version;
    return BT_OK;
}

static bt_code fetch_moment(bt_island *i, int k, bt_err *err) {
    const size_t n = bt_vector_bytes(&i->plain);
    bool gone = true;
    while (gone)
        BT_TRY(bt_island_client_fetch(&i->client, (bt_fetch_kind)(BT_FETCH_MOMENT1 + k),
                                      i->go.version, i->bytes, n, &gone, err));
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

/* all ranks take what rank 0 was told, or fail as it did */
static bt_code take_over(bt_island *i, bt_code code, bt_err *err) {
    BT_TRY(bt_agree(i->cfg.world, code, err));
    BT_TRY(bt_broadcast(i->cfg.world, &i->go, sizeof i->go, 0, err));
    if (i->first) memcpy(i->all.x, i->start, i->all.params.total * sizeof *i->start);
    BT_TRY(bt_whole_array_place(&i->all, err));
    BT_TRY(bt_update_quantise(i->cfg.update, err));
    return i->go.moments ? take_moments(i, err) : BT_OK;
}

/* ---- join ------------------------------------------------------------------------------------- */

static bt_code join_hub(bt_island *i, bt_err *err) {
    const size_t n = bt_vector_encode(&i->plain, i->bytes, i->all.x, NULL);
    i->version = -1;
    BT_TRY(bt_island_client_join(&i->client, i->bytes, n, &i->go, err));
    return bring(i, err);
}

bt_code bt_island_join(bt_island *i, bt_err *err) {
    BT_TRY(bt_whole_array_weights(&i->all, err));
    return take_over(i, i->first ? join_hub(i, err) : BT_OK, err);
}

/* ---- push ------------------------------------------------------------------------------------- */

/* rank 0; all.x is what the update says */
static bt_code push(bt_island *i, bt_push_kind kind, const bt_island_work *w, bool *rejoined,
                    bt_err *err) {
    const size_t n = i->all.params.total;
    bt_island_push p = {.kind = kind,
                        .base = i->version,
                        .steps = i->go.steps,
                        .sequences = i->cfg.sequences,
                        .tokens = w ? w->tokens : 0,
                        .loss = w ? w->loss : NAN,
                        .grad_norm = w ? w->grad_norm : NAN};
    if (i->residual) memcpy(i->kept, i->residual, n * sizeof *i->kept);
    if (p.tokens > 0)
        p.bytes = (int64_t)bt_vector_encode(&i->code, i->bytes, i->all.x, i->residual);
    i->client.begin = i->go.begin;
    i->client.end = i->go.begin + i->go.steps * i->go.n;
    BT_TRY(bt_island_client_push(&i->client, &p, i->bytes, &i->go, rejoined, err));
    if (*rejoined) {
        if (i->residual) memcpy(i->residual, i->kept, n * sizeof *i->kept);
        i->version = -1;
        memcpy(i->all.x, i->start, n * sizeof *i->start);
        if (i->client.want_weights) return join_hub(i, err);
    }
    return bring(i, err);
}

static bt_code exchange(bt_island *i, bt_push_kind kind, const bt_island_work *w, bool *rejoined,
                        bt_err *err) {
    int64_t again = 0;
    *rejoined = false;
    const bt_code code = i->first ? push(i, kind, w, rejoined, err) : BT_OK;
    again = *rejoined;
    BT_TRY(take_over(i, code, err));
    BT_TRY(bt_broadcast(i->cfg.world, &again, sizeof again, 0, err));
    *rejoined = again != 0;
    return BT_OK;
}

bt_code bt_island_gradient(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err) {
    BT_TRY(bt_whole_array_gradients(&i->all, (float)w->unscale, err));
    return exchange(i, BT_PUSH_GRADIENT, w, rejoined, err);
}

bt_code bt_island_delta(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err) {
    BT_TRY(bt_whole_array_weights(&i->all, err));
    if (i->first) bt_vector_subtract(i->all.x, i->start, i->all.x, i->all.params.total);
    return exchange(i, BT_PUSH_DELTA, w, rejoined, err);
}

bt_code bt_island_skip(bt_island *i, bool *rejoined, bt_err *err) {
    return exchange(i, (bt_push_kind)i->go.kind, NULL, rejoined, err);
}
