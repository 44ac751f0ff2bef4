/* isa_avx2.c - the avx2 set: rows from isa_rows.h. */
#include "engine/kernels/isa_rows.h"

static size_t no_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    (void)M, (void)N, (void)K, (void)T, (void)D;
    return 0;
}

const bt_kernels bt_kernels_avx2 = {.name = "avx2", BT_ROWS_SLOTS, .scratch_bytes = no_scratch};
