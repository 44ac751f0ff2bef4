/* json_starved.h - distinguishes a malformed JSON text from a lack of memory in jansson. Pure. */
#ifndef BT_ENGINE_BASE_SYSTEM_JSON_STARVED_H
#define BT_ENGINE_BASE_SYSTEM_JSON_STARVED_H

#include <jansson.h>
#include <stdbool.h>

/* Returns true if json_load* failed for lack of memory, the only failure for which jansson sets no message. */
static inline bool bt_json_starved(const json_error_t *why) {
    return !why->text[0] || json_error_code(why) == json_error_out_of_memory;
}

#endif
