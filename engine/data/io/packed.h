/* packed.h - a file as text that fits into JSON: compressed by zstd, in base64.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_IO_PACKED_H
#define BT_ENGINE_DATA_IO_PACKED_H

#include "engine/base/status.h"
#include "engine/base/text.h"

bt_code bt_packed_put(bt_text *out, const char *data, size_t n, bt_err *err) BT_MUST_CHECK;
/* Appends the file that a packed text contains. BT_FORMAT: damaged, or more than `most` bytes. */
bt_code bt_packed_get(bt_text *out, const char *packed, size_t most, bt_err *err) BT_MUST_CHECK;

#endif
