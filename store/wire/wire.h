/* wire.h - frames between rank 0 and the supervisor over a Unix socket; bounded and checked in
 * both directions.
 *
 * Down (rank -> supervisor): all calls of a bt_sink. Up (supervisor -> rank): control verbs.
 * Frame:    u32 magic, u32 attempt, the head of a record (record.h), payload (<= 16 MiB). Frames
 *           of a lower attempt are ignored.
 * Rank:     copies each call of its sink into a bounded queue, from which a thread sends, so that
 *           a step never blocks. A full queue drops and counts its oldest per-rank records, but no
 *           step values. If the supervisor disappears, on_lost is called once (the trainer then
 *           saves a checkpoint and stops). */
#ifndef BT_STORE_WIRE_WIRE_H
#define BT_STORE_WIRE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/tables/verb.h"

/* value: factor for LR. text: prompt for SAMPLE, weights for MIXTURE, at most BT_PROMPT_MAX bytes;
 * else NULL */
typedef struct bt_ctl {
    bt_verb verb;
    double value;
    const char *text;
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
/* Also keeps records in the file `path`, from which bt_writer_recover reads them after a kill. To be called before the
 * sink is used. */
bt_code bt_wire_keep(bt_wire *w, const char *path, bt_err *err) BT_MUST_CHECK;
const bt_sink *bt_wire_sink(bt_wire *w);
/* Sends queued records (at most 5 s) and closes. */
void bt_wire_close(bt_wire *w);

/* ---- supervisor side: single-threaded, driven by poll ---------------------------------------- */
typedef struct bt_wire_server bt_wire_server;
/* Creates the socket with mode 0600. */
bt_code bt_wire_listen(bt_wire_server **out, const char *socket_path, bt_err *err) BT_MUST_CHECK;
/* The descriptor for poll is readable when a rank connects or sends. */
int bt_wire_fd(const bt_wire_server *s);
struct bt_record;
/* Destinations of a received record: it is checked and decoded once for `look` (missing
 * functions are skipped at no cost), then its bytes are passed unchanged to `take` (NULL:
 * dropped). */
typedef struct bt_wire_into {
    bt_sink look;
    void *taker;
    void (*take)(void *taker, struct bt_record *r);
} bt_wire_into;
/* Reads from all ranks and passes each complete frame of `attempt` to `into`. */
bt_code bt_wire_serve(bt_wire_server *s, int attempt, const bt_wire_into *into, bt_err *err)
    BT_MUST_CHECK;
/* BT_BUSY: no rank is connected. */
bt_code bt_wire_send_control(bt_wire_server *s, const bt_ctl *c, bt_err *err) BT_MUST_CHECK;
bool bt_wire_connected(const bt_wire_server *s);
void bt_wire_server_close(bt_wire_server *s);

#endif
