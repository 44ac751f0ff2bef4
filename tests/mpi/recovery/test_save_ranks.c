// ctest: ranks=4
/* Each rank writes its own file of a checkpoint. A save that fails on one rank fails on all with the same error, and
 * the previous checkpoint loads. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <math.h>

#include "engine/ckpt/format.h"

enum { RANKS = 4, EACH = 100, ALL = RANKS * EACH, SILENT = 1 }; /* Rank SILENT has no data. */

static char base[64];
static float values[ALL];

static int own_rank(void) { return bt_comm_rank(bt_comm_world()); }

static bt_code save_on_ranks(const char *dir, int64_t step, int attempt, bt_ckpt_saved *out,
                             bt_err *err) {
    bt_ckpt_meta meta;
    const bt_ckpt_slice own = {
        "w", "weight",    ALL,  (uint64_t)(own_rank() * EACH), EACH, values + own_rank() * EACH, 0,
        0,   BT_CKPT_F32, false};
    fill_meta(&meta, step, attempt);
    const bt_ckpt_job job = {
        .dir = dir, .meta = &meta, .slices = &own, .n = own_rank() != SILENT, .keep = 2};
    *err = (bt_err)BT_ERR_INIT;
    const bt_code code = bt_ckpt_save(bt_comm_world(), &job, out, err);
    bt_ckpt_meta_release(&meta);
    return code;
}

/* Checks that all ranks find the checkpoint of this step as the newest. */
static void newest_is(int64_t step) {
    bt_ckpt_meta meta = {0};
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX];
    check_ok(bt_ckpt_find(bt_comm_world(), base, path, sizeof path, &meta, NULL, &err), &err);
    assert_int_equal(meta.step, step);
    bt_ckpt_meta_release(&meta);
}

static void each_rank_writes_its_own(void **state) {
    (void)state;
    bt_err err;
    bt_ckpt_saved saved;
    ckpt_manifest m;
    static const int writers[] = {0, 2, 3};
    check_ok(save_on_ranks(base, 100, 0, &saved, &err), &err);
    check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
    assert_true(m.world_size == RANKS && m.n_files == RANKS - 1 && m.meta.step == 100);
    assert_string_equal(saved.hash, m.seal);
    for (size_t i = 0; i < m.n_files; i++) assert_int_equal(m.files[i].rank, writers[i]);
    ckpt_manifest_release(&m);
    for (int r = 0; r < RANKS; r++) {
        float back[EACH];
        const bt_ckpt_slice one = {"w",  "weight", ALL, (uint64_t)(r * EACH), EACH,
                                   back, 0,        0,   BT_CKPT_F32,          false};
        assert_int_equal(bt_ckpt_load(saved.path, &one, 1, &err) == BT_OK, r != SILENT);
        if (r != SILENT) assert_memory_equal(back, values + r * EACH, sizeof back);
    }
}

static void an_error_of_one_rank_is_that_of_all(void **state) {
    (void)state;
    static const struct {
        int rank, attempt;
        bool not_finite;
        bt_code code;
    } rows[] = {{0, 0, true, BT_DAMAGED},
                {3, 0, true, BT_DAMAGED},
                {0, 0, false, BT_IO},
                {2, 0, false, BT_IO},
                {-1, 2, false, BT_BUSY}}; /* A later attempt (3) uses the folder. */
    bt_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool here = rows[i].rank == own_rank();
        const float before = values[own_rank() * EACH + 7];
        if (here && rows[i].not_finite) values[own_rank() * EACH + 7] = NAN;
        if (rows[i].attempt && own_rank() == 0) check_ok(bt_ckpt_begin(base, 3, &err), &err);
        const char *dir = here && !rows[i].not_finite ? "/proc/none" : base;
        assert_int_equal(save_on_ranks(dir, 200, rows[i].attempt, NULL, &err), rows[i].code);
        assert_int_equal(err.rank, rows[i].rank < 0 ? 0 : rows[i].rank);
        values[own_rank() * EACH + 7] = before;
        newest_is(100);
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    char cmd[128];
    if (bt_comm_init(&err) != BT_OK) return 1;
    strcpy(base, "/tmp/bt-save-XXXXXX");
    if (own_rank() == 0 && !mkdtemp(base)) bt_comm_abort(1);
    if (bt_broadcast(bt_comm_world(), base, sizeof base, 0, &err) != BT_OK) return 1;
    for (int i = 0; i < ALL; i++) values[i] = (float)i / 8;
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_rank_writes_its_own),
                                       cmocka_unit_test(an_error_of_one_rank_is_that_of_all)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (bt_barrier(bt_comm_world(), &err) != BT_OK) rc = 1;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", base);
    if (own_rank() == 0 && system(cmd) != 0) rc = 1;
    bt_comm_finalize();
    return rc;
}
