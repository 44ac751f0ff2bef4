// ctest: ranks=3
/* test_layout.c - each of three ranks writes a third of a checkpoint, and any slices can be loaded; a failure on one
 * rank fails the save on all ranks and leaves no files. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/ckpt/ckpt.h"
#include "engine/ckpt/save_async.h"

#define CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "%s:%d: rank %d: %s: %s\n", __FILE__, __LINE__, \
                    bt_comm_rank(bt_comm_world()), #x, err.msg); \
            bt_comm_abort(1); \
        } \
    } while (0)

#define CHECK_CODE(x) \
    do { \
        if ((x) != BT_OK) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, err->msg); \
            bt_comm_abort(1); \
        } \
    } while (0)

enum { N = 10007 };

/* Saves in stages that the ranks finish at the same time, as a training does. */
static bt_code save_beside(bt_comm *c, bt_ckpt_job *job, int64_t step, bt_ckpt_saved *saved,
                           bt_err *err) {
    bt_ckpt_meta meta = {.step = step};
    bt_ckpt_async *a;
    bool finished = false;
    strcpy(meta.run, "layout");
    CHECK_CODE(bt_ckpt_async_create(&a, bt_ckpt_copy_bytes(job->slices, job->n), err));
    bt_code code = bt_ckpt_async_start(a, c, job, &meta, err);
    for (int steps = 0; code == BT_OK && !finished; steps++) {
        int64_t busy = bt_ckpt_async_busy(a);
        CHECK_CODE(bt_all_reduce_i64(c, &busy, 1, BT_MAX, err));
        if (!busy) code = bt_ckpt_async_advance(a, &finished, saved, err);
    }
    bt_ckpt_async_destroy(a);
    bt_ckpt_meta_release(&meta);
    return code;
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    bt_comm *c = bt_comm_world();
    const int rank = bt_comm_rank(c), size = bt_comm_size(c);
    char dir[64] = "/tmp/bt-layout-XXXXXX", path[PATH_MAX], found[PATH_MAX];
    if (rank == 0) CHECK(mkdtemp(dir));
    CHECK(bt_broadcast(c, dir, sizeof dir, 0, &err) == BT_OK);

    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    const uint64_t from = (uint64_t)(N * rank / size), to = (uint64_t)(N * (rank + 1) / size);
    bt_ckpt_slice mine = {"embed",  "weight", N, from,        to - from,
                          x + from, 0,        0, BT_CKPT_F32, false};
    bt_ckpt_meta meta = {0};
    meta.step = 5;
    strcpy(meta.run, "layout");
    if (rank == 0) CHECK(bt_ckpt_begin(dir, 0, &err) == BT_OK);
    CHECK(bt_barrier(c, &err) == BT_OK);
    bt_ckpt_saved saved;
    bt_ckpt_job job = {.dir = dir, .meta = &meta, .slices = &mine, .n = 1, .keep = 2};
    CHECK(bt_ckpt_save(c, &job, &saved, &err) == BT_OK);
    CHECK(saved.bytes > (int64_t)sizeof x);
    strcpy(path, saved.path);
    CHECK(bt_ckpt_find(c, dir, found, sizeof found, NULL, NULL, &err) == BT_OK &&
          strcmp(path, found) == 0);
    /* The loaded slices differ from the saved ones. */
    const uint64_t a = (uint64_t)(rank * 1000 + 17), n = 7001;
    bt_ckpt_slice want = {"embed", "weight", N, a, n, y, 0, 0, BT_CKPT_F32, false};
    CHECK(bt_ckpt_load(found, &want, 1, &err) == BT_OK);
    CHECK(memcmp(y, x + a, n * sizeof *x) == 0);

    meta.step = 6;
    bt_ckpt_slice whole = {"embed", "weight", N, 0, N, x, 0, 0, BT_CKPT_F32, false};
    job.slices = &whole;
    job.n = rank == 0 ? 1 : 0;
    job.keep = 3;
    CHECK(bt_ckpt_save(c, &job, &saved, &err) == BT_OK);
    CHECK(bt_ckpt_load(saved.path, &want, 1, &err) == BT_OK);

    /* A save during training writes the same file although the arrays change meanwhile. */
    memset(&saved, 0, sizeof saved);
    job.slices = &mine;
    job.n = 1;
    CHECK(save_beside(c, &job, 6, &saved, &err) == BT_OK);
    CHECK(strstr(saved.path, "step-000000000006") && saved.bytes > (int64_t)sizeof x);
    memset(y, 0, sizeof y);
    CHECK(bt_ckpt_load(saved.path, &want, 1, &err) == BT_OK);
    CHECK(memcmp(y, x + a, n * sizeof *x) == 0);

    /* The last rank cannot write: all ranks return the error, no files remain, and the older checkpoint remains the
     * newest. */
    meta.step = 7;
    bt_ckpt_slice bad = mine;
    char name[80];
    memset(name, 'n', sizeof name - 1);
    name[79] = '\0';
    if (rank == size - 1) bad.tensor = name;
    job.slices = &bad;
    job.n = 1;
    job.keep = 2;
    struct stat st;
    snprintf(path, sizeof path, "%s/step-000000000007", dir);
    for (int beside = 0; beside < 2; beside++) {
        err = (bt_err)BT_ERR_INIT;
        CHECK((beside ? save_beside(c, &job, 7, &saved, &err)
                      : bt_ckpt_save(c, &job, &saved, &err)) == BT_ARG);
        CHECK(strstr(err.msg, "too long"));
        CHECK(bt_barrier(c, &err) == BT_OK);
        CHECK(stat(path, &st) != 0);
    }

    /* The data of rank 1 are damaged: every rank loads the older checkpoint and gets the reason. */
    if (rank == 0) {
        char cmd[256];
        snprintf(cmd, sizeof cmd,
                 "f=$(ls %s/step-000000000005/data-00001-*); printf X | dd of=$f bs=1 seek=300 "
                 "conv=notrunc status=none; rm -r %s/step-000000000006",
                 dir, dir);
        CHECK(system(cmd) == 0);
    }
    CHECK(bt_barrier(c, &err) == BT_OK);
    CHECK(bt_ckpt_find(c, dir, found, sizeof found, NULL, NULL, &err) == BT_FORMAT);
    CHECK(strstr(err.msg, "data-00001"));
    CHECK(bt_barrier(c, &err) == BT_OK);
    if (rank == 0) {
        char cmd[128];
        snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
        CHECK(system(cmd) == 0);
    }
    bt_ckpt_meta_release(&meta);
    bt_comm_finalize();
    return 0;
}
