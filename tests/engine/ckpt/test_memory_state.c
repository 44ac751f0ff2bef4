/* test_memory_state.c - a state in memory, in one process: other slices than the saved ones can be loaded; an
 * unpublished or damaged state is ignored; the older of two segments is overwritten. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_state.h"
#include "engine/ckpt/state.h"

static char shared[64];                  /* a folder in shared memory */
static uint64_t free_bytes = UINT64_MAX; /* UINT64_MAX: not limited */

/* Replaces the C library's function and limits the free space. */
int statvfs(const char *restrict path, struct statvfs *restrict v) {
    if (strcmp(path, "/none") == 0) return -1;
    struct statfs fs;
    if (statfs(path, &fs) != 0) return -1;
    *v = (struct statvfs){.f_bsize = 4096, .f_frsize = 64, .f_bavail = 1 << 30};
    if (free_bytes != UINT64_MAX) v->f_bavail = free_bytes / v->f_frsize;
    return 0;
}

static int set_up_shared(void **state) {
    strcpy(shared, "/dev/shm/bt-memory-test-XXXXXX");
    return mkdtemp(shared) ? set_up(state) : -1;
}

static int tear_down_shared(void **state) {
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", shared);
    return system(cmd) != 0 || tear_down(state) != 0;
}

static bt_memory_state *open_in(world *s, const char *dir, int attempt, const bt_memory_id *from,
                                bt_err *err) {
    const bt_ckpt_slice slices[] = {
        {"embed", "weight", N_EMBED, 0, N_EMBED, s->embed, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false},
        /* a block of columns: 3 of every 9 elements */
        {"layers.0.attn_q", "exp_avg", N_W, 0, N_W / 3, s->m, 3, 9, BT_CKPT_F32, false}};
    bt_memory_state *m = NULL;
    const bt_memory_cfg cfg = {.dir = dir,
                               .world = bt_comm_world(),
                               .slices = slices,
                               .n = 3,
                               .attempt = attempt,
                               .begun_from = from};
    *err = (bt_err)BT_ERR_INIT;
    return bt_memory_state_open(&m, &cfg, err) == BT_OK ? m : NULL;
}

static void write_at(bt_memory_state *m, int64_t step, bool publish) {
    bt_ckpt_meta meta;
    bt_err err = BT_ERR_INIT;
    fill_meta(&meta, step, 0);
    check_ok(bt_memory_state_write(m, &meta, 12345, &err), &err);
    if (publish) bt_memory_state_publish(m);
    bt_ckpt_meta_release(&meta);
}

static void test_round_trip(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_memory_id id;
    bt_ckpt_meta meta;
    assert_false(bt_memory_state_find(shared, &id, &meta));
    assert_false(bt_memory_state_find("/nonexistent", &id, NULL));
    bt_memory_state *m = open_in(s, shared, 4, NULL, &err);
    assert_non_null(m);
    assert_true(bt_memory_state_total(m) <=
                bt_memory_state_bytes((N_EMBED + N_W + N_W / 3) * sizeof(float), 3) + 128);
    assert_false(bt_memory_state_find(shared, &id, NULL)); /* No state has been written. */
    write_at(m, 10, true);
    bt_memory_state_close(m); /* The segments remain. */

    assert_true(bt_memory_state_find(shared, &id, &meta));
    assert_int_equal(id.attempt, 4);
    assert_int_equal(id.step, 10);
    assert_int_equal(id.disk_ns, 12345);
    assert_int_equal(meta.tokens, 40960);
    assert_true(meta.params_hash == 0xfedcba9876543210u);
    assert_string_equal(meta.isa, "avx512");
    assert_true(bt_ckpt_state_real(&meta, "progress", "lr_factor", 1) == 0.30000000000000004);
    bt_ckpt_meta_release(&meta);

    float embed[700], block[N_W / 3], zeros[5] = {1, 1, 1, 1, 1};
    bt_ckpt_slice want[] = {{"embed", "weight", N_EMBED, 100, 700, embed, 0, 0, BT_CKPT_F32, false},
                            {"layers.0.attn_q", "exp_avg", N_W, 0, N_W / 3, block, 3, 9,
                             BT_CKPT_F32, false},
                            {"embed", "exp_avg", N_EMBED, 0, 5, zeros, 0, 0, BT_CKPT_F32, true}};
    check_ok(bt_memory_state_load(shared, &id, want, 3, &err), &err);
    assert_memory_equal(embed, s->embed + 100, sizeof embed);
    assert_memory_equal(block, s->m, sizeof block);
    assert_true(zeros[4] == 0);
    want[2].optional = false;
    assert_int_equal(bt_memory_state_load(shared, &id, want, 3, &err), BT_FORMAT);
    id.step++;
    assert_int_equal(bt_memory_state_load(shared, &id, want, 2, &err), BT_FORMAT);
}

/* The array has several sections, the last with few elements. */
static void test_long_array(void **state) {
    (void)state;
    enum { N = 2 * MEMORY_SECTION_ELEMS + 7 };
    bt_err err = BT_ERR_INIT;
    bt_memory_id id;
    bt_memory_state *m;
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    assert_true(x && y);
    bt_rng_normal(x, N, 0, 1.0f, 1, 9);
    bt_ckpt_slice slice = {"embed", "weight", N, 0, N, x, 0, 0, BT_CKPT_F32, false};
    const bt_memory_cfg cfg = {
        .dir = shared, .world = bt_comm_world(), .slices = &slice, .n = 1, .attempt = 1};
    check_ok(bt_memory_state_open(&m, &cfg, &err), &err);
    write_at(m, 3, true);
    bt_memory_state_close(m);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    slice.data = y;
    check_ok(bt_memory_state_load(shared, &id, &slice, 1, &err), &err);
    assert_memory_equal(x, y, N * sizeof *x);
    free(x);
    free(y);
}

/* The saved values grow with every skipped batch. Thousands fit; a state whose values do not fit leaves the previous
 * one unchanged. */
static void test_long_values(void **state) {
    bt_err err;
    bt_memory_id id;
    bt_ckpt_meta meta, found;
    bt_memory_state *m = open_in(*state, shared, 1, NULL, &err);
    assert_non_null(m);
    fill_meta(&meta, 7, 0);
    bt_text_clear(&meta.state);
    bt_text_put(&meta.state, "{\"skipped\": {\"ranges\": [0");
    for (int i = 1; i < 7000; i++) bt_text_printf(&meta.state, ",%d", 1000000 + i);
    bt_text_put(&meta.state, "]}, \"progress\": {\"lr_factor\": 0.25}}");
    check_ok(bt_memory_state_write(m, &meta, 1, &err), &err);
    bt_memory_state_publish(m);
    assert_true(bt_memory_state_find(shared, &id, &found));
    assert_string_equal(bt_text_str(&found.state), bt_text_str(&meta.state));
    bt_ckpt_meta_release(&found);

    for (int i = 0; i < 3000; i++) bt_text_put(&meta.state, "        ");
    assert_int_equal(bt_memory_state_write(m, &meta, 1, &err), BT_UNSUPPORTED);
    bt_memory_state_publish(m);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_int_equal(id.step, 7);
    bt_memory_state_close(m);
    bt_ckpt_meta_release(&meta);
}

/* If a rank dies while it writes, the previous state is used. */
static void test_two_segments(void **state) {
    world *s = *state;
    bt_err err;
    bt_memory_id id = {0};
    float w[N_W];
    const bt_ckpt_slice want = {"layers.0.attn_q", "weight", N_W, 0, N_W, w, 0, 0,
                                BT_CKPT_F32,       false};
    bt_memory_state *m = open_in(s, shared, 1, NULL, &err);
    assert_non_null(m);
    for (int step = 1; step <= 5; step++) {
        s->w[0] = (float)step;
        write_at(m, step, false);
        assert_int_equal(bt_memory_state_find(shared, &id, NULL), step > 1);
        if (step > 1) {
            assert_int_equal(id.step, step - 1);
            check_ok(bt_memory_state_load(shared, &id, &want, 1, &err), &err);
            assert_true(w[0] == (float)(step - 1));
        }
        bt_memory_state_publish(m);
        bt_memory_state_publish(m); /* A second call has no effect. */
        const bt_memory_id before = id;
        assert_true(bt_memory_state_find(shared, &id, NULL));
        assert_int_equal(id.step, step);
        /* Both segments are found in any order of the folder's entries. */
        check_ok(bt_memory_state_load(shared, &id, &want, 1, &err), &err);
        assert_true(w[0] == (float)step);
        if (step == 1) continue;
        check_ok(bt_memory_state_load(shared, &before, &want, 1, &err), &err);
        assert_true(w[0] == (float)(step - 1));
    }
    write_at(m, 6, false); /* The rank is killed before it publishes the state. */
    bt_memory_state_close(m);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_int_equal(id.step, 5);

    /* The next attempt writes its first state into the other segment, whatever that contains. */
    m = open_in(s, shared, 2, &id, &err);
    assert_non_null(m);
    s->w[0] = 60;
    write_at(m, 6, false);
    bt_memory_id again;
    assert_true(bt_memory_state_find(shared, &again, NULL));
    assert_int_equal(again.attempt, 1);
    assert_int_equal(again.step, 5);
    check_ok(bt_memory_state_load(shared, &again, &want, 1, &err), &err);
    assert_true(w[0] == 5);
    bt_memory_state_publish(m);
    /* After a rollback the newer attempt is used, although its step is smaller. */
    bt_memory_state_close(m);
    m = open_in(s, shared, 3, NULL, &err);
    write_at(m, 2, true);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_int_equal(id.step, 2);
    bt_memory_state_close(m);
    bt_memory_state_drop(shared);
    assert_false(bt_memory_state_find(shared, &id, NULL));
}

static void name_of_segment(char out[400]) {
    DIR *d = opendir(shared);
    out[0] = '\0';
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') snprintf(out, 400, "%s/%s", shared, e->d_name);
    closedir(d);
}

static void test_every_byte(void **state) {
    world *s = *state;
    bt_err err;
    bt_memory_id id;
    struct stat st;
    char path[400];
    float embed[N_EMBED], w[N_W], block[N_W / 3];
    const bt_ckpt_slice want[] = {
        {"embed", "weight", N_EMBED, 0, N_EMBED, embed, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "weight", N_W, 0, N_W, w, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "exp_avg", N_W, 0, N_W / 3, block, 3, 9, BT_CKPT_F32, false}};
    bt_memory_state *m = open_in(s, shared, 1, NULL, &err);
    assert_non_null(m);
    write_at(m, 3, true);
    bt_memory_state_close(m);
    /* finds the only segment file */
    DIR *d = opendir(shared);
    for (struct dirent *e; (e = readdir(d));) {
        char other[400];
        memory_head h;
        if (e->d_name[0] == '.') continue;
        snprintf(other, sizeof other, "%s/%s", shared, e->d_name);
        int fd = open(other, O_RDONLY);
        assert_int_equal(read(fd, &h, sizeof h), sizeof h);
        close(fd);
        if (h.self_hash == 0)
            unlink(other);
        else
            strcpy(path, other);
    }
    closedir(d);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_int_equal(stat(path, &st), 0);
    int fd = open(path, O_RDWR);
    const off_t data = (off_t)memory_data_begin(3);
    off_t found = 0, refused = 0, gaps = 0;
    for (off_t at = 0; at < st.st_size; at++) {
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        bt_memory_id now;
        if (!bt_memory_state_find(shared, &now, NULL))
            found++;
        else if (bt_memory_state_load(shared, &id, want, 3, &err) == BT_FORMAT)
            refused++;
        else /* The bytes between two sections are zero. */
            gaps++;
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    /* The end of the table and all sections are aligned. */
    assert_true(found >= data - 63 && found <= data);
    assert_int_equal(refused, (N_EMBED + N_W + N_W / 3) * sizeof(float));
    assert_true(gaps < 4 * 64);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_false(bt_memory_state_find(shared, &id, NULL));
}

/* Another layout uses other segments; the old ones are removed when they are no longer needed. */
static void test_other_layout(void **state) {
    world *s = *state;
    bt_err err;
    bt_memory_id id;
    bt_memory_state *m = open_in(s, shared, 1, NULL, &err), *n = NULL;
    assert_non_null(m);
    write_at(m, 8, true);
    bt_memory_state_close(m);
    assert_true(bt_memory_state_find(shared, &id, NULL));
    const bt_ckpt_slice whole = {"embed",  "weight", N_EMBED, 0,           N_EMBED,
                                 s->embed, 0,        0,       BT_CKPT_F32, false};
    const bt_memory_cfg cfg = {.dir = shared,
                               .world = bt_comm_world(),
                               .slices = &whole,
                               .n = 1,
                               .attempt = 2,
                               .begun_from = &id};
    check_ok(bt_memory_state_open(&n, &cfg, &err), &err);
    for (int step = 9; step < 12; step++) {
        write_at(n, step, false);
        assert_true(bt_memory_state_find(shared, &id, NULL));
        assert_int_equal(id.step, step - 1);
        bt_memory_state_publish(n);
    }
    bt_memory_state_close(n);
    int segments = 0;
    DIR *d = opendir(shared);
    for (struct dirent *e; (e = readdir(d));) segments += e->d_name[0] != '.';
    closedir(d);
    /* All segments of the first layout are removed. */
    assert_int_equal(segments, 2);
}

/* A lack of memory or space is an error that leaves no files. */
static void test_lack_of_space_is_an_error(void **state) {
    world *s = *state;
    bt_err err;
    bt_memory_id id;
    assert_null(open_in(s, "/proc", 1, NULL, &err));
    assert_int_equal(err.code, BT_UNSUPPORTED);
    assert_null(open_in(s, "/nonexistent", 1, NULL, &err));
    const bt_ckpt_slice huge = {
        "embed", "weight", UINT64_C(1) << 44, 0,    UINT64_C(1) << 36, s->embed,
        0,       0,        BT_CKPT_F32,       false};
    const bt_memory_cfg cfg = {
        .dir = shared, .world = bt_comm_world(), .slices = &huge, .n = 1, .attempt = 1};
    bt_memory_state *m = NULL;
    assert_int_equal(bt_memory_state_open(&m, &cfg, &err), BT_IO);
    assert_null(m);
    assert_non_null(strstr(err.msg, "MiB of free space, but two states need"));
    char path[400];
    name_of_segment(path);
    assert_string_equal(path, "");
    /* Other entries of the folder are ignored. */
    snprintf(path, sizeof path, "%s/state-00000-1-x-0", shared);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/state-00000-1-x-1", shared);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_false(bt_memory_state_find(shared, &id, NULL));
    m = open_in(s, shared, 1, NULL, &err);
    assert_non_null(m);
    bt_ckpt_meta meta;
    fill_meta(&meta, 1, 0);
    for (int i = 0; i < MEMORY_VALUES; i++) bt_text_put(&meta.state, " ");
    assert_int_equal(bt_memory_state_write(m, &meta, 0, &err), BT_UNSUPPORTED);
    bt_ckpt_meta_release(&meta);
    bt_memory_state_close(m);
}

/* Existing segments need no more space; new ones must leave some space free. */
static void test_free_space_is_kept(void **state) {
    world *s = *state;
    bt_err err;
    char says[200];
    const uint64_t spare = UINT64_C(32) << 20;
    bt_memory_state *m = open_in(s, shared, 1, NULL, &err);
    assert_non_null(m);
    const uint64_t bytes = bt_memory_state_total(m); /* multiples of a cache line of 64 bytes */
    bt_memory_state_close(m);
    free_bytes = 0;
    m = open_in(s, shared, 1, NULL, &err); /* The segments are reused. */
    assert_non_null(m);
    bt_memory_state_close(m);
    bt_memory_state_drop(shared);
    free_bytes = bytes + spare - 64;
    assert_null(open_in(s, shared, 1, NULL, &err));
    assert_int_equal(err.code, BT_IO);
    snprintf(says, sizeof says,
             "'%s' has only %.1f MiB of free space, but two states need %.1f MiB", shared,
             (double)free_bytes / 1048576, (double)bytes / 1048576);
    assert_string_equal(err.msg, says);
    free_bytes = bytes + spare;
    m = open_in(s, shared, 1, NULL, &err);
    assert_non_null(m);
    bt_memory_state_close(m);
    free_bytes = UINT64_MAX;
}

/* The estimate without slices: two segments, each with head, table, data and gaps. */
static void test_estimated_bytes(void **state) {
    (void)state;
    const size_t head = sizeof(memory_head), row = sizeof(section_head),
                 one = 4 * MEMORY_SECTION_ELEMS;
    assert_int_equal(bt_memory_state_bytes(0, 0), 2 * head);
    assert_int_equal(bt_memory_state_bytes(100, 4), 2 * (head + 4 * row + 100 + 4 * 64));
    assert_int_equal(bt_memory_state_bytes(one - 1, 4), 2 * (head + 4 * row + one - 1 + 4 * 64));
    assert_int_equal(bt_memory_state_bytes(3 * one, 1), 2 * (head + 4 * row + 3 * one + 4 * 64));
}

/* A section contains as many whole rows of a block as fit, records its position in the tensor and is 64-byte
 * aligned. */
static void test_rows_per_section(void **state) {
    (void)state;
    enum { MOST = MEMORY_SECTION_ELEMS };
    static const struct {
        uint64_t elems, first, count;
        uint32_t width, stride;
        bt_ckpt_type type;
        size_t n;
        struct {
            uint64_t first, count;
        } want[3];
    } rows[] = {
        {MOST, 0, MOST, 0, 0, BT_CKPT_F32, 1, {{0, MOST}}},
        {MOST + 3, 2, MOST + 1, 0, 0, BT_CKPT_F32, 2, {{2, MOST}, {2 + MOST, 1}}},
        {9 * MOST,
         5,
         3 * MOST,
         0,
         0,
         BT_CKPT_U8,
         3,
         {{5, MOST}, {5 + MOST, MOST}, {5 + 2 * MOST, MOST}}},
        /* 30000 of every 50000 elements: two rows per section */
        {500000, 7, 90000, 30000, 50000, BT_CKPT_F32, 2, {{7, 60000}, {100007, 30000}}},
        {500000, 0, 60000, 30000, 50000, BT_CKPT_BF16, 1, {{0, 60000}}},
        /* One row is longer than the usual section. */
        {400000,
         0,
         2 * (MOST + 4),
         MOST + 4,
         100000,
         BT_CKPT_U8,
         2,
         {{0, MOST + 4}, {100000, MOST + 4}}},
        {MOST, 0, 0, 0, 0, BT_CKPT_F32, 0, {{0, 0}}},
    };
    unsigned char *data = calloc(4, 3 * MOST);
    assert_non_null(data);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        bt_memory_state *m;
        memory_segments all;
        for (size_t k = 0; k < (size_t)12 * MOST; k++) data[k] = (unsigned char)(k * 7 + i);
        const bt_ckpt_slice slice = {"w",           "weight", rows[i].elems, rows[i].first,
                                     rows[i].count, data,     rows[i].width, rows[i].stride,
                                     rows[i].type,  false};
        const bt_memory_cfg cfg = {
            .dir = shared, .world = bt_comm_world(), .slices = &slice, .n = 1, .attempt = 1};
        check_ok(bt_memory_state_open(&m, &cfg, &err), &err);
        write_at(m, 3, true);
        ckpt_memory_open(&all, shared);
        assert_int_equal(all.n, 1);
        const memory_head *h = memory_head_of(&all.at[0]);
        const section_head *table = (const section_head *)(const void *)(all.at[0].at + sizeof *h);
        const size_t elem = bt_ckpt_type_bytes(rows[i].type);
        uint64_t at = (sizeof *h + rows[i].n * sizeof *table + 63) / 64 * 64, done = 0;
        assert_int_equal(h->n_sections, rows[i].n);
        for (size_t k = 0; k < rows[i].n; k++) {
            assert_true(table[k].magic == CKPT_SECTION_MAGIC && table[k].elem_bytes == elem);
            assert_true(table[k].type == (uint16_t)rows[i].type);
            assert_true(table[k].tensor_elems == rows[i].elems);
            assert_true(table[k].width == rows[i].width && table[k].stride == rows[i].stride);
            if (table[k].first != rows[i].want[k].first || table[k].count != rows[i].want[k].count)
                fail_msg("row %zu, section %zu: %d+%d", i, k, (int)table[k].first,
                         (int)table[k].count);
            assert_memory_equal(all.at[0].at + at, data + done * elem, table[k].count * elem);
            done += table[k].count;
            at = (at + table[k].count * elem + 63) / 64 * 64;
        }
        assert_true(done == rows[i].count && at == h->bytes && at == all.at[0].bytes);
        assert_int_equal(bt_memory_state_total(m), 2 * at);
        assert_true(h->version == 1 && h->attempt == 1 && h->number == 1 && h->disk_ns == 12345 &&
                    h->spread == 0 && h->world_size == 1 && h->rank == 0 && h->data_hash == 7);
        assert_string_equal(h->run, "calm-otter-1");
        assert_string_equal(h->build, "test");
        ckpt_memory_close(&all);
        bt_memory_state_close(m);
        bt_memory_state_drop(shared);
    }
    free(data);
}

static void test_long_names(void **state) {
    world *s = *state;
    char name[80], file[400];
    for (int of_state = 0; of_state < 2; of_state++)
        for (size_t n = of_state ? 31 : 55, most = n; n <= most + 1; n++) {
            bt_err err = BT_ERR_INIT;
            bt_memory_state *m = NULL;
            memset(name, 'n', n);
            name[n] = '\0';
            const bt_ckpt_slice slice = {of_state ? "w" : name,
                                         of_state ? name : "weight",
                                         N_W,
                                         0,
                                         N_W,
                                         s->w,
                                         0,
                                         0,
                                         BT_CKPT_F32,
                                         false};
            const bt_memory_cfg cfg = {
                .dir = shared, .world = bt_comm_world(), .slices = &slice, .n = 1, .attempt = 1};
            assert_int_equal(bt_memory_state_open(&m, &cfg, &err), n == most ? BT_OK : BT_ARG);
            assert_int_equal(m != NULL, n == most);
            if (n > most) assert_non_null(strstr(err.msg, "' is too long"));
            bt_memory_state_close(m);
            bt_memory_state_drop(shared);
            name_of_segment(file);
            assert_string_equal(file, "");
        }
}

int main(void) {
    if (access("/dev/shm", W_OK) != 0) return 77;
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_shared, tear_down_shared)
    const struct CMUnitTest tests[] = {TEST(test_round_trip),
                                       TEST(test_long_array),
                                       TEST(test_long_values),
                                       TEST(test_two_segments),
                                       TEST(test_every_byte),
                                       TEST(test_other_layout),
                                       TEST(test_lack_of_space_is_an_error),
                                       TEST(test_free_space_is_kept),
                                       TEST(test_estimated_bytes),
                                       TEST(test_rows_per_section),
                                       TEST(test_long_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
