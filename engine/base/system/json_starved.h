/* json_starved.h - a JSON text that jansson did not read: its own fault, or a lack of memory? Pure. */
#ifndef BT_ENGINE_BASE_SYSTEM_JSON_STARVED_H
#define BT_ENGINE_BASE_SYSTEM_JSON_STARVED_H

#include <jansson.h>
#include <stdbool.h>

/* True if json_load* failed for lack of memory: jansson describes every fault of a text, but not this one. */
static inline bool bt_json_starved(const json_error_t *why) {
    return !why->text[0] || json_error_code(why) == json_error_out_of_memory;
}

#endif
