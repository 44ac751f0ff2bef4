/* test_trainer_codec.c - what the codec of a training keeps from step to step: which parts are made, the groups of
 * quanta of all stages' tensors, their text in checkpoints, and what begins with a step. The parts are defined here. */
#include "engine/base/rng.h"
#include "tests/engine/train/said.h"

#include "engine/train/trainer_impl.h"

static bt_trainer t;
static bt_err err;
static bt_tensor mine[2], all[4];
static struct {
    const char *fails, *text;
    const bt_codec *form, *now;
    bt_state_row row;
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, BT_IO, e);
}
bt_code bt_residual_create(bt_residual *r, const bt_rank_setup *s, bt_err *e) {
    assert_true(r == &t.residual && s == &t.setup);
    return done("residual", e);
}
void bt_residual_release(bt_residual *r) { said(r == &t.residual ? "no residual" : "?"); }
void bt_residual_add_state(bt_residual *r, bt_state *s) {
    assert_true(r == &t.residual && s == &t.saver.state);
    said("row residual");
}
void bt_residual_begin(bt_residual *r, float *grads, double loss_scale, bool feedback) {
    assert_true(r == &t.residual && grads == (float *)(void *)all);
    said("residual at %g%s", loss_scale, feedback ? ", feedback" : "");
}
bt_code bt_codec_choice_create(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("choice", e);
}
void bt_codec_choice_release(bt_codec_choice *c) { said(c == &t.codec ? "no choice" : "?"); }
void bt_codec_choice_add_state(bt_trainer *x, bt_state *s) {
    assert_true(x == &t && s == &t.saver.state);
    said("row codec");
}
const bt_codec *bt_codec_choice_now(const bt_trainer *x) { return x == &t ? world.now : NULL; }
void bt_codec_choice_made(bt_trainer *x, const bt_codec *codec) {
    assert_ptr_equal(x, &t);
    said("made %s", codec->name);
}
bt_payload_form bt_rank_setup_form(const bt_rank_setup *s) {
    assert_ptr_equal(s, &t.setup);
    return (bt_payload_form){.codec = world.form, .n_tensors = 7};
}
float *bt_model_grads(bt_model *m) {
    assert_ptr_equal(m, t.model);
    return (float *)(void *)all;
}
size_t bt_rounding_groups(size_t whole_rows) { return (whole_rows + 9) / 10; }
bt_code bt_rounding_create(bt_unit_rounding *r, bt_rounding_tensor *tensors, size_t n,
                           size_t n_groups, uint64_t seed, bt_err *e) {
    assert_true(r == &t.rounding && seed == 5);
    r->tensors = tensors;
    r->n_tensors = n, r->n_groups = n_groups;
    r->exponents = calloc(n_groups, sizeof *r->exponents);
    said("%zu groups", n_groups);
    return done("rounding", e);
}
void bt_rounding_release(bt_unit_rounding *r) {
    free(r->tensors);
    free(r->exponents);
    said("no rounding");
}
void bt_rounding_begin(bt_unit_rounding *r, int64_t step, double loss_scale) {
    assert_ptr_equal(r, &t.rounding);
    said("round step %d at %g", (int)step, loss_scale);
}
bt_code bt_rounding_agree(bt_unit_rounding *r, bt_comm *c, bt_err *e) {
    assert_true(r == &t.rounding && c == t.mesh.world);
    return done("agree", e);
}
void bt_state_add(bt_state *s, const bt_state_row *row) {
    assert_ptr_equal(s, &t.saver.state);
    world.row = *row;
    said("row %s", row->name);
}
const char *bt_state_text(const bt_state_values *v, const char *key) {
    assert_null(v);
    assert_string_equal(key, "exponents");
    return world.text;
}

/* tensors 1 and 3 of four are this rank's: blocks of them */
static void begin(const bt_codec *form) {
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    memset(mine, 0, sizeof mine);
    for (size_t k = 0; k < 4; k++) all[k].whole_rows = 10 * k + 5; /* 1, 2, 3, 4 groups */
    for (size_t k = 0; k < 2; k++)
        mine[k] = (bt_tensor){.offset = 100 * k,
                              .rows = 3 + k,
                              .cols = 5 + k,
                              .row0 = 7 + k,
                              .col0 = 9 + k,
                              .whole_rows = 15 + 20 * k,
                              .number = 1 + 2 * k};
    strcpy(mine[0].name, "a"), strcpy(mine[1].name, "b");
    t.setup.params = (bt_params){.tensors = mine, .n = 2};
    t.update.table = (bt_params){.tensors = all, .n = 4};
    t.cfg.seed = 5;
    world.form = world.now = form;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

static void quanta_are_those_of_all_tensors(void **state) {
    (void)state;
    begin(&bt_codec_exact);
    assert_int_equal(bt_trainer_codec_create(&t, &err), BT_OK);
    heard_is("residual\nchoice\n10 groups\nrounding\n");
    assert_int_equal(t.rounding.n_tensors, 2);
    for (size_t k = 0; k < 2; k++) {
        const bt_rounding_tensor *x = &t.rounding.tensors[k];
        assert_true(x->offset == 100 * k && x->rows == 3 + k && x->cols == 5 + k &&
                    x->row0 == 7 + k && x->col0 == 9 + k && x->whole_rows == 15 + 20 * k);
        assert_int_equal(x->first_group, k ? 1 + 2 + 3 : 1);
        assert_true(x->name == bt_hash_name(k ? "b" : "a"));
    }
    bt_trainer_codec_release(&t);
    heard_is("no residual\nno rounding\nno choice\n");
    begin(bt_codec_at(BT_CODEC_BF16)); /* other codecs round nothing */
    assert_int_equal(bt_trainer_codec_create(&t, &err), BT_OK);
    heard_is("residual\nchoice\n");
    static const char *const parts[] = {"residual", "choice", "rounding"};
    for (int i = 0; i < 3; i++) {
        begin(&bt_codec_exact);
        world.fails = parts[i];
        assert_int_equal(bt_trainer_codec_create(&t, &err), BT_IO);
        heard_is(i == 0   ? "residual\n"
                 : i == 1 ? "residual\nchoice\n"
                          : "residual\nchoice\n10 groups\nrounding\n");
        bt_trainer_codec_release(&t);
    }
}

static void quanta_survive_a_restart(void **state) {
    (void)state;
    static const int16_t exponents[] = {0, 1, -1, INT16_MIN, INT16_MAX, -149, 127, 5, 6, -4096};
    static const char text[] = "800080017fff0000ffff7f6b807f800580067000";
    begin(&bt_codec_exact);
    bt_trainer_codec_state(&t, &t.saver.state);
    heard_is("row codec\nrow residual\nrow quanta\n");
    bt_text out;
    bt_json j;
    for (int made = 0; made < 2; made++) {
        if (made) assert_int_equal(bt_trainer_codec_create(&t, &err), BT_OK);
        if (made) memcpy(t.rounding.exponents, exponents, sizeof exponents);
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        world.row.save(world.row.ctx, &j);
        bt_json_end(&j, '}');
        char want[100] = "{}";
        if (made) snprintf(want, sizeof want, "{\"exponents\":\"%s\"}", text);
        assert_string_equal(bt_text_str(&out), want);
        bt_text_release(&out);
    }
    memset(t.rounding.exponents, 0, sizeof exponents);
    world.text = text;
    world.row.load(world.row.ctx, NULL);
    assert_memory_equal(t.rounding.exponents, exponents, sizeof exponents);
    /* of other groups, or none */
    static const char *const others[] = {NULL, "", "8000",
                                         "80008001800080008000800080008000800080"};
    for (int i = 0; i < 4; i++) {
        world.text = others[i];
        world.row.load(world.row.ctx, NULL);
        assert_memory_equal(t.rounding.exponents, exponents, sizeof exponents);
    }
    bt_trainer_codec_release(&t);
    bt_text_clear(&heard);
}

static void a_step_begins_and_is_agreed_on(void **state) {
    (void)state;
    begin(&bt_codec_exact);
    t.at.step = 9;
    t.loss_scale.value = 4;
    t.codec.made = bt_codec_at(BT_CODEC_NONE);
    bt_trainer_codec_begin(&t);
    assert_int_equal(bt_trainer_codec_agree(&t, &err), BT_OK);
    heard_is("residual at 4\n");
    t.codec.made = bt_codec_at(BT_CODEC_SIGN);
    t.rounding.n_groups = 1;
    bt_trainer_codec_begin(&t);
    assert_int_equal(bt_trainer_codec_agree(&t, &err), BT_OK);
    heard_is("residual at 4, feedback\nround step 9 at 4\nagree\n");
    world.fails = "agree";
    assert_int_equal(bt_trainer_codec_agree(&t, &err), BT_IO);
    bt_text_clear(&heard);
    /* the reducer is that of the codec now, unless a tensor fell back since */
    world.now = bt_codec_at(BT_CODEC_SIGN);
    assert_false(bt_trainer_codec_stale(&t));
    t.codec.fell_anew = true;
    assert_true(bt_trainer_codec_stale(&t));
    t.codec.fell_anew = false;
    world.now = bt_codec_at(BT_CODEC_INT8);
    assert_true(bt_trainer_codec_stale(&t));
    const bt_payload_form form = bt_trainer_codec_form(&t);
    assert_true(form.codec == world.now && form.n_tensors == 7);
    heard_is("made int8\n");
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quanta_are_those_of_all_tensors),
        cmocka_unit_test(quanta_survive_a_restart),
        cmocka_unit_test(a_step_begins_and_is_agreed_on),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
