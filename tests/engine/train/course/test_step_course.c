/* test_step_course.c - one step of a trainer made by hand: which parts follow each other and with what, what is told
 * to the other ranks and what is made of their answers, what is applied and what is left out, and each field of the
 * outcome. What the parts do is defined in the header. */
#include "tests/engine/train/course/one_step.h"

/* ---- a step ---------------------------------------------------------------------------------- */

static void a_step_has_its_order_and_its_outcome(void **state) {
    (void)state;
    begin();
    step(PLAIN "[optim_ms\njudge\ngood: loss 0.75, norm 4, finite 1\n"
               "update 4 held at 2: gradients times 1, lr 0.1875, decay 0.75\napply\ntie\n" END);
    assert_int_equal(o.counted, 64);
    assert_true(o.loss == 0.75 && o.worst_loss == 0.75 && isnan(o.global_loss));
    assert_true(o.grad_norm == 4 && o.lr == 0.1875 && o.weight_decay == 0.75);
    assert_true(o.loss_scale == 1 && o.lambda == 0.75 && o.seconds_per_micro == 3.5);
    no_score_but(2, 1, 0.5);
    assert_true(o.applied && !o.loss_bad && !o.ckpt_busy && !o.bad && !o.again && !o.left);
    assert_true(!o.evaluated && !o.best && !o.control.verbs && !o.control.lr_bits);
    assert_true(t.at.step == 6 && t.at.updates == 4 && t.at.tokens == 564);
    assert_int_equal(t.grad_fingerprint, bits_of(4));
    assert_int_equal(t.memory.every, 20);
    for (int i = 0; i < ELEMS; i++) assert_true(grads[i] == 0);
    begin(); /* a stage of a pipeline */
    schedule.pipe = (bt_pipe *)(void *)&pipe_object;
    step(PLAIN "[optim_ms\njudge\ngood: loss 0.75, norm 4, finite 1\n"
               "update 4 held at 2: gradients times 1, lr 0.1875, decay 0.75\napply\ntie\n]\n"
               "busy for 10\ntake tp\nbusy for 20\nbusy for 30\nmay flip at 6\n");
}

/* tokens that are learned: of the step, by the loader's word; of this rank, by the passes' */
static void a_loss_is_the_mean_over_what_is_learned(void **state) {
    (void)state;
    begin();
    world.counted = 40;
    world.learned = 10;
    gradients("counted at 5\n" ACCUMULATE("0.025", "2.4", "10")
                  EXCHANGE("0 0 0 0 4612586738352862003 77 -77 20 0") MET NORM);
    assert_true(o.counted == 40 && o.loss == 2.4);
    begin(); /* none of this rank's: without weight in the mean */
    world.counted = 40;
    world.loss = 0;
    gradients("counted at 5\n" ACCUMULATE("0.025", "0", "0") EXCHANGE("0 0 0 0 0 77 -77 20 0")
                  MET NORM);
    assert_true(o.loss == 0);
    begin(); /* a step in which no token is learned */
    world.counted = 0;
    world.learned = 1;
    world.loss = 0;
    gradients("counted at 5\n" ACCUMULATE("inf", "0", "1") EXCHANGE("0 0 0 0 0 77 -77 20 0")
                  MET NORM);
    assert_int_equal(o.counted, 0);
    begin(); /* an island has the hub's data */
    t.island = (bt_island *)(void *)&island;
    world.counted = 40;
    world.counted_of_island = 20;
    world.learned = 10;
    gradients("hub's data\n" ACCUMULATE("0.05", "2.4", "10")
                  EXCHANGE("0 0 0 0 4612586738352862003 77 -77 20 0") MET NORM);
    assert_int_equal(o.counted, 20);
    begin(); /* gradients of fp16 are those of a scaled loss */
    bt_loss_scale_init(&t.loss_scale, true, 8, 3);
    gradients("counted at 5\n" ACCUMULATE("0.125", "0.75", "nan") EXCHANGE(NOTES) MET
              "[optim_ms\nunscaled by 0.125\nnorm\n]\n");
}

static void a_test_poisons_one_tensor(void **state) {
    (void)state;
    begin();
    world.poisoned = "tensor 1";
    gradients("counted at 5\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(NOTES) MET NORM);
    for (int i = 0; i < ELEMS; i++) assert_int_equal(isnan(grads[i]) != 0, i == 4);
}

/* ---- what ranks tell each other -------------------------------------------------------------- */

/* rank 0 alone is asked by people; any rank may be told to leave */
static void what_is_asked_is_told_to_all(void **state) {
    (void)state;
    static const struct {
        int rank;
        int64_t verbs;
        bool due, busy;
        int64_t control, lr, leave;
    } rows[] = {{0, BT_REQ_PAUSE | BT_REQ_LR, false, false, BT_REQ_PAUSE | BT_REQ_LR, 9, 0},
                {0, BT_REQ_STOP, true, false, BT_REQ_STOP | REQ_CKPT_DUE, 9, 0},
                {0, 0, false, true, 0, 9, 0},
                {2, BT_REQ_PAUSE, true, false, 0, 0, 0},
                {2, BT_REQ_STOP | BT_REQ_PAUSE, false, false, 0, 0, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char notes[200];
        begin();
        world.rank = rows[i].rank;
        world.asked = (bt_control){.verbs = rows[i].verbs, .lr_bits = 9};
        world.due = rows[i].due, world.busy = rows[i].busy;
        assert_int_equal(bt_step_gradients(&t, &o, &err), BT_OK);
        snprintf(notes, sizeof notes, "notes %d %d 0 %d 4604930618986332160 77 -77 20 %d\n",
                 (int)rows[i].control, (int)rows[i].lr, rows[i].busy, (int)rows[i].leave);
        assert_non_null(strstr(bt_text_str(&heard), notes));
        assert_int_equal(o.ckpt_busy, rows[i].busy);
        assert_int_equal(o.control.lr_bits, rows[i].lr);
        /* who is told to leave stops all */
        assert_int_equal(o.control.verbs,
                         rows[i].control | (rows[i].leave ? (int64_t)BT_REQ_STOP : 0));
    }
}

static void what_the_others_tell_holds_here(void **state) {
    (void)state;
    begin();
    world.rank = 1;
    world.theirs[NOTE_CONTROL] = BT_REQ_EVAL | REQ_CKPT_DUE;
    world.theirs[NOTE_LR] = 12;
    world.theirs[NOTE_BAD_LOSS] = 1;
    world.theirs[NOTE_CKPT_BUSY] = 1;
    world.theirs[NOTE_LOSS] = bits_of(2.5);
    world.theirs[NOTE_MEMORY_EVERY] = 60;
    gradients("counted at 5\n" ACCUMULATE("0.015625", "0.75", "nan")
                  EXCHANGE(NOTES) "met, every 60\n" NORM);
    assert_true(o.control.verbs == (BT_REQ_EVAL | REQ_CKPT_DUE) && o.control.lr_bits == 12);
    assert_true(o.loss_bad && o.ckpt_busy && o.worst_loss == 2.5 && o.loss == 0.75);
    assert_int_equal(t.memory.every, 60);
    begin(); /* a rank whose loss is no number tells that, and nothing of its size */
    world.loss = INFINITY;
    world.theirs[NOTE_LOSS] = bits_of(2.5);
    gradients("counted at 5\n" ACCUMULATE("0.015625", "inf", "nan")
                  EXCHANGE("0 0 1 0 0 77 -77 20 0") MET NORM);
    assert_true(o.loss_bad && o.worst_loss == 2.5);
    begin(); /* the machine of rank 2 is about to be taken away */
    world.theirs[NOTE_LEAVE] = 3;
    world.theirs[NOTE_CONTROL] = BT_REQ_PAUSE;
    gradients("counted at 5\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(
        NOTES) "rank_leaves of 2 5 a signal told rank 2 to leave: all ranks save and leave\n" MET
                  NORM);
    assert_int_equal(o.control.verbs, BT_REQ_PAUSE | BT_REQ_STOP);
    begin(); /* they stop in any case */
    world.theirs[NOTE_LEAVE] = 3;
    world.theirs[NOTE_CONTROL] = BT_REQ_STOP;
    gradients("counted at 5\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(NOTES) MET NORM);
    assert_int_equal(o.control.verbs, BT_REQ_STOP);
}

static void gradients_that_differ_end_the_run(void **state) {
    (void)state;
    for (int sign = -1; sign < 2;
         sign += 2) { /* this rank's norm before was the lesser one, or not */
        begin();
        world.theirs[NOTE_GRAD_FINGERPRINT] = 77 + sign;
        world.theirs[NOTE_GRAD_FINGERPRINT_NEG] = -77 - sign;
        assert_int_equal(bt_train_step(&t, &o, &err), BT_DAMAGED);
        assert_string_equal(
            err.msg, "the ranks' gradients of step 4 differ: a fault of memory or processor, or "
                     "a bug (resume from a checkpoint)");
        assert_int_equal(t.at.step, STEP);
        assert_null(strstr(bt_text_str(&heard), "norm"));
    }
}

/* ---- losses and scores of all ranks ---------------------------------------------------------- */

static void a_reproducible_loss_is_added_in_one_order(void **state) {
    (void)state;
    begin();
    t.cfg.reproducible = true;
    step("take tp\ncounted at 5\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(
        NOTES) "[comm_exposed_ms\nsum of 0 8 16 0\nlosses\n]\n" MET NORM
               "[optim_ms\njudge\ngood: loss 0.484375, norm 4, finite 1\n"
               "update 4 held at 2: gradients times 1, lr 0.1875, decay 0.75\napply\ntie\n" END);
    assert_true(o.global_loss == 31.0 / 64 && o.loss == 0.75);
    const bt_step_facts f = bt_step_facts_of(&t, &o);
    assert_true(f.loss == o.global_loss && f.grad_norm == 4 && f.loss_finite);
    t.cfg.reproducible = false;
    o.loss_bad = true;
    o.worst_loss = 3;
    const bt_step_facts g = bt_step_facts_of(&t, &o);
    assert_true(g.loss == 3 && g.grad_norm == 4 && !g.loss_finite);
}

static void scores_are_those_of_all_ranks(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        begin();
        t.setup.model.pairs = i != 1;
        t.setup.model.cfg.classes = i == 1 ? 4 : 0;
        if (i == 2) schedule.pipe = (bt_pipe *)(void *)&pipe_object;
        char want[1200];
        snprintf(want, sizeof want,
                 "counted at 5\n" ACCUMULATE("0.015625", "0.75", "nan")
                     EXCHANGE(NOTES) "[comm_exposed_ms\nsum of 2 1 0.5\nscores\n%s]\n" MET NORM,
                 i == 2 ? "pipe's scores\n" : "");
        gradients(want);
        const double more = i == 2;
        no_score_but(4 + more, 2 + more, 1 + more);
    }
}

/* ---- what is applied ------------------------------------------------------------------------- */

static void gradients_are_clipped_and_unscaled(void **state) {
    (void)state;
    static const struct {
        double clip, norm, scale;
        const char *times;
    } rows[] = {{0, 1000, 1, "1"},      {8, 4, 1, "1"},        {1, 4, 1, "0.25"},
                {1, 4, 16, "0.015625"}, {0, 4, 16, "0.0625"},  {8, 4, 16, "0.0625"},
                {4, 4, 1, "1"},         {1e-6, 0, 2, "0.5"},   {1, 1e-3, 1, "1"},
                {3, 1e-6, 1, "1"},      {1e-6, 1e-6, 1, "0.5"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[120];
        begin();
        t.cfg.clip = rows[i].clip;
        world.norm = rows[i].norm;
        bt_loss_scale_init(&t.loss_scale, rows[i].scale > 1, rows[i].scale, 3);
        assert_int_equal(bt_train_step(&t, &o, &err), BT_OK);
        assert_true(o.loss_scale == rows[i].scale);
        snprintf(want, sizeof want, "update 4 held at 2: gradients times %s, lr", rows[i].times);
        if (!strstr(bt_text_str(&heard), want)) fail_msg("%zu: %s", i, bt_text_str(&heard));
    }
}

#define SCALED \
    "take tp\ncounted at 5\n" ACCUMULATE("0.125", "0.75", "nan") EXCHANGE(NOTES) MET \
        "[optim_ms\nunscaled by 0.125\nnorm\n]\n[optim_ms\n"

static void an_overflow_is_not_applied(void **state) {
    (void)state;
    for (int of_island = 0; of_island < 2; of_island++) {
        begin();
        bt_loss_scale_init(&t.loss_scale, true, 8, 3);
        t.loss_scale.good = 2;
        world.norm = INFINITY;
        if (of_island) t.island = (bt_island *)(void *)&island;
        world.counted_of_island = -1;
        char want[1600];
        snprintf(want, sizeof want, "%s%s%s" END,
                 of_island ? "take tp\nhub's data\n" ACCUMULATE("0.125", "0.75", "nan")
                                 EXCHANGE(NOTES) MET
                     "[optim_ms\nunscaled by 0.125\nnorm\n]\n[optim_ms\n"
                           : SCALED,
                 "loss_scale 5 fp16 gradients overflowed, step not applied: loss scale 4 "
                 "{\"loss_scale\":4}\nowed again\n",
                 of_island ? "hub gets nothing\n" : "");
        step(want);
        assert_true(!o.applied && !o.bad && o.loss_scale == 8 && o.lr == 0.1875 &&
                    o.weight_decay == 0.75);
        assert_true(t.at.step == 6 && t.at.updates == UPDATES && t.at.tokens == 564);
        assert_true(t.grad_fingerprint == 0 && t.loss_scale.value == 4 && t.loss_scale.good == 0);
    }
}

/* a loss that is no number is no overflow, nor is a norm that a scale of 1 leaves infinite */
static void what_is_no_overflow_is_judged(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        begin();
        bt_loss_scale_init(&t.loss_scale, i < 2, i == 0 ? 8 : 1, 3);
        world.theirs[NOTE_BAD_LOSS] = i == 0;
        world.norm = i == 2 ? NAN : INFINITY;
        world.good = false;
        assert_int_equal(bt_train_step(&t, &o, &err), BT_OK);
        assert_non_null(strstr(bt_text_str(&heard), "[optim_ms\njudge\n]\n"));
        assert_null(strstr(bt_text_str(&heard), "overflowed"));
        assert_true(!o.applied && o.bad && t.at.updates == UPDATES && t.at.step == 6);
        /* equal on all ranks, whatever sign a NaN has */
        assert_int_equal(t.grad_fingerprint, 0);
    }
    begin();
    world.norm = -0.0;
    assert_int_equal(bt_train_step(&t, &o, &err), BT_OK);
    assert_int_equal(t.grad_fingerprint, 0);
}

static void a_bad_step_is_left_out(void **state) {
    (void)state;
    begin();
    world.good = false;
    step(PLAIN "[optim_ms\njudge\n" END);
    assert_true(!o.applied && o.bad && t.at.updates == UPDATES && t.at.step == 6);
    assert_int_equal(t.grad_fingerprint, bits_of(4));
    begin();
    world.good = false;
    world.counted_of_island = -1;
    t.island = (bt_island *)(void *)&island;
    step("take tp\nhub's data\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(NOTES) MET NORM
         "[optim_ms\njudge\nhub gets nothing\n" END);
}

static void a_scale_grows_after_good_steps(void **state) {
    (void)state;
    begin();
    bt_loss_scale_init(&t.loss_scale, true, 8, 3);
    t.loss_scale.good = 2;
    step(SCALED "judge\ngood: loss 0.75, norm 4, finite 1\nupdate 4 held at 2: gradients times "
                "0.125, lr 0.1875, decay 0.75\napply\ntie\nloss_scale 5 3 steps without overflow: "
                "loss scale 16 {\"loss_scale\":16}\n" END);
    assert_true(o.loss_scale == 8 && t.loss_scale.value == 16);
}

/* ---- islands, layers that fade --------------------------------------------------------------- */

static void a_hub_has_the_last_word(void **state) {
    (void)state;
#define OF_ISLAND \
    "take tp\nhub's data\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(NOTES) MET NORM \
        "[optim_ms\njudge\ngood: loss 0.75, norm 4, finite 1\n"
#define APPLIED "update 4 held at 2: gradients times 1, lr 0.1875, decay 0.75\napply\ntie\n"
    for (int i = 0; i < 3; i++) {
        char want[1600];
        begin();
        t.island = (bt_island *)(void *)&island;
        world.counted_of_island = -1;
        world.steps_at_hub = i == 1;
        world.leaves = i == 2;
        snprintf(want, sizeof want, OF_ISLAND "%shub gets it\n%s", i == 1 ? "" : APPLIED,
                 i == 2 ? "]\n" : END);
        step(want);
        assert_int_equal(o.left, i == 2);
        assert_int_equal(t.at.step, i == 2 ? STEP : STEP + 1);
        assert_int_equal(t.at.tokens, i == 2 ? 500 : 564);
        assert_int_equal(t.at.updates, i == 1 ? UPDATES : UPDATES + 1);
        assert_true(o.applied);
    }
}

static void another_lambda_is_the_models(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool fades = i & 1, moves = i & 2;
        char want[60];
        begin();
        world.fades = fades;
        if (moves) world.lambda = 1;
        assert_int_equal(bt_train_step(&t, &o, &err), BT_OK);
        snprintf(want, sizeof want, "busy for 20\n%s%smay flip at 6\n", moves ? "forget\n" : "",
                 !fades  ? ""
                 : moves ? "lambda 1\n"
                         : "lambda 0.75\n");
        assert_non_null(strstr(bt_text_str(&heard), want));
        assert_true(t.lambda == (moves ? 1 : 0.75) && o.lambda == 0.75);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* what fails ends the step: nothing follows it, and nothing is counted */
static void a_failure_ends_the_step(void **state) {
    (void)state;
    static const struct {
        const char *fails;
        bool of_island, skipped, overflow;
    } rows[] = {{"weights begin", false, false, false},  {"passes", false, false, false},
                {"weights drain", false, false, false},  {"poll", false, false, false},
                {"finish", false, false, false},         {"weights end", false, false, false},
                {"codec agrees", false, false, false},   {"losses", false, false, false},
                {"scores", false, false, false},         {"pipe's scores", false, false, false},
                {"norm", false, false, false},           {"judge", false, false, false},
                {"apply", false, false, false},          {"tie", false, false, false},
                {"hub's data", true, false, false},      {"hub gets it", true, false, false},
                {"hub gets nothing", true, true, false}, {"hub gets nothing", true, false, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char says[60];
        begin();
        t.cfg.reproducible = true;
        t.setup.model.pairs = true;
        schedule.pipe = (bt_pipe *)(void *)&pipe_object;
        if (rows[i].of_island) t.island = (bt_island *)(void *)&island;
        world.counted_of_island = -1;
        world.good = !rows[i].skipped;
        bt_loss_scale_init(&t.loss_scale, rows[i].overflow, 8, 3);
        if (rows[i].overflow) world.norm = INFINITY;
        world.fails = rows[i].fails;
        assert_int_equal(bt_train_step(&t, &o, &err), BT_IO);
        snprintf(says, sizeof says, "%s fails", rows[i].fails);
        assert_string_equal(err.msg, says);
        snprintf(says, sizeof says, "\n%s\n", rows[i].fails);
        const size_t n = strlen(says);
        if (heard.len < n || strcmp(bt_text_str(&heard) + heard.len - n, says) != 0)
            fail_msg("%s: %s", rows[i].fails, bt_text_str(&heard));
        assert_true(t.at.step == STEP && t.at.tokens == 500);
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_its_order_and_its_outcome),
        cmocka_unit_test(a_loss_is_the_mean_over_what_is_learned),
        cmocka_unit_test(a_test_poisons_one_tensor),
        cmocka_unit_test(what_is_asked_is_told_to_all),
        cmocka_unit_test(what_the_others_tell_holds_here),
        cmocka_unit_test(gradients_that_differ_end_the_run),
        cmocka_unit_test(a_reproducible_loss_is_added_in_one_order),
        cmocka_unit_test(scores_are_those_of_all_ranks),
        cmocka_unit_test(gradients_are_clipped_and_unscaled),
        cmocka_unit_test(an_overflow_is_not_applied),
        cmocka_unit_test(what_is_no_overflow_is_judged),
        cmocka_unit_test(a_bad_step_is_left_out),
        cmocka_unit_test(a_scale_grows_after_good_steps),
        cmocka_unit_test(a_hub_has_the_last_word),
        cmocka_unit_test(another_lambda_is_the_models),
        cmocka_unit_test(a_failure_ends_the_step),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
