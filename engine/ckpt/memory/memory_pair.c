/* memory_pair.c - two named segments of shared memory, which the next attempt can reuse. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/system/reserve.h"
#include "engine/ckpt/memory/memory_format.h"

void ckpt_pair_init(memory_pair *p, const memory_pair_name *name, uint64_t bytes) {
    memset(p, 0, sizeof *p);
    p->bytes = bytes;
    for (int i = 0; i < 2; i++)
        snprintf(p->seg[i].path, sizeof p->seg[i].path,
                 "%.4000s/" MEMORY_PREFIX "%05d-%d-%016" PRIx64 "-%s%d", name->dir, name->rank,
                 name->world_size, name->layout, name->kind, i);
}

static uint64_t missing_bytes(const memory_segment *s, uint64_t bytes) {
    struct stat st;
    return stat(s->path, &st) == 0 && (uint64_t)st.st_size == bytes ? 0 : bytes;
}

uint64_t ckpt_pair_missing(const memory_pair *p) {
    return missing_bytes(&p->seg[0], p->bytes) + missing_bytes(&p->seg[1], p->bytes);
}

bt_code ckpt_segment_take(memory_segment *s, uint64_t bytes, bt_err *err) {
    const bool there = missing_bytes(s, bytes) == 0;
    int fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", s->path);
    s->made = !there;
    int rc = ftruncate(fd, (off_t)bytes) != 0 ? errno : bt_file_reserve(fd, bytes);
    void *at = rc ? MAP_FAILED
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (!rc && at == MAP_FAILED) rc = errno;
    close(fd);
    if (rc)
        return bt_fail_errno(err, BT_IO, rc, "cannot allocate %.1f MiB for '%s'",
                             (double)bytes / 1048576, s->path);
    s->at = at;
    return BT_OK;
}

bt_code ckpt_pair_take(memory_pair *p, const bt_memory_id *begun_from, bt_err *err) {
    for (int i = 0; i < 2; i++) BT_TRY(ckpt_segment_take(&p->seg[i], p->bytes, err));
    const memory_head *h = (const memory_head *)p->seg[0].at;
    p->next = begun_from && h->self_hash != 0 && h->attempt == begun_from->attempt &&
                      h->number == begun_from->number
                  ? 1
                  : 0;
    return BT_OK;
}

void ckpt_pair_close(memory_pair *p) {
    for (int i = 0; i < 2; i++) {
        if (p->seg[i].at) munmap(p->seg[i].at, p->bytes);
        p->seg[i].at = NULL;
    }
}

void ckpt_pair_remove(memory_pair *p) {
    for (int i = 0; i < 2; i++)
        if (p->seg[i].made) unlink(p->seg[i].path);
}
