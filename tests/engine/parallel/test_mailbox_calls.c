/* test_mailbox_calls.c - what a mailbox asks of MPI: each message, all of them waited for as one, what is counted of
 * them and when, and what is said of a call that fails. */
#include <limits.h>

#include "tests/engine/parallel/fake_mpi.h"

#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/mailbox.h"

static bt_comm axis;
static bt_mailbox *b;
static bt_err err;

static void begin(void) {
    axis = (bt_comm){.rank = 1, .size = 3, .axis = BT_AXIS_DP};
    forget_calls();
    bt_traffic_reset();
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(bt_mailbox_create(&b, &axis, 3, &err), BT_OK);
    bt_mailbox_begin(b);
}

static void end(void) {
    if (!call_fails) no_span_is_open();
    bt_mailbox_destroy(b);
}

static void messages_are_waited_for_as_one(void **state) {
    (void)state;
    unsigned char to[8] = {0};
    static const char from[5];
    begin();
    const uint64_t wire = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
    for (int again = 0; again < 2; again++) {
        bt_mailbox_begin(b);
        assert_int_equal(bt_mailbox_send(b, 2, from, 5, 40, &err), BT_OK);
        assert_int_equal(bt_mailbox_recv(b, 0, to, 8, &err), BT_OK);
        assert_int_equal(bt_mailbox_send(b, 0, from, 3, 7, &err), BT_OK);
        assert_int_equal(bt_comm_bytes_wire() - wire,
                         again ? 8 : 0); /* counted when they have gone */
        assert_int_equal(bt_mailbox_take_busy_ns(b), 0);
        assert_int_equal(bt_mailbox_wait(b, &err), BT_OK);
        heard_is(again ? "isend 4: 5 bytes of a to 2 tag 30500\nirecv 5: 8 bytes to b from 0 tag "
                         "30500\nisend 6: 3 bytes of a to 0 tag 30500\nwait for 4 5 6\n"
                       : "isend 1: 5 bytes of a to 2 tag 30500\nirecv 2: 8 bytes to b from 0 tag "
                         "30500\nisend 3: 3 bytes of a to 0 tag 30500\nwait for 1 2 3\n");
        assert_memory_equal(to, ((float[]){again ? 5 : 2, again ? 5 : 2}), 8);
        const bt_traffic *t = bt_traffic_get(BT_COLL_SEND, BT_AXIS_DP);
        assert_true(t->calls == 1 && t->bytes_wire == 8 && t->bytes_logical == 47);
        assert_true(t->exposed_ns > 0 && t->busy_ns > t->exposed_ns);
        assert_int_equal(bt_mailbox_take_busy_ns(b), t->busy_ns);
        assert_int_equal(bt_mailbox_take_busy_ns(b), 0);
        bt_traffic_reset();
        assert_int_equal(bt_comm_bytes_wire() - wire, 8 * (again + 1));
        assert_int_equal(bt_comm_bytes_logical() - logical, 47 * (again + 1));
        assert_int_equal(bt_mailbox_wait(b, &err), BT_OK); /* there is nothing left */
        heard_is("");
        assert_int_equal(bt_traffic_get(BT_COLL_SEND, BT_AXIS_DP)->calls, 0);
    }
    end();
}

static void what_cannot_be_sent(void **state) {
    (void)state;
    char x;
    begin();
    for (int receives = 0; receives < 2; receives++) {
        const size_t most = INT_MAX;
        assert_int_equal(receives ? bt_mailbox_recv(b, 0, &x, most + 1, &err)
                                  : bt_mailbox_send(b, 0, &x, most + 1, 1, &err),
                         BT_UNSUPPORTED);
        assert_string_equal(err.msg, "a message of 2147483648 bytes is longer than MPI can send");
        heard_is("");
        assert_int_equal(receives ? bt_mailbox_recv(b, 0, &x, most, &err)
                                  : bt_mailbox_send(b, 0, &x, most, 1, &err),
                         BT_OK);
        bt_text_clear(&heard);
    }
    end();
    static const char *const faults[] = {"isend", "irecv", "wait"};
    static const char *const says[] = {"sending to another rank", "receiving from another rank",
                                       "exchanging with other ranks"};
    for (int i = 0; i < 3; i++) {
        char want[80];
        begin();
        if (i == 2) assert_int_equal(bt_mailbox_send(b, 0, &x, 1, 1, &err), BT_OK);
        call_fails = faults[i];
        const bt_code code = i == 0   ? bt_mailbox_send(b, 0, &x, 1, 1, &err)
                             : i == 1 ? bt_mailbox_recv(b, 0, &x, 1, &err)
                                      : bt_mailbox_wait(b, &err);
        assert_int_equal(code, BT_MPI);
        snprintf(want, sizeof want, "%s failed: the link is gone", says[i]);
        assert_string_equal(err.msg, want);
        assert_int_equal(bt_traffic_get(BT_COLL_SEND, BT_AXIS_DP)->calls, 0);
        end();
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_are_waited_for_as_one),
                                       cmocka_unit_test(what_cannot_be_sent)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
