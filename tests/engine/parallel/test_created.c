/* Creation of exchanges without MPI: the bytes that the memory plan states, sizes beyond any message, refused memory,
 * and the tensor-parallel group of one rank, which exchanges nothing. */
#include "tests/memory/refuse_memory.h"

#include <limits.h>
#include <stdlib.h>

#include "engine/parallel/grad/exchange_route.h"
#include "engine/parallel/mpi/mailbox.h"
#include "engine/parallel/pp/pipe.h"
#include "engine/parallel/shard/flip_gather.h"
#include "engine/parallel/shard/shard_all_gather.h"
#include "engine/parallel/shard/weight_prefetch.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/parallel/tp/tp_group_internal.h"
#include "tests/message.h"

enum { MIB = 1 << 20 };

static bt_mesh mesh;

static bt_code make_mailbox(void *ctx, bt_err *err) {
    bt_mailbox *b = ctx;
    const bt_code code = bt_mailbox_create(&b, bt_comm_world(), 4, err);
    assert_true((b != NULL) == (code == BT_OK));
    bt_mailbox_destroy(b);
    return code;
}

static bt_code make_flip_gather(void *ctx, bt_err *err) {
    bt_flip_gather *f = ctx;
    const bt_code code = bt_flip_gather_create(&f, &mesh, (const size_t[]){1000}, err);
    assert_true((f != NULL) == (code == BT_OK));
    bt_flip_gather_destroy(f);
    return code;
}

static bt_code make_all_gather(void *ctx, bt_err *err) {
    bt_shard_all_gather *p = ctx;
    bt_shards s;
    float x[64];
    bt_shards_init(&s, 64, 64, 1, 1);
    const bt_gathered ranges[] = {{{0, 32}, x, 4}, {{40, 64}, x + 40, 4}};
    const bt_code code = bt_shard_all_gather_create(&p, &mesh, &s, ranges, 2, err);
    assert_true((p != NULL) == (code == BT_OK));
    bt_shard_all_gather_destroy(p);
    return code;
}

static bt_code make_prefetch(void *ctx, bt_err *err) {
    bt_prefetch *f = ctx;
    const size_t at[] = {0, 10, 30};
    const unsigned char own[30] = {0};
    const bt_code code = bt_prefetch_create(&f, &(bt_prefetch_cfg){&mesh, 2, at, own}, err);
    assert_true((f != NULL) == (code == BT_OK));
    bt_prefetch_destroy(f);
    return code;
}

static bt_code make_pipe(void *ctx, bt_err *err) {
    bt_pipe *p = ctx;
    const bt_pipe_cfg c = {.elems = 100, .chunks = 2, .tables = 3, .table_bytes = 1000};
    const bt_code code = bt_pipe_create(&p, &mesh, &c, err);
    assert_true((p != NULL) == (code == BT_OK));
    bt_pipe_destroy(p);
    return code;
}

static bt_code make_solo(void *ctx, bt_err *err) {
    bt_tp_group *t = ctx;
    const bt_code code = bt_tp_group_solo(&t, 3, 5, err);
    assert_true((t != NULL) == (code == BT_OK));
    bt_tp_group_destroy(t);
    return code;
}

static bt_code make_messages(void *ctx, bt_err *err) {
    bt_tp_group *t = ctx;
    const bt_code code = bt_tp_group_messages_create(&t, bt_comm_world(), 3, 5, err);
    assert_true((t != NULL) == (code == BT_OK));
    bt_tp_group_destroy(t);
    return code;
}

static bt_code make_route(void *ctx, bt_err *err) {
    bt_route r;
    const int hosts[] = {0, 0, 1};
    (void)ctx;
    const bt_code code =
        bt_route_init(&r, &(bt_route_cfg){.n = 3, .shards = 1, .hosts = hosts, .units = 5}, err);
    assert_true((r.n == 3) == (code == BT_OK));
    bt_route_release(&r);
    return code;
}

static void a_refused_request_is_an_error_and_frees_all(void **state) {
    (void)state;
    static const struct {
        const char *what;
        needs_memory make;
        int requests; /* number of requests that are refused, singly and with all later ones */
    } rows[] = {{"a mailbox", make_mailbox, 2},
                {"a gather of codes", make_flip_gather, 6},
                {"a gather", make_all_gather, 3},
                {"a gather of parts", make_prefetch, 5},
                {"a pipe", make_pipe, 3},
                {"a group of one", make_solo, 2},
                {"a group by messages", make_messages, 6},
                {"a route", make_route, 7}};
    int something;
    if (!refuse_memory_works()) skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(survives_refusals(rows[i].what, rows[i].make, &something, true),
                         2 * rows[i].requests);
        for (int k = 0; k < rows[i].requests; k++) { /* every request is necessary */
            bt_err err = BT_ERR_INIT;
            refuse_memory(&(refusal){.after = k, .own = true});
            const bt_code code = rows[i].make(&something, &err);
            assert_true(grant_memory());
            if (code != BT_NOMEM) fail_msg("%s does without request %d", rows[i].what, k);
        }
    }
}

static void sizes_beyond_a_message_are_refused(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_pipe *p = (bt_pipe *)&err;
    assert_int_equal(
        bt_pipe_create(&p, &mesh, &(bt_pipe_cfg){.elems = (size_t)INT_MAX + 1, .chunks = 1}, &err),
        BT_ARG);
    assert_null(p);
    message_has(err.msg, "a micro-batch of 2147483648 values is too");
    /* A single stage has no buffers. */
    assert_int_equal(bt_pipe_create(&p, &mesh, &(bt_pipe_cfg){.elems = 4, .chunks = 1}, &err),
                     BT_OK);
    bt_pipe_destroy(p);
    bt_prefetch *f = (bt_prefetch *)&err;
    const size_t longer[] = {0, 7, (size_t)INT_MAX + 8}, longest[] = {0, 7, (size_t)INT_MAX + 7};
    assert_int_equal(bt_prefetch_create(&f, &(bt_prefetch_cfg){&mesh, 2, longer, NULL}, &err),
                     BT_UNSUPPORTED);
    assert_null(f);
    message_has(err.msg, "a shard's weights of one layer are 2147483648 bytes");
    assert_int_equal(bt_prefetch_create(&f, &(bt_prefetch_cfg){&mesh, 2, longest, NULL}, &err),
                     BT_OK);
    bt_prefetch_destroy(f);
    bt_flip_gather *g = (bt_flip_gather *)&err;
    assert_int_equal(bt_flip_gather_create(&g, &mesh, (const size_t[]){(size_t)INT_MAX - 11}, &err),
                     BT_UNSUPPORTED);
    assert_null(g);
    message_has(err.msg, "a shard's ternary codes are 2147483636 bytes");
    assert_int_equal(bt_flip_gather_create(&g, &mesh, (const size_t[]){(size_t)INT_MAX - 12}, &err),
                     BT_OK);
    bt_flip_gather_destroy(g);
    bt_pipe_destroy(NULL);
    bt_prefetch_destroy(NULL);
    bt_flip_gather_destroy(NULL);
    bt_shard_all_gather_destroy(NULL);
    bt_tp_group_destroy(NULL);
}

static void exchanges_use_their_planned_bytes(void **state) {
    (void)state;
    static const struct {
        int stages, stage, chunks;
        size_t channels; /* two buffers of 100 floats */
    } pipes[] = {{1, 0, 1, 0}, {4, 0, 1, 2}, {4, 1, 1, 4}, {4, 3, 1, 2}, {2, 0, 1, 2},
                 {2, 1, 1, 2}, {4, 0, 2, 4}, {4, 3, 3, 4}, {2, 0, 2, 4}};
    for (size_t i = 0; i < sizeof pipes / sizeof *pipes; i++)
        assert_int_equal(bt_pipe_bytes(&(bt_mesh_shape){pipes[i].stages, 1, 1, 1}, pipes[i].stage,
                                       &(bt_pipe_cfg){.elems = 100, .chunks = pipes[i].chunks}),
                         pipes[i].channels * 2 * 100 * 4);
    assert_int_equal(bt_prefetch_bytes(1000), 2000);
    assert_int_equal(bt_flip_gather_bytes(1000), 2000);

    /* In pages: lines, common, and for each rank a partial and two outboxes of at least 64 KiB. */
    static const struct {
        int size;
        size_t rows, cols, memory, messages;
    } groups[] = {
        {2, 1, 1, 4096 + 4096 + 2 * (4096 + 2 * 65536), 8 + 2 * 2 * (MIB / 4)},
        {2, 64, 1024, 4096 + 262144 + 2 * (262144 + 2 * 131072 + 2 * 4096),
         524288 + 2 * 2 * (MIB / 4)},
        {3, 64, 1024, 4096 + 262144 + 3 * (262144 + 2 * 94208), 524288 + 2 * 3 * (MIB / 4)},
        {2, 1024, 1024, 4096 + 4 * MIB + 2 * (4 * MIB + 2 * (2 * MIB + 4096)),
         8 * MIB + 8 * 2 * (MIB / 4)},
        {2, 640, 1024, 4096 + 640 * 4096 + 2 * (640 * 4096 + 2 * (320 * 4096 + 4096)),
         2 * 640 * 4096 + 5 * 2 * (MIB / 4)},
        {2, 648, 1024, 4096 + 648 * 4096 + 2 * (648 * 4096 + 2 * (324 * 4096 + 4096)),
         2 * 648 * 4096 + 6 * 2 * (MIB / 4)}, /* an incomplete chunk counts as one */
        {2, 100000, 1, 4096 + 401408 + 2 * (401408 + 2 * 1601536), 800000 + 2 * 2 * (MIB / 4)},
        {33, 1, 1, 8192 + 4096 + 33 * (4096 + 2 * 65536), 8 + 2 * 33 * (MIB / 4)},
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const size_t memory = bt_tp_group_shm_bytes(groups[i].size, groups[i].rows, groups[i].cols),
                     messages = bt_tp_group_messages_bytes(groups[i].size, groups[i].rows,
                                                           groups[i].cols);
        if (memory != groups[i].memory || messages != groups[i].messages)
            fail_msg("row %zu: %zu and %zu bytes", i, memory, messages);
        assert_int_equal(bt_tp_group_bytes(groups[i].size, groups[i].rows, groups[i].cols, true),
                         memory > messages ? memory : messages);
    }
    assert_int_equal(bt_tp_group_bytes(1, 7, 5, true), 7 * 5 * 4);
    assert_int_equal(bt_tp_group_bytes(1, 7, 5, false), 0);
}

/* A forward walk visits each part once; a forward and backward walk visits each turning point once. */
static void each_walk_visits_its_parts(void **state) {
    (void)state;
    static const struct {
        size_t parts, passes, forward, both;
    } rows[] = {{0, 3, 0, 0}, {3, 0, 0, 0}, {1, 1, 1, 1}, {1, 9, 1, 1},
                {2, 1, 2, 3}, {2, 3, 6, 7}, {5, 1, 5, 9}, {5, 4, 20, 33}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(bt_prefetch_visits(BT_PASSES_FORWARD, rows[i].parts, rows[i].passes),
                         rows[i].forward);
        assert_int_equal(bt_prefetch_visits(BT_PASSES_FORWARD_BACKWARD, rows[i].parts,
                                            rows[i].passes),
                         rows[i].both);
    }
}

static void a_group_of_one_rank_keeps_its_results(void **state) {
    (void)state;
    bt_tp_group *t = (bt_tp_group *)&mesh;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_tp_group_create(&t, bt_comm_world(), 3, 5, &err), BT_OK);
    assert_null(t); /* A single rank has no group. */
    assert_int_equal(bt_tp_group_take_busy_ns(NULL), 0);
    assert_int_equal(bt_tp_group_check(NULL, &err), BT_OK);
    assert_int_equal(bt_tp_group_solo(&t, 3, 5, &err), BT_OK);
    assert_true(t->rank == 0 && t->size == 1 && t->common == t->partial);
    assert_int_equal((uintptr_t)t->partial % 64, 0);
    float mine[] = {1, 2}, all[2] = {0}, x[] = {3, 4};
    for (int i = 0; i < 15; i++) t->partial[i] = (float)i;
    t->all_gather(t, mine, all, sizeof mine);
    assert_memory_equal(all, mine, sizeof mine);
    t->all_reduce(t, x, 2, 1);
    assert_true(x[0] == 3 && x[1] == 4);
    t->reduce_scatter_rows(t, 3, 5);
    t->all_gather_rows(t, &(bt_tp_rows){t->partial, 20}, 1, 3);
    for (int i = 0; i < 15; i++) assert_true(t->partial[i] == (float)i);
    t->busy_ns = 7;
    assert_int_equal(bt_tp_group_take_busy_ns(t), 7);
    assert_int_equal(bt_tp_group_take_busy_ns(t), 0);
    assert_int_equal(bt_tp_group_check(t, &err), BT_OK);
    /* A failure is stored and returned with its message. */
    t->failed = bt_fail(&t->why, BT_MPI, "the link is gone");
    assert_int_equal(bt_tp_group_check(t, NULL), BT_MPI);
    assert_int_equal(bt_tp_group_check(t, &err), BT_MPI);
    assert_string_equal(err.msg, "the link is gone");
    bt_tp_group_destroy(t);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_mesh_create(&mesh, &(bt_mesh_shape){1, 1, 1, 1}, bt_comm_world(), &err) != BT_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_request_is_an_error_and_frees_all),
        cmocka_unit_test(sizes_beyond_a_message_are_refused),
        cmocka_unit_test(exchanges_use_their_planned_bytes),
        cmocka_unit_test(each_walk_visits_its_parts),
        cmocka_unit_test(a_group_of_one_rank_keeps_its_results),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_mesh_release(&mesh);
    return failed;
}
