/* environment.h - the names BITRAIN_* that the program reads from its environment.
 *
 * Threads: any. */
#ifndef BT_ENGINE_CONFIG_ENVIRONMENT_H
#define BT_ENGINE_CONFIG_ENVIRONMENT_H

#include <stdbool.h>

typedef struct bt_environment_name {
    char name[64];    /* the variable's name, truncated and without control characters */
    char nearest[64]; /* most similar known name, or "" */
} bt_environment_name;

/* Checks an entry NAME=VALUE of environ. Returns false if it is a BITRAIN_ name without effect, and writes the name and
 * the most similar valid one to *out. Names that bitrain sets for its child processes are valid. */
bool bt_environment_read(const char *entry, bt_environment_name *out);

#endif
