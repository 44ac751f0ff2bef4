/* memory_wait.h - sleeps until another thread or process changes a word of memory.
 *
 * Comparing the word and falling asleep are one atomic step, so no wake-up is missed. Because a wake-up costs a system
 * call, callers count sleepers: a sleeper increments the count before it calls bt_memory_wait, and a waker changes the
 * word before it reads the count, both sequentially consistent. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_MEMORY_WAIT_H
#define BT_ENGINE_BASE_OS_MEMORY_WAIT_H

#include <stdint.h>

typedef enum {
    BT_WAIT_PROCESS, /* waiters and wakers are threads of this process */
    BT_WAIT_SHARED   /* the word is in memory that several processes map */
} bt_wait_scope;

/* Returns when it is woken, at once if the word differs from `seen`, after timeout_ns (0: no limit), or spuriously; the
 * caller checks the word again. */
void bt_memory_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns, bt_wait_scope scope);
void bt_memory_wake(_Atomic uint32_t *word, bt_wait_scope scope);

#endif
