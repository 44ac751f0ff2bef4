/* poll_set.h - combines several file descriptors into one that poll() accepts.
 *
 * A set is a descriptor that is readable while one of its members is readable or has been closed by its peer. The owner
 * of a set releases it with close(). A member leaves the set when all its copies are closed; remove it first if a child
 * may have inherited one. Errors are in errno. Threads: one at a time per set. */
#ifndef BT_ENGINE_BASE_OS_POLL_SET_H
#define BT_ENGINE_BASE_OS_POLL_SET_H

#include <stdbool.h>
#include <stdint.h>

/* Returns a new empty set, which exec closes; -1: error. */
int bt_poll_set_create(void);
/* Adds a member with a number that identifies it. Returns false on an error, and leaves the set unchanged. */
bool bt_poll_set_add(int set, int fd, uint64_t tag);
void bt_poll_set_remove(int set, int fd);
/* Writes the number of a readable member without waiting. Returns false if none is readable. */
bool bt_poll_set_ready(int set, uint64_t *tag);

#endif
