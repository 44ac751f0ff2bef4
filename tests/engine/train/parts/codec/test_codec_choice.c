/* test_codec_choice.c - choice of the gradient codec: warm-up, state in checkpoints, the dial, fallback of
 * single tensors and steps, and the events that report each change. */
#include "tests/engine/train/parts/codec/codec_world.h"

/* ---- initial choice ------------------------------------------------------------------------------ */

static void a_run_begins_with_its_configured_codec(void **state) {
    (void)state;
    static const struct {
        bt_codec_id codec;
        const char *budget;
        int dp, n, at;
        bool by_budget;
        double rate;
    } rows[] = {
        {BT_CODEC_NONE, "off", 4, 1, 0, false, 0}, {BT_CODEC_INT8, "off", 1, 1, 0, false, 0},
        {BT_CODEC_BF16, "off", 4, 2, 1, false, 0}, {BT_CODEC_INT8, "off", 4, 3, 2, false, 0},
        {BT_CODEC_INT8, "off", 2, 3, 2, false, 0}, {BT_CODEC_SIGN, "off", 3, 4, 3, false, 0},
        {BT_CODEC_INT8, "auto", 4, 3, 0, true, 0}, {BT_CODEC_SIGN, "8kbit", 4, 4, 0, true, 1000}};
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(rows[i].codec, rows[i].budget);
        end();
        t.setup.dp = rows[i].dp;
        assert_int_equal(bt_codec_choice_create(&choice, &t, &err), BT_OK);
        const bt_codec_choice *c = &choice;
        if (c->ladder.n != rows[i].n || c->at != rows[i].at || c->most != rows[i].n - 1 ||
            c->by_budget != rows[i].by_budget || c->dial.budget != rows[i].rate)
            fail_msg("row %zu: %d rungs, at %d of %d", i, c->ladder.n, c->at, c->most);
        assert_string_equal(c->ladder.at[c->most]->name,
                            rows[i].dp > 1 ? bt_codec_at(rows[i].codec)->name : "none");
        assert_ptr_equal(c->frozen_for, bt_codec_at(BT_CODEC_NONE));
        assert_true(c->n == TENSORS && c->held_at == 0 && !c->budget_applied && !c->made);
        for (int k = 0; k < TENSORS; k++)
            assert_true(!c->sent_as_fp32[k] && c->residual_squares[k] == 0 && c->ratio[k] == 0 &&
                        c->bits[k] == 0);
        end();
        assert_true(!c->sent_as_fp32 && !c->residual_squares && c->n == 0 && c->ladder.n == 0);
    }
    snprintf(t.cfg.comm.budget, sizeof t.cfg.comm.budget, "much");
    assert_int_equal(bt_codec_choice_create(&choice, &t, &err), BT_ARG);
    end();
}

/* Checks steps before, at and after the end of the warm-up, on every rung. */
static void the_warm_up_delays_the_codec(void **state) {
    (void)state;
    static const struct {
        bt_codec_id codec;
        /* codec in use on rungs 0 to 3 during warm-up; NULL if the ladder has no such rung */
        const char *budget, *now[4];
    } rows[] = {{BT_CODEC_NONE, "off", {"none"}},
                {BT_CODEC_BF16, "off", {"none", "none"}},
                {BT_CODEC_INT8, "off", {"none", "none", "none"}},
                {BT_CODEC_INT8, "auto", {"none", "bf16", "int8"}},
                {BT_CODEC_SIGN, "off", {"none", "bf16", "bf16", "bf16"}},
                {BT_CODEC_SIGN, "auto", {"none", "bf16", "bf16", "bf16"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(rows[i].codec, rows[i].budget);
        for (choice.at = 0; choice.at < choice.ladder.n; choice.at++)
            for (t.at.step = 0; t.at.step < 5; t.at.step++) {
                const char *want = t.at.step < 3 ? rows[i].now[choice.at]
                                                 : choice.ladder.at[choice.at]->name;
                if (!want || strcmp(bt_codec_choice_now(&choice, &t)->name, want) != 0)
                    fail_msg("row %zu, rung %d, step %d: %s", i, choice.at, (int)t.at.step,
                             bt_codec_choice_now(&choice, &t)->name);
            }
        end();
    }
}

/* ---- checkpoints --------------------------------------------------------------------------------- */

static void keep_is(const char *want) {
    bt_state s = {.n = 0};
    bt_text text;
    bt_err err = BT_ERR_INIT;
    bt_text_init(&text);
    bt_codec_choice_add_state(&choice, &t, &s);
    assert_int_equal(bt_state_save_values(&s, &text, &err), BT_OK);
    assert_string_equal(bt_text_str(&text), want);
    bt_text_release(&text);
}

static void take_up(const char *values) {
    bt_state s = {.n = 0};
    bt_text text;
    bt_err err = BT_ERR_INIT;
    bt_text_init(&text);
    bt_text_put(&text, values);
    bt_codec_choice_add_state(&choice, &t, &s);
    assert_int_equal(bt_state_load_values(&s, &text, &err), BT_OK);
    bt_text_release(&text);
}

static void checkpoints_keep_the_chosen_codec(void **state) {
    (void)state;
    begin(BT_CODEC_NONE, "off");
    keep_is("{\"codec\":{}}");
    end();
    begin(BT_CODEC_SIGN, "auto");
    choice.at = 1, choice.most = 2, choice.dial.room_s = 0.25;
    choice.frozen_for = choice.ladder.at[2], choice.held_at = 77;
    choice.sent_as_fp32[1] = true;
    keep_is(
        "{\"codec\":{\"in_use\":\"bf16\",\"most\":\"int8\",\"room_s\":0.25,\"held_by\":\"int8\","
        "\"held_at\":77,\"fell\":\"010\"}}");
    end();
}

static void a_resumed_run_continues_with_its_codec(void **state) {
    (void)state;
#define HELD "\"held_by\":\"bf16\",\"held_at\":5,"
    static const struct {
        const char *budget, *values;
        int at, most, held_at;
        double room_s;
        /* state string of all tensors, and those of this stage that fall back to plain codes */
        const char *frozen_for, *sent_as_fp32;
    } rows[] = {
        {"auto", "{}", 0, 3, 0, 0, "none", "000 00"},
        {"auto",
         "{\"codec\":{\"in_use\":\"bf16\",\"most\":\"int8\",\"room_s\":0.25," HELD
         "\"fell\":\"010\"}}",
         1, 2, 5, 0.25, "bf16", "010 01"},
        {"auto",
         "{\"codec\":{\"in_use\":\"sign\",\"most\":\"int8\",\"room_s\":0.25,\"fell\":\"001\"}}", 2,
         2, 0, 0.25, "none", "001 10"},
        {"off",
         "{\"codec\":{\"in_use\":\"bf16\",\"most\":\"int8\",\"room_s\":0.25,\"fell\":\"1\"}}", 2, 2,
         0, 0, "bf16", "000 00"},
        /* Codecs that this ladder lacks are ignored. */
        {"auto",
         "{\"codec\":{\"in_use\":\"topk\",\"most\":\"int4\",\"held_by\":\"int4\",\"held_at\":5,"
         "\"fell\":\"1111\"}}",
         0, 3, 0, 0, "none", "000 00"},
        {"auto", "{\"codec\":{\"in_use\":\"sign\",\"held_by\":\"sign\",\"fell\":\"1x0\"}}", 3, 3, 0,
         0, "sign", "100 00"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char fell[8] = "";
        begin(BT_CODEC_SIGN, rows[i].budget);
        const bt_codec_choice *c = &choice;
        take_up(rows[i].values);
        for (int k = 0; k < TENSORS; k++) fell[k] = c->sent_as_fp32[k] ? '1' : '0';
        fell[TENSORS] = ' ';
        for (int k = 0; k < STAGE; k++) fell[TENSORS + 1 + k] = payloads[k].plain ? '1' : '0';
        if (c->at != rows[i].at || c->most != rows[i].most || c->held_at != rows[i].held_at ||
            c->dial.room_s != rows[i].room_s || strcmp(fell, rows[i].sent_as_fp32) != 0 ||
            strcmp(c->frozen_for->name, rows[i].frozen_for) != 0)
            fail_msg("row %zu: at %d of %d, held by %s at %d, room %g, fell %s", i, c->at, c->most,
                     c->frozen_for->name, (int)c->held_at, c->dial.room_s, fell);
        assert_int_equal(c->fp32_changed, strchr(rows[i].sent_as_fp32, '1') != NULL);
        end();
    }
}

/* ---- the second moment ---------------------------------------------------------------------------- */

/* Frozen second moments take effect from the second update on, for tensors that do not travel as fp32, if
 * the previous codec delivered them. */
static void second_moments_are_frozen(void **state) {
    (void)state;
    static const struct {
        bt_codec_id from, to;
        int updates, held_at;
        const char *raised;
    } rows[] = {{BT_CODEC_NONE, BT_CODEC_BF16, 9, 0, ""},
                {BT_CODEC_NONE, BT_CODEC_INT8, 9, 0, ""},
                {BT_CODEC_NONE, BT_CODEC_SIGN, 9, 9, "1 0.01 "},
                {BT_CODEC_BF16, BT_CODEC_TERNARY, 9, 9, "1 0.01 "},
                {BT_CODEC_BF16, BT_CODEC_SIGN, 0, 0, ""},
                {BT_CODEC_BF16, BT_CODEC_SIGN, 1, 1, "1 0.01 "},
                {BT_CODEC_INT8, BT_CODEC_SIGN, 9, 0, ""},
                {BT_CODEC_SIGN, BT_CODEC_NONE, 9, 0, ""},
                {BT_CODEC_SIGN, BT_CODEC_SIGN, 9, 4, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(BT_CODEC_SIGN, "off");
        payloads[0].plain = true;
        t.at.updates = rows[i].updates;
        choice.frozen_for = bt_codec_at(rows[i].from);
        choice.held_at = 4;
        choice.fp32_changed = true;
        bt_codec_choice_made(&choice, &t, bt_codec_at(rows[i].to));
        assert_ptr_equal(choice.made, bt_codec_at(rows[i].to));
        assert_ptr_equal(choice.frozen_for, bt_codec_at(rows[i].to));
        assert_false(choice.fp32_changed);
        assert_int_equal(choice.held_at, rows[i].held_at);
        assert_string_equal(bt_text_str(&raised), rows[i].raised);
        end();
    }
}

/* ---- the dial ------------------------------------------------------------------------------------- */

static const bt_step_outcome good = {.applied = true, .loss_scale = 1};

/* Ends a step with this duration and these times of its exchange: in flight, waited, delayed. */
static void step_of(double step_ms, double busy_ms, double wait_ms, double exposed_ms, bool bad) {
    bt_err err = BT_ERR_INIT;
    bt_step_outcome o = good;
    o.bad = bad;
    o.applied = !bad;
    o.rank_values[BT_MR_STEP_TIME] = step_ms;
    choice.took = (bt_reduce_times){.busy_ns = (int64_t)(busy_ms * 1e6),
                                    .wait_ns = (int64_t)(wait_ms * 1e6),
                                    .exposed_ns = (int64_t)(exposed_ms * 1e6)};
    assert_int_equal(step(&o, &err), BT_OK);
    t.at.step++;
}

/* The least delayed step of a window counts, and of all ranks the slowest. */
static void the_least_delayed_step_of_a_window_counts(void **state) {
    (void)state;
    begin(BT_CODEC_INT8, "auto");
    choice.budget_applied = true;
    choice.took = (bt_reduce_times){0};
    step_of(100, 60, 20, 30, false);
    const bt_dial_window *w = &choice.window;
    assert_true(w->steps == 1 && w->step_s == 0.1 && w->busy_s == 0.04 && w->exposed_s == 0.03);
    step_of(200, 70, 10, 60, false); /* This step has the same share of delay. */
    assert_true(w->steps == 2 && w->step_s == 0.1);
    step_of(200, 70, 10, 59, false);
    assert_true(w->steps == 3 && w->step_s == 0.2 && w->busy_s == 0.06 && w->exposed_s == 0.059);
    step_of(100, 10, 20, 10, false); /* Waiting does not count as transfer. */
    assert_true(w->steps == 4 && w->step_s == 0.1 && w->busy_s == 0 && w->exposed_s == 0.01);
    step_of(100, 10, 0, 20, false);
    assert_true(w->steps == 5 && w->exposed_s == 0.01);
    t.at.step = BT_DIAL_WINDOW;
    step_of(100, 10, 0, 20, false);
    assert_true(w->steps == 0 && w->step_s == 0);
    assert_int_equal(links, 1);
    end();
}

/* Returns the average bits per gradient element in both directions for 4 ranks. */
static double bits_of(bt_codec_id id, double there, double back) {
    const bt_way_bits b = bt_codec_way_bits(bt_codec_at(id));
    return (there * b.there + back * b.back) / (there + back);
}

static void told_dial(const char *why, bt_codec_id to, bt_codec_id from, double exposed,
                      double link_s, int steps) {
    char want[640];
    const double bits = bits_of(to, 3, 3);
    snprintf(want, sizeof want,
             "codec %d %s: gradients travel as %s from the next step, %.4g bits each, before as %s "
             "{\"codec\":\"%s\",\"before\":\"%s\",\"bits\":%.4g,\"exposed_frac\":%.4g,"
             "\"link_s\":%.4g,\"steps\":%d}\n",
             (int)t.at.step - 2, why, to == BT_CODEC_NONE ? "fp32" : bt_codec_at(to)->name, bits,
             from == BT_CODEC_NONE ? "fp32" : bt_codec_at(from)->name, bt_codec_at(to)->name,
             bt_codec_at(from)->name, bits, exposed, link_s, steps);
    heard_is(want);
}

/* Delays never change the codec while the dial is off. */
static void a_dial_that_is_off_is_not_turned(void **state) {
    (void)state;
    begin(BT_CODEC_INT8, "off");
    const int at = choice.at;
    for (int i = 1; i < BT_DIAL_WINDOW; i++) {
        step_of(30, 25, 0, 20, false);
        assert_int_equal(choice.window.steps, i);
    }
    bt_text_clear(&heard); /* Ends the warm-up, which emits one event. */
    assert_true(choice.at == at && !choice.budget_applied && links == 0);
    end();
}

static void a_budget_turns_the_dial(void **state) {
    (void)state;
    /* 4 MiB of fp32 gradients in each direction, of which 3 of 4 parts leave the rank: 24 MiB a step. */
    begin(BT_CODEC_INT8, "1Gbit");
    step_of(100, 50, 0, 0, false); /* At 12.5 MB in 0.1 s bf16 is too slow and int8 fits. */
    told_dial("comm.budget is 1Gbit", BT_CODEC_INT8, BT_CODEC_NONE, 0, 0, 1);
    assert_true(choice.at == 2 && choice.budget_applied && reducers == 1 && links == 0);
    assert_ptr_equal(choice.made, bt_codec_at(BT_CODEC_INT8));
    step_of(100, 50, 0, 0, false);
    heard_is("");
    end();
    begin(BT_CODEC_INT8, "1Gbit");
    others[0] = 0.19; /* A slower rank leaves more time, so that bf16 fits. */
    others[2] = 0.02;
    step_of(100, 50, 0, 0, false);
    told_dial("comm.budget is 1Gbit", BT_CODEC_BF16, BT_CODEC_NONE, 0.02 / 0.19, 0, 1);
    end();
}

static void a_slow_link_turns_the_dial(void **state) {
    (void)state;
    static const struct {
        double bytes_per_s, latency_s, link_s;
        int hosts[4];
    } rows[] = {
        /* 32 buckets in both directions, 25165824 bytes */
        {1e9, 0, 25165824e-9, {0, 0, 0, 0}},
        {1e9, 1e-4, 32e-4 + 25165824e-9, {0, 1, 2, 3}},
        {1e9, 0, 25165824e-9 / 2, {0, 0, 1, 1}}, /* Ranks of one host send their sum once. */
        {1e9, 0, 25165824e-9 / (4.0 / 3), {0, 1, 1, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[200];
        begin(BT_CODEC_INT8, "auto");
        memcpy(host_of, rows[i].hosts, sizeof rows[i].hosts);
        link_found = (bt_link){.latency_s = rows[i].latency_s, .bytes_per_s = rows[i].bytes_per_s};
        step_of(30, 25, 0, 20, false);
        assert_int_equal(links, 1);
        assert_true(link_work.bytes == 25165824 / 8 && link_work.memory == link_work.bytes &&
                    link_work.rounds == 4 && !link_work.processor);
        snprintf(why, sizeof why,
                 "exchanges delay steps by 66.7 %% of their time, as the link takes %.3g s",
                 rows[i].link_s);
        const bt_codec_id to = choice.at == 2 ? BT_CODEC_INT8 : BT_CODEC_BF16;
        told_dial(why, to, BT_CODEC_NONE, 2.0 / 3, rows[i].link_s, 1);
        end();
    }
    /* The size of the probe message is limited, and the slower link of two ranks counts. */
    static const size_t totals[] = {1000, 1 << 28}, parts[] = {1 << 16, 4 << 20};
    for (int i = 0; i < 2; i++) {
        begin(BT_CODEC_INT8, "auto");
        link_found = (bt_link){.bytes_per_s = 1e9};
        t.setup.params.total = totals[i];
        others[0] = 0.25; /* The slowest step and the slowest link of all ranks count. */
        step_of(30, 25, 0, 20, false);
        assert_true(link_work.bytes == parts[i] && link_work.memory == parts[i]);
        end();
    }
}

/* An unknown link speed, on all ranks or on one, leaves the codec unchanged. */
static void an_unknown_link_turns_nothing(void **state) {
    (void)state;
    for (int of_other = 0; of_other < 2; of_other++) {
        begin(BT_CODEC_INT8, "auto");
        link_found = (bt_link){.bytes_per_s = of_other ? 1e6 : 0};
        if (of_other) others[1] = 1; /* The second value of the reduction marks an unknown link. */
        step_of(30, 25, 0, 20, false);
        assert_true(links == 1 && choice.at == 0);
        heard_is("");
        end();
    }
}

/* Delays that the link does not explain are reported once, and again after a window without delays. */
static void delays_without_a_slow_link_are_reported_once(void **state) {
    (void)state;
    static const char want[] =
        "codec 7 exchanges delay steps by 66.7 % of their time, but not because of the link: "
        "it needs 0.0252 ms, and compute hides 6.25 ms of it. Gradients are still sent as fp32 "
        "(other work occupies the cores of ranks) "
        "{\"exposed_frac\":0.6667,\"link_s\":2.517e-05,\"step_s\":0.03}\n";
    begin(BT_CODEC_INT8, "auto");
    link_found = (bt_link){.bytes_per_s = 1e12};
    for (int times = 0; times < 2; times++)
        for (int i = 0; i < 3; i++) { /* two delayed windows, then one without */
            t.at.step = BT_DIAL_WINDOW;
            step_of(30, 26.25, 0, i < 2 ? 20 : 0, false);
            if (i == 0 && times == 0) heard_is(want);
            if (i == 0 && times == 1)
                bt_text_clear(&heard); /* Compute now hides a larger part of the exchange. */
            if (i > 0) heard_is("");
            assert_int_equal(choice.reported_delays, i < 2);
        }
    assert_int_equal(choice.at, 0);
    end();
    /* The last rung cannot be lowered, so there is no report. */
    begin(BT_CODEC_BF16, "auto");
    choice.at = 1;
    t.at.step = BT_DIAL_WINDOW;
    step_of(30, 25, 0, 20, false);
    heard_is("");
    end();
}

/* The next lower rung sufficed for two windows. */
static void a_fast_network_turns_the_dial_back(void **state) {
    (void)state;
    begin(BT_CODEC_INT8, "auto");
    choice.at = 2, choice.dial.room_s = 1;
    choice.budget_applied = true;
    bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
    choice.reported_delays = true;
    for (int i = 0; i < 2; i++) {
        t.at.step = BT_DIAL_WINDOW;
        step_of(100, 10, 0, 0, false);
        if (i == 0) heard_is("");
    }
    told_dial("the network is fast enough (0.0 % of a step exposed, at most)", BT_CODEC_NONE,
              BT_CODEC_INT8, 0, 0, 1);
    assert_true(choice.at == 0 && !choice.reported_delays);
    end();
}

/* ---- fallbacks ------------------------------------------------------------------------------------ */

static void tensors_with_large_residuals_fall_back(void **state) {
    (void)state;
    begin(BT_CODEC_INT8, "off");
    t.at.step = BT_DIAL_WINDOW;
    bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
    /* Four ranks have a residual of 16 against a gradient of 1, which is exactly the limit. */
    owed_by[0] = 4;
    owed_by[1] = 16; /* 64 of 4 */
    owed_by[2] = 25; /* 100 of 1 */
    squares[1] = 4;
    bt_err err = BT_ERR_INIT;
    bt_step_outcome o = good;
    o.loss_scale = 8;
    assert_int_equal(step(&o, &err), BT_OK);
    assert_true(unscaled == 0.125);
    heard_is("codec_fallback 7 the residual of int8 is 10 times the gradient of layers.1.up "
             "(comm.residual_cap 4): the tensor is sent as fp32 from the next step on "
             "{\"tensor\":\"layers.1.up\",\"residual_ratio\":10,\"codec\":\"int8\"}\n");
    assert_true(choice.ratio[0] == 4 && choice.ratio[1] == 4 && choice.ratio[2] == 10);
    assert_true(choice.sent_as_fp32[2] && !choice.sent_as_fp32[0] && !choice.sent_as_fp32[1]);
    assert_true(payloads[0].plain && !payloads[1].plain && reducers == 1);
    assert_int_equal(step(&o, &err), BT_OK); /* The fallback is reported once. */
    heard_is("");
    squares[1] = 1;
    t.at.step++; /* Residuals are checked once a window, and only after a step that was applied. */
    assert_int_equal(step(&o, &err), BT_OK);
    t.at.step--;
    o.applied = false;
    assert_int_equal(step(&o, &err), BT_OK);
    o.applied = true;
    t.cfg.comm.residual_cap = 0;
    assert_int_equal(step(&o, &err), BT_OK);
    heard_is("");
    assert_int_equal(sums, 2);
    /* A tensor of another rank has no residual here. */
    t.cfg.comm.residual_cap = 4;
    squares[1] = 0;
    owed_by[0] = 0;
    assert_int_equal(step(&o, &err), BT_OK);
    assert_true(isnan(choice.ratio[0]) && isnan(choice.ratio[1]));
    /* A codec without error feedback has no residual either. */
    choice.made = bt_codec_at(BT_CODEC_BF16);
    choice.most = choice.at = 1;
    assert_int_equal(step(&o, &err), BT_OK);
    for (int i = 0; i < TENSORS; i++) assert_true(isnan(choice.ratio[i]));
    assert_int_equal(sums, 3);
    end();
}

static void two_bad_steps_in_a_row_fall_back(void **state) {
    (void)state;
    static const struct {
        bt_codec_id codec;
        const char *steps; /* one letter per step: b is bad, g is good */
        const char *told[2];
        const char *now;
    } rows[] = {
        {BT_CODEC_INT8, "bgbgb", {"", ""}, "int8"},
        {BT_CODEC_INT8,
         "gbb",
         {"codec_fallback 12 2 bad steps in a row with --codec int8: gradients travel as bf16 from "
          "now on {\"codec\":\"bf16\",\"before\":\"int8\"}\n",
          ""},
         "bf16"},
        {BT_CODEC_INT8,
         "bbbb",
         {"codec_fallback 11 2 bad steps in a row with --codec int8: gradients travel as bf16 from "
          "now on {\"codec\":\"bf16\",\"before\":\"int8\"}\n",
          "codec_fallback 13 2 bad steps in a row with --codec bf16: gradients travel as fp32 from "
          "now on {\"codec\":\"none\",\"before\":\"bf16\"}\n"},
         "none"},
        {BT_CODEC_NONE, "bbbb", {"", ""}, "none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[400];
        begin(rows[i].codec, "off");
        t.at.step = 11;
        bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
        for (const char *s = rows[i].steps; *s; s++) step_of(100, 10, 0, 0, *s == 'b');
        snprintf(want, sizeof want, "%s%s", rows[i].told[0], rows[i].told[1]);
        heard_is(want);
        assert_string_equal(bt_codec_choice_now(&choice, &t)->name, rows[i].now);
        assert_int_equal(choice.most, choice.at);
        end();
    }
    /* Codecs whose sums have equal bits on all ranks have no residual. */
    begin(BT_CODEC_INT8, "off");
    t.at.step = 11;
    choice.made = &bt_codec_exact;
    choice.ladder.at[2] = &bt_codec_exact;
    for (int i = 0; i < 4; i++) step_of(100, 10, 0, 0, true);
    heard_is("");
    end();
}

/* ---- end of the warm-up, statistics -------------------------------------------------------------- */

static void the_end_of_the_warm_up_is_an_event(void **state) {
    (void)state;
    begin(BT_CODEC_SIGN, "off");
    assert_string_equal(choice.made->name, "bf16");
    t.at.updates = 3;
    for (t.at.step = 1; t.at.step < 6;) {
        step_of(100, 10, 0, 0, false);
        heard_is(t.at.step == 4
                     ? "codec 2 the warm-up of --codec sign is over: gradients are encoded "
                       "from the next step\n"
                     : "");
        assert_int_equal(reducers, t.at.step >= 4);
    }
    assert_true(strcmp(choice.made->name, "sign") == 0 && choice.held_at == 3);
    end();
    begin(BT_CODEC_SIGN, "auto"); /* The dial reports its changes itself. */
    choice.budget_applied = true;
    choice.at = 3;
    bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
    t.at.step = 3;
    step_of(100, 10, 0, 0, false);
    heard_is("");
    assert_int_equal(reducers, 1);
    end();
}

static void statistics_have_bits_and_residuals(void **state) {
    (void)state;
    static const struct {
        int dp, replicas;
        bool sharded;
        double there, back; /* parts of the message that a rank sends in each direction */
    } rows[] = {{4, 1, false, 3, 3}, {4, 1, true, 3, 0}, {4, 2, true, 3, 1}, {2, 9, false, 1, 1}};
    bt_step_outcome o = good;
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(BT_CODEC_SIGN, "off");
        t.at.step = 9;
        bt_codec_choice_made(&choice, &t, bt_codec_choice_now(&choice, &t));
        t.setup.dp = rows[i].dp, t.setup.replicas = rows[i].replicas;
        t.setup.sharded = rows[i].sharded;
        payloads[1].plain = true;
        owed_by[2] = 4;
        others[0] = 3.5; /* This tensor belongs to another stage. */
        assert_int_equal(bt_codec_choice_sample(&choice, &t, &residual, &o, &err), BT_OK);
        assert_true(o.grad_bits[0] == 3.5 && o.grad_bits[1] == PLAIN_BITS);
        assert_true(fabs(o.grad_bits[2] - bits_of(BT_CODEC_SIGN, rows[i].there, rows[i].back)) <
                    1e-12);
        assert_true(isnan(o.residual_ratio[0]) && isnan(o.residual_ratio[1]) &&
                    o.residual_ratio[2] == 4);
        /* A codec without error feedback sends every tensor in the same format. */
        choice.made = bt_codec_at(BT_CODEC_BF16);
        others[0] = 0; /* No stage holds this tensor. */
        assert_int_equal(bt_codec_choice_sample(&choice, &t, &residual, &o, &err), BT_OK);
        assert_true(o.grad_bits[0] == 0 && o.grad_bits[1] == 16 && o.grad_bits[2] == 16 &&
                    isnan(o.residual_ratio[2]));
        end();
    }
}

int main(void) {
    bt_text_init(&heard);
    bt_text_init(&raised);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_begins_with_its_configured_codec),
        cmocka_unit_test(the_warm_up_delays_the_codec),
        cmocka_unit_test(checkpoints_keep_the_chosen_codec),
        cmocka_unit_test(a_resumed_run_continues_with_its_codec),
        cmocka_unit_test(second_moments_are_frozen),
        cmocka_unit_test(the_least_delayed_step_of_a_window_counts),
        cmocka_unit_test(a_dial_that_is_off_is_not_turned),
        cmocka_unit_test(a_budget_turns_the_dial),
        cmocka_unit_test(a_slow_link_turns_the_dial),
        cmocka_unit_test(an_unknown_link_turns_nothing),
        cmocka_unit_test(delays_without_a_slow_link_are_reported_once),
        cmocka_unit_test(a_fast_network_turns_the_dial_back),
        cmocka_unit_test(tensors_with_large_residuals_fall_back),
        cmocka_unit_test(two_bad_steps_in_a_row_fall_back),
        cmocka_unit_test(the_end_of_the_warm_up_is_an_event),
        cmocka_unit_test(statistics_have_bits_and_residuals),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    bt_text_release(&raised);
    return failed;
}
