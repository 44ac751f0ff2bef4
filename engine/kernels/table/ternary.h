/* ternary.h - the 2-bit form of a ternary matrix, used by checkpoints for inference and by decoding (tern_gemv).
 *
 * Rows are stored in order. A row of K codes has ceil(K/128) blocks of 32 bytes. Bits 2i and 2i+1 of byte j of a block
 * hold code + 1 (0, 1 or 2) of input 32 i + j, i = 0..3. Codes beyond K are 0 (stored as 1). Unpacking reports the
 * value 3, which never occurs in a valid row.
 * Threads: pure functions. */
#ifndef BT_ENGINE_KERNELS_TABLE_TERNARY_H
#define BT_ENGINE_KERNELS_TABLE_TERNARY_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

size_t bt_tern2_row_bytes(size_t K);
/* Packs N rows; packed: N times the bytes of a row. */
void bt_tern2_pack(uint8_t *packed, const int8_t *codes, size_t N, size_t K);
/* Returns BT_FORMAT if a stored code is 3. */
bt_code bt_tern2_unpack(int8_t *codes, const uint8_t *packed, size_t N, size_t K, bt_err *err)
    BT_MUST_CHECK;
/* Returns code k of a row. */
static inline int bt_tern2_code(const uint8_t *row, size_t k) {
    return (row[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3) - 1;
}
/* Reads codes first .. first+n of one row, which has at least that many. A stored 3 is read as 2. */
void bt_tern2_read(int8_t *codes, const uint8_t *packed, size_t first, size_t n);

#endif
