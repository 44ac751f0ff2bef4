/* Copies with non-temporal stores, at every length and alignment of source and destination, write no byte outside the
 * destination. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/stream_copy.h"

enum { ROOM = 512, EDGE = 64 };

static void any_alignment_is_copied(void **state) {
    (void)state;
    static unsigned char from[ROOM], to[ROOM], want[ROOM];
    for (int i = 0; i < ROOM; i++) from[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t n = 0; n <= 200; n += n < 140 ? 1 : 13)
        for (size_t a = 0; a < EDGE; a += 5)
            for (size_t b = 0; b < EDGE; b += 3) {
                memset(to, 0xee, ROOM);
                memset(want, 0xee, ROOM);
                memcpy(want + EDGE + a, from + b, n);
                bt_stream_copy(to + EDGE + a, from + b, n);
                assert_memory_equal(to, want, ROOM);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_alignment_is_copied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
