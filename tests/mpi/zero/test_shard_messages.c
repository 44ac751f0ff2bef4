// ctest: ranks=3
/* Messages between shards: values of ranges at any position, in stripes; ternary codes that changed since the last
 * step; counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/shard/flip_code.h"
#include "engine/parallel/shard/flip_gather.h"
#include "engine/parallel/shard/shard_all_gather.h"

enum { RANKS = 3, B = BT_SUM_BLOCK, TOTAL = 20 * B + 77 };

static bt_mesh mesh;
static int me;
static bt_err err;

static void reset_counters(void) {
    bt_traffic_reset();
    bt_pairs_reset();
}

static bt_shards shards;
static float wide[TOTAL];
static uint16_t narrow[TOTAL];

static int owner_of_value(size_t i) {
    for (size_t s = 0; s < shards.n_stripes; s++)
        for (int r = 0; r < RANKS; r++) {
            const bt_range p = bt_shards_piece(&shards, s, r);
            if (i >= p.begin && i < p.end) return r;
        }
    fail_msg("%zu has no owner", i);
    return -1;
}

/* Ranges of two kinds of values are sent; the values in the gaps between the ranges do not change. */
static void pieces_are_sent_to_all(void **state) {
    (void)state;
    enum { N = 5 };
    const bt_range at[N] = {
        {3, B - 1}, {B - 1, 4 * B + 5}, {5 * B, 5 * B + 1}, {7 * B, 16 * B}, {17 * B + 9, TOTAL}};
    bt_gathered ranges[N];
    bt_shard_all_gather *g = NULL;
    bt_shards_init(&shards, TOTAL, 6 * B * sizeof(float), 1, RANKS);
    assert_true(shards.n_stripes > 2);
    int64_t bytes[RANKS] = {0}, parts[RANKS] = {0};
    for (int k = 0; k < N; k++) {
        const bool half = k % 2;
        ranges[k] = (bt_gathered){
            at[k], half ? (void *)(narrow + at[k].begin) : (void *)(wide + at[k].begin),
            half ? 2 : 4};
        for (size_t i = at[k].begin; i < at[k].end; i++) {
            const int r = owner_of_value(i);
            bytes[r] += half ? 2 : 4;
            if (i == at[k].begin || owner_of_value(i - 1) != r) parts[r]++;
        }
    }
    assert_int_equal(bt_shard_all_gather_create(&g, &mesh, &shards, ranges, N, &err), BT_OK);
    memset(ranges, 0, sizeof ranges); /* The gather has its own copy of the ranges. */
    for (int together = 0; together < 2; together++) {
        for (size_t i = 0; i < TOTAL; i++) {
            const bool mine = owner_of_value(i) == me;
            wide[i] = mine ? (float)(i + 1) : -1;
            narrow[i] = mine ? (uint16_t)(i % 65521) : 65535;
        }
        reset_counters();
        const uint64_t wire = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
        /* The call has no effect if no exchange was started. */
        assert_int_equal(bt_shard_all_gather_finish(g, &err), BT_OK);
        assert_int_equal(bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD)->calls, 0);
        for (size_t s = 0; s < shards.n_stripes; s++) {
            assert_int_equal(bt_shard_all_gather_start(g, s, &err), BT_OK);
            if (!together) assert_int_equal(bt_shard_all_gather_finish(g, &err), BT_OK);
        }
        if (together) assert_int_equal(bt_shard_all_gather_finish(g, &err), BT_OK);
        for (size_t i = 0; i < TOTAL; i++) {
            int in = -1;
            for (int k = 0; k < N; k++)
                if (i >= at[k].begin && i < at[k].end) in = k;
            const bool mine = owner_of_value(i) == me;
            const float w = mine || (in >= 0 && in % 2 == 0) ? (float)(i + 1) : -1;
            const uint16_t n = mine || (in >= 0 && in % 2) ? (uint16_t)(i % 65521) : 65535;
            if (wide[i] != w || narrow[i] != n)
                fail_msg("value %zu: %g and %d", i, (double)wide[i], narrow[i]);
        }
        const bt_traffic *t = bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD);
        assert_int_equal(t->bytes_wire, (RANKS - 1) * bytes[me]);
        assert_int_equal(t->bytes_logical, (RANKS - 1) * bytes[me]);
        assert_int_equal(bt_comm_bytes_wire() - wire, (RANKS - 1) * bytes[me]);
        assert_int_equal(bt_comm_bytes_logical() - logical, (RANKS - 1) * bytes[me]);
        assert_int_equal(t->calls, together ? 1 : (int64_t)shards.n_stripes);
        assert_int_equal(t->rounds, t->calls);
        assert_true(t->busy_ns > 0);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(bt_pair_get(r)->bytes, r == me ? 0 : bytes[r]);
            assert_int_equal(bt_pair_get(r)->messages, r == me ? 0 : parts[r]);
        }
    }
    bt_shard_all_gather_destroy(g);
}

/* Returns the codes of a step; the last shard has none. */
static size_t codes_of(int shard, int step, unsigned char *x) {
    static const size_t sizes[] = {4001, 60, 0};
    for (size_t i = 0; i < sizes[shard]; i++) {
        unsigned v = 0;
        /* One in a hundred codes changes from step to step; all change in step 3. */
        for (int k = 0; k < 4; k++) {
            const uint64_t u = bt_rng_u64(5, (uint64_t)(shard + 10 * step), 4 * i + (uint64_t)k),
                           still = bt_rng_u64(5, (uint64_t)shard, 4 * i + (uint64_t)k);
            v |= (unsigned)((u % 100 == 0 || step == 3 ? u / 100 : still) % 3) << 2 * k;
        }
        x[i] = (unsigned char)v;
    }
    return sizes[shard];
}

static void changed_codes_are_sent_to_all(void **state) {
    (void)state;
    static unsigned char own[4001], want[4001], before[4001], message[4001 + BT_FLIPS_HEAD];
    size_t sizes[RANKS];
    bt_flip_gather *f = NULL;
    for (int r = 0; r < RANKS; r++) sizes[r] = codes_of(r, 0, want);
    assert_int_equal(bt_flip_gather_create(&f, &mesh, sizes, &err), BT_OK);
    for (int step = 0; step < 5; step++) {
        const uint64_t wire = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
        reset_counters();
        codes_of(me, step, own);
        assert_int_equal(bt_flip_gather_run(f, own, &err), BT_OK);
        for (int r = 0; r < RANKS; r++) {
            const size_t n = codes_of(r, step, want);
            memset(before, 0, sizeof before);
            if (step > 0) codes_of(r, step - 1, before);
            assert_memory_equal(bt_flip_gather_from(f, r), want, n);
            const int64_t length = (int64_t)bt_flip_encode(message, before, want, n);
            assert_int_equal(bt_pair_get(r)->bytes, r == me ? 0 : length);
            assert_int_equal(bt_pair_get(r)->messages, r != me);
            if (r != me) continue;
            assert_int_equal(bt_comm_bytes_wire() - wire, (RANKS - 1) * length);
            assert_int_equal(bt_comm_bytes_logical() - logical, (RANKS - 1) * n);
            const bt_traffic *t = bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD);
            assert_true(t->calls == 1 && t->rounds == 1 && t->busy_ns > 0);
            assert_int_equal(t->bytes_wire, (RANKS - 1) * length);
            assert_int_equal(t->bytes_logical, (RANKS - 1) * n);
        }
    }
    bt_flip_gather_destroy(f);
}

int main(void) {
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != RANKS ||
        bt_mesh_create(&mesh, &(bt_mesh_shape){1, 1, RANKS, 1}, bt_comm_world(), &err) != BT_OK)
        return 1;
    me = bt_comm_rank(mesh.shard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_sent_to_all),
        cmocka_unit_test(changed_codes_are_sent_to_all),
    };
    alarm(30); /* A test that hangs is ended. */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_mesh_release(&mesh);
    bt_comm_finalize();
    return failed;
}
