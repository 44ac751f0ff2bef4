/* finite.c - checks that saved values are finite. */
#include <string.h>

#include "engine/ckpt/save_steps.h"

#define MAGNITUDE 0x7fffffffu
#define INFINITE 0x7f800000u

/* Does not use the thread pool, which belongs to the training thread, so any thread may call it. */
static bool all_finite(const float *x, uint64_t n) {
    int32_t largest = 0; /* signed, because SSE2 compares only signed integers */
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const int32_t magnitude = (int32_t)(bits & MAGNITUDE);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest < INFINITE;
}

/* Checks values of other number formats one by one, because they have few bytes. */
static bool all_finite_in(const unsigned char *x, bt_moment_form form, uint64_t n) {
    enum { SOME = 1024 };
    float some[SOME];
    for (uint64_t i = 0; i < n; i += SOME) {
        const uint64_t m = n - i < SOME ? n - i : SOME;
        bt_moment_convert(some, BT_MOMENT_F32, x + i * bt_moment_bytes(form), form, m);
        if (!all_finite(some, m)) return false;
    }
    return true;
}

static bool finite_slice(const bt_ckpt_slice *s) {
    bt_moment_form form;
    if (!s->data || !ckpt_form_of(s->type, &form)) return true;
    return form == BT_MOMENT_F32 ? all_finite(s->data, s->count)
                                 : all_finite_in(s->data, form, s->count);
}

bt_code ckpt_check_finite(const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    for (size_t i = 0; i < n; i++)
        if (!finite_slice(&slices[i]))
            return bt_fail(err, BT_DAMAGED,
                           "'%s' (%s) contains a number that is not finite, so it is not saved "
                           "(continue from the newest checkpoint)",
                           slices[i].tensor, slices[i].state);
    return BT_OK;
}
