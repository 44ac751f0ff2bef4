/* test_reading.c - verification of a file with a limited share of a processor, reserved zero bytes of its head, and
 * folder names that contain format directives. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <sys/stat.h>

#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/ckpt/format.h"

/* Saves one tensor in one file; path receives the path of the checkpoint. */
static void save_elems(const char *dir, size_t elems, char *path) {
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    float *x = calloc(elems, sizeof *x);
    assert_non_null(x);
    const bt_ckpt_slice put = {"embed", "weight", elems, 0, elems, x, 0, 0, BT_CKPT_F32, false};
    fill_meta(&meta, 1, 0);
    const bt_ckpt_job job = {.dir = dir, .meta = &meta, .slices = &put, .n = 1, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    snprintf(path, PATH_MAX, "%s", saved.path);
    bt_ckpt_meta_release(&meta);
    free(x);
}

/* A reader limited to a tenth of a processor sleeps nine tenths of its time. */
static void a_limited_reader_sleeps_most_of_the_time(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX];
    ckpt_manifest m = {0};
    save_elems(s->dir, 1 << 20, path);
    check_ok(ckpt_manifest_read(path, &m, &err), &err);
    const ckpt_reading how = {.share = 0.1};
    const int64_t wall_ns = bt_now_ns(), cpu_ns = bt_thread_cpu_ns();
    check_ok(ckpt_file_read_whole(path, &m.files[0], m.generation, m.meta.step, &how, &err), &err);
    const int64_t used_ns = bt_thread_cpu_ns() - cpu_ns, took_ns = bt_now_ns() - wall_ns;
    if (took_ns < 5 * used_ns)
        fail_msg("%lld ns of a processor in %lld ns", (long long)used_ns, (long long)took_ns);
    ckpt_manifest_release(&m);
}

/* Reserved bytes are zero, so that a later version can use them. */
static void reserved_bytes_are_zero(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], file[PATH_MAX + 64];
    ckpt_manifest m = {0};
    file_head head;
    save_elems(s->dir, 100, path);
    check_ok(ckpt_manifest_read(path, &m, &err), &err);
    snprintf(file, sizeof file, "%s/%s", path, m.files[0].name);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&head, sizeof head, 1, f), 1);
    fclose(f);
    assert_memory_equal(head.magic, CKPT_FILE_MAGIC, sizeof head.magic);
    assert_true(head.reserved == 0 && head.n_sections == 1 && head.file_bytes == m.files[0].bytes);
    ckpt_manifest_release(&m);
}

/* A block of columns is divided into as few sections of whole rows as its elements need. */
static void blocks_of_columns_have_few_sections(void **state) {
    world *s = *state;
    static const struct {
        uint32_t width, stride;
        uint64_t rows, sections;
    } rows[] = {{10, 20, 100, 1},
                {1000, 1000, CKPT_SECTION_ELEMS / 1000, 1},
                {1000, 1000, CKPT_SECTION_ELEMS / 1000 + 1, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        bt_ckpt_meta meta;
        bt_ckpt_saved saved;
        ckpt_manifest m = {0};
        const uint64_t elems = rows[i].rows * rows[i].stride;
        float *x = calloc(elems, sizeof *x);
        const bt_ckpt_slice put = {
            "embed", "weight",      elems,          0,           rows[i].rows * rows[i].width,
            x,       rows[i].width, rows[i].stride, BT_CKPT_F32, false};
        fill_meta(&meta, (int64_t)i, 0);
        const bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = &put, .n = 1, .keep = 1};
        check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
        check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
        assert_int_equal(m.files[0].n_sections, rows[i].sections);
        ckpt_manifest_release(&m);
        bt_ckpt_meta_release(&meta);
        free(x);
    }
}

/* Flips a bit of byte `at` of a file. */
static void flip_bit_of_byte(const char *file, uint64_t at) {
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    const int was = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(was ^ 1, f);
    fclose(f);
}

/* Two tensors in a file are damaged; the error contains the name and the bytes of the first one. */
static void the_first_damage_is_named(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], file[PATH_MAX + 64], says[120];
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    ckpt_manifest m = {0};
    ckpt_section *sections = NULL;
    fill_meta(&meta, 1, 0);
    check_ok(save_world(s, &meta, 1, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    strcpy(path, saved.path);
    check_ok(ckpt_manifest_read(path, &m, &err), &err);
    assert_true(m.n_files == 1 && m.files[0].n_sections == 4);
    check_ok(ckpt_file_open(path, &m.files[0], m.generation, 1, NULL, &sections, &err), &err);
    snprintf(file, sizeof file, "%s/%s", path, m.files[0].name);
    for (int k = 3; k >= 0; k--) { /* damages the last section first */
        flip_bit_of_byte(file, sections[k].data_offset + 5);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_file_verify(path, &m.files[0], m.generation, 1, &err), BT_FORMAT);
        const section_head *h = &sections[k].head;
        snprintf(says, sizeof says, "': bytes %llu..%llu ('%s' %s) have the hash ",
                 (unsigned long long)sections[k].data_offset,
                 (unsigned long long)(sections[k].data_offset + h->count * h->elem_bytes - 1),
                 h->tensor, h->state);
        if (!strstr(err.msg, says) || !strstr(err.msg, "(bits changed)"))
            fail_msg("'%s' does not contain '%s'", err.msg, says);
    }
    free(sections);
    ckpt_manifest_release(&m);
}

/* If any byte of the head, a section head, the index or the foot is damaged, the error contains the first and the last
 * byte of that part. */
static void every_damaged_part_is_named(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], file[PATH_MAX + 64];
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    ckpt_manifest m = {0};
    ckpt_section *sections = NULL;
    struct {
        uint64_t begin, end;
        char says[64];
    } parts[8];
    size_t n = 0;
    fill_meta(&meta, 1, 0);
    check_ok(save_world(s, &meta, 1, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    strcpy(path, saved.path);
    check_ok(ckpt_manifest_read(path, &m, &err), &err);
    const ckpt_file *f = &m.files[0];
    check_ok(ckpt_file_open(path, f, m.generation, 1, NULL, &sections, &err), &err);
    snprintf(file, sizeof file, "%s/%s", path, f->name);
    parts[n].begin = 8, parts[n].end = 64;
    snprintf(parts[n++].says, 64, "bytes 0..63 (head) are damaged");
    for (uint64_t i = 0; i < f->n_sections; i++) {
        parts[n].end = sections[i].data_offset, parts[n].begin = parts[n].end - 144;
        snprintf(parts[n].says, 64, "bytes %llu..%llu (head of section %llu) are damaged",
                 (unsigned long long)parts[n].begin, (unsigned long long)(parts[n].end - 1),
                 (unsigned long long)i);
        n++;
    }
    const uint64_t foot = f->bytes - 48;
    parts[n].begin = foot - 8 * f->n_sections, parts[n].end = foot;
    snprintf(parts[n].says, 64, "bytes %llu..%llu (index) are damaged",
             (unsigned long long)parts[n].begin, (unsigned long long)(foot - 1));
    n++;
    parts[n].begin = foot, parts[n].end = f->bytes;
    snprintf(parts[n++].says, 64, "the last 48 bytes (foot) are damaged");
    for (size_t i = 0; i < n; i++)
        for (uint64_t at = parts[i].begin; at < parts[i].end; at++) {
            flip_bit_of_byte(file, at);
            err = (bt_err)BT_ERR_INIT;
            assert_int_equal(ckpt_file_verify(path, f, m.generation, 1, &err), BT_FORMAT);
            if (!strstr(err.msg, parts[i].says))
                fail_msg("byte %llu: '%s' does not contain '%s'", (unsigned long long)at, err.msg,
                         parts[i].says);
            flip_bit_of_byte(file, at);
        }
    check_ok(ckpt_file_verify(path, f, m.generation, 1, &err), &err);
    /* The file is valid but differs from the manifest. */
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(ckpt_file_verify(path, f, m.generation + 1, 1, &err), BT_FORMAT);
    assert_int_equal(ckpt_file_verify(path, f, m.generation, 2, &err), BT_FORMAT);
    ckpt_file other = *f;
    other.rank++;
    assert_int_equal(ckpt_file_verify(path, &other, m.generation, 1, &err), BT_FORMAT);
    other = *f;
    other.n_sections--;
    assert_int_equal(ckpt_file_verify(path, &other, m.generation, 1, &err), BT_FORMAT);
    other = *f;
    other.hash[31] ^= 1;
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(ckpt_file_verify(path, &other, m.generation, 1, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "the manifest lists"));
    for (int more = -1; more < 2; more += 2) {
        other = *f;
        other.bytes = (uint64_t)((int64_t)other.bytes + more);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_file_verify(path, &other, m.generation, 1, &err), BT_FORMAT);
        assert_non_null(strstr(err.msg, more > 0 ? "(truncated)" : "(other data were appended)"));
    }
    free(sections);
    ckpt_manifest_release(&m);
}

static void write_at(const char *file, uint64_t at, const void *data, size_t n) {
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* Heads, foot and section heads with a valid seal and invalid contents are refused. */
static void sealed_invalid_parts_are_refused(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char file[PATH_MAX + 64];
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    ckpt_manifest m = {0};
    ckpt_section *sections = NULL;
    file_head head, h;
    file_foot foot, g;
    int fd = -1;
    fill_meta(&meta, 1, 0);
    check_ok(save_world(s, &meta, 1, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
    const ckpt_file *f = &m.files[0];
    snprintf(file, sizeof file, "%s/%s", saved.path, f->name);
    check_ok(ckpt_file_open(saved.path, f, m.generation, 1, &fd, &sections, &err), &err);
    check_ok(ckpt_read_all(fd, &head, sizeof head, 0, file, &err), &err);
    check_ok(ckpt_read_all(fd, &foot, sizeof foot, f->bytes - sizeof foot, file, &err), &err);
    close(fd);
    for (int how = 0; how < 8; how++) {
        h = head;
        if (how == 0) h.version = 0;
        if (how == 1) h.version = CKPT_VERSION + 1;
        if (how == 2) h.n_sections++;
        if (how == 3) h.file_bytes--;
        if (how == 4) h.generation++;
        if (how == 5) h.step++;
        if (how == 6) h.rank++;
        if (how == 7) h.version = 1; /* Version 1 is accepted. */
        h.self_hash = XXH3_64bits(&h, sizeof h - sizeof h.self_hash);
        write_at(file, 0, &h, sizeof h);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_file_open(saved.path, f, m.generation, 1, NULL, NULL, &err),
                         how == 7 ? BT_OK : BT_FORMAT);
        static const char *const says[] = {"has version 0, but this",
                                           "has version 3, but this",
                                           "disagree about",
                                           "disagree about",
                                           "another save",
                                           "another save",
                                           "another save",
                                           ""};
        if (!strstr(err.msg, says[how])) fail_msg("head %d: '%s'", how, err.msg);
    }
    write_at(file, 0, &head, sizeof head);
    for (int how = 0; how < 4; how++) {
        g = foot;
        if (how == 0) g.n_sections--;
        if (how == 1) g.file_bytes++;
        if (how == 2) g.index_offset -= 8;
        if (how == 3) g.index_hash++;
        g.self_hash = XXH3_64bits(&g, sizeof g - sizeof g.self_hash);
        write_at(file, f->bytes - sizeof g, &g, sizeof g);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_file_open(saved.path, f, m.generation, 1, NULL, NULL, &err),
                         BT_FORMAT);
        if (!strstr(err.msg, how < 3 ? "(foot) do not describe this file" : "(index) are damaged"))
            fail_msg("foot %d: '%s'", how, err.msg);
    }
    write_at(file, f->bytes - sizeof foot, &foot, sizeof foot);
    for (int how = 0; how < 3; how++) { /* fields of the second section head */
        section_head x = sections[1].head;
        ckpt_section *list = NULL;
        if (how == 0) x.magic++;
        if (how == 1) x.count--; /* The next section would begin elsewhere. */
        if (how == 2) x.first = x.tensor_elems;
        x.self_hash = XXH3_64bits(&x, sizeof x - sizeof x.self_hash);
        write_at(file, sections[1].data_offset - sizeof x, &x, sizeof x);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_file_open(saved.path, f, m.generation, 1, NULL, &list, &err),
                         BT_FORMAT);
        static const char *const says[] = {"(head of section 1) are damaged",
                                           "section 2 does not begin at byte",
                                           "section 1 describes an impossible slice"};
        if (!strstr(err.msg, says[how])) fail_msg("section %d: '%s'", how, err.msg);
        assert_null(list);
        check_ok(ckpt_file_open(saved.path, f, m.generation, 1, NULL, NULL, &err), &err);
    }
    /* The last section ends before the index begins. */
    write_at(file, sections[1].data_offset - sizeof(section_head), &sections[1].head,
             sizeof(section_head));
    section_head x = sections[3].head;
    x.count--;
    x.self_hash = XXH3_64bits(&x, sizeof x - sizeof x.self_hash);
    write_at(file, sections[3].data_offset - sizeof x, &x, sizeof x);
    ckpt_section *list = NULL;
    assert_int_equal(ckpt_file_open(saved.path, f, m.generation, 1, NULL, &list, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "': the sections end at byte "));
    free(sections);
    ckpt_manifest_release(&m);
}

/* Whole zero blocks, which a file system may leave after a crash, are reported as such; shorter runs of zeros are
 * not. */
static void zero_blocks_are_reported(void **state) {
    world *s = *state;
    static float x[3 << 18];
    enum { N = sizeof x / sizeof *x };
    bt_err err = BT_ERR_INIT;
    char file[PATH_MAX + 64], says[80];
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    ckpt_manifest m = {0};
    bt_rng_normal(x, N, 0, 1, 3, 3);
    x[0] = 0;
    const bt_ckpt_slice put = {"embed", "weight", N, 0, N, x, 0, 0, BT_CKPT_F32, false};
    fill_meta(&meta, 1, 0);
    const bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = &put, .n = 1, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
    snprintf(file, sizeof file, "%s/%s", saved.path, m.files[0].name);
    static const struct {
        size_t at, n; /* floats */
        size_t block; /* offset in the data, in bytes */
    } rows[] = {{2 << 18, 1023, 0},
                {(2 << 18) + 2048, 1024, (2 << 20) + 8192},
                /* two zero blocks; the first is reported */
                {(1 << 18) + 4096, 2048, (1 << 20) + 16384},
                {(1 << 18) - 1024, 1024, (1 << 20) - 4096}, /* at the end of one read */
                {0, 1024, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const float zeros[2048];
        FILE *f = fopen(file, "r+b");
        assert_non_null(f);
        const long data = sizeof(file_head) + sizeof(section_head);
        assert_int_equal(fseek(f, data + (long)(4 * rows[i].at), SEEK_SET), 0);
        assert_int_equal(fwrite(zeros, 4, rows[i].n, f), rows[i].n);
        fclose(f);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_file_verify(saved.path, &m.files[0], m.generation, 1, &err),
                         BT_FORMAT);
        if (i == 0)
            snprintf(says, sizeof says, "(bits changed)");
        else
            snprintf(says, sizeof says, "(perhaps the zeros from byte %ld)",
                     data + (long)rows[i].block);
        if (!strstr(err.msg, says)) fail_msg("'%s' does not contain '%s'", err.msg, says);
    }
    ckpt_manifest_release(&m);
}

static void a_folder_may_have_any_name(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char dir[PATH_MAX], path[PATH_MAX], found[PATH_MAX];
    bt_ckpt_meta meta;
    bt_text why;
    snprintf(dir, sizeof dir, "%s/at 100%% %%d", s->dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    save_elems(dir, 100, path);
    assert_non_null(strstr(path, "/at 100% %d/step-"));
    bt_text_init(&why);
    check_ok(bt_ckpt_find(bt_comm_world(), path, found, sizeof found, &meta, &why, &err), &err);
    assert_string_equal(found, path);
    bt_ckpt_meta_release(&meta);
    bt_text_release(&why);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_limited_reader_sleeps_most_of_the_time),
        TEST(reserved_bytes_are_zero),
        TEST(the_first_damage_is_named),
        TEST(blocks_of_columns_have_few_sections),
        TEST(every_damaged_part_is_named),
        TEST(zero_blocks_are_reported),
        TEST(a_folder_may_have_any_name),
        TEST(sealed_invalid_parts_are_refused),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return rc;
}
