/* test_step_actions.c - each action after a step by itself: micro-batches that move, evaluations, records, replicas
 * that differ, requests and pauses, with every word that is told. */
#include "tests/engine/train/step_world.h"

/* ---- micro-batches, evaluation, records -------------------------------------------------------------- */

static void micro_batches_move_where_it_gains(void **state) {
    (void)state;
    bt_text want;
    begin();
    t.cfg.log_every = 0;
    t.micro_plan.balance = BT_BALANCE_AUTO;
    t.micro_plan.dp = RANKS;
    t.micro_plan.first = 2, t.micro_plan.n = 3;
    t.cfg.micro_batch = 4;
    t.island_next = 9;
    follows("[comm_exposed_ms\nadjust 0\n]\n");
    assert_int_equal(t.island_next, 9);
    world.gain = 0.5;
    shares[0] = 4, shares[1] = 2, shares[2] = 7;
    follows("[comm_exposed_ms\nadjust 0\n"
            "balance 4 from the next step ranks take 2 to 7 micro-batches by their speed: steps "
            "50 % shorter {\"micro_batches\":[4,2,7]}\nmove 5: 12 from 8\n]\n");
    assert_int_equal(t.island_next, -1);
    /* of many ranks the first ones are named, as there is room */
    bt_text_init(&want);
    t.micro_plan.dp = 300;
    for (int i = 0; i < 300; i++) shares[i] = 10 + i % 90;
    bt_text_put(&want, "[comm_exposed_ms\nadjust 0\nbalance 4 from the next step ranks take 10 to "
                       "99 micro-batches by their speed: steps 50 % shorter "
                       "{\"micro_batches\":[10");
    for (int i = 1; i < 155; i++) bt_text_printf(&want, ",%d", 10 + i % 90);
    bt_text_put(&want, "]}\nmove 5: 12 from 8\n]\n");
    follows(bt_text_str(&want));
    bt_text_release(&want);
}

static void an_evaluation_is_told_as_its_kind(void **state) {
    (void)state;
#define BEGINS "weights for 7 at evaluation 4\nevaluate\nweights are checked\nweights end\n"
    bt_err err = BT_ERR_INIT;
    begin();
    fill(&t.evaluator);
    world.result.nats = NAN, world.result.bits_per_byte = INFINITY;
    assert_int_equal(bt_trainer_evaluate(&t, &err), BT_OK);
    heard_is(BEGINS "evaluation 4 validation nan nats per token, inf bits per byte (64 tokens) "
                    "{\"val_loss\":null,\"bits_per_byte\":null,\"tokens\":64,\"took_ms\":2.000}\n"
                    "forget weights\n");
    world.result = (bt_eval_result){.nats = 0.123456789,
                                    .bits_per_byte = NAN,
                                    .tokens = 12,
                                    .accuracy = 0.8125,
                                    .margin = 0.25,
                                    .macro_f1 = 0.5};
    t.setup.model.pairs = true;
    assert_int_equal(bt_trainer_evaluate(&t, &err), BT_OK);
    heard_is(
        BEGINS
        "evaluation 4 validation 0.1235 nats per preference, 81.2 % right, reward margin "
        "0.250 (12 preferences) {\"val_loss\":0.123456789,\"bits_per_byte\":null,\"tokens\":12,"
        "\"took_ms\":2.000}\nforget weights\n");
    t.setup.model.pairs = false;
    t.setup.model.cfg.classes = 3;
    assert_int_equal(bt_trainer_evaluate(&t, &err), BT_OK);
    heard_is(
        BEGINS
        "evaluation 4 validation 0.1235 nats per text, 81.2 % right, macro F1 0.500 (12 texts) "
        "{\"val_loss\":0.123456789,\"bits_per_byte\":null,\"tokens\":12,\"took_ms\":2.000}\n"
        "forget weights\n");
    assert_memory_equal(&t.validation, &world.result, sizeof t.validation);
}

static void a_record_has_what_the_step_has(void **state) {
    (void)state;
    begin();
    follows("[monitor_ms\npost 4 " RECORD("", "0") " at record 4\n]\n");
    t.validation = (bt_eval_result){.nats = 1.5, .accuracy = 1, .margin = 2, .macro_f1 = 3};
    follows("[monitor_ms\npost 4 " RECORD("", "0") " at record 4\n]\n"); /* of an earlier step */
    o.applied = false;
    o.global_loss = NAN;
    world.fades = true;
    o.score = (bt_score){.n = 4, .right = 3, .margin = 2};
    follows("[monitor_ms\npost 4 tokens=640 counted=128 grad_norm=0.5 lr=0.001 weight_decay=0.1 "
            "loss_scale=4 skipped=1 accuracy=0.75 lambda=0.25 at record 4\n]\n");
    t.setup.model.pairs = true;
    o.applied = true;
    o.evaluated = true;
    t.validation = (bt_eval_result){.nats = 1.25,
                                    .bits_per_byte = 9,
                                    .tokens = 9,
                                    .accuracy = 0.5,
                                    .margin = 0.125,
                                    .macro_f1 = 2};
    follows("[monitor_ms\npost 4 tokens=640 counted=128 val_loss=1.25 grad_norm=0.5 lr=0.001 "
            "weight_decay=0.1 loss_scale=4 skipped=0 accuracy=0.75 val_accuracy=0.5 "
            "val_f1=2 reward_margin=0.5 val_reward_margin=0.125 lambda=0.25 at record 4\n]\n");
}

/* ---- replicas ---------------------------------------------------------------------------------------- */

static bt_code compare(void) {
    bt_err err = BT_ERR_INIT;
    const bt_code code = bt_trainer_compare_replicas(&t, &err);
    assert_string_equal(err.msg, code == BT_OK ? "" : "they differ");
    return code;
}

static void blame(bool majority) {
    begin();
    world.blame = (bt_replica_blame){
        .found = true, .majority = majority, .tensor = "embed", .rank = {2, 5}, .host = {"a", "b"}};
}

static void replicas_that_differ_are_told(void **state) {
    (void)state;
    begin();
    assert_int_equal(compare(), BT_OK);
    heard_is("compare 5\n");
    blame(true);
    assert_int_equal(compare(), BT_DAMAGED);
    heard_is("compare 5\n"
             "hardware of 2 4 weights of embed on rank 2 (host 'a') are damaged after step 5: the "
             "majority of replicas holds others "
             "{\"cause\":\"replicas_differ\",\"tensor\":\"embed\",\"rank\":2,\"host\":\"a\"}\n"
             "finish\n");
    for (int rank = 0; rank < 2; rank++) {
        char want[600];
        blame(false);
        world.rank = rank;
        world.fails = rank ? "finish" : NULL;
        assert_int_equal(compare(), BT_DAMAGED);
        snprintf(want, sizeof want,
                 "compare 5\n"
                 "hardware of -1 4 weights of embed differ after step 5 between rank 2 (host 'a') "
                 "and rank 5 (host 'b'): which is damaged shows when the step has been done again "
                 "from a checkpoint "
                 "{\"cause\":\"replicas_differ\",\"tensor\":\"embed\",\"rank\":-1,\"host\":\"a\"}\n"
                 "%sfinish\n%s",
                 rank ? "" : "suspect 5\n", rank ? "log 2 finish fails by 50 %\n" : "");
        heard_is(want);
    }
}

/* the step of the suspicion has been done again: neither of them, the one, the other */
static void a_suspicion_is_settled(void **state) {
    (void)state;
    static const char *const want[] = {
        "", /* it cannot be told */
        "hardware of 2 4 step 5 was done again: it was rank 2 (host 'a') whose weights of embed "
        "were "
        "damaged {\"cause\":\"replicas_differ\",\"tensor\":\"embed\",\"rank\":2,\"host\":\"a\"}\n",
        "hardware of 5 4 step 5 was done again: it was rank 5 (host 'b') whose weights of embed "
        "were "
        "damaged {\"cause\":\"replicas_differ\",\"tensor\":\"embed\",\"rank\":5,\"host\":\"b\"}\n"};
    for (int which = -1; which < 2; which++) {
        char all[400];
        blame(false);
        t.suspect = (bt_suspect){5, world.blame};
        world.blame.found = false;
        world.which = which;
        t.cfg.log_every = 0;
        t.cfg.check_weights = 100;
        t.setup.dp = 2;
        snprintf(all, sizeof all, "[monitor_ms\ncompare 5\nsettle\n%s]\n", want[which + 1]);
        follows(all);
        assert_int_equal(t.checked_step, 5);
        follows("[monitor_ms\n]\n"); /* once a step */
    }
    bt_err err;
    t.checked_step = -1;
    world.fails = "settle";
    assert_int_equal(follow(&err), BT_IO);
}

/* train.check_weights_every=-1: the next one is planned with the time of this one and of the steps since the last */
static void comparisons_are_planned(void **state) {
    (void)state;
    begin();
    t.cfg.log_every = 0;
    t.cfg.check_weights = -1;
    t.setup.dp = 2;
    world.every = 3;
    follows("[monitor_ms\ncompare 5\nlongest 1e+06, shortest -0\nevery: 1e+06 for -0\n]\n");
    assert_int_equal(t.next_check, 8);
    assert_int_equal(t.checked_ns, world.now_ns);
    t.at.step = 8;
    world.now_ns += 29000000; /* and one until the next comparison begins */
    world.other_ns = 5e6;     /* another rank's took longer */
    follows("[monitor_ms\ncompare 8\nlongest 1e+06, shortest 1e+07\nevery: 5e+06 for 1e+07\n]\n");
    assert_int_equal(t.next_check, 11);
    t.at.step = 11;
    t.setup.dp = 1; /* there is nobody to compare with */
    follows("[monitor_ms\n]\n");
    t.setup.dp = 2;
    world.fails = "all_reduce";
    bt_err err;
    assert_int_equal(follow(&err), BT_IO);
    assert_int_equal(t.checked_step, 8);
}

/* what a checkpoint has is compared before, whatever step it is; of weights that differ there is none */
static void a_checkpoint_is_compared_before(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    for (int differ = 0; differ < 2; differ++) {
        begin();
        t.cfg.check_weights = 100;
        t.setup.dp = 2;
        world.fails = differ ? "compare" : NULL;
        assert_int_equal(bt_trainer_save(&t, false, false, &err), differ ? BT_IO : BT_OK);
        heard_is(differ ? "flush\ncompare 5\n" : "flush\ncompare 5\nsave at checkpoint 4\n");
        assert_int_equal(t.checked_step, differ ? -1 : 5);
    }
    assert_int_equal(bt_trainer_save(&t, true, true, &err), BT_IO);
    world.fails = "flush";
    heard_is("flush\ncompare 5\n");
    assert_int_equal(bt_trainer_save(&t, true, true, &err), BT_IO);
    heard_is("flush\n");
    world.fails = NULL;
    t.checked_step = 5; /* after this step it has been */
    assert_int_equal(bt_trainer_save(&t, true, true, &err), BT_OK);
    heard_is("flush\nsave best wait at checkpoint 4\n");
}

/* ---- requests ---------------------------------------------------------------------------------------- */

static void a_sample_that_cannot_be_is_refused(void **state) {
    (void)state;
    static const struct {
        bt_code code, ends;
        const char *want;
    } rows[] = {
        {BT_ARG, BT_OK, "refused 4 no sample: it cannot be\n]\n"},
        {BT_UNSUPPORTED, BT_OK, "refused 4 no sample: it cannot be\n]\n"},
        {BT_NOMEM, BT_NOMEM, "hold\ngo on\nforget weights\n"},
        {BT_MPI, BT_MPI, "hold\ngo on\nforget weights\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[200];
        bt_err err;
        begin();
        t.cfg.log_every = 0;
        world.rank = i % 2; /* rank 0 alone has a prompt */
        world.asked = "say";
        world.prompt = rows[i].code;
        o.control.verbs = BT_REQ_SAMPLE;
        assert_int_equal(follow(&err), rows[i].ends);
        snprintf(want, sizeof want, "[excluded\nprompt '%s' at evaluation 4\n%s",
                 i % 2 ? "(none)" : "say", rows[i].want);
        heard_is(want);
    }
}

static void an_evaluation_needs_data(void **state) {
    (void)state;
    begin();
    t.cfg.log_every = 0;
    o.control.verbs = BT_REQ_EVAL;
    follows("[excluded\nwarning 4 no validation data: data.val_frac is 0\n]\n");
}

static void a_checkpoint_waits_for_a_good_step(void **state) {
    (void)state;
    begin();
    t.cfg.log_every = 0;
    o.bad = true;
    o.control.verbs = BT_REQ_CHECKPOINT;
    follows(
        "[excluded\ncontrol 4 the checkpoint that was asked for follows the next good step\n]\n");
    o.bad = false;
    o.control.verbs = 0;
    t.at.step = 6;
    follows("[ckpt_ms\nflush\nsave at checkpoint 5\n]\n");
}

/* what is asked for while it pauses is done, until it goes on or stops; meanwhile the newest checkpoint is read */
static void a_pause_obeys(void **state) {
    (void)state;
    begin();
    t.cfg.log_every = 0;
    fill(&t.evaluator);
    o.control.verbs = BT_REQ_PAUSE;
    world.waits[0] = 0;
    world.waits[1] = BT_REQ_EVAL | BT_REQ_LR;
    world.waits[2] = BT_REQ_CHECKPOINT | BT_REQ_RESUME;
#define WAITS_AT "wait at pause 4\nverify, idle\n"
    follows("[monitor_ms\npost 4 " RECORD(
        "", "0") " at record 4\n]\n"
                 "[excluded\nflush\nfinish\npaused 4 paused after step 5\n" WAITS_AT
                 "finish\n" WAITS_AT
                 "control 4 learning rate times 0.375 from now on {\"lr_factor\":0.375}\n" BEGINS
                 "evaluation 4 validation 1.5000 nats per token, 0.7500 bits per byte (64 tokens) "
                 "{\"val_loss\":1.5,\"bits_per_byte\":0.75,\"tokens\":64,\"took_ms\":2.000}\n"
                 "forget weights\nfinish\n"
                 "wait at evaluation 4\nverify, idle\nflush\nsave at checkpoint 4\nfinish\n"
                 "continued 4 going on after a pause of 3.0 s\n]\n");
    assert_true(!t.stop && t.at.lr_factor == 0.375);
    begin();
    t.cfg.log_every = 0;
    o.control.verbs = BT_REQ_PAUSE;
    world.waits[0] = BT_REQ_STOP;
    follows("[monitor_ms\npost 4 " RECORD(
        "", "0") " at record 4\n]\n"
                 "[excluded\nflush\nfinish\npaused 4 paused after step 5\n" WAITS_AT
                 "finish\ncontinued 4 stopping after a pause of 1.0 s\n]\n");
    assert_true(t.stop);
    /* none, where it is taken back at once, or the run ends */
    begin();
    o.control.verbs = BT_REQ_PAUSE | BT_REQ_RESUME;
    follows("[monitor_ms\npost 4 " RECORD("", "0") " at record 4\n]\n[excluded\n]\n");
    begin();
    o.control.verbs = BT_REQ_PAUSE | BT_REQ_STOP;
    follows("[monitor_ms\npost 4 " RECORD(
        "", "0") " at record 4\n]\n"
                 "[ckpt_ms\nflush\nsave wait at checkpoint 4\n]\n[excluded\n]\n");
    assert_true(t.stop);
    static const char *const faults[] = {"flush", "finish", "wait"};
    for (int i = 0; i < 3; i++) {
        bt_err err;
        begin();
        o.control.verbs = BT_REQ_PAUSE;
        world.fails = faults[i];
        assert_int_equal(follow(&err), BT_IO);
    }
}
int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_move_where_it_gains),
        cmocka_unit_test(an_evaluation_is_told_as_its_kind),
        cmocka_unit_test(a_record_has_what_the_step_has),
        cmocka_unit_test(replicas_that_differ_are_told),
        cmocka_unit_test(a_suspicion_is_settled),
        cmocka_unit_test(comparisons_are_planned),
        cmocka_unit_test(a_checkpoint_is_compared_before),
        cmocka_unit_test(a_sample_that_cannot_be_is_refused),
        cmocka_unit_test(an_evaluation_needs_data),
        cmocka_unit_test(a_checkpoint_waits_for_a_good_step),
        cmocka_unit_test(a_pause_obeys),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
