/* control_client.h - asking a live run for something: one line to its supervisor's socket, one line
 * back.
 *
 * Request:  VERB [KEY=VALUE] [#WHO]\n     pause resume checkpoint stop eval status | set lr=2e-4 | set lr_factor=0.5
 * Answer:   ok TEXT\n                      (status: TEXT is one JSON object)
 *           no CODE TEXT\n                 CODE is a bt_code
 * The socket is 0600 and its path stands in OUT/control while the run is live. Threads: none
 * shared. Blocks at most 5 s. */
#ifndef BT_STORE_WIRE_CONTROL_CLIENT_H
#define BT_STORE_WIRE_CONTROL_CLIENT_H

#include <stddef.h>

#include "engine/base/status.h"
#include "store/store.h"

enum { BT_CONTROL_LINE = 1024 };

/* Asks at a socket. reply receives TEXT; a refusal is returned as its code and message. BT_BUSY:
 * nobody listens there. */
bt_code bt_control_call(const char *path, const char *request, char *reply, size_t size,
                        bt_err *err) BT_MUST_CHECK;
/* Asks the supervisor of a run; run may be "last". BT_NOTFOUND: no such run; BT_BUSY: nobody answers for
 * it, with what fits its state: to resume a stopped one, to ask on another host, ... */
bt_code bt_control_request(bt_db *db, const char *run, const char *request, char *reply,
                           size_t size, bt_err *err) BT_MUST_CHECK;

#endif
