/* test_simulate.c - descriptions of clusters, checkpoint intervals compared with the papers' formulas and a simulated
 * job, and a simulated cluster whose times are computed by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/simulate.h"
#include "engine/plan/wires.h"

static void descriptions_are_parsed(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    int hosts, ranks;
    double rate, latency, x;
    assert_int_equal(bt_sim_parse_hosts("512x8", &hosts, &ranks, &err), BT_OK);
    assert_true(hosts == 512 && ranks == 8);
    static const char *const wrong[] = {"",    "512",  "x8",       "512x",    "512x8x1",
                                        "0x8", "-1x4", "512x9000", "70000x1", "4000000000x8"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(bt_sim_parse_hosts(wrong[i], &hosts, &ranks, &err), BT_ARG);
    /* A number beyond any integer is shown as it was typed. */
    assert_int_equal(bt_sim_parse_hosts("99999999999999999999x8", &hosts, &ranks, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "--simulate 99999999999999999999x8 is too large: a job has"));
    assert_int_equal(bt_sim_parse_link("25Gbit,5us", "--link", &rate, &latency, &err), BT_OK);
    assert_true(rate == 25e9 / 8 && fabs(latency - 5e-6) < 1e-18);
    assert_int_equal(bt_sim_parse_link("1.5GB,2ms", "--link", &rate, &latency, &err), BT_OK);
    assert_true(rate == 1.5e9 && latency == 2e-3);
    static const char *const links[] = {"",
                                        "25Gbit",
                                        "25,5us",
                                        "25Gbit,5",
                                        "fast,5us",
                                        "0Gbit,5us",
                                        "25Gbit,-5us",
                                        "nanGbit,5us",
                                        "25Gbit,5us,3",
                                        "1e30Gbit,5us",
                                        "1e-9kbit,5us",
                                        "25Gbit,61s"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        assert_int_equal(bt_sim_parse_link(links[i], "--link", &rate, &latency, &err), BT_ARG);
    assert_int_equal(bt_sim_parse_bytes("64GiB", "--memory", &x, &err), BT_OK);
    assert_true(x == 64.0 * 1073741824.0);
    static const char *const sizes[] = {"64", "", "1e9TiB", "0.5MB"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(bt_sim_parse_bytes(sizes[i], "--memory", &x, &err), BT_ARG);
    assert_int_equal(bt_sim_parse_time("8h", "--mtbf", &x, &err), BT_OK);
    assert_true(x == 8 * 3600.0);
    static const char *const times[] = {"8 h", "", "never", "0.5s", "1e9d", "infh"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        assert_int_equal(bt_sim_parse_time(times[i], "--mtbf", &x, &err), BT_ARG);
}

static void intervals_follow_young_and_daly(void **state) {
    (void)state;
    bt_goodput g = bt_goodput_of(10, 60, 8 * 3600);
    assert_true(fabs(g.young_s - sqrt(2 * 10 * 8 * 3600.0)) < 1e-9);
    assert_true(fabs(g.daly_s / g.young_s - 1) < 0.02);
    /* Daly's interval is the best one within the error of its approximation. */
    for (double f = 0.5; f < 2; f *= 1.1)
        assert_true(bt_goodput_at(f * g.daly_s, 10, 60, 8 * 3600) <= g.frac * (1 + 1e-4));
    g = bt_goodput_of(1000, 60, 300); /* a whole interval is almost never reached */
    assert_true(g.daly_s == 300 && g.frac > 0 && g.frac < 0.05);
    assert_true(bt_goodput_of(10, 60, 0).frac == 1);
}

/* The formula equals a job that is simulated failure by failure. */
static void goodput_equals_that_of_a_simulated_job(void **state) {
    (void)state;
    const double interval = 600, ckpt = 30, restart = 90, mtbf = 7200;
    double wall = 0, useful = 0, fails = 0, began = 0;
    uint64_t n = 0;
    while (useful < 4e7) {
        if (fails <= wall) { /* time of the next failure, measured from the restart */
            fails = wall - mtbf * log(1 - bt_rng_unit(7, 1, n++));
            began = wall;
        }
        double segment = began == wall && wall > 0 ? restart + interval + ckpt : interval + ckpt;
        if (wall + segment <= fails) {
            wall += segment;
            useful += interval;
            began = -1;
        } else {
            wall = fails;
        }
    }
    double want = bt_goodput_at(interval, ckpt, restart, mtbf);
    assert_true(fabs(useful / wall / want - 1) < 0.02);
}

/* 4 hosts of 2 ranks each with replicas of a model: the two ranks of a host add, then the hosts exchange; bytes and
 * rounds are computed by hand. */
static void bytes_between_hosts_are_counted(void **state) {
    (void)state;
    static bt_run_cfg cfg;
    static bt_rates r;
    memset(&r, 0, sizeof r);
    r.codec[0].wire_bytes = 4;
    const bt_cluster c = {
        .ranks = 8, .ranks_per_host = 2, .simulated = true, .bytes_per_s = 1e9, .latency_s = 1e-5};
    const bt_mesh_shape all = {.pp = 1, .dp_replicate = 8, .dp_shard = 1, .tp = 1};
    bt_exchange_cost cost = bt_wire_exchange(&r, &c, &cfg, &all, 1e6);
    /* Per element: 2 x 3/4 x 4 bytes between hosts, half by each of two relays, which have half of the link each. */
    assert_true(fabs(cost.wire_s - 2 * 0.75 * 4 / 2 / (1e9 / 2)) < 1e-18);
    assert_true(fabs(cost.bytes - (2 * 0.75 * 4 / 2 + 2 * 0.5 * 4)) < 1e-12);
    assert_true(cost.latency_s >= 2e-5);
    /* In tensor-parallel pairs each group has one rank per host, so nothing is added within a host. */
    const bt_mesh_shape pairs = {.pp = 1, .dp_replicate = 4, .dp_shard = 1, .tp = 2};
    cost = bt_wire_exchange(&r, &c, &cfg, &pairs, 1e6);
    assert_true(fabs(cost.bytes - 2 * 0.75 * 4) < 1e-12);
    assert_true(fabs(cost.wire_s - 2 * 0.75 * 4 / (1e9 / 2)) < 1e-18);
    assert_true(fabs(cost.latency_s - 2e-5) < 1e-18);
    /* Sums that remain with their owners are sent in one direction. */
    cfg.mesh.zero = 1;
    const bt_mesh_shape shards = {.pp = 1, .dp_replicate = 1, .dp_shard = 4, .tp = 2};
    cost = bt_wire_exchange(&r, &c, &cfg, &shards, 1e6);
    assert_true(fabs(cost.bytes - 0.75 * 4) < 1e-12);
    assert_true(fabs(cost.latency_s - 1e-5) < 1e-18);
}

/* A model that exceeds the memory is refused with numbers. */
static void too_little_memory_is_reported(void **state) {
    static bt_opts o;
    static bt_run_cfg cfg;
    static bt_rates r;
    (void)state;
    bt_err err = BT_ERR_INIT;
    bool help;
    char *words[] = {"--preset", "base", "--threads", "1"};
    assert_int_equal(bt_run_cfg_read(&o, &cfg, 4, words, &help, &err), BT_OK);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    bt_layout_search s = {.cfg = &cfg,
                          .may = bt_layout_freedom_of(&o),
                          .cluster = {.ranks = 4,
                                      .ranks_per_host = 2,
                                      .simulated = true,
                                      .bytes_per_s = 1e9,
                                      .latency_s = 1e-5,
                                      .memory_bytes = 64e6}};
    bt_sim_point p;
    assert_int_equal(bt_sim_point_of(&p, &s, &r, &err), BT_OK);
    assert_non_null(strstr(p.refused, "no layout of 4 ranks fits"));
    assert_non_null(strstr(p.refused, "too little"));
}

/* A probe that runs out of time has measured the slices of every tensor-parallel size. */
static void shapes_of_all_slices_are_first(void **state) {
    static bt_opts o;
    static bt_run_cfg cfg;
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_layouts l;
    bt_part_shape shapes[48];
    bool help;
    char *words[] = {"--preset", "small", "--threads", "1"};
    assert_int_equal(bt_run_cfg_read(&o, &cfg, 4, words, &help, &err), BT_OK);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    const bt_layout_search s = {.cfg = &cfg,
                                .may = bt_layout_freedom_of(&o),
                                .cluster = {.ranks = 4, .ranks_per_host = 4, .cores = 4}};
    assert_int_equal(bt_layouts_find(&l, &s, &err), BT_OK);
    size_t n = bt_layouts_shapes(&l, &s, shapes, 48);
    assert_true(n > 12);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(shapes[i].kind, i % 2 ? BT_PART_HEAD : BT_PART_LAYER);
        assert_int_equal(shapes[i].tp, 1 << i / 2);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_false(bt_part_same(&shapes[i], &shapes[k]));
    bt_layouts_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions_are_parsed),
        cmocka_unit_test(intervals_follow_young_and_daly),
        cmocka_unit_test(goodput_equals_that_of_a_simulated_job),
        cmocka_unit_test(bytes_between_hosts_are_counted),
        cmocka_unit_test(too_little_memory_is_reported),
        cmocka_unit_test(shapes_of_all_slices_are_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
