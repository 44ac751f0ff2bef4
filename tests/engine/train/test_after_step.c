/* test_after_step.c - what follows a step: which actions at which step, in which order and under which phase, and that
 * one that fails ends them. */
#include "tests/engine/train/step_world.h"

static bt_sample_text samples[2];

/* ---- all of them ---------------------------------------------------------------------------------- */

/* the last step of a run in which everything is due, and everything is asked for but a pause */
static void everything(void) {
    begin();
    t.at.step = 20;
    t.codec.ladder.n = 2;
    t.micro_plan.balance = BT_BALANCE_AUTO;
    t.micro_plan.dp = RANKS;
    t.micro_plan.first = 2, t.micro_plan.n = 3;
    shares[0] = 2, shares[1] = 3, shares[2] = 1;
    t.cfg.micro_batch = 4;
    t.cfg.reproducible = true;
    t.island_next = 9;
    world.gain = 0.125;
    o.seconds_per_micro = 0.5;
    fill(&t.evaluator), fill(&t.memory.to), fill(&schedule.pipe);
    t.memory.every = 10;
    samples[0] = (bt_sample_text){"The", "cat \"sat\"\non", &samples[1]};
    samples[1] = (bt_sample_text){"A", "", NULL}; /* what is empty is no sample */
    t.sample_text = samples;
    world.best = true;
    world.prompt = BT_OK;
    world.asked = "say";
    t.setup.dp = 2;
    t.cfg.check_weights = 5;
    t.cfg.stats_every = 19;
    t.cfg.predicted_ms = 5;
    t.cfg.ckpt_final = t.cfg.ckpt_verify = true;
    world.pending = true;
    o.control = (bt_control){.verbs = BT_REQ_LR | BT_REQ_EVAL | BT_REQ_MIXTURE | BT_REQ_SAMPLE |
                                      BT_REQ_CHECKPOINT | BT_REQ_STOP,
                             .lr_bits = 4};
}

static const char all_of_it[] =
    "[comm_exposed_ms\ncodec\n]\n"
    "[comm_exposed_ms\nadjust 0.5\n"
    "balance 19 from the next step ranks take 1 to 3 micro-batches by their speed: steps 12 % "
    "shorter {\"micro_batches\":[2,3,1]}\n"
    "reducer\nmove 20: 12 from 8\n]\n"
    "[excluded\nhold\nweights for 7 at evaluation 19\nevaluate\nweights are checked\nweights end\n"
    "evaluation 19 validation 1.5000 nats per token, 0.7500 bits per byte (64 tokens) "
    "{\"val_loss\":1.5,\"bits_per_byte\":0.75,\"tokens\":64,\"took_ms\":2.000}\n"
    "write at evaluation 19\n"
    "sample 19 writes: cat \"sat\" on {\"prompt\":\"The\",\"text\":\"cat \\\"sat\\\"\\non\","
    "\"took_ms\":1}\n"
    "write at evaluation 19\n"
    "forget weights\nforget pipe\ngo on\nvalidated 1.5\n]\n"
    "[monitor_ms\ncompare 20\n]\n"
    "[monitor_ms\ncodec's sample at record 19\n"
    "observe 19 applied 1 unscale 0.25 residual 0.5 bits 8\n]\n"
    "[monitor_ms\npost 19 " RECORD(
        "val_loss=1.5 ",
        "0") " at record 19\n]\n"
             "[ckpt_ms\nmemory\n]\n"
             "[monitor_ms\nprediction 19\n]\n"
             "[ckpt_ms\nadvance\n]\n"
             "[ckpt_ms\nflush\nsave best wait at checkpoint 19\n]\n"
             "[monitor_ms\nverify\n]\n"
             "[excluded\ncontrol 19 learning rate times 0.5 from now on {\"lr_factor\":0.5}\n"
             "mixture\n"
             "prompt 'say' at evaluation 19\nhold\nwrite at evaluation 19\n"
             "sample 19 writes, as asked: and so on {\"prompt\":\"as asked\",\"text\":\"and so "
             "on\","
             "\"took_ms\":1,\"asked\":true}\n"
             "go on\nforget weights\nforget pipe\ndone with 'as asked'\n"
             "flush\nsave at checkpoint 19\n]\n";

static void all_that_may_follow_in_its_order(void **state) {
    (void)state;
    everything();
    follows(all_of_it);
}

/* whatever fails is the end of it: what stands before it was done, and nothing after it */
static void one_that_fails_ends_them(void **state) {
    (void)state;
    static const struct {
        const char *what, *last; /* what is heard last */
        bool goes_on;            /* the profile is held no longer */
    } rows[] = {
        {"codec", "[comm_exposed_ms\ncodec\n", false},
        {"adjust", "[comm_exposed_ms\nadjust 0.5\n", false},
        {"reducer", "reducer\n", false},
        {"move", "move 20: 12 from 8\n", false},
        {"weights", "weights for 7 at evaluation 19\ngo on\n", true},
        {"evaluate", "evaluate\ngo on\n", true},
        {"check", "weights are checked\ngo on\n", true},
        {"end", "weights end\ngo on\n", true},
        {"write", "write at evaluation 19\ngo on\n", true},
        {"compare", "compare 20\n", false},
        {"codec_sample", "codec's sample at record 19\n", false},
        {"observe", "observe 19 applied 1 unscale 0.25 residual 0.5 bits 8\n", false},
        {"post", " at record 19\n", false},
        {"memory", "memory\n", false},
        {"advance", "advance\n", false},
        {"flush", "[ckpt_ms\nflush\n", false},
        {"save", "save best wait at checkpoint 19\n", false},
        {"mixture", "mixture\n", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err;
        char says[40];
        everything();
        world.fails = rows[i].what;
        assert_int_equal(follow(&err), BT_IO);
        snprintf(says, sizeof says, "%s fails by 50 %%", rows[i].what);
        assert_string_equal(err.msg, says);
        const size_t n = heard.len, m = strlen(rows[i].last);
        if (n < m || memcmp(bt_text_str(&heard) + n - m, rows[i].last, m) != 0)
            fail_msg("%s: %s", rows[i].what, bt_text_str(&heard));
        /* as far as it went, it is what is done where nothing fails */
        const size_t same = rows[i].goes_on ? n - strlen("go on\n") : n;
        assert_memory_equal(bt_text_str(&heard), all_of_it, same);
    }
}

/* ---- when ----------------------------------------------------------------------------------------- */

/* one case: what differs from an ordinary step, and a letter for each action that follows it */
typedef struct due_case {
    int64_t step, stop_at;
    int64_t eval, check, next_check, suspect, stats, log, ckpt, memory, verbs;
    bool evaluator, best, bad, skipped, again, final, postponed, pending, busy, verify;
    int rank;
    const char *want;
    bool later; /* a checkpoint follows the next good step */
} due_case;

static const struct {
    const char *line;
    char letter;
} actions[] = {{"codec\n", 'c'},   {"adjust ", 'b'}, {"evaluate\n", 'e'}, {"compare ", 'r'},
               {"observe ", 's'},  {"post ", 'R'},   {"memory\n", 'm'},   {"prediction ", 'p'},
               {"advance\n", 'a'}, {"save", 'k'},    {"verify\n", 'v'},   {"warning ", 'w'},
               {"control ", 'l'}};

/* the letters of what was heard, in its order */
static const char *letters(void) {
    static char text[64];
    size_t n = 0;
    for (const char *line = bt_text_str(&heard); *line; line = strchr(line, '\n') + 1)
        for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
            if (strncmp(line, actions[i].line, strlen(actions[i].line)) == 0)
                text[n++] = actions[i].letter;
    text[n] = '\0';
    return text;
}

static void each_at_its_steps(void **state) {
    (void)state;
    static const due_case rows[] = {
        {.step = 5, .log = 1, .want = "R"},
        {.step = 5, .log = 0, .want = ""},
        /* records: the first step, each n-th after it, the last, one that stops, pauses, evaluates or is skipped */
        {.step = 1, .log = 3, .want = "R"},
        {.step = 2, .log = 3, .want = ""},
        {.step = 3, .log = 3, .want = ""},
        {.step = 4, .log = 3, .want = "R"},
        {.step = 20, .log = 3, .want = "R"},
        {.step = 21, .log = 3, .want = "R"},
        {.step = 5, .stop_at = 5, .log = 3, .want = "Rk"},
        {.step = 5, .stop_at = 6, .log = 3, .want = ""},
        {.step = 6, .stop_at = 5, .log = 3, .want = "Rk"},
        {.step = 5, .skipped = true, .log = 3, .want = "R"},
        {.step = 5, .skipped = true, .again = true, .log = 1, .want = ""},
        {.step = 6, .eval = 6, .evaluator = true, .log = 3, .want = "eR"},
        {.step = 5, .verbs = BT_REQ_PAUSE | BT_REQ_RESUME, .log = 3, .want = "R"},
        /* evaluations */
        {.step = 6, .eval = 3, .evaluator = true, .want = "eR"},
        {.step = 7, .eval = 3, .evaluator = true, .want = ""},
        {.step = 6, .eval = 3, .want = ""},
        {.step = 20, .eval = 3, .evaluator = true, .want = "eR"},
        {.step = 7, .evaluator = true, .verbs = BT_REQ_EVAL, .want = "eR"},
        {.step = 7, .verbs = BT_REQ_EVAL, .want = "w"},
        /* replicas */
        {.step = 6, .check = 3, .want = "r"},
        {.step = 7, .check = 3, .want = ""},
        {.step = 20, .check = 3, .want = "rR"},
        {.step = 20, .check = 0, .want = "R"},
        {.step = 7, .check = -1, .next_check = 7, .want = "r"},
        {.step = 7, .check = -1, .next_check = 8, .want = ""},
        {.step = 7, .check = 3, .next_check = 7, .want = ""},
        {.step = 8, .check = -1, .next_check = 7, .want = "r"},
        {.step = 7, .check = 3, .suspect = 7, .want = "r"},
        {.step = 7, .check = 3, .suspect = 8, .want = ""},
        {.step = 7, .check = 3, .suspect = 6, .want = ""},
        /* statistics: of the first step and each n-th after it */
        {.step = 1, .stats = 4, .want = "s"},
        {.step = 4, .stats = 4, .want = ""},
        {.step = 5, .stats = 4, .want = "s"},
        /* states in memory */
        {.step = 6, .memory = 3, .want = "m"},
        {.step = 7, .memory = 3, .want = ""},
        {.step = 7, .memory = 1, .want = "m"},
        /* checkpoints; what is pending goes on where no rank is busy */
        {.step = 6, .ckpt = 3, .want = "k"},
        {.step = 7, .ckpt = 3, .want = ""},
        {.step = 20, .final = true, .want = "Rk"},
        {.step = 19, .final = true, .want = ""},
        {.step = 5, .verbs = BT_REQ_STOP, .want = "k"},
        {.step = 5, .verbs = REQ_CKPT_DUE, .want = "k"},
        {.step = 5, .verbs = BT_REQ_CHECKPOINT, .want = "k"},
        {.step = 5, .postponed = true, .want = "k"},
        {.step = 6, .eval = 6, .evaluator = true, .best = true, .want = "eRk"},
        {.step = 5, .pending = true, .want = "a"},
        {.step = 5, .pending = true, .busy = true, .want = ""},
        /* after a bad step only where there is no next one, else with the next good one */
        {.step = 6, .ckpt = 3, .bad = true, .want = "", .later = true},
        {.step = 5, .postponed = true, .bad = true, .want = "", .later = true},
        {.step = 6, .eval = 6, .evaluator = true, .best = true, .bad = true, .want = "eR"},
        {.step = 5, .verbs = BT_REQ_CHECKPOINT, .bad = true, .want = "l", .later = true},
        {.step = 5, .verbs = BT_REQ_STOP, .bad = true, .want = "k"},
        {.step = 20, .final = true, .bad = true, .want = "Rk"},
        {.step = 5, .stop_at = 5, .bad = true, .want = "Rk"},
        /* verification, by rank 0 */
        {.step = 5, .verify = true, .want = "v"},
        {.step = 5, .verify = true, .rank = 1, .want = ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const due_case *r = &rows[i];
        bt_err err;
        begin();
        t.at.step = r->step, t.stop_at = r->stop_at;
        t.cfg.eval_every = r->eval, t.cfg.stats_every = r->stats, t.cfg.log_every = r->log;
        t.cfg.ckpt_every = r->ckpt, t.cfg.check_weights = r->check;
        t.cfg.ckpt_final = r->final, t.cfg.ckpt_verify = r->verify;
        t.next_check = r->next_check;
        t.setup.dp = 2;
        if (r->suspect) t.suspect.step = r->suspect;
        if (r->evaluator) fill(&t.evaluator);
        if (r->memory) fill(&t.memory.to);
        t.memory.every = r->memory;
        t.ckpt_postponed = r->postponed;
        world.best = r->best, world.pending = r->pending, world.rank = r->rank;
        o.ckpt_busy = r->busy, o.bad = r->bad, o.applied = !r->skipped, o.again = r->again;
        o.control.verbs = r->verbs;
        if (follow(&err) != BT_OK) fail_msg("row %zu: %s", i, err.msg);
        if (strcmp(letters(), r->want) != 0)
            fail_msg("row %zu: '%s', not '%s'", i, letters(), r->want);
        assert_int_equal(t.ckpt_postponed, r->later);
    }
}

/* a prediction is of steps of the full size with attention; rank 0 has everybody's times */
static void predictions_are_of_full_steps(void **state) {
    (void)state;
    static const struct {
        double predicted_ms;
        bool full;
        int rank, bigram_steps;
        const char *want;
    } rows[] = {{5, true, 0, 0, "p"}, {0, true, 0, 0, ""},  {5, false, 0, 0, ""},
                {5, true, 1, 0, ""},  {5, true, 0, 4, "p"}, {5, true, 0, 5, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err;
        begin();
        t.cfg.log_every = 0;
        t.cfg.predicted_ms = rows[i].predicted_ms;
        world.full_size = rows[i].full, world.rank = rows[i].rank;
        world.bigram_steps = rows[i].bigram_steps;
        assert_int_equal(follow(&err), BT_OK);
        assert_string_equal(letters(), rows[i].want);
    }
}
/* a loss of a model that is not ternary yet says nothing of the ternary one */
static void the_best_is_a_ternary_models(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin();
        t.cfg.log_every = 0;
        fill(&t.evaluator);
        t.cfg.eval_every = 5;
        world.best = true;
        t.lambda = i ? 1 : 0.99;
        bt_err err;
        assert_int_equal(follow(&err), BT_OK);
        assert_string_equal(letters(), i ? "eRk" : "eR");
        assert_int_equal(strstr(bt_text_str(&heard), "validated") != NULL, i);
        assert_true(o.evaluated && o.best == i);
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_may_follow_in_its_order),
        cmocka_unit_test(one_that_fails_ends_them),
        cmocka_unit_test(each_at_its_steps),
        cmocka_unit_test(predictions_are_of_full_steps),
        cmocka_unit_test(the_best_is_a_ternary_models),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
