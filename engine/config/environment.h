/* environment.h - the names BITRAIN_* that the program reads from its environment.
 *
 * Threads: any. */
#ifndef BT_ENGINE_CONFIG_ENVIRONMENT_H
#define BT_ENGINE_CONFIG_ENVIRONMENT_H

#include <stdbool.h>

typedef struct bt_environment_name {
    char name[64];    /* the variable's name, cut and without control characters */
    char nearest[64]; /* the known name that it resembles; "" */
} bt_environment_name;

/* Reads `entry`, NAME=VALUE as in environ. true: the name does not begin with BITRAIN_, or bitrain reads it, or sets it
 * for the commands that it starts. false: the name has no effect; *out says what it may have meant. */
bool bt_environment_read(const char *entry, bt_environment_name *out);

#endif
