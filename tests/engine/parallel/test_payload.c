/* Payloads with checksums, divided at tensors, some of them not encoded, with padding: for any range, each tensor
 * decodes as if encoded alone, and residuals are stored at its elements. A payload with one wrong bit or one byte less
 * is refused before anything is added. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/hash.h"
#include "engine/base/rng.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/payload.h"

enum { N = 4096 };

/* There is padding before, between and after the tensors; one has a single element. */
static const bt_payload_tensor tensors[] = {
    {{16, 700}, false}, {{704, 720}, true},   {{720, 721}, false},
    {{736, 739}, true}, {{752, 3000}, false}, {{3008, 4001}, false},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };
static const bt_range stretches[] = {{0, N},       {0, 16},      {0, 17},     {0, 0},
                                     {700, 704},   {699, 705},   {720, 721},  {738, 2999},
                                     {1024, 2048}, {3999, 4002}, {4001, 4096}};
enum { N_STRETCHES = sizeof stretches / sizeof *stretches };

static float x[N], owed[N], alone_owed[N], y[N], want[N], sum[N];
static unsigned char payload[8 * N], alone[8 * N];

static void fill_gradients(void) {
    bt_rng_normal(x, N, 0, 1, 3, 1);
    bt_rng_normal(owed, N, 0, 1e-2f, 3, 2);
    for (size_t i = 0; i < N; i++) { /* padding is zero and has no residual */
        bool in = false;
        for (size_t k = 0; k < N_TENSORS; k++)
            in |= i >= tensors[k].range.begin && i < tensors[k].range.end;
        if (!in) x[i] = owed[i] = 0;
    }
    memcpy(alone_owed, owed, sizeof owed);
}

/* Encodes each tensor's share of r separately; returns the bytes. */
static size_t by_tensors(const bt_codec *c, bt_range r) {
    size_t bytes = 0;
    memset(want, 0, sizeof want);
    for (size_t k = 0; k < N_TENSORS; k++) {
        size_t a = tensors[k].range.begin > r.begin ? tensors[k].range.begin : r.begin,
               b = tensors[k].range.end < r.end ? tensors[k].range.end : r.end;
        if (a >= b) continue;
        if (tensors[k].plain) {
            for (size_t i = a; i < b; i++) want[i] = x[i] + alone_owed[i];
            memset(alone_owed + a, 0, (b - a) * sizeof *owed);
            bytes += (b - a) * sizeof *x;
            continue;
        }
        size_t n = c->encode(alone, x + a, b - a, alone_owed + a);
        assert_true(c->decode(want + a, b - a, alone, n));
        bytes += n;
    }
    return bytes;
}

static void every_range_decodes_by_tensor(void **state) {
    (void)state;
    for (int id = 0; id < BT_CODEC_COUNT; id++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)id);
        const bt_payload_form form = {c, tensors, N_TENSORS};
        for (size_t k = 0; k < N_STRETCHES && c->sealed; k++) {
            bt_range r = stretches[k];
            size_t n = r.end - r.begin;
            fill_gradients();
            size_t bytes = bt_payload_encode(&form, payload, x + r.begin, r, owed),
                   wanted = by_tensors(c, r);
            assert_int_equal(bytes, wanted + 8);
            assert_int_equal(bytes, bt_payload_bound(&form, r));
            assert_memory_equal(owed, alone_owed, sizeof owed);
            memset(y, 0x5a, sizeof y);
            assert_true(bt_payload_decode(&form, y + r.begin, r, payload, bytes));
            assert_memory_equal(y + r.begin, want + r.begin, n * sizeof *y);
            memcpy(sum, x, sizeof sum);
            assert_true(bt_payload_decode_add(&form, sum + r.begin, r, payload, bytes));
            for (size_t i = r.begin; i < r.end; i++) assert_true(sum[i] == x[i] + want[i]);
            assert_true(r.begin == 0 || memcmp(sum, x, r.begin * sizeof *x) == 0);
        }
    }
}

static void one_tensor_by_default(void **state) {
    (void)state;
    const bt_codec *c = bt_codec_at(BT_CODEC_INT8);
    const bt_payload_form form = {c, NULL, 0};
    fill_gradients();
    size_t n = c->encode(alone, x + 7, 1000, alone_owed + 7);
    assert_int_equal(bt_payload_encode(&form, payload, x + 7, (bt_range){7, 1007}, owed), n + 8);
    assert_memory_equal(payload + 8, alone, n);
}

static void a_damaged_payload_is_refused(void **state) {
    (void)state;
    for (int id = 0; id < BT_CODEC_COUNT; id++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)id);
        const bt_payload_form form = {c, tensors, N_TENSORS};
        const bt_range r = {690, 1300};
        if (!c->sealed) continue;
        fill_gradients();
        size_t bytes = bt_payload_encode(&form, payload, x + r.begin, r, owed);
        memcpy(sum, x, sizeof sum);
        for (uint64_t i = 0; i < 2000; i++) {
            size_t bit = bt_rng_u64(1, 2, i) % (8 * bytes);
            payload[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_false(bt_payload_decode(&form, sum + r.begin, r, payload, bytes));
            assert_false(bt_payload_decode_add(&form, sum + r.begin, r, payload, bytes));
            payload[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        for (size_t n = 0; n < bytes; n += 1 + n / 16)
            assert_false(bt_payload_decode_add(&form, sum + r.begin, r, payload, n));
        assert_false(bt_payload_decode_add(&form, sum + r.begin, r, payload, bytes + 1));
        assert_false(
            bt_payload_decode_add(&form, sum + r.begin, (bt_range){690, 1400}, payload, bytes));
        assert_memory_equal(sum, x, sizeof sum);
        assert_true(bt_payload_decode_add(&form, sum + r.begin, r, payload, bytes));
    }
}

/* Payloads with a valid checksum that no encoder produces are refused if any tensor is invalid; adding and decoding
 * agree. */
static void invalid_tensors_with_a_valid_checksum_are_refused(void **state) {
    (void)state;
    const bt_range r = {16, 3700};
    int good = 0, bad = 0;
    for (int id = 0; id < BT_CODEC_COUNT; id++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)id);
        const bt_payload_form form = {c, tensors, N_TENSORS};
        if (!c->state_bytes) continue;
        fill_gradients();
        const size_t bytes = bt_payload_encode(&form, payload, x + r.begin, r, owed);
        for (size_t i = 0; i < 400; i++) {
            /* changes a byte of any tensor, with unchanged payloads in between */
            const size_t at = 8 + bt_rng_u64(4, (uint64_t)id, i) % (bytes - 8);
            const unsigned char was = payload[at];
            payload[at] = (unsigned char)(i % 4 ? bt_rng_u64(5, (uint64_t)id, i) : was);
            const uint32_t hash = (uint32_t)XXH3_64bits(payload + 8, bytes - 8);
            memcpy(payload, &hash, sizeof hash);
            bool want_it = true;
            const unsigned char *from = payload + 8;
            for (size_t k = 0; k < N_TENSORS; k++) {
                const size_t a = tensors[k].range.begin,
                             b = tensors[k].range.end < r.end ? tensors[k].range.end : r.end,
                             n = tensors[k].plain ? (b - a) * sizeof *x : c->bound(b - a);
                if (!tensors[k].plain) want_it &= c->decode(want + a, b - a, from, n);
                from += n;
            }
            memcpy(sum, x, sizeof sum);
            assert_int_equal(bt_payload_decode(&form, y + r.begin, r, payload, bytes), want_it);
            assert_int_equal(bt_payload_decode_add(&form, sum + r.begin, r, payload, bytes),
                             want_it);
            good += want_it;
            bad += !want_it;
            payload[at] = was;
        }
    }
    assert_true(good > 100 && bad > 10);
}

int main(void) {
    if (bt_kernels_select("auto", NULL) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_range_decodes_by_tensor),
        cmocka_unit_test(one_tensor_by_default),
        cmocka_unit_test(a_damaged_payload_is_refused),
        cmocka_unit_test(invalid_tensors_with_a_valid_checksum_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
