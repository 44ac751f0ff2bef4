/* json.h - parses one JSON object from untrusted text: bounded depth, no duplicate keys. The only header of
 * engine/data that uses jansson. Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_IO_JSON_H
#define BT_ENGINE_DATA_IO_JSON_H

#include <jansson.h>

#include "engine/base/status.h"

/* *out is NULL on failure */
bt_code bt_json_parse(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* Parses whole numbers beyond 64 bits as reals, because some programs write 1e30 as 1000...0. */
bt_code bt_json_parse_big(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* Parses and allows the character \u0000 inside texts, whose length json_string_length returns. */
bt_code bt_json_parse_nul(json_t **out, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;

/* *out: text of an object's member, borrowed from it; BT_FORMAT if there is none. */
bt_code bt_json_text_of(const json_t *o, const char *key, const char **out, bt_err *err)
    BT_MUST_CHECK;

#endif
