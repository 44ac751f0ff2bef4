/* test_evaluate_course.c - an evaluation without a model and without ranks: which sequences a rank reads and which of
 * them count, the order of the passes and messages of a stage, what is added up over ranks and stages, and each field
 * of the result. What the parts do is defined here. */
#include <math.h>
#include <string.h>

#include "engine/micro/micro_schedule.h"
#include "engine/model/net/stage.h"
#include "engine/train/evaluate.h"
#include "tests/heard.h"

enum { B = 2, T = 4, CLASSES = 2 };

static bt_evaluator *e;
static bt_err err;
static bt_eval_result r;
static bt_model_cfg shape;
static float in, out;
static char things[4]; /* at which nobody looks */
#define DP ((bt_comm *)(void *)&things[0])
#define LOADER ((bt_loader *)(void *)&things[1])
#define MODEL ((bt_model *)(void *)&things[2])
#define PIPE ((bt_pipe *)(void *)&things[3])

/* ---- in the place of the parts --------------------------------------------------------------- */

static struct {
    const char *fails;
    int rank, ranks, opened, batches;
    int64_t sequences;
    bool documents;
    bt_loader_cfg cfg; /* of the loader that is open */
    int32_t inputs[B * T], targets[B * T], positions[B * T];
    bt_model_slice slice;
    int taken; /* scores since the evaluation began */
    bool told; /* the tokens, to other ranks */
    bt_score score;
    double confusion[CLASSES * CLASSES];
} world;

static bt_code done(const char *what, bt_err *x) {
    return said_or_fails(what, world.fails, BT_IO, x);
}

int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, DP);
    return world.rank;
}
int bt_comm_size(const bt_comm *c) {
    assert_ptr_equal(c, DP);
    return world.ranks;
}
/* three exchanges follow each other: of losses, of labels behind the tokens, of scores behind their taking */
static const char *exchanged(void) {
    return world.taken > 1 ? "scores" : world.told ? "labels" : "losses";
}
/* the losses of other ranks are 0.5 each, in their places; their labels and scores are like this rank's */
bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *y) {
    assert_true(c == DP && op == BT_SUM);
    bt_text line;
    bt_text_init(&line);
    for (size_t i = 0; i < n; i++) bt_text_printf(&line, " %g", x[i]);
    said("sum of%s", bt_text_str(&line));
    bt_text_release(&line);
    for (size_t i = 0; i < n && world.ranks > 1; i++)
        x[i] = world.told ? x[i] * world.ranks : x[i] == 0 ? 0.5 : x[i];
    return done(exchanged(), y);
}
bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *y) {
    assert_true(c == DP && op == BT_SUM && n == 1);
    said("tokens %d", (int)*x);
    world.told = true;
    *x *= world.ranks;
    return done("tokens", y);
}

/* ---- data: batch i of a loader has inputs 100 i, 100 i + 1, ..., targets one more, positions one less */
bt_code bt_loader_open(bt_loader **l, const bt_loader_cfg *c, bt_err *y) {
    world.cfg = *c;
    world.batches = 0;
    said("open %s: %d from %d of %d, step %d%s%s", c->paths, c->n_sequences, c->first_sequence,
         c->sequences_per_step, (int)c->first_step, c->split == BT_SPLIT_VAL ? "" : ", of training",
         c->shuffle ? ", shuffled" : "");
    *l = LOADER;
    return done(world.opened++ ? "open again" : "open", y);
}
void bt_loader_close(bt_loader *l) {
    assert_ptr_equal(l, LOADER);
    said("close");
}
uint64_t bt_loader_hash(const bt_loader *l) { return l == LOADER ? 0xfeed : 0; }
int64_t bt_loader_sequences(const bt_loader *l) { return l == LOADER ? world.sequences : -1; }
const char *bt_loader_notes(const bt_loader *l) { return l == LOADER ? "!1 row" : ""; }
double bt_loader_bytes_per_token(const bt_loader *l) { return l == LOADER ? 2 : 0; }
bt_code bt_loader_next(bt_loader *l, bt_batch *b, bt_err *y) {
    assert_ptr_equal(l, LOADER);
    for (int k = 0; k < B * T; k++) {
        world.inputs[k] = 100 * world.batches + k;
        world.targets[k] = world.inputs[k] + 1;
        world.positions[k] = world.inputs[k] - 1;
    }
    *b = (bt_batch){.inputs = world.inputs,
                    .targets = world.targets,
                    .positions = world.documents ? world.positions : NULL};
    return done(world.batches++ ? "batch" : "first batch", y);
}

/* ---- the model: the loss of a micro-batch is its first input and 8 */
static const char *tokens_of(const int32_t *inputs, const int32_t *targets) {
    static char text[80];
    int learned = 0;
    for (int k = 0; k < B * T; k++) {
        assert_int_equal(inputs[k], inputs[0] + k);
        if (!targets) continue;
        assert_true(targets[k] == inputs[k] + 1 || targets[k] == -1);
        learned += targets[k] >= 0;
    }
    snprintf(text, sizeof text, "%d learns %d", inputs[0], learned);
    return text;
}
static int chunk_is; /* the one that the model is at */
void bt_model_chunk(bt_model *m, int chunk) {
    assert_ptr_equal(m, MODEL);
    chunk_is = chunk;
    said("chunk %d", chunk);
}
void bt_model_documents(bt_model *m, const int32_t *positions) {
    assert_ptr_equal(m, MODEL);
    if (positions) {
        for (int k = 0; k < B * T; k++) assert_int_equal(positions[k], positions[0] + k);
        said("documents of %d", positions[0]);
    }
}
double bt_model_eval_micro(bt_model *m, const int32_t *inputs, const int32_t *targets) {
    assert_ptr_equal(m, MODEL);
    said("pass %s", tokens_of(inputs, targets));
    return inputs[0] + 8;
}
bt_score bt_model_take_score(bt_model *m) {
    assert_ptr_equal(m, MODEL);
    return world.taken++ ? world.score : (bt_score){.n = 99};
}
const bt_model_cfg *bt_model_config(const bt_model *m) { return m == MODEL ? &shape : NULL; }
const double *bt_model_confusion(const bt_model *m) { return m == MODEL ? world.confusion : NULL; }
bt_model_slice bt_model_slice_of(const bt_model *m) {
    assert_ptr_equal(m, MODEL);
    return world.slice;
}
static int chunks(void) { return world.slice.virtual_stages > 1 ? world.slice.virtual_stages : 1; }
bool bt_model_begins(const bt_model *m) {
    return m == MODEL && world.slice.pp_stage == 0 && chunk_is == 0;
}
bool bt_model_ends(const bt_model *m) {
    return m == MODEL && world.slice.pp_stage >= world.slice.pp_size - 1 &&
           chunk_is == chunks() - 1;
}
float *bt_model_stage_in(bt_model *m) { return m == MODEL ? &in : NULL; }
const float *bt_model_stage_out(const bt_model *m) { return m == MODEL ? &out : NULL; }
void bt_model_stage_meet(bt_model *m) {
    assert_ptr_equal(m, MODEL);
    said("meet");
}
void bt_model_stage_forward(bt_model *m, const int32_t *inputs) {
    assert_ptr_equal(m, MODEL);
    said("forward %d", inputs[0]);
}
bt_code bt_micro_reference(bt_pipe *p, bt_model *m, const int32_t *inputs, const int32_t *targets,
                           bt_err *y) {
    assert_true(m == MODEL && p == (world.slice.pp_size ? PIPE : NULL));
    (void)tokens_of(inputs, targets);
    return done("reference", y);
}
int64_t bt_micro_messages(const bt_model *m) { return m == MODEL ? 3 : 0; }
bt_code bt_pipe_begin(bt_pipe *p, int64_t down, int64_t up, bt_err *y) {
    assert_ptr_equal(p, PIPE);
    said("messages %d, %d", (int)down, (int)up);
    return done("pipe", y);
}
bt_code bt_pipe_end(bt_pipe *p, bt_err *y) {
    assert_ptr_equal(p, PIPE);
    return done("pipe's end", y);
}
bt_code bt_pipe_recv(bt_pipe *p, bt_pipe_way way, float *to, bt_err *y) {
    assert_true(p == PIPE && way == BT_PIPE_DOWN && to == &in);
    return done("receive", y);
}
bt_code bt_pipe_send(bt_pipe *p, bt_pipe_way way, const float *from, bt_err *y) {
    assert_true(p == PIPE && way == BT_PIPE_DOWN && from == &out);
    return done("send", y);
}
bt_code bt_pipe_sum(bt_pipe *p, double *x, size_t n, bt_err *y) {
    assert_ptr_equal(p, PIPE);
    for (size_t i = 0; i < n; i++) x[i] += 1;
    char what[40];
    snprintf(what, sizeof what, "%s of stages", exchanged());
    return done(what, y);
}

/* ---- an evaluation --------------------------------------------------------------------------- */

static void begin(void) {
    memset(&world, 0, sizeof world);
    world.ranks = 1;
    world.sequences = 1000;
    shape.classes = 0;
    err = (bt_err)BT_ERR_INIT;
    memset(&r, 0x5a, sizeof r);
    bt_text_clear(&heard);
}

static bt_code open(int64_t tokens, bt_form_kind form) {
    const bt_loader_cfg data = {.paths = "here",
                                .B = B,
                                .T = T,
                                .shuffle = true,
                                .first_step = 9,
                                .sequences_per_step = 40,
                                .first_sequence = 20,
                                .n_sequences = 6,
                                .form = {.kind = form},
                                .packing = world.documents ? BT_PACKING_DOCUMENTS
                                                           : BT_PACKING_STREAM};
    return bt_evaluator_open(&e, &data, tokens, DP, &err);
}

/* and what is heard until it has been run */
static void runs(int64_t tokens, bt_form_kind form, bt_pipe *pipe, const char *want) {
    if (open(tokens, form) != BT_OK) fail_msg("%s", err.msg);
    bt_text_clear(&heard);
    if (bt_evaluator_run(e, MODEL, pipe, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

static void leave(void) {
    bt_evaluator_close(e);
    e = NULL;
}

/* ---- which sequences ------------------------------------------------------------------------- */

/* the whole number of sequences in the tokens that are wanted, one at least, as many as there are at most */
static void sequences_are_shared_out(void **state) {
    (void)state;
    static const struct {
        int64_t tokens, there;
        int ranks, rank;
        const char *share; /* of the second loader */
        int micros, learned;
    } rows[] = {{23, 1000, 1, 0, "6 from 0 of 6", 3, 20}, {20, 1000, 1, 0, "6 from 0 of 6", 3, 20},
                {24, 1000, 1, 0, "6 from 0 of 6", 3, 24}, {25, 1000, 1, 0, "6 from 0 of 6", 3, 24},
                {3, 1000, 1, 0, "2 from 0 of 2", 1, 4},   {4, 1000, 1, 0, "2 from 0 of 2", 1, 4},
                {0, 1000, 1, 0, "2 from 0 of 2", 1, 4},   {32, 3, 1, 0, "4 from 0 of 4", 2, 12},
                {12, 3, 1, 0, "4 from 0 of 4", 2, 12},    {12, 0, 1, 0, "4 from 0 of 4", 2, 12},
                {12, -1, 1, 0, "4 from 0 of 4", 2, 12},   {12, 1, 1, 0, "2 from 0 of 2", 1, 4},
                {20, 1000, 2, 0, "4 from 0 of 8", 2, 16}, {20, 1000, 2, 1, "4 from 4 of 8", 2, 4},
                {20, 1000, 3, 2, "2 from 4 of 6", 1, 4},  {16, 1000, 2, 1, "2 from 2 of 4", 1, 8},
                {4, 1000, 3, 1, "2 from 2 of 6", 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[400];
        begin();
        world.ranks = rows[i].ranks, world.rank = rows[i].rank;
        world.sequences = rows[i].there;
        assert_int_equal(open(rows[i].tokens, BT_FORM_TEXT), BT_OK);
        int n = snprintf(want, sizeof want,
                         "open here: 2 from 0 of 2, step 0\nopen\nclose\nopen here: %s, step 0\n"
                         "open again\nfirst batch\n",
                         rows[i].share);
        for (int k = 1; k < rows[i].micros; k++)
            n += snprintf(want + n, sizeof want - (size_t)n, "batch\n");
        snprintf(want + n, sizeof want - (size_t)n, "close\n");
        heard_is(want);
        assert_int_equal(bt_evaluator_micros(e), rows[i].micros);
        assert_int_equal(bt_evaluator_bytes(e), (size_t)rows[i].micros * B * T * 2 * 4);
        assert_string_equal(bt_evaluator_notes(e), "!1 row");
        assert_true(bt_evaluator_hash(e) == 0xfeed && bt_evaluator_bytes_per_token(e) == 2);
        assert_null(bt_evaluator_confusion(e));
        size_t count = 0;
        const int32_t *first = bt_evaluator_tokens(e, &count);
        assert_true(count == T && first[0] == 0 && first[T - 1] == T - 1);
        assert_int_equal(bt_evaluator_run(e, MODEL, NULL, &r, &err), BT_OK);
        assert_int_equal(r.tokens, rows[i].learned * rows[i].ranks);
        leave();
    }
    assert_string_equal(bt_evaluator_notes(NULL), "");
    assert_true(bt_evaluator_hash(NULL) == 0 && bt_evaluator_bytes(NULL) == 0);
    bt_evaluator_close(NULL);
}

/* ---- passes and sums ------------------------------------------------------------------------- */

#define SCORES "sum of 0 0 0\nscores\n"

static void a_whole_model_passes_each_micro_batch(void **state) {
    (void)state;
    begin();
    runs(20, BT_FORM_TEXT, NULL,
         "chunk 0\nreference\nmeet\npass 0 learns 8\nchunk 0\nreference\nmeet\npass 100 learns 8\n"
         "chunk 0\nreference\nmeet\npass 200 learns 4\nchunk 0\nsum of 8 108 208\nlosses\n"
         "tokens 20\ntokens\n" SCORES);
    assert_true(r.tokens == 20 && r.nats == 324.0 / 20 && r.bits_per_byte == r.nats / M_LN2 / 2);
    assert_true(isnan(r.accuracy) && isnan(r.margin) && isnan(r.macro_f1));
    leave();
    begin(); /* of two ranks, each with its place in the sums; documents have their positions */
    world.ranks = 2, world.rank = 1;
    world.documents = true;
    runs(32, BT_FORM_TEXT, NULL,
         "chunk 0\ndocuments of -1\nreference\nmeet\npass 0 learns 8\nchunk 0\ndocuments of 99\n"
         "reference\nmeet\npass 100 learns 8\nchunk 0\nsum of 0 0 8 108\nlosses\ntokens 16\n"
         "tokens\n" SCORES);
    assert_true(r.tokens == 32 && r.nats == 117.0 / 32);
    assert_int_equal(bt_evaluator_bytes(e), 2 * B * T * 3 * 4);
    leave();
}

static void stages_pass_on_what_they_made(void **state) {
    (void)state;
    static const char *const parts[] = {
        "chunk 0\nreference\nforward 0\nsend\nchunk 0\nreference\nforward 100\nsend\n",
        "chunk 0\nreference\nreceive\nforward 0\nsend\nchunk 0\nreference\nreceive\nforward "
        "100\nsend\n",
        "chunk 0\nreference\nreceive\nmeet\npass 0 learns 8\nchunk 0\nreference\nreceive\nmeet\n"
        "pass 100 learns 8\n"};
    for (int stage = 0; stage < 3; stage++) {
        char want[600];
        begin();
        world.slice = (bt_model_slice){.pp_size = 3, .pp_stage = stage};
        snprintf(want, sizeof want,
                 "messages 6, 0\npipe\n%schunk 0\npipe's end\nlosses of stages\nsum of %s\nlosses\n"
                 "tokens 16\ntokens\nscores of stages\nsum of 1 1 1\nscores\n",
                 parts[stage], stage == 2 ? "9 109" : "1 1");
        runs(16, BT_FORM_TEXT, PIPE, want);
        assert_true(r.tokens == 16 && r.nats == (stage == 2 ? 118.0 : 2.0) / 16);
        leave();
    }
}

/* of two chunks of layers in each of two stages the passes come in the order of training; a micro-batch is told
 * of when it is through the last chunk here */
static int seen_at[4], n_seen;
static double progress[4];
static int n_progress;

static bt_code on_seen(void *ctx, bt_model *m, const bt_batch *b, bt_err *y) {
    assert_true(ctx == things && m == MODEL);
    seen_at[n_seen++] = b->inputs[0];
    assert_true(b->targets[0] == b->inputs[0] + 1);
    assert_true(world.documents ? b->positions[0] == b->inputs[0] - 1 : !b->positions);
    return done("seen", y);
}

static void on_progress(void *ctx, double share) {
    assert_ptr_equal(ctx, things);
    progress[n_progress++] = share;
}

static void chunks_take_turns(void **state) {
    (void)state;
    for (int documents = 0; documents < 2; documents++) {
        begin();
        world.documents = documents;
        world.slice = (bt_model_slice){.pp_size = 2, .pp_stage = 0, .virtual_stages = 2};
        n_seen = n_progress = 0;
        assert_int_equal(open(32, BT_FORM_TEXT), BT_OK);
        bt_text_clear(&heard);
        bt_evaluator_watch(e, on_progress, things);
        bt_evaluator_look(e, on_seen, things);
        assert_int_equal(bt_evaluator_run(e, MODEL, PIPE, &r, &err), BT_OK);
        if (!documents)
            heard_is("messages 12, 0\npipe\n"
                     "chunk 0\nreference\nforward 0\nsend\n"
                     "chunk 0\nreference\nforward 100\nsend\n"
                     "chunk 1\nreference\nreceive\nforward 0\nsend\nseen\n"
                     "chunk 1\nreference\nreceive\nforward 100\nsend\nseen\n"
                     "chunk 0\nreference\nforward 200\nsend\n"
                     "chunk 0\nreference\nforward 300\nsend\n"
                     "chunk 1\nreference\nreceive\nforward 200\nsend\nseen\n"
                     "chunk 1\nreference\nreceive\nforward 300\nsend\nseen\n"
                     "chunk 0\npipe's end\nlosses of stages\nsum of 1 1 1 1\nlosses\ntokens 32\n"
                     "tokens\nscores of stages\nsum of 1 1 1\nscores\n");
        bt_text_clear(&heard);
        assert_int_equal(n_seen, 4);
        assert_int_equal(n_progress, 4);
        for (int i = 0; i < 4; i++)
            assert_true(seen_at[i] == 100 * i && progress[i] == (i + 1) / 4.0);
        leave();
    }
}

/* ---- what is judged right or wrong ----------------------------------------------------------- */

static void pairs_are_counted_by_their_scores(void **state) {
    (void)state;
    begin();
    world.ranks = 2; /* the other one with as many pairs, and micro-batches of half a nat each */
    world.score = (bt_score){.n = 4, .right = 3, .margin = 10};
    assert_int_equal(open(32, BT_FORM_PREFERENCE), BT_OK);
    assert_int_equal(bt_evaluator_run(e, MODEL, NULL, &r, &err), BT_OK);
    assert_true(r.tokens == 8 && r.nats == 117.0 / 8 && r.accuracy == 0.75 && r.margin == 2.5);
    assert_true(isnan(r.bits_per_byte) && isnan(r.macro_f1));
    leave();
}

static void classes_have_a_macro_f1(void **state) {
    (void)state;
    static const struct {
        double table[4], f1;
    } rows[] = {{{3, 1, 2, 4}, (6.0 / 9 + 8.0 / 11) / 2}, /* row what is, column what was picked */
                {{5, 0, 0, 0}, 1},                        /* the other label is not there */
                {{5, 1, 0, 0}, 10.0 / 11 / 2},
                {{0, 4, 4, 0}, 0},
                {{0, 0, 0, 0}, NAN}};
    for (int staged = 0; staged < 2; staged++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            begin();
            shape.classes = CLASSES;
            world.score = (bt_score){.n = 10, .right = 7};
            if (staged) world.slice = (bt_model_slice){.pp_size = 2, .pp_stage = 1};
            /* stages add one each */
            for (int k = 0; k < 4; k++) world.confusion[k] = rows[i].table[k] - staged;
            assert_int_equal(open(16, BT_FORM_LABEL), BT_OK);
            assert_int_equal(bt_evaluator_run(e, MODEL, staged ? PIPE : NULL, &r, &err), BT_OK);
            assert_true(isnan(rows[i].f1) ? isnan(r.macro_f1)
                                          : fabs(r.macro_f1 - rows[i].f1) < 1e-12);
            const double *table = bt_evaluator_confusion(e);
            for (int k = 0; k < 4; k++) assert_true(table[k] == rows[i].table[k]);
            assert_true(isnan(r.bits_per_byte) && r.tokens == 16);
            assert_true(r.accuracy == (staged ? 8.0 / 11 : 0.7));
            leave();
        }
}

/* ---- failures -------------------------------------------------------------------------------- */

static void what_fails_is_told_and_closes(void **state) {
    (void)state;
    static const struct {
        const char *fails, *ends; /* what is heard last */
    } opening[] = {{"open", "open\n"},
                   {"open again", "open again\n"},
                   {"first batch", "first batch\nclose\n"},
                   {"batch", "batch\nclose\n"}};
    for (size_t i = 0; i < sizeof opening / sizeof *opening; i++) {
        begin();
        world.fails = opening[i].fails;
        e = (bt_evaluator *)(void *)things;
        assert_int_equal(open(32, BT_FORM_TEXT), BT_IO);
        assert_null(e);
        assert_int_equal(err.code, BT_IO);
        const size_t n = strlen(opening[i].ends);
        assert_string_equal(bt_text_str(&heard) + heard.len - n, opening[i].ends);
        bt_text_clear(&heard);
    }
    static const char *const parts[] = {"pipe",   "reference",        "receive",
                                        "send",   "pipe's end",       "losses of stages",
                                        "losses", "tokens",           "labels of stages",
                                        "labels", "scores of stages", "scores",
                                        "seen"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char says[60];
        begin();
        shape.classes = CLASSES;
        world.slice = (bt_model_slice){.pp_size = 3, .pp_stage = 1};
        assert_int_equal(open(40, BT_FORM_LABEL), BT_OK);
        bt_evaluator_look(e, on_seen, things);
        n_seen = 0;
        world.fails = parts[i];
        bt_text_clear(&heard);
        assert_int_equal(bt_evaluator_run(e, MODEL, PIPE, &r, &err), BT_IO);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
        snprintf(says, sizeof says, "\n%s\n", parts[i]);
        const size_t n = strlen(says);
        if (heard.len < n || strcmp(bt_text_str(&heard) + heard.len - n, says) != 0)
            fail_msg("%s: %s", parts[i], bt_text_str(&heard));
        bt_text_clear(&heard);
        leave();
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_are_shared_out),
        cmocka_unit_test(a_whole_model_passes_each_micro_batch),
        cmocka_unit_test(stages_pass_on_what_they_made),
        cmocka_unit_test(chunks_take_turns),
        cmocka_unit_test(pairs_are_counted_by_their_scores),
        cmocka_unit_test(classes_have_a_macro_f1),
        cmocka_unit_test(what_fails_is_told_and_closes),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
