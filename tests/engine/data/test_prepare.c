/* test_prepare.c - texts are converted to shards of tokens: separators, segments, parts. The cache is created once by
 * many processes and created again when it is damaged or stale. */
#include "tests/engine/data/data_fixture.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/data/shards/prepare.h"

static bt_tokenizer *bytes, *bpe;

static int setup(void **state) {
    if (fixture_setup(state)) return -1;
    char *text = fixture_prose(30000);
    bt_tok_train_cfg cfg = {
        .paths = fixture_text("train.txt", text), .field = "text", .cache_dir = "", .vocab = 270};
    free(text);
    return bt_tokenizer_load(&bytes, "bytes", NULL) == BT_OK &&
                   bt_tokenizer_train(&bpe, &cfg, NULL) == BT_OK
               ? 0
               : -1;
}

static int teardown(void **state) {
    bt_tokenizer_free(bytes);
    bt_tokenizer_free(bpe);
    return fixture_teardown(state);
}

static bt_sources list_of_files(const char *paths) {
    bt_sources s;
    bt_err err;
    if (bt_sources_list_glob(&s, paths, "", "", &err) != BT_OK) fail_msg("%s", err.msg);
    return s;
}

/* Returns the decoded text of a shard, with '#' for end-of-text tokens. */
static char *text_of(bt_shard *s, const bt_tokenizer *t) {
    size_t n = (size_t)bt_shard_about(s)->count;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    bt_text out = {0};
    bt_err err;
    if (bt_shard_read(s, 0, n, ids, &err) != BT_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++) {
        if (bt_tokenizer_is_special(t, ids[i]))
            bt_text_put(&out, "#");
        else
            bt_tokenizer_decode(t, ids + i, 1, &out);
    }
    free(ids);
    return out.data ? out.data : strdup("");
}

static void separators_and_segments(void **state) {
    (void)state;
    char list[2000];
    snprintf(list, sizeof list, "%s\n%s\n%s\n%s", fixture_text("s1.txt", "one"),
             fixture_text("s2.txt", ""), fixture_text("s3.txt", "two\n"),
             fixture_text("s4.jsonl",
                          "{\"text\":\"three\"}\n{\"text\":\"\"}\n{\"text\":\"four\\n\"}\n"));
    bt_sources s = list_of_files(list);
    static const struct {
        int which;
        const char *text;
        uint64_t bytes;
    } cases[] = {{0, "one\ntwo\nthree\nfour\n", 19}, {1, "one#two\n#three#four\n#", 17}};
    for (int i = 0; i < 2; i++) {
        const bt_tokenizer *t = cases[i].which ? bpe : bytes;
        bt_prepare_cfg cfg = {.files = s.items, .n_files = s.n, .field = "text", .tokenizer = t};
        bt_prepare_result r;
        bt_shard *shard;
        uint64_t count, b;
        assert_int_equal(bt_prepare(&cfg, &r, &shard, NULL), BT_OK);
        char *text = text_of(shard, t);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(r.documents, 4);
        assert_int_equal(r.source_bytes, cases[i].bytes);
        assert_int_equal(bt_shard_about(shard)->n_segments, 3);
        bt_shard_segment(shard, 2, &count, &b);
        assert_int_equal(b, cases[i].which ? 10 : 11);
        free(text);
        bt_shard_close(shard);
    }
    bt_sources_release(&s);
}

/* Text that is read in pieces gives the ids of the whole text. */
static void pieces_change_nothing(void **state) {
    (void)state;
    char *text = fixture_prose(2500000);
    bt_sources s = list_of_files(fixture_text("large.txt", text));
    bt_prepare_cfg cfg = {.files = s.items, .n_files = s.n, .field = "text", .tokenizer = bpe};
    bt_shard *shard;
    int32_t *ids = NULL, *stored;
    size_t count, cap = 0;
    assert_int_equal(bt_prepare(&cfg, NULL, &shard, NULL), BT_OK);
    assert_int_equal(bt_tokenizer_encode(bpe, text, strlen(text), &ids, &count, &cap, NULL), BT_OK);
    assert_int_equal(bt_shard_about(shard)->count, count + 1);
    stored = malloc((count + 1) * sizeof *stored);
    assert_int_equal(bt_shard_read(shard, 0, count + 1, stored, NULL), BT_OK);
    assert_memory_equal(stored, ids, count * sizeof *ids);
    assert_int_equal(stored[count], bt_tokenizer_eot(bpe));
    free(ids);
    free(stored);
    free(text);
    bt_shard_close(shard);
    bt_sources_release(&s);
}

/* Any number of threads writes the same shard: texts, rows of JSON, empty documents, and a file with no place for a
 * cut. */
static void threads_change_nothing(void **state) {
    (void)state;
    char *prose = fixture_prose(1500000), *solid = malloc(700001), *rows = malloc(1000000),
         *at = rows, list[1200];
    memset(solid, 'x', 700000);
    solid[700000] = '\0';
    for (int i = 0; i < 9000; i++)
        at += sprintf(at, "{\"text\":\"%s%.*s\"}\n", i % 7 ? "row " : "", i % 7 ? i % 60 : 0,
                      "one two three four five six seven eight nine ten eleven twelve");
    snprintf(list, sizeof list, "%s\n%s\n%s\n%s", fixture_text("many1.txt", prose),
             fixture_text("many2.txt", solid), fixture_text("many3.txt", ""),
             fixture_text("many4.jsonl", rows));
    bt_sources s = list_of_files(list);
    for (int kind = 0; kind < 2; kind++) {
        bt_shard_info one = {0};
        for (int threads = 1; threads <= 5; threads += 2) {
            bt_prepare_cfg cfg = {.files = s.items,
                                  .n_files = s.n,
                                  .field = "text",
                                  .tokenizer = kind ? bpe : bytes,
                                  .threads = threads};
            bt_shard *shard;
            bt_err err;
            if (bt_prepare(&cfg, NULL, &shard, &err) != BT_OK) fail_msg("%s", err.msg);
            const bt_shard_info *info = bt_shard_about(shard);
            if (threads == 1) one = *info;
            assert_int_equal(info->n_segments, 3); /* that of the empty file is left out */
            assert_true(info->count == one.count && info->content_hash == one.content_hash &&
                        info->tables_hash == one.tables_hash);
            bt_shard_close(shard);
        }
    }
    bt_sources_release(&s);
    free(prose);
    free(solid);
    free(rows);
}

static void parts_join_to_the_whole(void **state) {
    (void)state;
    char *lines = malloc(100000), *at = lines, list[300];
    for (int i = 0; i < 500; i++)
        at += sprintf(at, "{\"text\":\"document number %d of the parts\"}\n", i);
    strcpy(list, fixture_text("parts.jsonl", lines));
    bt_sources s = list_of_files(list);
    bt_prepare_cfg cfg = {.files = s.items,
                          .n_files = s.n,
                          .field = "text",
                          .tokenizer = bytes,
                          .path = fixture_path("parts.bts"),
                          .split_ids = 3000};
    bt_prepare_result r;
    bt_text joined = {0};
    assert_int_equal(bt_prepare(&cfg, &r, NULL, NULL), BT_OK);
    assert_true(r.shards >= 4);
    assert_int_equal(r.documents, 500);
    for (int i = 0; i < r.shards; i++) {
        char name[40];
        bt_shard *shard;
        snprintf(name, sizeof name, "parts-%05d.bts", i);
        assert_int_equal(bt_shard_open(&shard, fixture_path(name), NULL), BT_OK);
        if (i + 1 < r.shards) assert_in_range(bt_shard_about(shard)->count, 3000, 3100);
        char *text = text_of(shard, bytes);
        assert_int_equal(text[strlen(text) - 1], '\n'); /* Documents are complete. */
        bt_text_put(&joined, text);
        free(text);
        bt_shard_close(shard);
    }
    assert_int_equal(joined.len, r.source_bytes);
    cfg.split_ids = 0;
    cfg.path = NULL;
    bt_shard *shard;
    assert_int_equal(bt_prepare(&cfg, NULL, &shard, NULL), BT_OK);
    char *whole = text_of(shard, bytes);
    assert_string_equal(whole, joined.data);
    free(whole);
    bt_shard_close(shard);
    bt_text_release(&joined);
    bt_sources_release(&s);
    free(lines);
}

static size_t count_matching_files(const char *pattern) {
    glob_t found;
    size_t n = glob(fixture_path(pattern), 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n) globfree(&found);
    return n;
}

static uint64_t cached_hash(const bt_sources *s, const bt_tokenizer *t, const char *dir) {
    bt_prepare_cfg cfg = {.files = s->items, .n_files = s->n, .field = "text", .tokenizer = t};
    bt_shard *shard;
    bt_err err;
    if (bt_prepare_cached(&cfg, dir, &shard, &err) != BT_OK) fail_msg("%s", err.msg);
    uint64_t hash = bt_shard_about(shard)->content_hash;
    bt_shard_close(shard);
    return hash;
}

static void many_processes_make_it_once(void **state) {
    (void)state;
    char dir[200], *text = fixture_prose(3000000);
    strcpy(dir, fixture_path("race"));
    bt_sources s = list_of_files(fixture_text("race.txt", text));
    pid_t pids[5];
    for (int i = 0; i < 5; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            bt_prepare_cfg cfg = {
                .files = s.items, .n_files = s.n, .field = "text", .tokenizer = bpe};
            bt_shard *shard;
            bool ok = bt_prepare_cached(&cfg, dir, &shard, NULL) == BT_OK &&
                      bt_shard_verify(shard, NULL, NULL, NULL) == BT_OK;
            _exit(ok ? 0 : 1);
        }
    }
    for (int i = 0; i < 5; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_matching_files("race/*.bts"), 1);
    assert_int_equal(count_matching_files("race/*.tmp*"), 0);
    bt_sources_release(&s);
    free(text);
}

typedef struct racer {
    const bt_sources *s;
    const char *dir;
    uint64_t hash;
} racer;
static void *prepare_in_processes(void *arg) {
    racer *r = arg;
    r->hash = cached_hash(r->s, bpe, r->dir);
    return NULL;
}

/* Threads share the tokenizer: one uses its encoder, and the others create their own. */
static void threads_share_a_tokenizer(void **state) {
    (void)state;
    char *text = fixture_prose(400000);
    bt_sources s = list_of_files(fixture_text("threads.txt", text));
    racer r[4];
    pthread_t threads[4];
    uint64_t want = cached_hash(&s, bpe, "");
    for (int i = 0; i < 4; i++) {
        r[i] = (racer){&s, i % 2 ? "" : fixture_path("threads"), 0};
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_in_processes, &r[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(r[i].hash == want);
    }
    bt_sources_release(&s);
    free(text);
}

/* A lock file that other users can open could be locked by them. */
static void assert_lock_files_are_private(const char *pattern) {
    glob_t found;
    struct stat st;
    assert_int_equal(glob(fixture_path(pattern), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        assert_true(stat(found.gl_pathv[i], &st) == 0 && (st.st_mode & 07777) == 0600);
    globfree(&found);
}

static void stale_and_damaged_shards_are_recreated(void **state) {
    (void)state;
    char dir[200], path[300];
    strcpy(dir, fixture_path("cache"));
    strcpy(path, fixture_text("stale.txt", "the first text"));
    bt_sources s = list_of_files(path);
    uint64_t first = cached_hash(&s, bytes, dir);
    assert_int_equal(count_matching_files("cache/stale-*.bts"), 1);
    assert_lock_files_are_private("cache/stale-*.bts.lock");
    assert_true(cached_hash(&s, bytes, dir) == first);
    assert_int_equal(count_matching_files("cache/stale-*.bts"), 1);
    /* Another tokenizer gives another shard. */
    assert_true(cached_hash(&s, bpe, dir) != first);
    assert_int_equal(count_matching_files("cache/stale-*.bts"), 2);
    bt_sources_release(&s);
    /* Another modification time gives another shard. */
    struct timespec times[2] = {{0, UTIME_OMIT}, {1000, 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    s = list_of_files(path);
    assert_true(cached_hash(&s, bytes, dir) == first);
    assert_int_equal(count_matching_files("cache/stale-*.bts"), 3);
    /* Damage to a header or table is detected when the shard is opened, and repaired; temporary files of a killed
     * process are removed. */
    glob_t found;
    assert_int_equal(glob(fixture_path("cache/stale-*.bts"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char left[400];
        snprintf(left, sizeof left, "%s.tmp.77", found.gl_pathv[i]);
        FILE *f = fopen(left, "w");
        assert_non_null(f);
        fclose(f);
        assert_int_equal(truncate(found.gl_pathv[i], 100), 0);
    }
    globfree(&found);
    assert_true(cached_hash(&s, bytes, dir) == first);
    /* temporary files of shards that were not requested */
    assert_int_equal(count_matching_files("cache/stale-*.tmp*"), 2);
    bt_sources_release(&s);
}

static void failures_leave_no_shard(void **state) {
    (void)state;
    bt_sources s = list_of_files(fixture_write("nul.txt", "abc\0", 4));
    bt_prepare_cfg cfg = {.files = s.items,
                          .n_files = s.n,
                          .field = "text",
                          .tokenizer = bytes,
                          .path = fixture_path("fail.bts")};
    bt_err err;
    assert_int_equal(bt_prepare(&cfg, NULL, NULL, &err), BT_FORMAT);
    assert_int_equal(count_matching_files("fail.bts*"), 0);
    bt_sources_release(&s);
    s = list_of_files(fixture_text("fine.txt", "abc"));
    cfg.files = s.items;
    cfg.path = fixture_path("no/folder.bts");
    assert_int_equal(bt_prepare(&cfg, NULL, NULL, &err), BT_IO);
    bt_sources_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separators_and_segments),
        cmocka_unit_test(pieces_change_nothing),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(parts_join_to_the_whole),
        cmocka_unit_test(many_processes_make_it_once),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(stale_and_damaged_shards_are_recreated),
        cmocka_unit_test(failures_leave_no_shard),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
