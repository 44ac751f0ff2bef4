/* memory_pages.h - requests about the pages of mapped memory. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_MEMORY_PAGES_H
#define BT_ENGINE_BASE_OS_MEMORY_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Both are hints that a system may ignore; `at` is the start of a page. Huge pages cost fewer misses of the address
 * cache; small pages are right where neighbouring parts of the memory are not used. */
void bt_pages_prefer_huge(void *at, size_t bytes);
void bt_pages_prefer_small(void *at, size_t bytes);
/* Returns whole pages of private memory to the system; they read as zero afterwards. Returns false, with the pages
 * unchanged, if the system refuses. */
bool bt_pages_return(void *at, size_t bytes);
/* Returns free pages of malloc to the system where it keeps them. */
void bt_pages_return_free(void);
/* True if the administrator has switched huge pages off. */
bool bt_pages_huge_off(void);

#endif
