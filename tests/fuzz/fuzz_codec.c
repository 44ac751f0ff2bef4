/* fuzz_codec.c - arbitrary bytes as gradients or changed codes of another rank: they are decoded or refused, and no
 * element outside the message's range is changed. | codec: a row of codec.def, the lossless one, or changed codes |
 * begin | length | flags | payload | begin, length: range in steps of 5 elements. flags of a payload: 1 divides it at
 * tensors; 4 corrects its length and checksum, so that later checks are reached. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/payload.h"
#include "engine/parallel/shard/flip_code.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N = 3000, STEP = 5, HEAD = 4, SEAL = 8, MARK = 77 };
enum { TENSORS = 1, SEALED = 4 };

static const bt_payload_tensor tensors[] = {
    {{8, 700}, false}, {{704, 720}, true}, {{720, 721}, false}, {{736, 2990}, false}};

static void correct_checksum(unsigned char *message, size_t n) {
    const uint32_t bytes = (uint32_t)(n - SEAL),
                   hash = (uint32_t)XXH3_64bits(message + SEAL, bytes);
    memcpy(message, &hash, sizeof hash);
    memcpy(message + sizeof hash, &bytes, sizeof bytes);
}

static void check_untouched(const float *x, size_t begin, size_t end) {
    for (size_t i = 0; i < N; i++)
        if ((i < begin || i >= end) && x[i] != MARK) abort();
}

static void decode_gradients(const bt_codec *c, bt_range r, unsigned flags, const uint8_t *data,
                             size_t n) {
    static float x[N];
    const bool feedback = c->state_bytes > 0;
    const bt_payload_form form = {.codec = c,
                                  .tensors = flags & TENSORS ? tensors : NULL,
                                  .n_tensors = flags & TENSORS ? sizeof tensors / sizeof *tensors
                                                               : 0};
    const size_t most = bt_payload_bound(&form, r), bytes = flags & SEALED && feedback ? most : n;
    unsigned char *payload = malloc(bytes + 1);
    if (!payload) return;
    for (size_t i = 0; i < bytes; i++) payload[i] = n ? data[i % n] : 0;
    if (c->sealed && flags & SEALED && bytes >= SEAL) correct_checksum(payload, bytes);
    for (int add = 0; add < 2; add++) {
        for (size_t i = 0; i < N; i++) x[i] = MARK;
        (void)(add ? bt_payload_decode_add(&form, x + r.begin, r, payload, bytes)
                   : bt_payload_decode(&form, x + r.begin, r, payload, bytes));
        check_untouched(x, r.begin, r.end);
    }
    free(payload);
}

static void decode_flip_message(size_t bytes, unsigned flags, const uint8_t *data, size_t n) {
    unsigned char *fields = malloc(bytes + 1), *message = malloc(n + 1);
    if (fields && message) {
        memset(fields, 0x55, bytes + 1); /* all codes are 0 */
        memcpy(message, data, n);
        if (flags & SEALED && n >= SEAL) correct_checksum(message, n);
        (void)bt_flip_decode(fields, bytes, message, n);
        if (fields[bytes] != 0x55) abort();
    }
    free(fields);
    free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    enum { EXACT = BT_CODEC_COUNT, FLIPS, KINDS };
    static bool begun;
    if (!begun) {
        if (bt_kernels_select("generic", NULL) != BT_OK) abort();
        begun = true;
    }
    if (n < HEAD) return 0;
    const unsigned kind = data[0] % KINDS, flags = data[3];
    const size_t begin = (size_t)data[1] * STEP, most = N - begin,
                 length = (size_t)data[2] * STEP < most ? (size_t)data[2] * STEP : most;
    const bt_codec *c = kind < BT_CODEC_COUNT ? bt_codec_at((bt_codec_id)kind) : &bt_codec_exact;
    if (kind == FLIPS)
        decode_flip_message(length, flags, data + HEAD, n - HEAD);
    else if (c->encode)
        decode_gradients(c, (bt_range){begin, begin + length}, flags, data + HEAD, n - HEAD);
    return 0;
}
