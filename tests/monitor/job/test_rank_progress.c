/* test_rank_progress.c - shared pages in which ranks record their positions: they show which rank delays which other
 * rank, even after the ranks died. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/health/rank_progress.h"

#define SECOND INT64_C(1000000000)

static char folder[] = "/tmp/bt_places_XXXXXX", path[64];

static int make(void **state) {
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/places", folder);
    return 0;
}

static int drop(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void set_position(bt_rank_progress *p, int rank, bt_activity at, int64_t step,
                         double since_s) {
    bt_progress_enter(&p->slot[rank], at, step);
    atomic_store(&p->slot[rank].since_ns, (int64_t)(since_s * 1e9));
}

static void open_places(bt_rank_progress *p, int n) {
    bt_err err = BT_ERR_INIT;
    if (bt_rank_progress_open(p, path, n, &err) != BT_OK) fail_msg("%s", err.msg);
}

/* A rank maps its page for life; the test unmaps it. */
static void unmap_page(bt_progress_page *mine) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    assert_non_null(mine);
    assert_int_equal(munmap((void *)((uintptr_t)mine / page * page), page), 0);
}

static const char *describe_progress(const bt_rank_progress *p, double now_s, int *rank) {
    static char out[200];
    return bt_rank_progress_describe_all(p, (int64_t)(now_s * 1e9), out, sizeof out, rank) ? out
                                                                                           : NULL;
}

/* The mark is set in a rank's own mapping and visible in the supervisor's. */
static void a_rank_that_ends_itself_is_marked(void **state) {
    (void)state;
    bt_rank_progress p;
    open_places(&p, 3);
    assert_false(bt_rank_progress_failed(&p));
    bt_progress_page *mine = bt_rank_progress_map(path, 2);
    assert_non_null(mine);
    bt_progress_enter(mine, BT_AT_EXCHANGE, 3);
    assert_false(bt_rank_progress_failed(&p));
    atomic_store(&mine->failed, 1);
    assert_true(bt_rank_progress_failed(&p));
    unmap_page(mine);
    bt_rank_progress_close(&p);
}

static void the_rank_behind_is_found(void **state) {
    (void)state;
    bt_rank_progress p;
    int rank;
    open_places(&p, 8);
    assert_null(describe_progress(&p, 100, &rank)); /* No rank is in the exchange. */
    for (int r = 0; r < 8; r++) set_position(&p, r, BT_AT_EXCHANGE, 17, 60 + r);
    assert_string_equal(describe_progress(&p, 100, &rank),
                        "all ranks are in the exchange of step 18 since 33.0 "
                        "s"); /* time since the last rank arrived */
    assert_string_equal(describe_progress(&p, 67.9, &rank),
                        "all ranks are in the exchange of step 18");
    assert_int_equal(rank, -1);
    set_position(&p, 5, BT_AT_DATA, 17, 59);
    assert_string_equal(
        describe_progress(&p, 100, &rank),
        "rank 5 is in data of step 18 since 41.0 s; other ranks wait in the exchange of step 18");
    assert_int_equal(rank, 5);
    /* Data and compute alternate, so neither precedes the other. */
    set_position(&p, 2, BT_AT_COMPUTE, 17, 58);
    assert_string_equal(describe_progress(&p, 100, &rank),
                        "2 ranks (first of them rank 2) are in forward and backward of step 18 "
                        "since 42.0 s; other ranks wait in the exchange of step 18");
    assert_int_equal(rank, -1);
    set_position(&p, 2, BT_AT_RECORD, 16, 58); /* a whole step behind */
    describe_progress(&p, 100, &rank);
    assert_int_equal(rank, 2);
    bt_rank_progress_close(&p);
    char says[8] = "before";
    assert_false(bt_rank_progress_describe_all(&p, 0, says, sizeof says, &rank));
    assert_string_equal(says, "");
}

static void a_slow_rank_is_reported_once(void **state) {
    (void)state;
    bt_rank_progress p;
    char out[200];
    int rank;
    open_places(&p, 4);
    for (int r = 0; r < 4; r++) set_position(&p, r, BT_AT_EXCHANGE, 3, 10);
    /* All ranks wait: for the network, or for another host. */
    assert_false(bt_rank_progress_slow(&p, 50 * SECOND, 2, out, sizeof out, &rank));
    set_position(&p, 1, BT_AT_COMPUTE, 3, 9);
    /* not long enough */
    assert_false(bt_rank_progress_slow(&p, 10 * SECOND, 2, out, sizeof out, &rank));
    assert_true(bt_rank_progress_slow(&p, 12 * SECOND, 2, out, sizeof out, &rank));
    assert_int_equal(rank, 1);
    assert_string_equal(
        out,
        "rank 1 is in forward and backward of step 4 since 3.0 s, the other ranks wait for it");
    assert_false(bt_rank_progress_slow(&p, 13 * SECOND, 2, out, sizeof out, &rank));
    set_position(&p, 1, BT_AT_DATA, 4, 14);
    for (int r = 0; r < 4; r++)
        if (r != 1) set_position(&p, r, BT_AT_EXCHANGE, 4, 14);
    /* a second time at the same position */
    assert_true(bt_rank_progress_slow(&p, 17 * SECOND, 2, out, sizeof out, &rank));
    set_position(&p, 1, BT_AT_CHECKPOINT, 3, 14);
    /* It may itself be waiting, so it is not reported. */
    assert_false(bt_rank_progress_slow(&p, 90 * SECOND, 2, out, sizeof out, &rank));
    bt_rank_progress_close(&p);
}

/* One of two ranks can delay the other; a single rank delays none. */
static void one_of_two_ranks_is_slow(void **state) {
    (void)state;
    bt_rank_progress p;
    char out[200];
    int rank;
    open_places(&p, 2);
    set_position(&p, 1, BT_AT_DATA, 3, 9);
    assert_false(bt_rank_progress_slow(&p, 90 * SECOND, 2, out, sizeof out, &rank));
    assert_string_equal(describe_progress(&p, 9.5, &rank),
                        "the ranks of this host are in data of step 4; "
                        "rank 0 is not seen from here");
    set_position(&p, 0, BT_AT_EXCHANGE, 3, 8);
    assert_string_equal(
        describe_progress(&p, 10, &rank),
        "rank 1 is in data of step 4 since 1.0 s; the other in the exchange of step 4");
    assert_int_equal(rank, 1);
    assert_true(bt_rank_progress_slow(&p, 11 * SECOND, 2, out, sizeof out, &rank));
    assert_string_equal(out,
                        "rank 1 is in data of step 4 since 2.0 s, the other ranks wait for it");
    set_position(&p, 0, BT_AT_START, 3, 8);
    set_position(&p, 1, BT_AT_END, 3, 9);
    assert_string_equal(describe_progress(&p, 10, &rank),
                        "rank 0 is at the start since 2.0 s; the other at the end");
    bt_rank_progress_close(&p);
}

static void dead_ranks_keep_their_position(void **state) {
    (void)state;
    bt_rank_progress p;
    int rank;
    open_places(&p, 2);
    set_position(&p, 0, BT_AT_EXCHANGE, 7, 1);
    pid_t child = fork();
    if (child == 0) {
        bt_progress_page *mine = bt_rank_progress_map(path, 1);
        if (!mine) _exit(1);
        bt_progress_enter(mine, BT_AT_DATA, 7);
        raise(SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(atomic_load(&p.slot[1].pid), child);
    assert_non_null(strstr(describe_progress(&p, (double)bt_now_ns() / 1e9, &rank),
                           "rank 1 is in data of step 8"));
    assert_int_equal(rank, 1);
    /* no such slot; no such file */
    assert_null(bt_rank_progress_map(path, 2));
    assert_null(bt_rank_progress_map("/nowhere/places", 0));
    bt_rank_progress_close(&p);
}

/* Ranks of other hosts have no slot here; their delay shows in the waiting time of local ranks. */
static void a_remote_rank_that_is_late_is_reported(void **state) {
    (void)state;
    char out[200];
    bt_rank_progress p;
    int rank;
    open_places(&p, 4);
    set_position(&p, 0, BT_AT_EXCHANGE, 17, 60);
    set_position(&p, 1, BT_AT_EXCHANGE, 17, 58);
    assert_string_equal(
        describe_progress(&p, 70, &rank),
        "the ranks of this host are in the exchange of step 18 since 10.0 s; ranks 2, 3 are not");
    assert_int_equal(rank, -1);
    set_position(&p, 1, BT_AT_DATA, 17, 58); /* The ranks of this host wait for one of them. */
    assert_string_equal(
        describe_progress(&p, 70, &rank),
        "rank 1 is in data of step 18 since 12.0 s; the other in the exchange of step 18");
    assert_int_equal(rank, 1);
    set_position(&p, 1, BT_AT_EXCHANGE, 17, 58);
    set_position(&p, 2, BT_AT_EXCHANGE, 17, 61);
    /* The last of them arrived 9 s ago. */
    assert_false(bt_rank_progress_missing(&p, 70 * SECOND, 10, out, sizeof out, &rank));
    assert_true(bt_rank_progress_missing(&p, 72 * SECOND, 10, out, sizeof out, &rank));
    assert_string_equal(
        out, "rank 3 is not in the exchange of step 18, where the other ranks wait since 11.0 s");
    assert_int_equal(rank, 3);
    /* A late rank is reported once while it remains at its position. */
    assert_false(bt_rank_progress_missing(&p, 80 * SECOND, 10, out, sizeof out, &rank));
    set_position(&p, 1, BT_AT_DATA, 17, 58);
    /* The late rank is on this host. */
    assert_false(bt_rank_progress_missing(&p, 90 * SECOND, 10, out, sizeof out, &rank));
    for (int r = 0; r < 3; r++) set_position(&p, r, BT_AT_PAUSE, 18, 60);
    assert_false(bt_rank_progress_missing(&p, 90 * SECOND, 10, out, sizeof out, &rank));
    for (int r = 0; r < 4; r++) set_position(&p, r, BT_AT_EXCHANGE, 19, 60);
    /* All ranks are in the exchange: the network is slow, no rank is late. */
    assert_false(bt_rank_progress_missing(&p, 90 * SECOND, 10, out, sizeof out, &rank));
    bt_rank_progress_close(&p);

    unlink(path);
    open_places(&p, 8); /* The message contains four ranks and the number of the remaining ranks. */
    for (int n = 4; n >= 2; n--) {
        for (int r = 0; r < 8; r++)
            set_position(&p, r, r < n ? BT_AT_EXCHANGE : BT_AT_NOWHERE, 17, 60);
        describe_progress(&p, 70, &rank);
        assert_int_equal(rank, -1);
        const char *want = n == 4   ? "; ranks 4, 5, 6, 7 are not"
                           : n == 3 ? "; ranks 3, 4, 5, 6 and 1 more are not"
                                    : "; ranks 2, 3, 4, 5 and 2 more are not";
        assert_non_null(strstr(describe_progress(&p, 70, &rank), want));
    }
    assert_true(bt_rank_progress_missing(&p, 72 * SECOND, 10, out, sizeof out, &rank));
    assert_string_equal(out,
                        "one of the ranks 2, 3, 4, 5 and 2 more is not in the exchange of step 18, "
                        "where the other ranks wait since 12.0 s");
    bt_rank_progress_close(&p);
}

/* If the file exists already or its folder does not, an error is returned and no file remains open. */
static void creation_errors_are_returned(void **state) {
    (void)state;
    bt_rank_progress p, again;
    bt_err err = BT_ERR_INIT;
    open_places(&p, 2);
    assert_int_equal(bt_rank_progress_open(&again, path, 2, &err), BT_IO);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(bt_rank_progress_open(&again, "/nowhere/places", 2, &err), BT_IO);
    assert_null(again.slot);
    assert_int_equal(access(path, F_OK), 0); /* the file of the first rank */
    bt_rank_progress_close(&again);
    bt_rank_progress_close(&p);
}

/* Data that a dying rank has half written become a valid position, step and time. */
static void half_written_positions_are_repaired(void **state) {
    (void)state;
    static const struct {
        int at, want_at;
        int64_t step, want_step, since_ns, want_since_ns;
    } rows[] = {{BT_AT_DATA, BT_AT_DATA, 7, 7, 5, 5},
                {BT_AT_DATA, BT_AT_DATA, -1, -1, 0, 0},
                {BT_AT_COUNT - 1, BT_AT_COUNT - 1, INT64_MAX - 1, INT64_MAX - 1, INT64_MAX,
                 INT64_MAX},
                {-1, BT_AT_NOWHERE, -2, -1, -1, 0},
                {BT_AT_COUNT, BT_AT_NOWHERE, INT64_MAX, -1, INT64_MIN, 0},
                {INT32_MIN, BT_AT_NOWHERE, INT64_MIN, -1, 1, 1},
                {INT32_MAX, BT_AT_NOWHERE, 0, 0, 1, 1}};
    bt_rank_progress p;
    open_places(&p, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        atomic_store(&p.slot[0].at, rows[i].at);
        atomic_store(&p.slot[0].step, rows[i].step);
        atomic_store(&p.slot[0].since_ns, rows[i].since_ns);
        const bt_rank_seen s = bt_rank_progress_read(&p, 0);
        if (s.at != rows[i].want_at || s.step != rows[i].want_step ||
            s.since_ns != rows[i].want_since_ns)
            fail_msg("row %zu: at %d, step %lld, since %lld ns", i, s.at, (long long)s.step,
                     (long long)s.since_ns);
    }
    bt_rank_progress_close(&p);
}

/* Positions are ordered within a step and across steps. */
static void positions_are_ordered(void **state) {
    (void)state;
    static const int order[] = {BT_AT_START,      BT_AT_DATA,       BT_AT_EXCHANGE,
                                BT_AT_OPTIMIZER,  BT_AT_EVALUATION, BT_AT_RECORD,
                                BT_AT_CHECKPOINT, BT_AT_PAUSE,      BT_AT_END};
    enum { N = sizeof order / sizeof *order };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            const bt_rank_seen a = {.at = order[i], .step = 5}, b = {.at = order[k], .step = 5},
                               later = {.at = order[k], .step = 6};
            assert_int_equal(bt_rank_before(&a, &b), i < k);
            assert_true(bt_rank_before(&a, &later) && !bt_rank_before(&later, &a));
        }
}

/* Each position has its message, and waiting for a rank there may be reported or not: a rank that may itself be waiting
 * is not reported. */
static void each_position_has_its_message(void **state) {
    (void)state;
    static const struct {
        bt_activity at;
        const char *words;
        bool accused;
    } rows[] = {{BT_AT_START, "at the start", false},
                {BT_AT_DATA, "in data of step 4", true},
                {BT_AT_COMPUTE, "in forward and backward of step 4", true},
                {BT_AT_EXCHANGE, "in the exchange of step 4", false},
                {BT_AT_OPTIMIZER, "in the optimizer of step 4", false},
                {BT_AT_CHECKPOINT, "in a checkpoint of step 4", false},
                {BT_AT_EVALUATION, "in an evaluation of step 4", false},
                {BT_AT_RECORD, "recording measurements of step 4", false},
                {BT_AT_PAUSE, "in a pause of step 4", false},
                {BT_AT_END, "at the end", false},
                {BT_AT_HUB, "in the exchange with the hub of step 4", false}};
    bt_rank_progress p;
    char out[200], want[200];
    int rank;
    open_places(&p, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_rank_seen s = {.at = rows[i].at, .step = 3};
        assert_int_equal(bt_rank_progress_describe(out, sizeof out, &s), strlen(rows[i].words));
        assert_string_equal(out, rows[i].words);
        set_position(&p, 0, BT_AT_EXCHANGE, 4, 1);
        set_position(&p, 1, rows[i].at, 3, 1);
        set_position(&p, 2, BT_AT_OPTIMIZER, 4, 1);
        snprintf(want, sizeof want,
                 "rank 1 is %s since 2.0 s; other ranks wait in the optimizer of step 5",
                 rows[i].words);
        assert_string_equal(describe_progress(&p, 3, &rank), want);
        assert_int_equal(rank, 1);
        rank = -7;
        p.reported_since[1] = 0;
        assert_int_equal(bt_rank_progress_slow(&p, 3 * SECOND, 2, out, sizeof out, &rank),
                         rows[i].accused);
        snprintf(want, sizeof want, "rank 1 is %s since 2.0 s, the other ranks wait for it",
                 rows[i].words);
        if (rows[i].accused) assert_string_equal(out, want);
    }
    bt_rank_progress_close(&p);
}

/* Ranks with a slot wait for one without, at positions where ranks wait only for each other. */
static void positions_where_ranks_wait_for_remote_ones(void **state) {
    (void)state;
    static const bool waits[BT_AT_COUNT] = {[BT_AT_EXCHANGE] = true,
                                            [BT_AT_OPTIMIZER] = true,
                                            [BT_AT_CHECKPOINT] = true,
                                            [BT_AT_EVALUATION] = true,
                                            [BT_AT_RECORD] = true};
    bt_rank_progress p;
    char out[200], want[200], here[80];
    int rank;
    open_places(&p, 3);
    for (int at = BT_AT_NOWHERE + 1; at < BT_AT_COUNT; at++) {
        set_position(&p, 0, (bt_activity)at, 3, 1);
        set_position(&p, 2, (bt_activity)at, 3, 2);
        const bt_rank_seen s = {.at = at, .step = 3};
        bt_rank_progress_describe(here, sizeof here, &s);
        memset(p.reported_since, 0, 3 * sizeof *p.reported_since);
        assert_int_equal(bt_rank_progress_missing(&p, 4 * SECOND, 2, out, sizeof out, &rank),
                         waits[at]);
        snprintf(want, sizeof want, "rank 1 is not %s, where the other ranks wait since 2.0 s",
                 here);
        if (waits[at]) {
            assert_string_equal(out, want);
            assert_int_equal(rank, 1);
            assert_false(bt_rank_progress_missing(&p, 4 * SECOND, 2, out, sizeof out, &rank));
            memset(p.reported_since, 0, 3 * sizeof *p.reported_since);
            assert_false(bt_rank_progress_missing(&p, 4 * SECOND - 1, 2, out, sizeof out, &rank));
        }
        snprintf(want, sizeof want,
                 waits[at] ? "the ranks of this host are %s since 2.0 s; rank 1 is not"
                           : "the ranks of this host are %s since 2.0 s; rank 1 is not seen "
                             "from here",
                 here);
        assert_string_equal(describe_progress(&p, 4, &rank), want);
        assert_int_equal(rank, waits[at] ? 1 : -1);
    }
    bt_rank_progress_close(&p);
    assert_false(bt_rank_progress_missing(&p, 4 * SECOND, 2, out, sizeof out, &rank));
    assert_false(bt_rank_progress_slow(&p, 4 * SECOND, 2, out, sizeof out, &rank));
}

/* A file too short for a rank has no position for it; one that is just long enough has. */
static void positions_of_a_short_file(void **state) {
    (void)state;
    bt_rank_progress p;
    open_places(&p, 2);
    for (int r = 0; r < 2; r++) assert_int_equal(atomic_load(&p.slot[r].pid), 0);
    assert_int_equal(truncate(path, 2 * sizeof(bt_progress_page) - 1), 0);
    assert_null(bt_rank_progress_map(path, 1));
    unmap_page(bt_rank_progress_map(path, 0));
    assert_int_equal(atomic_load(&p.slot[0].pid), getpid());
    assert_int_equal(truncate(path, 2 * sizeof(bt_progress_page)), 0);
    unmap_page(bt_rank_progress_map(path, 1));
    assert_int_equal(atomic_load(&p.slot[1].pid), getpid());
    bt_rank_progress_close(&p);
    assert_true(!p.slot && !p.reported_since && p.n == 0);
    bt_rank_progress_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_that_ends_itself_is_marked, make, drop),
        cmocka_unit_test_setup_teardown(the_rank_behind_is_found, make, drop),
        cmocka_unit_test_setup_teardown(a_slow_rank_is_reported_once, make, drop),
        cmocka_unit_test_setup_teardown(one_of_two_ranks_is_slow, make, drop),
        cmocka_unit_test_setup_teardown(a_remote_rank_that_is_late_is_reported, make, drop),
        cmocka_unit_test_setup_teardown(dead_ranks_keep_their_position, make, drop),
        cmocka_unit_test_setup_teardown(creation_errors_are_returned, make, drop),
        cmocka_unit_test(positions_are_ordered),
        cmocka_unit_test_setup_teardown(each_position_has_its_message, make, drop),
        cmocka_unit_test_setup_teardown(positions_where_ranks_wait_for_remote_ones, make, drop),
        cmocka_unit_test_setup_teardown(positions_of_a_short_file, make, drop),
        cmocka_unit_test_setup_teardown(half_written_positions_are_repaired, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
