/* ring.c - appends records to a mapped ring buffer, and reads the ring of a dead writer. */
#include "store/record/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/os/file_system.h"
#include "engine/base/system/reserve.h"
#include "store/sql/sql.h"

/* "btR2" */
enum { MAGIC = 0x62745232, HEADER_BYTES = 4096, LEAST_BYTES = 64 << 10 };

typedef struct header {
    uint32_t magic, attempt;
    uint64_t bytes;              /* size of the circle */
    uint64_t mark;               /* bt_record_mark of the writer */
    _Atomic uint64_t tail, head; /* position of the oldest record; end of the newest one */
} header;

/* head.kind 0: the rest of the circle is unused */
typedef struct entry {
    bt_record_head head;
    uint64_t sum;
} entry;

struct bt_ring {
    int fd; /* locked as long as this writer lives */
    header *map;
    unsigned char *circle;
    size_t bytes;
};

static size_t pad_to_8(size_t n) { return n + (-n & 7); }

static uint64_t mix_checksum(uint64_t h, uint64_t w) {
    h = (h ^ w) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

/* FNV-1a over words, to detect damage, not manipulation. */
static uint64_t entry_checksum(const entry *e, const unsigned char *data) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const bt_record_head *r = &e->head;
    const uint64_t head[] = {r->kind | (uint64_t)r->bytes << 32, (uint64_t)r->step,
                             r->rows | (uint64_t)r->rank_rows << 32};
    for (size_t i = 0; i < 3; i++) h = mix_checksum(h, head[i]);
    for (size_t i = 0; i < pad_to_8(r->bytes); i += 8) {
        uint64_t w = 0;
        memcpy(&w, data + i, r->bytes - i < 8 ? r->bytes - i : 8);
        h = mix_checksum(h, w);
    }
    return h;
}

static size_t entry_span(const entry *e) { return sizeof *e + pad_to_8(e->head.bytes); }

static bt_code open_ring_file(const char *path, size_t all, int *fd, bt_err *err) {
    long kind;
    unlink(path); /* another process may still read the old file, so it is not overwritten */
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (*fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", path);
    char folder[BT_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash && slash > folder) *slash = '\0';
    const char *far = bt_file_system_of_path(path, &kind) ? bt_fs_fault(slash ? folder : ".", kind)
                                                          : NULL;
    if (far) return bt_fail(err, BT_UNSUPPORTED, "'%s' lies on %s", path, far);
    /* Reserves space, because a full disk would otherwise raise SIGBUS in a step. */
    int rc = bt_file_reserve(*fd, all);
    return rc == 0 ? BT_OK
                   : bt_fail_errno(err, BT_IO, rc, "cannot take %zu bytes for '%s'", all, path);
}

bt_code bt_ring_create(bt_ring **out, const char *path, int attempt, size_t bytes, bt_err *err) {
    *out = NULL;
    bytes = pad_to_8(bytes < LEAST_BYTES ? LEAST_BYTES : bytes);
    size_t all = HEADER_BYTES + bytes;
    int fd = -1;
    bt_ring *r = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot keep records in '%s': out of memory", path);
    bt_code code = open_ring_file(path, all, &fd, err);
    void *map = code == BT_OK ? mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                              : MAP_FAILED;
    if (code == BT_OK && map == MAP_FAILED)
        code = bt_fail_errno(err, BT_IO, errno, "cannot map '%s'", path);
    if (code != BT_OK) {
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        free(r);
        return code;
    }
    flock(fd, LOCK_EX | LOCK_NB); /* no other process has opened the file yet */
    r->fd = fd;
    r->map = map;
    r->circle = (unsigned char *)map + HEADER_BYTES;
    r->bytes = bytes;
    r->map->attempt = (uint32_t)attempt;
    r->map->bytes = bytes;
    r->map->mark = bt_record_mark();
    atomic_thread_fence(memory_order_release);
    r->map->magic = MAGIC;
    *out = r;
    return BT_OK;
}

/* Copies the entry at a position, because sizes in the file are not trusted. */
static entry copy_ring_entry(const unsigned char *circle, size_t bytes, uint64_t at) {
    entry e = {.sum = 0};
    if (bytes - at % bytes >= sizeof e) memcpy(&e, circle + at % bytes, sizeof e);
    return e;
}

static uint64_t position_after(const unsigned char *circle, size_t bytes, uint64_t at) {
    entry e = copy_ring_entry(circle, bytes, at);
    return e.head.kind ? at + entry_span(&e) : at + (bytes - at % bytes);
}

void bt_ring_append(bt_ring *r, const bt_record *rec) {
    if (!r || !rec || sizeof(entry) + pad_to_8(rec->head.bytes) > r->bytes / 8) return;
    header *h = r->map;
    entry e = {.head = rec->head};
    uint64_t head = atomic_load_explicit(&h->head, memory_order_relaxed),
             tail = atomic_load_explicit(&h->tail, memory_order_relaxed);
    size_t rest = r->bytes - head % r->bytes, need = entry_span(&e);
    bool skip = rest < need;
    uint64_t end = head + (skip ? rest : 0) + need;
    while (end - tail > r->bytes) tail = position_after(r->circle, r->bytes, tail);
    atomic_store_explicit(&h->tail, tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (skip && rest >= sizeof e) memset(r->circle + head % r->bytes, 0, sizeof e);
    unsigned char *to = r->circle + (end - need) % r->bytes;
    e.sum = entry_checksum(&e, rec->data);
    memcpy(to + sizeof e, rec->data, rec->head.bytes);
    memcpy(to, &e, sizeof e);
    atomic_store_explicit(&h->head, end, memory_order_release);
}

void bt_ring_close(bt_ring *r) {
    if (!r) return;
    munmap(r->map, HEADER_BYTES + r->bytes);
    close(r->fd);
    free(r);
}

bool bt_ring_left(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool left = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0) close(fd);
    return left;
}

static bt_code read_ring_file(const char *path, unsigned char **out, size_t *n, bt_err *err) {
    struct stat st;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? bt_fail(err, BT_NOTFOUND, "no '%s'", path)
                               : bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
    bt_code code = BT_OK;
    if (fstat(fd, &st) != 0 || st.st_size < HEADER_BYTES + LEAST_BYTES || st.st_size > 1 << 30)
        code = bt_fail(err, BT_FORMAT, "'%s' is not a ring of records", path);
    *n = 0;
    if (code == BT_OK && !(*out = malloc((size_t)st.st_size)))
        code = bt_fail(err, BT_NOMEM, "cannot read '%s': out of memory", path);
    while (code == BT_OK && *n < (size_t)st.st_size) {
        ssize_t k = read(fd, *out + *n, (size_t)st.st_size - *n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            code = bt_fail(err, BT_IO, "cannot read '%s'", path);
        else
            *n += (size_t)k;
    }
    close(fd);
    return code;
}

static bt_record *copy_ring_record(const entry *e, const unsigned char *data) {
    bt_record *r = bt_record_empty(&e->head);
    if (r) memcpy(r->data, data, e->head.bytes);
    return r;
}

/* Stops at the first incomplete record, because no record follows it. */
static bt_record *walk_ring_entries(const unsigned char *circle, size_t bytes, uint64_t tail,
                                    uint64_t head) {
    bt_record *list = NULL, **at = &list;
    while (tail < head) {
        entry e = copy_ring_entry(circle, bytes, tail);
        if (e.head.kind) {
            size_t from = tail % bytes + sizeof e;
            if (e.head.bytes > bytes || pad_to_8(e.head.bytes) > bytes - from ||
                entry_checksum(&e, circle + from) != e.sum)
                break;
            *at = copy_ring_record(&e, circle + from);
            if (!*at) break;
            at = &(*at)->next;
        }
        tail = position_after(circle, bytes, tail);
    }
    return list;
}

bt_code bt_ring_read(const char *path, int *attempt, bt_record **list, bt_err *err) {
    unsigned char *all = NULL;
    size_t n = 0;
    header h;
    *list = NULL;
    bt_code code = read_ring_file(path, &all, &n, err);
    if (code == BT_OK) {
        memcpy(&h, all, sizeof h);
        uint64_t head = atomic_load(&h.head), tail = atomic_load(&h.tail);
        if (h.magic != MAGIC || h.bytes != n - HEADER_BYTES || tail > head ||
            head - tail > h.bytes || tail % 8 || h.mark != bt_record_mark())
            code = bt_fail(err, BT_FORMAT, "'%s' is not a ring of records of this program", path);
        else {
            *attempt = (int)h.attempt;
            *list = walk_ring_entries(all + HEADER_BYTES, (size_t)h.bytes, tail, head);
        }
    }
    free(all);
    return code;
}
