/* hub_peers.c - sends messages to islands and reports events about them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/islands/hub/hub_internal.h"

uint32_t bt_hub_number(const bt_hub *h, const bt_member *m) {
    return (uint32_t)(m - h->members) + 1;
}

void bt_hub_event(bt_hub *h, bt_event_kind kind, const bt_member *m, const char *fmt, ...) {
    char title[300], whole[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    if (!h->cfg.sink || !h->cfg.sink->event) return;
    snprintf(whole, sizeof whole, "%s%s%s%s", m ? "island '" : "", m ? m->name : "", m ? "' " : "",
             title);
    const bt_event e = {.kind = kind,
                        .step = h->model ? h->model->version - 1 : -1,
                        .rank = m ? (int)bt_hub_number(h, m) - 1 : -1,
                        .wall_us = bt_wall_us(),
                        .title = whole};
    h->cfg.sink->event(h->cfg.sink->ctx, &e);
}

bt_port_state bt_hub_send(bt_hub *h, const bt_hub_peer *to, const bt_island_head *head,
                          const void *payload) {
    bt_island_head full = *head;
    full.epoch = h->cfg.epoch;
    return h->cfg.port.send(h->cfg.port.ctx, to, h->frame,
                            bt_island_write(h->frame, &full, payload));
}

void bt_hub_refuse(bt_hub *h, const bt_hub_peer *to, const char *fmt, ...) {
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const bt_island_head head = {.type = BT_ISLAND_REFUSED, .bytes = (uint32_t)strlen(text)};
    if (text[0]) bt_hub_send(h, to, &head, text);
}

void bt_hub_notice(bt_hub *h, const bt_member *m, const char *line) {
    const bt_island_head head = {.type = BT_ISLAND_NOTICE, .bytes = (uint32_t)strlen(line)};
    for (size_t i = 0; i < h->n; i++) {
        const bt_member *to = &h->members[i];
        if (m ? to == m : to->state == BT_MEMBER_JOINS || to->state == BT_MEMBER_TRAINS)
            bt_hub_send(h, &to->peer, &head, line);
    }
}

void bt_hub_unstage(bt_member *m) {
    free(m->staged);
    free(m->have);
    m->staged = m->have = NULL;
    m->chunks = m->arrived = 0;
    m->staging = 0;
    m->pushed = false;
}

size_t bt_hub_training(const bt_hub *h, int64_t *slowest, int64_t *fastest) {
    size_t n = 0;
    *slowest = *fastest = 0;
    for (size_t i = 0; i < h->n; i++) {
        const bt_member *m = &h->members[i];
        if (m->state != BT_MEMBER_TRAINS || m->overdue) continue;
        if (n == 0 || m->clock < *slowest) *slowest = m->clock;
        if (n == 0 || m->clock > *fastest) *fastest = m->clock;
        n++;
    }
    return n;
}
