/* test_ckpt.c - checkpoints of one process: loading slices other than those saved, detection of every damage, removal
 * of old checkpoints, protection against older attempts (the fence), a full disk. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#include "engine/base/clock.h"
#include "engine/ckpt/format.h"
#include "engine/ckpt/save_steps.h"
#include "engine/ckpt/state.h"
#include "engine/ckpt/verify_idle.h"

static bt_code save_at(world *s, int64_t step, int attempt, int keep, char *path, bt_err *err) {
    bt_ckpt_meta meta;
    fill_meta(&meta, step, attempt);
    bt_ckpt_saved saved;
    bt_code code = save_world(s, &meta, keep, &saved, err);
    bt_ckpt_meta_release(&meta);
    if (code == BT_OK) {
        assert_true(saved.bytes > (int64_t)((N_EMBED + 2 * N_W) * sizeof(float)));
        assert_int_equal(strlen(saved.hash), 32);
        if (path) strcpy(path, saved.path);
    }
    return code;
}

static void test_round_trip(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], found[PATH_MAX];
    check_ok(bt_ckpt_begin(s->dir, 0, &err), &err);
    assert_int_equal(find(s, found, NULL, NULL, &err), BT_NOTFOUND);
    check_ok(save_at(s, 100, 0, 2, path, &err), &err);
    bt_ckpt_meta meta;
    check_ok(find(s, found, &meta, NULL, &err), &err);
    assert_string_equal(path, found);
    assert_string_equal(strrchr(found, '/'), "/step-000000000100");
    assert_int_equal(meta.step, 100);
    assert_int_equal(meta.tokens, 409600);
    assert_int_equal(meta.params_hash, 0xfedcba9876543210u);
    assert_int_equal(meta.vocab_hash, UINT64_MAX);
    assert_true(bt_ckpt_state_real(&meta, "progress", "lr_factor", 1) == 0.1 + 0.2);
    assert_string_equal(bt_text_str(&meta.config), "{\"optim.lr\":0.002,\"model.norm\":\"subln\"}");
    assert_string_equal(bt_text_str(&meta.tokenizer), "bytes");
    bt_ckpt_meta_release(&meta);

    /* The slices to load differ from the saved ones: across their border, within one, and the whole. */
    float a[N_EMBED], b[50], c[N_W];
    bt_ckpt_slice want[] = {
        {"embed", "weight", N_EMBED, 390, 50, b, 0, 0, BT_CKPT_F32, false},
        {"embed", "weight", N_EMBED, 0, N_EMBED, a, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "exp_avg", N_W, 0, N_W, c, 0, 0, BT_CKPT_F32, false},
    };
    check_ok(bt_ckpt_load(found, want, 3, &err), &err);
    assert_memory_equal(b, s->embed + 390, sizeof b);
    assert_memory_equal(a, s->embed, sizeof a);
    assert_memory_equal(c, s->m, sizeof c);

    bt_ckpt_slice absent = {"layers.0.attn_q", "exp_avg_sq", N_W, 0, N_W, c, 0, 0,
                            BT_CKPT_F32,       false};
    assert_int_equal(bt_ckpt_load(found, &absent, 1, &err), BT_FORMAT);
    bt_ckpt_slice shape = {"embed", "weight", N_EMBED + 1, 0, 10, a, 0, 0, BT_CKPT_F32, false};
    assert_int_equal(bt_ckpt_load(found, &shape, 1, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "the shapes of the models differ"));

    /* A checkpoint is also found by its own path, without MPI. */
    check_ok(bt_ckpt_find(NULL, found, path, sizeof path, &meta, NULL, &err), &err);
    assert_int_equal(meta.step, 100);
    bt_ckpt_meta_release(&meta);
}

static void test_long_tensor(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    const size_t n = (size_t)CKPT_SECTION_ELEMS + 12345;
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    for (size_t i = 0; i < n; i++) x[i] = (float)i * 0.5f;
    bt_ckpt_slice put = {"embed", "weight", n, 0, n, x, 0, 0, BT_CKPT_F32, false};
    bt_ckpt_meta meta;
    fill_meta(&meta, 1, 0);
    bt_ckpt_saved saved;
    bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = &put, .n = 1, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    const char *path = saved.path;
    bt_ckpt_meta_release(&meta);
    const size_t from = (size_t)CKPT_SECTION_ELEMS - 7;
    bt_ckpt_slice get = {"embed", "weight", n, from, 20, y, 0, 0, BT_CKPT_F32, false};
    check_ok(bt_ckpt_load(path, &get, 1, &err), &err);
    assert_memory_equal(y, x + from, 20 * sizeof *x);
    get = (bt_ckpt_slice){"embed", "weight", n, 0, n, y, 0, 0, BT_CKPT_F32, false};
    check_ok(bt_ckpt_load(path, &get, 1, &err), &err);
    assert_memory_equal(y, x, n * sizeof *x);
    free(x);
    free(y);
}

static bt_ckpt_checked check_again(const char *path) {
    bt_ckpt_reread *c;
    bt_ckpt_checked found = {0};
    bt_err err = BT_ERR_INIT;
    check_ok(bt_ckpt_reread_start(&c, path, &err), &err);
    for (int i = 0; i < 30000 && !bt_ckpt_reread_done(c, &found); i++) bt_sleep_ns(2000000);
    assert_true(bt_ckpt_reread_done(c, &found));
    bt_ckpt_reread_destroy(c);
    return found;
}

static void data_file(const char *folder, char *out, size_t size) {
    DIR *d = opendir(folder);
    assert_non_null(d);
    out[0] = '\0';
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".btck")) snprintf(out, size, "%s/%s", folder, e->d_name);
    closedir(d);
    assert_true(out[0] != '\0');
}

static char *read_data_file(const char *path, size_t *n) {
    char *data = NULL;
    bt_err err = BT_ERR_INIT;
    check_ok(ckpt_slurp(path, SIZE_MAX / 2, &data, n, &err), &err);
    return data;
}

static void write_whole_file(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void test_idle_verification(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], file[PATH_MAX];
    size_t n;
    check_ok(save_at(s, 100, 0, 2, path, &err), &err);
    data_file(path, file, sizeof file);
    char *data = read_data_file(file, &n);
    bt_ckpt_checked found = check_again(path);
    check_ok(found.code, &found.err);
    assert_int_equal(found.bytes, n);
    data[n / 2] ^= 4;
    write_whole_file(file, data, n);
    found = check_again(path);
    assert_int_equal(found.code, BT_FORMAT);
    assert_non_null(strstr(found.err.msg, "bytes"));
    unlink(file);
    assert_int_not_equal(check_again(path).code, BT_OK);
    bt_ckpt_reread *c;
    check_ok(bt_ckpt_reread_start(&c, path, &err), &err);
    bt_ckpt_reread_destroy(c); /* cancels the verification */
    free(data);
}

/* Expects that the newest checkpoint is rejected with a reason that contains its name, and that the older one is
 * used. */
static void expect_fallback(world *s, const char *what, size_t at) {
    char found[PATH_MAX];
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_text why;
    bt_text_init(&why);
    bt_code code = find(s, found, &meta, &why, &err);
    if (code != BT_OK) fail_msg("%s at %zu: %s", what, at, err.msg);
    if (meta.step != 100 || !strstr(bt_text_str(&why), "step-000000000200 passed over"))
        fail_msg("%s at byte %zu was accepted (step %lld)", what, at, (long long)meta.step);
    if (strstr(bt_text_str(&why), "(rank -1)")) fail_msg("no rank is named: %s", bt_text_str(&why));
    bt_ckpt_meta_release(&meta);
    bt_text_release(&why);
}

static void test_every_bit_flip(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], data[PATH_MAX], manifest[PATH_MAX + 32];
    check_ok(save_at(s, 100, 0, 3, NULL, &err), &err);
    check_ok(save_at(s, 200, 0, 3, path, &err), &err);
    data_file(path, data, sizeof data);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    const char *files[] = {data, manifest};
    for (int f = 0; f < 2; f++) {
        size_t n;
        char *bytes = read_data_file(files[f], &n);
        /* Damages every byte of heads, index, foot and manifest, and every 7th byte of the data. */
        for (size_t i = 0; i < n; i += f == 1 || i < 512 || i + 256 > n ? 1 : 7) {
            int fd = open(files[f], O_WRONLY);
            char c = (char)(bytes[i] ^ (char)(1 << (i % 8)));
            assert_int_equal(pwrite(fd, &c, 1, (off_t)i), 1);
            expect_fallback(s, files[f], i);
            assert_int_equal(pwrite(fd, &bytes[i], 1, (off_t)i), 1);
            close(fd);
        }
        free(bytes);
    }
    char found[PATH_MAX];
    check_ok(find(s, found, NULL, NULL, &err), &err);
    assert_string_equal(found, path);
}

/* The error contains the damaged section, its bytes and the kind of damage. */
static void test_place_of_damage(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    static float many[400000]; /* longer than one read */
    char path[PATH_MAX], file[PATH_MAX], want[80];
    size_t n;
    for (int i = 0; i < 400000; i++) many[i] = (float)i + 0.5f;
    bt_ckpt_slice slices[] = {
        {"embed", "weight", N_EMBED, 0, N_EMBED, s->embed, 0, 0, BT_CKPT_F32, false},
        {"layers.0.ffn_up", "weight", 400000, 0, 400000, many, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false}};
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    fill_meta(&meta, 100, 0);
    bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = slices, .n = 3, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    strcpy(path, saved.path);
    data_file(path, file, sizeof file);
    char *data = read_data_file(file, &n);
    for (int i = 0; i < 3; i++) {
        const size_t bytes = slices[i].count * sizeof(float);
        char *at = memmem(data, n, slices[i].data, bytes);
        assert_non_null(at);
        for (int where = 0; where < 3; where++) {
            char *byte = at + (where == 0 ? 0 : where == 1 ? bytes / 2 : bytes - 1);
            *byte ^= 1;
            write_whole_file(file, data, n);
            *byte ^= 1;
            const bt_ckpt_checked found = check_again(path);
            assert_int_equal(found.code, BT_FORMAT);
            snprintf(want, sizeof want, "bytes %zu..%zu ('%s' weight)", (size_t)(at - data),
                     (size_t)(at - data) + bytes - 1, slices[i].tensor);
            if (!strstr(found.err.msg, want) || !strstr(found.err.msg, "(bits changed)"))
                fail_msg("'%s' does not contain '%s'", found.err.msg, want);
        }
    }
    /* a page of zeros in the second part of the long section */
    char *at = memmem(data, n, many, sizeof many);
    const size_t page = (1 << 20) + 3 * 4096;
    memset(at + page, 0, 4096);
    write_whole_file(file, data, n);
    const bt_ckpt_checked found = check_again(path);
    snprintf(want, sizeof want, "(perhaps the zeros from byte %zu)", (size_t)(at - data) + page);
    if (!strstr(found.err.msg, want)) fail_msg("'%s' does not contain '%s'", found.err.msg, want);
    free(data);
}

/* Bytes that change between the search for a checkpoint and its loading are detected. */
static void test_damage_after_the_search(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], data[PATH_MAX], c;
    float w[N_W];
    const off_t in_embed = (off_t)(sizeof(file_head) + sizeof(section_head) + 50);
    check_ok(save_at(s, 100, 0, 1, path, &err), &err);
    data_file(path, data, sizeof data);
    bt_ckpt_slice embed = {"embed", "weight", N_EMBED, 0, 10, w, 0, 0, BT_CKPT_F32, false},
                  other = {"layers.0.attn_q", "exp_avg", N_W, 0, N_W, w, 0, 0, BT_CKPT_F32, false};
    check_ok(bt_ckpt_load(path, &embed, 1, &err), &err);
    int fd = open(data, O_RDWR);
    assert_int_equal(pread(fd, &c, 1, in_embed), 1);
    c ^= 4;
    assert_int_equal(pwrite(fd, &c, 1, in_embed), 1);
    close(fd);
    assert_int_equal(bt_ckpt_load(path, &embed, 1, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "('embed' weight) are damaged"));
    check_ok(bt_ckpt_load(path, &other, 1, &err), &err);
}

/* A FIFO in place of a file is refused without blocking. */
static void test_fifos_are_refused(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], data[PATH_MAX], manifest[PATH_MAX + 32];
    check_ok(save_at(s, 100, 0, 3, NULL, &err), &err);
    check_ok(save_at(s, 200, 0, 3, path, &err), &err);
    data_file(path, data, sizeof data);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    const char *files[] = {data, manifest};
    for (int f = 0; f < 2; f++) {
        char aside[PATH_MAX + 40];
        snprintf(aside, sizeof aside, "%s.aside", files[f]);
        assert_int_equal(rename(files[f], aside), 0);
        assert_int_equal(mkfifo(files[f], 0600), 0);
        expect_fallback(s, files[f], 0);
        bt_ckpt_meta meta;
        char found[PATH_MAX];
        if (f == 1)
            assert_int_not_equal(bt_ckpt_find(NULL, path, found, sizeof found, &meta, NULL, &err),
                                 BT_OK);
        assert_int_equal(unlink(files[f]), 0);
        assert_int_equal(rename(aside, files[f]), 0);
    }
}

static void test_truncations(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], data[PATH_MAX], manifest[PATH_MAX + 32];
    check_ok(save_at(s, 100, 0, 3, NULL, &err), &err);
    check_ok(save_at(s, 200, 0, 3, path, &err), &err);
    data_file(path, data, sizeof data);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    size_t n;
    char *bytes = read_data_file(data, &n);
    size_t borders[32], k = 0;
    borders[k++] = 0;
    borders[k++] = sizeof(file_head);
    const size_t counts[] = {400, 600, N_W, N_W};
    for (size_t i = 0, at = sizeof(file_head); i < 4; i++) {
        at += sizeof(section_head);
        borders[k++] = at;
        at += counts[i] * sizeof(float);
        borders[k++] = at;
    }
    borders[k++] = n - sizeof(file_foot);
    borders[k++] = n;
    for (size_t b = 0; b < k; b++)
        for (int d = -1; d <= 1; d++) {
            if ((borders[b] == 0 && d < 0) || borders[b] + (size_t)(d + 1) - 1 == n) continue;
            size_t m = borders[b] + (size_t)(d + 1) - 1;
            char *longer = calloc(1, n + 1);
            memcpy(longer, bytes, n);
            write_whole_file(data, longer, m);
            expect_fallback(s, "cut", m);
            free(longer);
        }
    memset(bytes + 512, 0, 512); /* a hole */
    write_whole_file(data, bytes, n);
    expect_fallback(s, "hole", 512);
    free(bytes);
    assert_int_equal(unlink(data), 0);
    expect_fallback(s, "missing file", 0);
    write_whole_file(manifest, "", 0);
    expect_fallback(s, "empty manifest", 0);
    char cmd[PATH_MAX + 64];
    snprintf(cmd, sizeof cmd, "rm -r '%s/step-000000000100'", s->dir);
    assert_int_equal(system(cmd), 0);
    char found[PATH_MAX];
    assert_int_equal(find(s, found, NULL, NULL, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "no checkpoint"));
}

static void renew_seal(const char *manifest, const char *from, const char *to) {
    size_t n;
    char *text = read_data_file(manifest, &n);
    const size_t place = (size_t)(strstr(text, from) - text);
    assert_true(place < n);
    bt_text t;
    bt_text_init(&t);
    const size_t frame = strlen("{\"seal\":\"") + 32 + strlen("\",\"manifest\":");
    bt_text_putn(&t, text + frame, place - frame);
    bt_text_put(&t, to);
    bt_text_putn(&t, text + place + strlen(from), n - place - strlen(from) - 2);
    char seal[33];
    ckpt_hash_hex(seal, t.data, t.len);
    FILE *f = fopen(manifest, "wb");
    fprintf(f, "{\"seal\":\"%s\",\"manifest\":%s}\n", seal, bt_text_str(&t));
    fclose(f);
    bt_text_release(&t);
    free(text);
}

static void test_sealed_forgeries_are_refused(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], old[PATH_MAX], data[PATH_MAX], other[PATH_MAX], manifest[PATH_MAX + 32];
    check_ok(save_at(s, 100, 0, 3, old, &err), &err);
    check_ok(save_at(s, 200, 0, 3, path, &err), &err);
    data_file(path, data, sizeof data);
    data_file(old, other, sizeof other);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    size_t n, m;
    char *bytes = read_data_file(data, &n), *foreign = read_data_file(other, &m),
         *text = read_data_file(manifest, &m);
    /* a file of another save, with the same size and name */
    write_whole_file(data, foreign, n);
    expect_fallback(s, "mixed generations", 0);
    write_whole_file(data, bytes, n);
    /* a manifest with a valid seal whose file name points outside the folder */
    char *base = strrchr(data, '/') + 1, evil[PATH_MAX];
    snprintf(evil, sizeof evil, "../step-000000000100/%s", strrchr(other, '/') + 1);
    renew_seal(manifest, base, evil);
    expect_fallback(s, "path in a name", 0);
    write_whole_file(manifest, text, m);
    renew_seal(manifest, "\"version\": 2", "\"version\": 3");
    expect_fallback(s, "newer version", 0);
    write_whole_file(manifest, text, m);
    renew_seal(manifest, "\"step\": 200", "\"step\": 201");
    expect_fallback(s, "other step", 0);
    write_whole_file(manifest, text, m);
    renew_seal(manifest, "\"step\": 200", "\"step\": 200, \"step\": 200");
    expect_fallback(s, "duplicate key", 0);
    write_whole_file(manifest, text, m);
    char found[PATH_MAX];
    check_ok(find(s, found, NULL, NULL, &err), &err);
    assert_string_equal(found, path);
    free(bytes);
    free(foreign);
    free(text);
}

static int count_folders(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));) n += strncmp(e->d_name, "step-", 5) == 0;
    closedir(d);
    return n;
}

static void test_old_checkpoints_are_removed(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX];
    for (int i = 1; i <= 5; i++) check_ok(save_at(s, 10 * i, 0, 2, path, &err), &err);
    assert_int_equal(count_folders(s->dir), 2);
    /* An attempt that resumed at step 30 replaces the checkpoints of steps 40 and 50. */
    check_ok(bt_ckpt_begin(s->dir, 1, &err), &err);
    check_ok(save_at(s, 35, 1, 2, path, &err), &err);
    assert_int_equal(count_folders(s->dir), 2);
    char found[PATH_MAX];
    check_ok(find(s, found, NULL, NULL, &err), &err);
    assert_string_equal(found, path);
    /* A second save of the same step replaces the first. */
    check_ok(save_at(s, 35, 1, 2, path, &err), &err);
    check_ok(find(s, found, NULL, NULL, &err), &err);
    DIR *d = opendir(found);
    int files = 0;
    for (struct dirent *e; (e = readdir(d));) files += e->d_name[0] != '.';
    closedir(d);
    assert_int_equal(files, 2);
}

static void test_older_attempts_cannot_save(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX];
    check_ok(bt_ckpt_begin(s->dir, 0, &err), &err);
    check_ok(save_at(s, 10, 0, 2, path, &err), &err);
    check_ok(bt_ckpt_begin(s->dir, 3, &err), &err);
    assert_int_equal(save_at(s, 20, 2, 2, path, &err), BT_BUSY);
    assert_non_null(strstr(err.msg, "the newer attempt 3 has begun"));
    assert_int_equal(bt_ckpt_begin(s->dir, 2, &err), BT_BUSY);
    assert_int_equal(count_folders(s->dir), 1);
    check_ok(save_at(s, 20, 3, 2, path, &err), &err);
    /* The next bt_ckpt_begin removes the files of a killed save. */
    char cmd[PATH_MAX];
    snprintf(cmd, sizeof cmd,
             "cp -r '%s/step-000000000020' '%s/step-000000000030' && rm "
             "'%s/step-000000000030/manifest.json'",
             s->dir, s->dir, s->dir);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(count_folders(s->dir), 3);
    check_ok(bt_ckpt_begin(s->dir, 4, &err), &err);
    assert_int_equal(count_folders(s->dir), 2);
}

static void test_cannot_write(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], under[PATH_MAX];
    check_ok(save_at(s, 10, 0, 2, path, &err), &err);
    /* A file occupies the name of the folder. */
    snprintf(under, sizeof under, "%s/step-000000000020", s->dir);
    write_whole_file(under, "x", 1);
    assert_int_equal(save_at(s, 20, 0, 2, path, &err), BT_IO);
    assert_non_null(strstr(err.msg, "step-000000000020"));
    unlink(under);
    /* A tensor name that is too long is refused before anything is created. */
    bt_ckpt_meta meta;
    fill_meta(&meta, 30, 0);
    char name[100];
    memset(name, 'n', sizeof name - 1);
    name[99] = '\0';
    bt_ckpt_slice bad = {name, "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false};
    bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = &bad, .n = 1, .keep = 2};
    assert_int_equal(bt_ckpt_save(bt_comm_world(), &job, NULL, &err), BT_ARG);
    bt_ckpt_meta_release(&meta);
    assert_int_equal(count_folders(s->dir), 1);
    char found[PATH_MAX];
    check_ok(find(s, found, NULL, NULL, &err), &err);
}

/* Elements of other types, including a block of columns; types that do not match are refused; absent optional tensors
 * become zeros. */
static void test_element_types(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    uint16_t half[64], half_back[64];
    uint8_t bytes[61], bytes_back[61];
    for (int i = 0; i < 64; i++) half[i] = (uint16_t)(i * 517);
    for (int i = 0; i < 61; i++) bytes[i] = (uint8_t)(i * 7);
    bt_ckpt_slice put[] = {
        {.tensor = "w",
         .state = "residual",
         .tensor_elems = 256,
         .first = 8,
         .count = 64,
         .data = half,
         .width = 8,
         .stride = 32,
         .type = BT_CKPT_BF16},
        {.tensor = "w",
         .state = "moment8",
         .tensor_elems = 61,
         .count = 61,
         .data = bytes,
         .type = BT_CKPT_U8},
    };
    bt_ckpt_meta meta;
    fill_meta(&meta, 3, 0);
    bt_ckpt_saved saved;
    bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = put, .n = 2, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    bt_ckpt_slice get[] = {put[0], put[1]};
    get[0].data = half_back;
    get[1].data = bytes_back;
    check_ok(bt_ckpt_load(saved.path, get, 2, &err), &err);
    assert_memory_equal(half, half_back, sizeof half);
    assert_memory_equal(bytes, bytes_back, sizeof bytes);
    /* one row of the block as a contiguous slice */
    bt_ckpt_slice row = {.tensor = "w",
                         .state = "residual",
                         .tensor_elems = 256,
                         .first = 8 + 3 * 32,
                         .count = 8,
                         .data = half_back,
                         .type = BT_CKPT_BF16};
    check_ok(bt_ckpt_load(saved.path, &row, 1, &err), &err);
    assert_memory_equal(half + 24, half_back, 8 * sizeof *half);

    float as_float[61] = {1};
    bt_ckpt_slice other = {
        .tensor = "w", .state = "moment8", .tensor_elems = 61, .count = 61, .data = as_float};
    assert_int_equal(bt_ckpt_load(saved.path, &other, 1, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "elements of 1 bytes"));
    bt_ckpt_slice absent = {.tensor = "w",
                            .state = "new",
                            .tensor_elems = 61,
                            .count = 61,
                            .data = as_float,
                            .optional = true};
    check_ok(bt_ckpt_load(saved.path, &absent, 1, &err), &err);
    for (int i = 0; i < 61; i++) assert_true(as_float[i] == 0);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_tensor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_idle_verification, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_bit_flip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_place_of_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_after_the_search, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fifos_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_truncations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sealed_forgeries_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_checkpoints_are_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_older_attempts_cannot_save, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cannot_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_element_types, set_up, tear_down),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return rc;
}
