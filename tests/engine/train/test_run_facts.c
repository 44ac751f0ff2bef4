/* test_run_facts.c - the facts recorded before the first step: model, work, data, links, machine, memory,
 * prediction, ranks, and groups that span hosts. The trainer is set up by hand. */
#include <math.h>
#include <unistd.h>

#include "engine/base/threads.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/plan.h"
#include "tests/engine/train/said.h"

#include "engine/train/trainer_impl.h"

static bt_trainer t;
static bt_err err;
static char object; /* placeholder whose content is never read */
#define SOME(type) ((type *)(void *)&object)

static struct {
    int rank, size, dp, plan_rank, memory_setting;
    int64_t sequences;
    bool shares;
    bt_link links[BT_AXIS_COUNT];
    const char *hosts;
    bt_code fails, agreed; /* result of the gather; result of another rank */
} world;

int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, t.mesh.world);
    return world.rank;
}
int bt_comm_size(const bt_comm *c) { return c == t.mesh.dp ? world.dp : world.size; }
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, t.mesh.world);
    return mine != BT_OK           ? mine
           : world.agreed != BT_OK ? bt_fail(e, world.agreed, "of another")
                                   : BT_OK;
}
/* Every rank equals this one; a letter names its host. */
bt_code bt_gather(bt_comm *c, const void *x, size_t bytes, void *to, int root, bt_err *e) {
    bt_rank_info *of = to;
    assert_true(c == t.mesh.world && bytes == sizeof *of && root == 0);
    if (world.fails != BT_OK) return bt_fail(e, world.fails, "a rank is gone");
    for (int r = 0; of && r < world.size; r++) {
        memcpy(&of[r], x, bytes);
        of[r].rank = r;
        if (world.hosts) snprintf(of[r].host, sizeof of[r].host, "%c", world.hosts[r]);
    }
    return BT_OK;
}
const bt_model_cfg *bt_model_config(const bt_model *m) {
    assert_ptr_equal(m, t.model);
    return &t.setup.model.cfg;
}
bt_model_counts bt_model_count(const bt_model_cfg *c) {
    assert_ptr_equal(c, &t.setup.model.cfg);
    return (bt_model_counts){.params = 1000, .linear = 800, .embedding = 150};
}
const bt_codec *bt_codec_at(bt_codec_id id) {
    static const bt_codec codec = {.name = "int8"};
    assert_int_equal(id, BT_CODEC_INT8);
    return &codec;
}
bool bt_reducer_shares_memory(const bt_reducer *r) { return r == t.reducer && world.shares; }
int64_t bt_loader_tokens(const bt_loader *l) { return l == t.loader ? 5000 : 0; }
int64_t bt_loader_sequences(const bt_loader *l) { return l == t.loader ? world.sequences : 0; }
double bt_loader_bytes_per_token(const bt_loader *l) { return l == t.loader ? 3.25 : 0; }
uint64_t bt_loader_hash(const bt_loader *l) { return l == t.loader ? 0xabcdef : 0; }
const bt_link *bt_observer_link(const bt_observer *o, bt_axis a) {
    assert_ptr_equal(o, t.observer);
    return &world.links[a];
}
const char *bt_axis_name(bt_axis a) {
    static const char *const names[] = {"world", "dp", "shard", "replicate", "tp", "pp"};
    return names[a];
}
const bt_cpu *bt_cpu_get(void) {
    static const bt_cpu cpu = {.model = "a processor"};
    return &cpu;
}
const char *bt_kernels_isa(void) { return "abacus"; }
size_t bt_kernels_slots(void) { return 2; }
const char *bt_kernels_slot_name(size_t i) { return i ? "add" : "gemm"; }
const char *bt_kernels_slot_winner(size_t i) { return i ? "fingers" : "abacus"; }
/* No part adds facts. */
void bt_parts_facts(bt_trainer *x, bool goes_on) { (void)x, (void)goes_on; }
int bt_threads_count(void) { return 6; }
size_t bt_plan_memory(const bt_run_cfg *cfg, int rank, bt_plan_parts *parts,
                      bt_arena_row rows[BT_PLAN_MAX]) {
    assert_ptr_equal(parts, t.parts.memory);
    assert_ptr_equal(cfg, &t.cfg);
    world.plan_rank = rank;
    world.memory_setting = cfg->ckpt.memory;
    rows[0] = (bt_arena_row){.name = "params", .bytes = 4000};
    rows[1] = (bt_arena_row){.name = "optimizer", .bytes = 8000};
    return 2;
}

static void on_fact(void *ctx, const char *key, const char *value) {
    assert_ptr_equal(ctx, &object);
    said("%s=%s", key, value);
}

static bt_rank_info ranks[8];
static size_t n_ranks;
static void on_ranks(void *ctx, const bt_rank_info *all, size_t n) {
    assert_ptr_equal(ctx, &object);
    memcpy(ranks, all, n * sizeof *all);
    n_ranks = n;
}

static void begin(void) {
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    world.size = world.dp = 1;
    n_ranks = 0;
    t.mesh.world = SOME(bt_comm);
    t.mesh.dp = (bt_comm *)(void *)&t;
    t.mesh.shape = (bt_mesh_shape){1, 1, 1, 1};
    t.mesh.me = (bt_mesh_coord){.pp = 1, .dp_replicate = 2, .dp_shard = 3, .tp = 4};
    t.telemetry.sink = (bt_sink){.ctx = &object, .fact = on_fact, .ranks = on_ranks};
    t.telemetry.flop_token = 6000.5;
    t.cfg.parallel.codec = BT_CODEC_INT8;
    strcpy(t.cfg.comm.budget, "off");
    t.cfg.train.steps = 30;
    t.cfg.train.batch_tokens = 512;
    t.cfg.train.micro_batch = 4;
    t.cfg.model.seq_len = 32;
    t.cfg.ckpt.memory = BT_CKPT_MEMORY_AUTO;
    t.micro_plan.n = 3;
    t.at.step = 5;
    t.attempt.measured_by = 2;
    t.attempt.measured_load = 0.25;
    bt_text_clear(&heard);
}

static void record(bool goes_on) {
    if (bt_record_facts(&t, goes_on, &err) != BT_OK) fail_msg("%s", err.msg);
}

#define MODEL "params=1000\nparams.linear=800\nparams.embedding=150\nflop_token=6000.5\n"
#define WORK "steps_total=30\nbatch_tokens=512\nmicro_batch=4\naccum=3\ndata.tokens=5000\n"
#define DATA "data.bytes_per_token=3.25\n"
#define HASH "data.hash=0000000000abcdef\n"
#define MACHINE \
    "threads=6\nkernel.gemm=abacus\nkernel.add=fingers\narena.params=4000\n" \
    "arena.optimizer=8000\n"

static void a_plain_run(void **state) {
    (void)state;
    begin();
    record(false);
    heard_is(MODEL "world_size=1\ncodec=int8\ncomm.budget=off\ndp_size=1\n" WORK DATA HASH
                   "cpu=a processor\nisa=abacus\n" MACHINE);
    assert_int_equal(world.memory_setting, BT_CKPT_MEMORY_OFF); /* No state in memory is kept. */
    assert_int_equal(t.cfg.ckpt.memory, BT_CKPT_MEMORY_AUTO);
    assert_int_equal(n_ranks, 1);
    char host[BT_HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    assert_string_equal(ranks[0].host, host);
    assert_string_equal(ranks[0].isa, "abacus");
    assert_true(ranks[0].rank == 0 && ranks[0].pid == (int)getpid() && ranks[0].threads == 6);
    assert_true(ranks[0].pp == 1 && ranks[0].dp_replicate == 2 && ranks[0].dp_shard == 3 &&
                ranks[0].tp == 4);
    t.telemetry.sink.fact = NULL; /* A sink without a callback for facts is accepted. */
    t.telemetry.sink.ranks = NULL;
    record(false);
    heard_is("");
}

static void a_run_with_every_fact(void **state) {
    (void)state;
    static const bt_isa_agreement isa = {.processors = "abacus on ranks 0-3"};
    begin();
    world.size = 4, world.dp = 2, world.hosts = "aaaa";
    world.sequences = 7;
    world.rank = 0;
    t.telemetry.peak_flops = 1e12;
    t.attempt.isa = &isa;
    t.attempt.memory_states = true;
    world.links[BT_AXIS_DP] = (bt_link){.latency_s = 2e-5, .bytes_per_s = 1.5e9, .tried = true};
    world.links[BT_AXIS_TP] = (bt_link){.tried = true};
    record(true);
    heard_is(MODEL "peak_flops=1000000000000\n"
                   "world_size=4\ncodec=int8\ncomm.budget=off\ndp_size=2\n"
                   "comm.on_host=messages\n" WORK "data.epoch_tokens=224\n" DATA HASH
                   "measured.attempt=2\nmeasured.load=0.25\n"
                   "link.dp.latency_s=2e-05\nlink.dp.bytes_per_s=1.5e+09\n"
                   "link.tp.measured=no: other work on the machine hid the time of the messages\n"
                   "cpu=a processor\nisa=abacus\nisa.processors=abacus on ranks 0-3\n" MACHINE);
    assert_int_equal(world.memory_setting, BT_CKPT_MEMORY_AUTO);
    assert_int_equal(n_ranks, 4);
    for (int r = 0; r < 4; r++) assert_int_equal(ranks[r].rank, r);
}

static void forms_of_single_facts(void **state) {
    (void)state;
    static const struct {
        int how;
        const char *there, *not_there;
    } rows[] = {
        {0, "comm.on_host=memory\n", "comm.on_host=messages"},
        {4, "dp_size=1\n", "comm.on_host"},
        {5, "peak_flops=0.5\n", "link."},
        {7, "measured.attempt=2\nmeasured.load=0.25\ncpu", "link."},
        {8, "data.hash=0000000000abcdef\ncpu", "link."}, /* The rate is unknown. */
        {6, "measured.attempt=2\nmeasured.load=0.25\nlink.dp.measured=no: ", "link.dp.latency_s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        world.dp = rows[i].how == 0 ? 2 : 1;
        world.shares = rows[i].how == 0;
        if (rows[i].how == 5 || rows[i].how == 7) t.telemetry.peak_flops = 0.5;
        if (rows[i].how == 8) world.links[BT_AXIS_PP].bytes_per_s = -1;
        if (rows[i].how == 6) world.links[BT_AXIS_DP].tried = true;
        record(false);
        if (!strstr(bt_text_str(&heard), rows[i].there) ||
            strstr(bt_text_str(&heard), rows[i].not_there))
            fail_msg("row %zu: %s", i, bt_text_str(&heard));
    }
}

/* Tensor-parallel groups consist of neighbouring ranks; groups that span hosts are counted. */
static void groups_on_several_hosts_are_counted(void **state) {
    (void)state;
    static const struct {
        int size, tp, apart;
        const char *hosts;
    } rows[] = {{4, 2, 0, "aabb"}, {4, 2, 1, "abbb"},   {4, 2, 2, "abab"},
                {4, 4, 1, "aaab"}, {6, 3, 1, "aaabba"}, {4, 1, 0, "abcd"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[400] = "";
        begin();
        t.telemetry.sink.fact = NULL;
        world.size = rows[i].size, world.hosts = rows[i].hosts;
        t.mesh.shape.tp = rows[i].tp;
        if (rows[i].apart)
            snprintf(
                want, sizeof want,
                "warning 5 %d of %d tensor-parallel groups span several hosts: the exchanges of "
                "--tp %d cross the network (slots of a host: a multiple of %d; or --dp-shard "
                "instead)\n",
                rows[i].apart, rows[i].size / rows[i].tp, rows[i].tp, rows[i].tp);
        record(false);
        heard_is(want);
        assert_int_equal(n_ranks, rows[i].size);
        /* Only rank 0 receives all ranks. */
        n_ranks = 0;
        world.rank = 1;
        record(false);
        heard_is("");
        assert_int_equal(n_ranks, 0);
    }
    begin();
    world.fails = BT_MPI;
    assert_int_equal(bt_record_facts(&t, false, &err), BT_MPI);
    world.agreed = BT_NOMEM;
    assert_int_equal(bt_record_facts(&t, false, &err), BT_NOMEM);
    heard_is("");
    assert_int_equal(n_ranks, 0);
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_run),
        cmocka_unit_test(a_run_with_every_fact),
        cmocka_unit_test(forms_of_single_facts),
        cmocka_unit_test(groups_on_several_hosts_are_counted),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
