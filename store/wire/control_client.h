/* control_client.h - sends a request to a live run: one line to its supervisor's socket, one line back.
 *
 * Request: VERB [VALUE] [#WHO]
 *   pause resume checkpoint stop eval status | set lr=2e-4 | set lr_factor=0.5 | sample PROMPT (a text word, see below)
 * Reply: ok TEXT (status: TEXT is one JSON object), or no CODE TEXT (CODE is a bt_code)
 * The socket has mode 0600; its path is in OUT/control while the run is live. A call blocks at most 5 s.
 * Threads: no shared state. */
#ifndef BT_STORE_WIRE_CONTROL_CLIENT_H
#define BT_STORE_WIRE_CONTROL_CLIENT_H

#include <stddef.h>

#include "engine/base/status.h"
#include "store/store.h"

enum { BT_CONTROL_LINE = 2048 };

/* Encodes text as one word of a request: control bytes, blanks, '#', '%' and 127 become %XX; "%"
 * alone is the empty text. BT_ARG: the word is longer than size - 1. */
bt_code bt_control_word(char *out, size_t size, const char *text, bt_err *err) BT_MUST_CHECK;
/* Decodes a word of bt_control_word, cut to size - 1 bytes; a '%' without two hexadecimal digits is kept. %00 becomes a
 * blank, so the text has no NUL. */
void bt_control_unword(char *out, size_t size, const char *word);
/* Composes "VERB VALUE #WHO" for a verb of verbs.def; value NULL: none. The value of SAMPLE is encoded as one word;
 * it must have 1 to BT_PROMPT_MAX bytes (BT_ARG). */
bt_code bt_control_line(char *out, size_t size, const char *verb, const char *value,
                        const char *who, bt_err *err) BT_MUST_CHECK;

/* Sends a request to a socket. reply receives TEXT; a refusal is returned as its code and
 * message. BT_BUSY: no process listens, or the connection was closed without an answer because
 * the run is ending. */
bt_code bt_control_call(const char *path, const char *request, char *reply, size_t size,
                        bt_err *err) BT_MUST_CHECK;
/* Sends a request to the supervisor of a run; run may be "last". BT_NOTFOUND: no such run.
 * BT_BUSY: no supervisor answers; the message names the remedy, e.g. to resume a stopped run or
 * to call from the run's host. */
bt_code bt_control_request(bt_db *db, const char *run, const char *request, char *reply,
                           size_t size, bt_err *err) BT_MUST_CHECK;

#endif
