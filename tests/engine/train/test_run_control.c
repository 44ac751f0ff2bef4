/* test_run_control.c - the request box: each request is taken once, invalid factors are dropped, the newest
 * text wins, and a paused rank receives rank 0's requests. Time and ranks are defined here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/train/run_control.h"

static bt_request_box box;
static bt_err err;
static struct {
    int rank, looks;        /* this rank; number of polls until every rank has paused */
    int64_t verbs, lr_bits; /* requests of rank 0 as another rank receives them */
    uint32_t after[3];      /* requests that arrive after the n-th sleep */
    int naps;
    const char *fails;
    int64_t told[2]; /* requests and factor that this rank broadcast */
    int works;
} world;

static bt_code done(const char *what, bt_err *e) {
    return world.fails && strcmp(world.fails, what) == 0 ? bt_fail(e, BT_IO, "%s fails", what)
                                                         : BT_OK;
}
int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, &world);
    return world.rank;
}
void bt_sleep_ns(int64_t ns) {
    assert_int_equal(ns, 20000000);
    assert_true(world.naps < 3);
    atomic_fetch_or(&box.bits, world.after[world.naps++]);
}
int64_t bt_now_ns(void) { return 0; }
bt_code bt_all_reduce_i64_start(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_request *r,
                                bt_err *e) {
    assert_true(c == (bt_comm *)(void *)&world && n == 2 && op == BT_MAX);
    world.told[0] = x[0], world.told[1] = x[1];
    if (world.verbs > x[0]) x[0] = world.verbs;
    if (world.lr_bits > x[1]) x[1] = world.lr_bits;
    *r = (bt_request){.active = true};
    return done("start", e);
}
bt_code bt_request_test(bt_request *r, bool *over, bt_err *e) {
    assert_true(r->active);
    *over = world.looks-- == 0;
    return done("test", e);
}
static void work(void *ctx) {
    assert_ptr_equal(ctx, &box);
    world.works++;
}

static void begin(int rank) {
    memset(&box, 0, sizeof box);
    memset(&world, 0, sizeof world);
    world.rank = rank;
    err = (bt_err)BT_ERR_INIT;
}

static void set_factor(double factor) {
    uint64_t bits;
    memcpy(&bits, &factor, sizeof bits);
    atomic_store(&box.lr_factor_bits, bits);
}

static void a_request_is_taken_once(void **state) {
    (void)state;
    static const struct {
        double factor;
        bool good;
    } rows[] = {{0.5, true}, {1e-9, true}, {999999, true},    {1e6, false},
                {0, false},  {-1, false},  {INFINITY, false}, {NAN, false}};
    bt_control c = bt_control_take(NULL);
    assert_true(c.verbs == 0 && c.lr_bits == 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(0);
        set_factor(rows[i].factor);
        atomic_store(&box.bits, BT_REQ_LR | BT_REQ_EVAL);
        c = bt_control_take(&box);
        assert_int_equal(c.verbs, BT_REQ_EVAL | (rows[i].good ? (int64_t)BT_REQ_LR : 0));
        if (rows[i].good) assert_true(bt_control_lr_factor(&c) == rows[i].factor);
        if (!rows[i].good) assert_int_equal(c.lr_bits, 0);
        c = bt_control_take(&box);
        assert_true(c.verbs == 0 && c.lr_bits == 0);
    }
    begin(0); /* The factor is set without a request. */
    set_factor(0.5);
    atomic_store(&box.bits, BT_REQ_STOP);
    c = bt_control_take(&box);
    assert_true(c.verbs == BT_REQ_STOP && c.lr_bits == 0);
}

static void the_newest_text_is_taken(void **state) {
    (void)state;
    begin(0);
    assert_true(!bt_control_take_prompt(NULL) && !bt_control_take_mixture(NULL));
    assert_true(!bt_control_take_prompt(&box) && !bt_control_take_mixture(&box));
    char said_first[] = "first";
    assert_true(bt_control_request_sample(&box, said_first));
    strcpy(said_first, "later"); /* The box copies the text, so that the caller may reuse it. */
    assert_int_equal(atomic_load(&box.bits), BT_REQ_SAMPLE);
    assert_true(bt_control_request_mixture(&box, "3:1"));
    assert_int_equal(atomic_load(&box.bits), BT_REQ_SAMPLE | BT_REQ_MIXTURE);
    char *prompt = bt_control_take_prompt(&box), *weights;
    assert_string_equal(prompt, "first");
    free(prompt);
    assert_true(bt_control_request_mixture(&box, "1:1"));
    weights = bt_control_take_mixture(&box);
    assert_string_equal(weights, "1:1");
    free(weights);
    assert_true(!bt_control_take_prompt(&box) && !bt_control_take_mixture(&box));
}

static void a_pause_ends_by_a_request_to_rank_0(void **state) {
    (void)state;
    const bt_control_idle idle = {work, &box};
    bt_control c = {-1, -1};
    begin(0);
    world.after[1] = BT_REQ_RESUME | BT_REQ_LR;
    set_factor(0.5);
    world.looks = 1;
    assert_int_equal(bt_control_wait((bt_comm *)(void *)&world, &box, &idle, &c, &err), BT_OK);
    assert_true(world.told[0] == (BT_REQ_RESUME | BT_REQ_LR) && world.works == 2);
    assert_true(c.verbs == (BT_REQ_RESUME | BT_REQ_LR) && bt_control_lr_factor(&c) == 0.5);
    begin(0); /* The request arrived before the pause. */
    atomic_store(&box.bits, BT_REQ_STOP);
    assert_int_equal(bt_control_wait((bt_comm *)(void *)&world, &box, &idle, &c, &err), BT_OK);
    assert_true(world.told[0] == BT_REQ_STOP && world.naps == 0);
    assert_true(c.verbs == BT_REQ_STOP && c.lr_bits == 0);
    begin(2); /* A request on another rank has no effect; that rank receives those of rank 0. */
    atomic_store(&box.bits, BT_REQ_STOP);
    world.verbs = BT_REQ_RESUME, world.lr_bits = 7;
    world.looks = 2;
    assert_int_equal(bt_control_wait((bt_comm *)(void *)&world, &box, &idle, &c, &err), BT_OK);
    assert_true(world.told[0] == 0 && world.told[1] == 0);
    assert_true(c.verbs == BT_REQ_RESUME && c.lr_bits == 7);
    static const char *const parts[] = {"start", "test"};
    for (int i = 0; i < 2; i++) {
        char says[40];
        begin(2);
        world.fails = parts[i];
        assert_int_equal(bt_control_wait((bt_comm *)(void *)&world, &box, &idle, &c, &err), BT_IO);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_taken_once),
        cmocka_unit_test(the_newest_text_is_taken),
        cmocka_unit_test(a_pause_ends_by_a_request_to_rank_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
