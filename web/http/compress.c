/* compress.c - gzip through zlib. */
#include "web/http/compress.h"

#include <stdlib.h>
#include <zlib.h>

/* window bits of zlib's deflateInit2 for a gzip header around 32 KiB of window */
enum { GZIP = 15 + 16, LEVEL = 6, MEMORY = 8 };

bool bt_http_gzip(const void *data, size_t n, void **out, size_t *out_n) {
    z_stream z = {0};
    *out = NULL;
    if (n > (size_t)1 << 30 ||
        deflateInit2(&z, LEVEL, Z_DEFLATED, GZIP, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    unsigned char *to = malloc(n); /* a result longer than the plain bytes is useless */
    z.next_in = (Bytef *)(size_t)data;
    z.avail_in = (uInt)n;
    z.next_out = to;
    z.avail_out = (uInt)n;
    const bool whole = to && deflate(&z, Z_FINISH) == Z_STREAM_END;
    *out_n = z.total_out;
    deflateEnd(&z);
    if (whole)
        *out = to;
    else
        free(to);
    return whole;
}
