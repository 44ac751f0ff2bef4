/* moment.c - converts optimizer states between forms, for a run that is resumed with another form. */
#include "engine/base/numbers/moment.h"

static float read_moment(const void *from, bt_moment_form form, size_t i) {
    switch (form) {
    case BT_MOMENT_BF16: {
        uint16_t x;
        memcpy(&x, (const unsigned char *)from + 2 * i, sizeof x);
        return bt_moment_of_bf16(x);
    }
    case BT_MOMENT_LOG8: return bt_moment_of_log8(((const uint8_t *)from)[i]);
    case BT_MOMENT_ULOG8: return bt_moment_of_ulog8(((const uint8_t *)from)[i]);
    default: {
        float x;
        memcpy(&x, (const unsigned char *)from + 4 * i, sizeof x);
        return x;
    }
    }
}

static void write_moment(void *to, bt_moment_form form, size_t i, float x) {
    switch (form) {
    case BT_MOMENT_BF16: {
        const uint16_t near = bt_moment_to_bf16(x, BT_MOMENT_NEAREST);
        memcpy((unsigned char *)to + 2 * i, &near, sizeof near);
        return;
    }
    case BT_MOMENT_LOG8: ((uint8_t *)to)[i] = bt_moment_to_log8(x, BT_MOMENT_NEAREST); return;
    case BT_MOMENT_ULOG8: ((uint8_t *)to)[i] = bt_moment_to_ulog8(x, BT_MOMENT_NEAREST); return;
    default: memcpy((unsigned char *)to + 4 * i, &x, sizeof x);
    }
}

void bt_moment_convert(void *to, bt_moment_form to_form, const void *from, bt_moment_form from_form,
                       size_t n) {
    if (to_form == from_form) {
        memmove(to, from, n * bt_moment_bytes(to_form));
        return;
    }
    for (size_t i = 0; i < n; i++) write_moment(to, to_form, i, read_moment(from, from_form, i));
}
