/* compress.h - compresses a response with gzip for clients that accept it. Threads: any. */
#ifndef BT_WEB_HTTP_COMPRESS_H
#define BT_WEB_HTTP_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Smaller responses are not compressed, because the headers would cost more than is saved. */
enum { BT_GZIP_FROM_BYTES = 1024 };

/* Compresses data; the caller frees *out. Returns false if the result would not be shorter, or if out of memory;
 * then the plain bytes are sent. About 10 ms per MiB of JSON. */
bool bt_http_gzip(const void *data, size_t n, void **out, size_t *out_n);

#endif
