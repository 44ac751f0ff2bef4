/* hash.h - XXH3 in the widest form that the processor has.
 *
 * The hash is the same everywhere. Plain XXH3_64bits of a library for every x86 reads with SSE2; the library's own
 * dispatch, where it was built with one, takes AVX2 or AVX-512 at run time: from cache 2 to 3 times as fast. */
#ifndef BT_ENGINE_BASE_HASH_H
#define BT_ENGINE_BASE_HASH_H

#include <have_xxh.h> /* made by cmake */

#ifdef BT_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
