/* environment.h - checks the variables BITRAIN_* in the environment. Threads: any. */
#ifndef BT_ENGINE_CONFIG_ENVIRONMENT_H
#define BT_ENGINE_CONFIG_ENVIRONMENT_H

#include <stdbool.h>

typedef struct bt_environment_name {
    char name[64];    /* name of the variable, truncated, without control characters */
    char nearest[64]; /* the most similar known name, or "" */
} bt_environment_name;

/* Checks an entry NAME=VALUE of environ. Returns false for a BITRAIN_ name without effect, and writes it and the most
 * similar known name to *out. Names that bitrain sets for its child processes are known. */
bool bt_environment_read(const char *entry, bt_environment_name *out);

#endif
