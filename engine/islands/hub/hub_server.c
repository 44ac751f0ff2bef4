/* hub_server.c - receives messages: identifies the sender, checks its rights and calls the function for the type. */
#include "engine/islands/hub/hub_server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/islands/hub/hub_internal.h"

enum { FETCH_PARTS = 64 }; /* maximum number of parts in a fetch */

bt_code bt_hub_create(bt_hub **out, const bt_hub_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_hub *h = calloc(1, sizeof *h);
    if (h) h->frame = malloc(BT_ISLAND_FRAME);
    if (!h || !h->frame) {
        bt_hub_destroy(h);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the hub");
    }
    h->cfg = *cfg;
    bt_text_init(&h->settings);
    *out = h;
    return BT_OK;
}

void bt_hub_destroy(bt_hub *h) {
    if (!h) return;
    for (size_t i = 0; i < h->n; i++) bt_hub_unstage(&h->members[i]);
    bt_hub_model_destroy(h->model);
    bt_text_release(&h->settings);
    bt_leases_release(&h->leases);
    free(h->frame);
    free(h);
}

static void refuse_update(bt_hub *h, bt_member *m, const char *why) {
    h->refused++;
    bt_hub_unstage(m);
    bt_hub_refuse(h, &m->peer, "%s", why);
    bt_hub_event(h, BT_EVENT_REFUSED, m, "update refused: %s", why);
}

static void take_chunk(bt_hub *h, bt_member *m, const bt_island_head *head, const void *payload) {
    if (head->seq <= m->applied || m->pushed)
        return; /* a repeated message, whose go was sent before */
    if (head->seq != m->staging) {
        bt_hub_unstage(m);
        const uint32_t most = bt_hub_chunks(bt_hub_update_bytes(h, m, BT_PUSH_WEIGHTS));
        if (head->chunks == 0 || head->chunks > most) {
            refuse_update(h, m, "the update is longer than the model");
            return;
        }
        m->staged = malloc((size_t)head->chunks * BT_ISLAND_CHUNK);
        m->have = calloc(head->chunks, 1);
        if (!m->staged || !m->have) {
            bt_hub_unstage(m);
            return; /* the island repeats its request with the push */
        }
        m->staging = head->seq;
        m->chunks = head->chunks;
    }
    const bool last = head->chunk + 1 == m->chunks;
    if (head->chunks != m->chunks || (!last && head->bytes != BT_ISLAND_CHUNK)) {
        refuse_update(h, m, "a chunk does not belong to the update that this island sends");
        return;
    }
    memcpy(m->staged + (size_t)head->chunk * BT_ISLAND_CHUNK, payload, head->bytes);
    m->arrived += !m->have[head->chunk];
    m->have[head->chunk] = 1;
    m->bytes += head->bytes;
    if (last) m->end_bytes = head->bytes;
}

static bt_code take_push(bt_hub *h, bt_member *m, const bt_island_head *head, const void *payload,
                         bt_err *err) {
    bt_island_push p;
    memcpy(&p, payload, sizeof p);
    const bt_island_head resend = {.type = BT_ISLAND_RESEND, .seq = head->seq};
    if (head->seq == m->applied && !m->waits) {
        bt_hub_send_go(h, m);
        return BT_OK;
    }
    if (head->seq <= m->applied || m->pushed)
        return BT_OK; /* an older update, or one that is being applied */
    if (head->seq != m->applied + 1) {
        refuse_update(h, m, "the update is out of order: its sequence number is not the next one");
        return BT_OK;
    }
    const bool any = p.tokens > 0 || p.kind == BT_PUSH_WEIGHTS;
    const size_t want = any ? bt_hub_update_bytes(h, m, p.kind) : 0;
    if (any && (m->staging != head->seq || m->arrived != m->chunks)) {
        bt_hub_send(h, &m->peer, &resend, NULL);
        return BT_OK;
    }
    if (p.kind < BT_PUSH_WEIGHTS || p.kind > BT_PUSH_DELTA || p.bytes < 0 ||
        (size_t)p.bytes != want || (any && !bt_hub_update_fits(m, want)) || p.tokens < 0 ||
        p.tokens > INT64_C(1) << 40 || p.sequences < 1 || p.sequences > 1 << 24 || p.base < 0 ||
        p.base > h->model->version ||
        (p.kind != BT_PUSH_WEIGHTS && (p.steps < 1 || p.steps != m->go.steps))) {
        refuse_update(h, m, "the update does not have the size for this job's model and codec");
        return BT_OK;
    }
    m->push = p;
    m->staging = head->seq;
    return bt_hub_pushed(h, m, err);
}

/* Sends requested parts. Returns FULL if the parts from m->fetch.first on must wait for room in the queue. Parts that
 * were sent, or cannot be sent, are removed from m->fetch. */
static bt_port_state send_parts(bt_hub *h, bt_member *m) {
    bt_island_fetch *f = &m->fetch;
    size_t n = 0;
    const unsigned char *bytes = bt_hub_model_bytes(h->model, (int)f->kind, &n);
    const uint32_t chunks = bt_hub_chunks(n);
    if (!bytes || (f->kind == BT_FETCH_UPDATE && f->version != h->model->version)) {
        bt_hub_refuse(h, &m->peer,
                      "the request is too old: the hub no longer has the update to version %lld",
                      (long long)f->version);
        f->n = 0;
        return BT_PORT_SENT;
    }
    bt_port_state state = BT_PORT_SENT;
    for (; f->n > 0 && f->first < chunks; f->first++, f->n--) {
        const size_t at = (size_t)f->first * BT_ISLAND_CHUNK;
        const bt_island_head head = {.type = BT_ISLAND_PART,
                                     .seq = (uint64_t)f->kind,
                                     .version = (uint64_t)h->model->version,
                                     .chunk = (uint32_t)f->first,
                                     .chunks = chunks,
                                     .bytes = (uint32_t)bt_min_size(BT_ISLAND_CHUNK, n - at)};
        state = bt_hub_send(h, &m->peer, &head, bytes + at);
        if (state == BT_PORT_FULL) return state;
        if (state == BT_PORT_GONE) break; /* the island repeats the fetch after reconnecting */
    }
    f->n = 0;
    return state;
}

static void take_fetch(bt_hub *h, bt_member *m, const void *payload) {
    bt_island_fetch f, *waits = &m->fetch;
    memcpy(&f, payload, sizeof f);
    if (!h->model || !h->model->has_weights || f.first < 0 || f.n < 1 || f.n > FETCH_PARTS) return;
    const bool more = waits->n > 0 && waits->n <= FETCH_PARTS && waits->kind == f.kind &&
                      waits->version == f.version && waits->first + waits->n == f.first;
    if (more)
        waits->n += f.n;
    else
        *waits = f;
    send_parts(h, m);
}

bool bt_hub_serve(bt_hub *h) {
    bool left = false;
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        const bool there = m->state == BT_MEMBER_JOINS || m->state == BT_MEMBER_TRAINS;
        if (!there) m->fetch.n = 0;
        if (m->fetch.n > 0) left |= send_parts(h, m) == BT_PORT_FULL;
    }
    return left;
}

static bt_code member_message(bt_hub *h, bt_member *m, const bt_island_head *head,
                              const void *payload, bt_err *err) {
    switch (head->type) {
    case BT_ISLAND_CHUNK_MESSAGE: take_chunk(h, m, head, payload); return BT_OK;
    case BT_ISLAND_PUSH: return take_push(h, m, head, payload, err);
    case BT_ISLAND_FETCH: take_fetch(h, m, payload); return BT_OK;
    case BT_ISLAND_BEAT: /* the first go may have been lost */
        if (head->chunks && m->state == BT_MEMBER_TRAINS && !m->waits && !m->pushed &&
            (uint64_t)m->go.seq == m->applied)
            bt_hub_send_go(h, m);
        return BT_OK;
    case BT_ISLAND_BYE: return bt_hub_lose(h, m, BT_MEMBER_LEFT, "left", err);
    default: return BT_OK;
    }
}

bt_code bt_hub_receive(bt_hub *h, const bt_hub_peer *from, const void *frame, size_t bytes,
                       int64_t now_ns, bt_err *err) {
    bt_island_head head;
    const void *payload;
    bt_err why = BT_ERR_INIT;
    h->now_ns = now_ns;
    if (bt_island_parse(frame, bytes, BT_SENT_BY_ISLAND, &head, &payload, &why) != BT_OK) {
        h->refused++;
        bt_hub_refuse(h, from, "%s", why.msg);
        bt_hub_event(h, BT_EVENT_REFUSED, NULL, "message refused: %s", why.msg);
        return BT_OK;
    }
    if (head.type == BT_ISLAND_HELLO) return bt_hub_hello(h, from, payload, head.bytes, err);
    bt_member *m = head.island >= 1 && head.island <= h->n ? &h->members[head.island - 1] : NULL;
    const bt_island_head stranger = {.type = BT_ISLAND_STRANGER};
    const bool known = m && head.epoch == h->cfg.epoch && head.incarnation == m->incarnation &&
                       strcmp(from->key, m->key) == 0;
    if (!known || (m->state != BT_MEMBER_JOINS && m->state != BT_MEMBER_TRAINS)) {
        /* The sender is a member of an earlier start of the hub, was replaced, or was declared dead. */
        if (known && m->state == BT_MEMBER_DEAD)
            bt_hub_event(h, BT_EVENT_ISLAND_LATE, m, "too late: '%s' of an island declared dead",
                         bt_island_type_name(head.type));
        bt_hub_send(h, from, &stranger, NULL);
        return BT_OK;
    }
    m->peer = *from; /* a new connection has a new id */
    m->seen_ns = now_ns;
    m->gone_ns = 0;
    if (head.type != BT_ISLAND_BEAT) m->worked_ns = now_ns;
    return member_message(h, m, &head, payload, err);
}

void bt_hub_refuse_frames(bt_hub *h, const bt_hub_peer *from) {
    static const char why[] = "a message of several frames: one frame is a message here";
    h->refused++;
    bt_hub_refuse(h, from, "%s", why);
    bt_hub_event(h, BT_EVENT_REFUSED, NULL, "message refused: %s", why);
}

void bt_hub_refuse_memory(bt_hub *h, double mib, double most) {
    h->refused++;
    bt_hub_event(h, BT_EVENT_REFUSED, NULL,
                 "messages on their way took %.0f MiB, more than %.0f (--memory): all connections "
                 "are closed, and islands connect again",
                 mib, most);
}

size_t bt_hub_bytes(const bt_hub *h) {
    size_t sum = h->model ? bt_hub_model_memory(h->model) : 0;
    for (size_t i = 0; i < h->n; i++)
        if (h->members[i].staged) sum += (size_t)h->members[i].chunks * BT_ISLAND_CHUNK;
    return sum;
}

/* After a restart the hub waits only a limited time for the islands that trained before. */
static bt_code begin_without_missing_islands(bt_hub *h, bt_err *err) {
    if (!h->resumed_ns || h->started) return BT_OK;
    const double ask_again_s = 4; /* islands repeat their hello every two seconds */
    if ((double)(h->now_ns - h->resumed_ns) / 1e9 < h->cfg.grace_s + ask_again_s) return BT_OK;
    h->started = true;
    return bt_hub_advance(h, err);
}

bt_code bt_hub_tick(bt_hub *h, int64_t now_ns, bt_err *err) {
    const bt_island_head ping = {.type = BT_ISLAND_PING};
    const int64_t every = 500000000;
    h->now_ns = now_ns;
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        if (m->state != BT_MEMBER_JOINS && m->state != BT_MEMBER_TRAINS) continue;
        if (now_ns - m->pinged_ns >= every) {
            m->pinged_ns = now_ns;
            if (bt_hub_send(h, &m->peer, &ping, NULL) != BT_PORT_GONE)
                m->gone_ns = 0;
            else if (!m->gone_ns)
                m->gone_ns = now_ns;
        }
        if (m->gone_ns && (double)(now_ns - m->gone_ns) / 1e9 >= h->cfg.grace_s)
            BT_TRY(bt_hub_lose(h, m, BT_MEMBER_DEAD, "its connection is gone", err));
        else if ((double)(now_ns - m->seen_ns) / 1e9 >= h->cfg.silence_s)
            BT_TRY(bt_hub_lose(h, m, BT_MEMBER_DEAD, "it says nothing", err));
        else if (m->overdue && (double)(now_ns - m->worked_ns) / 1e9 >= h->cfg.silence_s)
            BT_TRY(bt_hub_lose(h, m, BT_MEMBER_DEAD, "it sends signs of life, and no update", err));
    }
    if (bt_hub_watch(h)) BT_TRY(bt_hub_advance(h, err));
    if (h->quorum_ns) BT_TRY(bt_hub_advance(h, err));
    return begin_without_missing_islands(h, err);
}
