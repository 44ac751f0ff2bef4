/* wire_frame.h - frame headers, private to both ends of wire.h. */
#ifndef BT_STORE_RECORD_WIRE_FRAME_H
#define BT_STORE_RECORD_WIRE_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "engine/base/status.h"
#include "store/record/record.h"

/* "btW2" */
enum { BT_FRAME_MAGIC = 0x62745732, BT_FRAME_MAX = 16 << 20 };
/* Kinds below BT_REC_COUNT are records. HELLO is the first frame and identifies the tables; BYE ends the connection
 * in order. */
enum { BT_FRAME_HELLO = 100, BT_FRAME_BYE, BT_FRAME_CONTROL };

typedef struct bt_frame {
    uint32_t magic, attempt;
    bt_record_head head;
} bt_frame;
typedef struct bt_hello_frame {
    bt_frame frame;
    uint64_t mark; /* bt_record_mark */
} bt_hello_frame;
typedef struct bt_control_frame { /* followed by text_bytes of text, without a NUL */
    bt_frame frame;
    uint32_t verb, text_bytes;
    double value;
} bt_control_frame;

static inline bt_frame bt_frame_of(uint32_t kind, uint32_t attempt, size_t bytes) {
    return (bt_frame){BT_FRAME_MAGIC, attempt, {.kind = kind, .bytes = (uint32_t)bytes}};
}

bt_code bt_wire_address(struct sockaddr_un *out, const char *socket_path, bt_err *err)
    BT_MUST_CHECK;

#endif
