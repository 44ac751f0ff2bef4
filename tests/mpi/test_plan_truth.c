// ctest: ranks=2 timeout=240
/* The memory of a rank equals its plan in every layout: the address space that a trainer adds equals the sum of the
 * plan's rows, and for pipeline stages the resident memory equals each row. */
#include "tests/tiny_run.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/config/rank_setup.h"
#include "engine/islands/island/island.h"
#include "engine/islands/zmq/curve_keys.h"
#include "engine/model/net/net.h"
#include "engine/plan/plan.h"
#include "engine/train/trainer_impl.h"

static double address_space(void) {
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "VmSize:", 7) == 0) kib = strtod(line + 7, NULL);
    fclose(f);
    return kib * 1024;
}

/* Returns the planned address space: the whole arenas of the model (pages of other shards are mapped but not touched)
 * and all rows except the program, which is already in memory. */
static double planned_address_space(const bt_run_cfg *cfg, int rank) {
    bt_arena_row rows[BT_PLAN_MAX];
    bt_model_setup model = bt_run_cfg_setup(cfg, rank);
    double sum = 0;
    size_t n = bt_model_plan(&model, rows, BT_PLAN_MAX);
    for (size_t i = 0; i < n; i++) sum += (double)rows[i].bytes;
    size_t all = bt_plan_memory(cfg, rank, bt_parts_memory, rows);
    for (size_t i = n; i < all; i++)
        if (strcmp(rows[i].name, "program") != 0) sum += (double)rows[i].bytes;
    return sum;
}

static void *no_difference(void *none) { return none; }

/* The C library keeps the stack of an ended thread, here the prefetching reader, for the next thread. Its address space
 * is created before the first measurement. */
static void keep_a_stack(void) {
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, no_difference, NULL), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
}

/* Products read weights as bf16 if this machine has such kernels. */
#define BF16 "--isa", "auto", "--precision", "bf16"

static void a_rank_uses_its_planned_memory(void **state) {
    (void)state;
    static const char *const layouts[][10] = {
        {NULL},
        {"--zero", "1"},
        {"--zero", "3"},
        {"--zero", "3", "--set", "parallel.gather=step"},
        {"--tp", "2"},
        {"--pp", "2"},
        {"--pp", "2", "--virtual-stages", "2"},
        {"--set", "train.reproducible=true", "--set", "train.unit=4"},
        {"--zero", "2", "--optimizer", "lion"},
        {"--set", "optim.states=log8"},
        {"--zero", "3", "--set", "optim.states=bf16"},
        {"--set", "optim.states=log8", "--optimizer", "muon"},
        {"--set", "optim.weights=bf16", "--set", "optim.states=log8"},
        {"--zero", "2", "--set", "optim.weights=bf16"},
        {"--optimizer", "muon"},
        {"--zero", "3", "--optimizer", "muon"},
        {"--tp", "2", "--optimizer", "muon"},
        /* The buckets are so large that the codec's memory exceeds the tolerance. */
        {"--codec", "bf16", "--set", "train.bucket_bytes=33554432"},
        {"--codec", "bf16", "--set", "train.bucket_bytes=33554432", "--zero", "1"},
        {"--codec", "int8"},
        {"--codec", "int8", "--set", "train.bucket_bytes=33554432", "--zero", "2"},
        {"--zero", "3", "--set", "model.linear=dense"},
        {"--zero", "3", "--set", "model.linear=dense", "--set", "parallel.gather=step"},
        {BF16},
        {"--zero", "3", BF16},
        {"--zero", "3", "--set", "model.linear=dense", BF16},
    };
    /* Kernel scratch is planned as part of the program. The first layout with the fastest kernels allocates it, and a
     * later layout only what it needs in addition. Generic kernels need almost none. */
    double scratch = 0;
    keep_a_stack();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *words[48] = {"--set", "model.d_model=512",  "--set", "model.heads=8",
                                 "--set", "model.kv_heads=4",   "--set", "model.d_ff=1024",
                                 "--set", "model.layers=4",     "--set", "model.vocab=4096",
                                 "--set", "train.stats_every=5"};
        size_t n = 14;
        for (size_t k = 0; k < 10 && layouts[i][k]; k++) words[n++] = layouts[i][k];
        bt_run_cfg cfg;
        tiny_cfg(&cfg, words);
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_kernels_select(cfg.launch.isa, &err), BT_OK);
        assert_int_equal(bt_threads_init((int)cfg.launch.threads, &err), BT_OK);
        (void)malloc_trim(0);
        double before = address_space();
        bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
        double took = address_space() - before,
               want = planned_address_space(&cfg, bt_comm_rank(bt_comm_world()));
        if (scratch == 0 && strcmp(cfg.launch.isa, "auto") == 0) {
            scratch = took - want;
            assert_true(scratch > -(1 << 20) && scratch < 20 << 20);
        }
        double off = fmin(fabs(took - want), fabs(took - scratch - want));
        if (!(off < 0.03 * want + (2 << 20)))
            fail_msg("layout %zu: took %.1f MiB of address space, %.1f by the plan", i,
                     took / 1048576, want / 1048576);
        bt_trainer_destroy(t);
        bt_threads_release();
    }
}

/* Returns the resident bytes of a mapping. */
static double resident_bytes(void *at, size_t total) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (total + page - 1) / page;
    unsigned char *here = malloc(pages + 1);
    double bytes = 0;
    assert_non_null(here);
    if (total > 0) assert_int_equal(mincore(at, total, here), 0);
    for (size_t i = 0; i < pages; i++) bytes += (here[i] & 1) * (double)page;
    free(here);
    return bytes;
}

/* Returns the resident bytes of the latent weights. */
static double latent_bytes(bt_model *m) {
    const bt_params *p = bt_model_params(m);
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (size_t k = 0; k < p->n; k++) {
        const bt_latent w = bt_model_latent(m, k);
        const uintptr_t from = (uintptr_t)w.at,
                        to = (uintptr_t)bt_latent_at(w, p->tensors[k].count);
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    return resident_bytes((void *)begin, end - begin);
}

static double resident_here(void) {
    unsigned long long pages = 0, here = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &pages, &here), 2);
    fclose(f);
    return (double)here * (double)sysconf(_SC_PAGESIZE);
}

static double row_bytes(const bt_arena_row *rows, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return (double)rows[i].bytes;
    return 0;
}

/* The model is so wide that its memory exceeds that of any process. */
#define WIDE_MODEL \
    "--set", "model.d_model=512", "--set", "model.d_ff=1024", "--set", "model.vocab=4096", \
        "--set", "model.heads=8", "--set", "model.kv_heads=4", "--batch-tokens", "128"

/* After some steps the resident memory of a pipeline stage equals its plan: the model's arenas page by page, and the
 * remaining rows together. */
static void rows_of_a_stage_are_resident(void **state) {
    (void)state;
    static const char *const layouts[][6] = {
        /* The first run allocates kernel scratch and pages of libraries. */
        {"--micro-batch", "1"},
        {"--pp", "2", "--micro-batch", "1"},
        {"--pp", "2", "--micro-batch", "4"},
        {"--pp", "2", "--micro-batch", "1", "--virtual-stages", "2"},
        {"--pp", "2", "--micro-batch", "1", "--recompute", "full"},
    };
    const int rank = bt_comm_rank(bt_comm_world());
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *words[48] = {WIDE_MODEL, "--set", "model.layers=4", "--isa", "auto",
                                 "--steps",  "2"};
        size_t n = 18;
        for (size_t k = 0; k < 6 && layouts[i][k]; k++) words[n++] = layouts[i][k];
        bt_run_cfg cfg;
        bt_train_result r;
        bt_arena_row rows[BT_PLAN_MAX];
        bt_err err = BT_ERR_INIT;
        tiny_cfg(&cfg, words);
        (void)malloc_trim(0);
        const double before = resident_here();
        bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
        assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
        const double all = resident_here() - before;
        n = bt_plan_memory(&cfg, rank, bt_parts_memory, rows);
        const bt_model *m = bt_trainer_model(t);
        const bt_arena *const arenas[] = {&m->params_arena, &m->grads_arena, &m->quant_arena,
                                          &m->acts_arena, &m->scratch_arena};
        double rest = all, planned_rest = 0;
        for (size_t k = 0; k < sizeof arenas / sizeof *arenas; k++) {
            const double got = resident_bytes(arenas[k]->base, arenas[k]->bytes),
                         want = row_bytes(rows, n, arenas[k]->name);
            rest -= got;
            planned_rest -= want;
            if (!(got > 0.95 * want - (64 << 10) && got < 1.05 * want + (64 << 10)))
                fail_msg("rank %d, layout %zu: %.2f MiB of '%s' are in memory, planned %.2f", rank,
                         i, got / 1048576, arenas[k]->name, want / 1048576);
        }
        for (size_t k = 0; k < n; k++)
            planned_rest += strcmp(rows[k].name, "program") == 0 ? 0 : (double)rows[k].bytes;
        if (i > 0 && !(fabs(rest - planned_rest) < 0.05 * planned_rest + (1 << 20)))
            fail_msg("rank %d, layout %zu: %.2f MiB beside the model are in memory, planned %.2f",
                     rank, i, rest / 1048576, planned_rest / 1048576);
        bt_trainer_destroy(t);
        bt_threads_release();
    }
}

/* Resets the maximum of this process's resident memory; returns false if the system does not support that. */
static bool begin_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return false;
    const bool written = fputs("5", f) >= 0;
    return fclose(f) == 0 && written;
}

static double peak_bytes(void) {
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtod(line + 6, NULL);
    fclose(f);
    return kib * 1024;
}

/* The plan includes memory that a part of the trainer needs only at times: the maximum resident memory of a run equals
 * the sum of the rows, and differs from the sum without the row of that part. */
static void peaks_of_parts_are_planned(void **state) {
    (void)state;
    char out[] = "/tmp/bt-plan-truth-XXXXXX", command[64];
    bt_err no_out = BT_ERR_INIT;
    assert_true(bt_comm_rank(bt_comm_world()) != 0 || mkdtemp(out));
    assert_int_equal(bt_broadcast(bt_comm_world(), out, sizeof out, 0, &no_out), BT_OK);
    const struct {
        const char *row, *words[9];
    } parts[] = {
        {NULL, {NULL}}, /* The first run allocates kernel scratch and pages of libraries. */
        {"switch", {"--set", "train.dense_steps=1"}},
        {"checkpoint",
         {"--out", out, "--ckpt-every", "1", "--set", "ckpt.async=true", "--set",
          "ckpt.memory=off"}},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *words[48] = {WIDE_MODEL, "--steps", "3", "--micro-batch", "1", "--isa", "auto"};
        size_t n = 18;
        for (size_t k = 0; k < 8 && parts[i].words[k]; k++) words[n++] = parts[i].words[k];
        bt_run_cfg cfg;
        bt_train_result r;
        bt_arena_row rows[BT_PLAN_MAX];
        bt_err err = BT_ERR_INIT;
        tiny_cfg(&cfg, words);
        (void)malloc_trim(0);
        const bool measured = begin_peak();
        const double before = resident_here();
        bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
        assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
        const double most = peak_bytes() - before;
        bt_trainer_destroy(t);
        bt_threads_release();
        if (!measured || !parts[i].row) continue;
        n = bt_plan_memory(&cfg, bt_comm_rank(bt_comm_world()), bt_parts_memory, rows);
        const double own = row_bytes(rows, n, parts[i].row);
        double want = 0;
        for (size_t k = 0; k < n; k++)
            want += strcmp(rows[k].name, "program") == 0 ? 0 : (double)rows[k].bytes;
        if (!(own > 0.01 * want && most > want - own / 2 && most < want + own / 2))
            fail_msg("'%s': at most %.1f MiB are in memory, planned %.1f with %.1f in this row",
                     parts[i].row, most / 1048576, want / 1048576, own / 1048576);
    }
    snprintf(command, sizeof command, "rm -rf %s", out);
    if (bt_comm_rank(bt_comm_world()) == 0) assert_int_equal(system(command), 0);
}

/* On every rank an island holds the whole model, and on the first rank also the exchange with the hub. */
static void an_island_uses_its_planned_memory(void **state) {
    (void)state;
    static const char *const modes[][5] = {
        {"--mode", "sync"},
        {"--mode", "diloco"},
        {"--mode", "diloco", "--codec", "int8"},
    };
    char dir[] = "/tmp/bt-plan-island-XXXXXX", key[64], command[64];
    bool made;
    bt_err err = BT_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    if (bt_curve_make(dir, "a", &made, &err) != BT_OK) fail_msg("%s", err.msg);
    snprintf(key, sizeof key, "%s/a.key", dir);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const char *words[48] = {WIDE_MODEL,    "--micro-batch", "2", "--hub",
                                 "127.0.0.1:9", "--keys",        key};
        size_t n = 18;
        bt_run_cfg cfg, alone;
        bt_rank_setup setup;
        bt_island *island;
        bt_arena_row rows[BT_PLAN_MAX];
        for (size_t k = 0; k < 5 && modes[i][k]; k++) words[n++] = modes[i][k];
        tiny_cfg(&cfg, words);
        tiny_cfg(&alone, (const char *const[]){WIDE_MODEL, "--micro-batch", "2", NULL});
        bt_trainer *t = tiny_create(&alone, NULL, NULL, "");
        const size_t before = mallinfo2().hblkhd; /* bytes of large allocations */
        const bt_island_cfg island_cfg = {
            .cfg = &cfg, .update = &t->update, .world = t->mesh.world};
        if (bt_island_create(&island, &island_cfg, &err) != BT_OK) fail_msg("%s", err.msg);
        const double took = (double)(mallinfo2().hblkhd - before);
        bt_island_destroy(island);
        bt_trainer_destroy(t);
        bt_threads_release();
        if (bt_rank_setup_init(&setup, &cfg, bt_comm_rank(bt_comm_world()), &err) != BT_OK)
            fail_msg("%s", err.msg);
        n = bt_parts_memory(&setup, rows);
        bt_rank_setup_release(&setup);
        const double want = row_bytes(rows, n, "island");
        if (!(want > 0 && fabs(took - want) < 0.03 * want + (1 << 20)))
            fail_msg("mode %zu: an island took %.1f MiB, planned %.1f", i, took / 1048576,
                     want / 1048576);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* After a step the resident latent weights equal the plan: with ZeRO-3 they are the rank's shard and the norms,
 * including embedding and head if those are read as bf16. */
static void resident_latent_weights_equal_the_plan(void **state) {
    (void)state;
    static const char *const layouts[][8] = {
        {"--zero", "2"},
        {"--zero", "3"},
        {"--zero", "3", BF16},
        {"--zero", "2", "--set", "optim.weights=bf16"},
        {"--zero", "3", "--set", "optim.weights=bf16"},
        {"--zero", "2", "--set", "model.linear=dense"},
        {"--zero", "3", "--set", "model.linear=dense"},
        {"--zero", "3", "--set", "model.linear=dense", BF16},
    };
    double planned_bytes[sizeof layouts / sizeof *layouts];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *words[48] = {WIDE_MODEL, "--steps", "1", "--micro-batch", "2", "--isa", "auto"};
        size_t n = 18;
        for (size_t k = 0; k < 8 && layouts[i][k]; k++) words[n++] = layouts[i][k];
        bt_run_cfg cfg;
        bt_train_result r;
        bt_arena_row rows[BT_PLAN_MAX];
        bt_err err = BT_ERR_INIT;
        tiny_cfg(&cfg, words);
        bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
        assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
        bt_plan_memory(&cfg, bt_comm_rank(bt_comm_world()), bt_parts_memory, rows);
        assert_string_equal(rows[0].name, "params");
        double got = latent_bytes(bt_trainer_model(t)),
               want = planned_bytes[i] = (double)rows[0].bytes;
        if (!(got > 0.97 * want && got < 1.03 * want + (1 << 18)))
            fail_msg("layout %zu: %.2f MiB of latent weights here, %.2f by the plan", i,
                     got / 1048576, want / 1048576);
        bt_trainer_destroy(t);
        bt_threads_release();
    }
    /* Two ranks divide all dense layers, and the embedding if it is read as bf16. */
    assert_true(planned_bytes[6] < 0.8 * planned_bytes[5]);
    if (bt_kernels_multiply_bf16()) assert_true(planned_bytes[7] < 0.56 * planned_bytes[5]);
    assert_true(planned_bytes[3] < 0.8 * planned_bytes[0]);
}

int main(void) {
    /* Memory that one layout frees must not serve the next layout; without this setting glibc would raise its threshold
     * for mapping memory. */
    if (mallopt(M_MMAP_THRESHOLD, 1 << 17) != 1) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_uses_its_planned_memory),
        cmocka_unit_test(rows_of_a_stage_are_resident),
        cmocka_unit_test(resident_latent_weights_equal_the_plan),
        cmocka_unit_test(peaks_of_parts_are_planned),
        cmocka_unit_test(an_island_uses_its_planned_memory),
    };
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
