/* flip_code.h - encodes the changes of ternary codes, which a rank sends to ranks that have its codes of the previous
 * step.
 *
 * Codes are fields of 2 bits (kernels/table/ternary.h: code + 1). A message is
 *
 *     | hash of what follows, 4 bytes | length of what follows, 4 bytes | flips, 4 bytes | body |
 *
 * flips: how many fields changed, and the body their gaps (unchanged fields before each) as Golomb-Rice codes whose
 * parameter, its first byte, suits the mean gap, then a bit for each of what the field became. Gaps of independent
 * flips are geometric, for which these codes are within 0.03 bits of a flip's entropy (R. Gallager, D. van Voorhis
 * 1975). If that is not shorter than all fields, flips is BT_FLIPS_ALL and the body contains all fields, so a message
 * exceeds the fields by at most BT_FLIPS_HEAD bytes. Lossless. A truncated or corrupted message is refused (XXH3).
 * Threads: pure. */
#ifndef BT_ENGINE_PARALLEL_SHARD_FLIP_CODE_H
#define BT_ENGINE_PARALLEL_SHARD_FLIP_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_FLIPS_HEAD = 12 };
#define BT_FLIPS_ALL UINT32_MAX

/* from: the fields of the receivers; to: the new fields; `bytes` each. message has room for BT_FLIPS_HEAD + bytes.
 * Returns its length. */
size_t bt_flip_encode(unsigned char *message, const unsigned char *from, const unsigned char *to,
                      size_t bytes);
/* fields: on entry equal to the sender's `from`, on success equal to its `to`. Returns false for a message that
 * does not encode this many fields. The fields are then unchanged, or undefined if bt_flip_encode did not make the
 * message. */
bool bt_flip_decode(unsigned char *fields, size_t bytes, const unsigned char *message,
                    size_t length);

#endif
