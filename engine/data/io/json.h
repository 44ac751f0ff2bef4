/* json.h - parses one JSON object from untrusted text, with bounded depth and without duplicate keys. No other header
 * of engine/data includes jansson. Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_IO_JSON_H
#define BT_ENGINE_DATA_IO_JSON_H

#include <jansson.h>

#include "engine/base/status.h"

/* *out is NULL on failure */
bt_code bt_json_parse(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* Parses integers beyond 64 bits as reals, because some programs write 1e30 as 1000...0. */
bt_code bt_json_parse_big(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* Allows the character \\u0000 in strings; json_string_length returns their length. */
bt_code bt_json_parse_nul(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* Sets *out to the string value of a member of o, which o owns. BT_FORMAT: no such member, or not a string. */
bt_code bt_json_text_of(const json_t *o, const char *key, const char **out, bt_err *err)
    BT_MUST_CHECK;

#endif
