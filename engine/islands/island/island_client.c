/* island_client.c - sends requests to the hub and repeats them until a reply arrives. */
#include "engine/islands/island/island_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/base/text.h"

enum {
    POLL_MS = 100,       /* interval of polling `interrupted` */
    ASK_AGAIN_MS = 2000, /* a request or its reply may be lost with the connection */
    LOST_MS = 3000,      /* silence of the hub is reported after this time */
    HELLO_MS = 2000,     /* between two steps: longest wait for a welcome */
    DRAIN = 16           /* between two steps: maximum number of messages to read */
};

bt_code bt_island_client_init(bt_island_client *c, const bt_island_client_cfg *cfg, bt_err *err) {
    *c = (bt_island_client){.cfg = *cfg};
    c->in = malloc(BT_ISLAND_FRAME);
    c->out = malloc(BT_ISLAND_FRAME);
    if (c->in && c->out) return BT_OK;
    bt_island_client_release(c);
    return bt_fail(err, BT_NOMEM, "cannot allocate memory for messages to the hub");
}

void bt_island_client_release(bt_island_client *c) {
    free(c->in);
    free(c->out);
    *c = (bt_island_client){.epoch = 0};
}

static bt_code check_interrupted(const bt_island_client *c, bt_err *err) {
    if (!c->cfg.interrupted || !c->cfg.interrupted(c->cfg.ctx)) return BT_OK;
    return bt_fail(err, BT_STOPPED, "stop requested while waiting for the hub");
}

static void report_hub_state(bt_island_client *c, bool lost, const char *line) {
    if (atomic_load(&c->lost) == lost) return;
    atomic_store(&c->lost, lost);
    if (c->cfg.tell) c->cfg.tell(c->cfg.ctx, lost, line);
}

static int poll_ms(const bt_island_client *c) { return c->between_steps ? 0 : POLL_MS; }

/* Returns false if there was no room in the queue within the time. */
static bool post_request(bt_island_client *c, bt_island_head head, const void *payload) {
    const bt_island_port *port = &c->cfg.port;
    head.epoch = c->epoch;
    head.island = c->island;
    head.incarnation = c->incarnation;
    const size_t n = bt_island_write(c->out, &head, payload);
    return port->send(port->ctx, c->out, n, poll_ms(c)) == BT_PORT_SENT;
}

static void report_notice(const bt_island_client *c, const bt_island_head *head, const void *text) {
    char line[BT_ISLAND_LINE], plain[BT_ISLAND_LINE];
    snprintf(line, sizeof line, "%.*s", (int)head->bytes, (const char *)text);
    bt_text_plain(plain, sizeof plain, line);
    if (c->cfg.tell) c->cfg.tell(c->cfg.ctx, true, plain);
}

/* Receives the next message. After a timeout head->type is BT_ISLAND_TYPES. */
static bt_code receive_reply(bt_island_client *c, bt_island_head *head, const void **payload,
                             bt_err *err) {
    const bt_island_port *port = &c->cfg.port;
    size_t n = 0;
    bt_err why = BT_ERR_INIT;
    head->type = BT_ISLAND_TYPES;
    BT_TRY(check_interrupted(c, err));
    BT_TRY(port->receive(port->ctx, c->in, &n, poll_ms(c), err));
    if (n == 0) return BT_OK;
    const bt_code code = bt_island_parse(c->in, n, BT_SENT_BY_HUB, head, payload, &why);
    if (code == BT_UNSUPPORTED) return bt_fail(err, code, "the hub sent %s", why.msg);
    if (code != BT_OK)
        head->type =
            BT_ISLAND_TYPES; /* a damaged message is ignored; the request will be repeated */
    if (code == BT_OK) c->heard_ns = bt_now_ns();
    if (code == BT_OK) report_hub_state(c, false, "the hub responds again");
    if (code == BT_OK && head->type == BT_ISLAND_NOTICE) report_notice(c, head, *payload);
    return BT_OK;
}

static bt_code fail_refused_by_hub(const bt_island_head *head, const void *payload, bt_err *err) {
    return bt_fail(err, BT_BUSY, "the hub refused this island: %.*s", (int)head->bytes,
                   (const char *)payload);
}

/* Returns the time at which waiting began. A silence that was reported continues over several requests. */
static int64_t waiting_since(bt_island_client *c) {
    const int64_t now = bt_now_ns();
    if (!atomic_load(&c->lost)) c->heard_ns = now;
    return now;
}

static const char *fail_hub_silent(const bt_island_client *c) {
    if (c->cfg.port.closed && c->cfg.port.closed(c->cfg.port.ctx))
        return "nothing accepts connections at the hub's address; still trying";
    return "the hub does not respond; still trying";
}

/* Sets *again if the request must be repeated. Fails if the hub has been silent for too long. */
static bt_code continue_waiting(bt_island_client *c, int64_t *asked_ns, bool *again, bt_err *err) {
    const int64_t now = bt_now_ns(), ms = 1000000;
    const double silent_s = (double)(now - c->heard_ns) / 1e9;
    if (now - c->heard_ns > LOST_MS * ms) report_hub_state(c, true, fail_hub_silent(c));
    if (c->cfg.lost_s > 0 && silent_s > c->cfg.lost_s) {
        c->given_up = true;
        return bt_fail(err, BT_NOTFOUND,
                       "the hub has not responded for %.0f s, the limit islands.patience",
                       silent_s);
    }
    *again = now - *asked_ns >= ASK_AGAIN_MS * ms;
    if (*again) *asked_ns = now;
    return BT_OK;
}

/* Writes data, weights and number of the next update that this island has, in the form that hub_members.c reads. */
static void write_claim(const bt_island_client *c, uint64_t seq, char *out, size_t size) {
    const bt_island_claim *x = &c->claim;
    snprintf(out, size, "was=%lu\nholds=%llu %lld %lld %lld %lld %lld %lld %lld\n",
             (unsigned long)c->incarnation, (unsigned long long)seq, (long long)x->begin,
             (long long)x->end, (long long)x->base, (long long)x->kind, (long long)x->steps,
             (long long)x->next_begin, (long long)x->next_end);
}

static void receive_welcome(bt_island_client *c, const bt_island_head *head, const void *payload) {
    bt_island_welcome in;
    memcpy(&in, payload, sizeof in);
    c->epoch = head->epoch;
    c->island = (uint32_t)in.island;
    c->incarnation = (uint32_t)in.incarnation;
    c->seq = (uint64_t)in.applied;
    c->want_weights = in.want_weights;
    c->resend = in.resend;
    c->had = in.had;
    c->left_behind = false;
}

/* more: lines besides the configuration. limit_ms: then returns with *welcome false; 0: no limit. */
static bt_code send_island_hello(bt_island_client *c, const char *more, int limit_ms, bool *welcome,
                                 bt_err *err) {
    int64_t asked_ns = waiting_since(c);
    const int64_t began = bt_now_ns();
    const bool first = c->epoch == 0;
    char text[16384];
    const int len = snprintf(text, sizeof text, "%s%s", c->cfg.hello, more);
    if (len >= (int)sizeof text)
        return bt_fail(
            err, BT_ARG,
            "the settings of this island are too long for a message: shorten paths and names");
    const bt_island_head hello = {.type = BT_ISLAND_HELLO, .bytes = (uint32_t)len};
    bool sent = false;
    *welcome = false;
    for (;;) {
        bt_island_head head;
        const void *payload;
        bool again;
        if (!sent) sent = post_request(c, hello, text);
        BT_TRY(receive_reply(c, &head, &payload, err));
        if (head.type == BT_ISLAND_REFUSED) return fail_refused_by_hub(&head, payload, err);
        if (head.type == BT_ISLAND_WELCOME) {
            receive_welcome(c, &head, payload);
            *welcome = true;
            return BT_OK;
        }
        BT_TRY(continue_waiting(c, &asked_ns, &again, err));
        sent &= !again;
        const double waited_s = (double)(bt_now_ns() - began) / 1e9;
        if (limit_ms && waited_s * 1e3 > limit_ms) return BT_OK;
        if (first && c->cfg.patience_s > 0 && waited_s > c->cfg.patience_s)
            return bt_fail(
                err, BT_IO,
                "no hub responds: is 'bitrain hub' running at this address, and is its port open?");
    }
}

static uint32_t count_chunks(size_t bytes) {
    return (uint32_t)((bytes + BT_ISLAND_CHUNK - 1) / BT_ISLAND_CHUNK);
}

/* Sends the chunks of an update from *at on. Returns false if a chunk had no room within one poll. */
static bool send_chunks(bt_island_client *c, const char *bytes, size_t n, uint32_t *at) {
    for (; *at < count_chunks(n); ++*at) {
        const size_t from = (size_t)*at * BT_ISLAND_CHUNK;
        const bt_island_head head = {.type = BT_ISLAND_CHUNK_MESSAGE,
                                     .seq = c->seq,
                                     .chunk = *at,
                                     .chunks = count_chunks(n),
                                     .bytes = (uint32_t)bt_min_size(BT_ISLAND_CHUNK, n - from)};
        if (!post_request(c, head, bytes + from)) return false;
    }
    return true;
}

/* Waits for the hub's go. *stranger: this island is not a member of the hub. */
static bt_code wait_for_go(bt_island_client *c, const bt_island_push *push, const void *payload,
                           bt_island_go *go, bool *stranger, bt_err *err) {
    int64_t asked_ns = waiting_since(c);
    const size_t bytes = push && payload ? (size_t)push->bytes : 0;
    uint32_t sent = 0; /* number of chunks */
    bool asked = !push;
    *stranger = false;
    for (;;) {
        bt_island_head head;
        const void *in;
        bool again;
        if (!asked && send_chunks(c, payload, bytes, &sent))
            asked = post_request(
                c, (bt_island_head){.type = BT_ISLAND_PUSH, .seq = c->seq, .bytes = sizeof *push},
                push);
        BT_TRY(receive_reply(c, &head, &in, err));
        if (head.type == BT_ISLAND_GO && head.epoch == c->epoch) {
            memcpy(go, in, sizeof *go);
            if ((uint64_t)go->seq == c->seq) return BT_OK;
        }
        if (head.type == BT_ISLAND_REFUSED) return fail_refused_by_hub(&head, in, err);
        if (head.type == BT_ISLAND_RESEND && head.seq == c->seq) {
            sent = 0;
            asked = false;
        }
        if (head.type == BT_ISLAND_STRANGER) {
            *stranger = true;
            return BT_OK;
        }
        BT_TRY(continue_waiting(c, &asked_ns, &again, err));
        if (again && push)
            asked = false; /* only the push is repeated; the hub requests missing chunks */
        else if (!push && head.type == BT_ISLAND_TYPES)
            post_request(c, (bt_island_head){.type = BT_ISLAND_BEAT, .chunks = 1}, NULL);
    }
}

bt_code bt_island_client_join(bt_island_client *c, const void *weights, size_t bytes,
                              bt_island_go *go, bt_err *err) {
    const bt_island_push first = {.kind = BT_PUSH_WEIGHTS, .sequences = 1, .bytes = (int64_t)bytes};
    for (;;) {
        bool stranger, welcome;
        BT_TRY(send_island_hello(c, "", 0, &welcome, err));
        c->seq += c->want_weights;
        BT_TRY(wait_for_go(c, c->want_weights ? &first : NULL, weights, go, &stranger, err));
        if (!stranger) return BT_OK;
    }
}

/* The update is lost; the island continues as after joining. */
static void report_lost_update(bt_island_client *c, bool *rejoined) {
    *rejoined = true;
    if (c->cfg.tell) c->cfg.tell(c->cfg.ctx, true, bt_update_outcome_help(BT_UPDATE_LOST));
}

/* Sends an update, or joins, until a go arrives. payload NULL: the update cannot be sent again. */
static bt_code offer_update(bt_island_client *c, const bt_island_push *push, const void *payload,
                            bt_island_go *go, bool *rejoined, bt_err *err) {
    bool stranger = true, welcome, wanted = !*rejoined;
    char claim[240];
    while (stranger) {
        write_claim(c, c->seq, claim, sizeof claim);
        BT_TRY(send_island_hello(c, wanted ? claim : "", 0, &welcome, err));
        const bool had = wanted && c->had;
        if (wanted && c->resend && push->bytes && !payload) {
            wanted = false; /* the hub lost an acknowledged update, so the island rejoins */
            continue;
        }
        wanted &= c->resend;
        c->seq +=
            /* sequence number of the repeated update, or of the first weights */
            wanted || c->want_weights;
        if (!wanted && !had) {
            if (!*rejoined) report_lost_update(c, rejoined);
            if (c->want_weights) return BT_OK;
        }
        BT_TRY(wait_for_go(c, wanted ? push : NULL, payload, go, &stranger, err));
        wanted |= had; /* another start of the hub may have the update as well */
    }
    c->left_behind = false;
    return BT_OK;
}

bt_code bt_island_client_push(bt_island_client *c, const bt_island_push *push, const void *payload,
                              bt_island_go *go, bool *rejoined, bt_err *err) {
    const bool wanted = !c->left_behind;
    bool stranger;
    *rejoined = false;
    c->seq += wanted;
    if (!wanted) {
        report_lost_update(c, rejoined);
        if (c->want_weights) return BT_OK;
    }
    BT_TRY(wait_for_go(c, wanted ? push : NULL, payload, go, &stranger, err));
    if (stranger) return offer_update(c, push, payload, go, rejoined, err);
    c->left_behind = false;
    return BT_OK;
}

bt_code bt_island_client_push_again(bt_island_client *c, const bt_island_push *push,
                                    bt_island_go *go, bool *rejoined, bt_err *err) {
    return offer_update(c, push, NULL, go, rejoined, err);
}

/* An update must have the requested version; weights may be newer. */
static bool is_requested_part(const bt_island_head *head, const bt_island_fetch *what) {
    const int64_t version = (int64_t)head->version;
    if (head->type != BT_ISLAND_PART || head->seq != (uint64_t)what->kind) return false;
    return what->kind == BT_FETCH_UPDATE ? version == what->version : version >= what->version;
}

static void note_version(bt_island_fetched *got, int64_t version) {
    if (got->oldest < 0 || version < got->oldest) got->oldest = version;
    if (version > got->newest) got->newest = version;
}

bt_code bt_island_client_fetch(bt_island_client *c, bt_fetch_kind kind, int64_t version, void *out,
                               size_t bytes, bt_island_fetched *fetched, bt_err *err) {
    const bt_island_fetch what = {.kind = kind, .version = version};
    const uint32_t n = count_chunks(bytes);
    uint32_t got = 0, wanted = 0; /* chunks arrive in order; chunks [got, wanted) are in flight */
    int64_t asked_ns = waiting_since(c);
    *fetched = (bt_island_fetched){.oldest = -1, .newest = -1};
    c->stranger = false;
    while (got < n) {
        bt_island_head head;
        const void *in;
        bool again;
        if (wanted < n && wanted - got <= BT_ISLAND_WINDOW / 2) {
            bt_island_fetch f = what;
            f.first = wanted;
            f.n = BT_ISLAND_WINDOW / 2;
            const bt_island_head ask = {.type = BT_ISLAND_FETCH, .bytes = sizeof f};
            if (post_request(c, ask, &f))
                wanted = (uint32_t)bt_min_size(n, wanted + BT_ISLAND_WINDOW / 2);
        }
        BT_TRY(receive_reply(c, &head, &in, err));
        if (is_requested_part(&head, &what) && head.chunk == got) {
            const size_t at = (size_t)got * BT_ISLAND_CHUNK;
            if (head.chunks != n || head.bytes != bt_min_size(BT_ISLAND_CHUNK, bytes - at))
                return bt_fail(err, BT_FORMAT,
                               "the hub's weights belong to another model than this island's");
            memcpy((char *)out + at, in, head.bytes);
            note_version(fetched, (int64_t)head.version);
            got++;
            if (wanted < got) wanted = got; /* a late reply to a repeated request */
        }
        if (head.type == BT_ISLAND_REFUSED)
            snprintf(c->refusal, sizeof c->refusal, "%.*s", (int)head.bytes, (const char *)in);
        if (head.type == BT_ISLAND_REFUSED || head.type == BT_ISLAND_STRANGER) {
            fetched->gone = true;
            c->stranger = head.type == BT_ISLAND_STRANGER;
            return BT_OK;
        }
        BT_TRY(continue_waiting(c, &asked_ns, &again, err));
        if (again) wanted = got;
    }
    return BT_OK;
}

/* Informs a restarted hub of this island's claim at once, before the next push. */
static void resend_claim(bt_island_client *c) {
    char claim[240];
    bool welcome;
    bt_err ignored = BT_ERR_INIT;
    write_claim(c, c->seq + 1, claim, sizeof claim);
    c->between_steps = false;
    if (send_island_hello(c, claim, HELLO_MS, &welcome, &ignored) == BT_OK && welcome)
        c->left_behind = !c->resend;
}

void bt_island_client_beat(bt_island_client *c) {
    bt_err ignored = BT_ERR_INIT; /* the next push reports the error */
    c->between_steps = true;
    post_request(c, (bt_island_head){.type = BT_ISLAND_BEAT}, NULL);
    for (int k = 0; k < DRAIN && c->between_steps; k++) {
        bt_island_head head;
        const void *payload;
        if (receive_reply(c, &head, &payload, &ignored) != BT_OK || head.type == BT_ISLAND_TYPES)
            break;
        if (head.type == BT_ISLAND_STRANGER) resend_claim(c);
    }
    c->between_steps = false;
}

void bt_island_client_leave(bt_island_client *c) {
    if (c->epoch) post_request(c, (bt_island_head){.type = BT_ISLAND_BYE}, NULL);
    /* sockets are closed without lingering, so the bye needs time to be sent */
    bt_sleep_ns(50000000);
}
