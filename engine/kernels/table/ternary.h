/* ternary.h - the 2-bit form of a ternary matrix: what a checkpoint ships and decoding reads
 * (tern_gemv).
 *
 * Row-major; a row of K codes is ceil(K/128) blocks of 32 bytes; bits 2i, 2i+1 of byte j of a block
 * hold code + 1 (0, 1, 2) of input 32 i + j, i = 0..3. Codes beyond K are 0 (stored as 1). 3 never
 * occurs: unpack reports it.
 * Threads: pure functions. */
#ifndef BT_ENGINE_KERNELS_TABLE_TERNARY_H
#define BT_ENGINE_KERNELS_TABLE_TERNARY_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

size_t bt_tern2_row_bytes(size_t K);
/* N rows; packed: N * row bytes */
void bt_tern2_pack(uint8_t *packed, const int8_t *codes, size_t N, size_t K);
/* BT_FORMAT when a stored code is 3 */
bt_code bt_tern2_unpack(int8_t *codes, const uint8_t *packed, size_t N, size_t K, bt_err *err)
    BT_MUST_CHECK;
/* code k of a row */
static inline int bt_tern2_code(const uint8_t *row, size_t k) {
    return (row[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3) - 1;
}
/* codes first .. first+n of one row that holds as many; a stored 3 is read as 2 */
void bt_tern2_read(int8_t *codes, const uint8_t *packed, size_t first, size_t n);

#endif
