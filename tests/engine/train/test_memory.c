/* The message about a plan that exceeds the available memory contains the numbers and remedies; the memory of this
 * machine can be read. */
#include "tests/tiny_run.h"

#include "engine/plan/memory.h"
#include "engine/plan/plan.h"

enum { MIB = 1 << 20 };

static bt_run_cfg cfg;
static bt_err err;

static void resolve_memory_settings(int world, const char *const *words) {
    bt_opts o;
    bool help;
    int n = 0;
    while (words[n]) n++;
    if (bt_run_cfg_read(&o, &cfg, n, (char *const *)(uintptr_t)words, &help, &err) != BT_OK)
        fail_msg("%s", err.msg);
    if (bt_run_cfg_resolve_opts(&o, &cfg, world, &err) != BT_OK) fail_msg("%s", err.msg);
}
#define SETTLE(world, ...) resolve_memory_settings(world, (const char *const[]){__VA_ARGS__, NULL})

static bt_code check_plan(int local, size_t process, size_t host) {
    bt_memory_room room = {.process = process, .host = host, .host_limit = "memory available"};
    memset(&err, 0, sizeof err);
    return bt_memory_check(&cfg, 0, local, bt_parts_memory, &room, &err);
}

static void assert_error_contains(const char *part) {
    if (!strstr(err.msg, part)) fail_msg("'%s' does not contain '%s'", err.msg, part);
}

static void a_plan_that_fits_is_accepted(void **state) {
    (void)state;
    SETTLE(2, "--preset", "small", "--threads", "1");
    size_t need = bt_plan_bytes(&cfg, 0, bt_parts_memory);
    assert_int_equal(check_plan(2, SIZE_MAX, SIZE_MAX), BT_OK);
    assert_int_equal(check_plan(2, need, 2 * need), BT_OK);
    assert_int_equal(check_plan(2, need - 1, 2 * need), BT_NOMEM);
    assert_error_contains("address space");
    /* The message contains a limit that the user has set. */
    const bt_memory_room limited = {.process = 2 * MIB,
                                    .host = SIZE_MAX,
                                    .host_limit = "memory available",
                                    .address_space = 200 * (size_t)MIB};
    assert_int_equal(bt_memory_check(&cfg, 0, 2, bt_parts_memory, &limited, &err), BT_NOMEM);
    assert_error_contains(
        "2.00 MiB of address space (ulimit -v is 200 MiB, and the program has mapped 198 MiB)");
    /* The ranks of a host share its memory. */
    assert_int_equal(check_plan(2, need, 2 * need - 2), BT_NOMEM);
    assert_error_contains("memory available");
    cfg.launch.memory_check = false;
    assert_int_equal(check_plan(2, 1, 1), BT_OK);
}

static void message_names_arena_and_remedy(void **state) {
    (void)state;
    /* Activations are the largest part. */
    SETTLE(2, "--preset", "small", "--threads", "1");
    size_t need = bt_plan_bytes(&cfg, 0, bt_parts_memory);
    assert_int_equal(check_plan(1, SIZE_MAX, need - 10 * MIB), BT_NOMEM);
    assert_error_contains("activations");
    assert_error_contains("--micro-batch 1 (");
    SETTLE(2, "--preset", "small", "--threads", "1", "--micro-batch", "1");
    assert_int_equal(check_plan(1, SIZE_MAX, bt_plan_bytes(&cfg, 0, bt_parts_memory) - 10 * MIB),
                     BT_NOMEM);
    assert_error_contains("optimizer");
    assert_error_contains("use --zero 1 (");
    assert_error_contains(" or --zero 2 (");
    SETTLE(2, "--preset", "small", "--threads", "1", "--micro-batch", "1", "--zero", "3", "--set",
           "parallel.gather=step");
    assert_int_equal(check_plan(1, SIZE_MAX, bt_plan_bytes(&cfg, 0, bt_parts_memory) - 10 * MIB),
                     BT_NOMEM);
    assert_error_contains("use --set parallel.gather=layer (");
    SETTLE(1, "--preset", "small", "--threads", "1", "--micro-batch", "1");
    assert_int_equal(check_plan(1, SIZE_MAX, bt_plan_bytes(&cfg, 0, bt_parts_memory) - 10 * MIB),
                     BT_NOMEM);
    assert_error_contains("use --recompute selective (");
    assert_int_equal(check_plan(1, SIZE_MAX, 100 * MIB), BT_NOMEM);
    assert_error_contains("even --recompute full --micro-batch 1 needs");
}

/* Each remedy in the message makes the plan fit. */
static void each_remedy_helps(void **state) {
    (void)state;
    SETTLE(4, "--preset", "base", "--threads", "1", "--batch-tokens", "16384");
    for (size_t room = bt_plan_bytes(&cfg, 0, bt_parts_memory) - MIB; room > 600 * (size_t)MIB;
         room -= room / 16) {
        if (check_plan(1, SIZE_MAX, room) == BT_OK) continue;
        char words[256], *at = strstr(err.msg, "use --"), *argv[24];
        if (!at) continue;
        snprintf(words, sizeof words, "--preset base --threads 1 --batch-tokens 16384 %s", at + 4);
        *strstr(words, " (") = '\0';
        int n = 0;
        for (char *w = strtok(words, " "); w && n < 23; w = strtok(NULL, " ")) argv[n++] = w;
        argv[n] = NULL;
        bt_err before = err;
        resolve_memory_settings(4, (const char *const *)argv);
        if (check_plan(1, SIZE_MAX, room) != BT_OK)
            fail_msg("'%s' is not true: '%s'", before.msg, err.msg);
        SETTLE(4, "--preset", "base", "--threads", "1", "--batch-tokens", "16384");
    }
}

static void this_machine_can_be_read(void **state) {
    (void)state;
    bt_memory_room room;
    bt_memory_room_of(&room);
    assert_true(room.host > MIB && room.host_limit != NULL);
}

int main(void) {
    bt_err select = BT_ERR_INIT;
    if (bt_kernels_select("generic", &select) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_fits_is_accepted),
        cmocka_unit_test(message_names_arena_and_remedy),
        cmocka_unit_test(each_remedy_helps),
        cmocka_unit_test(this_machine_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
