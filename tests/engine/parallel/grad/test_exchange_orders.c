/* test_exchange_orders.c - the gradient exchange among the ranks of one process, whose steps run in any order, gives
 * the bits of one addition tree; also released pages, each rank's counters of messages and times, sleeping and waking,
 * and the error of each call that fails. */
#include "tests/engine/parallel/grad/exchange_ranks.h"

#include "engine/parallel/grad/exchange_internal.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "tests/message.h"

enum { WHOLE = 6 * 16 * 2 * BUCKETS, SHORT = WHOLE - 70 };

static const layout layouts[] = {
    {.ranks = 2, .shards = 1, .hosts = "2"},
    {.ranks = 2, .shards = 1, .hosts = "1"},
    {.ranks = 3, .shards = 1, .hosts = "3", .units = 7},
    {.ranks = 4, .shards = 2, .hosts = "2", .units = 13},
    {.ranks = 4, .shards = 4, .hosts = "4", .piece_bytes = 64},
    {.ranks = 6, .shards = 1, .hosts = "2,1,3"},
    {.ranks = 6, .shards = 2, .hosts = "4,2", .units = 11},
    {.ranks = 6, .shards = 3, .hosts = "1,2,2,1", .units = 16},
    {.ranks = 6, .shards = 6, .hosts = "3", .units = 6},
    {.ranks = 6, .shards = 1, .hosts = "6", .piece_bytes = 64, .units = 32},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Returns whether the rank receives the sum of this element; otherwise it belongs to other shards. */
static bool receives_sum_of(int rank, size_t i) {
    for (size_t b = 0; b < buckets.n; b++) {
        const bt_range r = bt_bucket_at(&buckets, b);
        if (i < r.begin || i >= r.end) continue;
        return (int)((i - r.begin) / (buckets.elems / (size_t)is.shards)) == rank % is.shards;
    }
    return false;
}

static void all_have_the_sum(size_t elems, bool discard) {
    for (size_t i = 0; i < elems; i++) {
        const float want = whole_sum(i);
        for (int k = 0; k < n_ranks; k++) {
            const float got = ranks[k].grads[i];
            if (receives_sum_of(k, i) ? memcmp(&got, &want, sizeof got) != 0 : discard && got != 0)
                fail_msg("rank %d of %d, hosts of %s: element %zu is %a, not %a", k, n_ranks,
                         is.hosts, i, (double)got, receives_sum_of(k, i) ? (double)want : 0.0);
        }
    }
}

static int host_of(int rank) {
    setenv("BITRAIN_TEST_HOSTS", is.hosts, 1);
    return bt_comm_host(rank);
}

/* The bytes sent by all ranks equal the bytes received. Between hosts a part is sent once per node of a host group, and
 * its sum returns once to each host that needs it; a message holds one part or one range of it. */
static void check_sent_equals_received(void) {
    int64_t sent = 0, logical = 0, got = 0;
    for (int k = 0; k < n_ranks; k++) {
        sent += ranks[k].counted.bytes_wire;
        logical += ranks[k].counted.bytes_logical;
        assert_int_equal(ranks[k].counted.calls, 0); /* The reducer counts calls. */
        for (int d = 0; d < n_ranks; d++) {
            const bt_pair *p = &ranks[k].from[d];
            got += p->bytes;
            assert_int_equal(p->timed, p->messages);
            assert_true((p->messages > 0) == (p->bytes > 0) && (d != k || p->bytes == 0));
            /* Each turn takes this time. */
            assert_true(p->flight_ns >= 0 && p->flight_ns % 7 == 0);
        }
    }
    assert_int_equal(sent, got);
    if (!is.codec->encode) assert_int_equal(sent, logical);
}

static void each_order_gives_the_bits_of_one_tree(void **state) {
    (void)state;
    static const size_t sizes[] = {WHOLE, SHORT};
    for (size_t l = 0; l < LAYOUTS; l++)
        /* 6 combinations: short first bucket or not; shared memory, messages, encoded messages */
        for (int way = 0; way < 6; way++) {
            const size_t elems = sizes[way % 2];
            layout one = layouts[l];
            memory_refused = way / 2 == 1;
            if (way / 2 == 2) one.codec = &bt_codec_exact;
            const bool discard = one.shards > 1 && way % 2;
            create_all(&one, elems, discard);
            for (uint64_t step = 0; step < 4; step++) {
                begin_step(elems);
                finish_step(100 * l + 10 * (uint64_t)way + step);
                all_have_the_sum(elems, discard);
                check_sent_equals_received();
                n_messages = 0;
            }
            for (int k = 0; k < n_ranks; k++) {
                const bool on_host = (k > 0 && host_of(k) == host_of(k - 1)) ||
                                     (k + 1 < n_ranks && host_of(k) == host_of(k + 1));
                const bool several = host_of(n_ranks - 1) != host_of(0);
                assert_int_equal(bt_exchange_shares_memory(ranks[k].x),
                                 on_host && !memory_refused && (several || way / 2 == 0));
            }
            destroy_all();
        }
    memory_refused = false;
}

/* Whole pages of parts that belong to other ranks are released to the system; if it refuses, they are set to zero like
 * the other bytes. */
static void pages_of_other_ranks_are_released(void **state) {
    (void)state;
    const layout two = {.ranks = 2, .shards = 2, .hosts = "2"};
    for (int way = 0; way < 4; way++) { /* parts begin at a page boundary or within a page */
        const size_t elems = way / 2 ? ELEMS_MOST - 96 : ELEMS_MOST;
        const bool refused = way % 2;
        int n = 0;
        create_all(&two, elems, true);
        memset(&given_back, 0, sizeof given_back);
        given_back.refused = refused;
        begin_step(elems);
        finish_step(7);
        all_have_the_sum(elems, true);
        for (int k = 0; k < 2; k++)
            for (size_t b = 0; b < buckets.n; b++) {
                const bt_range r = bt_bucket_at(&buckets, b);
                /* the half of the other rank */
                const size_t half = (r.end - r.begin) / 2, from = r.begin + (k ? 0 : half);
                const uintptr_t lo = (uintptr_t)(ranks[k].grads + from),
                                hi = (uintptr_t)(ranks[k].grads + from + half);
                const uintptr_t first = (lo + PAGE - 1) / PAGE;
                int seen = 0;
                for (int i = 0; i < given_back.n; i++)
                    seen += (uintptr_t)given_back.at[i] / PAGE == first &&
                            given_back.pages[i] == hi / PAGE - first;
                assert_int_equal(seen, 1);
                n++;
            }
        assert_int_equal(given_back.n, n);
        destroy_all();
    }
    memset(&given_back, 0, sizeof given_back);
}

/* Checks the counters of rank 0 and the last rank: rounds of the step's buckets, bytes sent, messages received. They
 * are equal for shared memory and messages, unless parts are divided; each exchange counts its rounds. */
static void each_rank_counts_its_messages(void **state) {
    (void)state;
    static const struct {
        int64_t rounds[2], sent[2], came[2]; /* values of the first and of the last rank */
    } want[LAYOUTS][2] = {{{{6, 6}, {2304, 2304}, {6, 6}}, {{6, 6}, {2304, 2304}, {6, 6}}},
                          {{{6, 6}, {2304, 2304}, {6, 6}}, {{6, 6}, {2304, 2304}, {6, 6}}},
                          {{{6, 6}, {3072, 4608}, {15, 12}}, {{6, 6}, {3072, 4608}, {15, 12}}},
                          {{{9, 9}, {4032, 5760}, {24, 21}}, {{9, 9}, {4032, 5760}, {24, 21}}},
                          {{{3, 3}, {1728, 1728}, {27, 27}}, {{3, 3}, {1728, 1728}, {9, 9}}},
                          {{{12, 12}, {3840, 4608}, {33, 33}}, {{12, 12}, {3840, 4608}, {33, 33}}},
                          {{{12, 9}, {3840, 4992}, {51, 33}}, {{12, 9}, {3840, 4992}, {51, 33}}},
                          {{{6, 6}, {2304, 4224}, {21, 18}}, {{6, 6}, {2304, 4224}, {21, 18}}},
                          {{{6, 6}, {2304, 2304}, {18, 18}}, {{6, 6}, {2304, 2304}, {18, 18}}},
                          {{{6, 6}, {5760, 5760}, {102, 102}}, {{6, 6}, {5760, 5760}, {51, 51}}}};
    for (size_t l = 0; l < LAYOUTS; l++)
        for (int refused = 0; refused < 2; refused++) {
            memory_refused = refused;
            create_all(&layouts[l], WHOLE, false);
            begin_step(WHOLE);
            finish_step(5);
            for (int k = 0; k < 2; k++) {
                const exchange_rank *r = &ranks[k ? n_ranks - 1 : 0];
                int64_t came = 0;
                for (int d = 0; d < n_ranks; d++) came += r->from[d].messages;
                assert_int_equal(r->counted.rounds, want[l][refused].rounds[k]);
                assert_int_equal(r->counted.bytes_wire, want[l][refused].sent[k]);
                assert_int_equal(came, want[l][refused].came[k]);
                assert_true(refused || want[l][0].sent[k] == want[l][1].sent[k]);
            }
            n_messages = 0;
            destroy_all();
        }
    memory_refused = false;
}

/* Two ranks exchange bucket by bucket; the test's clock defines the duration of each message. */
static void flights_are_timed(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        memory_refused = refused;
        create_all(&layouts[0], WHOLE, false);
        begin_step(WHOLE);
        now_ns = 1000;
        assert_int_equal(turn_of(0), BT_OK); /* posts its receive at time 1007 */
        now_ns = 5000;
        /* At time 5007 the other rank has posted its receive and tests at once. */
        assert_int_equal(turn_of(1), BT_OK);
        now_ns = 9000;
        assert_int_equal(turn_of(0), BT_OK);
        /* The receive of the first bucket was posted at 1007; the later one completed at once. */
        assert_int_equal(ranks[0].from[1].flight_ns, 9007 - 1007);
        assert_int_equal(ranks[0].from[1].messages, refused ? 1 : 2);
        finish_step(1);
        n_messages = 0;
        destroy_all();
    }
    memory_refused = false;
}

static void drive_rank_1(void) {
    const int me = now_is;
    assert_int_equal(turn_of(1), BT_OK);
    now_is = me;
}

static void a_rank_that_waits_sleeps_until_it_is_woken(void **state) {
    (void)state;
    create_all(&layouts[0], WHOLE, false);
    begin_step(WHOLE);
    assert_int_equal(turn_of(0), BT_OK); /* There is progress. */
    bt_exchange_rest(ranks[0].x);
    assert_int_equal(turn_of(0), BT_OK);
    assert_int_equal(turn_of(0), BT_OK);
    assert_int_equal(turn_of(0), BT_OK);
    const int64_t still = now_ns;
    /* A rank that has been idle only briefly does not sleep. */
    bt_exchange_rest(ranks[0].x);
    now_ns = still + 40000;
    bt_exchange_rest(ranks[0].x);
    assert_int_equal(futex.sleeps, 0);
    now_ns = still + 60000;
    bt_exchange_rest(ranks[0].x); /* There is no progress. */
    assert_int_equal(futex.sleeps, 1);
    assert_int_equal(futex.nap_ns, 1000000);
    assert_int_equal(futex.seen, 0);
    assert_int_equal(futex.wakes, 0);
    while_asleep = drive_rank_1;
    bt_exchange_rest(ranks[0].x);
    assert_int_equal(futex.sleeps, 2);
    assert_true(futex.wakes > 0);
    while_asleep = NULL;
    /* Only a sleeping rank is woken. */
    const int wakes = futex.wakes;
    const size_t done = ranks[0].done;
    assert_int_equal(turn_of(1), BT_OK);
    assert_int_equal(futex.wakes, wakes);
    assert_int_equal(turn_of(0), BT_OK);
    assert_true(ranks[0].done > done);
    bt_exchange_rest(ranks[0].x); /* There was progress. */
    assert_int_equal(futex.sleeps, 2);
    finish_step(3);
    all_have_the_sum(WHOLE, false);
    destroy_all();
    /* A rank that waits for messages does not sleep. */
    memory_refused = true;
    create_all(&layouts[0], WHOLE, false);
    begin_step(WHOLE);
    for (int k = 0; k < 4; k++) assert_int_equal(turn_of(0), BT_OK);
    now_ns += 1000000;
    bt_exchange_rest(ranks[0].x);
    assert_int_equal(futex.sleeps, 0);
    finish_step(4);
    n_messages = 0;
    destroy_all();
    memory_refused = false;
}

/* A rank that is several steps ahead sleeps until the ranks that still read its data have finished. */
static void data_are_not_overwritten_while_read(void **state) {
    (void)state;
    create_all(&layouts[0], WHOLE, false);
    for (uint64_t step = 0; step < 40; step++) { /* slots are used again */
        begin_step(WHOLE);
        finish_step(step);
        all_have_the_sum(WHOLE, false);
    }
    destroy_all();
    create_all(&layouts[4], WHOLE, false);
    for (uint64_t step = 0; step < 10; step++) {
        begin_step(WHOLE);
        /* Rank 0 always runs first. */
        for (int k = 0; k < 50; k++) assert_int_equal(turn_of(0), BT_OK);
        now_ns += 60000;
        bt_exchange_rest(ranks[0].x);
        finish_step(step);
        all_have_the_sum(WHOLE, false);
    }
    assert_true(futex.sleeps > 0);
    destroy_all();
}

/* The tags of a later round are above all tags of the previous round. */
static bool is_message_of_sums(int i) { return messages[i].tag >= messages[0].tag + 6000; }

/* Invalid payloads are refused, both of gradients and of returning sums. */
static void invalid_payloads_are_refused(void **state) {
    (void)state;
    memory_refused = true;
    for (int back = 0; back < 2; back++) {
        layout one = {.ranks = 2, .shards = 1, .hosts = "1,1", .codec = &bt_codec_exact};
        bt_code code = BT_OK;
        int damaged = 0;
        create_all(&one, WHOLE, false);
        begin_step(WHOLE);
        for (int k = 0; k < 40 && code == BT_OK; k++) {
            const int before = n_messages;
            code = turn_of(k % 2);
            for (int i = before; i < n_messages; i++)
                if (messages[i].sends && is_message_of_sums(i) == back)
                    messages[i].bytes--, damaged++;
        }
        assert_true(damaged > 0);
        assert_int_equal(code, BT_CHECK);
        char want[300];
        const char *bytes = strstr(err.msg, "sent ");
        assert_non_null(bytes);
        snprintf(want, sizeof want,
                 "another rank sent %d bytes that are not %zu gradients encoded by --codec int8: "
                 "they were damaged on their way, or the ranks' settings differ (nothing of them "
                 "was added)",
                 atoi(bytes + 5), buckets.elems / 2);
        assert_string_equal(err.msg, want);
        /* one byte per element, and scales */
        assert_true(atoi(bytes + 5) > (int)buckets.elems / 2);
        n_messages = 0;
        destroy_all();
    }
    memory_refused = false;
}

static void a_failing_call_is_reported(void **state) {
    (void)state;
    static const struct {
        const char *fails;
        const bt_codec *codec;
    } rows[] = {{"irecv", NULL}, {"isend", NULL}, {"test", NULL}, {"count", &bt_codec_exact}};
    memory_refused = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t l = 0; l < LAYOUTS; l++) {
            layout one = layouts[l];
            one.codec = rows[i].codec;
            create_all(&one, WHOLE, false);
            begin_step(WHOLE);
            fails_at = n_ranks - 1;
            call_fails = rows[i].fails;
            bt_code code = BT_OK;
            for (int k = 0; k < 4000 && code == BT_OK; k++) code = turn_of(k % n_ranks);
            call_fails = NULL;
            assert_int_equal(code, BT_MPI);
            message_has(err.msg, "gradient exchange failed");
            n_messages = 0;
            destroy_all();
        }
    memory_refused = false;
    /* calls that fail during creation */
    static const char *const calls[] = {"split", "memory"};
    for (int i = 0; i < 2; i++) {
        create_all(&layouts[0], WHOLE, false);
        destroy_all();
        call_fails = calls[i];
        fails_at = 0;
        assert_int_equal(create_one(0, false), BT_MPI);
        call_fails = NULL;
        assert_null(ranks[0].x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_order_gives_the_bits_of_one_tree),
        cmocka_unit_test(pages_of_other_ranks_are_released),
        cmocka_unit_test(each_rank_counts_its_messages),
        cmocka_unit_test(flights_are_timed),
        cmocka_unit_test(a_rank_that_waits_sleeps_until_it_is_woken),
        cmocka_unit_test(data_are_not_overwritten_while_read),
        cmocka_unit_test(invalid_payloads_are_refused),
        cmocka_unit_test(a_failing_call_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
