/* test_memory_parts.c - parts of states in shared memory, written byte by byte: validity of a part, the newest complete
 * state, loading, removal of old states, and ownership of the files. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/base/hash.h"
#include "engine/ckpt/memory/memory_format.h"

enum { EACH = 8, MOST = 4 }; /* elements of a part; number of ranks */

typedef struct part {
    uint32_t rank, world;
    int64_t attempt, number, step;
} part;

typedef struct segment {
    size_t bytes;
    unsigned char *at;
} segment;

static memory_head *head_of(segment *s) { return (memory_head *)s->at; }
static section_head *table_of(segment *s) { return (section_head *)(s->at + sizeof(memory_head)); }

static void seal_part(segment *s) {
    memory_head *h = head_of(s);
    h->table_hash = XXH3_64bits(table_of(s), h->n_sections * sizeof(section_head));
    h->self_hash = XXH3_64bits(h, sizeof *h - sizeof h->self_hash);
}

/* Returns the value of the elements of a part, which differs between parts. */
static float value_of(const part *p) {
    return (float)(1000 * p->attempt + 100 * p->number + 10 * p->step + p->rank);
}

static segment make_part(const part *p) {
    segment s = {.bytes = memory_data_begin(1) + 64};
    s.at = calloc(1, s.bytes);
    assert_non_null(s.at);
    memory_head *h = head_of(&s);
    memcpy(h->magic, MEMORY_MAGIC, sizeof h->magic);
    h->version = 1, h->rank = p->rank, h->world_size = p->world;
    h->attempt = p->attempt, h->number = p->number, h->step = p->step;
    h->n_sections = 1, h->bytes = s.bytes;
    float *data = (float *)(void *)(s.at + memory_data_begin(1));
    for (int i = 0; i < EACH; i++) data[i] = value_of(p);
    *table_of(&s) = (section_head){.magic = CKPT_SECTION_MAGIC,
                                   .elem_bytes = 4,
                                   .tensor = "w",
                                   .state = "weight",
                                   .tensor_elems = (uint64_t)EACH * MOST,
                                   .first = (uint64_t)EACH * p->rank,
                                   .count = EACH,
                                   .data_hash = XXH3_64bits(data, EACH * sizeof *data)};
    seal_part(&s);
    return s;
}

static void put_segment(world *w, int file, const segment *s) {
    char path[128];
    snprintf(path, sizeof path, "%s/" MEMORY_PREFIX "%d", w->dir, file);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, s->at, s->bytes), s->bytes);
    close(fd);
}

static void put_part(world *w, int file, const part *p) {
    segment s = make_part(p);
    put_segment(w, file, &s);
    free(s.at);
}

static bool is_part_found(const world *w, int file) {
    char path[128];
    snprintf(path, sizeof path, "%s/" MEMORY_PREFIX "%d", w->dir, file);
    return access(path, F_OK) == 0;
}

static void damage_segment(segment *s, int how) {
    memory_head *h = head_of(s);
    switch (how) {
    case 0: h->magic[7] ^= 1; break;
    case 1: h->version = 2; break;
    case 2: h->bytes++; break;
    case 3: h->bytes--; break;
    case 4: h->values_bytes = MEMORY_VALUES; break;
    case 5: h->n_sections = s->bytes / sizeof(section_head) + 1; break;
    case 6: h->n_sections = UINT64_MAX / sizeof(section_head) + 1; break;
    case 7: table_of(s)->count = EACH * 2 + 1; break; /* The part has room for 16 elements. */
    case 8: table_of(s)->type = BT_CKPT_TYPES; break;
    case 9: table_of(s)->first = EACH * MOST - EACH + 1; break;
    default: s->bytes = sizeof(memory_head) - 1; break;
    }
}

static void only_whole_parts_are_taken(void **state) {
    (void)state;
    const part p = {1, 4, 3, 2, 1};
    segment s = make_part(&p);
    memory_mapped m = {s.at, s.bytes};
    assert_true(ckpt_memory_is_whole(&m));
    head_of(&s)->values_bytes = MEMORY_VALUES - 1;
    table_of(&s)->count = 2 * EACH; /* the largest possible count */
    seal_part(&s);
    assert_true(ckpt_memory_is_whole(&m));
    free(s.at);
    for (int how = 0; how <= 10; how++) {
        s = make_part(&p);
        damage_segment(&s, how);
        m = (memory_mapped){s.at, s.bytes};
        if (how < 5 ||
            how >
                6) { /* The other kinds of damage do not leave a table for this number of sections. */
            if (how <= 9) seal_part(&s);
        } else {
            memory_head *h = head_of(&s);
            h->self_hash = XXH3_64bits(h, sizeof *h - sizeof h->self_hash);
        }
        if (ckpt_memory_is_whole(&m)) fail_msg("case %d", how);
        free(s.at);
    }
    s = make_part(&p); /* A section without elements may end where the data would begin. */
    table_of(&s)->count = 0;
    head_of(&s)->bytes = s.bytes = memory_data_begin(1);
    seal_part(&s);
    m = (memory_mapped){s.at, s.bytes};
    assert_true(ckpt_memory_is_whole(&m));
    free(s.at);
    s = make_part(&p);
    m = (memory_mapped){s.at, s.bytes};
    table_of(&s)->data_hash ^= 1; /* The seal does not match. */
    assert_false(ckpt_memory_is_whole(&m));
    table_of(&s)->data_hash ^= 1;
    head_of(&s)->self_hash = 0; /* 0 marks a part that is being written */
    assert_false(ckpt_memory_is_whole(&m));
    free(s.at);
}

static void a_part_belongs_to_one_state(void **state) {
    (void)state;
    memory_head h = {.attempt = 5, .number = 6, .step = 7};
    for (int64_t a = 4; a <= 6; a++)
        for (int64_t n = 5; n <= 7; n++)
            for (int64_t t = 6; t <= 8; t++) {
                const bt_memory_id id = {a, n, t, 0};
                assert_int_equal(ckpt_memory_is_of(&h, &id), a == 5 && n == 6 && t == 7);
            }
}

/* States are ordered by attempt, then by number; incomplete states never count. */
static void the_newest_that_is_complete_is_found(void **state) {
    world *w = *state;
    bt_memory_id id;
    static const part parts[] = {
        {0, 2, 1, 9, 30}, {1, 2, 1, 9, 30},                  /* complete, of an older attempt */
        {0, 2, 2, 4, 12}, {1, 2, 2, 4, 12},                  /* parts of two steps */
        {0, 2, 2, 5, 14}, {1, 2, 2, 5, 15},                  /* parts of two world sizes */
        {0, 2, 3, 1, 1},  {1, 3, 3, 1, 1},                   /* rank 0 twice, rank 1 never */
        {0, 2, 4, 1, 1},  {0, 2, 4, 1, 1},  {2, 2, 4, 1, 1}, /* rank outside its world */
        {1, 1, 5, 1, 1},                                     /* completes the state */
    };
    enum { N = sizeof parts / sizeof *parts };
    assert_false(bt_memory_state_find(w->dir, &id, NULL));
    for (int i = 0; i < N; i++) put_part(w, i, &parts[i]);
    assert_true(bt_memory_state_find(w->dir, &id, NULL));
    assert_true(id.attempt == 2 && id.number == 4 && id.step == 12);
    put_part(w, N, &(part){1, 2, 2, 5, 14}); /* The other parts are on other hosts. */
    assert_true(bt_memory_state_find(w->dir, &id, NULL));
    assert_true(id.attempt == 2 && id.number == 5 && id.step == 14);
    /* A part that differs in any field belongs to another state, which it neither completes nor blocks. */
    segment spread = make_part(&(part){0, 9, 2, 6, 16});
    head_of(&spread)->spread = 1;
    seal_part(&spread);
    put_segment(w, N + 1, &spread);
    free(spread.at);
    assert_true(bt_memory_state_find(w->dir, &id, NULL));
    assert_true(id.number == 6 && id.step == 16);
}

static void change_part_field(segment *s, int field, int by) {
    memory_head *h = head_of(s);
    switch (field) {
    case 0: h->attempt += by; break;
    case 1: h->number += by; break;
    case 2: h->step += by; break;
    case 3: h->world_size += (uint32_t)by; break;
    default: h->params_hash += (uint64_t)by; break;
    }
    seal_part(s);
}

/* In the order of the folder, the foreign part is before or after the right one. */
static void parts_of_other_states_complete_nothing(void **state) {
    world *w = *state;
    bt_memory_id id;
    for (int field = 0; field < 5; field++)
        for (int by = -1; by <= 1; by += 2) {
            segment first = make_part(&(part){0, 2, 5, 5, 5}),
                    other = make_part(&(part){1, 2, 5, 5, 5});
            change_part_field(&first, 4, 7);
            change_part_field(&other, 4, 7);
            change_part_field(&other, field, by);
            put_segment(w, 0, &first);
            put_segment(w, 1, &other);
            if (bt_memory_state_find(w->dir, &id, NULL)) fail_msg("field %d, %+d", field, by);
            /* The folder holds parts of other states from the same ranks, one of them twice. */
            put_segment(w, 3, &other);
            change_part_field(&other, field, -by);
            put_segment(w, 2, &other);
            if (!bt_memory_state_find(w->dir, &id, NULL)) fail_msg("field %d, %+d", field, by);
            bt_memory_state_drop(w->dir);
            free(first.at);
            free(other.at);
        }
}

static void parts_of_one_state_are_loaded(void **state) {
    world *w = *state;
    float x[EACH * MOST];
    bt_err err = BT_ERR_INIT;
    const bt_memory_id id = {2, 4, 12, 0};
    const bt_ckpt_slice all = {"w", "weight", EACH * MOST, 0,           EACH * MOST,
                               x,   0,        0,           BT_CKPT_F32, false};
    /* parts that are being written */
    for (uint32_t r = 0; r < MOST; r++) {
        put_part(w, (int)r, &(part){r, MOST, 2, 3, 12});
        put_part(w, 10 + (int)r, &(part){r, MOST, 2, 4, 12});
        put_part(w, 20 + (int)r, &(part){r, MOST, 2, 4, 13});
    }
    put_part(w, 30, &(part){1, MOST, 2, 4, 12});
    check_ok(bt_memory_state_load(w->dir, &id, &all, 1, &err), &err);
    for (uint32_t i = 0; i < EACH * MOST; i++)
        assert_true(x[i] == value_of(&(part){i / EACH, MOST, 2, 4, 12}));
    char path[128];
    for (int file = 12; file <= 13; file++) {
        snprintf(path, sizeof path, "%s/" MEMORY_PREFIX "%d", w->dir, file);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(bt_memory_state_load(w->dir, &id, &all, 1, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "has the parts of only 2 of 4 ranks for step 12"));
}

static void older_attempts_are_dropped(void **state) {
    world *w = *state;
    for (int i = 0; i < 4; i++) put_part(w, i, &(part){0, 1, 3 + i, 9 - i, 1});
    segment torn = make_part(&(part){0, 1, 5, 1, 1}); /* a part that is being written */
    head_of(&torn)->self_hash = 0;
    put_segment(w, 4, &torn);
    free(torn.at);
    ckpt_memory_drop_older(w->dir, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(is_part_found(w, i), i >= 2);
    bt_memory_state_drop(w->dir);
    for (int i = 0; i < 5; i++) assert_false(is_part_found(w, i));
}

/* Existing files of the right length are reused, and remain when newly created ones are removed. */
static void existing_files_are_kept(void **state) {
    world *w = *state;
    bt_err err = BT_ERR_INIT;
    memory_pair p;
    const memory_pair_name name = {w->dir, 3, 4, 0xabcdef, ""};
    const uint64_t bytes = memory_data_begin(1);
    ckpt_pair_init(&p, &name, bytes);
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/" MEMORY_PREFIX "00003-4-0000000000abcdef-%d", w->dir, i);
        assert_string_equal(p.seg[i].path, path);
        assert_true(!p.seg[i].at && !p.seg[i].made);
    }
    ckpt_pair_close(&p); /* The existing files have not been used yet. */
    ckpt_pair_remove(&p);
    assert_true(ckpt_pair_missing(&p) == 2 * bytes);
    check_ok(ckpt_pair_take(&p, NULL, &err), &err);
    assert_true(p.seg[0].made && p.seg[1].made && p.next == 0);
    assert_true(ckpt_pair_missing(&p) == 0);
    /* The files belong to this user, have the right length, and contain zeros. */
    for (int i = 0; i < 2; i++) {
        struct stat st;
        assert_true(stat(p.seg[i].path, &st) == 0 && (st.st_mode & 07777) == 0600);
        assert_true((uint64_t)st.st_size == bytes && st.st_blocks * 512 >= st.st_size);
        assert_int_equal(((memory_head *)p.seg[i].at)->self_hash, 0);
    }
    /* The state from which this attempt resumes is not the first to be overwritten. */
    *(memory_head *)p.seg[0].at = (memory_head){.attempt = 2, .number = 3, .self_hash = 1};
    ckpt_pair_close(&p);
    for (int64_t attempt = 1; attempt <= 3; attempt++)
        for (int64_t number = 2; number <= 4; number++) {
            const bt_memory_id from = {attempt, number, 0, 0};
            ckpt_pair_init(&p, &name, bytes);
            check_ok(ckpt_pair_take(&p, &from, &err), &err);
            assert_false(p.seg[0].made || p.seg[1].made);
            assert_int_equal(p.next, attempt == 2 && number == 3);
            assert_ptr_equal(ckpt_pair_head(&p), p.seg[p.next].at);
            ckpt_pair_close(&p);
        }
    ckpt_pair_remove(&p);
    assert_true(access(p.seg[0].path, F_OK) == 0 && access(p.seg[1].path, F_OK) == 0);
    for (int i = 0; i < 2; i++) { /* Either of the two files may be missing or shorter. */
        assert_int_equal(i ? unlink(p.seg[i].path) : truncate(p.seg[i].path, (off_t)bytes - 1), 0);
        assert_true(ckpt_pair_missing(&p) == bytes * (uint64_t)(i + 1));
        memory_segment s = {.at = NULL};
        if (i == 0) continue;
        strcpy(s.path, p.seg[0].path);
        check_ok(ckpt_segment_take(&s, bytes, &err), &err);
        assert_true(s.made && ckpt_pair_missing(&p) == bytes);
        assert_int_equal(munmap(s.at, bytes), 0);
    }
    ckpt_pair_init(&p, &name, bytes + 64); /* Files of another length are replaced. */
    assert_true(ckpt_pair_missing(&p) == 2 * (bytes + 64));
    check_ok(ckpt_pair_take(&p, NULL, &err), &err);
    assert_true(p.seg[0].made && p.seg[1].made);
    ckpt_pair_close(&p);
    ckpt_pair_remove(&p);
    assert_true(access(p.seg[0].path, F_OK) != 0 && access(p.seg[1].path, F_OK) != 0);
}

static void a_file_that_cannot_be_created_is_reported(void **state) {
    world *w = *state;
    bt_err err = BT_ERR_INIT;
    memory_segment s = {.at = NULL};
    snprintf(s.path, sizeof s.path, "%s/none/" MEMORY_PREFIX "0", w->dir);
    assert_int_equal(ckpt_segment_take(&s, 64, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot create '"));
    assert_null(s.at);
    /* A symbolic link and a file that is too long are refused. */
    snprintf(s.path, sizeof s.path, "%s/" MEMORY_PREFIX "0", w->dir);
    assert_int_equal(symlink("elsewhere", s.path), 0);
    assert_int_equal(ckpt_segment_take(&s, 64, &err), BT_IO);
    assert_int_equal(unlink(s.path), 0);
    signal(SIGXFSZ, SIG_IGN); /* The file size is limited by RLIMIT_FSIZE. */
    assert_int_not_equal(ckpt_segment_take(&s, UINT64_C(1) << 62, &err), BT_OK);
    assert_non_null(strstr(err.msg, "cannot allocate 4398046511104.0 MiB for '"));
    assert_null(s.at);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_whole_parts_are_taken),
                                       cmocka_unit_test(a_part_belongs_to_one_state),
                                       TEST(the_newest_that_is_complete_is_found),
                                       TEST(parts_of_other_states_complete_nothing),
                                       TEST(parts_of_one_state_are_loaded),
                                       TEST(older_attempts_are_dropped),
                                       TEST(existing_files_are_kept),
                                       TEST(a_file_that_cannot_be_created_is_reported)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
