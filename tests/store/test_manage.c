// ctest: timeout=100
/* Runs are removed, tagged and annotated; old rank rows are deleted and views use their summaries instead. */
#include <sqlite3.h>

#include <sys/stat.h>
#include <unistd.h>

#include "store/read/blocks.h"
#include "store/sql/sql.h"
#include "store/write/manage.h"
#include "store_test.h"
#include "synth_run.h"

static int64_t count_run_rows(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    int64_t n = bt_sql_int(db, sql, -1);
    sqlite3_close(db);
    return n;
}

static void write_run_of_steps(const char *path, const char *name, int64_t steps) {
    bt_synth s = bt_synth_default(name);
    s.steps = steps;
    s.fail_at = steps / 2;
    s.resume_from = steps / 2 - 10;
    s.straggler = 1;
    s.excess = 0.5;
    OK(bt_synth_make(path, &s, err));
}

static void a_removed_run_leaves_nothing(void **state) {
    const bt_tmp *t = *state;
    const char *both[] = {"a", "c"}, *wrong[] = {"b", "nobody"};
    bt_err why;
    write_run_of_steps(t->db, "a", 7000); /* more rank rows than one chunk deletes */
    write_run_of_steps(t->db, "b", 300);
    write_run_of_steps(t->db, "c", 100);
    int64_t b_rows = 4 * (300 + 10);
    assert_int_equal(bt_runs_remove(t->db, wrong, 2, 1, &why), BT_NOTFOUND);
    assert_true(bt_number(t->db, "SELECT count(*) FROM runs", NULL) ==
                3); /* A request with one unknown run removes
                                                                            * none. */
    OK(bt_runs_remove(t->db, both, 2, 1, err));
    assert_true(bt_number(t->db, "SELECT count(*) FROM runs", NULL) == 1);
    assert_int_equal(count_run_rows(t->db, "SELECT count(*) FROM rank_step"), b_rows);
    assert_int_equal(count_run_rows(t->db, "SELECT count(*) FROM step"), 310);
    assert_int_equal(count_run_rows(t->db, "SELECT count(*) FROM attempt"), 2);
    assert_int_equal(count_run_rows(t->db, "SELECT count(*) FROM run_doc"), 1);
    assert_int_equal(
        count_run_rows(t->db, "SELECT count(*) FROM event WHERE run NOT IN (SELECT id FROM run)"),
        0);
    assert_int_equal(
        count_run_rows(
            t->db, "SELECT count(*) FROM roll WHERE (key >> 42) NOT IN (SELECT id FROM attempt)"),
        0);
    assert_int_equal(
        count_run_rows(t->db,
                       "SELECT count(*) FROM layer_stat WHERE aid NOT IN (SELECT id FROM attempt)"),
        0);
    assert_int_equal(
        count_run_rows(t->db,
                       "SELECT count(*) FROM comm_pair WHERE aid NOT IN (SELECT id FROM attempt)"),
        0);
    assert_int_equal(
        count_run_rows(t->db,
                       "SELECT count(*) FROM comm_op WHERE aid NOT IN (SELECT id FROM attempt)"),
        0);
    write_run_of_steps(t->db, "a", 50); /* The name may be used again, and no old row reappears. */
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a") == 50);
    assert_true(bt_number(t->db, "SELECT count(*) FROM all_steps WHERE run = ?1", "a") == 60);
}

/* The process was killed between two transactions of a removal; gc removes the rest of the run. */
static void rows_of_a_killed_removal_are_removed(void **state) {
    const bt_tmp *t = *state;
    bt_gc_result r;
    sqlite3 *db = NULL;
    write_run_of_steps(t->db, "a", 300);
    write_run_of_steps(t->db, "b", 100);
    OK(bt_sql_open_rw(&db, t->db, err));
    OK(bt_sql_exec(db, t->db, "DELETE FROM run WHERE name = 'a'", err));
    sqlite3_close(db);
    write_run_of_steps(t->db, "d", 60); /* A new attempt does not inherit the orphaned rows. */
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "d") == 240);
    OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = -1, .compact = true}, 1, &r, err));
    assert_true(r.orphan_rows >= 310 * 5);
    assert_true(r.bytes_after < r.bytes_before);
    assert_int_equal(count_run_rows(t->db, "SELECT count(*) FROM rank_step"), 4 * 110 + 4 * 70);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "b") == 400);
}

static void a_live_run_is_not_removed(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_err why;
    int attempt;
    char host[BT_HOST_MAX] = "";
    const char *run = "a";
    gethostname(host, sizeof host - 1);
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    s.host = host;
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(bt_runs_remove(t->db, &run, 1, 1, &why), BT_BUSY);
    assert_non_null(strstr(why.msg, "is being trained by pid"));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    OK(bt_runs_remove(t->db, &run, 1, 1, err));
    bt_writer_close(w);
}

static void a_run_gets_another_name(void **state) {
    static const char *const bad[] = {"", "last", "Last", "../x", "a b"};
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_err why;
    int attempt;
    char host[BT_HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    write_run_of_steps(t->db, "a", 60);
    write_run_of_steps(t->db, "b", 30);
    assert_int_equal(bt_run_rename(t->db, "a", "b", 1, &why), BT_BUSY);
    assert_int_equal(bt_run_rename(t->db, "a", "B", 1, &why), BT_BUSY);
    assert_int_equal(bt_run_rename(t->db, "c", "d", 1, &why), BT_NOTFOUND);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(bt_run_rename(t->db, "a", bad[i], 1, &why), BT_ARG);
    /* A name that cannot be stored without change is refused. */
    char longest[BT_NAME_MAX + 1], found[BT_NAME_MAX];
    bt_db *db = NULL;
    memset(longest, 'n', sizeof longest - 1);
    longest[BT_NAME_MAX] = '\0';
    assert_int_equal(bt_run_rename(t->db, "a", longest, 1, &why), BT_ARG);
    longest[BT_NAME_MAX - 1] = '\0';
    OK(bt_run_rename(t->db, "a", longest, 1, err));
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_run(db, longest, found, err));
    assert_string_equal(found, longest);
    bt_db_close(db);
    OK(bt_run_rename(t->db, longest, "a", 1, err));
    OK(bt_run_rename(t->db, "a", "final", 1, err));
    assert_string_equal(bt_word(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "final"), "60");
    assert_string_equal(bt_word(t->db, "SELECT count(*) FROM runs WHERE run = ?1", "a"), "0");
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("live");
    s.host = host;
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(bt_run_rename(t->db, "live", "x", 1, &why), BT_BUSY);
    assert_non_null(strstr(why.msg, "is being trained by pid"));
    bt_writer_close(w);
}

static void tags_and_notes(void **state) {
    const bt_tmp *t = *state;
    char tags[256];
    bt_err why;
    write_run_of_steps(t->db, "a", 60);
    OK(bt_run_tag(t->db, "a", (const char *[]){"paper", "+v2", "x"}, 3, 1, tags, err));
    assert_string_equal(tags, "paper v2 x");
    OK(bt_run_tag(t->db, "a", (const char *[]){"-v2", "paper"}, 2, 1, tags, err));
    assert_string_equal(tags, "paper x");
    OK(bt_run_tag(t->db, "a", (const char *[]){"-x", "-nothere"}, 2, 1, tags, err));
    assert_string_equal(bt_word(t->db, "SELECT tags FROM runs WHERE run = ?1", "a"), "paper");
    assert_int_equal(bt_run_tag(t->db, "a", (const char *[]){"no\tgood"}, 1, 1, tags, &why),
                     BT_ARG);
    assert_int_equal(bt_run_tag(t->db, "b", (const char *[]){"x"}, 1, 1, tags, &why), BT_NOTFOUND);
    OK(bt_run_note(t->db, "a", "it's \"good\"; DROP TABLE run", 1, err));
    assert_string_equal(bt_word(t->db, "SELECT note FROM runs WHERE run = ?1", "a"),
                        "it's \"good\"; DROP TABLE run");
    char longest[BT_NOTE_MAX + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(bt_run_note(t->db, "a", longest, 1, &why), BT_ARG);
    OK(bt_run_note(t->db, "a", longest + 1, 1, err));
    OK(bt_run_note(t->db, "a", "", 1, err));
    OK(bt_run_mark(t->db, "a", 3, BT_EVENT_ANNOTATION, "it's here", 1, err));
    assert_true(
        bt_number(
            t->db,
            "SELECT e.time_s - s.time_s FROM events e JOIN steps s ON s.run = e.run AND s.step = "
            "e.step WHERE e.run = ?1 AND e.kind = 'annotation' AND e.title = 'it''s here'",
            "a") == 0);
    OK(bt_run_mark(t->db, "a", -1, BT_EVENT_ACKNOWLEDGED, "1 alert acknowledged", 1, err));
    assert_true(
        bt_number(
            t->db,
            "SELECT count(*) FROM events WHERE run = ?1 AND step IS NULL AND kind = 'acknowledged'",
            "a") == 1);
    assert_int_equal(bt_run_mark(t->db, "b", 0, BT_EVENT_ANNOTATION, "x", 1, &why), BT_NOTFOUND);
    assert_string_equal(bt_word(t->db, "SELECT note FROM runs WHERE run = ?1", "a"), "NULL");
    assert_int_equal(bt_run_note(t->db, "b", "x", 1, &why), BT_NOTFOUND);
    assert_int_equal(bt_run_note("/tmp/no/such/file.db", "b", "x", 1, &why), BT_NOTFOUND);
}

typedef struct sums {
    double busy[4], n[4];
} sums;

static bool add_block(void *ctx, const bt_block *b) {
    sums *s = ctx;
    for (int k = 0; k < b->n_ranks && k < 4; k++) {
        s->busy[k] += b->ranks[k * BT_MR_COUNT + BT_MR_STEP_TIME].sum -
                      b->ranks[k * BT_MR_COUNT + BT_MR_WAIT].sum;
        s->n[k] += b->ranks[k * BT_MR_COUNT + BT_MR_STEP_TIME].n;
    }
    return true;
}

static void mean_busy(const char *path, int64_t max_steps, double out[4]) {
    bt_db *db = NULL;
    sums s = {0};
    OK(bt_db_open(&db, path, err));
    OK(bt_blocks_walk(
        db,
        &(bt_blocks_request){
            .run = "a", .step0 = 0, .step1 = 100000, .max_steps = max_steps, .ranks = true},
        add_block, &s, err));
    bt_db_close(db);
    for (int k = 0; k < 4; k++) {
        assert_true(s.n[k] == 6000);
        out[k] = s.busy[k] / s.n[k];
    }
}

static void old_rank_rows_are_removed_and_their_means_kept(void **state) {
    const bt_tmp *t = *state;
    bt_gc_result r;
    double before[4], fine[4], coarse[4];
    write_run_of_steps(t->db, "a", 6000); /* attempt 0: steps 0 to 2999, attempt 1: 2990 to 5999 */
    mean_busy(t->db, 1, before);
    OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = 1000, .compact = true}, 1, &r, err));
    assert_true(r.rank_rows > 4 * 3000);
    assert_true(
        bt_number(t->db,
                  "SELECT count(*) FROM rank_steps WHERE run = ?1 AND step BETWEEN 5000 AND 5999",
                  "a") == 4000);
    /* the newest steps of attempt 0 */
    assert_true(
        bt_number(t->db,
                  "SELECT count(*) FROM rank_steps WHERE run = ?1 AND step BETWEEN 2000 AND 2989",
                  "a") == 3960);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1 AND step < 1500",
                          "a") == 0);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a") == 6000);
    mean_busy(t->db, 1, fine);
    mean_busy(t->db, 4096, coarse);
    for (int k = 0; k < 4; k++) {
        assert_true(fabs(fine[k] - before[k]) < 1e-5 * before[k]);
        assert_true(fabs(coarse[k] - before[k]) < 1e-5 * before[k]);
    }
    /* Rank rows without summaries are kept. */
    OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = -1, .rebuild = true}, 1, &r, err));
    assert_int_equal(r.rank_rows, 0);
    mean_busy(t->db, 4096, coarse);
    assert_true(fabs(coarse[2] - before[2]) < 1e-5 * before[2]);
}

/* The writer deletes old rank rows automatically and keeps the rows around warnings. */
static void a_long_run_keeps_its_newest(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_gc_result r;
    OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = 2000}, 1, &r, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 6000; step++) {
        sink->step(sink->ctx, bt_fake_step(&f, step, 2));
        if (step == 1000)
            sink->event(
                sink->ctx,
                &(bt_event){.kind = BT_EVENT_WARNING, .step = 1000, .rank = 0, .title = "odd"});
        if (step % 500 == 0) OK(bt_writer_flush(w, err));
    }
    OK(bt_writer_flush(w, err));
    int64_t raw_from = 0;
    for (int i = 0; i < 1000 && raw_from < 3840; i++) {
        bt_sleep_ns(10000000);
        raw_from = count_run_rows(t->db, "SELECT raw_from FROM attempt");
    }
    bt_writer_close(w);
    /* 15 chunks of 256 rows; a 16th chunk would overlap the newest 2000 steps */
    assert_int_equal(raw_from, 3840);
    assert_true(bt_number(t->db, "SELECT min(step) FROM rank_steps WHERE run = ?1", "a") == 800);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1 AND step < 3840",
                          "a") == 401 * 2);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1 AND step >= 3840",
                          "a") == 2160 * 2);
}

/* If a page of rows is unreadable, the existing summaries remain and none are computed from the readable rows. */
static void check_summary_progress(void *ctx, const char *what, double done) {
    double *all = ctx;
    assert_string_equal(what, "making summaries");
    assert_true(done >= all[0] && done <= 1);
    const double steps =
        done *
        4500; /* The two attempts have 1500 and 3000 steps, and progress counts whole steps. */
    assert_true(fabs(steps - round(steps)) < 1e-6);
    all[0] = done;
    all[1]++;
}

static void damaged_rows_are_not_summarized(void **state) {
    const bt_tmp *t = *state;
    bt_gc_result r;
    bt_err why = BT_ERR_INIT;
    double told[2] = {0};
    const bt_gc_cfg cfg = {
        .keep_rank_steps = -1, .rebuild = true, .progress = {check_summary_progress, told}};
    static const char *const rolls = "SELECT count(*) FROM roll",
                             *const bytes = "SELECT sum(length(data)) FROM roll",
                             *const page = "SELECT max(pageno) - 1 FROM dbstat WHERE name = "
                                           "'rank_step' AND pagetype = 'leaf'";
    write_run_of_steps(t->db, "a", 3000);
    const int64_t n = count_run_rows(t->db, rolls), length = count_run_rows(t->db, bytes);
    OK(bt_store_gc(t->db, &cfg, 1, &r, err));
    assert_int_equal(count_run_rows(t->db, rolls), n);
    assert_int_equal(count_run_rows(t->db, bytes), length);
    assert_true(told[0] > 0.9 && told[1] > 10);
    run_sql(t->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    const int64_t at = count_run_rows(t->db, page);
    if (at < 0) skip(); /* This SQLite lacks dbstat. */
    FILE *f = fopen(t->db, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(at * count_run_rows(t->db, "PRAGMA page_size")), SEEK_SET), 0);
    for (int i = 0; i < 4096; i++) fputc(0, f);
    fclose(f);
    told[0] = 0;
    assert_int_equal(bt_store_gc(t->db, &cfg, 1, &r, &why), BT_FORMAT);
    assert_int_equal(count_run_rows(t->db, rolls), n);
    assert_int_equal(count_run_rows(t->db, bytes), length);
}

/* A backup taken while another process writes the run is a complete snapshot, and the previous backup is kept. */
static void a_backup_is_a_complete_snapshot(void **state) {
    bt_tmp *t = *state;
    char copy[128], older[128], tmp[160];
    bt_writer *w = NULL;
    bt_fake f;
    int attempt;
    bt_run_start s = bt_fake_run("second");
    bt_err why = BT_ERR_INIT;
    /* The database does not exist yet. */
    assert_int_equal(bt_store_backup(t->db, &why), BT_UNSUPPORTED);
    write_run_of_steps(t->db, "first", 40);
    OK(bt_store_backup(t->db, err));
    OK(bt_writer_open(&w, t->db, 5, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t i = 0; i < 30; i++) {
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, i, 2));
        if (i == 20) OK(bt_writer_flush(w, err));
    }
    OK(bt_store_backup(t->db, err));
    OK(bt_writer_end(w, "done", "x", 0, err));
    bt_writer_close(w);
    snprintf(copy, sizeof copy, "%s.backup", t->db);
    snprintf(older, sizeof older, "%s.backup.1", t->db);
    snprintf(tmp, sizeof tmp, "%s.backup-%ld.tmp", t->db, (long)getpid());
    assert_int_equal(
        count_run_rows(copy,
                       "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
        1);
    assert_true(bt_number(copy, "SELECT count(*) FROM steps WHERE run = ?1", "first") == 40);
    assert_true(bt_number(copy, "SELECT count(*) FROM steps WHERE run = ?1", "second") >= 21);
    assert_int_equal(count_run_rows(older, "SELECT count(*) FROM run"), 1);
    assert_int_not_equal(access(tmp, F_OK), 0);
    /* Training can continue in the copy. */
    OK(bt_writer_open(&w, copy, 5, err));
    s.name = "third";
    OK(bt_writer_begin(w, &s, &attempt, err));
    bt_writer_close(w);
}

/* Temporary files of a killed backup are removed for any folder name, and other files remain. */
static void temporary_backups_are_removed(void **state) {
    bt_tmp *t = *state;
    static const char *const rests[] = {".tmp", ".tmp-journal", ".tmp.1", ".tmp.keep"};
    char db[160], rest[4][200], other[200];
    snprintf(db, sizeof db, "%s/of [a] run*", t->dir);
    assert_int_equal(mkdir(db, 0700), 0);
    snprintf(db, sizeof db, "%s/of [a] run*/m.db", t->dir);
    write_run_of_steps(db, "first", 4);
    for (int i = 0; i < 4; i++) {
        snprintf(rest[i], sizeof rest[i], "%s.backup-99999999%s", db, rests[i]);
        fclose(fopen(rest[i], "w"));
    }
    snprintf(other, sizeof other, "%s2.backup-99999999.tmp", db);
    fclose(fopen(other, "w"));
    OK(bt_store_backup(db, err));
    for (int i = 0; i < 4; i++) assert_int_not_equal(access(rest[i], F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    snprintf(other, sizeof other, "%s.backup", db);
    assert_int_equal(access(other, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_removed_run_leaves_nothing, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(rows_of_a_killed_removal_are_removed, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_live_run_is_not_removed, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(tags_and_notes, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_run_gets_another_name, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(old_rank_rows_are_removed_and_their_means_kept, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(damaged_rows_are_not_summarized, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_backup_is_a_complete_snapshot, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(temporary_backups_are_removed, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_long_run_keeps_its_newest, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
