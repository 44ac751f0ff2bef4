/* test_memory_spread.c - a state in memory whose parts are spread over several hosts, and one that the first
 * host sends to all, with ranks as threads: in every layout the whole state is recovered, also after the
 * loss of a host; a failure of one rank or of a collective fails all ranks and leaves no files. */
#include "tests/memory/refuse_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_ring.h"
#include "tests/engine/ckpt/rank_threads.h"

enum { EACH = 500, MORE = 100, MOST = EACH + MORE * RANKS_MOST };

static char base[64];

/* Parts have different lengths, so that they cannot be confused. */
static uint64_t length_of(int rank) { return EACH + (uint64_t)MORE * (uint64_t)rank; }
static uint64_t first_of(int rank) {
    uint64_t at = 0;
    for (int r = 0; r < rank; r++) at += length_of(r);
    return at;
}
static uint64_t segment_bytes(int rank) {
    return memory_data_begin(1) + ((length_of(rank) * sizeof(float) + 63) & ~UINT64_C(63));
}
static float value(int64_t step, uint64_t i) { return (float)(step * 10000 + (int64_t)i); }
static int me(void) { return bt_comm_rank(rank_world); }

static const char *folder(int rank) {
    static char path[RANKS_MOST][96];
    if (!path[0][0]) /* executed before threads exist */
        for (int r = 0; r < RANKS_MOST; r++)
            snprintf(path[r], sizeof path[r], "%s/%d/states", base, r);
    return path[bt_comm_host(rank)];
}

static int files_in(const char *dir, const char *with) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && strstr(e->d_name, with) != NULL;
    if (d) closedir(d);
    return n;
}

static void remove_all(const char *what) {
    char cmd[256];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'%s", base, what);
    if (system(cmd) != 0) abort();
}

static void check_ok(bt_code code, const bt_err *err) {
    if (code != BT_OK) fprintf(stderr, "%s: %s\n", bt_code_name(code), err->msg);
    CHECK(code == BT_OK);
}

/* all hosts */
static void remove_states(void) {
    for (int r = 0; r < rank_count; r++) bt_memory_dir_remove(folder(r));
}

static void synchronise_all(void) {
    bt_err err = BT_ERR_INIT;
    check_ok(bt_barrier(rank_world, &err), &err);
}

/* ---- one state ----------------------------------------------------------------------------------- */

static bt_code open_state(bt_memory_state **m, bt_comm *world, float *part, int attempt,
                          bool spread, bt_err *err) {
    const int rank = bt_comm_rank(world);
    const bt_ckpt_slice mine = {.tensor = "w",
                                .state = "weight",
                                .tensor_elems = first_of(bt_comm_size(world)),
                                .first = first_of(rank),
                                .count = length_of(rank),
                                .data = part};
    const bt_memory_cfg cfg = {.dir = folder(me()),
                               .world = world,
                               .slices = &mine,
                               .n = 1,
                               .attempt = attempt,
                               .spread = spread};
    *m = NULL;
    BT_TRY(bt_memory_dir_make(folder(me()), err));
    return bt_memory_state_open(m, &cfg, err);
}

static bt_code write_step(bt_memory_state *m, float *part, int rank, int64_t step, bt_err *err) {
    static char values[] = "{\"a\": 1}";
    bt_ckpt_meta meta = {.step = step,
                         .tokens = 77 * step,
                         .params_hash = 11,
                         .data_hash = 12,
                         .run = "spread",
                         .isa = "avx2",
                         .build = "this"};
    for (uint64_t i = 0; i < length_of(rank); i++) part[i] = value(step, first_of(rank) + i);
    meta.state = (bt_text){.data = values, .len = strlen(values)};
    return bt_memory_state_write(m, &meta, 9 + step, err);
}

/* Reads elements [first, first + count) of the newest state; the ranks that wrote it have `all` elements
 * together. */
static bt_code read_back(const char *dir, uint64_t all, uint64_t first, uint64_t count,
                         int64_t step, bt_err *err) {
    float x[MOST * RANKS_MOST];
    bt_memory_found *f = NULL;
    bt_memory_id id;
    bt_ckpt_meta meta;
    const bt_ckpt_slice want = {.tensor = "w",
                                .state = "weight",
                                .tensor_elems = all,
                                .first = first,
                                .count = count,
                                .data = x};
    memset(x, 0, sizeof x);
    bt_code code = bt_memory_found_open(&f, dir, rank_world, &id, &meta, err);
    CHECK((code == BT_OK) == (f != NULL));
    if (code == BT_OK) code = bt_memory_found_load(f, &want, 1, err);
    if (code == BT_OK) {
        CHECK(id.step == step && id.attempt == 1 && id.disk_ns == 9 + step && id.number >= 1);
        CHECK(meta.step == step && meta.tokens == 77 * step && meta.attempt == 1);
        CHECK(meta.params_hash == 11 && meta.data_hash == 12);
        CHECK(strcmp(meta.run, "spread") == 0 && strcmp(meta.isa, "avx2") == 0 &&
              strcmp(meta.build, "this") == 0);
        CHECK(meta.state.failed || strcmp(bt_text_str(&meta.state), "{\"a\": 1}") == 0);
        for (uint64_t i = 0; i < count; i++) CHECK(x[i] == value(step, first + i));
        for (uint64_t i = count; i < MOST * RANKS_MOST; i++) CHECK(x[i] == 0);
    }
    bt_ckpt_meta_release(&meta);
    bt_memory_found_close(f);
    return code;
}

static void read_ok(uint64_t first, uint64_t count, int64_t step) {
    bt_err err = BT_ERR_INIT;
    check_ok(read_back(folder(me()), first_of(rank_count), first, count, step, &err), &err);
}

/* ---- all layouts --------------------------------------------------------------------------------- */

static const char *const layouts[] = {"1,1", "2,2", "1,3", "3,1", "1,1,1", "2,1,3", "2,2,2"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void write_and_read(void *ctx) {
    (void)ctx;
    bt_err err = BT_ERR_INIT;
    bt_memory_state *m;
    bt_memory_id id;
    float part[MOST];
    uint64_t bytes = 2 * segment_bytes(me());
    int files = 0;
    for (int r = 0; r < rank_count; r++) {
        const int keeper = bt_memory_keeper(r, rank_count);
        if (keeper == me()) bytes += 2 * segment_bytes(r);
        files += 2 * (bt_comm_host(r) == bt_comm_host(me()));
        files += 2 * (keeper >= 0 && bt_comm_host(keeper) == bt_comm_host(me()));
    }
    check_ok(open_state(&m, rank_world, part, 1, true, &err), &err);
    synchronise_all();
    CHECK(bt_memory_state_total(m) == bytes);
    CHECK(files_in(folder(me()), "state-") == files);
    for (int64_t step = 1; step <= 3; step++) {
        check_ok(write_step(m, part, me(), step, &err), &err);
        if (me() != 0) bt_memory_state_publish(m);
        synchronise_all(); /* Only rank 0 publishes. */
        CHECK(bt_memory_state_find(folder(0), &id, NULL) == (step > 1));
        CHECK(step == 1 || id.step == step - 1);
        synchronise_all();
        if (me() == 0) bt_memory_state_publish(m);
        synchronise_all();
        CHECK(bt_memory_state_find(folder(0), &id, NULL) && id.step == step && id.number == step);
        const uint64_t all = first_of(rank_count);
        const int other = rank_count - 1 - me();
        read_ok(0, all, step);
        read_ok(first_of(me()), length_of(me()), step);
        read_ok(first_of(other) + 3, length_of(other) - 5, step);
        read_ok(me() == 0 ? 0 : all - 1, 1, step);
        CHECK(files_in(folder(me()), "") == files); /* The copies have been removed. */
        synchronise_all();
    }
    bt_memory_state_close(m);
}

/* Reads without the folder of one host other than the first, whose ranks may have been started elsewhere. */
static void read_without(void *ctx) {
    char gone[32];
    for (int host = 1; host < rank_count; host++) {
        if (bt_comm_host(host) != host) continue;
        snprintf(gone, sizeof gone, "/%d", host);
        synchronise_all();
        if (me() == 0) {
            remove_all(".kept");
            char cmd[256];
            snprintf(cmd, sizeof cmd, "cp -r '%s' '%s.kept'", base, base);
            CHECK(system(cmd) == 0);
            remove_all(gone);
        }
        synchronise_all();
        read_ok(0, first_of(rank_count), 3);
        synchronise_all();
        if (me() == 0) {
            char cmd[256];
            snprintf(cmd, sizeof cmd, "rm -rf '%s' && mv '%s.kept' '%s'", base, base, base);
            CHECK(system(cmd) == 0);
        }
        synchronise_all();
        read_ok(0, first_of(rank_count), 3);
    }
    (void)ctx;
}

static void the_whole_state_is_restored_in_every_layout(void **state) {
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        const long before = memory_blocks(false);
        with_ranks(layouts[i], write_and_read, NULL);
        with_ranks(layouts[i], read_without, NULL);
        assert_int_equal(live_objects(), 0);
        assert_int_equal(memory_blocks(false), before);
        remove_all("/*");
    }
}

/* Two neighbouring hosts are lost, so that one part is missing: a rank that reads another part receives the
 * error as well. */
static void read_lost(void *ctx) {
    (void)ctx;
    bt_err err = BT_ERR_INIT;
    CHECK(read_back(folder(me()), first_of(3), 0, 1, 3, &err) == BT_FORMAT);
    CHECK(strstr(err.msg, "has 2 of 3 ranks' parts of step 3 on the hosts there are"));
}

static void two_neighbours_are_lost(void **state) {
    (void)state;
    with_ranks("1,1,1", write_and_read, NULL);
    remove_all("/1");
    remove_all("/2");
    with_ranks("1,1,1", read_lost, NULL);
    remove_all("/*");
}

/* Remains of an interrupted start in place of a copy are replaced; a folder that cannot be created is an
 * error. */
static void read_here(void *ctx) {
    (void)ctx;
    read_ok(0, first_of(rank_count), 3);
}
static void read_nowhere(void *ctx) {
    (void)ctx;
    bt_err err = BT_ERR_INIT;
    CHECK(read_back(folder(me()), first_of(2), 0, first_of(2), 3, &err) == BT_IO);
    CHECK(err.rank == 1 && strstr(err.msg, "is not a folder of this user alone"));
    CHECK(read_back(folder(me()), first_of(2), first_of(me()), 0, 3, &err) == BT_OK);
}

static void copies_need_a_folder(void **state) {
    (void)state;
    char path[128];
    with_ranks("1,1", write_and_read, NULL);
    snprintf(path, sizeof path, "%s/1/states/" MEMORY_PREFIX "00000-2-copy-1", base);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    with_ranks("1,1", read_here, NULL);
    assert_int_equal(access(path, F_OK), -1);
    remove_all("/1");
    snprintf(path, sizeof path, "%s/1", base);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    with_ranks("1,1", read_nowhere, NULL);
    remove_all("/*");
}

/* ---- a state of the first host ------------------------------------------------------------------- */

static int64_t newest = 2;

/* The first `writers` ranks, all of the first host, write. */
static void write_first(void *ctx) {
    const int writers = *(const int *)ctx;
    bt_err err = BT_ERR_INIT;
    bt_memory_state *m;
    bt_comm *c;
    float part[MOST];
    check_ok(bt_comm_split(&c, rank_world, me() < writers, me(), &err), &err);
    for (int64_t step = 1; step <= newest && me() < writers; step++) {
        check_ok(open_state(&m, c, part, 1, false, &err), &err);
        check_ok(write_step(m, part, me(), step, &err), &err);
        bt_memory_state_publish(m);
        CHECK(bt_memory_state_total(m) == 2 * segment_bytes(me()));
        bt_memory_state_close(m);
    }
    bt_comm_free(c);
    synchronise_all();
    CHECK(bt_memory_is_here(me()) == (bt_comm_host(me()) == 0));
    CHECK(bt_memory_all_here(rank_world) == (bt_comm_host(rank_count - 1) == 0));
}

static void read_first(void *ctx) {
    const int writers = *(const int *)ctx;
    bt_err err = BT_ERR_INIT;
    check_ok(read_back(folder(me()), first_of(writers), 0, first_of(writers), 2, &err), &err);
    CHECK(files_in(folder(me()), "") == (bt_comm_host(me()) == 0 ? 2 * writers : 0));
}

static void the_first_host_gives_its_state_to_all(void **state) {
    (void)state;
    static const struct {
        const char *hosts;
        int writers;
    } rows[] = {{"1,1", 1}, {"2,2", 2}, {"3,1", 3}, {"2,1,3", 2}, {"3", 3}, {"1", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int writers = rows[i].writers;
        const long before = memory_blocks(false);
        with_ranks(rows[i].hosts, write_first, &writers);
        with_ranks(rows[i].hosts, read_first, &writers);
        assert_int_equal(live_objects(), 0);
        assert_int_equal(memory_blocks(false), before);
        remove_all("/*");
    }
}

static void read_elsewhere(void *ctx) {
    bt_err err = BT_ERR_INIT;
    const char *const *dirs = ctx;
    CHECK(read_back(dirs[me() == 1], first_of(2), 0, 1, 2, &err) == BT_FORMAT);
    CHECK(strstr(err.msg, dirs[2]) && err.rank == 1);
}

static void ranks_of_a_host_find_the_same(void **state) {
    (void)state;
    int writers = 2;
    char one[96], other[96];
    snprintf(one, sizeof one, "%s/0/states", base);
    snprintf(other, sizeof other, "%s/other", base);
    assert_int_equal(mkdir(other, 0700), 0);
    const char *none[] = {one, other, "there is no whole state in memory ('"};
    with_ranks("2,1", write_first, &writers);
    with_ranks("2,1", read_elsewhere, none);
    assert_int_equal(rmdir(other), 0);
    assert_int_equal(rename(one, other), 0); /* a state of step 2 */
    newest = 1;
    with_ranks("2,1", write_first, &writers);
    newest = 2;
    const char *another[] = {one, other, "the ranks find different states in memory ('"};
    with_ranks("2,1", read_elsewhere, another);
    remove_all("/*");
}

/* ---- faults -------------------------------------------------------------------------------------- */

typedef struct story {
    const char *hosts;
    bool spread;
    int refuses_at; /* -1: no rank */
    refusal refuse;
    bool refused;
    bt_code code[RANKS_MOST];
    bt_err err[RANKS_MOST];
} story;

static bt_code tell_state(story *s, bt_comm *writers, bt_err *err) {
    float part[MOST];
    bt_memory_state *m = NULL;
    bt_code code = open_state(&m, writers, part, 1, s->spread, err);
    CHECK((code == BT_OK) == (m != NULL));
    if (code == BT_OK) code = write_step(m, part, bt_comm_rank(writers), 3, err);
    /* A lost message normally ends the job; here the error is shared with all ranks. */
    code = bt_agree(writers, code, err);
    if (code == BT_OK) bt_memory_state_publish(m);
    bt_memory_state_close(m);
    return code;
}

/* Writes, finds and loads the state. */
static void tell(void *ctx) {
    story *s = ctx;
    bt_err *err = &s->err[me()];
    bt_comm *writers = NULL;
    *err = (bt_err)BT_ERR_INIT;
    const bool writes = s->spread || bt_memory_is_here(me());
    if (me() == s->refuses_at) refuse_memory(&s->refuse);
    bt_code code = bt_comm_split(&writers, rank_world, writes, me(), err);
    if (code == BT_OK)
        code = bt_agree(rank_world, writes ? tell_state(s, writers, err) : BT_OK, err);
    const uint64_t all = code == BT_OK ? first_of(s->spread ? rank_count : 2) : 0;
    if (code == BT_OK) code = read_back(folder(me()), all, 0, all, 3, err);
    if (me() == s->refuses_at) s->refused = grant_memory();
    bt_comm_free(writers);
    s->code[me()] = code;
}

/* Checks that all ranks return the same code and no files remain; returns the code. */
static bt_code told(story *s, const char *what, long n) {
    const long before = memory_blocks(false);
    with_ranks(s->hosts, tell, s);
    for (int r = 0; r < rank_count; r++) {
        if (s->code[r] != s->code[0] || (s->code[r] != BT_OK && !s->err[r].msg[0]))
            fail_msg("%s %ld of %s: rank %d returns %s ('%s'), rank 0 %s ('%s')", what, n, s->hosts,
                     r, bt_code_name(s->code[r]), s->err[r].msg, bt_code_name(s->code[0]),
                     s->err[0].msg);
        if (files_in(folder(r), "copy")) fail_msg("%s %ld: a copy is left", what, n);
    }
    if (live_objects() != 0) fail_msg("%s %ld: %d objects are left", what, n, live_objects());
    if (memory_blocks(false) != before)
        fail_msg("%s %ld: %ld blocks are left", what, n, memory_blocks(false) - before);
    return s->code[0];
}

static const struct {
    const char *hosts;
    bool spread;
} stories[] = {{"1,1", true}, {"2,2", true}, {"2,1", false}};
enum { STORIES = sizeof stories / sizeof *stories };

static void a_collective_that_fails_fails_at_all(void **state) {
    (void)state;
    for (int i = 0; i < STORIES; i++) {
        story s = {.hosts = stories[i].hosts, .spread = stories[i].spread, .refuses_at = -1};
        collective_that_fails = 0;
        assert_int_equal(told(&s, "collective", 0), BT_OK);
        const long total = collectives;
        assert_true(total > 10);
        for (long n = 1; n <= total; n++) {
            remove_states();
            collective_that_fails = n;
            if (told(&s, "collective", n) != BT_MPI)
                fail_msg("collective %ld of %ld of %s fails: %s '%s'", n, total, s.hosts,
                         bt_code_name(s.code[0]), s.err[0].msg);
        }
        collective_that_fails = 0;
        remove_states();
    }
}

/* Only the list of states may be shorter, which leads to no state or missing parts. */
static void memory_that_one_rank_lacks_is_lacking(void **state) {
    (void)state;
    if (!refuse_memory_works()) return;
    for (int i = 0; i < STORIES; i++) {
        story s = {.hosts = stories[i].hosts, .spread = stories[i].spread};
        const int ranks = (int)strlen(s.hosts) == 3 ? s.hosts[0] + s.hosts[2] - 2 * '0' : 3;
        for (s.refuses_at = 0; s.refuses_at < ranks; s.refuses_at++)
            for (long k = 0;; k++) {
                s.refuse = (refusal){.after = k, .own = true};
                remove_states();
                const bt_code code = told(&s, "request for memory", k);
                if (code == BT_OK && s.refused) continue;
                if (code != (s.refused ? BT_NOMEM : BT_OK) && code != BT_FORMAT)
                    fail_msg("rank %d of %s, request %ld: %s '%s'", s.refuses_at, s.hosts, k,
                             bt_code_name(code), s.err[0].msg);
                if (!s.refused) break;
            }
        remove_states();
    }
}

/* Two ranks: the second sends its part and receives the first one's. */
static void a_failing_message_is_reported(void **state) {
    (void)state;
    story s = {.hosts = "1,1", .spread = true, .refuses_at = -1};
    for (mail_fails = MAIL_CREATE; mail_fails <= MAIL_WAIT; mail_fails++)
        for (mail_fails_at = 0; mail_fails_at < 2; mail_fails_at++) {
            bt_memory_id id;
            const bt_code code = told(&s, "message", (long)mail_fails);
            assert_int_equal(code, mail_fails == MAIL_CREATE ? BT_NOMEM : BT_MPI);
            /* Rank 0 sends after the state is valid, when rank 1 receives. */
            const bool later = (mail_fails == MAIL_SEND && mail_fails_at == 0) ||
                               (mail_fails == MAIL_RECV && mail_fails_at == 1);
            assert_int_equal(bt_memory_state_find(folder(0), &id, NULL), later);
            remove_states();
        }
    mail_fails = MAIL_WORKS;
}

static void nothing(void *ctx) {
    (void)ctx;
    synchronise_all();
}

/* Other hosts verify the copy before they use it. */
static void a_damaged_copy_is_refused(void **state) {
    (void)state;
    story s = {.hosts = "2,2", .refuses_at = -1};
    for (broadcast_that_damages = 1; broadcast_that_damages <= 2; broadcast_that_damages++) {
        assert_int_equal(told(&s, "copy", broadcast_that_damages), BT_FORMAT);
        assert_non_null(strstr(s.err[1].msg, "a part of the state in memory arrived damaged"));
        assert_int_equal(s.err[1].rank, 1); /* Only ranks that take part report the error. */
        remove_states();
    }
    broadcast_that_damages = 0;
}

/* ---- parts longer than one message --------------------------------------------------------------- */

enum { LONG = (65 << 20) / sizeof(float), SHORT = 1000, ALL = SHORT + LONG };

typedef struct long_story {
    float *x, *y;
    bool spread;
} long_story;

/* The long part belongs to the last rank that writes. */
static void write_long(void *ctx) {
    const long_story *s = ctx;
    bt_err err = BT_ERR_INIT;
    bt_memory_state *m = NULL;
    bt_comm *c;
    const bt_ckpt_meta meta = {.step = 3, .run = "long"};
    const bool is_long = !s->spread || me() == 1;
    const bt_ckpt_slice mine = {.tensor = "w",
                                .state = "weight",
                                .tensor_elems = ALL,
                                .first = is_long && s->spread ? SHORT : 0,
                                .count = !s->spread ? ALL
                                         : is_long  ? LONG
                                                    : SHORT,
                                .data = s->x + (is_long && s->spread ? SHORT : 0)};
    check_ok(bt_comm_split(&c, rank_world, s->spread || me() == 0, me(), &err), &err);
    const bt_memory_cfg cfg = {.dir = folder(me()),
                               .world = c,
                               .slices = &mine,
                               .n = 1,
                               .attempt = 1,
                               .spread = s->spread};
    if (s->spread || me() == 0) {
        check_ok(bt_memory_dir_make(folder(me()), &err), &err);
        check_ok(bt_memory_state_open(&m, &cfg, &err), &err);
        check_ok(bt_memory_state_write(m, &meta, 0, &err), &err);
        bt_memory_state_publish(m);
    }
    bt_memory_state_close(m);
    bt_comm_free(c);
    synchronise_all();
}

/* Only the second host reads, which has no part. */
static void read_long(void *ctx) {
    const long_story *s = ctx;
    bt_err err = BT_ERR_INIT;
    bt_memory_found *f = NULL;
    bt_memory_id id;
    bt_ckpt_meta meta;
    const bt_ckpt_slice want = {.tensor = "w",
                                .state = "weight",
                                .tensor_elems = ALL,
                                .count = me() == 1 ? ALL : 0,
                                .data = s->y};
    check_ok(bt_memory_found_open(&f, folder(me()), rank_world, &id, &meta, &err), &err);
    check_ok(bt_memory_found_load(f, &want, 1, &err), &err);
    bt_ckpt_meta_release(&meta);
    bt_memory_found_close(f);
}

static void long_parts_go_in_pieces(void **state) {
    (void)state;
    struct statvfs v;
    long_story s = {.x = malloc(ALL * sizeof(float)), .y = malloc(ALL * sizeof(float))};
    assert_true(s.x && s.y && statvfs(base, &v) == 0);
    for (size_t i = 0; i < ALL; i++) s.x[i] = (float)i;
    const bool has_room = (uint64_t)v.f_bavail * v.f_frsize > UINT64_C(8) * ALL * sizeof(float);
    for (int spread = 0; spread < 2 && has_room; spread++) {
        memset(s.y, 0, ALL * sizeof(float));
        s.spread = spread;
        with_ranks("1,1", write_long, &s);
        if (spread) remove_all("/1");
        with_ranks("1,1", read_long, &s);
        assert_memory_equal(s.x, s.y, ALL * sizeof(float));
        remove_all("/*");
    }
    free(s.x);
    free(s.y);
}

int main(void) {
    if (access("/dev/shm", W_OK) != 0) return 77;
    strcpy(base, "/dev/shm/bt-spread-XXXXXX");
    if (!mkdtemp(base)) return 1;
    rank_count = 1;
    (void)folder(0);
    /* Creates the memory that the C library keeps for threads. */
    with_ranks("4,4", nothing, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_state_is_restored_in_every_layout),
        cmocka_unit_test(two_neighbours_are_lost),
        cmocka_unit_test(copies_need_a_folder),
        cmocka_unit_test(the_first_host_gives_its_state_to_all),
        cmocka_unit_test(ranks_of_a_host_find_the_same),
        cmocka_unit_test(a_collective_that_fails_fails_at_all),
        cmocka_unit_test(memory_that_one_rank_lacks_is_lacking),
        cmocka_unit_test(a_failing_message_is_reported),
        cmocka_unit_test(a_damaged_copy_is_refused),
        cmocka_unit_test(long_parts_go_in_pieces)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_all("");
    return failed;
}
