/* section_file.c - writes a data file after reserving its space, reads it back, opens it, and verifies every byte. */
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/system/reserve.h"
#include "engine/ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ckpt_file_name(char *out, size_t size, int rank, uint64_t generation) {
    snprintf(out, size, "data-%05d-%016llx.btck", rank, (unsigned long long)generation);
}

bool ckpt_file_name_ok(const char *name) {
    int rank = -1;
    unsigned long long generation = 0;
    char again[CKPT_FILE_NAME_MAX];
    if (sscanf(name, "data-%7d-%16llx.btck", &rank, &generation) != 2 || rank < 0) return false;
    ckpt_file_name(again, sizeof again, rank, generation);
    return strcmp(again, name) == 0;
}

static uint64_t checksum_before_seal(const void *s, size_t bytes) {
    return XXH3_64bits(s, bytes - sizeof(uint64_t));
}

uint64_t ckpt_span(uint64_t count, uint32_t width, uint32_t stride) {
    if (width == 0) return stride == 0 ? count : 0;
    if (count == 0 || width > stride || count % width != 0 ||
        count / width - 1 > (UINT64_MAX - width) / stride)
        return 0;
    return (count / width - 1) * stride + width;
}

/* Returns the number of elements per section: whole rows of a block. */
static uint64_t section_elems(const bt_ckpt_slice *s) {
    if (s->width == 0) return CKPT_SECTION_ELEMS;
    return CKPT_SECTION_ELEMS / s->width > 0 ? CKPT_SECTION_ELEMS / s->width * s->width : s->width;
}

size_t bt_ckpt_type_bytes(bt_ckpt_type t) {
    static const size_t bytes[BT_CKPT_TYPES] = {[BT_CKPT_F32] = 4,
                                                [BT_CKPT_BF16] = 2,
                                                [BT_CKPT_U8] = 1,
                                                [BT_CKPT_LOG8] = 1,
                                                [BT_CKPT_ULOG8] = 1};
    return bytes[t];
}

bt_ckpt_type bt_ckpt_type_of(bt_moment_form form) {
    static const bt_ckpt_type types[BT_MOMENT_FORMS] = {[BT_MOMENT_F32] = BT_CKPT_F32,
                                                        [BT_MOMENT_BF16] = BT_CKPT_BF16,
                                                        [BT_MOMENT_LOG8] = BT_CKPT_LOG8,
                                                        [BT_MOMENT_ULOG8] = BT_CKPT_ULOG8};
    return types[form];
}

bool ckpt_form_of(uint32_t type, bt_moment_form *form) {
    for (int f = 0; f < BT_MOMENT_FORMS; f++)
        if (bt_ckpt_type_of((bt_moment_form)f) == (bt_ckpt_type)type) {
            *form = (bt_moment_form)f;
            return true;
        }
    return false;
}

static uint64_t count_file_sections(const bt_ckpt_slice *slices, size_t n, uint64_t *data_bytes) {
    uint64_t sections = 0;
    *data_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        sections += (slices[i].count + section_elems(&slices[i]) - 1) / section_elems(&slices[i]);
        *data_bytes += slices[i].count * bt_ckpt_type_bytes(slices[i].type);
    }
    return sections;
}

static bt_code check_slice(const bt_ckpt_job *job, const bt_ckpt_slice *s, bt_err *err) {
    section_head h;
    if (strlen(s->tensor) >= sizeof h.tensor || strlen(s->state) >= sizeof h.state)
        return bt_fail(err, BT_ARG, "tensor name '%s' or state '%s' is too long for a checkpoint",
                       s->tensor, s->state);
    uint64_t span = ckpt_span(s->count, s->width, s->stride);
    if (!s->data && s->count > 0 && (!job->produce || s->width))
        return bt_fail(err, BT_ARG, "slice of '%s' has no data", s->tensor);
    if (s->first > s->tensor_elems || (span == 0) != (s->count == 0) ||
        span > s->tensor_elems - s->first || s->tensor_elems > SIZE_MAX / sizeof(float))
        return bt_fail(err, BT_ARG, "slice %llu+%llu of '%s' exceeds its %llu elements",
                       (unsigned long long)s->first, (unsigned long long)s->count, s->tensor,
                       (unsigned long long)s->tensor_elems);
    return BT_OK;
}

typedef struct out_file {
    int fd;
    const char *path;
    uint64_t at;
    XXH3_state_t *hash;
    unsigned char *made; /* buffer for a section that the caller produces; allocated on first use */
} out_file;

static bt_code write_out_bytes(out_file *o, const void *data, size_t n, bt_err *err) {
    BT_TRY(ckpt_write_all(o->fd, data, n, o->at, o->path, err));
    XXH3_128bits_update(o->hash, data, n);
    o->at += n;
    return BT_OK;
}

static bt_code section_data(out_file *o, const bt_ckpt_job *job, const bt_ckpt_slice *s,
                            uint64_t done, uint64_t count, const unsigned char **data,
                            bt_err *err) {
    *data = s->data;
    if (s->data) *data += done * bt_ckpt_type_bytes(s->type);
    if (s->data) return BT_OK;
    // NOLINTNEXTLINE(clang-analyzer-unix.MallocSizeof): n floats as bytes
    if (!o->made && !(o->made = malloc(CKPT_SECTION_ELEMS * sizeof(float))))
        return bt_fail(err, BT_NOMEM, "cannot allocate the buffer to write '%s'", o->path);
    *data = o->made;
    return job->produce(job->produce_ctx, s, s->first + done, count, o->made, err);
}

static bt_code write_sections(out_file *o, const bt_ckpt_job *job, uint64_t *index, bt_err *err) {
    size_t at = 0;
    for (size_t i = 0; i < job->n; i++) {
        const bt_ckpt_slice *s = &job->slices[i];
        const size_t elem = bt_ckpt_type_bytes(s->type);
        for (uint64_t done = 0, most = section_elems(s); done < s->count; done += most) {
            section_head h;
            memset(&h, 0, sizeof h);
            h.magic = CKPT_SECTION_MAGIC;
            h.elem_bytes = (uint16_t)elem;
            h.type = (uint16_t)s->type;
            const unsigned char *data;
            memcpy(h.tensor, s->tensor, strlen(s->tensor));
            memcpy(h.state, s->state, strlen(s->state));
            h.tensor_elems = s->tensor_elems;
            h.first = s->first + (s->width ? done / s->width * s->stride : done);
            h.count = s->count - done < most ? s->count - done : most;
            h.width = s->width;
            h.stride = s->stride;
            BT_TRY(section_data(o, job, s, done, h.count, &data, err));
            h.data_hash = XXH3_64bits(data, h.count * elem);
            h.self_hash = checksum_before_seal(&h, sizeof h);
            index[at++] = o->at;
            BT_TRY(write_out_bytes(o, &h, sizeof h, err));
            BT_TRY(write_out_bytes(o, data, h.count * elem, err));
        }
    }
    return BT_OK;
}

static void hex128(char out[33], XXH128_hash_t h) {
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static bt_code write_body(out_file *o, ckpt_file *f, uint64_t generation, const bt_ckpt_job *job,
                          uint64_t *index, bt_err *err) {
    file_head head;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, CKPT_FILE_MAGIC, 8);
    head.version = CKPT_VERSION;
    head.rank = (uint32_t)f->rank;
    head.generation = generation;
    head.n_sections = f->n_sections;
    head.file_bytes = f->bytes;
    head.step = job->meta->step;
    head.self_hash = checksum_before_seal(&head, sizeof head);
    BT_TRY(write_out_bytes(o, &head, sizeof head, err));
    BT_TRY(write_sections(o, job, index, err));
    file_foot foot;
    memset(&foot, 0, sizeof foot);
    memcpy(foot.magic, CKPT_FOOT_MAGIC, 8);
    foot.file_bytes = f->bytes;
    foot.index_offset = o->at;
    foot.n_sections = f->n_sections;
    foot.index_hash = XXH3_64bits(index, f->n_sections * sizeof *index);
    foot.self_hash = checksum_before_seal(&foot, sizeof foot);
    BT_TRY(write_out_bytes(o, index, f->n_sections * sizeof *index, err));
    BT_TRY(write_out_bytes(o, &foot, sizeof foot, err));
    hex128(f->hash, XXH3_128bits_digest(o->hash));
    return BT_OK;
}

bt_code ckpt_file_write(const char *folder, ckpt_file *f, uint64_t generation,
                        const bt_ckpt_job *job, bt_err *err) {
    char tmp[PATH_MAX], path[PATH_MAX];
    ckpt_file_name(f->name, sizeof f->name, f->rank, generation);
    if (snprintf(path, sizeof path, "%s/%s", folder, f->name) >= (int)sizeof path - 4)
        return bt_fail(err, BT_ARG, "path '%s' is too long", folder);
    snprintf(tmp, sizeof tmp, "%s/%s.tmp", folder, f->name);
    for (size_t i = 0; i < job->n; i++) BT_TRY(check_slice(job, &job->slices[i], err));
    uint64_t data_bytes;
    f->n_sections = count_file_sections(job->slices, job->n, &data_bytes);
    f->bytes = sizeof(file_head) + f->n_sections * (sizeof(section_head) + 8) + data_bytes +
               sizeof(file_foot);

    bt_code code = BT_OK;
    uint64_t *index = calloc(f->n_sections + 1, sizeof *index);
    XXH3_state_t *hash = XXH3_createState();
    int fd = -1;
    if (!index || !hash) {
        code = bt_fail(err, BT_NOMEM, "cannot allocate the index of '%s'", path);
        goto done;
    }
    XXH3_128bits_reset(hash);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        code = bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", tmp);
        goto done;
    }
    /* detects a full disk before any data are written */
    int e = bt_file_reserve(fd, f->bytes);
    if (e != 0 && e != EOPNOTSUPP && e != EINVAL) {
        code = bt_fail_errno(err, BT_IO, e, "cannot reserve %llu bytes for '%s'",
                             (unsigned long long)f->bytes, tmp);
        goto done;
    }
    out_file o = {fd, tmp, 0, hash, NULL};
    code = write_body(&o, f, generation, job, index, err);
    free(o.made);
    /* after a failed fsync the page cache is unreliable, so the file is discarded, not retried */
    if (code == BT_OK && fsync(fd) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot sync '%s'", tmp);
    int rc = close(fd);
    fd = -1;
    if (code == BT_OK && rc != 0) code = bt_fail_errno(err, BT_IO, errno, "cannot close '%s'", tmp);
    if (code == BT_OK && rename(tmp, path) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot rename '%s'", tmp);
    if (code == BT_OK) {
        code = ckpt_sync_folder(folder, err);
        if (code == BT_OK) code = ckpt_file_verify(folder, f, generation, job->meta->step, err);
        if (code != BT_OK) unlink(path);
    }
done:
    if (fd >= 0) close(fd);
    if (code != BT_OK) unlink(tmp);
    XXH3_freeState(hash);
    free(index);
    return code;
}

static bt_code read_section_file_head(int fd, const char *path, const ckpt_file *f,
                                      uint64_t generation, int64_t step, bt_err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return bt_fail_errno(err, BT_IO, errno, "cannot stat '%s'", path);
    if (!S_ISREG(st.st_mode)) return bt_fail(err, BT_FORMAT, "'%s' is not a regular file", path);
    if ((uint64_t)st.st_size != f->bytes)
        return bt_fail(err, BT_FORMAT, "'%s' has %lld bytes, but the manifest lists %llu (%s)",
                       path, (long long)st.st_size, (unsigned long long)f->bytes,
                       (uint64_t)st.st_size < f->bytes ? "truncated" : "other data were appended");
    if (f->bytes < sizeof(file_head) + sizeof(file_foot))
        return bt_fail(err, BT_FORMAT, "'%s' is too short for a checkpoint file", path);
    file_head h;
    BT_TRY(ckpt_read_all(fd, &h, sizeof h, 0, path, err));
    if (memcmp(h.magic, CKPT_FILE_MAGIC, 8) != 0)
        return bt_fail(err, BT_FORMAT, "'%s' is not a checkpoint file (wrong magic at byte 0)",
                       path);
    if (h.self_hash != checksum_before_seal(&h, sizeof h))
        return bt_fail(err, BT_FORMAT, "'%s': bytes 0..63 (head) are damaged", path);
    if (h.version < 1 || h.version > CKPT_VERSION)
        return bt_fail(err, BT_FORMAT,
                       "'%s' has version %u, but this program reads only versions 1 to %d", path,
                       h.version, CKPT_VERSION);
    if (h.generation != generation || h.step != step || h.rank != (uint32_t)f->rank)
        return bt_fail(err, BT_FORMAT,
                       "'%s' belongs to another save (generation %016llx step %lld rank %u, "
                       "expected %016llx step %lld rank %d)",
                       path, (unsigned long long)h.generation, (long long)h.step, h.rank,
                       (unsigned long long)generation, (long long)step, f->rank);
    if (h.n_sections != f->n_sections || h.file_bytes != f->bytes)
        return bt_fail(err, BT_FORMAT,
                       "'%s': head and manifest disagree about %llu sections or %llu bytes", path,
                       (unsigned long long)f->n_sections, (unsigned long long)f->bytes);
    return BT_OK;
}

static bt_code read_section_index(int fd, const char *path, const ckpt_file *f, uint64_t **index,
                                  uint64_t *index_offset, bt_err *err) {
    file_foot foot;
    BT_TRY(ckpt_read_all(fd, &foot, sizeof foot, f->bytes - sizeof foot, path, err));
    if (memcmp(foot.magic, CKPT_FOOT_MAGIC, 8) != 0 ||
        foot.self_hash != checksum_before_seal(&foot, sizeof foot))
        return bt_fail(err, BT_FORMAT, "'%s': the last 48 bytes (foot) are damaged", path);
    uint64_t room = f->bytes - sizeof(file_head) - sizeof foot;
    if (foot.n_sections != f->n_sections || foot.n_sections > room / (sizeof(section_head) + 8) ||
        foot.file_bytes != f->bytes ||
        foot.index_offset != f->bytes - sizeof foot - foot.n_sections * 8)
        return bt_fail(err, BT_FORMAT, "'%s': the last 48 bytes (foot) do not describe this file",
                       path);
    *index = malloc(foot.n_sections * 8 + 8);
    if (!*index) return bt_fail(err, BT_NOMEM, "cannot allocate the index of '%s'", path);
    BT_TRY(ckpt_read_all(fd, *index, foot.n_sections * 8, foot.index_offset, path, err));
    if (XXH3_64bits(*index, foot.n_sections * 8) != foot.index_hash)
        return bt_fail(err, BT_FORMAT, "'%s': bytes %llu..%llu (index) are damaged", path,
                       (unsigned long long)foot.index_offset,
                       (unsigned long long)(f->bytes - sizeof foot - 1));
    *index_offset = foot.index_offset;
    return BT_OK;
}

bool ckpt_section_possible(const section_head *h, uint64_t room) {
    const uint64_t span = ckpt_span(h->count, h->width, h->stride);
    return h->type < BT_CKPT_TYPES && h->elem_bytes == bt_ckpt_type_bytes(h->type) &&
           h->count <= CKPT_SECTION_ELEMS && h->count * h->elem_bytes <= room &&
           h->first <= h->tensor_elems && span <= h->tensor_elems - h->first &&
           (h->count == 0 || span > 0) && h->width <= h->stride &&
           !h->tensor[sizeof h->tensor - 1] && !h->state[sizeof h->state - 1];
}

static bt_code read_sections(int fd, const char *path, const ckpt_file *f, const uint64_t *index,
                             uint64_t index_offset, ckpt_section *out, bt_err *err) {
    uint64_t expected = sizeof(file_head); /* sections are contiguous */
    for (uint64_t i = 0; i < f->n_sections; i++) {
        section_head *h = &out[i].head;
        if (index[i] != expected || index_offset - index[i] < sizeof *h)
            return bt_fail(err, BT_FORMAT,
                           "'%s': section %llu does not begin at byte %llu, where it should", path,
                           (unsigned long long)i, (unsigned long long)expected);
        BT_TRY(ckpt_read_all(fd, h, sizeof *h, index[i], path, err));
        if (h->magic != CKPT_SECTION_MAGIC || h->self_hash != checksum_before_seal(h, sizeof *h))
            return bt_fail(err, BT_FORMAT,
                           "'%s': bytes %llu..%llu (head of section %llu) are damaged", path,
                           (unsigned long long)index[i],
                           (unsigned long long)(index[i] + sizeof *h - 1), (unsigned long long)i);
        out[i].data_offset = index[i] + sizeof *h;
        if (!ckpt_section_possible(h, index_offset - out[i].data_offset))
            return bt_fail(err, BT_FORMAT, "'%s': section %llu describes an impossible slice", path,
                           (unsigned long long)i);
        expected = out[i].data_offset + h->count * h->elem_bytes;
    }
    if (expected != index_offset)
        return bt_fail(err, BT_FORMAT,
                       "'%s': the sections end at byte %llu, but the index begins at byte %llu",
                       path, (unsigned long long)expected, (unsigned long long)index_offset);
    return BT_OK;
}

bt_code ckpt_file_open(const char *folder, const ckpt_file *f, uint64_t generation, int64_t step,
                       int *fd_out, ckpt_section **sections, bt_err *err) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, f->name) >= (int)sizeof path)
        return bt_fail(err, BT_ARG, "path '%s' is too long", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return bt_fail_errno(err, errno == ENOENT || errno == ELOOP ? BT_FORMAT : BT_IO, errno,
                             "cannot open '%s'", path);
    uint64_t *index = NULL, index_offset = 0;
    ckpt_section *list = NULL;
    bt_code code = read_section_file_head(fd, path, f, generation, step, err);
    if (code == BT_OK) code = read_section_index(fd, path, f, &index, &index_offset, err);
    if (code == BT_OK && sections) {
        list = calloc(f->n_sections + 1, sizeof *list);
        code = list ? read_sections(fd, path, f, index, index_offset, list, err)
                    : bt_fail(err, BT_NOMEM, "cannot allocate the sections of '%s'", path);
    }
    free(index);
    if (code == BT_OK && sections)
        *sections = list;
    else
        free(list);
    if (code == BT_OK && fd_out)
        *fd_out = fd;
    else
        close(fd);
    return code;
}

enum { VERIFY_BYTES = 1 << 20 };

static bt_code find_damaged_section(int fd, const char *path, const ckpt_file *f,
                                    const ckpt_section *sections, unsigned char *buf, bt_err *err) {
    XXH3_state_t *hash = XXH3_createState();
    if (!hash) return bt_fail(err, BT_NOMEM, "cannot allocate a hash state");
    bt_code code = BT_OK;
    for (uint64_t i = 0; i < f->n_sections && code == BT_OK; i++) {
        const ckpt_section *s = &sections[i];
        uint64_t bytes = s->head.count * s->head.elem_bytes, hole = 0, hole_at = 0;
        XXH3_64bits_reset(hash);
        for (uint64_t at = 0; at < bytes && code == BT_OK;) {
            size_t k = bytes - at < VERIFY_BYTES ? (size_t)(bytes - at) : VERIFY_BYTES;
            code = ckpt_read_all(fd, buf, k, s->data_offset + at, path, err);
            if (code != BT_OK) break;
            XXH3_64bits_update(hash, buf, k);
            for (size_t b = 0; b + 4096 <= k && !hole; b += 4096) {
                size_t z = 0;
                while (z < 4096 && buf[b + z] == 0) z++;
                if (z == 4096) hole = 4096, hole_at = s->data_offset + at + b;
            }
            at += k;
        }
        uint64_t found = XXH3_64bits_digest(hash);
        if (code == BT_OK && found != s->head.data_hash) {
            char cause[64] = "bits changed";
            if (hole)
                snprintf(cause, sizeof cause, "perhaps the zeros from byte %llu",
                         (unsigned long long)hole_at);
            code = bt_fail(
                err, BT_FORMAT,
                "'%s': bytes %llu..%llu ('%s' %s) have the hash %016llx instead of %016llx (%s)",
                path, (unsigned long long)s->data_offset,
                (unsigned long long)(s->data_offset + bytes - 1), s->head.tensor, s->head.state,
                (unsigned long long)found, (unsigned long long)s->head.data_hash, cause);
        }
    }
    XXH3_freeState(hash);
    return code;
}

bt_code ckpt_file_verify(const char *folder, const ckpt_file *f, uint64_t generation, int64_t step,
                         bt_err *err) {
    return ckpt_file_read_whole(folder, f, generation, step, &(ckpt_reading){0}, err);
}

bt_code ckpt_file_read_whole(const char *folder, const ckpt_file *f, uint64_t generation,
                             int64_t step, const ckpt_reading *how, bt_err *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, f->name);
    int fd = -1;
    ckpt_section *sections = NULL;
    BT_TRY(ckpt_file_open(folder, f, generation, step, &fd, &sections, err));
    bt_code code = BT_OK;
    unsigned char *buf = malloc(VERIFY_BYTES);
    XXH3_state_t *hash = XXH3_createState();
    if (!buf || !hash) {
        code = bt_fail(err, BT_NOMEM, "cannot allocate the buffer to verify '%s'", path);
        goto done;
    }
    XXH3_128bits_reset(hash);
    if (how->from_disk) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    int64_t before = bt_thread_cpu_ns();
    for (uint64_t at = 0; at < f->bytes;) {
        if (how->stop && atomic_load(how->stop)) {
            code = bt_fail(err, BT_STOPPED,
                           "'%s' was not read completely, because a stop was requested", path);
            goto done;
        }
        size_t k = f->bytes - at < VERIFY_BYTES ? (size_t)(f->bytes - at) : VERIFY_BYTES;
        code = ckpt_read_all(fd, buf, k, at, path, err);
        if (code != BT_OK) goto done;
        XXH3_128bits_update(hash, buf, k);
        at += k;
        const int64_t now = bt_thread_cpu_ns();
        if (how->share > 0) bt_sleep_ns((int64_t)((double)(now - before) * (1 / how->share - 1)));
        before = bt_thread_cpu_ns();
    }
    char found[33];
    hex128(found, XXH3_128bits_digest(hash));
    if (strcmp(found, f->hash) != 0) {
        code = find_damaged_section(fd, path, f, sections, buf, err);
        if (code == BT_OK)
            code = bt_fail(err, BT_FORMAT, "'%s' has the hash %s, but the manifest lists %s", path,
                           found, f->hash);
    }
done:
    close(fd);
    XXH3_freeState(hash);
    free(buf);
    free(sections);
    return code;
}
