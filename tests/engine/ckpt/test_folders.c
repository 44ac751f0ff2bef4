/* test_folders.c - folders of checkpoints: replacement of files, names and order of checkpoints, removal of old ones,
 * the link to the best one, protection against older attempts (the fence), and folders of states in memory. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "engine/base/system/folders.h"
#include "engine/ckpt/ckpt_list.h"
#include "engine/ckpt/memory/memory_state.h"
#include "tests/message.h"

static void write_small_file(const char *folder, const char *name, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void expect_text(const char *folder, const char *name, const char *text) {
    char path[PATH_MAX], *data = NULL;
    bt_err err = BT_ERR_INIT;
    size_t n;
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    check_ok(ckpt_slurp(path, 1 << 20, &data, &n, &err), &err);
    assert_string_equal(data, text);
    free(data);
}

static int compare_names(const void *a, const void *b) { return strcmp(a, b); }

/* Writes the sorted names of a folder's entries, each followed by a blank. */
static void list_names(const char *folder, char out[1000]) {
    char names[16][64];
    size_t n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) && n < 16;)
        if (e->d_name[0] != '.') snprintf(names[n++], sizeof *names, "%.63s", e->d_name);
    closedir(d);
    qsort(names, n, sizeof *names, compare_names);
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) strcat(strcat(out, names[i]), " ");
}

static void expect_listing(const char *folder, const char *names) {
    char got[1000];
    list_names(folder, got);
    assert_string_equal(got, names);
}

typedef struct looks { /* state of the folder just before the rename */
    world *s;
    bool refuses;
    int times;
} looks;

static bt_code check_hook_folder(void *ctx, bt_err *err) {
    looks *l = ctx;
    expect_text(l->s->dir, "name.tmp", "new text");
    expect_text(l->s->dir, "name", "old");
    l->times++;
    return l->refuses ? bt_fail(err, BT_BUSY, "not now") : BT_OK;
}

/* The new text is complete in a temporary file before it replaces the old text; after a failure the old text is
 * unchanged. */
static void a_file_is_replaced_at_once(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    looks l = {.s = s, .refuses = true};
    write_small_file(s->dir, "name", "old");
    write_small_file(s->dir, "name.tmp", "a longer text of a save that was killed");
    assert_int_equal(ckpt_replace_file(s->dir, "name", "new text", 8, check_hook_folder, &l, &err),
                     BT_BUSY);
    assert_int_equal(l.times, 1);
    expect_text(s->dir, "name", "old");
    expect_listing(s->dir, "name ");
    l.refuses = false;
    check_ok(ckpt_replace_file(s->dir, "name", "new text", 8, check_hook_folder, &l, &err), &err);
    expect_text(s->dir, "name", "new text");
    expect_listing(s->dir, "name ");
    check_ok(ckpt_replace_file(s->dir, "name", "", 0, NULL, NULL, &err), &err);
    expect_text(s->dir, "name", "");
}

static void files_that_cannot_be_replaced(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[2 * PATH_MAX], name[PATH_MAX];
    snprintf(path, sizeof path, "%s/folder", s->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    write_small_file(path, "inside", "x");
    assert_int_equal(ckpt_replace_file(s->dir, "folder", "new", 3, NULL, NULL, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot rename '"));
    assert_non_null(strstr(err.msg, "/folder.tmp'"));
    expect_listing(s->dir, "folder ");
    assert_int_equal(ckpt_replace_file("/nowhere", "x", "new", 3, NULL, NULL, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot create '/nowhere/x.tmp'"));
    /* The longest permitted path has room for the suffix of the temporary file. */
    for (size_t n = PATH_MAX - 6; n < PATH_MAX; n++) {
        memset(name, 'x', n);
        name[n - strlen(s->dir) - 1] = '\0';
        const bool fits = n < PATH_MAX - 4;
        assert_int_equal(ckpt_replace_file(s->dir, name, "x", 1, NULL, NULL, &err),
                         fits ? BT_IO : BT_ARG);
    }
    check_ok(ckpt_sync_folder(s->dir, &err), &err);
    assert_int_equal(ckpt_sync_folder("/nowhere", &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot open folder '/nowhere'"));
    write_small_file(s->dir, "file", "x");
    snprintf(path, sizeof path, "%s/file", s->dir);
    assert_int_equal(ckpt_sync_folder(path, &err), BT_IO);
}

/* The error contains the first folder that cannot be created and the cause. */
static void folders_that_cannot_be_made(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], says[PATH_MAX];
    write_small_file(s->dir, "file", "x");
    snprintf(path, sizeof path, "%s/file/a/b", s->dir);
    assert_int_equal(bt_make_folders(path, &err), BT_IO);
    snprintf(says, sizeof says, "'%s/file' is not a folder", s->dir);
    assert_string_equal(err.msg, says);
    snprintf(path, sizeof path, "%s/file", s->dir);
    assert_int_equal(bt_make_folders(path, &err), BT_IO);
    snprintf(says, sizeof says, "'%s/file' is not a folder", s->dir);
    assert_string_equal(err.msg, says);
    assert_int_equal(bt_make_folders("/proc/none/b", &err), BT_IO);
    message_has(err.msg, "cannot create folder '/proc/none'");
    check_ok(bt_make_folders("/", &err), &err);
    check_ok(bt_make_folders("/proc/self", &err), &err);
}

static void save_step(world *s, int64_t step, int attempt, int keep, bool best,
                      bt_ckpt_saved *saved) {
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    const bt_ckpt_slice slice = {"w", "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false};
    fill_meta(&meta, step, attempt);
    const bt_ckpt_job job = {
        .dir = s->dir, .meta = &meta, .slices = &slice, .n = 1, .keep = keep, .best = best};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, saved, &err), &err);
    bt_ckpt_meta_release(&meta);
}

static void names_of_checkpoints(void **state) {
    world *s = *state;
    static const struct {
        const char *name;
        int64_t step; /* -1: no checkpoint */
    } rows[] = {{"step-000000000000", 0},
                {"step-000000000100", 100},
                {"step-1234567890123", 1234567890123},
                {"step-999999999999999999", 999999999999999999},
                {"step-1000000000000000000", -1}, /* more digits than a step may have */
                {"step-100", -1},
                {"step-00000000100x", -1},
                {"step-0000000000100", -1},
                {"step--00000000001", -1},
                {"step- 00000000001", -1},
                {"xstep-000000000101", -1},
                {"step-000000000102.tmp", -1},
                {"best", -1},
                {"step-0000000000000000000000000001", -1}};
    enum { ROWS = sizeof rows / sizeof *rows };
    bt_err err = BT_ERR_INIT;
    ckpt_list list;
    char path[PATH_MAX];
    bool seen[ROWS] = {false};
    for (size_t i = 0; i < ROWS; i++) {
        snprintf(path, sizeof path, "%s/%s", s->dir, rows[i].name);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    check_ok(ckpt_list_read(s->dir, &list, &err), &err);
    assert_int_equal(list.n, 4);
    for (size_t k = 0; k < list.n; k++) {
        const ckpt_entry *e = &list.entries[k];
        assert_true(!e->committed && !e->readable && e->attempt == -1);
        for (size_t i = 0; i < ROWS; i++)
            if (strcmp(rows[i].name, e->name) == 0 && rows[i].step == e->step) seen[i] = true;
    }
    for (size_t i = 0; i < ROWS; i++) assert_int_equal(seen[i], rows[i].step >= 0);
    ckpt_list_release(&list);
    assert_true(list.n == 0 && !list.entries);
    write_small_file(s->dir, "file", "x");
    snprintf(path, sizeof path, "%s/file", s->dir);
    assert_int_equal(ckpt_list_read(path, &list, &err), BT_NOTFOUND);
    strcat(path, "/none");
    assert_int_equal(ckpt_list_read(path, &list, &err), BT_NOTFOUND);
    snprintf(path, sizeof path, "%s/none", s->dir);
    assert_int_equal(ckpt_list_read(path, &list, &err), BT_NOTFOUND);
    assert_true(list.n == 0 && !list.entries);
    assert_int_equal(symlink("loop", strcat(path, ".loop")), 0);
    strcpy(strrchr(path, '/'), "/loop");
    assert_int_equal(symlink("none.loop", path), 0);
    assert_int_equal(ckpt_list_read(path, &list, &err), BT_IO);
}

/* Unreadable checkpoints are listed first, readable ones by attempt and step; the list grows beyond its initial
 * capacity. */
static void the_newest_checkpoint_is_listed_first(void **state) {
    world *s = *state;
    enum { N = 20 };
    bt_err err = BT_ERR_INIT;
    ckpt_list list;
    bt_ckpt_saved saved;
    char path[PATH_MAX + 16];
    for (int i = 0; i < N; i++) save_step(s, 100 + i * 7 % N, i % 3, N, false, &saved);
    /* One manifest is damaged, and one file is not a manifest. */
    for (int64_t step = 103; step <= 110; step += 7) {
        snprintf(path, sizeof path, "%s/step-%012d/manifest.json", s->dir, (int)step);
        assert_int_equal(step == 103 ? truncate(path, 9) : unlink(path), 0);
    }
    check_ok(ckpt_list_read(s->dir, &list, &err), &err);
    assert_int_equal(list.n, N);
    for (size_t k = 0; k < N; k++) {
        const ckpt_entry *e = &list.entries[k];
        assert_int_equal(e->committed, e->step != 110);
        assert_int_equal(e->readable, k >= 2);
        assert_int_equal(e->readable, e->step != 103 && e->step != 110);
        if (k == 1) assert_true(e->step == 103 && e[-1].step == 110);
        if (k < 3) continue;
        assert_true(e[-1].attempt > e->attempt ||
                    (e[-1].attempt == e->attempt && e[-1].step > e->step));
    }
    ckpt_list_release(&list);
}

/* The reason for skipping a checkpoint begins with its name. */
static void the_reason_for_skipping_a_checkpoint(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_saved saved;
    bt_ckpt_meta meta;
    bt_text why;
    char path[PATH_MAX], manifest[PATH_MAX + 16], says[3 * PATH_MAX];
    save_step(s, 100, 0, 9, false, &saved);
    save_step(s, 200, 0, 9, false, &saved);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", saved.path);
    assert_int_equal(truncate(manifest, 9), 0);
    bt_text_init(&why);
    check_ok(find(s, path, &meta, &why, &err), &err);
    assert_int_equal(meta.step, 100);
    bt_ckpt_meta_release(&meta);
    snprintf(says, sizeof says,
             "step-000000000200 passed over%s: '%s' (9 bytes) is truncated, damaged or not a "
             "checkpoint manifest\n",
             strstr(bt_text_str(&why), " (rank 0)") ? " (rank 0)" : "", manifest);
    assert_string_equal(bt_text_str(&why), says);
    bt_text_clear(&why);
    check_ok(bt_ckpt_find(NULL, s->dir, path, sizeof path, NULL, &why, &err), &err);
    assert_non_null(strstr(bt_text_str(&why), "step-000000000200 passed over: '"));
    bt_text_clear(&why);
    assert_int_equal(bt_ckpt_find(NULL, saved.path, path, sizeof path, NULL, &why, &err),
                     BT_FORMAT);
    assert_int_equal(strncmp(bt_text_str(&why), "step-000000000200 passed over: '", 32), 0);
    snprintf(says, sizeof says,
             "no checkpoint in '%s' can be used; the error of the last one is: '%s", saved.path,
             manifest);
    says[440] = '\0';
    assert_int_equal(strncmp(err.msg, says, strlen(says)), 0);
    bt_text_release(&why);
    snprintf(path, sizeof path, "%s/none", s->dir);
    assert_int_equal(bt_ckpt_find(NULL, path, manifest, sizeof manifest, &meta, NULL, &err),
                     BT_NOTFOUND);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_ckpt_find(NULL, path, manifest, sizeof manifest, &meta, NULL, &err),
                     BT_NOTFOUND);
    snprintf(says, sizeof says, "no checkpoint in '%s'", path);
    assert_string_equal(err.msg, says);
}

static void the_newest_and_the_best_are_kept(void **state) {
    world *s = *state;
    bt_ckpt_saved saved;
    char link[PATH_MAX], to[64], manifest[PATH_MAX + 16];
    snprintf(link, sizeof link, "%s/best", s->dir);
    save_step(s, 10, 0, 2, true, &saved);
    save_step(s, 20, 0, 2, false, &saved);
    expect_listing(s->dir, "attempt.lock best step-000000000010 step-000000000020 ");
    save_step(s, 30, 0, 2, false, &saved);
    save_step(s, 40, 0, 2, false, &saved);
    expect_listing(s->dir,
                   "attempt.lock best step-000000000010 step-000000000030 step-000000000040 ");
    ssize_t n = readlink(link, to, sizeof to);
    assert_int_equal(n, 17);
    assert_memory_equal(to, "step-000000000010", 17);
    save_step(s, 50, 0, 0, true, &saved); /* At least one checkpoint is kept. */
    expect_listing(s->dir, "attempt.lock best step-000000000050 ");
    n = readlink(link, to, sizeof to);
    assert_int_equal(n, 17);
    assert_memory_equal(to, "step-000000000050", 17);
    save_step(s, 60, 0, 1, false, &saved);
    /* An unreadable checkpoint does not displace a readable one, and an unfinished one is not counted. */
    save_step(s, 70, 0, 3, false, &saved);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", saved.path);
    assert_int_equal(truncate(manifest, 9), 0);
    save_step(s, 80, 0, 2, false, &saved);
    expect_listing(s->dir,
                   "attempt.lock best step-000000000050 step-000000000060 step-000000000070 "
                   "step-000000000080 ");
    snprintf(manifest, sizeof manifest, "%s/manifest.json", saved.path);
    assert_int_equal(unlink(manifest), 0);
    save_step(s, 90, 0, 1, false, &saved);
    expect_listing(s->dir,
                   "attempt.lock best step-000000000050 step-000000000070 step-000000000080 "
                   "step-000000000090 ");
    /* If the link cannot be created, the save still succeeds. */
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkdir(link, 0700), 0);
    write_small_file(link, "inside", "x");
    save_step(s, 95, 0, 1, true, &saved);
    expect_listing(link, "inside ");
}

/* A save returns its folder, the bytes of its files, and the seal of its manifest. */
static void results_of_a_save(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_saved saved;
    bt_ckpt_meta meta;
    ckpt_manifest m;
    struct stat st;
    char path[2 * PATH_MAX], tmp[PATH_MAX];
    memset(&saved, 0x5a, sizeof saved);
    save_step(s, 70, 2, 1, false, &saved);
    snprintf(path, sizeof path, "%s/step-000000000070", s->dir);
    assert_string_equal(saved.path, path);
    check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
    assert_string_equal(saved.hash, m.seal);
    assert_true(m.n_files == 1 && m.world_size == 1 && m.meta.attempt == 2);
    snprintf(path, sizeof path, "%s/%s", saved.path, m.files[0].name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(saved.bytes, st.st_size);
    /* The next attempt removes the files of a killed save of the same step. */
    write_small_file(saved.path, "data-00000-0000000000000001.btck", "x");
    write_small_file(saved.path, "data-00003-0000000000000002.btck.tmp", "x");
    write_small_file(saved.path, "manifest.json.tmp", "x");
    write_small_file(saved.path, "notes", "x");
    snprintf(tmp, sizeof tmp, "%s manifest.json notes ", m.files[0].name);
    check_ok(bt_ckpt_begin(s->dir, 2, &err), &err);
    expect_listing(saved.path, tmp);
    expect_text(s->dir, "attempt", "2\n");
    /* The next save of that step removes them too. */
    write_small_file(saved.path, "data-00000-0000000000000001.btck", "x");
    save_step(s, 70, 2, 1, false, &saved);
    ckpt_manifest_release(&m);
    check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
    snprintf(tmp, sizeof tmp, "%s manifest.json notes ", m.files[0].name);
    expect_listing(saved.path, tmp);
    ckpt_manifest_release(&m);
    /* A save without arrays is an error that leaves no files. */
    fill_meta(&meta, 80, 2);
    bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .keep = 1};
    assert_int_equal(bt_ckpt_save(bt_comm_world(), &job, NULL, &err), BT_ARG);
    assert_string_equal(err.msg, "no rank has anything to save");
    expect_listing(s->dir, "attempt attempt.lock step-000000000070 ");
    memset(tmp, 'x', sizeof tmp - 1);
    tmp[sizeof tmp - 1] = '\0';
    job.dir = tmp;
    static const size_t lengths[] = {PATH_MAX - 1, PATH_MAX - 80 - 18, PATH_MAX - 80 - 19};
    /* The last path would fit even with its file names, but no such folder exists. */
    for (size_t i = 0; i < 3; i++) {
        tmp[lengths[i]] = '\0';
        assert_int_equal(bt_ckpt_save(bt_comm_world(), &job, NULL, &err), i < 2 ? BT_ARG : BT_IO);
        assert_int_equal(strncmp(err.msg, i < 2 ? "checkpoint folder 'xxx" : "cannot create", 13),
                         0);
    }
    bt_ckpt_meta_release(&meta);
}

static void a_fence_that_cannot_be_written(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], longest[PATH_MAX + 1];
    snprintf(path, sizeof path, "%s/attempt.lock", s->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_ckpt_begin(s->dir, 1, &err), BT_IO);
    assert_non_null(strstr(err.msg, "/attempt.lock': Is a directory"));
    assert_int_equal(bt_ckpt_begin(s->dir, 1, NULL), BT_IO);
    assert_int_equal(bt_ckpt_prepare(s->dir, false, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot write to checkpoint folder '"));
    assert_int_equal(rmdir(path), 0);
    memset(longest, '/', PATH_MAX);
    longest[PATH_MAX - 5] = '\0';
    assert_int_equal(bt_ckpt_prepare(longest, false, &err), BT_ARG);
    /* an attempt file of another format */
    snprintf(path, sizeof path, "%s/attempt", s->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_ckpt_begin(s->dir, 1, &err), BT_FORMAT);
    assert_int_equal(rmdir(path), 0);
    check_ok(bt_ckpt_begin(s->dir, 1, &err), &err);
    expect_text(s->dir, "attempt", "1\n");
    assert_int_equal(bt_ckpt_begin(s->dir, 0, &err), BT_BUSY);
    expect_text(s->dir, "attempt", "1\n");
    assert_non_null(strstr(err.msg, "attempt 0 may not write to '"));
    assert_non_null(strstr(err.msg, "', because the newer attempt 1 has begun there"));
}

/* If no file can be created in the folder, the number of a new attempt is written into the existing file. If that file
 * is missing, the first checkpoint of the attempt contains the number. */
static void a_fence_without_a_new_file(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char blocked[PATH_MAX], fence[PATH_MAX];
    snprintf(blocked, sizeof blocked, "%s/attempt.tmp", s->dir);
    snprintf(fence, sizeof fence, "%s/attempt", s->dir);
    check_ok(bt_ckpt_begin(s->dir, 9, &err), &err);
    assert_int_equal(mkdir(blocked, 0700), 0);
    check_ok(bt_ckpt_begin(s->dir, 10, &err), &err);
    expect_text(s->dir, "attempt", "10\n");
    assert_int_equal(bt_ckpt_begin(s->dir, 9, &err), BT_BUSY);
    assert_int_equal(unlink(fence), 0);
    assert_int_equal(bt_ckpt_begin(s->dir, 11, &err), BT_IO);
    assert_int_equal(access(fence, F_OK), -1);
    assert_int_equal(rmdir(blocked), 0);
    bt_ckpt_meta meta;
    const bt_ckpt_slice slice = {"w", "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false};
    fill_meta(&meta, 70, 11);
    const bt_ckpt_job job = {
        .dir = s->dir, .meta = &meta, .slices = &slice, .n = 1, .keep = 1, .announce = true};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, NULL, &err), &err);
    bt_ckpt_meta_release(&meta);
    expect_text(s->dir, "attempt", "11\n");
    assert_int_equal(bt_ckpt_begin(s->dir, 10, &err), BT_BUSY);
}

/* Files named like checkpoints and unfinished checkpoints do not count. */
static void a_fresh_folder_may_contain_unfinished_checkpoints(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_saved saved;
    char path[PATH_MAX + 16];
    save_step(s, 10, 0, 1, false, &saved);
    snprintf(path, sizeof path, "%s/manifest.json", saved.path);
    assert_int_equal(unlink(path), 0);
    check_ok(bt_ckpt_check(s->dir, true, &err), &err);
    save_step(s, 20, 0, 1, false, &saved);
    assert_int_equal(bt_ckpt_check(s->dir, true, &err), BT_BUSY);
    check_ok(bt_ckpt_check(s->dir, false, &err), &err);
    snprintf(path, sizeof path, "%s/file", s->dir);
    write_small_file(s->dir, "file", "x");
    assert_int_equal(bt_ckpt_check(path, true, &err), BT_NOTFOUND);
}

static void folders_of_states(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char parent[PATH_MAX], dir[PATH_MAX + 16], path[2 * PATH_MAX];
    struct stat st;
    snprintf(parent, sizeof parent, "%s/job", s->dir);
    snprintf(dir, sizeof dir, "%s/states", parent);
    for (int again = 0; again < 2; again++) check_ok(bt_memory_dir_make(dir, &err), &err);
    assert_true(stat(parent, &st) == 0 && (st.st_mode & 07777) == 0700);
    assert_true(stat(dir, &st) == 0 && (st.st_mode & 07777) == 0700);
    /* A folder writable by other users is refused; a readable one is accepted. */
    static const mode_t modes[] = {0755, 0720, 0702, 0722};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (int of_dir = 0; of_dir < 2; of_dir++) {
            const char *which = of_dir ? dir : parent;
            assert_int_equal(chmod(which, modes[i]), 0);
            err = (bt_err)BT_ERR_INIT;
            assert_int_equal(bt_memory_dir_make(dir, &err), modes[i] == 0755 ? BT_OK : BT_IO);
            snprintf(path, sizeof path, "'%s' is not a folder that only this user can access",
                     which);
            if (modes[i] != 0755) assert_string_equal(err.msg, path);
            assert_int_equal(chmod(which, 0700), 0);
        }
    /* Only the states are removed; the supervisor's file and the folder remain. */
    write_small_file(dir, "state-00000-1-x-0", "x");
    write_small_file(parent, "lock", "");
    bt_memory_dir_remove(dir);
    expect_listing(dir, "state-00000-1-x-0 ");
    snprintf(path, sizeof path, "%s/lock", parent);
    assert_int_equal(unlink(path), 0);
    write_small_file(dir, "notes", "x");
    bt_memory_dir_remove(dir);
    expect_listing(dir, "notes ");
    snprintf(path, sizeof path, "%s/notes", dir);
    assert_int_equal(unlink(path), 0);
    bt_memory_dir_remove(dir);
    assert_int_equal(access(parent, F_OK), -1);
    bt_memory_dir_remove(dir); /* A missing folder is no error. */
    write_small_file(s->dir, "job", "x");
    assert_int_equal(bt_memory_dir_make(dir, &err), BT_IO);
    snprintf(parent, sizeof parent, "%s/none/job/states", s->dir);
    assert_int_equal(bt_memory_dir_make(parent, &err), BT_IO);
    snprintf(path, sizeof path, "cannot create '%s/none/job'", s->dir);
    assert_int_equal(strncmp(err.msg, path, strlen(path)), 0);
    static const char *const odd[] = {"states", "/states", ""};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(bt_memory_dir_make(odd[i], &err), BT_IO);
        snprintf(path, sizeof path,
                 "'%s' cannot be the folder of states in memory: its path is too long or does not "
                 "end with '/states'",
                 odd[i]);
        assert_string_equal(err.msg, path);
        bt_memory_dir_remove(odd[i]);
    }
    memset(parent, '/', sizeof parent);
    parent[PATH_MAX - 1] = '\0';
    char longest[PATH_MAX + 2];
    snprintf(longest, sizeof longest, "%s/", parent);
    assert_int_equal(bt_memory_dir_make(longest, &err), BT_IO);
    assert_int_equal(strncmp(err.msg, "'///", 4), 0);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(a_file_is_replaced_at_once),
                                       TEST(files_that_cannot_be_replaced),
                                       TEST(folders_that_cannot_be_made),
                                       TEST(names_of_checkpoints),
                                       TEST(the_newest_checkpoint_is_listed_first),
                                       TEST(the_reason_for_skipping_a_checkpoint),
                                       TEST(the_newest_and_the_best_are_kept),
                                       TEST(results_of_a_save),
                                       TEST(a_fence_that_cannot_be_written),
                                       TEST(a_fence_without_a_new_file),
                                       TEST(a_fresh_folder_may_contain_unfinished_checkpoints),
                                       TEST(folders_of_states)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
