/* hub_disk.c - waits for a disk that refuses to store the hub's updates. Meanwhile none is acknowledged. */
#include <stdio.h>

#include "engine/base/clock.h"
#include "engine/islands/hub/hub_internal.h"

static void ping_waiting_islands(bt_hub *h) {
    const bt_island_head ping = {.type = BT_ISLAND_PING};
    const int64_t now = bt_now_ns();
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        if (m->state != BT_MEMBER_JOINS && m->state != BT_MEMBER_TRAINS) continue;
        bt_hub_send(h, &m->peer, &ping, NULL);
        m->seen_ns = m->worked_ns =
            now; /* so that members do not count as silent: messages that arrived meanwhile have not been read */
    }
    h->held_ns = 0;
}

bt_code bt_hub_wait_for_disk(bt_hub *h, bool first, const bt_err *why, bt_err *err) {
    char line[BT_ISLAND_LINE];
    if (why->code == BT_IO && h->cfg.wait) {
        if (first) {
            bt_hub_event(h, BT_EVENT_CHECKPOINT_FAILED, NULL,
                         "%s; updates are acknowledged again when there is room, tried each second",
                         why->msg);
            snprintf(line, sizeof line,
                     "the hub's disk takes nothing (%.150s); it tries again each second", why->msg);
            bt_hub_notice(h, NULL, line);
        }
        ping_waiting_islands(h);
        if (h->cfg.wait(h->cfg.wait_ctx)) return BT_OK;
    }
    *err = *why;
    return why->code;
}

void bt_hub_disk_is_back(bt_hub *h) {
    h->room_again = true;
    bt_hub_event(h, BT_EVENT_HUB, NULL, "the disk takes updates again");
    bt_hub_notice(h, NULL, "the hub's disk takes updates again");
}
