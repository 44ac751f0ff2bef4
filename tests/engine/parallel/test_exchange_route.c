/* Routes of the gradient exchange for every division of up to nine ranks into hosts and shards: each node of each part
 * reaches its owner once, each sum reaches each rank that needs it once, relays share the work, and the memory plan
 * equals the formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/parallel/grad/exchange_route.h"
#include "engine/parallel/grad/reducer.h"

enum { MOST = 9 };

typedef struct world {
    int n, shards, hosts[MOST];
    bt_route at[MOST];
} world;

/* hosts: bit d is set if rank d is on another host than rank d - 1. */
static void make_route_world(world *w, int n, int shards, unsigned cuts) {
    bt_err err = BT_ERR_INIT;
    *w = (world){.n = n, .shards = shards};
    for (int d = 1; d < n; d++) w->hosts[d] = w->hosts[d - 1] + (int)(cuts >> d & 1);
    for (int d = 0; d < n; d++) {
        const bt_route_cfg cfg = {.n = n, .me = d, .shards = shards, .hosts = w->hosts, .units = n};
        assert_int_equal(bt_route_init(&w->at[d], &cfg, &err), BT_OK);
    }
}

static void release_route_world(world *w) {
    for (int d = 0; d < w->n; d++) bt_route_release(&w->at[d]);
}

static void check_routes(const world *w, unsigned cuts) {
    const bt_route *r = &w->at[0];
    bool several = w->hosts[w->n - 1] > 0;
    int parts[MOST] = {0};
    assert_int_equal(r->n_host_groups, several ? w->hosts[w->n - 1] + 1 : w->n);
    for (int owner = 0; owner < w->n; owner++) {
        parts[bt_route_part(r, owner)]++;
        /* Each rank contributes one node, and each rank that needs the sum receives it once. */
        int given = 0, got = 0;
        for (int g = 0; g < r->n_host_groups; g++) {
            int relay = bt_route_relay(r, g, owner), needing = 0;
            assert_int_equal(r->host_group[relay], g);
            if (r->host_group[owner] == g) assert_int_equal(relay, owner);
            for (int d = r->first[g]; d < r->first[g + 1]; d++) {
                assert_int_equal(w->at[d].relayed[owner] >= 0, d == relay);
                needing += bt_route_needs(r, d, owner);
                given++;
            }
            /* A sum enters a group at a rank that needs it. */
            if (needing > 0) assert_true(bt_route_needs(r, relay, owner));
            got += needing;
        }
        assert_int_equal(given, w->n);
        assert_int_equal(got, w->n / w->shards);
    }
    for (int p = 0; p < w->n; p++) assert_int_equal(parts[p], 1);
    for (int d = 0; d < w->n; d++) {
        size_t inside = (size_t)(r->first[r->host_group[d] + 1] - r->first[r->host_group[d]]) - 1,
               all = w->at[d].across;
        for (size_t i = 0; i < w->at[d].sums[w->at[d].mine].n; i++) all++;
        size_t nodes = 0;
        for (int g = 0; g < r->n_host_groups; g++) nodes += w->at[d].sums[g].n;
        if (w->at[d].inside != inside || all != nodes)
            fail_msg(
                "%d ranks, hosts cut at %x: rank %d awaits %zu nodes of its group, %zu of others",
                w->n, cuts, d, w->at[d].inside, w->at[d].across);
    }
}

static void every_part_goes_to_its_owner_and_back_once(void **state) {
    (void)state;
    static world w;
    for (int n = 2; n <= MOST; n++) {
        for (int shards = 1; shards <= n; shards++) {
            for (unsigned cuts = 0; cuts < 1u << n && n % shards == 0; cuts += 2) {
                make_route_world(&w, n, shards, cuts);
                check_routes(&w, cuts);
                release_route_world(&w);
            }
        }
    }
}

/* If hosts have equal numbers of ranks, each rank relays for equally many owners. */
static void relays_share_the_work(void **state) {
    (void)state;
    static world w;
    static const struct {
        int n, shards;
        unsigned cuts;
    } rows[] = {{8, 1, 0x10}, {8, 1, 0x54}, {8, 4, 0x10}, {8, 2, 0x54}, {9, 1, 0x48}, {6, 3, 0x08}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        make_route_world(&w, rows[k].n, rows[k].shards, rows[k].cuts);
        for (int d = 0; d < w.n; d++) assert_int_equal(w.at[d].n_relayed, w.at[0].n_host_groups);
        release_route_world(&w);
    }
}

static size_t planned_staging_bytes(int n, const char *hosts, const bt_codec *codec) {
    const bt_mesh_shape shape = {1, n, 1, 1};
    const bt_reducer_cfg cfg = {.n = 1 << 20, .bucket_bytes = 4 << 14, .form.codec = codec};
    assert_int_equal(
        hosts ? setenv("BITRAIN_TEST_HOSTS", hosts, 1) : unsetenv("BITRAIN_TEST_HOSTS"), 0);
    return bt_reducer_staging(&cfg, &shape, n - 1);
}

/* Four buckets are in flight, or two on a single host, each with the parts of all other ranks. A bf16 part has half the
 * size, the same number of bytes is sent and received, and parts that wait for their sibling in the tree are decoded:
 * three parts. */
static void the_memory_plan_is_the_formula(void **state) {
    (void)state;
    const size_t part = (4 << 14) / 8;
    const bt_codec *bf16 = bt_codec_at(BT_CODEC_BF16);
    assert_int_equal(planned_staging_bytes(1, NULL, NULL), 0);
    assert_int_equal(planned_staging_bytes(8, NULL, NULL), 2 * 7 * part);
    assert_int_equal(planned_staging_bytes(8, "4", NULL), 4 * 7 * part);
    assert_int_equal(planned_staging_bytes(8, "2", NULL), 4 * 7 * part);
    assert_int_equal(planned_staging_bytes(8, NULL, bf16),
                     2 * 7 * (part / 2 + part / 2) + 3 * part);
    /* two parts (own and relayed) of three ranks each as fp32; one payload in each direction */
    assert_int_equal(planned_staging_bytes(8, "4", bf16), 4 * (2 * 3 * part + part) + part);
    bt_codec feedback = *bf16;
    feedback.state_bytes = 4;
    assert_int_equal(
        planned_staging_bytes(8, NULL, &feedback) - planned_staging_bytes(8, NULL, bf16), 4 << 20);
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
}

/* Shares are even by default; given shares are consecutive. */
static void units_are_consecutive(void **state) {
    (void)state;
    const int64_t shares[] = {3, 1, 0, 4};
    const int64_t first[] = {0, 3, 4, 4}, even[] = {0, 2, 4, 6};
    for (int d = 0; d < 4; d++) {
        bt_unit_run r = bt_unit_run_of(8, shares, 4, d);
        assert_int_equal(r.first, first[d]);
        assert_int_equal(r.count, shares[d]);
        r = bt_unit_run_of(8, NULL, 4, d);
        assert_int_equal(r.first, even[d]);
        assert_int_equal(r.count, 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_goes_to_its_owner_and_back_once),
        cmocka_unit_test(relays_share_the_work),
        cmocka_unit_test(the_memory_plan_is_the_formula),
        cmocka_unit_test(units_are_consecutive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
