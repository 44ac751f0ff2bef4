/* test_trainer_unmade.c - a trainer that cannot be made: whatever fails, at this rank or at another,
 * ends the making with its error, and all that was taken is given back in order. */
#include "tests/engine/train/course/create_world.h"

/* ---- failures -------------------------------------------------------------------------------- */

/* a run that has everything */
static bt_code create_all(bool resumes) {
    cfg.val_frac = 0.5;
    cfg.tune = BT_TUNE_LORA;
    world.size = world.dp_size = world.here_size = 2;
    world.base_bytes = 99, world.shared = world.base = world.stale = true;
    strcpy(cfg.out, "/out"), strcpy(cfg.base, "/b"), strcpy(cfg.adapters, "/theirs");
    return create(
        &(bt_trainer_setup){.resume_dir = resumes ? "/out/1" : "", .wait = NULL, .attempt = 1});
}

/* text is what a trainer gives back, as much of it as it has */
static void all_is_given_back(const char *text) {
    static const char *const lines[][2] = {{"no hub\n", ""},
                                           {"destroy reducer\n", "no reducer\n"},
                                           {"destroy observer\n", "no observer\n"},
                                           {"release telemetry\n", ""},
                                           {"close energy\n", ""},
                                           {"close validation\n", "no validation\n"},
                                           {"destroy sample\n", "no sample\n"},
                                           {"release followers\n", ""},
                                           {"close data\n", "no data\n"},
                                           {"release check\n", ""},
                                           {"close states\n", ""},
                                           {"release saver\n", ""},
                                           {"release skipped\n", ""},
                                           {"release codec\n", ""},
                                           {"release update\n", ""},
                                           {"destroy schedule\n", "no schedule\n"},
                                           {"release micro\n", ""},
                                           {"release plan\n", "no plan\n"},
                                           {"destroy model\n", "no model\n"},
                                           {"release teacher\n", ""},
                                           {"destroy group\n", "no group\n"},
                                           {"release setup\n", ""},
                                           {"release mesh\n", ""}};
    const char *at = text;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const size_t k = strncmp(at, lines[i][0], strlen(lines[i][0])) != 0;
        if (k && (!lines[i][1][0] || strncmp(at, lines[i][1], strlen(lines[i][1])) != 0))
            fail_msg("not '%s': %s", lines[i][0], text);
        at += strlen(lines[i][k]);
    }
    assert_string_equal(at, "");
    bt_text_clear(&heard);
}

static void each_failure_ends_the_making(void **state) {
    (void)state;
    static const char *const parts[] = {"resolve",
                                        "mesh",
                                        "group",
                                        "split",
                                        "setup for the base",
                                        "share",
                                        "ramp",
                                        "plan",
                                        "setup",
                                        "model",
                                        "schedule",
                                        "update",
                                        "check",
                                        "codec",
                                        "micro",
                                        "telemetry",
                                        "observer",
                                        "data",
                                        "validation",
                                        "meet",
                                        "the data (by hash)",
                                        "the validation data (by hash)",
                                        "sample",
                                        "reducer",
                                        "measure",
                                        "base",
                                        "the base of the adapters (by hash)",
                                        "teacher",
                                        "adapters",
                                        "slices",
                                        "fill",
                                        "quantise",
                                        "tie",
                                        "states",
                                        "join",
                                        "resume",
                                        "trained beside",
                                        "suspect"};
    enum { FRESH = 35 };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char says[60];
        begin();
        world.fails = parts[i];
        assert_int_equal(create_all(i >= FRESH), BT_IO);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
        /* after what failed come only a meeting of the ranks and what is given back */
        snprintf(says, sizeof says, "\n%s\n", parts[i]);
        const char *after = strstr(bt_text_str(&heard), says);
        assert_non_null(after);
        after += strlen(says);
        static const char *const given[] = {"release 7 slices\n",
                                            "close adapters\n",
                                            "no adapters\n",
                                            "release 0 slices\n",
                                            "release setup for the base\n",
                                            "free\n",
                                            "agree: failed\n",
                                            "agree here: failed\n"};
        for (size_t k = 0; k < sizeof given / sizeof *given;)
            if (strncmp(after, given[k], strlen(given[k])) == 0)
                after += strlen(given[k]), k = 0;
            else
                k++;
        all_is_given_back(after);
    }
}

/* an error of another rank is learnt at the next meeting, and is this rank's too */
static void an_error_of_another_rank_ends_it(void **state) {
    (void)state;
    int meetings[2];
    for (int resumes = 0; resumes < 2; resumes++) {
        begin();
        assert_int_equal(create_all(resumes), BT_OK);
        meetings[resumes] = world.agreements;
        bt_text_clear(&heard);
        bt_trainer_destroy(t);
        all_is_given_back(bt_text_str(&heard));
        heard_is("");
    }
    assert_true(meetings[0] == 9 && meetings[1] == 10);
    for (int resumes = 0; resumes < 2; resumes++)
        for (int k = 1; k <= meetings[resumes]; k++) {
            begin();
            world.alone_fails = k;
            assert_int_equal(create_all(resumes), BT_CHECK);
            assert_string_equal(err.msg, "another rank fails");
            const char *after = strstr(bt_text_str(&heard), "no hub\n");
            assert_non_null(after);
            if (k > 1) all_is_given_back(after);
            bt_text_clear(&heard);
        }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failure_ends_the_making),
        cmocka_unit_test(an_error_of_another_rank_ends_it),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
