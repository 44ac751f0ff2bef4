/* test_flip_gather.c - gather of changed ternary codes on the middle rank of three: messages, codes of all
 * shards over several steps, counters, damaged messages, and failing calls. MPI is defined here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/shard/flip_code.h"
#include "engine/parallel/shard/flip_gather.h"

enum { SHARDS = 3, ME = 1, MOST = 200 };

static const size_t bytes_of[SHARDS] = {120, 200, 40};
static unsigned char before[SHARDS][MOST], now[SHARDS][MOST];
static bt_comm axis;
static bt_mesh mesh;
static bt_flip_gather *f;
static bt_err err;

static const char *call_fails;
static int damaged; /* rank whose message is truncated; -1: none */
static struct {
    void *into;
    int from, room;
} wanted[SHARDS];
static int n_wanted, n_sent;
static size_t length_of[SHARDS]; /* lengths of the last messages */
static unsigned char sent[MOST + BT_FLIPS_HEAD];

static int outcome(const char *call) {
    return call_fails && strcmp(call_fails, call) == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}
int MPI_Error_string(int rc, char *text, int *n) {
    (void)rc;
    *n = sprintf(text, "the link is gone");
    return MPI_SUCCESS;
}
int MPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Request *r) {
    (void)tag;
    assert_true(type == MPI_BYTE && c == axis.mpi);
    wanted[n_wanted].into = to;
    wanted[n_wanted].room = n;
    wanted[n_wanted++].from = from;
    *r = MPI_REQUEST_NULL;
    return outcome("irecv");
}
int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm c,
              MPI_Request *r) {
    (void)to, (void)tag;
    assert_true(type == MPI_BYTE && c == axis.mpi && (size_t)n <= sizeof sent);
    memcpy(sent, from, (size_t)n);
    length_of[ME] = (size_t)n;
    n_sent++;
    *r = MPI_REQUEST_NULL;
    return outcome("isend");
}
int MPI_Waitall(int n, MPI_Request *r, MPI_Status *s) {
    (void)n, (void)r;
    for (int i = 0; i < n_wanted; i++) {
        const int d = wanted[i].from;
        length_of[d] = bt_flip_encode(wanted[i].into, before[d], now[d], bytes_of[d]);
        assert_true(length_of[d] <= (size_t)wanted[i].room);
        if (d == damaged) length_of[d]--;
        s[i]._ucount = length_of[d];
    }
    return outcome("wait");
}
int MPI_Get_count(const MPI_Status *s, MPI_Datatype type, int *n) {
    assert_ptr_equal(type, MPI_BYTE);
    *n = (int)s->_ucount;
    return outcome("count");
}

static void begin(void) {
    axis = (bt_comm){.mpi = MPI_COMM_SELF, .rank = ME, .size = SHARDS, .axis = BT_AXIS_SHARD};
    mesh = (bt_mesh){.shape = {1, 1, SHARDS, 2}, .me = {.dp_shard = ME}, .shard = &axis};
    call_fails = NULL;
    damaged = -1;
    memset(before, 0, sizeof before);
    memset(now, 0, sizeof now);
    n_wanted = n_sent = 0;
    assert_int_equal(bt_flip_gather_create(&f, &mesh, bytes_of, &err), BT_OK);
    bt_traffic_reset();
    bt_pairs_reset();
}

/* Codes are fields of two bits with values 0, 1 or 2; some change. */
static void change(uint64_t step) {
    for (int d = 0; d < SHARDS; d++)
        for (size_t k = 0; k < 4 * bytes_of[d]; k++) {
            if (step && bt_rng_u64(3, step * 10 + (uint64_t)d, k) % 20) continue;
            const unsigned code = (unsigned)(bt_rng_u64(4, step * 10 + (uint64_t)d, k) % 3);
            now[d][k / 4] = (unsigned char)((now[d][k / 4] & ~(3u << k % 4 * 2)) |
                                            code << k % 4 * 2);
        }
}

static void every_shard_has_the_codes_of_all(void **state) {
    (void)state;
    begin();
    for (uint64_t step = 0; step < 6; step++) {
        const uint64_t wire = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
        unsigned char theirs[MOST];
        change(step);
        n_wanted = n_sent = 0;
        assert_int_equal(bt_flip_gather_run(f, now[ME], &err), BT_OK);
        for (int d = 0; d < SHARDS; d++)
            assert_memory_equal(bt_flip_gather_from(f, d), now[d], bytes_of[d]);
        /* The peers decode this rank's codes from their previous ones. */
        memcpy(theirs, before[ME], sizeof theirs);
        assert_true(bt_flip_decode(theirs, bytes_of[ME], sent, length_of[ME]));
        assert_memory_equal(theirs, now[ME], bytes_of[ME]);
        /* The changes are shorter than all codes. */
        assert_true(step == 0 || length_of[ME] < bytes_of[ME]);
        assert_int_equal(bt_comm_bytes_wire() - wire, 2 * length_of[ME]);
        assert_int_equal(bt_comm_bytes_logical() - logical, 2 * bytes_of[ME]);
        const bt_traffic *t = bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD);
        assert_true(t->calls == 1 && t->rounds == 1 && t->busy_ns > 0);
        assert_true(t->bytes_wire == (int64_t)(2 * length_of[ME]) &&
                    t->bytes_logical == (int64_t)(2 * bytes_of[ME]));
        for (int d = 0; d < SHARDS; d++) { /* ranks of the world: two of each shard */
            const bt_pair *p = bt_pair_get(2 * d);
            assert_int_equal(p->messages, d != ME);
            assert_int_equal(p->bytes, d != ME ? (int64_t)length_of[d] : 0);
        }
        bt_traffic_reset();
        bt_pairs_reset();
        memcpy(before, now, sizeof before);
    }
    bt_flip_gather_destroy(f);
    bt_flip_gather_destroy(NULL);
    assert_int_equal(bt_flip_gather_bytes(360), 720);
}

static void damaged_messages_are_not_used(void **state) {
    (void)state;
    for (int d = 0; d < SHARDS; d += 2) {
        char want[32];
        begin();
        change(0);
        damaged = d;
        assert_int_equal(bt_flip_gather_run(f, now[ME], &err), BT_CHECK);
        snprintf(want, sizeof want, "shard %d sent %zu bytes", d, length_of[d]);
        assert_non_null(strstr(err.msg, want));
        for (size_t i = 0; i < bytes_of[d]; i++) assert_int_equal(bt_flip_gather_from(f, d)[i], 0);
        bt_flip_gather_destroy(f);
    }
}

static void a_failing_call_is_reported(void **state) {
    (void)state;
    static const char *const calls[] = {"irecv", "isend", "wait", "count"};
    for (int i = 0; i < 4; i++) {
        begin();
        change(0);
        call_fails = calls[i];
        assert_int_equal(bt_flip_gather_run(f, now[ME], &err), BT_MPI);
        assert_non_null(strstr(err.msg, "the link is gone"));
        bt_flip_gather_destroy(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shard_has_the_codes_of_all),
        cmocka_unit_test(damaged_messages_are_not_used),
        cmocka_unit_test(a_failing_call_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
