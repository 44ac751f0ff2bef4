/* test_reducer_course.c - the course of a step's gradients: when a bucket leaves, what is added before it does, what is
 * asked of the exchange and when, whose idle time is used, what is made of arrival times and notes, each count, and
 * what becomes of a failure. The exchange, the clock and the units are defined here. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/grad/unit_accumulator.h"
#include "engine/parallel/mpi/clock_sync.h"
#include "tests/heard.h"

/* three buckets, counted from the end, of which the first is short: [64, 80), [32, 64), [0, 32) */
enum { N = 80, BUCKET = 32, NOTES = 2 };

static bt_reducer *r;
static bt_err err;
static float grads[N], other[N];
static bt_mesh mesh;
static char things[4]; /* at which nobody looks */
#define WORLD ((bt_comm *)(void *)&things[0])
#define DP ((bt_comm *)(void *)&things[1])
#define EXCHANGE ((bt_exchange *)(void *)&things[2])
#define UNITS ((bt_unit_accumulator *)(void *)&things[3])

/* ---- in the place of others ------------------------------------------------------------------ */

static struct {
    const char *fails;
    int world_size, dp_size,
        alone_fails; /* the how-manyth agreement another rank comes to with an error */
    int agreements;
    int64_t now_ns, offset_ns, error_ns,
        latest_ns;       /* latest: when the last rank came, common time */
    int64_t progress_ns; /* a call takes so long */
    int64_t theirs[BT_NOTES_MAX];
    bool room, arrives; /* one bucket more each time */
    size_t started, done;
    bool shares;
    void (*idle)(void *ctx);
    void *idle_ctx;
    bt_tree_sum nodes;
    bt_traffic counted;
    bt_coll kind;
    bt_axis axis;
    int counts;
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, BT_MPI, e);
}
int64_t bt_now_ns(void) { return world.now_ns; }
int bt_comm_rank(const bt_comm *c) { return c != DP ? 5 : world.dp_size > 1; }
int bt_comm_size(const bt_comm *c) { return c == DP ? world.dp_size : world.world_size; }
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, WORLD);
    said("agree%s", mine == BT_OK ? "" : ": failed");
    return ++world.agreements == world.alone_fails && mine == BT_OK
               ? bt_fail(e, BT_CHECK, "another rank fails")
               : mine;
}
bt_code bt_all_reduce_i64_start(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_request *q,
                                bt_err *e) {
    assert_true(c == WORLD && op == BT_MAX && n <= 1 + BT_NOTES_MAX);
    bt_text line;
    bt_text_init(&line);
    for (size_t i = 0; i < n; i++) bt_text_printf(&line, " %" PRId64, x[i]);
    said("tell%s", bt_text_str(&line));
    bt_text_release(&line);
    if (world.latest_ns > x[0]) x[0] = world.latest_ns;
    for (size_t i = 1; i < n; i++)
        if (world.theirs[i - 1] > x[i]) x[i] = world.theirs[i - 1];
    *q = (bt_request){0};
    return done("told", e);
}
bt_code bt_request_wait(bt_request *q, bt_err *e) {
    (void)q;
    world.now_ns += 1000;
    return done("wait", e);
}
bt_code bt_clock_sync_measure(bt_clock_sync *s, bt_comm *c, bt_err *e) {
    assert_ptr_equal(c, WORLD);
    *s = (bt_clock_sync){world.offset_ns, world.error_ns};
    return done("clock", e);
}
int64_t bt_clock_sync_common(const bt_clock_sync *s, int64_t now_ns) {
    return now_ns + s->offset_ns;
}
void bt_threads_on_idle(void (*poll)(void *ctx), void *ctx) {
    world.idle = poll, world.idle_ctx = ctx;
    said("idle");
}
void bt_threads_off_idle(void (*poll)(void *ctx), void *ctx) {
    assert_true(!world.idle || (poll == world.idle && ctx == world.idle_ctx));
    world.idle = NULL;
    said("busy");
}
void bt_traffic_add(bt_coll c, bt_axis a, const bt_traffic *more) {
    world.kind = c, world.axis = a, world.counted = *more;
    world.counts++;
}
int madvise(void *at, size_t bytes, int advice) {
    assert_ptr_equal(at, grads);
    said("pages of %zu bytes: %s", bytes, advice == MADV_NOHUGEPAGE ? "small" : "?");
    return 0;
}
void bt_op_add(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}
void bt_grad_digest_add(bt_grad_digest *d, const float *x, size_t n) {
    const bool own = x >= grads && x < grads + N;
    said("digest %zu from %d%s", n, (int)(x - (own ? grads : other)), own ? "" : " beside");
    d->sum += (uint32_t)n;
}

/* ---- the exchange */
static void tell_plan(const bt_exchange_plan *p) {
    said("plan of rank %d: %zu buckets of %zu, %d units%s%s, %s", p->rank, p->buckets->n,
         p->buckets->elems, (int)p->units, p->shares ? " as given" : "",
         p->sharded ? ", sharded" : "", p->form.codec->name);
}
bt_code bt_exchange_create(bt_exchange **out, const bt_exchange_cfg *c, bt_err *e) {
    assert_true(c->mesh == &mesh && c->grads == grads && c->plan.shape == &mesh.shape);
    tell_plan(&c->plan);
    said("exchange%s%s", c->discard ? ", discards" : "", c->state == things ? ", state" : "");
    *out = EXCHANGE;
    return done("exchange", e);
}
void bt_exchange_destroy(bt_exchange *x) { said(x ? "destroy exchange" : "no exchange"); }
size_t bt_exchange_staging(const bt_exchange_plan *p) {
    tell_plan(p);
    return 4321;
}
bt_coll bt_exchange_kind(const bt_exchange *x) {
    return x == EXCHANGE ? BT_COLL_REDUCE_SCATTER : BT_COLL_COUNT;
}
void bt_exchange_reset(bt_exchange *x) {
    assert_ptr_equal(x, EXCHANGE);
    said("reset");
    world.started = world.done = 0;
}
void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes) {
    assert_ptr_equal(x, EXCHANGE);
    said("%zu nodes, the first %d at %d", nodes->n, (int)nodes->at[0].index, nodes->at[0].level);
    assert_ptr_equal(nodes->at[nodes->n - 1].x, grads);
}
bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *e) {
    char what[20];
    assert_true(x == EXCHANGE && bucket == world.started);
    world.started++;
    snprintf(what, sizeof what, "start %zu", bucket);
    return done(what, e);
}
bt_code bt_exchange_progress(bt_exchange *x, size_t *arrived, bt_err *e) {
    assert_ptr_equal(x, EXCHANGE);
    world.now_ns += world.progress_ns;
    if (world.arrives && world.done < world.started) world.done++;
    *arrived = world.done;
    return done("progress", e);
}
bool bt_exchange_has_room(const bt_exchange *x) { return x == EXCHANGE && world.room; }
void bt_exchange_rest(const bt_exchange *x) {
    assert_ptr_equal(x, EXCHANGE);
    said("rest");
    world.room = world.arrives = true;
}
bool bt_exchange_shares_memory(const bt_exchange *x) { return x == EXCHANGE && world.shares; }

/* ---- units */
bt_code bt_accumulator_create(bt_unit_accumulator **out, const bt_accumulator_cfg *c, bt_err *e) {
    assert_true(c->grads == grads && c->n == N);
    said("units %d from %d, %d lanes%s", (int)c->n_units, (int)c->first_unit, c->n_lanes,
         c->rounding ? ", rounded" : "");
    *out = UNITS;
    return done("accumulator", e);
}
void bt_accumulator_destroy(bt_unit_accumulator *p) { said(p ? "destroy units" : "no units"); }
void bt_accumulator_begin(bt_unit_accumulator *p) {
    assert_ptr_equal(p, UNITS);
    said("begin");
}
float *bt_accumulator_unit(bt_unit_accumulator *p, int lane) {
    assert_ptr_equal(p, UNITS);
    said("unit of lane %d", lane);
    return other;
}
void bt_accumulator_unit_done(bt_unit_accumulator *p, int lane) {
    assert_ptr_equal(p, UNITS);
    said("unit done, lane %d", lane);
}
void bt_accumulator_range(bt_unit_accumulator *p, bt_range x) {
    assert_ptr_equal(p, UNITS);
    said("add [%zu, %zu)", x.begin, x.end);
}
bt_tree_sum bt_accumulator_nodes(const bt_unit_accumulator *p) {
    assert_ptr_equal(p, UNITS);
    return world.nodes;
}

/* ---- a reducer ------------------------------------------------------------------------------- */

static bt_reducer_cfg cfg;

/* rank 1 of two data-parallel ranks, in a world of four; nothing arrives until it rests */
static void begin(void) {
    memset(&world, 0, sizeof world);
    memset(grads, 0, sizeof grads);
    memset(other, 0, sizeof other);
    world.world_size = 4, world.dp_size = 2;
    world.now_ns = 1000000;
    world.progress_ns = 10;
    world.room = true;
    world.nodes = (bt_tree_sum){.at = {{4, 0, other}, {5, 1, grads}}, .n = 2};
    mesh = (bt_mesh){.shape = {1, 2, 1, 2}, .world = WORLD, .dp = DP};
    cfg = (bt_reducer_cfg){.mesh = &mesh,
                           .grads = grads,
                           .n = N,
                           .bucket_bytes = BUCKET * sizeof(float),
                           .overlap = true};
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

static void create(const char *want) {
    if (bt_reducer_create(&r, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

static void leave(void) {
    bt_text_clear(&heard);
    bt_reducer_destroy(r);
    bt_reducer_destroy(NULL);
    bt_text_clear(&heard);
}

#define PLAN "plan of rank 5: 3 buckets of 32, 2 units, none\nexchange\nexchange\n"

/* ---- what is made ---------------------------------------------------------------------------- */

static void what_is_made_and_given_back(void **state) {
    (void)state;
    static const int64_t shares[] = {3, 4};
    static bt_unit_rounding rounding;
    static const bt_range lanes[2];
    begin();
    create("agree\n" PLAN "agree\nclock\n");
    assert_false(bt_reducer_shares_memory(r));
    world.shares = true;
    assert_true(bt_reducer_shares_memory(r));
    bt_reducer_destroy(r);
    heard_is("busy\ndestroy exchange\nno units\n");
    begin(); /* sharded, by pieces that are no pages, and with units that were shared out */
    const bt_shards s = {.total = N, .stripe = 64, .piece = 32, .n_stripes = 2, .n = 2};
    cfg.shards = &s;
    cfg.discard = true;
    cfg.state = things;
    cfg.form.codec = bt_codec_at(BT_CODEC_INT8);
    cfg.units = 7, cfg.shares = shares;
    cfg.rounding = &rounding, cfg.lanes = lanes, cfg.n_lanes = 2;
    create("agree\npages of 320 bytes: small\nplan of rank 5: 2 buckets of 64, 7 units as given, "
           "sharded, int8\nexchange, discards, state\nexchange\nunits 4 from 3, 2 lanes, "
           "rounded\naccumulator\nagree\nclock\n");
    bt_reducer_destroy(r);
    heard_is("busy\ndestroy exchange\ndestroy units\n");
    begin(); /* units that are even; a shard that is all is none */
    const bt_shards whole = {.total = N, .stripe = N, .piece = N, .n_stripes = 1, .n = 1};
    cfg.shards = &whole;
    cfg.units = 7;
    create("agree\nplan of rank 5: 3 buckets of 32, 7 units, none\nexchange\nexchange\nunits 4 "
           "from 3, 0 lanes\naccumulator\nagree\nclock\n");
    leave();
    begin(); /* shares count units alone */
    cfg.shares = shares;
    create("agree\n" PLAN "agree\nclock\n");
    leave();
    begin(); /* alone: nothing is exchanged */
    world.dp_size = 1;
    cfg.units = 3;
    create("agree\nunits 3 from 0, 0 lanes\naccumulator\nagree\nclock\n");
    assert_false(bt_reducer_shares_memory(r));
    bt_reducer_destroy(r);
    heard_is("busy\nno exchange\ndestroy units\n");
    begin(); /* one unit is one too */
    world.dp_size = 1;
    cfg.units = 1;
    create("agree\nunits 1 from 0, 0 lanes\naccumulator\nagree\nclock\n");
    leave();
}

static void what_cannot_be_made_is_given_back(void **state) {
    (void)state;
    static const struct {
        const char *fails, *want;
    } rows[] = {{"exchange", "agree: failed\nbusy\ndestroy exchange\nno units\n"},
                {"accumulator", "agree: failed\nbusy\ndestroy exchange\ndestroy units\n"},
                {"clock", "clock\nbusy\ndestroy exchange\ndestroy units\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char says[40];
        begin();
        cfg.units = 6;
        world.fails = rows[i].fails;
        r = (bt_reducer *)(void *)things;
        assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_MPI);
        assert_null(r);
        snprintf(says, sizeof says, "%s fails", rows[i].fails);
        assert_string_equal(err.msg, says);
        const size_t n = strlen(rows[i].want);
        assert_true(heard.len > n);
        assert_string_equal(bt_text_str(&heard) + heard.len - n, rows[i].want);
    }
    for (int k = 1; k <= 2; k++) {
        begin();
        world.alone_fails = k;
        assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_CHECK);
        heard_is(k == 1 ? "agree\nbusy\nno exchange\nno units\n"
                        : "agree\n" PLAN "agree\nbusy\ndestroy exchange\nno units\n");
    }
}

static void staging_is_that_of_even_shares(void **state) {
    (void)state;
    static const int64_t shares[] = {3, 4};
    const bt_mesh_shape one = {2, 1, 1, 2}, four = {1, 2, 2, 1};
    begin();
    cfg.units = 6, cfg.shares = shares;
    cfg.form.codec = bt_codec_at(BT_CODEC_BF16);
    assert_int_equal(bt_reducer_staging(&cfg, &one, 3), 0);
    heard_is("");
    assert_int_equal(bt_reducer_staging(&cfg, &four, 3), 4321);
    heard_is("plan of rank 3: 2 buckets of 64, 6 units, bf16\n");
    cfg.units = 0;
    assert_int_equal(bt_reducer_staging(&cfg, &four, 2), 4321);
    heard_is("plan of rank 2: 2 buckets of 64, 4 units, bf16\n");
}

/* ---- a step ---------------------------------------------------------------------------------- */

static bt_reduce_times took;

static void finish(int64_t a, int64_t b, const char *want) {
    int64_t notes[NOTES] = {a, b};
    if (bt_reducer_finish(r, notes, NOTES, &took, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
    for (int i = 0; i < NOTES; i++) {
        const int64_t mine = i ? b : a;
        assert_int_equal(notes[i], world.theirs[i] > mine ? world.theirs[i] : mine);
    }
}

static void buckets_leave_while_backward_goes_on(void **state) {
    (void)state;
    begin();
    world.offset_ns = 500;
    create("agree\n" PLAN "agree\nclock\n");
    bt_reducer_begin(r);
    assert_ptr_equal(bt_reducer_unit(r, 3), grads);
    heard_is("");
    bt_reducer_last(r);
    heard_is("reset\n1 nodes, the first 1 at 0\nidle\n");
    bt_reducer_ready(r, 70, N); /* the bucket is not whole yet */
    heard_is("");
    world.now_ns = 2000000;
    bt_reducer_ready(r, 64, 70);
    heard_is("digest 16 from 64\nstart 0\nprogress\n");
    world.idle(world.idle_ctx); /* too soon after the last look */
    world.now_ns += 49999;
    world.idle(world.idle_ctx);
    heard_is("");
    world.now_ns += 1;
    world.idle(world.idle_ctx);
    heard_is("progress\n");
    bt_reducer_ready(r, 10, 64); /* and looks at no other */
    heard_is("digest 32 from 32\nstart 1\n");
    world.arrives = true;
    world.now_ns = 3000000;
    world.idle(world.idle_ctx);
    world.now_ns = 3100000;
    world.idle(world.idle_ctx);
    heard_is("progress\nprogress\n");
    world.now_ns = 4000000; /* all that left has arrived: nothing to look for */
    world.idle(world.idle_ctx);
    heard_is("");
    bt_reducer_ready(r, 0, 10);
    heard_is("digest 32 from 0\nstart 2\nprogress\n");
    world.now_ns = 5000000;
    world.latest_ns = 5000500 + 300; /* the last rank came 300 ns later */
    world.error_ns = 0;
    world.theirs[1] = 9;
    finish(3, 4, "busy\ntell 5000500 3 4\ntold\nwait\n");
    /* in flight: from 2000000 until 3100010, from 4000000 until 4000010, and 700 ns at the end */
    assert_true(took.busy_ns == 1100010 + 10 + 700 && took.wait_ns == 300 &&
                took.exposed_ns == 700);
    assert_true(world.counts == 1 && world.kind == BT_COLL_REDUCE_SCATTER &&
                world.axis == BT_AXIS_DP);
    assert_true(world.counted.calls == 3 && world.counted.busy_ns == 1100720 &&
                world.counted.exposed_ns == 700 && world.counted.wait_ns == 300);
    assert_true(world.counted.rounds == 0 && world.counted.bytes_wire == 0);
    assert_int_equal(bt_reducer_digest(r).sum, N);
    heard_is("");
    bt_reducer_last(r); /* the next step begins anew */
    heard_is("reset\n1 nodes, the first 1 at 0\nidle\n");
    assert_int_equal(bt_reducer_digest(r).sum, 0);
    leave();
}

/* at the end go those that are left, as there is room for them; then it waits for all */
static void the_rest_goes_at_the_end(void **state) {
    (void)state;
    begin();
    cfg.overlap = false;
    create("agree\n" PLAN "agree\nclock\n");
    for (int step = 0; step < 2; step++) {
        world.arrives = false;
        bt_reducer_last(r);
        heard_is("reset\n1 nodes, the first 1 at 0\n");
        bt_reducer_ready(r, 0, N);
        heard_is("");
        world.room = false;
        finish(0, 0,
               "busy\ntell 1000000 0 0\ntold\nrest\ndigest 16 from 64\nstart 0\nprogress\ndigest "
               "32 from 32\nstart 1\nprogress\ndigest 32 from 0\nstart 2\nprogress\nwait\n");
        assert_true(took.busy_ns == 1030 && took.wait_ns == 0 && took.exposed_ns == 1030);
        world.now_ns = 1000000;
    }
    leave();
}

static void units_are_added_before_they_leave(void **state) {
    (void)state;
    begin();
    cfg.units = 6;
    cfg.n_lanes = 2;
    create("agree\nplan of rank 5: 3 buckets of 32, 6 units, none\nexchange\nexchange\nunits 3 "
           "from 3, 2 lanes\naccumulator\nagree\nclock\n");
    bt_reducer_begin(r);
    assert_ptr_equal(bt_reducer_unit(r, 1), other);
    bt_reducer_unit_done(r, 1);
    bt_reducer_last(r);
    heard_is("begin\nunit of lane 1\nunit done, lane 1\nreset\n2 nodes, the first 4 at 0\nidle\n");
    bt_reducer_ready(r, 30, N);
    heard_is("add [64, 80)\ndigest 16 from 64 beside\ndigest 16 from 64\nstart 0\n"
             "add [32, 64)\ndigest 32 from 32 beside\ndigest 32 from 32\nstart 1\nprogress\n");
    world.arrives = true;
    finish(0, 0,
           "busy\ntell 1000010 0 0\ntold\nadd [0, 32)\ndigest 32 from 0 beside\ndigest 32 from 0\n"
           "start 2\nprogress\nrest\nprogress\nrest\nprogress\nwait\n");
    leave();
}

/* ---- alone ----------------------------------------------------------------------------------- */

static void a_rank_alone_adds_its_units(void **state) {
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++) {
        begin();
        world.dp_size = world.world_size = 1;
        cfg.units = 6;
        cfg.overlap = overlap;
        create("agree\nunits 6 from 0, 0 lanes\naccumulator\nagree\nclock\n");
        for (int i = 0; i < N; i++) grads[i] = (float)i, other[i] = 1000;
        bt_reducer_last(r);
        bt_reducer_ready(r, 20, N);
        heard_is(overlap ? "add [64, 80)\nadd [32, 64)\n" : "");
        took.busy_ns = took.wait_ns = took.exposed_ns = 7;
        finish(5, 6,
               overlap ? "busy\nadd [0, 32)\n" : "busy\nadd [64, 80)\nadd [32, 64)\nadd [0, 32)\n");
        for (int i = 0; i < N; i++) assert_true(grads[i] == (float)i + 1000);
        assert_true(took.busy_ns == 0 && took.wait_ns == 0 && took.exposed_ns == 0);
        assert_int_equal(world.counts, 0);
        assert_int_equal(bt_reducer_digest(r).sum, N); /* of the sum */
        heard_is("digest 80 from 0\n");
        leave();
    }
}

/* among ranks that have no gradients in common, arrivals and notes are exchanged all the same */
static void a_rank_without_replicas_waits_for_the_others(void **state) {
    (void)state;
    begin();
    world.dp_size = 1;
    world.error_ns = 50;
    create("agree\nagree\nclock\n");
    bt_reducer_last(r);
    bt_reducer_ready(r, 0, N);
    world.latest_ns = 1000600;
    world.theirs[0] = 8;
    finish(5, 6, "busy\ntell 1000000 5 6\ntold\nwait\n");
    assert_true(took.busy_ns == 400 && took.wait_ns == 600 && took.exposed_ns == 400);
    assert_true(world.counts == 1 && world.kind == BT_COLL_ALL_REDUCE &&
                world.axis == BT_AXIS_WORLD && world.counted.calls == 0);
    assert_true(world.counted.busy_ns == 400 && world.counted.exposed_ns == 400 &&
                world.counted.wait_ns == 600);
    leave();
}

/* ---- failures -------------------------------------------------------------------------------- */

/* in backward a failure is kept, and nothing is asked any more; the end tells it */
static void as_many_notes_are_told_as_there_may_be(void **state) {
    (void)state;
    int64_t notes[BT_NOTES_MAX];
    begin();
    create("agree\n" PLAN "agree\nclock\n");
    world.arrives = true;
    for (size_t many = 0; many <= BT_NOTES_MAX; many++) {
        for (int i = 0; i < BT_NOTES_MAX; i++) {
            notes[i] = 10 + i;
            world.theirs[i] = i % 2 ? 20 + i : 0;
        }
        bt_reducer_begin(r);
        bt_reducer_last(r);
        assert_int_equal(bt_reducer_finish(r, notes, many, &took, &err), BT_OK);
        for (int i = 0; i < BT_NOTES_MAX; i++)
            assert_int_equal(notes[i], i % 2 && (size_t)i < many ? 20 + i : 10 + i);
    }
    leave();
}

static void a_failure_in_backward_is_told_at_the_end(void **state) {
    (void)state;
    static const struct {
        const char *fails, *heard;
    } rows[] = {{"start 0", "digest 16 from 64\nstart 0\n"},
                {"start 1", "digest 16 from 64\nstart 0\ndigest 32 from 32\nstart 1\n"},
                {"progress", "digest 16 from 64\nstart 0\ndigest 32 from 32\nstart 1\nprogress\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int blind = 0; blind < 2; blind++) { /* nobody asks for the words */
            char says[40];
            int64_t notes[NOTES] = {0};
            begin();
            create("agree\n" PLAN "agree\nclock\n");
            bt_reducer_last(r);
            bt_text_clear(&heard);
            world.fails = rows[i].fails;
            bt_reducer_ready(r, 32, N);
            heard_is(rows[i].heard);
            bt_reducer_ready(r, 0, 32);
            world.now_ns += 1000000;
            world.idle(world.idle_ctx);
            heard_is("");
            world.fails = NULL;
            assert_int_equal(bt_reducer_finish(r, notes, NOTES, &took, blind ? NULL : &err),
                             BT_MPI);
            heard_is(i < 2 ? "busy\ntell 2000000 0 0\ntold\n"
                           : "busy\ntell 2000010 0 0\ntold\n"); /* it had looked */
            snprintf(says, sizeof says, "%s fails", rows[i].fails);
            if (!blind) assert_string_equal(err.msg, says);
            assert_int_equal(world.counts, 0);
            bt_reducer_last(r); /* the next step begins anew */
            bt_text_clear(&heard);
            bt_reducer_ready(r, 64, N);
            heard_is("digest 16 from 64\nstart 0\nprogress\n");
            leave();
        }
}

static void a_failure_at_the_end_is_told(void **state) {
    (void)state;
    static const char *const parts[] = {"told", "start 0", "start 2", "progress", "wait"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char says[40];
        int64_t notes[NOTES] = {3, 4};
        begin();
        world.arrives = true;
        world.theirs[0] = 9;
        create("agree\n" PLAN "agree\nclock\n");
        bt_reducer_last(r);
        world.fails = parts[i];
        assert_int_equal(bt_reducer_finish(r, notes, NOTES, &took, &err), BT_MPI);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
        assert_true(notes[0] == 3 && notes[1] == 4 && world.counts == 0);
        leave();
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_made_and_given_back),
        cmocka_unit_test(what_cannot_be_made_is_given_back),
        cmocka_unit_test(staging_is_that_of_even_shares),
        cmocka_unit_test(buckets_leave_while_backward_goes_on),
        cmocka_unit_test(the_rest_goes_at_the_end),
        cmocka_unit_test(units_are_added_before_they_leave),
        cmocka_unit_test(a_rank_alone_adds_its_units),
        cmocka_unit_test(a_rank_without_replicas_waits_for_the_others),
        cmocka_unit_test(as_many_notes_are_told_as_there_may_be),
        cmocka_unit_test(a_failure_in_backward_is_told_at_the_end),
        cmocka_unit_test(a_failure_at_the_end_is_told),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
