/* memory_pages.c - madvise. */
#include "engine/base/os/memory_pages.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void bt_pages_prefer_huge(void *at, size_t bytes) { (void)madvise(at, bytes, MADV_HUGEPAGE); }

void bt_pages_prefer_small(void *at, size_t bytes) { (void)madvise(at, bytes, MADV_NOHUGEPAGE); }

bool bt_pages_return(void *at, size_t bytes) { return madvise(at, bytes, MADV_DONTNEED) == 0; }

void bt_pages_return_free(void) { (void)malloc_trim(0); }

bool bt_pages_huge_off(void) {
    char text[96];
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    const bool known = f && fgets(text, sizeof text, f);
    if (f) fclose(f);
    return known && strstr(text, "[never]");
}
