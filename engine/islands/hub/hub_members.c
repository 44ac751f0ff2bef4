/* hub_members.c - islands that join, leave or are declared dead. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/islands/hub/hub_internal.h"
#include "engine/islands/rules/job_settings.h"

bt_code bt_hub_lose(bt_hub *h, bt_member *m, bt_member_state state, const char *why, bt_err *err) {
    const bool trained = m->state == BT_MEMBER_TRAINS;
    const int64_t back = bt_leases_give_back(&h->leases, bt_hub_number(h, m));
    bt_hub_unstage(m);
    m->state = state;
    m->waits = false;
    m->lease = m->lease_end = m->next = m->next_end = 0;
    if (state == BT_MEMBER_DEAD)
        bt_hub_event(h, BT_EVENT_ISLAND_LOST, m,
                     "is declared dead after step %" PRId64 " (%s); %" PRId64
                     " sequences come back",
                     m->clock, why, back);
    else
        bt_hub_event(h, BT_EVENT_ISLAND_LEFT, m, "left after step %" PRId64, m->clock);
    return trained ? bt_hub_advance(h, err) : BT_OK;
}

static bt_code check_settings(bt_hub *h, const char *text, size_t n, bt_err *err) {
    bt_text other;
    bt_text_init(&other);
    bt_text_putn(&other, text, n);
    const bt_code code = bt_job_settings_compare(bt_text_str(&h->settings), bt_text_str(&other),
                                                 err);
    bt_text_release(&other);
    return code;
}

static bt_member *member_of_peer(bt_hub *h, const char *name) {
    for (size_t i = 0; i < h->n; i++)
        if (strcmp(h->members[i].name, name) == 0) return &h->members[i];
    return NULL;
}

static int64_t line_int(const char *text, size_t n, const char *key, int64_t otherwise) {
    char value[32];
    return bt_island_line(text, n, key, value, sizeof value) ? strtoll(value, NULL, 10) : otherwise;
}

static void record_members(bt_hub *h) {
    bt_rank_info ranks[BT_HUB_ISLANDS];
    if (!h->cfg.sink || !h->cfg.sink->ranks) return;
    for (size_t i = 0; i < h->n; i++) {
        const bt_member *m = &h->members[i];
        ranks[i] = (bt_rank_info){
            .rank = (int)i, .pid = m->pid, .threads = (int)m->ranks, .dp_replicate = (int)i};
        snprintf(ranks[i].host, sizeof ranks[i].host, "%.60s", m->host);
        snprintf(ranks[i].isa, sizeof ranks[i].isa, "%.30s", m->name);
    }
    h->cfg.sink->ranks(h->cfg.sink->ctx, ranks, h->n);
}

/* An island that joins or rejoins starts with the clock of the slowest island. */
static void set_start_clock(bt_hub *h, bt_member *m) {
    int64_t slowest, fastest;
    const size_t n = bt_hub_training(h, &slowest, &fastest);
    int64_t clock = 0;
    for (size_t i = 0; n == 0 && i < h->n; i++)
        if (h->members[i].clock > clock) clock = h->members[i].clock;
    m->clock = n ? slowest : clock;
}

static void fill_member(bt_hub *h, bt_member *m, const bt_hub_peer *from, const char *text,
                        size_t n) {
    char host[BT_HOST_MAX] = "?";
    bt_island_line(text, n, "host", host, sizeof host);
    bt_text_plain(m->host, sizeof m->host, host);
    m->peer = *from;
    snprintf(m->key, sizeof m->key, "%s", from->key);
    m->incarnation++;
    m->state = BT_MEMBER_JOINS;
    m->applied = 0;
    m->outcome = BT_UPDATE_APPLIED;
    m->pid = (int)line_int(text, n, "pid", 0);
    m->ranks = line_int(text, n, "ranks", 1);
    m->sequences = line_int(text, n, "sequences", 0);
    m->seen_ns = m->pinged_ns = h->now_ns;
    m->gone_ns = 0;
    m->worked_ns = m->go_ns = h->now_ns;
    m->pushed_ns = 0;
    m->named = m->overdue = false;
    m->go = (bt_island_go){.seq = 0};
    m->fetch = (bt_island_fetch){.n = 0};
}

/* Leases the data of steps that the island may have begun after this update to the same island again. If the data are
 * not available, only these steps are lost. */
static void lease_next_again(bt_hub *h, bt_member *m, int64_t begin, int64_t end) {
    const int64_t most = h->leases.next + (INT64_C(1) << 32);
    if (begin < 0 || begin > most || end <= begin ||
        end - begin > h->model->cfg.islands.inner * m->sequences || (end - begin) % m->sequences ||
        !bt_leases_claim(&h->leases, bt_hub_number(h, m), begin, end))
        return;
    m->next = begin;
    m->next_end = end;
}

/* Accepts the claim of an island whose update a restarted hub has not seen: "holds=SEQ BEGIN END BASE KIND STEPS
 * [NEXT_BEGIN NEXT_END]". Its data must be free, which proves that the update was never applied. */
static bool restore_member_update(bt_hub *h, bt_member *m, const char *text, size_t n) {
    char line[192];
    long long seq, begin, end, base, kind, steps, next = 0, next_end = 0;
    const bt_run_cfg *c = &h->model->cfg;
    if (!bt_island_line(text, n, "holds", line, sizeof line) ||
        sscanf(line, "%lld %lld %lld %lld %lld %lld %lld %lld", &seq, &begin, &end, &base, &kind,
               &steps, &next, &next_end) < 6)
        return false;
    /* a delta may be late by as many rounds as in apply_late */
    const int64_t late = kind == BT_PUSH_DELTA && h->model->fragments == 1 ? h->cfg.late : 0;
    if (seq < 1 || kind < BT_PUSH_GRADIENT || kind > BT_PUSH_DELTA || steps < 1 ||
        steps > c->islands.inner || base < 0 || base > h->model->version ||
        (bt_hub_model_together(h->model) && h->model->version - base > late) || begin < 0 ||
        end < begin || end - begin != steps * m->sequences ||
        begin > h->leases.next + (INT64_C(1) << 32) || kind != bt_hub_model_push_kind(h->model))
        return false;
    if (!bt_leases_claim(&h->leases, bt_hub_number(h, m), begin, end)) return false;
    m->applied = (uint64_t)seq - 1;
    m->lease = begin;
    m->lease_end = end;
    m->base = base;
    m->round = h->round - (bt_hub_model_together(h->model) ? h->model->version - base : 0);
    m->go.kind = kind;
    m->go.steps = steps;
    m->go.fragment = kind == BT_PUSH_DELTA ? bt_hub_model_fragment(h->model) : 0;
    lease_next_again(h, m, next, next_end);
    return true;
}

/* Returns true if the update that an island's hello names ("was=INCARNATION", under its earlier name) is the newest one
 * that the hub acknowledged, so that only the go was lost. m: the member before this hello. */
static bool was_applied_before(const bt_member *m, const char *text, size_t n, long long *next,
                               long long *next_end) {
    char line[192];
    long long seq, ignored[5];
    *next = *next_end = 0;
    return m->incarnation > 0 && line_int(text, n, "was", 0) == m->incarnation &&
           bt_island_line(text, n, "holds", line, sizeof line) &&
           sscanf(line, "%lld %lld %lld %lld %lld %lld %lld %lld", &seq, &ignored[0], &ignored[1],
                  &ignored[2], &ignored[3], &ignored[4], next, next_end) >= 6 &&
           seq >= 1 && (uint64_t)seq == m->applied;
}

static void send_welcome(bt_hub *h, bt_member *m, bool resend, bool had) {
    const bt_island_welcome w = {.island = bt_hub_number(h, m),
                                 .incarnation = m->incarnation,
                                 .applied = (int64_t)m->applied,
                                 .elements = (int64_t)h->model->n,
                                 .want_weights = !h->model->has_weights,
                                 .resend = resend,
                                 .had = had};
    const bt_island_head head = {.type = BT_ISLAND_WELCOME,
                                 .island = bt_hub_number(h, m),
                                 .incarnation = m->incarnation,
                                 .bytes = sizeof w};
    bt_hub_send(h, &m->peer, &head, &w);
}

static bt_code admit_island(bt_hub *h, const bt_hub_peer *from, const char *text, size_t n,
                            bt_member **out, bt_err *err) {
    char name[BT_ISLAND_NAME] = "";
    if (!bt_island_line(text, n, "name", name, sizeof name) || !bt_name_ok(name))
        return bt_fail(err, BT_ARG, "the island has no name: pass --name");
    const int64_t sequences = line_int(text, n, "sequences", 0);
    if (sequences < 1 || sequences > 1 << 24)
        return bt_fail(err, BT_ARG,
                       "the island has an invalid number of sequences per step, %" PRId64,
                       sequences);
    if (h->finished) return bt_fail(err, BT_BUSY, "the job of this hub is done");
    if (h->model)
        BT_TRY(check_settings(h, text, n, err));
    else
        BT_TRY(bt_hub_begin_job(h, text, n, err));
    bt_member *m = member_of_peer(h, name);
    if (m && strcmp(m->key, from->key) != 0)
        return bt_fail(err, BT_BUSY,
                       "the name '%s' belongs to an island with another key: use another --name, "
                       "or the key file of that island",
                       name);
    if (!m && h->n == BT_HUB_ISLANDS)
        return bt_fail(err, BT_BUSY, "this hub already has %d islands, its maximum",
                       BT_HUB_ISLANDS);
    if (!m) {
        m = &h->members[h->n++];
        snprintf(m->name, sizeof m->name, "%s", name);
    }
    *out = m;
    return BT_OK;
}

bt_code bt_hub_hello(bt_hub *h, const bt_hub_peer *from, const char *text, size_t n, bt_err *err) {
    bt_member *m = NULL;
    bt_err why = BT_ERR_INIT;
    if (memchr(text, 0, n) || admit_island(h, from, text, n, &m, &why) != BT_OK) {
        h->refused++;
        bt_hub_refuse(h, from, "%s", why.msg[0] ? why.msg : "the hello message is not text");
        bt_hub_event(h, BT_EVENT_REFUSED, NULL, "an island was refused: %s", why.msg);
        return BT_OK;
    }
    const bool back = m->state == BT_MEMBER_JOINS || m->state == BT_MEMBER_TRAINS;
    if (back) BT_TRY(bt_hub_lose(h, m, BT_MEMBER_DEAD, "it has started again", err));
    const int64_t was = m->clock;
    const uint64_t applied = m->applied;
    const int64_t outcome = m->outcome;
    long long next, next_end;
    const bool had = h->model->has_weights && was_applied_before(m, text, n, &next, &next_end);
    fill_member(h, m, from, text, n);
    record_members(h);
    set_start_clock(h, m);
    if (had) {
        m->applied = applied;
        m->outcome = outcome;
        lease_next_again(h, m, next, next_end);
    }
    const bool resend = !had && h->model->has_weights && restore_member_update(h, m, text, n);
    if (had || (resend && m->incarnation > 1))
        m->clock = was; /* the hub knows the clock of this island */
    send_welcome(h, m, resend, had);
    if (!h->model->has_weights) return BT_OK;
    m->state = BT_MEMBER_TRAINS;
    m->waits = !resend;
    bt_hub_event(h, BT_EVENT_ISLAND_JOINED, m, "on '%s' joined at step %" PRId64, m->host,
                 m->clock);
    return bt_hub_advance(h, err);
}
