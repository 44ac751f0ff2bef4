/* control_server.h - the supervisor's side of store/wire/control_client.h: a Unix socket with mode 0600,
 * single-threaded, driven by poll.
 *
 * The server accepts at most 16 clients at once, one line of at most BT_CONTROL_LINE bytes each, and disconnects them
 * after 5 s, so that no client delays the supervisor. */
#ifndef BT_MONITOR_JOB_CONTROL_SERVER_H
#define BT_MONITOR_JOB_CONTROL_SERVER_H

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef struct bt_control_server bt_control_server;
/* Handles one request: verb, argument ("" or KEY=VALUE), requester. Writes the reply; returns BT_OK or fills err. */
typedef bt_code (*bt_control_fn)(void *ctx, const char *verb, const char *arg, const char *who,
                                 bt_text *answer, bt_err *err);

bt_code bt_control_listen(bt_control_server **out, const char *path, bt_err *err) BT_MUST_CHECK;
/* The descriptor is readable when there is work for the server. */
int bt_control_fd(const bt_control_server *s);
void bt_control_serve(bt_control_server *s, bt_control_fn fn, void *ctx);
void bt_control_close(bt_control_server *s); /* removes the socket; accepts NULL */

/* Writes the socket's path to OUT/control while the run is live. */
void bt_control_announce(const char *out_dir, const char *socket_path);
void bt_control_withdraw(const char *out_dir);

#endif
