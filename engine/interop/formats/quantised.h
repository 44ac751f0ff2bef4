/* quantised.h - converts the blocks of llama.cpp's quantised types to floats.
 *
 * Threads: pure functions. */
#ifndef BT_ENGINE_INTEROP_FORMATS_QUANTISED_H
#define BT_ENGINE_INTEROP_FORMATS_QUANTISED_H

#include "engine/interop/formats/formats.h"

/* Decodes whole blocks of Q4_0 to Q6_K or I2_S (without scale). Returns false for another type or an invalid code. */
bool bt_quantised_decode(bt_number t, float *out, const unsigned char *in, size_t n);

#endif
