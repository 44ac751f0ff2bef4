/* compress.h - an answer as gzip, for a client that takes it. Threads: any. */
#ifndef BT_WEB_HTTP_COMPRESS_H
#define BT_WEB_HTTP_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>

/* below this the headers weigh more than what is saved */
enum { BT_GZIP_FROM_BYTES = 1024 };

/* *out is freed by the caller. False: it would not be shorter, or there is no memory; then the plain
 * bytes are sent. About 10 ms a MiB of JSON. */
bool bt_http_gzip(const void *data, size_t n, void **out, size_t *out_n);

#endif
