/* isa_inline.h - compiler attributes of the vector kernels. BT_VECTORS is defined while a file is compiled for a
 * vector set (AVX2 or NEON and above). Every aarch64 compiler has NEON, so isa_neon.c alone is compiled with
 * BT_NEON, and the generic set remains plain loops there. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_INLINE_H
#define BT_ENGINE_KERNELS_ISA_ISA_INLINE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX2__) || defined(BT_NEON)
#define BT_VECTORS
#define BT_INLINE static inline __attribute__((always_inline, unused))
#define BT_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
