/* text_file.c - reads plain files and decompresses files with zlib or libzstd. */
#include "engine/data/io/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "engine/data/io/file_io.h"

enum { RAW = 1 << 18, GZIP_ONLY = 16 + MAX_WBITS, LONGEST_WINDOW = sizeof(size_t) > 4 ? 31 : 30 };

/* Result of decoding f->raw[begin..end): number of bytes written, and whether a gzip member or zstd frame has ended. */
typedef struct decoded {
    size_t n;
    bool ends;
} decoded;

typedef struct decoder {
    const char *ending, *what;
    bt_code (*open)(bt_text_file *f, bt_err *err);
    bt_code (*decode)(bt_text_file *f, void *buf, size_t n, decoded *out, bt_err *err);
    void (*close)(bt_text_file *f);
    bool padded; /* zero bytes may follow the last member, as tapes and object stores append them */
} decoder;

struct bt_text_file {
    const char *path;
    int fd;
    uint64_t taken;
    const decoder *how; /* NULL: plain */
    unsigned char *raw;
    size_t begin, end; /* raw bytes that are not decoded yet */
    bool eof;          /* the raw file has ended */
    bool between;
    bool ended;
    z_stream gzip;
    ZSTD_DStream *zstd;
    uint64_t window; /* decompression window that a zstd frame declares, in bytes */
};

static bt_code gzip_open(bt_text_file *f, bt_err *err) {
    if (inflateInit2(&f->gzip, GZIP_ONLY) == Z_OK) return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory to decompress '%s'", f->path);
}

static bt_code gzip_decode(bt_text_file *f, void *buf, size_t n, decoded *out, bt_err *err) {
    f->gzip.next_in = f->raw + f->begin;
    f->gzip.avail_in = (uInt)(f->end - f->begin);
    f->gzip.next_out = buf;
    f->gzip.avail_out = n > UINT_MAX ? UINT_MAX : (uInt)n;
    const uInt room = f->gzip.avail_out;
    const int rc = inflate(&f->gzip, Z_NO_FLUSH);
    f->begin = f->end - f->gzip.avail_in;
    *out = (decoded){room - f->gzip.avail_out, rc == Z_STREAM_END};
    if (rc == Z_STREAM_END) return inflateReset(&f->gzip) == Z_OK ? BT_OK : BT_FORMAT;
    if (rc == Z_OK || rc == Z_BUF_ERROR) return BT_OK;
    return bt_fail(err, BT_FORMAT, "'%s' is damaged or not a gzip file: %s", f->path,
                   f->gzip.msg ? f->gzip.msg : "the decoder gives no reason");
}

static void gzip_close(bt_text_file *f) { (void)inflateEnd(&f->gzip); }

/* Returns the decompression window in the frame header in s (RFC 8878, 3.1.1.1.2); `otherwise`: there is no header. */
static uint64_t zstd_window(const unsigned char *s, size_t n, uint64_t otherwise) {
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    if (n < 6 || memcmp(s, magic, sizeof magic) != 0 || (s[4] & 0x20)) return otherwise;
    const uint64_t base = (uint64_t)1 << (10 + (s[5] >> 3));
    return base + base / 8 * (s[5] & 7);
}

static bt_code zstd_open(bt_text_file *f, bt_err *err) {
    f->zstd = ZSTD_createDStream();
    /* Public dumps are compressed with --long=31; the library's default limit is 27. */
    if (f->zstd &&
        !ZSTD_isError(ZSTD_DCtx_setParameter(f->zstd, ZSTD_d_windowLogMax, LONGEST_WINDOW)))
        return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory to decompress '%s'", f->path);
}

static bt_code zstd_decode(bt_text_file *f, void *buf, size_t n, decoded *out, bt_err *err) {
    ZSTD_inBuffer in = {f->raw + f->begin, f->end - f->begin, 0};
    ZSTD_outBuffer to = {buf, n, 0};
    if (f->between) f->window = zstd_window(f->raw + f->begin, f->end - f->begin, f->window);
    const size_t rc = ZSTD_decompressStream(f->zstd, &to, &in);
    f->begin += in.pos;
    *out = (decoded){to.pos, rc == 0};
    if (!ZSTD_isError(rc)) return BT_OK;
    if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation ||
        ZSTD_getErrorCode(rc) == ZSTD_error_frameParameter_windowTooLarge)
        return bt_fail(err, BT_NOMEM,
                       "'%s' was compressed with a window of %.4g MiB (zstd --long), for which "
                       "memory is short: decompress it on another machine",
                       f->path, (double)f->window / 1048576);
    return bt_fail(err, BT_FORMAT, "'%s' is damaged or not a zstd file: %s", f->path,
                   ZSTD_getErrorName(rc));
}

static void zstd_close(bt_text_file *f) { (void)ZSTD_freeDStream(f->zstd); }

static const decoder decoders[] = {{".gz", "gzip", gzip_open, gzip_decode, gzip_close, true},
                                   {".zst", "zstd", zstd_open, zstd_decode, zstd_close, false}};

static const decoder *choose_decoder(const char *path) {
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        const size_t k = strlen(decoders[i].ending);
        if (n > k && strcmp(path + n - k, decoders[i].ending) == 0) return &decoders[i];
    }
    return NULL;
}

size_t bt_text_file_stem(const char *path) {
    const decoder *how = choose_decoder(path);
    return strlen(path) - (how ? strlen(how->ending) : 0);
}

static bt_code begin_decompression(bt_text_file *f, bt_err *err) {
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno,
                             "cannot open data '%s'", f->path);
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    const decoder *how = choose_decoder(f->path);
    if (!how) return BT_OK;
    f->between = true;
    f->raw = malloc(RAW);
    if (!f->raw)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to decompress '%s'", f->path);
    BT_TRY(how->open(f, err));
    f->how = how;
    return BT_OK;
}

bt_code bt_text_file_open(bt_text_file **out, const char *path, bt_err *err) {
    bt_text_file *f = *out = calloc(1, sizeof *f);
    if (!f) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    f->path = path;
    f->fd = -1;
    bt_code code = begin_decompression(f, err);
    if (code == BT_OK) return BT_OK;
    bt_text_file_close(f);
    *out = NULL;
    return code;
}

void bt_text_file_close(bt_text_file *f) {
    if (!f) return;
    if (f->how) f->how->close(f);
    if (f->fd >= 0) close(f->fd);
    free(f->raw);
    free(f);
}

uint64_t bt_text_file_consumed(const bt_text_file *f) { return f->taken; }

/* Reads more raw bytes if none are left. */
static bt_code read_raw_bytes(bt_text_file *f, bt_err *err) {
    size_t got;
    if (f->begin < f->end || f->eof) return BT_OK;
    BT_TRY(bt_file_pread(f->fd, f->path, f->raw, RAW, f->taken, &got, err));
    f->eof = got < RAW;
    f->begin = 0;
    f->end = got;
    f->taken += got;
    return BT_OK;
}

/* Skips zero bytes between the end of a member and the next member or the end of the file. */
static bt_code skip_padding(bt_text_file *f, bt_err *err) {
    while (f->begin < f->end && f->raw[f->begin] == 0) {
        f->begin++;
        BT_TRY(read_raw_bytes(f, err));
    }
    return BT_OK;
}

static bt_code read_compressed(bt_text_file *f, unsigned char *buf, size_t n, size_t *got,
                               bt_err *err) {
    *got = 0;
    while (*got < n) {
        decoded d;
        BT_TRY(read_raw_bytes(f, err));
        if (f->between && f->ended && f->how->padded) BT_TRY(skip_padding(f, err));
        const bool dry = f->begin == f->end && f->eof;
        if (dry && f->between && f->taken > 0) return BT_OK;
        const size_t before = f->begin;
        BT_TRY(f->how->decode(f, buf + *got, n - *got, &d, err));
        *got += d.n;
        if (f->begin > before || d.n > 0) f->between = d.ends;
        f->ended |= d.ends;
        if (dry && d.n == 0 && !d.ends)
            return bt_fail(err, BT_FORMAT,
                           "'%s' ends in the middle of its %s data: is it complete?", f->path,
                           f->how->what);
    }
    return BT_OK;
}

bt_code bt_text_file_read(bt_text_file *f, void *buf, size_t n, size_t *got, bt_err *err) {
    if (f->how) return read_compressed(f, buf, n, got, err);
    BT_TRY(bt_file_pread(f->fd, f->path, buf, n, f->taken, got, err));
    f->taken += *got;
    return BT_OK;
}
