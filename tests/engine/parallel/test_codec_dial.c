/* The codec dial, which chooses the gradient codec from the times of steps: ladders of codecs, conditions for moving up
 * and down, budgets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/parallel/grad/codec_dial.h"

static void names_of_rungs(const bt_codec_ladder *l, const char *const *want) {
    for (int i = 0; i < l->n; i++) {
        assert_non_null(want[i]);
        assert_string_equal(l->at[i]->name, want[i]);
        if (i > 0) assert_true(bt_codec_bits(l->at[i]) < bt_codec_bits(l->at[i - 1]));
    }
    assert_null(want[l->n]);
}

static void ladders_lead_to_the_strongest(void **state) {
    (void)state;
    static const struct {
        bt_codec_id to;
        const char *want[6];
    } rows[] = {{BT_CODEC_NONE, {"none"}},
                {BT_CODEC_BF16, {"none", "bf16"}},
                {BT_CODEC_INT8, {"none", "bf16", "int8"}},
                {BT_CODEC_TERNARY, {"none", "bf16", "int8", "ternary"}},
                {BT_CODEC_SIGN, {"none", "bf16", "int8", "sign"}},
                {BT_CODEC_TOPK, {"none", "bf16", "int8", "topk"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(rows[i].to));
        names_of_rungs(&l, rows[i].want);
    }
    const bt_codec_ladder exact = bt_codec_ladder_to(&bt_codec_exact);
    assert_int_equal(exact.n, 2);
    assert_ptr_equal(exact.at[1], &bt_codec_exact);
}

/* A network and a computation: fp32 gradients take wire_s, of which compute hides at most room_s. */
typedef struct world {
    double compute_s, room_s, wire_s;
} world;

static bt_dial_window window_of(const world *w, const bt_codec *c) {
    const double busy = w->wire_s * bt_codec_bits(c) / 32, exposed = fmax(0, busy - w->room_s);
    return (bt_dial_window){.steps = 8,
                            .step_s = w->compute_s + exposed,
                            .busy_s = busy,
                            .exposed_s = exposed,
                            .bytes = 1e6 * bt_codec_bits(c) / 32};
}

static int turn_dial(bt_codec_dial *d, const bt_codec_ladder *l, int now, int most,
                     const world *w) {
    double share;
    const bt_dial_window win = window_of(w, l->at[now]);
    return bt_codec_dial_turn(d, l, now, most, &win, &share);
}

static void a_fast_network_changes_nothing(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    bt_codec_dial d = {0};
    /* one network that compute hides, and one with 4 % that it cannot hide */
    static const world worlds[] = {{1, 0.5, 0.3}, {1, 0.1, 0.14}};
    for (size_t k = 0; k < 2; k++)
        for (int i = 0; i < 20; i++) assert_int_equal(turn_dial(&d, &l, 0, 3, &worlds[k]), 0);
}

/* The dial moves to the first rung that is fast enough and remains there: it does not oscillate on a steady network. */
static void a_slow_network_takes_as_few_bits_as_it_needs(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    static const struct {
        world w;
        int want, most;
    } rows[] = {{{1, 0.3, 0.6}, 1, 3},  /* compute hides bf16 */
                {{1, 0.3, 1.2}, 2, 3},  /* bf16 is exposed for 0.3 s, compute hides int8 */
                {{1, 0.3, 10}, 3, 3},   /* compute hides only sign */
                {{1, 0.3, 100}, 3, 3},  /* sign is exposed, but it is the last rung */
                {{1, 0.3, 100}, 2, 2}}; /* --codec int8 */
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bt_codec_dial d = {0};
        int at = 0;
        for (int i = 0; i < 20; i++) {
            at = turn_dial(&d, &l, at, rows[k].most, &rows[k].w);
            assert_int_equal(at, rows[k].want);
        }
    }
}

static void a_network_that_recovers_gets_fp32_again(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_INT8));
    const world slow = {1, 0.3, 1.2}, fast = {1, 0.3, 0.2};
    bt_codec_dial d = {0};
    int at = turn_dial(&d, &l, 0, 2, &slow);
    assert_int_equal(at, 2);
    assert_int_equal(turn_dial(&d, &l, at, 2, &fast), 2); /* One window is not enough. */
    assert_int_equal(turn_dial(&d, &l, at, 2, &slow), 2);
    assert_int_equal(turn_dial(&d, &l, at, 2, &fast), 2); /* two windows in a row */
    assert_int_equal(turn_dial(&d, &l, at, 2, &fast), 0);
    /* Two windows also suffice directly after moving up. */
    d = (bt_codec_dial){0};
    assert_int_equal(turn_dial(&d, &l, 0, 2, &slow), 2);
    assert_int_equal(turn_dial(&d, &l, 2, 2, &fast), 2);
    assert_int_equal(turn_dial(&d, &l, 2, 2, &fast), 0);
}

/* If two windows permit different rungs, the dial uses the one with fewer bits, in either order of the windows. */
static void the_more_cautious_rung_is_taken(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    /* Compute hides bf16 in the first network and fp32 in the second. */
    const world slower = {1, 0.3, 0.5}, faster = {1, 0.3, 0.2};
    for (int order = 0; order < 2; order++) {
        bt_codec_dial d = {.room_s = 0.3};
        assert_int_equal(turn_dial(&d, &l, 2, 3, order ? &slower : &faster), 2);
        assert_int_equal(turn_dial(&d, &l, 2, 3, order ? &faster : &slower), 1);
    }
    /* A window without steps is ignored. */
    bt_codec_dial d = {.unasked = BT_DIAL_ASK};
    bt_dial_window w = window_of(&slower, l.at[2]);
    w.steps = 0;
    assert_false(bt_codec_dial_asks(&d, 2, 3, &w));
    w.steps = 1;
    assert_true(bt_codec_dial_asks(&d, 2, 3, &w));
}

/* Like turn, with ranks that send and reply late by delay_s, which compute cannot hide. The dial receives the time of
 * the link if it requests a measurement; `asked` counts the requests. */
static int turn_delayed(bt_codec_dial *d, const bt_codec_ladder *l, int now, const world *w,
                        double delay_s, int *asked) {
    double share;
    bt_dial_window win = window_of(w, l->at[now]);
    win.step_s += delay_s;
    win.busy_s += delay_s;
    win.exposed_s += delay_s;
    if (bt_codec_dial_asks(d, now, l->n - 1, &win)) {
        win.link_s = w->wire_s * bt_codec_bits(l->at[now]) / 32;
        ++*asked;
    }
    return bt_codec_dial_turn(d, l, now, l->n - 1, &win, &share);
}

static void delays_of_a_busy_machine_are_not_the_network(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    const world fast = {1, 0.3, 0.1}, slow = {1, 0.3, 1.2};
    for (double delay = 0.1; delay < 2; delay *= 1.5) {
        bt_codec_dial d = {0};
        int asked = 0;
        for (int i = 1; i <= 20; i++) {
            assert_int_equal(turn_delayed(&d, &l, 0, &fast, delay, &asked), 0);
            assert_int_equal(asked, i);
        }
        /* A link that becomes slow in addition is recognized: the codec is int8, as it is without delays. */
        int at = turn_delayed(&d, &l, 0, &slow, delay, &asked);
        assert_int_equal(at, 2);
        for (int i = 0; i < 20; i++)
            assert_int_equal(at = turn_delayed(&d, &l, at, &slow, delay, &asked), 2);
    }
}

/* When the network recovers, delays do not keep a codec in use. */
static void a_busy_machine_gets_fp32_again(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    const world fast = {1, 0.3, 0.1}, slow = {1, 0.3, 1.2};
    for (double delay = 0.1; delay < 2; delay *= 1.5) {
        bt_codec_dial d = {0};
        int asked = 0, windows = 0, at = turn_delayed(&d, &l, 0, &slow, delay, &asked);
        assert_int_equal(at, 2);
        for (; at > 0 && windows < 20; windows++)
            at = turn_delayed(&d, &l, at, &fast, delay, &asked);
        assert_int_equal(at, 0);
        assert_true(windows <= 2 * BT_DIAL_ASK);
        for (int i = 0; i < 20; i++)
            assert_int_equal(turn_delayed(&d, &l, 0, &fast, delay, &asked), 0);
    }
}

/* The link is not measured while no step is delayed, rarely above the first rung, and never if there is a budget. */
static void the_link_is_measured_seldom(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    const world hidden = {1, 0.3, 0.2}, slow = {1, 0.3, 1.2};
    bt_codec_dial d = {0};
    int asked = 0, at = 0;
    for (int i = 0; i < 100; i++) at = turn_delayed(&d, &l, at, &hidden, 0, &asked);
    assert_true(at == 0 && asked == 0);
    for (int i = 0; i < 100; i++) at = turn_delayed(&d, &l, at, &slow, 0, &asked);
    assert_true(at == 2 && asked >= 1 + 99 / BT_DIAL_ASK - 1 && asked <= 1 + 99 / BT_DIAL_ASK + 1);
    const bt_dial_window held_up = window_of(&slow, l.at[0]);
    bt_codec_dial given = {.budget = 1e6};
    assert_false(bt_codec_dial_asks(&given, 0, 3, &held_up));
    assert_true(bt_codec_dial_asks(&d, 0, 3, &held_up));
    assert_false(bt_codec_dial_asks(&d, 0, 0, &held_up)); /* There is no rung above. */
}

/* A window without delays must be confirmed by the next window, which measures the link if the first one did. */
static void a_calm_link_is_measured_again(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    const world fast = {1, 0.3, 0.2}, slow = {1, 0.3, 1.2};
    for (int asked = 0; asked < 2; asked++)
        for (int calm = 0; calm < 2; calm++) {
            double share;
            bt_codec_dial d = {.room_s = 0.3};
            bt_dial_window w = window_of(calm ? &fast : &slow, l.at[2]);
            if (asked) w.link_s = w.busy_s;
            assert_int_equal(bt_codec_dial_turn(&d, &l, 2, 2, &w, &share), 2);
            assert_int_equal(d.calm, calm);
            assert_int_equal(d.unasked, asked && calm ? BT_DIAL_ASK - 1 : 0);
            assert_int_equal(bt_codec_dial_asks(&d, 2, 2, &w), asked && calm);
        }
}

/* The estimate of the time that compute hides grows in any window. It shrinks only if the link was measured, needs
 * longer than was hidden, and steps were delayed. */
static void the_estimate_shrinks_only_where_the_link_needs_it(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    static const struct {
        double busy, exposed, link, had, want;
        /* The link takes 0.35 s of which 0.2 s are hidden: the estimate is 0.2 s. */
    } rows[] = {{0.4, 0.2, 0.35, 0.5, 0.2},
                {0.4, 0.2, 0.35, 0.1, 0.2}, /* more than the previous estimate */
                {0.4, 0.2, 0, 0.5, 0.5},    /* not measured: the cause may be a delay */
                {0.4, 0.2, 0, 0.1, 0.2},    /* the hidden time is a lower bound of the estimate */
                /* The link needs no longer than was hidden: the cause is a delay. */
                {0.5, 0.2, 0.3, 0.5, 0.5},
                {0.5, 0.2, 0.305, 0.5,
                 0.5}, /* longer by less than a hundredth of the compute time */
                {0.5, 0.2, 0.32, 0.5, 0.3}, /* longer by more than a hundredth */
                /* Almost nothing was exposed, so no step was delayed. */
                {0.3, 0.005, 0.4, 0.5, 0.5},
                {0.3, 0.02, 0.4, 0.5, 0.28}}; /* two hundredths */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double share;
        bt_codec_dial d = {.room_s = rows[i].had};
        const bt_dial_window w = {.steps = 8,
                                  .step_s = 1 + rows[i].exposed,
                                  .busy_s = rows[i].busy,
                                  .exposed_s = rows[i].exposed,
                                  .link_s = rows[i].link,
                                  .bytes = 1e6};
        (void)bt_codec_dial_turn(&d, &l, 0, 3, &w, &share);
        if (!(fabs(d.room_s - rows[i].want) < 1e-12))
            fail_msg("row %zu: room %g, not %g", i, d.room_s, rows[i].want);
    }
}

/* A rung exactly at a limit of time or budget is accepted; a rung above it is not. */
static void a_value_at_its_limit_is_accepted(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    double share;
    assert_true(bt_codec_bits(l.at[1]) == 16);
    for (int more = 0; more < 2; more++) {
        /* bf16 takes 1 s of the wire beside 19 s of compute, which is a twentieth of the step. */
        bt_codec_dial d = {0};
        const double wire = more ? 2.01 : 2;
        bt_dial_window w = {.steps = 1, .step_s = 19 + wire, .busy_s = wire, .exposed_s = wire};
        assert_int_equal(bt_codec_dial_turn(&d, &l, 0, 3, &w, &share), 1 + more);
        d = (bt_codec_dial){.budget = 1e6};
        w = (bt_dial_window){.steps = 1, .step_s = 1, .bytes = more ? 2.1e6 : 2e6};
        assert_int_equal(bt_codec_dial_turn(&d, &l, 0, 3, &w, &share), 1 + more);
        assert_true(isnan(share));
        /* A rung within the budget is kept. */
        w.bytes = more ? 1.1e6 : 1e6;
        assert_int_equal(bt_codec_dial_turn(&d, &l, 0, 3, &w, &share), more);
    }
}

static void an_unknown_link_changes_nothing(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    const world slow = {1, 0.3, 1.2}, fast = {1, 0.3, 0.1};
    double share;
    bt_codec_dial d = {.room_s = 0.3};
    bt_dial_window w = window_of(&slow, l.at[0]);
    w.link_s = NAN;
    assert_int_equal(bt_codec_dial_turn(&d, &l, 0, 3, &w, &share), 0);
    w = window_of(&fast, l.at[2]);
    w.link_s = NAN;
    for (int i = 0; i < 3; i++) assert_int_equal(bt_codec_dial_turn(&d, &l, 2, 3, &w, &share), 2);
}

static void a_budget_is_kept(void **state) {
    (void)state;
    const bt_codec_ladder l = bt_codec_ladder_to(bt_codec_at(BT_CODEC_SIGN));
    const world w = {2, 1, 0.1}; /* 1 MB as fp32 in 2 s of compute, which hides it */
    static const struct {
        double budget;
        int from, want;
    } rows[] = {{1e9, 0, 0}, {0.4e6, 0, 1}, {0.2e6, 0, 2},  {0.1e6, 0, 3},
                {1e3, 0, 3}, {0.4e6, 3, 1}, {0.55e6, 1, 1}, {0.7e6, 1, 0}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bt_codec_dial d = {.budget = rows[k].budget};
        int at = rows[k].from;
        for (int i = 0; i < 3; i++) at = turn_dial(&d, &l, at, 3, &w);
        assert_int_equal(at, rows[k].want);
    }
}

static void budgets_are_words_or_rates(void **state) {
    (void)state;
    double rate;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_comm_budget_parse("off", &rate, &err), BT_OK);
    assert_true(rate == -1);
    assert_int_equal(bt_comm_budget_parse("auto", &rate, &err), BT_OK);
    assert_true(rate == 0);
    assert_int_equal(bt_comm_budget_parse("20Mbit", &rate, &err), BT_OK);
    assert_true(rate == 2.5e6);
    assert_int_equal(bt_comm_budget_parse("0.5gbit", &rate, &err), BT_OK);
    assert_true(rate == 62.5e6);
    static const char *const bad[] = {"",      "fast", "20",      "20M",     "-3Mbit",
                                      "0kbit", "Mbit", "nanMbit", "infMbit", "20Mbit/s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(bt_comm_budget_parse(bad[i], &rate, &err), BT_ARG);
        assert_non_null(strstr(err.msg, "20Mbit or"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ladders_lead_to_the_strongest),
        cmocka_unit_test(a_fast_network_changes_nothing),
        cmocka_unit_test(a_slow_network_takes_as_few_bits_as_it_needs),
        cmocka_unit_test(a_network_that_recovers_gets_fp32_again),
        cmocka_unit_test(the_more_cautious_rung_is_taken),
        cmocka_unit_test(delays_of_a_busy_machine_are_not_the_network),
        cmocka_unit_test(a_busy_machine_gets_fp32_again),
        cmocka_unit_test(the_link_is_measured_seldom),
        cmocka_unit_test(a_calm_link_is_measured_again),
        cmocka_unit_test(the_estimate_shrinks_only_where_the_link_needs_it),
        cmocka_unit_test(a_value_at_its_limit_is_accepted),
        cmocka_unit_test(an_unknown_link_changes_nothing),
        cmocka_unit_test(a_budget_is_kept),
        cmocka_unit_test(budgets_are_words_or_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
