/* test_trainer_create.c - how a trainer is made: what follows what, with which settings, where ranks meet, what is
 * done without where memory is short, and where weights and data come from.
 * What the parts do is defined in the header. */
#include "tests/engine/train/course/create_world.h"

#define FITS "fits\nagree\n"
#define COMPUTE "setup\nmodel\nmodel\nbeta 16\nschedule\nupdate\ncheck\n"
#define TELEMETRY "telemetry to nobody\ntelemetry\n"
#define BUILD(group, fits) \
    "agree\nresolve\nmesh of 1 x 1\nmesh\n" group "\n" group_done "agree\n" fits
/* the parts of one rank whose states are not kept in memory */
#define MESH "agree\nresolve\nmesh of 1 x 1\nmesh\ngroup of 64 x 48\ngroup\nagree\n"
#define PARTS_OF(model) \
    "agree\nramp\nplan\nsetup\n" model "\nmodel\nbeta 16\nschedule\nupdate\ncheck\ncodec\n" \
    "micro: 6 of 64 tokens in sequences of 16, stretch 0, seed 9\nmicro\n"
#define PARTS PARTS_OF("model of a group")
#define DATA(step, seed) "no data\ndata of seed 9 at 0: 12 from 8 of 24\ndata\n"
#define AGREED(validation) \
    "agree\nmeet\nsame the data (by hash): 0000000000000abc\nthe data (by hash)\n" \
    "same the validation data (by hash): " validation "\nthe validation data (by hash)\n"
#define REDUCER_OF(more) "no reducer\nreducer of 4096 bytes" more "\nreducer\n"
#define MEASURE(where) "predicted ''\nenergy of /powercap\nmeasure in " where "\nmeasure\n"
#define ROWS "saver\nrow update\nrow codec\nrow loss_scale\nrow guard\nrow skipped\n"
#define BEGIN "row data\nagree\nteacher\nlearn 8 of a teacher\n"
#define WEIGHTS(step, lambda) "lambda " lambda " at " step "\nquantise\ntie\n"
#define OPEN "states in (nothing)\nstates\njoin\n"
#define RELEASE \
    "no hub\ndestroy reducer\ndestroy observer\nrelease telemetry\nclose energy\nno " \
    "validation\nno sample\n" \
    "release followers\nclose data\nrelease check\nclose states\nrelease saver\nrelease skipped\n" \
    "release codec\nrelease update\ndestroy schedule\nrelease micro\nrelease plan\ndestroy " \
    "model\n" \
    "release teacher\ndestroy group\nrelease setup\nrelease mesh\n"
#define PLAIN(begins) \
    MESH FITS PARTS TELEMETRY "observer\n" DATA("0", "9") AGREED("0000000000000000") \
        REDUCER_OF("") MEASURE("(nothing)") ROWS begins

static void makes(const bt_trainer_setup *s, const char *want) {
    if (create(s) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

static void heard_no(const char *lines) {
    if (strstr(bt_text_str(&heard), lines)) fail_msg("%s", bt_text_str(&heard));
}

static void leave(void) {
    bt_trainer_destroy(t);
    bt_text_clear(&heard);
}

/* ---- from nothing ---------------------------------------------------------------------------- */

static void a_trainer_of_one_rank(void **state) {
    (void)state;
    const bt_trainer_setup s = {.attempt = 4, .number = 6, .warmup_steps = 7};
    bt_request_box box = {0};
    bt_trainer_setup full = s;
    full.requests = &box;
    begin();
    cfg.batch_tokens = 384, cfg.predicted_ms = 12.5;
    cfg.max_bad_steps = 3, cfg.spike_limit = 6.5, cfg.spike_window = 20;
    makes(&full, PLAIN(BEGIN "weights of seed 9\n" WEIGHTS("0", "0.25") OPEN));
    assert_ptr_equal(bt_trainer_model(t), THE(bt_model, MODEL));
    assert_memory_equal(&t->cfg, &cfg, sizeof cfg);
    assert_memory_equal(&t->now, &cfg, sizeof cfg);
    assert_true(t->requests == &box && !t->isa && !t->memory_dir && !t->memory.wanted);
    assert_true(t->place == &t->own_place && t->own_place.at == BT_AT_START);
    assert_true(t->checked_step == -1 && t->suspect.step == -1);
    assert_true(t->saver.attempt == 4 && t->number == 6);
    assert_true(t->at.step == 0 && t->at.updates == 0 && t->at.tokens == 0 && t->at.lr_factor == 1);
    assert_true(t->lr.lr == 9 && t->lambda == 0.25);
    assert_true(!t->loss_scale.on && t->loss_scale.value == 1);
    assert_true(t->guard.patience == 3 && t->guard.spike_limit == 6.5 && t->guard.window == 20);
    assert_true(isnan(t->validation.nats) && isnan(t->validation.bits_per_byte));
    assert_true(t->telemetry.flop_token == 32 && t->telemetry.step_tokens == 384);
    assert_true(t->telemetry.warmup == 7 && t->telemetry.predicted_ms == 12.5);
    assert_true(t->micro.loader == t->loader && t->micro.reducer == t->reducer);
    assert_true(!t->micro.look_up && !t->from_memory && !t->ckpt_copy_too_large);
    assert_true(t->reducer && t->observer && t->schedule == &schedule && !t->base_elsewhere);
    bt_trainer_destroy(t);
    heard_is(RELEASE);
    bt_trainer_destroy(NULL);
    heard_is("");
}

static void settings_reach_the_parts(void **state) {
    (void)state;
    static const bt_isa_agreement isa = {.note = "x"};
    const bt_sink sink = {0};
    bt_place place = {0};
    const bt_trainer_setup s = {.sink = &sink,
                                .place = &place,
                                .isa = &isa,
                                .kept_dir = "/kept",
                                .measure_peak = true,
                                .resume_dir = ""};
    begin();
    world.size = world.dp_size = 3;
    world.rank = 1;
    world.dense = true;
    cfg.reproducible = cfg.overlap = true;
    cfg.zero = 2;
    cfg.val_frac = 0.5, cfg.eval_tokens = 70;
    cfg.precision = BT_PREC_FP16, cfg.loss_scale = 1024, cfg.loss_scale_every = 10;
    strcpy(cfg.predicted_parts, "step_ms=1");
    strcpy(cfg.out, "/out");
    makes(&s,
          "agree\nresolve\nmesh of 3 x 1\nmesh\ngroup of 64 x 48\ngroup\nagree\nfits "
          "now\nfits\n"
          "agree\nagree\nramp\nplan\nsetup\nmodel of a group\nmodel\nbeta "
          "16\nschedule\nupdate\n"
          "check\ncodec\nmicro: 6 of 64 tokens in sequences of 16, stretch 0, seed 9, "
          "reproducible\n"
          "micro\ntelemetry to a sink\ntelemetry\nobserver\n" DATA(
              "0",
              "9") "validation of "
                   "70: 12 from "
                   "8\nvalidation"
                   "\n" AGREED(
                       "def00"
                       "00000"
                       "00000"
                       "1") "sample\n" REDUCER_OF(", "
                                                  "overlapped, "
                                                  "others "
                                                  "discarded") "predicted 'step_ms=1'\nenergy of "
                                                               "/powercap\nmeasure in /kept with "
                                                               "the peak\nmeasure\n" ROWS BEGIN
                                                               "weights"
                                                               " of "
                                                               "seed "
                                                               "9"
                                                               "\n" WEIGHTS("0", "0."
                                                                                 "25") OPEN);
    assert_true(t->place == &place && place.at == BT_AT_START && t->isa == &isa);
    assert_true(t->now.linear == 1 && t->cfg.linear == 0);
    assert_true(t->loss_scale.on && t->loss_scale.value == 1024 && t->loss_scale.every == 10);
    assert_true(t->evaluator == THE(bt_evaluator, EVALUATOR) &&
                t->sample_text == THE(bt_sample_text, SAMPLE));
    bt_trainer_destroy(t);
    heard_has("close energy\nclose validation\ndestroy sample\nrelease followers\n");
    bt_text_clear(&heard);
    begin(); /* validation data of their own, sequences that grow, gradients that are rounded */
    strcpy(cfg.val_data, "/val");
    assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_OK);
    heard_has("validation of 0: 12 from 8\nvalidation\n");
    t->seq_ramp.n = 1;
    t->rounding.n_groups = 2;
    t->at.step = 30;
    bt_text_clear(&heard);
    assert_int_equal(bt_trainer_make_reducer(t, &err), BT_OK);
    heard_is("destroy reducer\nreducer of 4096 bytes, rounded\nreducer\n");
    t->micro.loader = NULL;
    assert_int_equal(bt_trainer_open_data(t, &err), BT_OK);
    heard_is("close data\ndata of seed 9 at 30: 12 from 8 of 24\ndata\n");
    assert_ptr_equal(t->micro.loader, t->loader);
    bt_trainer_release_compute(t);
    heard_is("destroy reducer\ndestroy observer\nrelease check\nrelease update\ndestroy "
             "schedule\ndestroy model\nrelease setup\n");
    assert_true(!t->reducer && !t->observer && !t->schedule && !t->model);
    leave();
}

/* sums over leaves need a group, of one rank or of several; OpenBLAS has its own order */
static void groups_of_ranks(void **state) {
    (void)state;
    static const struct {
        int parts, tp;
        const char *isa, *want; /* NULL: it is refused */
    } rows[] = {{1, 2, "generic", "mesh of 1 x 2\nmesh\ngroup of 64 x 48\ngroup\nagree\n"},
                {2, 1, "generic", "mesh of 2 x 1\nmesh\nsolo of 64 x 48\nsolo\nagree\n"},
                {2, 2, "generic", "mesh of 1 x 2\nmesh\ngroup of 64 x 48\ngroup\nagree\n"},
                {1, 2, "blas", "mesh of 1 x 2\nmesh\ngroup of 64 x 48\ngroup\nagree\n"},
                {2, 1, "blas", "mesh of 2 x 1\nmesh\nsolo of 64 x 48\nsolo\nagree\n"},
                {2, 2, "blas", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.size = 2;
        cfg.parts = rows[i].parts, cfg.tp = rows[i].tp;
        world.isa = rows[i].isa;
        const bt_code code = create(&(bt_trainer_setup){.attempt = 1});
        if (rows[i].want) {
            assert_int_equal(code, BT_OK);
            heard_has(rows[i].want);
            leave();
            continue;
        }
        assert_int_equal(code, BT_UNSUPPORTED);
        assert_string_equal(err.msg, "train.reproducible with --tp 2: what OpenBLAS rounds depends "
                                     "on how wide a rank's part is (use --isa generic)");
        heard_has("mesh\nagree: failed\n");
        bt_text_clear(&heard);
    }
}

/* ---- memory that is short -------------------------------------------------------------------- */

static void what_is_done_without_when_memory_is_short(void **state) {
    (void)state;
    static const char *const wants[] = {
        /* room for all; without states in memory; without the copy of a checkpoint too; none */
        "fits with states in memory and a copy\nagree\nagree\n",
        "fits with states in memory and a copy\nagree: failed\nfits and a copy\nagree\nagree\n",
        "fits with states in memory and a copy\nagree: failed\nfits and a copy\nagree: "
        "failed\nfits\nagree\nagree\n",
        "fits with states in memory and a copy\nagree: failed\nfits and a copy\nagree: "
        "failed\nfits\nagree: failed\n"};
    for (int i = 0; i < 4; i++) {
        begin();
        cfg.ckpt_memory = BT_CKPT_MEMORY_AUTO, cfg.ckpt_async = true;
        strcpy(cfg.out, "/out");
        world.room_for_memory = i < 1;
        world.room_for_copy = i < 2;
        world.room = i < 3;
        const bt_code code = create(&(bt_trainer_setup){.memory_dir = "/memory", .attempt = 1});
        assert_int_equal(code, i < 3 ? BT_OK : BT_NOMEM);
        heard_has(wants[i]);
        if (code != BT_OK) assert_string_equal(err.msg, "no room");
        if (code == BT_OK) {
            assert_int_equal(t->memory.wanted, i == 0);
            assert_string_equal(t->memory.why, i ? "no 100 % room for states" : "");
            /* a checkpoint records what was asked for */
            assert_int_equal(t->cfg.ckpt_memory, BT_CKPT_MEMORY_AUTO);
            assert_int_equal(t->cfg.ckpt_async, i < 2);
            assert_int_equal(t->ckpt_copy_too_large, i == 2);
            leave();
        }
        bt_text_clear(&heard);
    }
    begin(); /* a plan that cannot be is no matter of the copy */
    cfg.ckpt_async = true;
    world.fails = "fits";
    assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_ARG);
    heard_has("fits and a copy\nagree: failed\nfits and a copy\nagree: failed\n");
    bt_text_clear(&heard);
    begin(); /* there is no copy to do without */
    world.room = false;
    assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_NOMEM);
    heard_has("fits\nagree: failed\nfits\nagree: failed\n");
    bt_text_clear(&heard);
}

/* dense steps come first: both plans must fit, with the same done without */
static void the_plan_of_dense_steps_must_fit_too(void **state) {
    (void)state;
    begin();
    world.dense = true;
    cfg.ckpt_memory = BT_CKPT_MEMORY_AUTO, cfg.ckpt_async = true;
    strcpy(cfg.out, "/out");
    world.room_for_memory = world.room_for_copy = false;
    assert_int_equal(create(&(bt_trainer_setup){.memory_dir = "/memory", .attempt = 1}), BT_OK);
    heard_has("fits now with states in memory and a copy\nagree: failed\nfits now and a copy\n"
              "agree: failed\nfits now\nfits\nagree\n");
    leave();
}

static void states_in_memory_need_all_of_it(void **state) {
    (void)state;
    static const struct {
        const char *out, *dir;
        bool off;
    } rows[] = {{"", "/memory", false},
                {"/out", NULL, false},
                {"/out", "", false},
                {"/out", "/memory", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        cfg.ckpt_memory = rows[i].off ? BT_CKPT_MEMORY_OFF : BT_CKPT_MEMORY_AUTO;
        strcpy(cfg.out, rows[i].out);
        assert_int_equal(create(&(bt_trainer_setup){.memory_dir = rows[i].dir, .attempt = 1}),
                         BT_OK);
        heard_has("agree\nfits\nagree\n");
        assert_false(t->memory.wanted);
        leave();
    }
}

/* ---- a job that waits beside another --------------------------------------------------------- */

static const bt_sink later = {.ctx = things};

static bt_code turn(void *ctx, bt_trainer_start *start, bt_err *e) {
    assert_ptr_equal(ctx, things);
    assert_true(!start->resume_dir[0] && start->attempt == 1 && start->number == 2);
    *start = (bt_trainer_start){"/later", &later, 8, 9};
    return done("turn", e);
}

static void a_spare_job_takes_all_or_nothing_and_waits(void **state) {
    (void)state;
    const bt_trainer_setup s = {
        .wait = turn, .wait_ctx = things, .resume_dir = "", .attempt = 1, .number = 2};
    for (int rank = 0; rank < 2; rank++) {
        begin();
        world.rank = rank;
        world.size = 2;
        strcpy(cfg.out, "/out");
        cfg.ckpt_async = true;
        world.resumed = (bt_progress){.step = 3, .lr_factor = 1};
        assert_int_equal(create(&s), BT_OK);
        heard_has("fits and a copy\nagree\nagree\nramp\n");
        heard_has(rank ? "measure\nturn\nagree\nsaver\n" : "measure\nturn\nagree\nsaver\n");
        heard_has(rank ? "row data\nagree\n" : "row data\nfence /out for 8\nfence\nagree\n");
        heard_has("resume /later\nresume\n");
        assert_true(t->saver.attempt == 8 && t->number == 9);
        assert_ptr_equal(t->telemetry.sink.ctx, rank ? NULL : things);
        leave();
    }
    begin();
    cfg.ckpt_async = true;
    world.room_for_copy = false;
    assert_int_equal(create(&s), BT_NOMEM);
    heard_has("fits and a copy\nagree: failed\nno hub\n");
    bt_text_clear(&heard);
    begin();
    world.fails = "turn";
    assert_int_equal(create(&s), BT_IO);
    heard_has("turn\nagree: failed\nno hub\n");
    bt_text_clear(&heard);
}

/* ---- where weights come from ----------------------------------------------------------------- */

static void a_run_goes_on(void **state) {
    (void)state;
    begin();
    strcpy(cfg.out, "/out");
    strcpy(cfg.init_from, "/elsewhere"), strcpy(cfg.adapters, "/theirs");
    world.resumed = (bt_progress){.step = 30, .lr_factor = 1};
    world.stale = true;
    makes(&(bt_trainer_setup){.resume_dir = "/out/step-30", .memory_dir = "/memory", .attempt = 2},
          MESH FITS PARTS TELEMETRY "observer\n" DATA("0", "9") AGREED("0000000000000000")
              REDUCER_OF("") MEASURE("(nothing)") ROWS
          "row data\nfence /out for 2\nfence\nagree\nteacher\nlearn 8 of a teacher\n"
          "resume /out/step-30\nresume\ntrained beside ''\ntrained beside\nagree\n"
          "close data\ndata of seed 9 at 30: 12 from 8 of 24\ndata\nagree\nsuspect at 30\nsuspect\n"
          "lambda 30.25 at 30\nquantise\ndestroy reducer\nreducer of 4096 bytes\nreducer\ntie\n"
          "states in /memory\nstates\njoin\n");
    assert_false(t->from_memory);
    leave();
    static const bt_memory_id ids[] = {{.attempt = 1}, {.number = 1}, {.step = 4}};
    for (size_t i = 0; i < 3; i++) { /* of a state that is known by either number */
        begin();
        world.from = ids[i];
        world.resumed.step = 4;
        assert_int_equal(create(&(bt_trainer_setup){
                             .resume_dir = "/memory", .memory_dir = "/memory", .attempt = 2}),
                         BT_OK);
        heard_has("resume from memory /memory\nresume from memory\ntrained beside ''\n");
        heard_has(i < 2 ? "states in /memory go on\n" : "states in /memory\n");
        heard_no("resume /");
        assert_int_equal(t->from_memory, i < 2);
        leave();
    }
}

static void a_run_begins_with_other_weights(void **state) {
    (void)state;
    begin();
    strcpy(cfg.init_from, "/elsewhere");
    assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_OK);
    heard_has("weights of seed 9\nfrom /elsewhere\nfrom\nlambda");
    leave();
    for (int rank = 0; rank < 2; rank++) { /* adapters of a frozen base, which is told of once */
        begin();
        world.rank = rank, world.size = 2;
        world.base = true;
        world.told = "the base has no head\n";
        strcpy(cfg.init_from, "/elsewhere"), strcpy(cfg.adapters, "/theirs"),
            strcpy(cfg.base, "/b");
        assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_OK);
        heard_has("row skipped\nrow base\nrow data\n");
        char want[400];
        const char *told = rank ? "" : "log 2 the base has no head\n";
        snprintf(want, sizeof want,
                 "row data\nagree\nbase /b\nbase\nagree\n%ssame the base of the adapters (by "
                 "hash): 5150\nthe base of the adapters (by hash)\nteacher\n%slearn 8 of a "
                 "teacher\nweights of seed 9\nadapters /theirs beside 5150\nadapters\nslices\n"
                 "fill\nrelease 7 slices\nclose adapters\nagree\nlambda",
                 told, told);
        heard_has(want);
        leave();
    }
}

static void a_teacher_by_its_logits_is_looked_up(void **state) {
    (void)state;
    begin();
    world.teacher.logits = THE(bt_logit_file, LOGITS);
    assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_OK);
    assert_true(t->micro.look_up == bt_logit_file_batch &&
                t->micro.look_up_ctx == THE(bt_logit_file, LOGITS));
    leave();
}

/* B of an adapter begins at zero, A does not: where B is something, the base alone is no reference */
static void preferences_need_adapters_that_are_nothing(void **state) {
    (void)state;
    static const struct {
        bool pairs, fails;
        size_t at; /* of what is not zero */
        float value;
    } rows[] = {{true, false, 2, 1},  {true, false, 7, 1},   {true, true, 8, 1},
                {true, true, 11, -1}, {false, false, 11, 1}, {true, false, 11, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.base = true;
        strcpy(cfg.adapters, "/theirs");
        cfg.form = rows[i].pairs ? BT_FORMED_PREFERENCE : BT_FORMED_TEXT;
        world.tensors[0] = (bt_tensor){.count = 4}; /* no adapter */
        world.tensors[1] = (bt_tensor){.adapter = true, .spread = 0.5f, .offset = 4, .count = 4};
        world.tensors[2] = (bt_tensor){.adapter = true, .offset = 8, .count = 4};
        world.weights[rows[i].at] = rows[i].value;
        assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), rows[i].fails ? BT_ARG : BT_OK);
        if (rows[i].fails)
            assert_string_equal(
                err.msg, "tune.adapters with data.form=preference: '/theirs' are trained, and the "
                         "reference would be their base without them (merge them first: bitrain "
                         "convert RUN --merge dense)");
        if (!rows[i].fails) leave();
        bt_text_clear(&heard);
    }
}

/* ---- a base that ranks of a host share ------------------------------------------------------- */

static void ranks_of_a_host_share_a_frozen_base(void **state) {
    (void)state;
    static const struct {
        int mode, dp, here, rank;
        size_t bytes;
        bool refused;
        const char *want;
        bool elsewhere;
    } rows[] = {
        {BT_TUNE_FULL, 2, 2, 0, 99, false, FITS "agree\nramp\n", false},
        {BT_TUNE_LORA, 1, 1, 0, 99, false, FITS "agree\nramp\n", false},
        {BT_TUNE_LORA, 2, 2, 0, 99, false,
         "split by 41 as 1\nsplit\nsetup for the base\nagree here\nshare 99 of bitrain-base\n"
         "share\nrelease setup for the base\nfree\nagree\nramp\n",
         false},
        {BT_TUNE_LORA, 2, 2, 1, 99, false, "share\nrelease setup for the base\nfree\nagree\n",
         true},
        {BT_TUNE_LORA, 2, 2, 1, 99, true, "share\nrelease setup for the base\nfree\nagree\n",
         false},
        {BT_TUNE_LORA, 2, 1, 0, 99, false, "agree here\nrelease setup for the base\nfree\nagree\n",
         false},
        {BT_TUNE_LORA, 2, 2, 0, 0, false, "agree here\nrelease setup for the base\nfree\nagree\n",
         false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        cfg.tune = rows[i].mode;
        world.rank = 1;
        world.size = 2;
        world.dp_size = rows[i].dp, world.here_size = rows[i].here;
        world.here_rank = rows[i].rank;
        world.base_bytes = rows[i].bytes, world.shared = !rows[i].refused;
        assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_OK);
        heard_has(rows[i].want);
        assert_int_equal(t->base_elsewhere, rows[i].elsewhere);
        char want[80];
        snprintf(want, sizeof want, "model of a group%s%s\nmodel\n",
                 t->base_memory.at ? ", its base shared" : "",
                 rows[i].elsewhere ? " by another rank" : "");
        heard_has(want);
        leave();
    }
}

/* ---- what a checkpoint keeps of fp16 --------------------------------------------------------- */

static void a_loss_scale_survives_a_restart(void **state) {
    (void)state;
    static const struct {
        bool on;
        double scale;
        int64_t good;
        bool taken;
    } rows[] = {{true, 64, 5, true},   {true, 64, 0, true}, {true, 64, -1, false},
                {true, 48, 5, false},  {true, 0, 5, false}, {false, 64, 5, false},
                {true, 0.5, 5, false}, {true, 1, 0, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        cfg.precision = rows[i].on ? BT_PREC_FP16 : BT_PREC_BF16;
        cfg.loss_scale = 1024, cfg.loss_scale_every = 10;
        assert_int_equal(create(&(bt_trainer_setup){.attempt = 1}), BT_OK);
        assert_string_equal(world.loss_scale.name, "loss_scale");
        bt_text text;
        bt_json j;
        bt_text_init(&text);
        bt_json_begin(&j, &text);
        bt_json_object(&j, NULL);
        t->loss_scale.good = 3;
        world.loss_scale.save(world.loss_scale.ctx, &j);
        bt_json_end(&j, '}');
        assert_string_equal(bt_text_str(&text),
                            rows[i].on ? "{\"value\":1024,\"good\":3}" : "{\"value\":1}");
        bt_text_release(&text);
        world.scale = rows[i].scale, world.good = rows[i].good;
        world.loss_scale.load(world.loss_scale.ctx, NULL);
        assert_true(t->loss_scale.value == (rows[i].taken ? rows[i].scale : rows[i].on ? 1024 : 1));
        assert_int_equal(t->loss_scale.good, rows[i].taken ? rows[i].good : 3);
        leave();
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_of_one_rank),
        cmocka_unit_test(settings_reach_the_parts),
        cmocka_unit_test(groups_of_ranks),
        cmocka_unit_test(what_is_done_without_when_memory_is_short),
        cmocka_unit_test(the_plan_of_dense_steps_must_fit_too),
        cmocka_unit_test(states_in_memory_need_all_of_it),
        cmocka_unit_test(a_spare_job_takes_all_or_nothing_and_waits),
        cmocka_unit_test(a_run_goes_on),
        cmocka_unit_test(a_run_begins_with_other_weights),
        cmocka_unit_test(a_teacher_by_its_logits_is_looked_up),
        cmocka_unit_test(preferences_need_adapters_that_are_nothing),
        cmocka_unit_test(ranks_of_a_host_share_a_frozen_base),
        cmocka_unit_test(a_loss_scale_survives_a_restart),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
