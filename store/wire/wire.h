/* wire.h - frames between rank 0 and the supervisor over a Unix socket; bounded, checked, both
 * ways.
 *
 * Down (rank -> supervisor): everything a bt_sink receives. Up (supervisor -> rank): control verbs.
 * A frame: u32 magic, u32 kind, u32 attempt, u32 bytes, payload (<= 16 MiB). A frame of a lower
 *          attempt is ignored.
 * Rank side: a sink whose calls copy into a bounded queue; a thread sends. The step never blocks;
 *            when the queue is full the
 * oldest per-rank records go first and are counted; step values are never dropped.
 * When the supervisor goes away the rank side calls on_lost once (the trainer then checkpoints and
 * stops). */
#ifndef BT_STORE_WIRE_WIRE_H
#define BT_STORE_WIRE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"

typedef enum {
    BT_CTL_PAUSE = 1,
    BT_CTL_RESUME,
    BT_CTL_CHECKPOINT,
    BT_CTL_STOP,
    BT_CTL_LR,
    BT_CTL_EVAL,
    BT_CTL_COUNT
} bt_ctl_verb;

/* value: factor for LR */
typedef struct bt_ctl {
    bt_ctl_verb verb;
    double value;
} bt_ctl;

/* ---- rank side ---- */
typedef struct bt_wire bt_wire;
typedef struct bt_wire_handlers {
    void *ctx;
    void (*control)(void *ctx, const bt_ctl *c); /* called from the wire's thread */
    void (*on_lost)(void *ctx);
} bt_wire_handlers;
bt_code bt_wire_connect(bt_wire **out, const char *socket_path, int attempt,
                        const bt_wire_handlers *h, bt_err *err) BT_MUST_CHECK;
/* from now on records are also kept in the file `path`, where bt_writer_recover finds them after a
 * kill. Before the sink is used */
bt_code bt_wire_keep(bt_wire *w, const char *path, bt_err *err) BT_MUST_CHECK;
const bt_sink *bt_wire_sink(bt_wire *w);
uint64_t bt_wire_dropped(const bt_wire *w);
/* sends what is queued (at most 5 s), closes */
void bt_wire_close(bt_wire *w);

/* ---- supervisor side: single-threaded, driven by poll ---------------------------------------- */
typedef struct bt_wire_server bt_wire_server;
/* 0600 */
bt_code bt_wire_listen(bt_wire_server **out, const char *socket_path, bt_err *err) BT_MUST_CHECK;
/* fds to wait on for reading */
int bt_wire_poll_fds(const bt_wire_server *s, int fds[2]);
/* reads what has arrived and calls the sink's functions for each whole frame of `attempt` */
bt_code bt_wire_serve(bt_wire_server *s, int attempt, const bt_sink *into, bt_err *err)
    BT_MUST_CHECK;
/* BT_BUSY: no rank connected */
bt_code bt_wire_send_control(bt_wire_server *s, const bt_ctl *c, bt_err *err) BT_MUST_CHECK;
bool bt_wire_connected(const bt_wire_server *s);
void bt_wire_server_close(bt_wire_server *s);

const char *bt_ctl_name(bt_ctl_verb v);
bool bt_ctl_parse(const char *word, bt_ctl_verb *v);

#endif
