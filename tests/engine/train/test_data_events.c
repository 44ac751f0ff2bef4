/* test_data_events.c - the events about documents and sources, and new mixture weights during a run: refusals, and the
 * weights in checkpoints. The test replaces the loader. */
#include <math.h>
#include <stdlib.h>

#include "engine/data/shards/mixture.h"
#include "engine/train/data/run_data.h"
#include "tests/engine/train/said.h"

#include "engine/train/trainer_impl.h"

extern const bt_part bt_part_mixture;

static bt_trainer t;
static bt_err err;
static char loader; /* placeholder; its content is never read */
static void *part;
static struct {
    const bt_row_facts *facts;
    int64_t sequences;
    size_t sources;
    bt_loader_share shares[3];
    const char *notes;
    int rank;
    /* request that rank 0 receives; text that rank 0 broadcasts, NULL: the request itself */
    const char *asked, *told;
    const char *fails;
    char opened[128]; /* mixture with which the data were opened again */
    bt_state_row row;
    const char *before, *now; /* values in the checkpoint */
} world;

static bt_code finish_world(const char *what, bt_err *e) {
    return world.fails && strcmp(world.fails, what) == 0 ? bt_fail(e, BT_IO, "%s fails", what)
                                                         : BT_OK;
}
const bt_row_facts *bt_loader_row_facts(const bt_loader *l) { return l ? world.facts : NULL; }
const char *bt_loader_notes(const bt_loader *l) { return l && world.notes ? world.notes : ""; }
int64_t bt_loader_sequences(const bt_loader *l) { return l ? world.sequences : -1; }
size_t bt_loader_sources(const bt_loader *l) { return l ? world.sources : 0; }
bt_loader_share bt_loader_source(const bt_loader *l, size_t k, int64_t step) {
    assert_true(l && k < 3 && step == 40);
    return world.shares[k];
}
bool bt_loader_mixture_changes_at(const bt_loader *l, int64_t step) {
    return l && step < 0; /* not called */
}
void bt_parts_new_level(bt_trainer *x) { (void)x; /* not called */ }
double bt_loader_bytes_per_token(const bt_loader *l) { return l ? 3.5 : 0; }
int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, t.mesh.world);
    return world.rank;
}
char *bt_control_take_mixture(bt_request_box *box) {
    assert_ptr_equal(box, t.requests);
    return world.asked ? strdup(world.asked) : NULL;
}
bt_code bt_broadcast(bt_comm *c, void *x, size_t bytes, int root, bt_err *e) {
    assert_true(c == t.mesh.world && bytes == 128 && root == 0);
    if (world.told) snprintf(x, bytes, "%s", world.told);
    return finish_world("tell", e);
}
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    (void)e;
    assert_ptr_equal(c, t.mesh.world);
    return mine;
}
bt_code bt_trainer_open_data(bt_trainer *x, bt_err *e) {
    snprintf(world.opened, sizeof world.opened, "%s", x->cfg.data.mixture);
    return finish_world("open", e);
}
void bt_state_add(bt_state *s, const bt_state_row *row) {
    assert_ptr_equal(s, &t.saver.state);
    world.row = *row;
}
const char *bt_state_text(const bt_state_values *v, const char *key) {
    assert_null(v);
    return strcmp(key, "mixture_before") == 0 ? world.before
           : strcmp(key, "mixture") == 0      ? world.now
                                              : "?";
}

static void begin_world(void) {
    free(part);
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    t.loader = (bt_loader *)(void *)&loader;
    t.at.step = 40;
    t.micro_plan.sequences = 8;
    t.cfg.model.seq_len = 64;
    strcpy(t.cfg.data.mixture, "3:1");
    world.sources = 2;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
    assert_int_equal(bt_part_mixture.create(&t, NULL, &part, &err), BT_OK);
}

static bt_code request_mixture_change(bt_err *e) {
    const bt_control c = {.verbs = BT_REQ_MIXTURE};
    return bt_part_mixture.act(part, &t, &c, false, e);
}

/* Compares the values that the part saves in a checkpoint. */
static void check_saved_values(const char *want) {
    bt_text text;
    bt_json j;
    bt_part_mixture.add_state(part, &t, &t.saver.state);
    bt_text_init(&text);
    bt_json_begin(&j, &text);
    bt_json_object(&j, NULL);
    world.row.save(world.row.ctx, &j);
    bt_json_end(&j, '}');
    assert_string_equal(bt_text_str(&text), want);
    bt_text_release(&text);
}

static void events_about_documents(void **state) {
    (void)state;
    static const struct {
        bt_row_facts f;
        int packing, form;
        const char *want;
    } rows[] = {
        {{.documents = 30, .tokens = 480, .counted = 120},
         BT_PACKED_DOCUMENTS,
         BT_FORMED_TEXT,
         "data 39 30 documents in 10 sequences of 64 tokens, 75.0 % full (25.0 % with one a "
         "sequence: 3.00 times the steps); 120 tokens are learned, 25.0 % of all\n"},
        {{.documents = 10, .tokens = 480, .counted = 480},
         BT_PACKED_DOCUMENTS,
         BT_FORMED_TEXT,
         "data 39 10 documents in 10 sequences of 64 tokens, 75.0 % full; 480 tokens are learned, "
         "100.0 % of all\n"},
        {{.documents = 30, .tokens = 480, .counted = 120},
         BT_PACKED_PAD,
         BT_FORMED_TEXT,
         "data 39 30 documents in 10 sequences of 64 tokens, 75.0 % full; 120 tokens are learned, "
         "25.0 % of all\n"},
        {{.documents = 30, .tokens = 480, .counted = 120},
         BT_PACKED_DOCUMENTS,
         BT_FORMED_PREFERENCE,
         "data 39 30 documents in 10 sequences of 64 tokens, 75.0 % full; 120 tokens are learned, "
         "25.0 % of all\n"},
        {{.documents = 10, .tokens = 640, .counted = 64, .skipped = 1, .truncated = 2, .empty = 1},
         BT_PACKED_PAD,
         BT_FORMED_TEXT,
         "data 39 10 documents in 10 sequences of 64 tokens, 100.0 % full; 64 tokens are learned, "
         "10.0 % of all\nwarning 39 1 conversation longer than 64 tokens left out\n"
         "warning 39 2 conversations longer than 64 tokens cut off: their ends are not learned\n"
         "warning 39 1 document left out: nothing of them is learned\n"},
        {{.documents = 10, .tokens = 640, .counted = 64, .skipped = 2, .truncated = 1, .empty = 5},
         BT_PACKED_PAD,
         BT_FORMED_TEXT,
         "data 39 10 documents in 10 sequences of 64 tokens, 100.0 % full; 64 tokens are learned, "
         "10.0 % of all\nwarning 39 2 conversations longer than 64 tokens left out\n"
         "warning 39 1 conversation longer than 64 tokens cut off: their ends are not learned\n"
         "warning 39 5 documents left out: nothing of them is learned\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin_world();
        world.facts = &rows[i].f;
        world.sequences = 10;
        t.cfg.data.packing = rows[i].packing, t.cfg.data.form = rows[i].form;
        bt_run_data_describe(&t.telemetry, t.loader, &t.cfg, 39);
        heard_is(rows[i].want);
    }
    begin_world(); /* A stream has no documents. */
    bt_run_data_describe(&t.telemetry, t.loader, &t.cfg, 39);
    heard_is("");
}

static void events_about_sources(void **state) {
    (void)state;
    begin_world();
    world.sources = 3;
    world.shares[0] = (bt_loader_share){"a", 60, 40};
    world.shares[1] = (bt_loader_share){"b", 30, 120};
    world.shares[2] = (bt_loader_share){"c", 10, 10};
    bt_run_data_shares(&t.telemetry, t.loader, 40);
    heard_is("data 39 source 1 of 3, 'a': 60 sequences so far, 60.0 % of all, 1.50 of its epochs\n"
             "data 39 source 2 of 3, 'b': 30 sequences so far, 30.0 % of all, 0.25 of its epochs\n"
             "data 39 source 3 of 3, 'c': 10 sequences so far, 10.0 % of all, 1.00 of its "
             "epochs\n");
    world.sources = 1;
    world.shares[0].sequences = 0;
    bt_run_data_shares(&t.telemetry, t.loader, 40);
    heard_is("data 39 source 1 of 1, 'a': 0 sequences so far, 0.0 % of all, 0.00 of its epochs\n");
    world.sources = 0;
    bt_run_data_shares(&t.telemetry, t.loader, 40);
    heard_is("");
}

static void weights_change_from_the_next_step_on(void **state) {
    (void)state;
    begin_world();
    world.asked = "1:1";
    assert_int_equal(request_mixture_change(&err), BT_OK);
    heard_is("control 39 sources weigh 1:1 from now on (data.mixture=3:1,40=1:1)\n");
    assert_string_equal(world.opened, "3:1,40=1:1");
    assert_string_equal(t.cfg.data.mixture, "3:1,40=1:1");
    assert_string_equal(t.now.data.mixture, "3:1,40=1:1");
    world.asked = "5:1"; /* A second request before that step replaces the first one. */
    assert_int_equal(request_mixture_change(&err), BT_OK);
    assert_string_equal(t.cfg.data.mixture, "3:1,40=5:1");
    t.at.step = 50;
    world.rank = 1; /* This rank receives the request of rank 0. */
    world.told = "1:9";
    assert_int_equal(request_mixture_change(&err), BT_OK);
    assert_string_equal(t.cfg.data.mixture, "3:1,40=5:1,50=1:9");
    check_saved_values("{\"bytes_per_token\":3.5,\"mixture_before\":\"3:1\","
                       "\"mixture\":\"3:1,40=5:1,50=1:9\"}");
    bt_text_clear(&heard);
}

static void invalid_mixtures_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t sources;
        bool island;
        const char *asked, *says; /* NULL: the mixture is accepted */
    } rows[] = {{0, false, "1:1",
                 "the run has no data.mixture: its sources are read one after the other"},
                {2, true, "1:1", "a hub deals out the data of its islands"},
                {2, false, "1:1,50=3:1", "'1:1,50=3:1' is not a list of weights (example: 3:1)"},
                {2, false, "50=3:1", "'50=3:1' is not a list of weights (example: 3:1)"},
                {2, false, "1:1:1", NULL},
                {2, false, NULL, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[600];
        begin_world();
        world.sources = rows[i].sources;
        world.asked = rows[i].asked;
        if (rows[i].island) t.step.data_owner = "a hub deals out the data of its islands";
        assert_int_equal(request_mixture_change(&err), BT_OK);
        snprintf(want, sizeof want, "refused 39 the mixture stays: %s\n", err.msg);
        heard_is(want);
        if (rows[i].says) assert_string_equal(err.msg, rows[i].says);
        assert_true(err.msg[0] != 0);
        assert_string_equal(t.cfg.data.mixture, "3:1");
        check_saved_values("{\"bytes_per_token\":3.5}");
    }
    begin_world(); /* The caller passes no text. */
    world.asked = "x";
    assert_int_equal(request_mixture_change(NULL), BT_OK);
    heard_is("refused 39 the mixture stays: \n");
    for (size_t more = 0; more < 2; more++) { /* the setting holds this number of stages */
        begin_world();
        const size_t n = sizeof t.cfg.data.mixture - sizeof ",40=1:1" + more;
        memset(t.cfg.data.mixture, '0', n);
        memcpy(t.cfg.data.mixture + n - 2, ":1", 3);
        world.asked = "1:1";
        assert_int_equal(request_mixture_change(&err), BT_OK);
        assert_int_equal(strcmp(err.msg, "data.mixture has no room for more stages") == 0, more);
        bt_text_clear(&heard);
    }
    static const char *const parts[] = {"tell", "open"};
    for (int i = 0; i < 2; i++) {
        begin_world();
        world.asked = "1:1";
        world.fails = parts[i];
        assert_int_equal(request_mixture_change(&err), BT_IO);
        heard_is("");
    }
}

static void a_checkpoint_keeps_the_newest_mixture(void **state) {
    (void)state;
    static const struct {
        const char *is, *before, *now, *becomes, *kept;
    } rows[] = {/* resumes with the weights of the start */
                {"3:1", "3:1", "3:1,40=1:1", "3:1,40=1:1", "3:1"},
                /* resumes with the newest weights */
                {"3:1,40=1:1", "3:1", "3:1,40=1:1", "3:1,40=1:1", "3:1"},
                {"9:1", "3:1", "3:1,40=1:1", "9:1", ""}, /* resumes with other weights */
                {"3:1", NULL, "3:1,40=1:1", "3:1", ""},
                {"3:1", "3:1", NULL, "3:1", ""}};
    begin_world();
    check_saved_values("{\"bytes_per_token\":3.5}");
    assert_string_equal(world.row.name, "data");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin_world();
        bt_part_mixture.add_state(part, &t, &t.saver.state);
        strcpy(t.cfg.data.mixture, rows[i].is), strcpy(t.now.data.mixture, rows[i].is);
        world.before = rows[i].before, world.now = rows[i].now;
        world.row.load(world.row.ctx, NULL);
        assert_string_equal(t.cfg.data.mixture, rows[i].becomes);
        assert_string_equal(t.now.data.mixture, rows[i].becomes);
        char want[200] = "{\"bytes_per_token\":3.5}";
        if (rows[i].kept[0])
            snprintf(want, sizeof want,
                     "{\"bytes_per_token\":3.5,\"mixture_before\":\"%s\",\"mixture\":\"%s\"}",
                     rows[i].kept, rows[i].becomes);
        check_saved_values(want);
    }
    /* A mixture that is longer than the setting is ignored. */
    for (size_t more = 0; more < 2; more++) {
        char longest[sizeof t.cfg.data.mixture + 1];
        memset(longest, '1', sizeof longest);
        longest[sizeof t.cfg.data.mixture - 1 + more] = '\0';
        begin_world();
        bt_part_mixture.add_state(part, &t, &t.saver.state);
        world.before = "3:1", world.now = longest;
        world.row.load(world.row.ctx, NULL);
        assert_string_equal(t.cfg.data.mixture, more ? "3:1" : longest);
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_about_documents),
        cmocka_unit_test(events_about_sources),
        cmocka_unit_test(weights_change_from_the_next_step_on),
        cmocka_unit_test(invalid_mixtures_are_refused),
        cmocka_unit_test(a_checkpoint_keeps_the_newest_mixture),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(part);
    bt_text_release(&heard);
    return failed;
}
