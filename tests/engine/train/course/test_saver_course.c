/* test_saver_course.c - checkpoints of a training from the first to the last: when one is due, what is saved and told
 * of it, failures that cost a checkpoint and those that cost the run, what is read again, and where a run goes on from.
 * What the parts do is defined in the header. */
#include "tests/engine/train/course/saver_world.h"

/* ---- values that are kept -------------------------------------------------------------------- */

static const char *saved_row(size_t k) {
    static char text[100];
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    world.rows[k].save(world.rows[k].ctx, &j);
    bt_json_end(&j, '}');
    snprintf(text, sizeof text, "%s", bt_text_str(&out));
    bt_text_release(&out);
    return text;
}

static void progress_and_the_best_are_kept(void **state) {
    (void)state;
    begin();
    assert_true(s.step == -1 && s.checked_step == -1 && isinf(s.best) && s.interval.most_s == 0);
    assert_int_equal(world.n_rows, 2);
    assert_string_equal(world.rows[0].name, "progress");
    assert_string_equal(world.rows[1].name, "best");
    assert_string_equal(saved_row(0), "{\"updates\":28,\"lr_factor\":0.5}");
    assert_string_equal(saved_row(1), "{}");
    s.best = 1.5;
    assert_string_equal(saved_row(1), "{\"val_loss\":1.5}");
    world.rows[0].load(&s, NULL); /* a checkpoint from before there were such values */
    world.rows[1].load(&s, NULL);
    assert_true(at.updates == 30 && at.lr_factor == 1 && isinf(s.best));
    world.rows[0].load(&s, (const bt_state_values *)(void *)things);
    world.rows[1].load(&s, (const bt_state_values *)(void *)things);
    assert_true(at.updates == 77 && at.lr_factor == 0.25 && s.best == 0.25);
    cfg.ckpt_minutes = 2.5;
    world.n_rows = 0;
    bt_saver_init(&s);
    assert_true(s.interval.most_s == 150);
}

/* ---- start and due --------------------------------------------------------------------------- */

static void how_it_starts(void **state) {
    (void)state;
    begin();
    assert_int_equal(bt_saver_start(&s, &err), BT_OK);
    heard_is("tokenizer bytes\ntokenizer\nfree tokenizer\nagree\nslices\nagree\nrelease 3\n"
             "estimate 3000\n");
    assert_true(s.saved_ns == 5000000000 && s.interval.began_ns == 5000000000);
    assert_true(s.vocab_hash == 99 && !s.async);
    begin();
    cfg.ckpt_async = true;
    s.saved_ns = 3;
    s.interval.most_s = 60, cfg.ckpt_every = 0;
    s.interval.cost_s = 0.125;
    assert_int_equal(bt_saver_start(&s, &err), BT_OK);
    heard_is("tokenizer bytes\ntokenizer\nfree tokenizer\nagree\nslices\nagree\nrelease 3\n"
             "copy of 3000\ncopy\nall\nestimate 3000 beside\nckpt.interval_s=60.0\n"
             "ckpt.cost_s=0.125000\nckpt.mtbf_s=86400\n");
    assert_true(s.saved_ns == 3 && s.async == ASYNC && s.told_interval_s == 60);
    assert_int_equal(bt_saver_start(&s, &err),
                     BT_OK); /* another attempt to begin: once is enough */
    heard_is("tokenizer bytes\ntokenizer\nfree tokenizer\nagree\nslices\nagree\nrelease 3\n"
             "estimate 3000 beside\n");
    assert_string_equal(bt_text_str(&s.tokenizer), "words");
    bt_saver_release(&s);
    heard_is("destroy copy\nno reading\n");
    assert_true(!s.async && !s.check);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) { /* no memory for a copy, here or there */
        begin();
        cfg.ckpt_async = true;
        world.fails = elsewhere ? NULL : "copy";
        world.refused_elsewhere = elsewhere;
        assert_int_equal(bt_saver_start(&s, &err), BT_OK);
        assert_null(s.async);
        char want[500];
        snprintf(want, sizeof want,
                 "tokenizer bytes\ntokenizer\nfree tokenizer\nagree\nslices\nagree\nrelease 3\n"
                 "copy of 3000\ncopy\nall\n%s\nwarning 29 no memory for a copy of the state: "
                 "training stands still while a checkpoint is written\nestimate 3000\n",
                 elsewhere ? "destroy copy" : "no copy");
        heard_is(want);
    }
    begin(); /* nothing is saved */
    cfg.out[0] = '\0';
    assert_int_equal(bt_saver_start(&s, &err), BT_OK);
    heard_is("");
    assert_int_equal(s.interval.began_ns, 5000000000);
    static const char *const parts[] = {"tokenizer", "slices", "all"};
    for (int i = 0; i < 3; i++) {
        begin();
        cfg.ckpt_async = true;
        world.fails = parts[i];
        assert_int_equal(bt_saver_start(&s, &err), BT_IO);
        bt_text_clear(&heard);
    }
}

static void when_one_is_due(void **state) {
    (void)state;
    static const struct {
        bool by_steps, damaged, pending, out;
        double most_s, since_s;
        bool due;
    } rows[] = {
        {false, false, false, true, 60, 60, true},  {false, false, false, true, 60, 59.9, false},
        {true, false, false, true, 60, 100, false}, {false, false, true, true, 60, 100, false},
        {false, false, false, true, 0, 100, false}, {false, false, false, false, 60, 100, false},
        {true, true, false, true, 0, 0, true},      {true, true, true, true, 0, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        cfg.ckpt_every = rows[i].by_steps ? 10 : 0;
        if (!rows[i].out) cfg.out[0] = '\0';
        s.damaged = rows[i].damaged;
        s.async = ASYNC;
        world.pending = rows[i].pending;
        s.interval.most_s = rows[i].most_s;
        s.saved_ns = world.now_ns - (int64_t)(rows[i].since_s * 1e9);
        assert_int_equal(bt_saver_due(&s), rows[i].due);
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

#define JOB(best, slices) \
    "values\nslices\nagree\njob in /out: " slices " slices, keep 4" best \
    "; step 30, 3000 tokens, attempt 6 of otter, abacus, {settings}, words, {values}, hashes 11 " \
    "22 99\n"

static void a_save_that_is_waited_for(void **state) {
    (void)state;
    begin();
    s.vocab_hash = 99;
    bt_text_put(&s.tokenizer, "words");
    strcpy(s.trouble, "x");
    s.damaged = true;
    world.cpu_ns = 500000000;
    assert_int_equal(bt_saver_save(&s, true, true, &err), BT_OK);
    heard_is(JOB(", best", "3") "save\nrelease meta\nrelease 3\ncost 0.52 written 0.02, closing\n"
                                "record 30 at 1234: /out/step-30, 2000000 bytes, 20000 us, seal\n"
                                "checkpoint 29 checkpoint after step 30: 1.91 MiB in 0.02 s, the "
                                "best by validation so far "
                                "{\"written_ms\":20.000,\"took_ms\":20.000}\n");
    assert_true(s.step == 30 && s.saved_ns == world.now_ns && !s.damaged && !s.trouble[0]);
    assert_true(s.stall_ns == 20000000 && s.pending_step == 30);
    assert_string_equal(s.path, "/out/step-30");
    telemetry.sink.checkpoint = NULL; /* who does not listen */
    assert_int_equal(bt_saver_save(&s, false, false, &err), BT_OK);
    heard_is(JOB("", "3") "save\nrelease meta\nrelease 3\ncost 0.52 written 0.02\n"
                          "checkpoint 29 checkpoint after step 30: 1.91 MiB in 0.02 s "
                          "{\"written_ms\":20.000,\"took_ms\":20.000}\n");
    cfg.out[0] = '\0';
    assert_int_equal(bt_saver_save(&s, false, true, &err), BT_OK);
    heard_is("");
}

static void a_save_beside_training(void **state) {
    (void)state;
    begin();
    s.vocab_hash = 99;
    bt_text_put(&s.tokenizer, "words");
    s.async = ASYNC;
    world.stages = 3;
    assert_int_equal(bt_saver_save(&s, false, false, &err), BT_OK);
    heard_is(JOB("", "3") "start\nrelease meta\nrelease 3\n");
    assert_true(bt_saver_pending(&s) && s.step == -1 && s.stall_ns == 20000000);
    world.busy = true;
    assert_true(bt_saver_busy(&s));
    at.step = 33;
    world.now_ns += 900000000; /* training goes on meanwhile */
    assert_int_equal(bt_saver_advance(&s, &err), BT_OK);
    heard_is("advance\n");
    assert_int_equal(s.stall_ns, 40000000);
    assert_int_equal(bt_saver_finish(&s, &err), BT_OK);
    heard_is("advance\nadvance\ncost 0.08 written 0.98\n"
             "record 30 at 1234: /out/step-30, 2000000 bytes, 80000 us, seal\n"
             "checkpoint 29 checkpoint after step 30: 1.91 MiB in 0.98 s, training stood still for "
             "80.0 ms {\"written_ms\":980.000,\"took_ms\":80.000}\n");
    assert_true(s.step == 30 && s.saved_ns == world.now_ns);
    assert_int_equal(bt_saver_advance(&s, &err), BT_OK);
    assert_int_equal(bt_saver_finish(&s, &err), BT_OK);
    heard_is("");
    /* the next one waits for one that is under way */
    world.stages = 1;
    world.pending = true;
    s.pending_step = 30;
    assert_int_equal(bt_saver_save(&s, false, true, &err), BT_OK);
    const char *text = bt_text_str(&heard);
    assert_int_equal(strncmp(text, "advance\n", 8), 0);
    assert_non_null(strstr(text, "step 33, 3000 tokens"));
    assert_non_null(strstr(text, "\nsave\n")); /* though there is room for a copy */
    bt_text_clear(&heard);
}

/* how long training stood still is told where the save took more than one and a half times as long */
static void a_save_that_training_waited_for(void **state) {
    (void)state;
    static const struct {
        int beside_ms;
        const char *took, *stood;
    } rows[] = {
        {30, "0.11", ""}, {39, "0.12", ""}, {41, "0.12", ", training stood still for 80.0 ms"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[200];
        begin();
        s.async = ASYNC;
        world.stages = 3;
        assert_int_equal(bt_saver_save(&s, false, false, &err), BT_OK);
        world.now_ns += rows[i].beside_ms * INT64_C(1000000);
        assert_int_equal(bt_saver_advance(&s, &err), BT_OK);
        assert_int_equal(bt_saver_finish(&s, &err), BT_OK);
        snprintf(want, sizeof want,
                 "\ncheckpoint 29 checkpoint after step 30: 1.91 MiB in %s s%s {", rows[i].took,
                 rows[i].stood);
        if (!strstr(bt_text_str(&heard), want))
            fail_msg("\"%s\" is not in: %s", want, bt_text_str(&heard));
        bt_text_clear(&heard);
    }
}

/* a file system that fails costs the checkpoint; what else fails costs the run */
static void failures_of_a_save(void **state) {
    (void)state;
    static const char *const parts[] = {"values", "slices", "save", "start", "advance"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int io = 0; io < 2; io++) {
            char want[200];
            begin();
            if (i > 2) s.async = ASYNC;
            world.stages = 3;
            world.fails = parts[i];
            world.code = io ? BT_IO : BT_MPI;
            bt_code code = bt_saver_save(&s, false, false, &err);
            if (i == 4) code = bt_saver_advance(&s, &err);
            assert_int_equal(code, io ? BT_OK : BT_MPI);
            assert_int_equal(s.step, -1);
            const double took_ms = i < 2 ? 0 : i == 4 ? 40 : 20;
            snprintf(want, sizeof want,
                     "checkpoint_failed 29 checkpoint after step 30 failed, training goes on: %s "
                     "fails {\"took_ms\":%.3f}\n",
                     parts[i], took_ms);
            const char *told = strstr(bt_text_str(&heard), "checkpoint_failed");
            assert_int_equal(told != NULL, io);
            if (io) {
                assert_string_equal(told, want);
                snprintf(want, sizeof want, "%s fails", parts[i]);
                assert_string_equal(s.trouble, want);
                assert_int_equal(s.saved_ns, world.now_ns);
            }
            /* texts and slices are given back */
            assert_true(i == 4 || strstr(bt_text_str(&heard), "release meta\nrelease "));
        }
    begin();
    world.fails = "save";
    assert_int_equal(bt_saver_save(&s, false, true, NULL), BT_IO); /* nobody asks for the words */
    begin(); /* the save before fails as it is waited for: by more than a file system */
    s.async = ASYNC;
    world.pending = true;
    world.stages = 2;
    world.fails = "advance";
    world.code = BT_MPI;
    assert_int_equal(bt_saver_save(&s, false, false, &err), BT_MPI);
    heard_is("advance\n");
}

static void the_interval_is_told_anew_by_a_tenth(void **state) {
    (void)state;
    static const struct {
        double s;
        bool told;
    } rows[] = {{60, true}, {65.9, false}, {66.1, true}, {59.6, false}, {59.4, true}};
    begin();
    cfg.ckpt_every = 0;
    s.interval.most_s = 60;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        world.interval_s = rows[i].s;
        bt_text_clear(&heard);
        assert_int_equal(bt_saver_save(&s, false, true, &err), BT_OK);
        assert_int_equal(strstr(bt_text_str(&heard), "ckpt.interval_s=") != NULL, rows[i].told);
    }
    telemetry.sink.fact = NULL;
    world.interval_s = 1;
    assert_int_equal(bt_saver_save(&s, false, true, &err), BT_OK);
    assert_true(s.told_interval_s == 59.4);
    bt_text_clear(&heard);
}

/* ---- again from the disk --------------------------------------------------------------------- */

static void when_one_is_read_again(void **state) {
    (void)state;
    static const struct {
        bool verify, pending, path, idle;
        int64_t step, checked;
        double since_s, next_s; /* after now */
        bool reads;
    } rows[] = {{true, false, true, false, 7, -1, 2, 0, true},
                {true, false, true, false, 7, -1, 1.9, 0, false},
                {true, false, true, true, 7, -1, 1.9, 9, true},
                {true, false, true, false, 7, -1, 9, 0.1, false},
                {false, false, true, true, 7, -1, 9, 0, false},
                {true, true, true, true, 7, -1, 9, 0, false},
                {true, false, false, true, 7, -1, 9, 0, false},
                {true, false, true, true, -1, -2, 9, 0, false},
                {true, false, true, true, 0, -1, 9, 0, true},
                {true, false, true, true, 7, 7, 9, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        cfg.ckpt_verify = rows[i].verify;
        s.async = ASYNC;
        world.pending = rows[i].pending;
        s.step = rows[i].step, s.checked_step = rows[i].checked;
        if (rows[i].path) strcpy(s.path, "/out/7");
        s.saved_ns = world.now_ns - (int64_t)(rows[i].since_s * 1e9);
        s.next_check_ns = world.now_ns + (int64_t)(rows[i].next_s * 1e9);
        bt_saver_check(&s, rows[i].idle);
        heard_is(rows[i].reads ? "read /out/7\nread\n" : "");
        assert_int_equal(s.check == REREAD, rows[i].reads);
        if (rows[i].reads) assert_true(s.check_step == s.step && s.checked_step == s.step);
    }
    begin();
    cfg.ckpt_verify = true;
    s.step = 7;
    strcpy(s.path, "/out/7");
    world.fails = "read";
    bt_saver_check(&s, true);
    heard_is("read /out/7\nread\nlog 1 read fails\n");
    assert_null(s.check);
}

static void what_is_told_of_one_that_was_read(void **state) {
    (void)state;
    static const struct {
        bt_code code;
        int64_t newest;
        const char *want;
        bool damaged, again;
    } rows[] = {
        {BT_OK, 7,
         "ckpt_verified 29 checkpoint after step 7 read again from the disk: whole (2.86 MiB in "
         "0.25 s) {\"step\":7,\"read_ms\":250.000}\n",
         false, false},
        {BT_NOMEM, 7, "log 1 too bad\n", false, true},
        {BT_FORMAT, 7,
         "ckpt_damaged 29 checkpoint after step 7 has become damaged on the disk, another is "
         "written: too bad {\"step\":7,\"read_ms\":250.000}\n",
         true, false},
        {BT_IO, 7,
         "ckpt_damaged 29 checkpoint after step 7 cannot be read again from the disk, another is "
         "written: too bad {\"step\":7,\"read_ms\":250.000}\n",
         true, false},
        {BT_FORMAT, 9, "", false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[400];
        begin();
        s.check = REREAD;
        s.check_step = s.checked_step = 7;
        s.step = rows[i].newest;
        bt_saver_check(&s, false); /* it still reads */
        heard_is("");
        assert_ptr_equal(s.check, REREAD);
        world.read = true;
        world.checked = (bt_ckpt_checked){.code = rows[i].code, .bytes = 3000000, .took_s = 0.25};
        strcpy(world.checked.err.msg, "too bad");
        bt_saver_check(&s, false);
        snprintf(want, sizeof want, "destroy reading\n%s", rows[i].want);
        heard_is(want);
        assert_true(!s.check && s.damaged == rows[i].damaged);
        assert_int_equal(s.checked_step, rows[i].again ? -1 : 7);
        assert_int_equal(s.next_check_ns, world.now_ns + 25000000000); /* a hundredth of the time */
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

#define FOUND_ONE "find in /d\nfind\n"
#define LOADED \
    "load values at step 20\nload values\nslices\nload 5 of /d/newest\nload\nrelease 5\nagree\n"

static void a_run_goes_on_from_the_newest(void **state) {
    (void)state;
    begin();
    assert_int_equal(bt_saver_resume(&s, "/d", &err), BT_OK);
    heard_is(FOUND_ONE LOADED "release meta\n");
    assert_true(at.step == 20 && at.tokens == 2000 && s.step == 20);
    assert_string_equal(s.path, "/d/newest");
    for (int rank = 0; rank < 2; rank++) { /* what was passed over, and what differs, is told */
        begin();
        world.rank = rank;
        world.why = "one passed over\ntwo passed over\n";
        world.states = "log8";
        cfg.optim_weights = BT_STATES_BF16;
        cfg.other_data = true;
        world.meta.data_hash = 23;
        strcpy(world.meta.isa, "slide rule"), strcpy(world.meta.build, "cc 0");
        assert_int_equal(bt_saver_resume(&s, "/d", &err), BT_OK);
        char want[1500];
        snprintf(want, sizeof want,
                 FOUND_ONE
                 "%swarning 19 resumed on other data than the checkpoint's\n" LOADED
                 "warning 19 the checkpoint's optimizer states are log8 and become fp32 "
                 "(optim.states): each is rounded to the nearest once\n"
                 "warning 19 the checkpoint's weights of ternary layers are fp32 and become "
                 "bf16 (optim.weights): each is rounded to the nearest once\n"
                 "warning 19 the checkpoint was written with slide rule kernels, this run "
                 "uses abacus: losses may differ in the last bits\n"
                 "warning 19 the checkpoint was written by a build with another compiler (cc "
                 "0): losses may differ in the last bits\nrelease meta\n",
                 rank ? ""
                      : "log 2 one passed over\nckpt_damaged -1 one passed over\nlog 2 two passed "
                        "over\nckpt_damaged -1 two passed over\n");
        heard_is(want);
    }
    static const struct {
        uint64_t params, data;
        const char *fails, *says, *heard;
    } rows[] = {
        {11, 23, NULL,
         "the data are not those of the checkpoint: a resumed run would see other tokens (give the "
         "same --data, or allow it with --other-data)",
         FOUND_ONE "agree: failed\nrelease meta\n"},
        {12, 22, NULL,
         "checkpoint '/d/newest' is of another model: its tensors differ in name or shape (same "
         "preset and model.* settings needed)",
         FOUND_ONE "load values at step 20\nload values\nagree: failed\nrelease meta\n"},
        {11, 22, "find", "find fails", FOUND_ONE},
        {11, 22, "load values", "load values fails",
         FOUND_ONE "load values at step 20\nload values\nagree: failed\nrelease meta\n"},
        {11, 22, "slices", "slices fails",
         FOUND_ONE "load values at step 20\nload values\nslices\nagree: failed\nrelease meta\n"},
        {11, 22, "load", "load fails",
         FOUND_ONE "load values at step 20\nload values\nslices\nload 5 of /d/newest\nload\n"
                   "release 5\nagree: failed\nrelease meta\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.meta.params_hash = rows[i].params, world.meta.data_hash = rows[i].data;
        world.fails = rows[i].fails;
        assert_int_equal(bt_saver_resume(&s, "/d", &err), rows[i].fails ? BT_IO : BT_ARG);
        assert_string_equal(err.msg, rows[i].says);
        heard_is(rows[i].heard);
        assert_true(s.step == -1 && !s.path[0]);
    }
}

static void a_run_goes_on_from_memory(void **state) {
    (void)state;
    bt_memory_id id;
    begin();
    world.id = (bt_memory_id){.attempt = 2, .step = 20, .disk_ns = 4321};
    world.states = "bf16";
    assert_int_equal(bt_saver_resume_memory(&s, "/m", &id, &err), BT_OK);
    heard_is("open /m\nopen\nload values at step 20\nload values\nslices\nagree\nload 5\nload\n"
             "release 5\nclose\nwarning 19 the checkpoint's optimizer states are bf16 and become "
             "fp32 (optim.states): each is rounded to the nearest once\nrelease meta\n");
    assert_true(id.attempt == 2 && s.saved_ns == 4321 && at.step == 20 && at.tokens == 2000);
    for (int same = 0; same < 2;
         same++) { /* else the tokenizer's file was replaced while the run lived */
        begin();
        world.meta.vocab_hash = same ? 99 : 98;
        assert_int_equal(bt_saver_resume_memory(&s, "/m", &id, &err), BT_OK);
        assert_int_equal(bt_saver_start(&s, &err), same ? BT_OK : BT_ARG);
        assert_true(same || strstr(err.msg, "is not that of the state in memory: its ids mean"));
    }
    static const struct {
        uint64_t params, data;
        const char *fails;
        bt_code code, becomes;
    } rows[] = {{12, 22, NULL, BT_OK, BT_ARG},           {11, 23, NULL, BT_OK, BT_ARG},
                {11, 22, "open", BT_IO, BT_FORMAT},      {11, 22, "load values", BT_MPI, BT_MPI},
                {11, 22, "slices", BT_NOMEM, BT_FORMAT}, {11, 22, "load", BT_FORMAT, BT_FORMAT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int rank = 0; rank < 2; rank++) {
            begin();
            world.rank = rank;
            world.meta.params_hash = rows[i].params, world.meta.data_hash = rows[i].data;
            world.fails = rows[i].fails, world.code = rows[i].code;
            assert_int_equal(bt_saver_resume_memory(&s, "/m", &id, &err), rows[i].becomes);
            assert_int_equal(err.code, rows[i].becomes);
            if (i == 0) assert_string_equal(err.msg, "the state in memory is of another model");
            const char *ends = rank ? "release meta\n" : "drop /m\nrelease meta\n";
            const size_t n = strlen(ends);
            assert_string_equal(bt_text_str(&heard) + heard.len - n, ends);
            assert_true(rank == 0 || !strstr(bt_text_str(&heard), "drop"));
            assert_true(i == 2 || strstr(bt_text_str(&heard), "\nclose\n"));
            assert_int_equal(s.saved_ns, 0);
        }
    bt_text_clear(&heard);
}

#define OTHER(path) \
    "model of " path "\nmodel\nfits\nslices\nfill 6\nfill\nrelease 6\nclose model\nagree\n"

static void a_run_begins_from_other_weights(void **state) {
    (void)state;
    begin(); /* of this model: they are loaded */
    assert_int_equal(bt_saver_init_from(&s, "/d", &err), BT_OK);
    heard_is(FOUND_ONE "slices\nload 6 of /d/newest\nload\nrelease 6\nrelease meta\nagree\n");
    begin(); /* of another one */
    world.meta.params_hash = 12;
    assert_int_equal(bt_saver_init_from(&s, "/d", &err), BT_OK);
    heard_is(FOUND_ONE "release meta\n" OTHER("/d/newest"));
    for (int rank = 0; rank < 2; rank++) { /* of another program, which lacks something */
        begin();
        world.rank = rank;
        world.kind = BT_IN_NATIVE + 1;
        world.why = "no head\nno norm";
        assert_int_equal(bt_saver_init_from(&s, "/d", &err), BT_OK);
        heard_is(rank ? OTHER("/d") "warning -1 no head\nwarning -1 no norm\n"
                      : OTHER("/d") "log 2 no head\nwarning -1 no head\nlog 2 no norm\nwarning -1 "
                                    "no norm\n");
    }
    static const char *const parts[] = {"model", "fits", "slices", "fill", "find", "load"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char says[40];
        begin();
        world.kind = i < 4 ? BT_IN_NATIVE + 1 : BT_IN_NATIVE;
        world.why = i < 4 ? "no head\n" : "";
        world.fails = parts[i];
        assert_int_equal(bt_saver_init_from(&s, "/d", &err), BT_IO);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
        assert_null(strstr(bt_text_str(&heard), "warning"));
        if (i < 4) assert_non_null(strstr(bt_text_str(&heard), "close model\nagree: failed\n"));
        bt_text_clear(&heard);
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_and_the_best_are_kept),
        cmocka_unit_test(how_it_starts),
        cmocka_unit_test(when_one_is_due),
        cmocka_unit_test(a_save_that_is_waited_for),
        cmocka_unit_test(a_save_beside_training),
        cmocka_unit_test(a_save_that_training_waited_for),
        cmocka_unit_test(failures_of_a_save),
        cmocka_unit_test(the_interval_is_told_anew_by_a_tenth),
        cmocka_unit_test(when_one_is_read_again),
        cmocka_unit_test(what_is_told_of_one_that_was_read),
        cmocka_unit_test(a_run_goes_on_from_the_newest),
        cmocka_unit_test(a_run_goes_on_from_memory),
        cmocka_unit_test(a_run_begins_from_other_weights),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    bt_text_release(&s.tokenizer);
    return failed;
}
