/* test_part_table.c - the table of parts and the rules of part.h, tested with parts defined here: each part keeps its
 * notes, the first verdict decides, unused parts are not called, every part is ended and released. */
#include "tests/tiny_run.h"

#include "engine/config/part_rules.h"
#include "engine/train/trainer_impl.h"

typedef struct probe {
    int64_t sent, received; /* the second of its notes */
    int judged, ended, acted;
} probe;

static probe first, third;
static int released;
static bt_verdict verdict_of_first;
static bt_code end_of_first;

static bt_code create_first(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t, (void)s, (void)err;
    *self = &first;
    return BT_OK;
}
static bt_code create_third(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t, (void)s, (void)err;
    *self = &third;
    return BT_OK;
}
static bt_code create_unused(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t, (void)s, (void)self, (void)err;
    return BT_OK;
}
/* Records the order: the third part is released before the first. */
static void record_release(void *self) { released = 10 * released + (self == &first ? 1 : 3); }
static void put_notes(void *self, bt_trainer *t, int64_t *notes) {
    (void)t;
    notes[1] = ((probe *)self)->sent;
}
static bt_code record_exchange(void *self, bt_trainer *t, bt_step_outcome *o,
                               const bt_reduce_times *took, const int64_t *notes, bt_err *err) {
    (void)t, (void)o, (void)took, (void)err;
    ((probe *)self)->received = notes[1];
    return BT_OK;
}
static bt_code count_verdict(void *self, bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict,
                             bt_err *err) {
    (void)t, (void)o, (void)err;
    ((probe *)self)->judged++;
    *verdict = self == &first ? verdict_of_first : BT_ELSEWHERE;
    return BT_OK;
}
static bt_code record_act(void *self, bt_trainer *t, const bt_control *c, bool evaluated,
                          bt_err *err) {
    (void)t, (void)c, (void)evaluated, (void)err;
    ((probe *)self)->acted++;
    return BT_OK;
}
static bt_code record_end(void *self, bt_trainer *t, bt_train_result *out, bt_err *err) {
    (void)t, (void)out;
    ((probe *)self)->ended++;
    const bt_code code = self == &first ? end_of_first : BT_IO;
    return code == BT_OK ? BT_OK : bt_fail(err, code, "the end of %s", self == &first ? "1" : "3");
}
static bool fail_partly(void *self, const bt_trainer *t) {
    (void)t;
    return self == &third;
}
/* This part is never called, because its create function leaves self NULL. */
static void no_notes(void *self, bt_trainer *t, int64_t *notes) {
    (void)self, (void)t;
    notes[0] = 99;
}

static float *pieces[] = {NULL};
static float *const *weights_for_use(void *self, const bt_trainer *t) {
    (void)t;
    return self == &first ? pieces : pieces + 1;
}

#define POINTS \
    .notes = 2, .release = record_release, .put_notes = put_notes, .exchanged = record_exchange, \
    .judge = count_verdict, .act = record_act, .end = record_end
static const bt_part one = {.name = "one", .create = create_first, POINTS};
static const bt_part unused = {
    .name = "unused", .notes = 1, .create = create_unused, .put_notes = no_notes};
static const bt_part three = {
    .name = "three", .create = create_third, .partial = fail_partly, POINTS};

static const bt_part provider = {
    .name = "provider", .create = create_first, .weights_for_use = weights_for_use};
static const bt_part rival = {
    .name = "rival", .create = create_third, .weights_for_use = weights_for_use};

static bt_trainer t;

static int begin(void **state) {
    static const bt_part *const rows[] = {&one, &unused, &three};
    bt_err err = BT_ERR_INIT;
    (void)state;
    memset(&t, 0, sizeof t);
    first = third = (probe){0};
    released = 0;
    verdict_of_first = BT_APPLY;
    end_of_first = BT_OK;
    return bt_parts_create(&t, rows, 3, NULL, &err) != BT_OK;
}

static void notes_keep_their_places(void **state) {
    (void)state;
    int64_t notes[BT_PART_NOTES] = {0};
    bt_step_outcome o = {0};
    bt_err err = BT_ERR_INIT;
    first.sent = 7, third.sent = 8;
    assert_int_equal(t.parts.notes, 5);
    bt_parts_put_notes(&t, notes);
    static const int64_t want[] = {0, 7, 0, 0, 8};
    assert_memory_equal(notes, want, sizeof want);
    assert_int_equal(bt_parts_exchanged(&t, &o, NULL, notes, &err), BT_OK);
    assert_true(first.received == 7 && third.received == 8);
}

static void the_first_verdict_decides(void **state) {
    (void)state;
    static const bt_verdict rows[][2] = {
        {BT_APPLY, BT_ELSEWHERE}, {BT_SKIP, BT_SKIP}, {BT_AGAIN, BT_AGAIN}};
    bt_step_outcome o = {0};
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < 3; i++) {
        bt_verdict v;
        third.judged = 0;
        verdict_of_first = rows[i][0];
        assert_int_equal(bt_parts_verdict(&t, &o, &v, &err), BT_OK);
        assert_int_equal(v, rows[i][1]);
        assert_int_equal(third.judged, rows[i][0] == BT_APPLY);
    }
}

static void requests_reach_all_parts_in_use(void **state) {
    (void)state;
    const bt_control c = {.verbs = BT_REQ_EVAL};
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_parts_act(&t, &c, false, &err), BT_OK);
    assert_true(first.acted == 1 && third.acted == 1);
    assert_true(bt_parts_partial(&t));
    assert_ptr_equal(bt_trainer_part(&t, "three"), &third);
    assert_null(bt_trainer_part(&t, "unused"));
    assert_null(bt_trainer_part(&t, "nowhere"));
}

static void every_part_ends_and_the_first_failure_counts(void **state) {
    (void)state;
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    end_of_first = BT_NOMEM;
    assert_int_equal(bt_parts_end(&t, &r, &err), BT_NOMEM);
    assert_string_equal(err.msg, "the end of 1");
    assert_true(first.ended == 1 && third.ended == 1);
    end_of_first = BT_OK;
    assert_int_equal(bt_parts_end(&t, &r, &err), BT_IO);
    assert_string_equal(err.msg, "the end of 3");
    bt_parts_release(&t);
    assert_int_equal(released, 31);
}

/* One part may provide the weights that validations and other programs use. */
static void one_part_replaces_the_weights_for_use(void **state) {
    static const bt_part *const rows[] = {&provider, &rival};
    bt_err err = BT_ERR_INIT;
    (void)state;
    for (size_t n = 1; n <= 2; n++) {
        memset(&t, 0, sizeof t);
        assert_int_equal(bt_parts_create(&t, rows, n, NULL, &err), BT_OK);
        assert_int_equal(bt_parts_model_made(&t, &err), n == 1 ? BT_OK : BT_ARG);
        assert_ptr_equal(t.update.for_use, pieces);
    }
    assert_string_equal(
        err.msg, "'provider' and 'rival' both replace the weights that validations and other "
                 "programs use (leave the settings of one out)");
}

/* Checks every row for mistakes that a new row may contain. */
static void rows_of_the_table_are_complete(void **state) {
    (void)state;
    int notes = 0;
    for (size_t i = 0; i < bt_parts_n; i++) {
        const bt_part *p = bt_parts[i];
        assert_non_null(p->create);
        assert_true(p->name[0] != 0 && (p->notes > 0) == (p->put_notes != NULL));
        assert_true(!p->due || p->after_step);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(p->name, bt_parts[k]->name);
        notes += p->notes;
    }
    assert_true(bt_parts_n > 0 && notes <= BT_PART_NOTES);
}

/* Commands force values of settings that exist. */
static void forced_values_are_possible(void **state) {
    static const bt_forced_for purposes[] = {BT_FORCE_LEARN, BT_FORCE_LR_RANGE, BT_FORCE_STEP_TIME};
    static bt_opts o;
    static bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    const bt_forced *f;
    (void)state;
    assert_int_equal(bt_opts_init(&o, bt_run_opts, bt_run_opts_n, &cfg, &err), BT_OK);
    for (size_t p = 0; p < sizeof purposes / sizeof *purposes; p++)
        for (size_t i = 0; (f = bt_forced_at(purposes[p], i)); i++)
            if (bt_opts_set(&o, f->key, f->value, BT_FROM_FLAG, "", &err) != BT_OK)
                fail_msg("%s=%s: %s", f->key, f->value, err.msg);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(notes_keep_their_places, begin),
        cmocka_unit_test_setup(the_first_verdict_decides, begin),
        cmocka_unit_test_setup(requests_reach_all_parts_in_use, begin),
        cmocka_unit_test_setup(every_part_ends_and_the_first_failure_counts, begin),
        cmocka_unit_test(one_part_replaces_the_weights_for_use),
        cmocka_unit_test(rows_of_the_table_are_complete),
        cmocka_unit_test(forced_values_are_possible),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
