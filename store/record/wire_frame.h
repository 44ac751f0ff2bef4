/* wire_frame.h - private to the two ends of wire.h: the frame header and what it may say. */
#ifndef BT_STORE_RECORD_WIRE_FRAME_H
#define BT_STORE_RECORD_WIRE_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "engine/base/metric.h"
#include "engine/base/status.h"
#include "store/record/record.h"

/* "btW1" */
enum { BT_FRAME_MAGIC = 0x62745731, BT_FRAME_MAX = 16 << 20 };
/* kinds below BT_REC_COUNT are records; HELLO comes first and says whose metric table this is; BYE
 * ends in order */
enum { BT_FRAME_HELLO = 100, BT_FRAME_BYE, BT_FRAME_CONTROL };

typedef struct bt_frame {
    uint32_t magic, kind, attempt, bytes;
} bt_frame;
typedef struct bt_hello {
    uint32_t n_step, n_rank, n_layer, n_comm, n_pair, rank_info_bytes;
} bt_hello;
typedef struct bt_control_frame {
    bt_frame head;
    uint32_t verb, zero;
    double value;
} bt_control_frame;

static inline bt_hello bt_hello_mine(void) {
    return (bt_hello){BT_MS_COUNT, BT_MR_COUNT, BT_ML_COUNT,
                      BT_MC_COUNT, BT_MP_COUNT, (uint32_t)sizeof(bt_rank_info)};
}

bt_code bt_wire_address(struct sockaddr_un *out, const char *socket_path, bt_err *err)
    BT_MUST_CHECK;

#endif
