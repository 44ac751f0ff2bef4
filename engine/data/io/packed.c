/* packed.c - compresses a file with zstd and encodes it in base64 (RFC 4648, with padding), and the reverse. */
#include "engine/data/io/packed.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { LEVEL = 6 };

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put_base64(bt_text *out, const unsigned char *b, size_t n) {
    for (size_t i = 0; i < n; i += 3) {
        const unsigned v = (unsigned)b[i] << 16 | (i + 1 < n ? (unsigned)b[i + 1] << 8 : 0) |
                           (i + 2 < n ? b[i + 2] : 0u);
        const char four[4] = {letters[v >> 18], letters[v >> 12 & 63],
                              i + 1 < n ? letters[v >> 6 & 63] : '=',
                              i + 2 < n ? letters[v & 63] : '='};
        bt_text_putn(out, four, 4);
    }
}

/* Returns the number of bytes written; SIZE_MAX: not base64. */
static size_t get_base64(unsigned char *out, const char *s, size_t n) {
    size_t k = 0;
    if (n % 4 != 0) return SIZE_MAX;
    for (size_t i = 0; i < n; i += 4) {
        unsigned v = 0;
        const size_t pads = i + 4 < n ? 0 : s[n - 2] == '=' ? 2 : s[n - 1] == '=';
        for (size_t j = 0; j < 4; j++) {
            const char *at = s[i + j] ? strchr(letters, s[i + j]) : NULL;
            if (!at && j < 4 - pads) return SIZE_MAX;
            v = v << 6 | (at && j < 4 - pads ? (unsigned)(at - letters) : 0);
        }
        for (size_t j = 0; j < 3 - pads; j++) out[k++] = (unsigned char)(v >> (16 - 8 * j));
    }
    return k;
}

bt_code bt_packed_put(bt_text *out, const char *data, size_t n, bt_err *err) {
    const size_t room = ZSTD_compressBound(n);
    unsigned char *small = malloc(room);
    if (!small) return bt_fail(err, BT_NOMEM, "cannot allocate memory to pack %zu bytes", n);
    const size_t k = ZSTD_compress(small, room, data, n, LEVEL);
    if (!ZSTD_isError(k)) put_base64(out, small, k);
    free(small);
    return ZSTD_isError(k) || out->failed
               ? bt_fail(err, BT_NOMEM, "cannot allocate memory to pack %zu bytes", n)
               : BT_OK;
}

bt_code bt_packed_get(bt_text *out, const char *packed, size_t most, bt_err *err) {
    const size_t n = strlen(packed);
    unsigned char *small = malloc(n + 1);
    char *data = NULL;
    bt_code code = small ? BT_OK
                         : bt_fail(err, BT_NOMEM, "cannot allocate memory to unpack a file");
    const size_t k = small ? get_base64(small, packed, n) : SIZE_MAX;
    const unsigned long long size = k == SIZE_MAX ? ZSTD_CONTENTSIZE_ERROR
                                                  : ZSTD_getFrameContentSize(small, k);
    if (code == BT_OK &&
        (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > most))
        code = bt_fail(err, BT_FORMAT,
                       "a stored file is damaged: its base64 or zstd data are invalid");
    if (code == BT_OK) {
        data = malloc((size_t)size + 1);
        if (!data)
            code = bt_fail(err, BT_NOMEM, "cannot allocate memory to unpack %llu bytes", size);
    }
    if (code == BT_OK && ZSTD_decompress(data, (size_t)size, small, k) != (size_t)size)
        code = bt_fail(err, BT_FORMAT,
                       "a stored file is damaged: its base64 or zstd data are invalid");
    if (code == BT_OK) bt_text_putn(out, data, (size_t)size);
    if (code == BT_OK && out->failed)
        code = bt_fail(err, BT_NOMEM, "cannot allocate memory to unpack %llu bytes", size);
    free(data);
    free(small);
    return code;
}
