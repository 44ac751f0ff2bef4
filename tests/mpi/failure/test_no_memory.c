// ctest: ranks=2
/* One rank's allocation fails while a training is resumed or its layers become ternary; the test tries every third
 * allocation of this program. Both ranks return the same error, and no rank waits forever. A checkpoint is not skipped
 * because memory was refused. */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/parallel/mpi/comm.h"
#include "engine/train/trainer_impl.h"
#include "tests/tiny_run.h"

#if defined(__SANITIZE_ADDRESS__)
#define OWN_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_MEMORY 0
#endif
#endif
#ifndef OWN_MEMORY
#define OWN_MEMORY 1
#endif

enum { EACH = 3 }; /* 1: tries all allocations */

/* number of allocations since the count began (-1: not counting), and the one to refuse */
static _Atomic int64_t asked = -1, refused = -1;
static const void *own_program;

/* Refuses only allocations of this program, not those of MPI and other libraries. */
static bool refuse_own_allocation(const void *caller) {
    Dl_info at;
    if (asked < 0 || !dladdr(caller, &at) || at.dli_fbase != own_program) return false;
    return asked++ == refused;
}

#if OWN_MEMORY
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n) {
    return refuse_own_allocation(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    return refuse_own_allocation(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    return refuse_own_allocation(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    if (refuse_own_allocation(__builtin_return_address(0))) return MAP_FAILED;
    const long got = syscall(SYS_mmap, at, n, prot, flags, fd, offset);
    return (void *)got;
}
#endif

static int own_rank(void) { return bt_comm_rank(bt_comm_world()); }

static void begin_counting(int64_t which) {
    asked = 0;
    refused = own_rank() == 1 ? which : -1;
}

/* Ends the counting; returns whether the chosen allocation was refused. */
static bool end_counting(void) {
    const bool hit = refused >= 0 && asked > refused;
    asked = -1;
    return hit;
}

/* Checks that both ranks return the same code: success or lack of memory. Returns whether rank 1 reached the chosen
 * allocation. */
static bool check_equal_codes(bt_code code, const bt_err *err, bool hit, int64_t which) {
    bt_err why = BT_ERR_INIT;
    int64_t same[3] = {code, -(int64_t)code, hit};
    assert_int_equal(bt_all_reduce_i64(bt_comm_world(), same, 3, BT_MAX, &why), BT_OK);
    if (same[0] != -same[1])
        fail_msg("allocation %lld: rank %d returns %d '%s'", (long long)which, own_rank(),
                 (int)code, err->msg);
    if (code != BT_OK && code != BT_NOMEM)
        fail_msg("allocation %lld: %d '%s'", (long long)which, (int)code, err->msg);
    return same[2] > 0;
}

static bt_trainer *made; /* trainer that the functions below create */
static const char *folder;

static bt_code create_trainer(const bt_run_cfg *cfg, const char *resume_dir, bt_err *err) {
    static int attempt;
    const bt_trainer_setup s = {.cfg = cfg, .resume_dir = resume_dir, .attempt = ++attempt};
    return bt_trainer_create(&made, &s, err);
}

static void must(bt_code code, const bt_err *err) {
    if (code != BT_OK) fail_msg("rank %d: %s", own_rank(), err->msg);
}

static bt_code resume_created_run(const bt_run_cfg *cfg, bt_err *err) {
    return create_trainer(cfg, folder, err);
}

static bt_code turn_ternary(const bt_run_cfg *cfg, bt_err *err) {
    (void)cfg;
    return bt_parts_before_step(made, err);
}

static void make_layers_ternary(const bt_run_cfg *cfg) {
    bt_err err = BT_ERR_INIT;
    double step_s;
    must(create_trainer(cfg, "", &err), &err);
    must(bt_trainer_steps(made, 1, &step_s, &err), &err);
}

/* before: called with all allocations granted; may be NULL */
static void refuse_each(const bt_run_cfg *cfg, void (*before)(const bt_run_cfg *cfg),
                        bt_code (*run)(const bt_run_cfg *cfg, bt_err *err)) {
    int64_t which = 0, errors = 0;
    for (bool more = true; more; which += EACH) {
        bt_err err = BT_ERR_INIT;
        if (before) before(cfg);
        begin_counting(which);
        const bt_code code = run(cfg, &err);
        more = check_equal_codes(code, &err, end_counting(), which);
        errors += code != BT_OK;
        bt_trainer_destroy(made);
        made = NULL;
    }
    if (OWN_MEMORY) assert_true(errors > 50 / EACH);
}

static void a_run_is_resumed(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    bt_train_result r;
    TINY(&cfg, "--out", folder, "--optimizer", "muon", "--zero", "2", "--steps", "3",
         "--ckpt-every", "2", "--set", "train.stats_every=0");
    must(create_trainer(&cfg, "", &err), &err);
    must(bt_trainer_run(made, &r, &err), &err);
    bt_trainer_destroy(made);
    made = NULL;
    refuse_each(&cfg, NULL, resume_created_run);
}

static void layers_become_ternary(void **state) {
    (void)state;
    bt_run_cfg cfg;
    TINY(&cfg, "--set", "train.dense_steps=1", "--optimizer", "muon", "--batch-tokens", "64",
         "--micro-batch", "1", "--set", "train.stats_every=0");
    refuse_each(&cfg, make_layers_ternary, turn_ternary);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    Dl_info at;
    char dir[64] = "/tmp/bitrain-nomem-XXXXXX", command[96];
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_is_resumed),
                                       cmocka_unit_test(layers_become_ternary)};
    if (!dladdr((void *)(uintptr_t)main, &at)) return 3;
    own_program = at.dli_fbase;
    if (bt_comm_init(&err) != BT_OK || bt_kernels_select("generic", &err) != BT_OK ||
        bt_threads_init(1, &err) != BT_OK || (own_rank() == 0 && !mkdtemp(dir)) ||
        bt_broadcast(bt_comm_world(), dir, sizeof dir, 0, &err) != BT_OK)
        return 3;
    folder = dir;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (own_rank() == 0 && system(command) != 0) return 3;
    bt_threads_release();
    bt_comm_finalize();
    return failed;
}
