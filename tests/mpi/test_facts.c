// ctest: ranks=4
/* Facts of a run on several ranks: sizes of groups, placement, and a warning if ranks that communicate in every layer
 * are on different hosts. The test replaces gethostname. */
#include "tests/tiny_run.h"

#include <unistd.h>

static fake_sink sink;
static const char *const *names; /* host name of each rank; NULL: one host */

int gethostname(char *name, size_t n) {
    snprintf(name, n, "%s", names ? names[bt_comm_rank(bt_comm_world())] : "here");
    return 0;
}

static bool is_first(void) { return bt_comm_rank(bt_comm_world()) == 0; }

static void train(const char *const *words) {
    bt_run_cfg cfg;
    tiny_cfg(&cfg, words);
    tiny_run(&cfg, &sink, NULL, "");
}

static void fact_is(const char *key, const char *want) {
    const char *got = fake_fact(&sink, key);
    if (!got || strcmp(got, want) != 0) fail_msg("%s is %s, not %s", key, got ? got : "none", want);
}

static const char *check_placement_warning(void) {
    for (size_t i = 0; i < sink.n_events; i++)
        if (strstr(sink.events[i].title, "tensor-parallel groups span"))
            return sink.events[i].title;
    return NULL;
}

static void groups_on_several_hosts_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *hosts[4], *tp, *says;
    } rows[] = {{{"a", "a", "b", "b"}, "2", NULL},
                {{"a", "a", "a", "b"}, "2", "1 of 2 tensor-parallel groups span"},
                {{"a", "b", "b", "b"}, "2", "1 of 2 tensor-parallel groups span"},
                {{"a", "b", "c", "d"}, "2", "2 of 2 tensor-parallel groups span"},
                {{"a", "b", "c", "d"}, "1", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        names = rows[i].hosts;
        train((const char *const[]){"--steps", "1", "--tp", rows[i].tp, NULL});
        names = NULL;
        if (!is_first()) continue;
        assert_int_equal(sink.n_ranks, 4);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(sink.ranks[r].rank, r);
            assert_string_equal(sink.ranks[r].host, rows[i].hosts[r]);
            assert_int_equal(sink.ranks[r].tp, rows[i].tp[0] == '2' ? r % 2 : 0);
            assert_int_equal(sink.ranks[r].dp_replicate, rows[i].tp[0] == '2' ? r / 2 : r);
        }
        if (!rows[i].says)
            assert_null(check_placement_warning());
        else if (!check_placement_warning() ||
                 strncmp(check_placement_warning(), rows[i].says, strlen(rows[i].says)) != 0)
            fail_msg("'%s' does not contain '%s'",
                     check_placement_warning() ? check_placement_warning() : "", rows[i].says);
    }
}

static void sizes_are_those_of_the_layout(void **state) {
    (void)state;
    train((const char *const[]){"--steps", "1", "--tp", "2", "--codec", "bf16", NULL});
    if (is_first()) {
        fact_is("world_size", "4");
        fact_is("dp_size", "2");
        fact_is("comm.on_host", "messages"); /* MPI sends encoded gradients. */
        fact_is("codec", "bf16");
        fact_is("accum", "2");
    }
    train((const char *const[]){"--steps", "1", NULL});
    if (is_first()) {
        fact_is("dp_size", "4");
        fact_is("comm.on_host", "memory");
        fact_is("accum", "1");
    }
    train((const char *const[]){"--steps", "1", "--tp", "4", NULL});
    if (is_first()) {
        fact_is("dp_size", "1");
        assert_null(fake_fact(&sink, "comm.on_host"));
    }
}

/* A link has either its figures or a note that they are missing; an axis with one rank has neither. */
static void links_are_measured_or_marked_unmeasured(void **state) {
    (void)state;
    train((const char *const[]){"--steps", "1", NULL});
    if (!is_first()) return;
    static const char *const axes[] = {"dp", "tp", "pp"};
    for (size_t i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof key, "link.%s.measured", axes[i]);
        const char *no = fake_fact(&sink, key);
        snprintf(key, sizeof key, "link.%s.latency_s", axes[i]);
        const char *latency = fake_fact(&sink, key);
        snprintf(key, sizeof key, "link.%s.bytes_per_s", axes[i]);
        const char *rate = fake_fact(&sink, key);
        assert_true(!latency == !rate && !(no && rate));
        assert_int_equal(no || rate, i == 0);
        if (rate) assert_true(atof(rate) > 0 && atof(latency) > 0);
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_on_several_hosts_are_reported),
                                       cmocka_unit_test(sizes_are_those_of_the_layout),
                                       cmocka_unit_test(links_are_measured_or_marked_unmeasured)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1); /* Other ranks may wait for this rank, so the job is aborted. */
    bt_comm_finalize();
    return failed;
}
