/* island_client.c - questions that are asked until they are answered. */
#include "engine/islands/island/island_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/small.h"

enum {
    POLL_MS = 100,       /* between two looks at `interrupted` */
    ASK_AGAIN_MS = 2000, /* an answer may have been lost with its connection */
    LOST_MS = 3000,      /* without any word of the hub: it is told */
    WINDOW = 4           /* parts on their way to us: as many as the sockets' queues hold */
};

bt_code bt_island_client_init(bt_island_client *c, const bt_island_client_cfg *cfg, bt_err *err) {
    *c = (bt_island_client){.cfg = *cfg};
    c->in = malloc(BT_ISLAND_FRAME);
    c->out = malloc(BT_ISLAND_FRAME);
    if (c->in && c->out) return BT_OK;
    bt_island_client_release(c);
    return bt_fail(err, BT_NOMEM, "cannot take memory for messages to the hub");
}

void bt_island_client_release(bt_island_client *c) {
    free(c->in);
    free(c->out);
    *c = (bt_island_client){.epoch = 0};
}

/* ---- one message ------------------------------------------------------------------------------- */

static bt_code check_interrupted(const bt_island_client *c, bt_err *err) {
    if (!c->cfg.interrupted || !c->cfg.interrupted(c->cfg.ctx)) return BT_OK;
    return bt_fail(err, BT_STOPPED, "asked to stop while waiting for the hub");
}

static void tell(bt_island_client *c, bool lost, const char *line) {
    if (c->lost == lost) return;
    c->lost = lost;
    if (c->cfg.tell) c->cfg.tell(c->cfg.ctx, lost, line);
}

/* false: there was no room for it within a poll */
static bool post(bt_island_client *c, bt_island_head head, const void *payload) {
    head.epoch = c->epoch;
    head.island = c->island;
    head.incarnation = c->incarnation;
    const size_t n = bt_island_write(c->out, &head, payload);
    return c->cfg.port.send(c->cfg.port.ctx, c->out, n, POLL_MS) == BT_PORT_SENT;
}

/* the next message of the hub; head->type BT_ISLAND_TYPES: none came within a poll */
static bt_code take(bt_island_client *c, bt_island_head *head, const void **payload, bt_err *err) {
    size_t n = 0;
    bt_err why = BT_ERR_INIT;
    head->type = BT_ISLAND_TYPES;
    BT_TRY(check_interrupted(c, err));
    BT_TRY(c->cfg.port.receive(c->cfg.port.ctx, c->in, &n, POLL_MS, err));
    if (n == 0) return BT_OK;
    const bt_code code = bt_island_parse(c->in, n, BT_SENT_BY_HUB, head, payload, &why);
    if (code == BT_UNSUPPORTED) return bt_fail(err, code, "the hub sent %s", why.msg);
    if (code != BT_OK) head->type = BT_ISLAND_TYPES; /* damaged: it will be asked for again */
    if (code == BT_OK && c->lost) tell(c, false, "the hub answers again");
    return BT_OK;
}

static bt_code refused(const bt_island_head *head, const void *payload, bt_err *err) {
    return bt_fail(err, BT_BUSY, "the hub refused this island: %.*s", (int)head->bytes,
                   (const char *)payload);
}

typedef struct wait { /* how long nothing has come */
    int64_t asked_ns, heard_ns;
} wait;

static wait wait_begin(void) {
    const int64_t now = bt_now_ns();
    return (wait){now, now};
}

/* true: it is time to ask again */
static bool wait_more(bt_island_client *c, wait *w, bool heard) {
    const int64_t now = bt_now_ns(), ms = 1000000;
    if (heard) w->heard_ns = now;
    if (now - w->heard_ns > LOST_MS * ms) tell(c, true, "the hub does not answer; asking on");
    if (now - w->asked_ns < ASK_AGAIN_MS * ms) return false;
    w->asked_ns = now;
    return true;
}

/* ---- hello ------------------------------------------------------------------------------------- */

/* more: lines beside those of the configuration */
static bt_code say_hello(bt_island_client *c, const char *more, bt_err *err) {
    wait w = wait_begin();
    const int64_t began = w.asked_ns;
    const bool first = c->epoch == 0;
    char text[16384];
    const int len = snprintf(text, sizeof text, "%s%s", c->cfg.hello, more);
    if (len >= (int)sizeof text) return bt_fail(err, BT_ARG, "the island's settings are too long");
    const bt_island_head hello = {.type = BT_ISLAND_HELLO, .bytes = (uint32_t)len};
    bool sent = false;
    for (;;) {
        bt_island_head head;
        const void *payload;
        if (!sent) sent = post(c, hello, text);
        BT_TRY(take(c, &head, &payload, err));
        if (head.type == BT_ISLAND_REFUSED) return refused(&head, payload, err);
        if (head.type == BT_ISLAND_WELCOME) {
            bt_island_welcome in;
            memcpy(&in, payload, sizeof in);
            c->epoch = head.epoch;
            c->island = (uint32_t)in.island;
            c->incarnation = (uint32_t)in.incarnation;
            c->seq = (uint64_t)in.applied;
            c->want_weights = in.want_weights;
            c->resend = in.resend;
            return BT_OK;
        }
        if (wait_more(c, &w, false)) sent = false;
        if (first && c->cfg.patience_s > 0 &&
            (double)(bt_now_ns() - began) / 1e9 > c->cfg.patience_s)
            return bt_fail(err, BT_IO,
                           "no hub answers (is 'bitrain hub' running there, and its port open?)");
    }
}

/* ---- push -------------------------------------------------------------------------------------- */

static uint32_t chunks_of(size_t bytes) {
    return (uint32_t)((bytes + BT_ISLAND_CHUNK - 1) / BT_ISLAND_CHUNK);
}

/* *at chunks of the update have been sent; goes on until the socket is full for a poll */
static void send_chunks(bt_island_client *c, const void *payload, size_t bytes, uint32_t *at) {
    const uint32_t n = chunks_of(bytes);
    while (*at < n) {
        const size_t from = (size_t)*at * BT_ISLAND_CHUNK;
        const bt_island_head head = {.type = BT_ISLAND_CHUNK_MESSAGE,
                                     .seq = c->seq,
                                     .chunk = *at,
                                     .chunks = n,
                                     .bytes = (uint32_t)bt_min_size(BT_ISLAND_CHUNK, bytes - from)};
        if (!post(c, head, (const char *)payload + from)) return;
        ++*at;
    }
}

/* until the hub's go; *stranger: it does not know this island */
static bt_code wait_for_go(bt_island_client *c, const bt_island_push *push, const void *payload,
                           bt_island_go *go, bool *stranger, bt_err *err) {
    wait w = wait_begin();
    const size_t bytes = push ? (size_t)push->bytes : 0;
    uint32_t at = 0;
    bool asked = !push;
    *stranger = false;
    for (;;) {
        bt_island_head head;
        const void *in;
        if (!asked) send_chunks(c, payload, bytes, &at);
        if (!asked && at == chunks_of(bytes))
            asked = post(
                c, (bt_island_head){.type = BT_ISLAND_PUSH, .seq = c->seq, .bytes = sizeof *push},
                push);
        BT_TRY(take(c, &head, &in, err));
        if (head.type == BT_ISLAND_GO && head.epoch == c->epoch) {
            memcpy(go, in, sizeof *go);
            if ((uint64_t)go->seq == c->seq) return BT_OK;
        }
        if (head.type == BT_ISLAND_REFUSED) return refused(&head, in, err);
        if (head.type == BT_ISLAND_RESEND && head.seq == c->seq) {
            at = 0;
            asked = false;
        }
        if (head.type == BT_ISLAND_STRANGER) {
            *stranger = true;
            return BT_OK;
        }
        if (wait_more(c, &w, head.type != BT_ISLAND_TYPES) && push)
            asked = false; /* the push alone: the chunks are sent again if the hub says so */
        else if (!push && head.type == BT_ISLAND_TYPES)
            post(c, (bt_island_head){.type = BT_ISLAND_BEAT, .chunks = 1}, NULL);
    }
}

bt_code bt_island_client_join(bt_island_client *c, const void *weights, size_t bytes,
                              bt_island_go *go, bt_err *err) {
    for (;;) {
        bool stranger;
        BT_TRY(say_hello(c, "", err));
        const bt_island_push first = {
            .kind = BT_PUSH_WEIGHTS, .bytes = (int64_t)bytes, .sequences = 1};
        c->seq += c->want_weights;
        BT_TRY(wait_for_go(c, c->want_weights ? &first : NULL, weights, go, &stranger, err));
        if (!stranger) return BT_OK;
    }
}

bt_code bt_island_client_push(bt_island_client *c, const bt_island_push *push, const void *payload,
                              bt_island_go *go, bool *rejoined, bt_err *err) {
    bool stranger, wanted = true;
    char holds[160];
    *rejoined = false;
    c->seq++;
    BT_TRY(wait_for_go(c, push, payload, go, &stranger, err));
    while (stranger) {
        snprintf(holds, sizeof holds, "holds=%llu %lld %lld %lld %lld %lld\n",
                 (unsigned long long)c->seq, (long long)c->begin, (long long)c->end,
                 (long long)push->base, (long long)push->kind, (long long)push->steps);
        BT_TRY(say_hello(c, wanted ? holds : "", err));
        wanted &= c->resend;
        c->seq += wanted || c->want_weights; /* of the update again; of the first weights */
        if (!wanted) {
            *rejoined = true;
            tell(c, true, "the hub has gone on without this island: its newest update is left out");
            if (c->want_weights) return BT_OK;
        }
        BT_TRY(wait_for_go(c, wanted ? push : NULL, payload, go, &stranger, err));
    }
    return BT_OK;
}

/* ---- fetch ------------------------------------------------------------------------------------- */

bt_code bt_island_client_fetch(bt_island_client *c, bt_fetch_kind kind, int64_t version, void *out,
                               size_t bytes, bool *gone, bt_err *err) {
    const uint32_t n = chunks_of(bytes);
    uint32_t got = 0, wanted = 0; /* parts come in order; [got, wanted) are on their way */
    wait w = wait_begin();
    *gone = false;
    while (got < n) {
        bt_island_head head;
        const void *in;
        if (wanted < n && wanted - got <= WINDOW / 2) {
            const bt_island_fetch f = {
                .kind = kind, .version = version, .first = wanted, .n = WINDOW / 2};
            if (post(c, (bt_island_head){.type = BT_ISLAND_FETCH, .bytes = sizeof f}, &f))
                wanted = (uint32_t)bt_min_size(n, wanted + WINDOW / 2);
        }
        BT_TRY(take(c, &head, &in, err));
        if (head.type == BT_ISLAND_PART && head.seq == (uint64_t)kind && head.chunk == got) {
            const size_t at = (size_t)got * BT_ISLAND_CHUNK;
            if (head.chunks != n || head.bytes != bt_min_size(BT_ISLAND_CHUNK, bytes - at))
                return bt_fail(err, BT_FORMAT, "the hub's weights are not of this model");
            memcpy((char *)out + at, in, head.bytes);
            got++;
        }
        if (head.type == BT_ISLAND_REFUSED || head.type == BT_ISLAND_STRANGER) {
            *gone = true;
            return BT_OK;
        }
        if (wait_more(c, &w, head.type != BT_ISLAND_TYPES)) wanted = got;
    }
    return BT_OK;
}

void bt_island_client_beat(bt_island_client *c) {
    post(c, (bt_island_head){.type = BT_ISLAND_BEAT}, NULL);
}

void bt_island_client_leave(bt_island_client *c) {
    if (c->epoch) post(c, (bt_island_head){.type = BT_ISLAND_BYE}, NULL);
    bt_sleep_ns(50000000); /* sockets close without lingering */
}
