/* control_client.h - asking a live run for something: one line to its supervisor's socket, one line
 * back.
 *
 * Request:  VERB [VALUE] [#WHO]\n     pause resume checkpoint stop eval status | set lr=2e-4 | set lr_factor=0.5
 *                                    | sample PROMPT, with bytes that a word cannot have as %XX
 * Answer:   ok TEXT\n                      (status: TEXT is one JSON object)
 *           no CODE TEXT\n                 CODE is a bt_code
 * The socket is 0600 and its path stands in OUT/control while the run is live. Threads: none
 * shared. Blocks at most 5 s. */
#ifndef BT_STORE_WIRE_CONTROL_CLIENT_H
#define BT_STORE_WIRE_CONTROL_CLIENT_H

#include <stddef.h>

#include "engine/base/status.h"
#include "store/store.h"

enum { BT_CONTROL_LINE = 2048 };

/* Text as one word of a request: control bytes, blanks, '#', '%' and 127 become %XX; "%" alone stands
 * for the empty text. BT_ARG: it does not fit. */
bt_code bt_control_word(char *out, size_t size, const char *text, bt_err *err) BT_MUST_CHECK;
/* the text of such a word, cut to size - 1 bytes; a '%' that begins no %XX stays. NUL cannot occur:
 * %00 becomes a blank */
void bt_control_unword(char *out, size_t size, const char *word);
/* "VERB VALUE #WHO" for a verb of verbs.def; value NULL: none. The value of SAMPLE is put into one word;
 * one that is empty or has more than BT_PROMPT_MAX bytes is refused (BT_ARG). */
bt_code bt_control_line(char *out, size_t size, const char *verb, const char *value,
                        const char *who, bt_err *err) BT_MUST_CHECK;

/* Asks at a socket. reply receives TEXT; a refusal is returned as its code and message. BT_BUSY:
 * nobody listens there, or it closed without an answer, as at its end. */
bt_code bt_control_call(const char *path, const char *request, char *reply, size_t size,
                        bt_err *err) BT_MUST_CHECK;
/* Asks the supervisor of a run; run may be "last". BT_NOTFOUND: no such run; BT_BUSY: nobody answers for
 * it, with what fits its state: to resume a stopped one, to ask on another host, ... */
bt_code bt_control_request(bt_db *db, const char *run, const char *request, char *reply,
                           size_t size, bt_err *err) BT_MUST_CHECK;

#endif
