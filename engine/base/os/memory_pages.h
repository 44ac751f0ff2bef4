/* memory_pages.h - requests of the operating system about pages of mapped memory. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_MEMORY_PAGES_H
#define BT_ENGINE_BASE_OS_MEMORY_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Hints that the system may ignore; `at` is the start of a page. Huge pages cause fewer misses of the address cache;
 * small pages suit memory of which neighbouring parts are not used. */
void bt_pages_prefer_huge(void *at, size_t bytes);
void bt_pages_prefer_small(void *at, size_t bytes);
/* Returns whole pages of private memory to the system; they read as zero afterwards. If the system refuses, returns
 * false and leaves the pages unchanged. */
bool bt_pages_return(void *at, size_t bytes);
/* Returns free pages of malloc to the system, if malloc keeps any. */
void bt_pages_return_free(void);
/* Returns true if the administrator has disabled huge pages. */
bool bt_pages_huge_off(void);

#endif
