/* The registry of state that checkpoints save: each row survives a restart; a row that is absent from a checkpoint gets
 * its default; text that is not a JSON object is refused. */
#include "engine/ckpt/state.h"
#include "tests/engine/ckpt/ckpt_world.h"

typedef struct owner {
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

typedef struct seen { /* the values that a row received */
    int64_t ints[4], n_ints, whole;
    double real;
    bool yes;
    char text[16];
} seen;

static void read_seen_values(void *ctx, const bt_state_values *v) {
    seen *s = ctx;
    for (int i = 0; i < 4; i++) s->ints[i] = -9;
    s->n_ints = (int64_t)bt_state_ints(v, "list", s->ints, 3);
    s->whole = bt_state_int(v, "whole", 5);
    s->real = bt_state_real(v, "real", 0.5);
    s->yes = bt_state_bool(v, "yes", true);
    snprintf(s->text, sizeof s->text, "%s",
             bt_state_text(v, "text") ? bt_state_text(v, "text") : "none");
}

/* A missing value, or one of another type, becomes the default; of a list that is too long the last entries are
 * kept. */
static void values_of_any_type_are_restored(void **state) {
    (void)state;
    static const struct {
        const char *row;
        seen want;
    } rows[] = {{"{}", {{-9, -9, -9, -9}, 0, 5, 0.5, true, "none"}},
                {"{\"list\":[1,2],\"whole\":7,\"real\":2,\"yes\":false,\"text\":\"x\"}",
                 {{1, 2, -9, -9}, 2, 7, 2, false, "x"}},
                {"{\"list\":[1,2,3,4,5],\"whole\":7.5,\"real\":\"2\",\"yes\":0,\"text\":3}",
                 {{3, 4, 5, -9}, 3, 5, 0.5, true, "none"}},
                {"{\"list\":[1,\"2\"],\"whole\":\"7\",\"real\":-1e9,\"yes\":true,\"text\":\"\"}",
                 {{1, -9, -9, -9}, 0, 5, -1e9, true, ""}},
                {"{\"list\":7}", {{-9, -9, -9, -9}, 0, 5, 0.5, true, "none"}},
                {"7", {{-9, -9, -9, -9}, 0, 5, 0.5, true, "none"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        seen got = {.n_ints = -1};
        bt_state s = {.n = 0};
        bt_ckpt_meta meta = {.step = 0};
        char text[16];
        bt_text_printf(&meta.state, "{\"row\":%s}", rows[i].row);
        bt_state_add(&s, &(bt_state_row){.name = "row", .ctx = &got, .load = read_seen_values});
        check_ok(bt_state_load_values(&s, &meta.state, &err), &err);
        const seen *want = &rows[i].want;
        if (memcmp(got.ints, want->ints, sizeof got.ints) != 0 || got.n_ints != want->n_ints ||
            got.whole != want->whole || got.real != want->real || got.yes != want->yes ||
            strcmp(got.text, want->text) != 0)
            fail_msg("%s", rows[i].row);
        assert_true(bt_ckpt_state_real(&meta, "row", "real", 0.5) == want->real);
        bt_ckpt_state_text(&meta, "row", "text", "none", text, sizeof text);
        assert_string_equal(text, want->text);
        bt_ckpt_meta_release(&meta);
    }
}

static void add_slices_of_0_and_1(void *ctx, bt_state_use use, bt_slices *out) {
    (void)use;
    for (uint64_t count = 0; count < 2; count++)
        bt_slices_add(out, &(bt_ckpt_slice){.tensor = ctx, .state = "mine", .count = count});
}

/* An empty slice is dropped, and the list is built anew whatever it contained. */
static void slices_without_elements_are_dropped(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    char name[] = "w";
    bt_state s = {.n = 0};
    bt_slices out;
    bt_state_add(&s, &(bt_state_row){.name = "row", .ctx = name, .slices = add_slices_of_0_and_1});
    memset(&out, 0, sizeof out);
    out.failed = true; /* left from an earlier use */
    check_ok(bt_state_slices(&s, BT_STATE_SAVE, &out, &err), &err);
    assert_int_equal(out.n, 1);
    assert_true(out.at[0].count == 1);
    bt_slices_release(&out);
    assert_true(out.n == 0 && !out.at);
}

static void save_rank(void *ctx, bt_json *j) { bt_json_int(j, "is", *(int64_t *)ctx); }
static void load_rank(void *ctx, const bt_state_values *v) {
    *(int64_t *)ctx = bt_state_int(v, "is", -1);
}

/* The registry accepts rows up to its capacity, each with its own values and slices. */
static void a_registry_has_a_capacity(void **state) {
    (void)state;
    static char names[BT_STATE_ROWS][8];
    int64_t out[BT_STATE_ROWS], in[BT_STATE_ROWS];
    bt_err err = BT_ERR_INIT;
    bt_state s = {.n = 0}, t = {.n = 0};
    bt_slices slices;
    bt_text values;
    for (int i = 0; i < BT_STATE_ROWS; i++) {
        snprintf(names[i], sizeof names[i], "r%d", i);
        out[i] = 100 + i, in[i] = 0;
        bt_state_add(&s, &(bt_state_row){.name = names[i],
                                         .ctx = &out[i],
                                         .save = save_rank,
                                         .slices = add_slices_of_0_and_1});
        bt_state_add(&t, &(bt_state_row){.name = names[i], .ctx = &in[i], .load = load_rank});
    }
    bt_text_init(&values);
    check_ok(bt_state_save_values(&s, &values, &err), &err);
    check_ok(bt_state_load_values(&t, &values, &err), &err);
    assert_memory_equal(in, out, sizeof in);
    bt_text_clear(&values);
    check_ok(bt_state_save_values(&t, &values, &err), &err); /* No row has anything to save. */
    assert_string_equal(bt_text_str(&values), "{}");
    bt_text_release(&values);
    check_ok(bt_state_slices(&s, BT_STATE_SAVE, &slices, &err), &err);
    assert_int_equal(slices.n, BT_STATE_ROWS);
    for (int i = 0; i < BT_STATE_ROWS; i++) assert_ptr_equal(slices.at[i].tensor, &out[i]);
    bt_slices_release(&slices);
    check_ok(bt_state_slices(&t, BT_STATE_SAVE, &slices, &err), &err);
    assert_int_equal(slices.n, 0);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_registry, set_up,
                                                                       tear_down),
                                       cmocka_unit_test(values_of_any_type_are_restored),
                                       cmocka_unit_test(slices_without_elements_are_dropped),
                                       cmocka_unit_test(a_registry_has_a_capacity)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return rc;
}
