/* test_wires.c - predicted cost of exchanging gradients within a host: through shared memory if that was measured and
 * is used, otherwise by messages. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/plan/wires.h"

static const double ELEMS = 1e6;
static const bt_mesh_shape REPLICAS = {.pp = 1, .dp_replicate = 4, .dp_shard = 1, .tp = 1},
                           SHARDS = {.pp = 1, .dp_replicate = 1, .dp_shard = 4, .tp = 1},
                           BOTH = {.pp = 1, .dp_replicate = 2, .dp_shard = 2, .tp = 1};
static bt_run_cfg cfg;
static bt_rates r;

static void near(double a, double b) { assert_true(fabs(a - b) <= 1e-9 * fabs(b)); }

/* Four ranks of this machine, and pairs of them; only links, digests and sums cost time. */
static int begin(void **state) {
    (void)state;
    memset(&cfg, 0, sizeof cfg);
    memset(&r, 0, sizeof r);
    r.add_s = 1e-9;
    r.norm = (bt_elem_rate){2e-10, 2e-10};
    r.codec[BT_CODEC_BF16] = (bt_codec_rate){.wire_bytes = 2};
    const bt_link_rate links[] = {{.world = 4,
                                   .n = 4,
                                   .stride = 1,
                                   .latency_s = 1e-6,
                                   .bytes_per_s = 1e9,
                                   .grads_sum_s = 3e-9,
                                   .grads_back_s = 1e-9},
                                  {.world = 4,
                                   .n = 2,
                                   .stride = 1,
                                   .latency_s = 1e-6,
                                   .bytes_per_s = 1e9,
                                   .grads_sum_s = 2e-9,
                                   .grads_back_s = 1e-9}};
    bt_rates_put_links(&r, links, 2);
    return 0;
}

static bt_exchange_cost exchange_time(const bt_cluster *c, const bt_mesh_shape *shape) {
    return bt_wire_exchange(&r, c, &cfg, shape, ELEMS);
}

static void gradients_within_a_host_cost_memory_time(void **state) {
    (void)state;
    const bt_cluster here = {.ranks = 4, .ranks_per_host = 4};
    bt_exchange_cost cost = exchange_time(&here, &REPLICAS);
    near(cost.cpu_s, 3e-9 + 1e-9); /* sums and digest are included */
    assert_true(cost.wire_s == 0 && cost.latency_s == 0);
    near(cost.bytes, 2 * 0.75 * 4); /* the number of sent bytes does not change */
    cfg.mesh.zero = 1;
    near(exchange_time(&here, &SHARDS).cpu_s, 3e-9);
    /* One other rank needs each sum, instead of three. */
    near(exchange_time(&here, &BOTH).cpu_s, 3e-9 + 1e-9 / 3);
}

static void encoded_gradients_are_messages(void **state) {
    (void)state;
    const bt_cluster here = {.ranks = 4, .ranks_per_host = 4};
    cfg.parallel.codec = BT_CODEC_BF16;
    bt_exchange_cost cost = exchange_time(&here, &REPLICAS);
    near(cost.cpu_s, 2 * 0.75 * 2 / 1e9 + 2e-10);
    near(cost.latency_s, 2e-6);
}

static void gradients_without_shared_memory_are_messages(void **state) {
    (void)state;
    const bt_cluster here = {.ranks = 4, .ranks_per_host = 4};
    r.links[0].grads_sum_s = r.links[0].grads_back_s = 0;
    bt_exchange_cost cost = exchange_time(&here, &REPLICAS);
    near(cost.cpu_s, 2 * 0.75 * 4 / 1e9 + 0.75 * 1e-9 + 2e-10);
    near(cost.latency_s, 2e-6);
}

/* Two ranks of a host add through memory before anything is sent to another host, whatever the codec between hosts. */
static void hosts_add_through_memory_first(void **state) {
    (void)state;
    const bt_cluster two = {
        .ranks = 4, .ranks_per_host = 2, .simulated = true, .bytes_per_s = 1e9, .latency_s = 1e-5};
    bt_exchange_cost cost = exchange_time(&two, &REPLICAS);
    /* A relay handles half of what its host receives. */
    near(cost.cpu_s, 2e-9 + 1e-9 + 0.5 * 1e-9 / 2);
    near(cost.latency_s, 2e-5);
    cfg.parallel.codec = BT_CODEC_BF16;
    near(exchange_time(&two, &REPLICAS).cpu_s, 2e-9 + 1e-9);
}

/* Eight ranks of a simulated host send 7/8 of the bytes, while the largest measured group of four ranks sends 3/4. */
static void larger_groups_are_scaled(void **state) {
    (void)state;
    const bt_cluster host = {
        .ranks = 8, .ranks_per_host = 8, .simulated = true, .bytes_per_s = 1e9};
    const bt_mesh_shape eight = {.pp = 1, .dp_replicate = 8, .dp_shard = 1, .tp = 1};
    near(exchange_time(&host, &eight).cpu_s, 4e-9 * (7.0 / 8) / (3.0 / 4));
}

/* Six ranks on hosts with 4 and 2: pairs are on one host, a group of four is not, and both hosts send. */
static void unequal_hosts_send_their_own_bytes(void **state) {
    (void)state;
    const bt_cluster unequal = {.ranks = 6,
                                .ranks_per_host = 4,
                                .hosts = 2,
                                .ranks_together = 2,
                                .simulated = true,
                                .bytes_per_s = 1e9,
                                .latency_s = 1e-5};
    assert_int_equal(bt_cluster_hosts(&unequal), 2);
    assert_int_equal(bt_cluster_fullest(&unequal), 4);
    assert_int_equal(bt_cluster_together(&unequal), 2);
    assert_true(bt_wire_of(&r, &unequal, 2, 1).copies);
    assert_false(bt_wire_of(&r, &unequal, 4, 1).copies);
    assert_false(bt_wire_of(&r, &unequal, 3, 1).copies);
    const bt_cluster equal = {
        .ranks = 6, .ranks_per_host = 3, .simulated = true, .bytes_per_s = 1e9};
    assert_int_equal(bt_cluster_hosts(&equal), 2);
    assert_int_equal(bt_cluster_together(&equal), 3);
    assert_true(bt_wire_of(&r, &equal, 3, 1).copies);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gradients_within_a_host_cost_memory_time, begin),
        cmocka_unit_test_setup(encoded_gradients_are_messages, begin),
        cmocka_unit_test_setup(gradients_without_shared_memory_are_messages, begin),
        cmocka_unit_test_setup(hosts_add_through_memory_first, begin),
        cmocka_unit_test_setup(larger_groups_are_scaled, begin),
        cmocka_unit_test_setup(unequal_hosts_send_their_own_bytes, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
