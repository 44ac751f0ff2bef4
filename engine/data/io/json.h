/* json.h - one JSON object from untrusted text: bounded depth, no double keys. The only jansson in
 * a header of engine/data.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_IO_JSON_H
#define BT_ENGINE_DATA_IO_JSON_H

#include <jansson.h>

#include "engine/base/status.h"

/* *out is NULL on failure */
bt_code bt_json_parse(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* the same, with whole numbers beyond 64 bits as reals: some programs write 1e30 as 1000...0 */
bt_code bt_json_parse_big(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* The same with the character \u0000 inside texts, which are then read by json_string_length. */
bt_code bt_json_parse_nul(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* *out: the text of a member of an object, borrowed from it; BT_FORMAT where there is none */
bt_code bt_json_text_of(const json_t *o, const char *key, const char **out, bt_err *err)
    BT_MUST_CHECK;

#endif
