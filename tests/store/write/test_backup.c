/* test_backup.c - backups of a database: their names, paths and space, and how they restore rows. The test replaces
 * statvfs, link and rename. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "store/sql/sql.h"
#include "store/write/manage.h"
#include "store/write/rescue.h"
#include "tests/store/store_test.h"
#include "tests/store/synth_run.h"
#include "tests/store/write/files.h"

static uint64_t free_bytes = UINT64_MAX; /* result of statvfs; UINT64_MAX: the real value */
static bool no_links;
static const char *rename_fails; /* rename to a name with this suffix fails */

int statvfs(const char *restrict path, struct statvfs *restrict v) {
    if (access(path, F_OK) != 0) return -1;
    *v = (struct statvfs){.f_frsize = 1, .f_bavail = free_bytes};
    return 0;
}

int link(const char *from, const char *to) {
    if (no_links) return errno = EPERM, -1;
    return (int)syscall(SYS_link, from, to);
}

int rename(const char *from, const char *to) {
    const size_t n = rename_fails ? strlen(rename_fails) : 0, m = strlen(to);
    if (n && m >= n && strcmp(to + m - n, rename_fails) == 0) return errno = EACCES, -1;
    return (int)syscall(SYS_rename, from, to);
}

/* Counts the files of the folder whose names contain `part`. */
static int files_with(const bt_tmp *t, const char *part) {
    int n = 0;
    DIR *d = opendir(t->dir);
    for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, part) != NULL;
    if (d) closedir(d);
    return n;
}

static void the_newest_two_are_kept(void **state) {
    const bt_tmp *t = *state;
    /* The second round has no hard links, which some file systems lack. */
    for (int without = 0; without < 2; without++) {
        no_links = without;
        for (int k = 1; k <= 4; k++) {
            char name[8];
            snprintf(name, sizeof name, "r%d-%d", without, k);
            add_run(t->db, name);
            OK(bt_store_backup(t->db, err));
            const int64_t runs = 4 * without + k;
            assert_int_equal(runs_in(t, ".backup"), runs);
            assert_int_equal(runs_in(t, ".backup.1"), runs > 1 ? runs - 1 : -1);
            assert_int_equal(files_with(t, ".tmp"), 0);
            assert_int_equal(files_with(t, ".backup"), runs > 1 ? 2 : 1);
        }
    }
    OK(bt_store_backup(t->db, err)); /* in the same second */
    assert_int_equal(runs_in(t, ".backup.1"), 8);
    no_links = false;
}

static void a_place_that_cannot_be_taken(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *to;
        bool no_links;
        const char *says;
    } rows[] = {{".backup.1", false, "cannot keep '"},
                {".backup.1", true, "cannot keep '"},
                {".backup", false, "cannot rename '"}};
    add_run(t->db, "a");
    OK(bt_store_backup(t->db, err));
    for (size_t i = 0; i < 3; i++) {
        bt_err why = BT_ERR_INIT;
        rename_fails = rows[i].to;
        no_links = rows[i].no_links;
        assert_int_equal(bt_store_backup(t->db, &why), BT_IO);
        rename_fails = NULL;
        no_links = false;
        assert_non_null(strstr(why.msg, rows[i].says));
        assert_int_equal(runs_in(t, ".backup"), 1); /* The previous backup remains. */
        assert_int_equal(files_with(t, ".tmp"), 0);
    }
}

static void a_backup_takes_a_tenth_of_the_room(void **state) {
    const bt_tmp *t = *state;
    bt_err why = BT_ERR_INIT;
    struct stat st;
    char says[300];
    add_run(t->db, "a");
    assert_int_equal(stat(t->db, &st), 0);
    free_bytes = 10 * (uint64_t)st.st_size - 1;
    assert_int_equal(bt_store_backup(t->db, &why), BT_UNSUPPORTED);
    snprintf(says, sizeof says,
             "no backup of '%s': it would take more than a tenth of the free room", t->db);
    assert_string_equal(why.msg, says);
    assert_int_equal(files_with(t, ".backup"), 0);
    free_bytes++;
    OK(bt_store_backup(t->db, err));
    free_bytes = UINT64_MAX;
    assert_int_equal(runs_in(t, ".backup"), 1);
    /* Files that are not databases cannot be copied or replaced. */
    char fresh[200];
    snprintf(fresh, sizeof fresh, "%s.backup-%ld.tmp", t->db, (long)getpid());
    assert_int_equal(mkdir(fresh, 0700), 0);
    assert_int_equal(bt_store_backup(t->db, &why), BT_IO);
    assert_non_null(strstr(why.msg, "cannot copy metrics database '"));
    assert_int_equal(rmdir(fresh), 0);
    assert_int_equal(truncate(t->db, 100), 0);
    assert_int_equal(bt_store_backup(t->db, &why), BT_FORMAT);
    assert_int_equal(runs_in(t, ".backup"), 1);
}

static void a_backup_in_progress_is_kept(void **state) {
    const bt_tmp *t = *state;
    static const char *const names[] = {".backup-1.tmp", ".backup-1.tmp-journal", ".backup-1.tmp.1",
                                        ".backup-2.tmp", ".backup-2.tmp-journal", ".backup-3.txt",
                                        ".backup-",      ".backup2-1.tmp"};
    enum { NAMES = sizeof names / sizeof *names };
    char path[200];
    int held = -1;
    add_run(t->db, "a");
    for (int i = 0; i < NAMES; i++) {
        snprintf(path, sizeof path, "%s%s", t->db, names[i]);
        const int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        if (i == 0)
            held = fd;
        else
            close(fd);
    }
    assert_int_equal(flock(held, LOCK_EX | LOCK_NB), 0);
    OK(bt_store_backup(t->db, err));
    for (int i = 0; i < NAMES; i++) {
        snprintf(path, sizeof path, "%s%s", t->db, names[i]);
        assert_int_equal(access(path, F_OK) == 0, i < 3 || i >= 5);
    }
    close(held);
    OK(bt_store_backup(t->db, err));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", t->db, names[i]);
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void only_what_is_damaged_is_repaired(void **state) {
    const bt_tmp *t = *state;
    bt_repair_result r = {.rows = 9};
    bt_err why = BT_ERR_INIT;
    char says[300], path[200];
    assert_int_equal(bt_store_repair(t->db, 1, NULL, &r, &why), BT_NOTFOUND);
    snprintf(says, sizeof says, "no metrics database at '%s', and no backup of one", t->db);
    assert_string_equal(why.msg, says);
    assert_true(!r.sound && r.rows == 0);
    assert_int_equal(bt_store_repair(t->dir, 1, NULL, &r, &why), BT_FORMAT);
    snprintf(says, sizeof says, "'%s' is not a file", t->dir);
    assert_string_equal(why.msg, says);
    add_run(t->db, "a");
    OK(bt_store_repair(t->db, 1, NULL, &r, err));
    assert_true(r.sound && r.rows == 0 && !r.moved_to[0]);
    /* a database of another program */
    snprintf(path, sizeof path, "%s/songs.db", t->dir);
    run_sql(path, "CREATE TABLE songs(a)");
    assert_int_equal(bt_store_repair(path, 1, NULL, &r, &why), BT_FORMAT);
    assert_non_null(strstr(why.msg, "another program"));
    snprintf(path, sizeof path, "%s/text", t->dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 500; i++) fputs("this is a text, and no database\n", f);
    fclose(f);
    assert_int_equal(bt_store_repair(path, 1, NULL, &r, &why), BT_FORMAT);
    snprintf(says, sizeof says,
             "'%s' is not a metrics database of bitrain, and the path had no database before",
             path);
    assert_string_equal(why.msg, says);
    assert_int_equal(access(path, F_OK), 0);
    /* Repair moves an existing file of this name aside. */
    snprintf(says, sizeof says, "%s.lock", path);
    fclose(fopen(says, "w"));
    OK(bt_store_repair(path, 1, NULL, &r, err));
    assert_true(!r.sound && r.rows == 0 && r.incomplete_tables > 0);
    assert_int_equal(strncmp(r.moved_to, path, strlen(path)), 0);
    assert_int_equal(strncmp(r.moved_to + strlen(path), ".corrupt-2", 10), 0);
    assert_int_equal(access(r.moved_to, F_OK), 0);
}

/* If the database is missing its rows are restored from backups; the older backup supplies the rows that the newer
 * backup lacks. */
static void backups_restore_missing_rows(void **state) {
    const bt_tmp *t = *state;
    bt_repair_result r;
    char path[200];
    add_run(t->db, "a");
    OK(bt_store_backup(t->db, err));
    add_run(t->db, "b");
    OK(bt_store_backup(t->db, err));
    add_run(t->db, "c");
    static const char *const tails[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", t->db, tails[i]);
        unlink(path);
    }
    bt_err why = BT_ERR_INIT;
    snprintf(path, sizeof path, "%s.lock", t->db);
    /* Nothing is restored while another program has the database open. */
    const int other = open(path, O_RDWR);
    assert_int_equal(flock(other, LOCK_EX), 0);
    assert_int_equal(bt_store_repair(t->db, 0, NULL, &r, &why), BT_BUSY);
    assert_true(!r.sound && r.rows_of_backups == 0 && access(t->db, F_OK) != 0);
    close(other);
    OK(bt_store_repair(t->db, 1, NULL, &r, err));
    assert_true(!r.sound && r.rows == 0 && !r.moved_to[0]);
    assert_int_equal(runs_in(t, ""), 2);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps", NULL) == 10);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps", NULL) == 20);
    const int64_t all = r.rows_of_backups;
    assert_true(all >= 2 * (1 + 1 + 1 + 5 + 10));
    assert_int_equal(files_with(t, "-shm"), 1); /* Reading the backups left no file behind. */
    OK(bt_store_repair(t->db, 1, NULL, &r, err));
    assert_true(r.sound && r.rows_of_backups == 0);
    /* Numbers of attempts are not used again. */
    add_run(t->db, "d");
    assert_true(bt_number(t->db, "SELECT count(DISTINCT attempt) FROM attempts", NULL) == 1);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "d") == 5);
}

/* A backup in which the runs have other numbers belongs to another database and is not used. */
static void backups_of_another_database_restore_nothing(void **state) {
    const bt_tmp *t = *state;
    char other[200];
    bt_rescue_result r = {0};
    snprintf(other, sizeof other, "%s/other.db", t->dir);
    add_run(t->db, "a");
    add_run(t->db, "b");
    add_run(other, "a2");
    add_run(other, "b");
    add_run(other, "c"); /* A compatible backup would add this run. */
    OK(bt_rescue_fill(t->db, other, NULL, &r, err));
    assert_int_equal(r.rows, 0);
    assert_int_equal(runs_in(t, ""), 2);
    OK(bt_rescue_fill(t->db, "/nowhere/m.db", NULL, &r, err)); /* The backup cannot be read. */
    assert_int_equal(r.rows, 0);
    /* the same name with another start time */
    run_sql(other,
            "UPDATE run SET name = 'a' WHERE id = 1; UPDATE run SET created_us = 5 WHERE id = 1");
    OK(bt_rescue_fill(t->db, other, NULL, &r, err));
    assert_int_equal(r.rows, 0);
    /* A run that only one file contains is no contradiction. */
    char copy[200], cmd[500];
    snprintf(copy, sizeof copy, "%s/copy.db", t->dir);
    run_sql(t->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    snprintf(cmd, sizeof cmd, "cp '%s' '%s'", t->db, copy);
    assert_int_equal(system(cmd), 0);
    run_sql(copy, "PRAGMA foreign_keys=ON; DELETE FROM run WHERE id = 2");
    run_sql(t->db,
            "DELETE FROM step WHERE aid = 1 AND step > 1; PRAGMA foreign_keys=ON; DELETE FROM run "
            "WHERE id = 1");
    OK(bt_rescue_fill(t->db, copy, NULL, &r, err));
    assert_true(r.rows >= 5);
    const int64_t once = r.rows;
    assert_int_equal(runs_in(t, ""), 2);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a") == 5);
    OK(bt_rescue_fill(t->db, copy, NULL, &r, err));
    assert_int_equal(r.rows, once);
    /* Several runs after the last common run are no contradiction. */
    run_sql(t->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_int_equal(system(cmd), 0);
    for (int i = 0; i < 2; i++) {
        add_run(i ? copy : t->db, i ? "x" : "c");
        if (i) add_run(copy, "y");
    }
    run_sql(t->db, "PRAGMA foreign_keys=ON; DELETE FROM run WHERE id > 1");
    run_sql(copy, "UPDATE run SET name = 'b2' WHERE id = 3");
    OK(bt_rescue_fill(t->db, copy, NULL, &r, err));
    assert_int_equal(runs_in(t, ""), 4);
    OK(bt_rescue_fill(copy, t->db, NULL, &r, err));
}

static void note_progress(void *ctx, const char *what, double done) {
    char *heard = ctx;
    assert_true(done >= 0 && done <= 1);
    if (strcmp(heard, what) != 0) snprintf(heard, 40, "%s", what);
}

/* Checks that each table in `path` has all rows and columns of the same table in `other`; returns the number of
 * rows. */
static int64_t same_tables(const char *path, const char *other) {
    char *names = bt_table(
             other,
             "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
             "AND name NOT IN ('meta', 'metric', 'scope')"),
         *next = names;
    int64_t rows = 0;
    for (char *name; (name = strsep(&next, "\n")) && *name;) {
        char sql[100];
        snprintf(sql, sizeof sql, "SELECT * FROM %s", name);
        char *want = bt_table(other, sql);
        bt_table_is(path, sql, want);
        if (!*want) fail_msg("%s has no rows", name);
        for (const char *c = want; *c; c++) rows += *c == '\n';
        free(want);
    }
    free(names);
    return rows;
}

/* Adds rows to the table of each sampled scope. */
static void add_samples(const char *path) {
    for (int k = 0; k < BT_SCOPE_COUNT; k++) {
        const bt_scope_row *scope = &bt_scopes[k];
        if (scope->kept != BT_KEPT_SAMPLED) continue;
        bt_text sql;
        bt_text_init(&sql);
        bt_text_printf(&sql, "INSERT INTO %s(", scope->table);
        bt_schema_keys((bt_scope)k, "", &sql);
        bt_text_put(&sql, ") SELECT 1, 10000 + column1");
        for (int i = 0; i < scope->n_keys; i++)
            bt_text_put(&sql, scope->key[i].text ? ", 'x'" : ", 700");
        bt_text_put(&sql, " FROM (VALUES (1), (2), (3))");
        run_sql(path, bt_text_str(&sql));
        bt_text_release(&sql);
    }
}

static void every_table_is_restored(void **state) {
    const bt_tmp *t = *state;
    bt_rescue_result r, more = {0};
    char heard[40] = "", part[200], cmd[600];
    const bt_store_progress progress = {note_progress, heard};
    bt_synth s = bt_synth_default("a");
    s.ranks = 2;
    s.steps = 300;
    s.planned = true;
    OK(bt_synth_make(t->db, &s, err));
    add_samples(t->db);
    run_sql(
        t->db,
        "INSERT OR REPLACE INTO ckpt VALUES (1, 7, 0, 5, '/c', 6, 7, 'h'), (1, 3, 0, 5, '/d', 6, "
        "7, 'h');"
        "INSERT INTO proposal(run, config) VALUES (1, '{}');"
        "UPDATE meta SET value = 40 WHERE key = 'next_aid'; UPDATE run SET note = 'x', tags = 'y'");
    OK(bt_rescue(t->db, &progress, &r, err));
    assert_string_equal(heard, "saving rows");
    const int64_t rows = same_tables(t->db, r.moved_to);
    assert_true(rows > 1000 && r.rows == rows && r.unreadable == 0 && r.setting);
    assert_true(bt_number(t->db, "SELECT count(*) FROM pragma_quick_check WHERE quick_check = 'ok'",
                          NULL) == 1);
    /* Only the missing rows are copied. */
    run_sql(r.moved_to, "PRAGMA wal_checkpoint(TRUNCATE)");
    snprintf(part, sizeof part, "%s/part.db", t->dir);
    snprintf(cmd, sizeof cmd, "cp '%.200s' '%s'", r.moved_to, part);
    assert_int_equal(system(cmd), 0);
    run_sql(part, "DELETE FROM event WHERE seq % 3 = 0; DELETE FROM step WHERE step % 2 = 1; "
                  "DELETE FROM rank_step "
                  "WHERE key % 3 = 1; DELETE FROM roll WHERE key % 5 = 0; DELETE FROM fact WHERE "
                  "key > 'l'; DELETE "
                  "FROM layer_stat WHERE layer = 0; DELETE FROM ckpt; DELETE FROM run_doc; DELETE "
                  "FROM rank WHERE "
                  "rank = 1; UPDATE run SET note = 'newer'");
    char
        *left = bt_table(
            part,
            "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM step) + (SELECT count(*) "
            "FROM rank_step) + (SELECT count(*) FROM roll) + (SELECT count(*) FROM fact) + (SELECT "
            "count(*) FROM layer_stat) + (SELECT count(*) FROM rank)"),
        *whole = bt_table(
            t->db,
            "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM step) + (SELECT count(*) "
            "FROM rank_step) + (SELECT count(*) FROM roll) + (SELECT count(*) FROM fact) + "
            "(SELECT count(*) FROM layer_stat) + (SELECT count(*) FROM rank) + (SELECT count(*) "
            "FROM ckpt) + (SELECT count(*) FROM run_doc)");
    OK(bt_rescue_fill(part, t->db, &progress, &more, err));
    assert_string_equal(heard, "looking into backups");
    assert_int_equal(more.rows, atoll(whole) - atoll(left));
    bt_table_is(part, "SELECT note FROM run", "newer\n");
    run_sql(part, "UPDATE run SET note = 'x'");
    assert_int_equal(same_tables(part, t->db), rows);
    free(left);
    free(whole);
}

/* The newest readable file decides how long rank rows are kept. */
static void chosen_retention_is_kept(void **state) {
    static const char *const setting = "SELECT value FROM meta WHERE key = 'keep_rank_steps'";
    static const struct {
        int older, newer, own; /* -1: missing, -2: unreadable; otherwise an age */
        const char *is;
    } rows[] = {{1, 2, 0, "0\n"}, {1, 2, -1, "2\n"}, {1, 50000, -1, "50000\n"}, {1, 2, -2, "2\n"}};
    const bt_tmp *t = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char db[120], sql[120];
        bt_repair_result r;
        snprintf(db, sizeof db, "%s/%zu.db", t->dir, i);
        add_run(db, "a");
        const int kept[] = {rows[i].older, rows[i].newer, rows[i].own};
        for (int k = 0; k < 3; k++) {
            snprintf(sql, sizeof sql, "UPDATE meta SET value = %d WHERE key = 'keep_rank_steps'",
                     kept[k]);
            run_sql(db, sql);
            if (k < 2) OK(bt_store_backup(db, err));
        }
        if (rows[i].own == -1) unlink(db);
        if (rows[i].own == -2) write_text(db, "no database");
        if (rows[i].own >= 0) OK(bt_rescue(db, NULL, &(bt_rescue_result){0}, err));
        if (rows[i].own < 0) OK(bt_store_repair(db, 1, NULL, &r, err));
        bt_table_is(db, setting, rows[i].is);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {TEST(the_newest_two_are_kept),
                                       TEST(a_place_that_cannot_be_taken),
                                       TEST(a_backup_takes_a_tenth_of_the_room),
                                       TEST(a_backup_in_progress_is_kept),
                                       TEST(only_what_is_damaged_is_repaired),
                                       TEST(backups_restore_missing_rows),
                                       TEST(backups_of_another_database_restore_nothing),
                                       TEST(every_table_is_restored),
                                       TEST(chosen_retention_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
