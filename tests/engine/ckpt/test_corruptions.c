/* test_corruptions.c - 2,000 random damages of a checkpoint: flipped bits, changed bytes, holes, blocks that are
 * exchanged or copied from the previous checkpoint, and files that are truncated, lengthened, missing or taken from
 * another checkpoint. Each damage is refused with a reason, and the previous checkpoint is used. SEED=N repeats a
 * sequence of damages. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { DAMAGES = 2000, KINDS = 9 };

static const char *const kinds[KINDS] = {"a bit flipped",      "bytes overwritten",
                                         "a hole of zeros",    "two blocks changed places",
                                         "a block of another", "cut off",
                                         "lengthened",         "missing",
                                         "another's file"};

typedef struct whole {
    char path[PATH_MAX];
    unsigned char *data;
    size_t n;
} whole;

static uint64_t seed, drawn;
static size_t draw_below(size_t below) { return (size_t)(bt_rng_u64(seed, 1, drawn++) % below); }

static void save_at(world *s, int64_t step, bt_err *err) {
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    fill_meta(&meta, step, 0);
    check_ok(save_world(s, &meta, 4, &saved, err), err);
    bt_ckpt_meta_release(&meta);
}

static void write_copy(const whole *w, const unsigned char *data, size_t n) {
    const int fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    close(fd);
}

static void read_whole_file(whole *w, const char *folder, const char *name) {
    struct stat st;
    snprintf(w->path, sizeof w->path, "%.3000s/%.255s", folder, name);
    const int fd = open(w->path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    w->n = (size_t)st.st_size;
    w->data = malloc(w->n + 1);
    assert_non_null(w->data);
    assert_int_equal(read(fd, w->data, w->n), w->n);
    close(fd);
}

/* Reads the manifest and the data file of a checkpoint. */
static void take_all(whole out[2], const char *folder) {
    int n = 1;
    read_whole_file(&out[0], folder, "manifest.json");
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".btck") && n < 2) read_whole_file(&out[n++], folder, e->d_name);
    closedir(d);
    assert_int_equal(n, 2);
}

/* Makes a damaged copy; returns true if it differs from the original. */
static bool damage_copy(const whole *w, const whole *other, int kind, unsigned char *copy) {
    size_t n = w->n, at = draw_below(n), most = n - at < 512 ? n - at : 512,
           k = 1 + draw_below(most);
    memcpy(copy, w->data, n);
    switch (kind) {
    case 0: copy[at] ^= (unsigned char)(1 << draw_below(8)); break;
    case 1:
        for (size_t i = 0; i < k; i++) copy[at + i] = (unsigned char)draw_below(256);
        break;
    case 2: memset(copy + at, 0, k); break;
    case 3: {
        const size_t to = draw_below(n - k + 1);
        memcpy(copy + to, w->data + at, k);
        memcpy(copy + at, w->data + to, k);
        break;
    }
    case 4:
        if (at + k > other->n) return false;
        memcpy(copy + at, other->data + at, k);
        break;
    case 5: n = at; break;
    case 6:
        for (size_t i = 0; i < k; i++) copy[n++] = (unsigned char)draw_below(256);
        break;
    case 7: return unlink(w->path) == 0;
    default:
        n = other->n;
        memcpy(copy, other->data, n);
        break;
    }
    if (n == w->n && memcmp(copy, w->data, n) == 0) return false;
    write_copy(w, copy, n);
    return true;
}

static void every_damage_is_refused(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], folder[128];
    whole newest[2], before[2];
    size_t of_kind[KINDS] = {0}, done = 0;
    check_ok(bt_ckpt_begin(s->dir, 0, &err), &err);
    save_at(s, 100, &err);
    bt_rng_normal(s->m, N_W, 0, 1.0f, 1, 4);
    save_at(s, 200, &err);
    snprintf(folder, sizeof folder, "%s/step-000000000100", s->dir);
    take_all(before, folder);
    snprintf(folder, sizeof folder, "%s/step-000000000200", s->dir);
    take_all(newest, folder);
    unsigned char *copy = malloc(newest[0].n + newest[1].n + before[0].n + before[1].n + 1024);
    assert_non_null(copy);
    while (done < DAMAGES) {
        const int kind = (int)draw_below(KINDS), f = (int)draw_below(2);
        bt_ckpt_meta meta;
        bt_text why;
        if (!damage_copy(&newest[f], &before[f], kind, copy)) continue;
        bt_text_init(&why);
        const bt_code code = find(s, path, &meta, &why, &err);
        if (code != BT_OK || meta.step != 100)
            fail_msg("damage %zu (SEED=%llu), %s in %s: %s, step %lld", done,
                     (unsigned long long)seed, kinds[kind], f ? "the data" : "the manifest",
                     bt_code_name(code), (long long)meta.step);
        /* A folder without a manifest was never committed, so no warning mentions it. */
        if (!(kind == 7 && f == 0) && !strstr(bt_text_str(&why), "step-000000000200 passed over"))
            fail_msg("damage %zu (SEED=%llu), %s: no reason is given", done,
                     (unsigned long long)seed, kinds[kind]);
        bt_ckpt_meta_release(&meta);
        bt_text_release(&why);
        write_copy(&newest[f], newest[f].data, newest[f].n);
        of_kind[kind]++;
        done++;
    }
    check_ok(find(s, path, NULL, NULL, &err), &err);
    assert_string_equal(strrchr(path, '/'), "/step-000000000200");
    printf("%d of %d refused (SEED=%llu):", DAMAGES, DAMAGES, (unsigned long long)seed);
    for (int i = 0; i < KINDS; i++)
        printf(" %zu %s%s", of_kind[i], kinds[i], i + 1 < KINDS ? "," : "\n");
    free(copy);
    for (int f = 0; f < 2; f++) {
        free(newest[f].data);
        free(before[f].data);
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 10) : 16;
    if (bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_damage_is_refused, set_up, tear_down)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
