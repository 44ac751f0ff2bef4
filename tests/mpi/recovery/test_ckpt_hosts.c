// ctest: ranks=2
/* Checkpoints on hosts with separate folders: all ranks load the newest checkpoint in rank 0's folder that every rank
 * has complete and equal, and report why they skipped newer ones. The relative name of the folder is the same on both
 * ranks, whose working directories differ. */
#include <sys/stat.h>

#include "tests/engine/ckpt/ckpt_world.h"

static char base[64];
static bt_comm *alone;

static int own_rank(void) { return bt_comm_rank(bt_comm_world()); }

static void wait_for_both(void) {
    bt_err err = BT_ERR_INIT;
    check_ok(bt_barrier(bt_comm_world(), &err), &err);
}

static void run_shell(const char *command) {
    if (system(command) != 0) fail_msg("%s", command);
}

static void clear_folder(void) {
    wait_for_both();
    run_shell("rm -rf out && mkdir out");
    wait_for_both();
}

static void save_alone(int64_t step) {
    static float x[100];
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_ckpt_slice slice = {"w", "weight", 100, 0, 100, x, 0, 0, BT_CKPT_F32, false};
    for (int i = 0; i < 100; i++) x[i] = (float)(step + own_rank() + i);
    fill_meta(&meta, step, 0);
    const bt_ckpt_job job = {.dir = "out", .meta = &meta, .slices = &slice, .n = 1, .keep = 9};
    check_ok(bt_ckpt_save(alone, &job, NULL, &err), &err);
    bt_ckpt_meta_release(&meta);
}

static void copy_to_other(void) {
    wait_for_both();
    if (own_rank() == 1) run_shell("rm -rf out && cp -r ../0/out out");
    wait_for_both();
}

/* Searches on both ranks; checks the code, the path and, on rank 0, the reasons for skipping. */
static bt_code find_both(char *path, bt_text *why, bt_err *err) {
    bt_ckpt_meta meta;
    bt_err ignored = BT_ERR_INIT;
    char seen[PATH_MAX] = "";
    *err = (bt_err)BT_ERR_INIT;
    path[0] = '\0';
    bt_text_init(why);
    bt_code code = bt_ckpt_find(bt_comm_world(), "out", path, PATH_MAX, &meta, why, err);
    if (code == BT_OK) bt_ckpt_meta_release(&meta);
    snprintf(seen, sizeof seen, "%d %.1000s %.200s", (int)code, path, err->msg);
    check_ok(bt_broadcast(bt_comm_world(), seen, sizeof seen, 0, &ignored), &ignored);
    char mine[PATH_MAX];
    snprintf(mine, sizeof mine, "%d %.1000s %.200s", (int)code, path, err->msg);
    assert_string_equal(mine, seen);
    return code;
}

static void expect_file(const char *want, const char *reason) {
    char path[PATH_MAX];
    bt_text why;
    bt_err err;
    check_ok(find_both(path, &why, &err), &err);
    assert_string_equal(path, want);
    if (reason && !strstr(bt_text_str(&why), reason))
        fail_msg("rank %d: '%s' does not contain '%s'", own_rank(), bt_text_str(&why), reason);
    if (!reason) assert_string_equal(bt_text_str(&why), "");
    bt_text_release(&why);
}

static void refuse_checkpoint(bt_code want, const char *says) {
    char path[PATH_MAX];
    bt_text why;
    bt_err err;
    assert_int_equal(find_both(path, &why, &err), want);
    if (!strstr(err.msg, says))
        fail_msg("rank %d: '%s' does not contain '%s'", own_rank(), err.msg, says);
    bt_text_release(&why);
}

static void the_same_on_both_is_taken(void **state) {
    (void)state;
    clear_folder();
    if (own_rank() == 0) save_alone(10);
    copy_to_other();
    expect_file("out/step-000000000010", NULL);
}

/* Each rank saved a different checkpoint with the same step and name. */
static void a_different_checkpoint_with_the_same_name_is_skipped(void **state) {
    (void)state;
    clear_folder();
    if (own_rank() == 0) save_alone(10);
    copy_to_other();
    save_alone(20);
    expect_file(
        "out/step-000000000010",
        "step-000000000020 passed over (rank 1): 'out/step-000000000020' is another checkpoint "
        "on this host than on the host of rank 0");
    clear_folder();
    save_alone(20);
    refuse_checkpoint(BT_FORMAT, "is another checkpoint on this host than on the host of rank 0");
}

static void one_that_a_rank_lacks_is_skipped(void **state) {
    (void)state;
    clear_folder();
    if (own_rank() == 0) save_alone(10);
    copy_to_other();
    if (own_rank() == 0) save_alone(20);
    wait_for_both();
    expect_file("out/step-000000000010", "step-000000000020 passed over (rank 1): ");
    /* Rank 0's folder lacks this checkpoint, so it is not considered. */
    if (own_rank() == 0) run_shell("rm -rf out/step-000000000020");
    if (own_rank() == 1) save_alone(30);
    wait_for_both();
    expect_file("out/step-000000000010", NULL);
    if (own_rank() == 0) run_shell("rm -rf out/step-*");
    wait_for_both();
    refuse_checkpoint(BT_NOTFOUND, "no checkpoint in 'out'");
}

/* The file is damaged on the host of the rank that verifies it. */
static void a_checkpoint_damaged_on_one_rank_is_skipped(void **state) {
    (void)state;
    clear_folder();
    if (own_rank() == 0) save_alone(10);
    copy_to_other();
    if (own_rank() == 0) {
        save_alone(20);
        run_shell("printf x | dd of=$(ls out/step-000000000020/data-*) bs=1 seek=400 conv=notrunc "
                  "status=none");
    }
    wait_for_both();
    if (own_rank() == 1) run_shell("rm -rf out && cp -r ../0/out out");
    wait_for_both();
    expect_file("out/step-000000000010", "step-000000000020 passed over (rank 0): ");
}

/* Only rank 0 has the folder. */
static void a_rank_without_the_folder_is_reported(void **state) {
    (void)state;
    clear_folder();
    if (own_rank() == 0) save_alone(10);
    if (own_rank() == 1) run_shell("rm -rf out");
    wait_for_both();
    refuse_checkpoint(BT_FORMAT, "no checkpoint in 'out' can be used");
    if (own_rank() == 0) run_shell("rm -rf out");
    if (own_rank() == 1) save_alone(10);
    wait_for_both();
    refuse_checkpoint(BT_NOTFOUND, "cannot open checkpoint folder 'out'");
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    char own[80];
    if (bt_comm_init(&err) != BT_OK) return 1;
    strcpy(base, "/tmp/bt-ckpt-hosts-XXXXXX");
    if (own_rank() == 0 && !mkdtemp(base)) bt_comm_abort(1);
    if (bt_broadcast(bt_comm_world(), base, sizeof base, 0, &err) != BT_OK) return 1;
    snprintf(own, sizeof own, "%s/%d", base, own_rank());
    if (mkdir(own, 0700) != 0 || chdir(own) != 0 ||
        bt_comm_split(&alone, bt_comm_world(), own_rank(), 0, &err) != BT_OK)
        bt_comm_abort(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_on_both_is_taken),
        cmocka_unit_test(a_different_checkpoint_with_the_same_name_is_skipped),
        cmocka_unit_test(one_that_a_rank_lacks_is_skipped),
        cmocka_unit_test(a_checkpoint_damaged_on_one_rank_is_skipped),
        cmocka_unit_test(a_rank_without_the_folder_is_reported),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (rc) bt_comm_abort(1); /* The other rank may wait for this rank, so the job is aborted. */
    wait_for_both();
    if (own_rank() == 0) {
        snprintf(own, sizeof own, "rm -rf '%s'", base);
        rc = system(own);
    }
    bt_comm_free(alone);
    bt_comm_finalize();
    return rc;
}
