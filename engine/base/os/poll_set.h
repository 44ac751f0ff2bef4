/* poll_set.h - several descriptors behind one that poll() accepts.
 *
 * A set is a descriptor that is readable while one of its members is readable or has been closed by its peer. Its owner
 * releases it with close(). A member leaves the set when all its copies are closed; if a child may have inherited one,
 * remove the member first. Errors are in errno. Threads: one at a time for each set. */
#ifndef BT_ENGINE_BASE_OS_POLL_SET_H
#define BT_ENGINE_BASE_OS_POLL_SET_H

#include <stdbool.h>
#include <stdint.h>

/* Returns a new empty set, which exec closes; -1: error. */
int bt_poll_set_create(void);
/* Adds a member with a number that identifies it. Returns false: error, and the set is unchanged. */
bool bt_poll_set_add(int set, int fd, uint64_t tag);
void bt_poll_set_remove(int set, int fd);
/* Writes the number of a readable member without waiting. Returns false if there is none. */
bool bt_poll_set_ready(int set, uint64_t *tag);

#endif
