/* hub_run.c - the loop of a hub. */
#include "cli/hub/hub_run.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "cli/common/signals.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

static bt_request_box box;

typedef struct told {
    const bt_hub_settings *settings;
    uint64_t refused_keys;
} told;

static void on_event(void *ctx, const bt_event *e) {
    const told *t = ctx;
    const bool warn = bt_events[e->kind].level != BT_EV_INFO;
    if (!t->settings->quiet || warn) fprintf(stderr, "hub: %s\n", e->title);
}

/* a key that the handler of connections refused */
static void tell_keys(told *t, const bt_hub_socket *socket) {
    char key[BT_CURVE_KEY];
    const uint64_t n = bt_hub_socket_refused(socket, key);
    if (n == t->refused_keys) return;
    t->refused_keys = n;
    if (key[0])
        fprintf(stderr, "hub: a connection was refused: its key '%s' is not listed\n", key);
    else
        fprintf(stderr, "hub: a connection without a key was refused\n");
}

static bool all_gone(const bt_hub *h) {
    for (size_t i = 0; i < h->n; i++)
        if (h->members[i].state == BT_MEMBER_JOINS || h->members[i].state == BT_MEMBER_TRAINS)
            return false;
    return true;
}

static bt_code one_message(bt_hub *h, bt_hub_socket *socket, int timeout_ms, bool *came,
                           bt_err *err) {
    bt_hub_peer from;
    const void *frame;
    size_t bytes;
    bool many;
    BT_TRY(bt_hub_socket_receive(socket, timeout_ms, &from, &frame, &bytes, &many, err));
    *came = bytes > 0 || many;
    if (many) fprintf(stderr, "hub: a message of several frames was refused\n");
    if (bytes) BT_TRY(bt_hub_receive(h, &from, frame, bytes, bt_now_ns(), err));
    return BT_OK;
}

static bt_code loop(bt_hub *h, bt_hub_socket *socket, told *t, bt_err *err) {
    enum { TICK_MS = 100 };
    int64_t ticked = bt_now_ns();
    while (!(atomic_load(&box.bits) & BT_REQ_STOP)) {
        bool came;
        BT_TRY(one_message(h, socket, TICK_MS, &came, err));
        const int64_t now = bt_now_ns();
        if (now - ticked < TICK_MS * INT64_C(1000000)) continue;
        ticked = now;
        BT_TRY(bt_hub_tick(h, now, err));
        tell_keys(t, socket);
        if (h->finished && all_gone(h)) return BT_OK;
    }
    return BT_OK;
}

bt_code bt_hub_run(const bt_hub_settings *s, bt_hub_socket *socket, bt_err *err) {
    told t = {.settings = s};
    const bt_sink sink = {.ctx = &t, .event = on_event};
    bt_hub *h = NULL;
    bt_hub_cfg cfg = {.port = bt_hub_socket_port(socket),
                      .islands = (int)s->islands,
                      .grace_s = s->grace_s,
                      .silence_s = s->silence_s,
                      .sink = &sink};
    if (getrandom(&cfg.epoch, sizeof cfg.epoch, 0) != sizeof cfg.epoch)
        return bt_fail(err, BT_IO, "the system gives no random numbers");
    cfg.epoch |= 1;
    bt_signals_rank(&box, 1);
    BT_TRY(bt_hub_create(&h, &cfg, err));
    const bt_code code = loop(h, socket, &t, err);
    if (code == BT_OK && !s->quiet)
        fprintf(stderr, "hub: %s after %" PRId64 " updates, %" PRId64 " tokens\n",
                h->finished ? "done" : "stopped", h->model ? h->model->version : 0, h->tokens);
    bt_hub_destroy(h);
    return code;
}
