/* The registry of state: who adds a row survives a restart; a checkpoint that knows nothing of a row
 * lets it begin anew; what is no JSON object is refused. */
#include "engine/ckpt/state.h"
#include "tests/engine/ckpt/ckpt_world.h"

typedef struct owner { /* of some state */
    int64_t count;
    double rate;
    float array[4];
} owner;

static void owner_slices(void *ctx, bt_state_use use, bt_slices *out) {
    owner *o = ctx;
    if (use == BT_STATE_WEIGHTS) return;
    for (uint64_t i = 0; i < 4; i++)
        bt_slices_add(out, &(bt_ckpt_slice){.tensor = "w",
                                            .state = "mine",
                                            .tensor_elems = 4,
                                            .first = i,
                                            .count = 1,
                                            .data = o->array + i});
}

static void owner_save(void *ctx, bt_json *j) {
    const owner *o = ctx;
    bt_json_int(j, "count", o->count);
    bt_json_num(j, "rate", o->rate);
}

static void owner_load(void *ctx, const bt_state_values *v) {
    owner *o = ctx;
    o->count = bt_state_int(v, "count", -1);
    o->rate = bt_state_real(v, "rate", -1);
}

static bt_state registry_of(owner *o, const char *name) {
    bt_state s = {.n = 0};
    bt_state_add(&s, &(bt_state_row){.name = name,
                                     .ctx = o,
                                     .slices = owner_slices,
                                     .save = owner_save,
                                     .load = owner_load});
    return s;
}

/* who adds a row survives; a checkpoint that knows nothing of the row begins it anew */
static void test_registry(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    owner mine = {1234567890123, 0.1, {1, 2, 3, 4}}, back = {0}, stranger = {7, 7, {0}};
    bt_state out = registry_of(&mine, "mine"), in = registry_of(&back, "mine"),
             other = registry_of(&stranger, "other");
    bt_slices slices;
    bt_ckpt_meta meta;
    fill_meta(&meta, 4, 0);
    bt_text_clear(&meta.state);
    check_ok(bt_state_save_values(&out, &meta.state, &err), &err);
    check_ok(bt_state_slices(&out, BT_STATE_SAVE, &slices, &err), &err);
    assert_int_equal(slices.n, 4);
    bt_ckpt_saved saved;
    bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = slices.at, .n = slices.n, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    bt_slices_release(&slices);

    char found[PATH_MAX];
    check_ok(find(s, found, &meta, NULL, &err), &err);
    check_ok(bt_state_load_values(&in, &meta.state, &err), &err);
    check_ok(bt_state_load_values(&other, &meta.state, &err), &err);
    check_ok(bt_state_slices(&in, BT_STATE_RESUME, &slices, &err), &err);
    check_ok(bt_ckpt_load(found, slices.at, slices.n, &err), &err);
    bt_slices_release(&slices);
    assert_memory_equal(&mine, &back, sizeof mine);
    assert_true(stranger.count == -1 && stranger.rate == -1);
    check_ok(bt_state_slices(&in, BT_STATE_WEIGHTS, &slices, &err), &err);
    assert_int_equal(slices.n, 0);
    bt_slices_release(&slices);
    bt_ckpt_meta_release(&meta);
    bt_text bad;
    bt_text_init(&bad);
    bt_text_put(&bad, "[1");
    assert_int_equal(bt_state_load_values(&in, &bad, &err), BT_FORMAT);
    bt_text_release(&bad);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_registry, set_up, tear_down)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return rc;
}
