// ctest: ranks=3
/* ZeRO prefetches the parts of shards one after the other in every order of passes, including shards that lack a part
 * and ranks with unequal numbers of passes, one of them late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/shard/weight_prefetch.h"

/* Short messages are sent eagerly, long messages after a handshake. */
enum { PARTS = 5, RANKS = 3, LONGEST = 200000 };

static size_t size_of(int shard, size_t part) {
    return shard == 1 && part == 2 ? 0 : part == 3 ? LONGEST : 7 + 31 * part + 100 * (size_t)shard;
}
static unsigned char byte_of(int round, int shard, size_t part, size_t i) {
    return (unsigned char)(31 * round + 17 * shard + 5 * (int)part + (int)(i % 251));
}

static void check_part(const bt_prefetch *f, int round, size_t part) {
    for (int s = 0; s < RANKS; s++) {
        const unsigned char *x = bt_prefetch_from(f, s);
        for (size_t i = 0; i < size_of(s, part); i++) {
            if (x[i] != byte_of(round, s, part, i))
                fail_msg("round %d: byte %zu of part %zu of shard %d is %d", round, i, part, s,
                         x[i]);
        }
    }
}

/* Visits all parts of `passes` passes; returns how many parts were received. */
static size_t visit_all_parts(bt_prefetch *f, bt_passes kind, int round, size_t passes, bool late) {
    size_t came = 0, here = PARTS;
    bt_err err = BT_ERR_INIT;
    for (size_t p = 0; p < passes; p++) {
        for (size_t k = 0; k < (kind == BT_PASSES_FORWARD_BACKWARD ? 2 * PARTS : PARTS); k++) {
            size_t part = k < PARTS ? k : 2 * PARTS - 1 - k;
            if (part == here) continue; /* this rank's own part */
            if (came > 0) assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
            if (late) bt_sleep_ns(2000000);
            assert_int_equal(bt_prefetch_wait(f, part, &err), BT_OK);
            check_part(f, round, part);
            here = part;
            came++;
        }
    }
    if (came > 0) assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
    return came;
}

static void parts_are_received_in_every_walk(void **state) {
    (void)state;
    bt_mesh mesh;
    bt_prefetch *f;
    bt_err err = BT_ERR_INIT;
    static unsigned char own[2 * LONGEST];
    size_t at[RANKS * (PARTS + 1)] = {0};
    assert_int_equal(bt_mesh_create(&mesh, &(bt_mesh_shape){1, 1, RANKS, 1}, bt_comm_world(), &err),
                     BT_OK);
    for (int s = 0; s < RANKS; s++)
        for (size_t p = 0; p < PARTS; p++)
            at[s * (PARTS + 1) + (int)p + 1] = at[s * (PARTS + 1) + (int)p] + size_of(s, p);
    int me = mesh.me.dp_shard;
    assert_int_equal(bt_prefetch_create(&f, &(bt_prefetch_cfg){&mesh, PARTS, at, own}, &err),
                     BT_OK);
    static const struct {
        bt_passes walk;
        size_t passes[RANKS];
        int late;
    } rounds[] = {
        {BT_PASSES_FORWARD, {1, 1, 1}, -1},          {BT_PASSES_FORWARD_BACKWARD, {1, 1, 1}, 0},
        {BT_PASSES_FORWARD_BACKWARD, {1, 9, 2}, 1},  {BT_PASSES_FORWARD, {3, 3, 3}, 2},
        {BT_PASSES_FORWARD_BACKWARD, {4, 4, 4}, -1}, {BT_PASSES_FORWARD_BACKWARD, {7, 0, 1}, 2}};
    for (int r = 0; r < (int)(sizeof rounds / sizeof *rounds); r++) {
        for (size_t p = 0; p < PARTS; p++)
            for (size_t i = 0; i < size_of(me, p); i++)
                own[at[me * (PARTS + 1) + (int)p] + i] = byte_of(r, me, p, i);
        uint64_t before = bt_comm_bytes_wire(), want = 0;
        int64_t got[RANKS] = {0}, messages[RANKS] = {0};
        bt_traffic_reset();
        bt_pairs_reset();
        assert_int_equal(bt_prefetch_begin(f, rounds[r].walk, rounds[r].passes, &err), BT_OK);
        size_t came = visit_all_parts(f, rounds[r].walk, r, rounds[r].passes[me],
                                      rounds[r].late == me);
        assert_int_equal(came, bt_prefetch_visits(rounds[r].walk, PARTS, rounds[r].passes[me]));
        assert_int_equal(bt_prefetch_drain_sends(f, &err), BT_OK);
        assert_int_equal(bt_barrier(bt_comm_world(), &err), BT_OK);
        assert_int_equal(bt_prefetch_end(f, &err), BT_OK);
        for (int s = 0; s < RANKS; s++) {
            size_t visits = bt_prefetch_visits(rounds[r].walk, PARTS, rounds[r].passes[s]);
            for (size_t v = 0; s != me && v < visits; v++) {
                size_t k = rounds[r].walk == BT_PASSES_FORWARD ? v % PARTS : v % (2 * PARTS - 2);
                want += size_of(me, k < PARTS ? k : 2 * PARTS - 2 - k);
            }
        }
        assert_int_equal(bt_comm_bytes_wire() - before, want);
        for (int s = 0; s < RANKS; s++)
            for (size_t v = 0; s != me && v < came; v++) {
                size_t k = rounds[r].walk == BT_PASSES_FORWARD ? v % PARTS : v % (2 * PARTS - 2);
                const size_t n = size_of(s, k < PARTS ? k : 2 * PARTS - 2 - k);
                got[s] += (int64_t)n;
                messages[s] += n > 0;
            }
        for (int s = 0; s < RANKS; s++) {
            assert_int_equal(bt_pair_get(s)->bytes, got[s]);
            assert_int_equal(bt_pair_get(s)->messages, messages[s]);
        }
        const bt_traffic *t = bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD);
        assert_int_equal(t->rounds, came);
        assert_int_equal(t->bytes_wire, want);
        assert_int_equal(t->bytes_logical, want);
        assert_true((bt_prefetch_busy_ns(f) > 0) == (came > 0));
    }
    bt_prefetch_destroy(f);
    bt_mesh_release(&mesh);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != RANKS ||
        bt_threads_init(1, &err) != BT_OK)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_received_in_every_walk)};
    alarm(30); /* A test that hangs is ended. */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_threads_release();
    bt_comm_finalize();
    return failed;
}
