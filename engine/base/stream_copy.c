/* stream_copy.c - writes whole cache lines with non-temporal stores. */
#include "engine/base/stream_copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__

typedef long long vec __attribute__((vector_size(16), aligned(16)));
typedef long long loose __attribute__((vector_size(16), aligned(1), may_alias));

enum { LINE = 64 };

static inline void store_nontemporal(vec *to, vec v) {
#ifdef __clang__
    __builtin_nontemporal_store(v, to);
#else
    __builtin_ia32_movntdq(to, v);
#endif
}

void bt_stream_copy(void *to, const void *from, size_t bytes) {
    unsigned char *out = to;
    const unsigned char *in = from;
    size_t head = (size_t)(-(uintptr_t)out % LINE);
    if (head > bytes) head = bytes;
    memcpy(out, in, head);
    out += head, in += head, bytes -= head;
    for (; bytes >= LINE; out += LINE, in += LINE, bytes -= LINE) {
        vec *line = (vec *)(void *)out;
        const loose *x = (const loose *)(const void *)in;
        const vec a = x[0], b = x[1], c = x[2], d = x[3];
        store_nontemporal(line, a);
        store_nontemporal(line + 1, b);
        store_nontemporal(line + 2, c);
        store_nontemporal(line + 3, d);
    }
    memcpy(out, in, bytes);
    __builtin_ia32_sfence(); /* orders non-temporal stores before later stores */
}

#else

void bt_stream_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

#endif
