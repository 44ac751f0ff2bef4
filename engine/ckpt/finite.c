/* finite.c - no checkpoint holds what is not a number. */
#include <string.h>

#include "engine/ckpt/save_steps.h"

#define MAGNITUDE 0x7fffffffu
#define INFINITE 0x7f800000u

/* in any thread: the pool belongs to the training thread */
static bool all_finite(const float *x, uint64_t n) {
    int32_t largest = 0; /* signed: SSE2 compares no other integers */
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const int32_t magnitude = (int32_t)(bits & MAGNITUDE);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest < INFINITE;
}

bt_code ckpt_check_finite(const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    for (size_t i = 0; i < n; i++)
        if (slices[i].type == BT_CKPT_F32 && slices[i].data &&
            !all_finite(slices[i].data, slices[i].count))
            return bt_fail(
                err, BT_DAMAGED,
                "'%s' (%s) holds a number that is not finite: no checkpoint is made of it "
                "(go on from the newest one)",
                slices[i].tensor, slices[i].state);
    return BT_OK;
}
