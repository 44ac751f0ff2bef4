/* test_layout_remedy.c - proposals for a model that exceeds the memory: a search for a layout checks that each proposal
 * suffices, and changes that do not help are not proposed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/layout_remedy.h"

static bt_opts opts;
static bt_run_cfg cfg;

static bt_layout_search search_of(int hosts, int ranks_per_host, double memory_bytes) {
    char *words[] = {"--preset", "small", "--batch-tokens", "16384", "--threads", "1"};
    bt_err err = BT_ERR_INIT;
    bool help;
    if (bt_run_cfg_read(&opts, &cfg, sizeof words / sizeof *words, words, &help, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    return (bt_layout_search){.cfg = &cfg,
                              .may = bt_layout_freedom_of(&opts),
                              .cluster = {.ranks = hosts * ranks_per_host,
                                          .ranks_per_host = ranks_per_host,
                                          .simulated = true,
                                          .memory_bytes = memory_bytes}};
}

static bool fits_in_memory(bt_layout_search s, int hosts, int ranks_per_host) {
    bt_layouts l;
    bt_err err = BT_ERR_INIT;
    s.cluster.ranks = hosts * ranks_per_host;
    s.cluster.ranks_per_host = ranks_per_host;
    const bool there_is = bt_layouts_find(&l, &s, &err) == BT_OK && l.fitting > 0;
    bt_layouts_release(&l);
    return there_is;
}

static size_t least_bytes(const bt_layout_search *s) {
    bt_layouts l;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_layouts_find(&l, s, &err), BT_OK);
    assert_true(l.fitting == 0);
    const size_t bytes = l.least_bytes;
    bt_layouts_release(&l);
    return bytes;
}

/* Creates a search on hosts that have only `part` of the memory that their ranks need. */
static bt_layout_search too_small(int hosts, int ranks_per_host, double part) {
    bt_layout_search s = search_of(hosts, ranks_per_host, 1048576);
    s.cluster.memory_bytes = part * (double)least_bytes(&s) * ranks_per_host;
    return s;
}

static void proposals_fit(void **state) {
    (void)state;
    const bt_layout_search s = too_small(2, 4, 0.8);
    int hosts = 0, ranks = 0, fewer = 0;
    double gib;
    bt_text out;
    bt_text_init(&out);
    bt_layout_remedies(&s, &out);
    if (sscanf(bt_text_str(&out), "%d hosts of %d ranks, %d", &hosts, &ranks, &fewer) != 3)
        fail_msg("message: %s", bt_text_str(&out));
    assert_true(hosts > 2 && ranks == 4 && fits_in_memory(s, hosts, ranks) &&
                !fits_in_memory(s, hosts / 2, ranks));
    if (!strstr(bt_text_str(&out), " on each of the 2 hosts, or hosts with "))
        fail_msg("message: %s", bt_text_str(&out));
    assert_true(fewer < 4 && fits_in_memory(s, 2, fewer));
    const char *more = strstr(bt_text_str(&out), "or hosts with ");
    assert_int_equal(sscanf(more, "or hosts with %lf", &gib), 1);
    bt_text_release(&out);
}

/* A single rank needs more than the host has, so fewer ranks are not proposed. */
static void useless_changes_are_not_proposed(void **state) {
    (void)state;
    const bt_layout_search s = too_small(1, 2, 0.3);
    bt_text out;
    bt_text_init(&out);
    assert_false(fits_in_memory(s, 1, 1));
    bt_layout_remedies(&s, &out);
    if (strstr(bt_text_str(&out), "on the 1 host")) fail_msg("message: %s", bt_text_str(&out));
    if (!strstr(bt_text_str(&out), "hosts with ")) fail_msg("message: %s", bt_text_str(&out));
    bt_text_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_fit),
        cmocka_unit_test(useless_changes_are_not_proposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
