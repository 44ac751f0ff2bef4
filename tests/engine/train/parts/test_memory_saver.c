/* test_memory_saver.c - states in shared memory of a trainer made by hand: who keeps what, what is told where there is
 * no room, how often one is written, when it becomes valid, and what is left at the end. All that the saver asks of
 * other ranks, of the memory and of the clock is defined here. */
#include <math.h>

#include "engine/base/clock.h"
#include "tests/engine/train/said.h"

#include "engine/train/parts/memory_states/memory_saver.h"
#include "engine/train/trainer_impl.h"

static bt_trainer t;
static bt_memory_saver saver;
static bt_err err;
static float held[64];
static char state_object, comm_object;

/* ---- in the place of others ------------------------------------------------------------------------ */

static struct {
    int rank, local_rank;
    bool here, all_here; /* rank 0's host: this rank; all of them */
    int64_t others_lack; /* bytes */
    const char *fails;
    bt_code code; /* with which it does */
    int64_t now_ns, takes_ns;
    bt_link links[BT_AXIS_COUNT];
} world;

static bt_code done(const char *what, bt_err *e) {
    return world.fails && strcmp(world.fails, what) == 0
               ? bt_fail(e, world.code, "%s fails by 50 %%", what)
               : BT_OK;
}

int64_t bt_now_ns(void) { return world.now_ns; }
int bt_comm_rank(const bt_comm *c) {
    (void)c;
    return world.rank;
}
int bt_comm_local_rank(void) { return world.local_rank; }
bool bt_memory_is_here(int rank) { return rank == world.rank && world.here; }
bool bt_memory_all_here(const bt_comm *c) { return c == t.mesh.world && world.all_here; }
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, t.mesh.world);
    said("agree %d", (int)mine);
    return mine == BT_OK ? done("agree", e) : mine;
}
bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *e) {
    assert_true(c == t.mesh.world && n == 1 && op == BT_SUM);
    said("lacks %d", (int)*x);
    *x += world.others_lack;
    return done("all_reduce", e);
}
bt_code bt_comm_split(bt_comm **out, bt_comm *parent, int color, int key, bt_err *e) {
    assert_true(parent == t.mesh.world && key == world.rank);
    said("split %d", color);
    *out = (bt_comm *)(void *)&comm_object;
    return done("split", e);
}
void bt_comm_free(bt_comm *c) {
    if (c) said("free");
}
size_t bt_ckpt_type_bytes(bt_ckpt_type type) { return type == BT_CKPT_F32 ? 4 : 1; }
void bt_ckpt_meta_release(bt_ckpt_meta *m) {
    assert_ptr_equal(m, &saver.meta);
    bt_text_release(&m->state);
}
const bt_link *bt_observer_link(const bt_observer *o, bt_axis a) {
    assert_true(o == t.observer && a < BT_AXIS_COUNT);
    return &world.links[a];
}
bt_code bt_memory_dir_make(const char *dir, bt_err *e) {
    said("make %s", dir);
    return done("make", e);
}
void bt_memory_dir_remove(const char *dir) { said("remove %s", dir); }
void bt_memory_state_drop(const char *dir) { said("drop %s", dir); }
bt_code bt_memory_state_open(bt_memory_state **out, const bt_memory_cfg *cfg, bt_err *e) {
    uint64_t n = 0;
    for (size_t i = 0; i < cfg->n; i++) n += cfg->slices[i].count;
    said("open %s: %zu slices of %d, attempt %d%s%s%s", cfg->dir, cfg->n, (int)n, cfg->attempt,
         cfg->world == t.mesh.world ? ", of all" : ", of the host", cfg->spread ? ", spread" : "",
         cfg->begun_from ? ", begun" : "");
    *out = NULL;
    BT_TRY(done("open", e));
    *out = (bt_memory_state *)(void *)&state_object;
    return BT_OK;
}
void bt_memory_state_close(bt_memory_state *m) {
    if (m) said("close");
}
bt_code bt_memory_state_write(bt_memory_state *m, const bt_ckpt_meta *meta, int64_t disk_ns,
                              bt_err *e) {
    assert_true(m && meta == &saver.meta);
    said("write %d %s %d", (int)meta->step, bt_text_str(&meta->state), (int)disk_ns);
    world.now_ns += world.takes_ns;
    return done("write", e);
}
void bt_memory_state_publish(bt_memory_state *m) {
    assert_non_null(m);
    said("publish");
}
void bt_saver_identify(const bt_saver *s, bt_ckpt_meta *m) {
    assert_ptr_equal(s, &t.saver);
    m->step = t.at.step;
}
bt_code bt_telemetry_poll(bt_telemetry *of, bt_err *e) {
    assert_ptr_equal(of, &t.telemetry);
    said("poll");
    return done("poll", e);
}

/* ---- a trainer ------------------------------------------------------------------------------------- */

/* this rank saves 10 floats, of which its host keeps so many */
static uint64_t of_host;

static void slices_of(void *ctx, bt_state_use use, bt_slices *out) {
    assert_true(ctx == &t && bt_state_saves(use));
    bt_ckpt_slice s = {.tensor = "w", .state = "weight", .tensor_elems = 64, .data = held};
    s.count = use == BT_STATE_SAVE ? 10 : of_host;
    if (s.count > 0) bt_slices_add(out, &s);
    s.state = "bytes", s.type = BT_CKPT_U8, s.count = 3;
    if (use == BT_STATE_SAVE) bt_slices_add(out, &s);
}

static void save_values(void *ctx, bt_json *j) {
    bt_json_int(j, "is", ((bt_trainer *)ctx)->at.step);
}

static void begin(void) {
    memset(&t, 0, sizeof t);
    memset(&saver, 0, sizeof saver);
    memset(&world, 0, sizeof world);
    world.here = world.all_here = true;
    world.now_ns = 1000;
    of_host = 10;
    err = (bt_err)BT_ERR_INIT;
    t.attempt.memory_states = true;
    t.attempt.memory_dir = "/shared";
    t.saver.attempt = 4;
    t.saver.saved_ns = 77;
    t.at.step = 9;
    bt_state_add(
        &t.saver.state,
        &(bt_state_row){.name = "row", .ctx = &t, .slices = slices_of, .save = save_values});
    bt_text_clear(&heard);
}

static void end(void) {
    char want[32];
    snprintf(want, sizeof want, "%s%s", saver.to ? "close\n" : "", saver.here ? "free\n" : "");
    bt_text_clear(&heard);
    bt_memory_saver_close(&saver);
    assert_true(!saver.to && !saver.here);
    heard_is(want);
}

static bt_code open_it(void) { return bt_memory_saver_open(&saver, &t, NULL, &err); }

/* ---- open ------------------------------------------------------------------------------------------ */

static void who_keeps_what(void **state) {
    (void)state;
    static const struct {
        bool here, all_here;
        int of_host, others_lack;
        const char *want;
        bool to, apart, spread;
    } rows[] = {
        /* one host keeps everything */
        {true, true, 10, 0, "agree 0\nopen /shared: 1 slices of 10, attempt 4, of all\n", true,
         false, false},
        /* rank 0's host holds everything: it alone keeps it */
        {true, false, 10, -3,
         "agree 0\nlacks 3\nsplit 1\nagree 0\nopen /shared: 1 slices of 10, "
         "attempt 4, of the host\n",
         true, true, false},
        {false, false, 0, -43, "agree 0\nlacks 43\nsplit 0\nagree 0\n", false, true, false},
        /* something is lacking: every rank keeps its part */
        {true, false, 10, 5,
         "agree 0\nlacks 3\nagree 0\nopen /shared: 2 slices of 13, attempt 4, of "
         "all, spread\n",
         true, false, true},
        {false, false, 0, 0,
         "agree 0\nlacks 43\nmake /shared\nagree 0\nopen /shared: 2 slices of 13, "
         "attempt 4, of all, spread\n",
         true, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.here = rows[i].here, world.all_here = rows[i].all_here;
        world.rank = rows[i].here ? 0 : 2;
        world.others_lack = rows[i].others_lack;
        of_host = (uint64_t)rows[i].of_host;
        strcpy(t.attempt.no_memory_states, "as before");
        assert_int_equal(open_it(), BT_OK);
        heard_is(rows[i].want);
        assert_true((saver.to != NULL) == rows[i].to && (saver.here != NULL) == rows[i].apart &&
                    saver.spread == rows[i].spread && saver.every == 1);
        assert_string_equal(t.attempt.no_memory_states, "as before");
        end();
    }
    begin(); /* nobody asked */
    t.attempt.memory_states = false;
    assert_int_equal(open_it(), BT_OK);
    heard_is("");
    assert_true(!saver.to && saver.every == 1);
    begin(); /* after a state in memory */
    assert_int_equal(bt_memory_saver_open(&saver, &t, &(bt_memory_id){1, 2, 3, 4}, &err), BT_OK);
    heard_is("agree 0\nopen /shared: 1 slices of 10, attempt 4, of all, begun\n");
    bt_memory_saver_close(&saver);
    heard_is("close\n");
}

/* no room is told and ends nothing; what fails of MPI does */
static void what_cannot_be_opened(void **state) {
    (void)state;
    static const struct {
        const char *fails;
        bt_code ends;
        const char *why;
    } rows[] = {{"open", BT_OK, "open fails by 50 %"},
                {"make", BT_OK, "make fails by 50 %"},
                {"all_reduce", BT_IO, ""},
                {"agree", BT_IO, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.all_here = world.here = i == 0;
        world.fails = rows[i].fails, world.code = BT_IO;
        assert_int_equal(open_it(), rows[i].ends);
        assert_string_equal(t.attempt.no_memory_states, rows[i].why);
        assert_null(saver.to);
        end();
    }
}

/* of a spread state the first copy is foretold, by the slowest link that was measured */
static void the_first_copy_is_foretold(void **state) {
    (void)state;
    static const struct {
        double rates[3];
        int64_t copies;
        double want;
    } rows[] = {{{0, 0, 0}, 0, 0},     {{0, 86, 0}, 0, 0.5},    {{430, 43, 86}, 0, 1},
                {{43, 430, 86}, 0, 1}, {{43, 43, 43}, 1, 0.25}, {{-1, 43, NAN}, 0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.all_here = world.here = false;
        for (int k = 0; k < 3; k++) world.links[k].bytes_per_s = rows[i].rates[k];
        saver.copies = rows[i].copies;
        saver.copy_s = 0.25;
        assert_int_equal(open_it(), BT_OK);
        assert_true(saver.spread && saver.copy_s == rows[i].want);
        end();
    }
}

/* ---- how often ------------------------------------------------------------------------------------- */

static void steps_between_two_states(void **state) {
    (void)state;
    static const struct {
        bool to;
        double copy_s, step_s;
        int64_t copies, want;
    } rows[] = {{false, 1, 1, 5, 1},
                {true, 0, 1, 5, 1},
                {true, 0, 0, 0, 1},
                {true, 1, 0, 5, 1},        /* no step is known: one was written */
                {true, 1, 0, 0, 1000},     /* or none yet */
                {true, 0.015, 0.25, 5, 3}, /* a fiftieth of the time */
                {true, 0.0151, 0.25, 5, 4},
                {true, 0.0151, 0.499, 5, 2},
                {true, 0.0051, 0.5, 5, 3}, /* of slow steps a two hundredth */
                {true, 0.0001, 0.25, 5, 1},
                {true, 100, 0.25, 5, 1000},
                {true, INFINITY, 0.25, 5, 1000},
                {true, 1, INFINITY, 5, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_memory_saver m = {.to = rows[i].to ? (bt_memory_state *)(void *)&state_object
                                                    : NULL,
                                   .copy_s = rows[i].copy_s,
                                   .copies = rows[i].copies};
        const int64_t got = bt_memory_saver_wish(&m, rows[i].step_s);
        if (got != rows[i].want) fail_msg("row %zu: %d", i, (int)got);
    }
}

/* ---- write ----------------------------------------------------------------------------------------- */

/* its time is smoothed: what is shorter counts at once, what is longer by a sixteenth */
static void a_state_is_written_and_its_time_learned(void **state) {
    (void)state;
    static const struct {
        int64_t takes_ns;
        double copy_s;
    } rows[] = {{800000000, 0.8}, {480000000, 0.48}, {800000000, 0.5}, {500000000, 0.5}};
    begin();
    assert_int_equal(open_it(), BT_OK);
    bt_text_clear(&heard);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        world.takes_ns = rows[i].takes_ns;
        saver.met = true;
        assert_int_equal(bt_memory_saver_write(&saver, &t, &err), BT_OK);
        heard_is("write 9 {\"row\":{\"is\":9}} 77\npoll\npublish\n");
        assert_true(fabs(saver.copy_s - rows[i].copy_s) < 1e-12);
        assert_int_equal(saver.copies, i + 1);
        assert_false(saver.met);
    }
    world.fails = "poll", world.code = BT_MPI;
    assert_int_equal(bt_memory_saver_write(&saver, &t, &err), BT_MPI);
    end();
}

static void a_state_that_cannot_be_written_is_the_last(void **state) {
    (void)state;
    begin();
    assert_int_equal(open_it(), BT_OK);
    bt_text_clear(&heard);
    world.fails = "write", world.code = BT_UNSUPPORTED;
    assert_int_equal(bt_memory_saver_write(&saver, &t, &err), BT_OK);
    heard_is(
        "write 9 {\"row\":{\"is\":9}} 77\n"
        "checkpoint_failed 8 no state in memory after step 9 and later, training and checkpoints "
        "go on: write fails by 50 %\n"
        "close\n");
    assert_string_equal(t.attempt.no_memory_states, "write fails by 50 %");
    assert_true(!saver.to && saver.copies == 0);
    end();
    begin();
    assert_int_equal(open_it(), BT_OK);
    world.fails = "write", world.code = BT_MPI; /* a rank is gone */
    assert_int_equal(bt_memory_saver_write(&saver, &t, &err), BT_MPI);
    assert_string_equal(err.msg, "write fails by 50 %");
    assert_non_null(saver.to);
    end();
}

/* rank 0's part speaks for all: it waits for the record, and where it is spread for the others */
static void when_a_state_becomes_valid(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        begin();
        assert_int_equal(open_it(), BT_OK);
        bt_text_clear(&heard);
        t.telemetry.pending = i & 1;
        saver.spread = i & 2;
        saver.met = i & 4;
        world.rank = i & 8 ? 1 : 0;
        const bool waits = (i & 1) || ((i & 2) && !(i & 4));
        bt_memory_saver_settle(&saver, &t);
        heard_is(world.rank == 0 && waits ? "" : "publish\n");
        bt_memory_saver_met(&saver, &t);
        assert_true(saver.met);
        heard_is(saver.spread && (world.rank || !t.telemetry.pending) ? "publish\n" : "");
        end();
        bt_memory_saver_settle(&saver, &t); /* there is none */
        heard_is("");
    }
}

static void what_is_left_at_the_end(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        begin();
        if (i & 1) assert_int_equal(open_it(), BT_OK);
        bt_text_clear(&heard);
        saver.spread = i & 2;
        world.local_rank = i & 4 ? 1 : 0;
        bt_memory_saver_forget(&saver, &t);
        heard_is(i == 3 ? "drop /shared\nremove /shared\n" : "");
        end();
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_keeps_what),
        cmocka_unit_test(what_cannot_be_opened),
        cmocka_unit_test(the_first_copy_is_foretold),
        cmocka_unit_test(steps_between_two_states),
        cmocka_unit_test(a_state_is_written_and_its_time_learned),
        cmocka_unit_test(a_state_that_cannot_be_written_is_the_last),
        cmocka_unit_test(when_a_state_becomes_valid),
        cmocka_unit_test(what_is_left_at_the_end),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
