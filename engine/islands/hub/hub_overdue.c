/* hub_overdue.c - reports islands that delay the job by two seconds, and marks them as overdue after three rounds.
 *
 * A sign of life does not prove progress: an island whose exchange hangs still sends them. An overdue island remains a
 * member; its next update is late (hub_rounds.c), and the job then waits for it again. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/base/tables/derived.h"
#include "engine/islands/hub/hub_internal.h"

static const double named_s =
    2; /* an island that waits longer than usual by this time is reported */
static const double unknown_s = 30; /* least limit for an island whose usual round is unknown */
enum { ROUNDS = 3 };                /* an island is overdue after so many of its usual rounds */

static double to_seconds(int64_t ns) { return (double)ns / 1e9; }

/* Returns NaN if fewer than three durations are known. */
static double median_round_s(const int64_t *ns, size_t n) {
    double known[BT_HUB_ROUNDS];
    const size_t kept = n < BT_HUB_ROUNDS ? n : BT_HUB_ROUNDS;
    for (size_t i = 0; i < kept; i++) known[i] = to_seconds(ns[i]);
    return kept < 3 ? (double)NAN : bt_median_known(known, kept);
}

/* Returns the member's usual round, or else the longest usual round of another member. */
static double usual_round_s(const bt_hub *h, const bt_member *m) {
    double longest = median_round_s(m->rounds_ns, m->n_rounds);
    if (!isnan(longest)) return longest;
    for (size_t i = 0; i < h->n; i++)
        longest = fmax(longest, median_round_s(h->members[i].rounds_ns, h->members[i].n_rounds));
    return longest;
}

static bool delays_round(const bt_member *m) { return m->state == BT_MEMBER_TRAINS && !m->overdue; }

/* Returns true if other islands wait for the member's update. */
static bool is_awaited_by_others(const bt_hub *h, const bt_member *m) {
    int64_t slowest, fastest;
    bt_hub_training(h, &slowest, &fastest);
    const bool together = bt_hub_model_together(h->model);
    if (!delays_round(m) || m->waits || m->pushed || (!together && m->clock > slowest))
        return false;
    for (size_t i = 0; i < h->n; i++) {
        const bt_member *o = &h->members[i];
        if (o != m && delays_round(o) && (together ? o->pushed : o->waits)) return true;
    }
    return false;
}

void bt_hub_note_waits(bt_hub *h) {
    bool any = false;
    for (size_t i = 0; h->started && i < h->n; i++) any |= is_awaited_by_others(h, &h->members[i]);
    if (!any && h->held_ns) h->waits_ns[h->n_waits++ % BT_HUB_ROUNDS] = h->now_ns - h->held_ns;
    if (!any)
        h->held_ns = 0;
    else if (!h->held_ns)
        h->held_ns = h->now_ns > 0 ? h->now_ns : 1;
}

bool bt_hub_returns(bt_hub *h, bt_member *m) {
    const bool was = m->overdue;
    if (m->pushed_ns && !was)
        m->rounds_ns[m->n_rounds++ % BT_HUB_ROUNDS] = h->now_ns - m->pushed_ns;
    m->pushed_ns = h->now_ns;
    m->named = m->overdue = false;
    if (was) bt_hub_event(h, BT_EVENT_HUB, m, "sends updates again");
    return was;
}

static void report_overdue(bt_hub *h, bt_member *m, double waited_s) {
    char line[200];
    m->named = true;
    bt_hub_event(h, BT_EVENT_ISLAND_LATE, m, "on '%s' is waited for: no update for %.1f s", m->host,
                 waited_s);
    snprintf(
        line, sizeof line,
        "this island waits for island '%.60s' on '%.60s', whose update has been missing for %.1f s",
        m->name, m->host, waited_s);
    for (size_t i = 0; i < h->n; i++)
        if (&h->members[i] != m && delays_round(&h->members[i]))
            bt_hub_notice(h, &h->members[i], line);
}

static void mark_overdue(bt_hub *h, bt_member *m, double waited_s, double usual) {
    char line[200], rounds[60] = "";
    m->overdue = true;
    if (!isnan(usual)) snprintf(rounds, sizeof rounds, ", where a round takes %.3g s", usual);
    bt_hub_event(h, BT_EVENT_ISLAND_LATE, m,
                 "on '%s' has sent no update for %.1f s%s: the job continues without it", m->host,
                 waited_s, rounds);
    snprintf(line, sizeof line,
             "the job continues without island '%.60s' on '%.60s' until its update arrives",
             m->name, m->host);
    for (size_t i = 0; i < h->n; i++)
        if (delays_round(&h->members[i])) bt_hub_notice(h, &h->members[i], line);
}

bool bt_hub_watch(bt_hub *h) {
    bool left = false;
    if (!h->started || !h->model || !(h->cfg.overdue_s > 0)) return false;
    bt_hub_note_waits(h);
    for (size_t i = 0; h->held_ns && i < h->n; i++) {
        bt_member *m = &h->members[i];
        if (!is_awaited_by_others(h, m)) continue;
        const int64_t since = m->worked_ns > h->held_ns ? m->worked_ns : h->held_ns;
        const double waited_s = to_seconds(h->now_ns - since), usual = usual_round_s(h, m);
        /* if all islands take long in a round (an evaluation), one island may take half as long again */
        double most_s = fmax(h->cfg.overdue_s, 0.5 * to_seconds(h->held_ns - m->go_ns));
        most_s = fmax(most_s, isnan(usual) ? unknown_s : ROUNDS * usual);
        const double wait_s = median_round_s(h->waits_ns, h->n_waits);
        const double report_s = fmin(most_s, named_s + (isnan(wait_s) ? 0 : wait_s));
        if (!m->named && waited_s >= report_s) report_overdue(h, m, waited_s);
        if (waited_s < most_s) continue;
        mark_overdue(h, m, waited_s, usual);
        left = true;
    }
    return left;
}
