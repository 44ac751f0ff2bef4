/* test_place.c - permitted paths of a database, its writer lock, the messages for SQLite's error codes, and the
 * progress of a long read. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "engine/base/os/file_system.h"
#include "engine/base/tables/event.h"
#include "store/sql/expand.h"
#include "store/sql/sql.h"
#include "store_test.h"
#include "tests/message.h"

/* ---- the path ---------------------------------------------------------------------------------- */

static void paths_are_examined_before_use(void **state) {
    const bt_tmp *t = *state;
    bt_store_check look;
    bt_err why = BT_ERR_INIT;
    struct statvfs v;
    char path[1200];
    snprintf(path, sizeof path, "%s/some/new/m.db", t->dir);
    OK(bt_store_check_folder(&look, path, err));
    assert_string_equal(look.folder, t->dir); /* the nearest existing folder */
    assert_true(look.writable && !look.refused && look.sqlite[0] == '3');
    assert_int_equal(statvfs(t->dir, &v), 0);
    assert_true(look.free_bytes > 0 &&
                look.free_bytes <= (uint64_t)v.f_blocks * (uint64_t)v.f_frsize);
    OK(bt_store_check_folder(&look, t->db, err));
    assert_string_equal(look.folder, t->dir);
    fclose(fopen(t->db, "w"));
    OK(bt_store_check_folder(&look, t->db, err));
    assert_true(look.writable);
    snprintf(path, sizeof path, "%s/deeper/m.db", t->db); /* a path below a file */
    assert_int_equal(bt_store_check_folder(&look, path, &why), BT_IO);
    snprintf(path, sizeof path, "'%s' is not a folder", t->db);
    assert_string_equal(why.msg, path);
    OK(bt_store_check_folder(&look, "m.db", err));
    assert_string_equal(look.folder, ".");
    OK(bt_store_check_folder(&look, "none/m.db", err));
    assert_string_equal(look.folder, ".");
    OK(bt_store_check_folder(&look, "/none/m.db", err));
    assert_string_equal(look.folder, "/");
    OK(bt_store_check_folder(&look, "/", err));
    assert_string_equal(look.folder, "/");
    memset(path, 'x', sizeof path);
    path[sizeof look.folder] = '\0';
    assert_int_equal(bt_store_check_folder(&look, path, &why), BT_ARG);
    path[sizeof look.folder - 1] = '\0';
    OK(bt_store_check_folder(&look, path, err));
    /* a folder of another user */
    if (geteuid() != 0) return;
    pid_t child = fork();
    if (child == 0) {
        bool ok = setuid(65534) == 0;
        snprintf(path, sizeof path, "%s/m2.db", t->dir);
        ok = ok && bt_store_check_folder(&look, path, &why) == BT_OK && !look.writable;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

static void a_path_has_its_limits(void **state) {
    (void)state;
    char out[2000], given[1100];
    bt_err why = BT_ERR_INIT;
    memset(given, 'x', sizeof given);
    given[BT_PATH_BYTES - 16] = '\0';
    assert_int_equal(bt_store_path(out, sizeof out, given, &why), BT_ARG);
    message_has(why.msg, "path of the metrics database is too long");
    given[BT_PATH_BYTES - 17] = '\0';
    OK(bt_store_path(out, sizeof out, given, err));
    assert_string_equal(out, given);
    OK(bt_store_path(out, strlen(given) + 1, given, err));
    assert_int_equal(bt_store_path(out, strlen(given), given, &why), BT_ARG);
    static const char *const bad[] = {"file:x", "file:", ":memory:"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(bt_store_path(out, sizeof out, bad[i], &why), BT_ARG);
        assert_non_null(strstr(why.msg, "is not a file path"));
    }
    static const char *const good[] = {"file", "afile:x", ":memory:x", "./:memory:"};
    for (size_t i = 0; i < 4; i++) OK(bt_store_path(out, sizeof out, good[i], err));
    /* A folder in an environment variable must be absolute. */
    unsetenv("BITRAIN_STORE");
    setenv("XDG_DATA_HOME", "relative", 1);
    setenv("HOME", "relative", 1);
    assert_int_equal(bt_store_path(out, sizeof out, "", &why), BT_ARG);
    assert_non_null(strstr(why.msg, "neither HOME nor XDG_DATA_HOME is set"));
    setenv("HOME", "/h", 1);
    OK(bt_store_path(out, sizeof out, "", err));
    assert_string_equal(out, "/h/.local/share/bitrain/bitrain.db");
    unsetenv("XDG_DATA_HOME");
    setenv("BITRAIN_STORE", "", 1);
    OK(bt_store_path(out, sizeof out, "", err));
    assert_string_equal(out, "/h/.local/share/bitrain/bitrain.db");
    unsetenv("HOME");
    assert_int_equal(bt_store_path(out, sizeof out, "", &why), BT_ARG);
}

/* Messages print the option --store that makes a command in another shell use this database. */
static void printed_commands_name_the_database(void **state) {
    (void)state;
    static const struct {
        const char *path, *store, *want;
    } rows[] = {{"/h/.local/share/bitrain/bitrain.db", NULL, ""},
                {"/h/.local/share/bitrain/bitrain.db", "", ""},
                {"/h/.local/share/bitrain/bitrain.db", "/x.db",
                 " --store /h/.local/share/bitrain/bitrain.db"},
                {"/x.db", "/x.db", " --store /x.db"},
                {"/a/B_9.:@%+=,-", NULL, " --store /a/B_9.:@%+=,-"},
                {"/a b", NULL, " --store '/a b'"},
                {"", NULL, " --store ''"},
                {"it's", NULL, " --store 'it'\\''s'"},
                {"a$b", NULL, " --store 'a$b'"},
                {"a\"b;", NULL, " --store 'a\"b;'"}};
    unsetenv("XDG_DATA_HOME");
    setenv("HOME", "/h", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_text out;
        bt_text_init(&out);
        if (rows[i].store)
            setenv("BITRAIN_STORE", rows[i].store, 1);
        else
            unsetenv("BITRAIN_STORE");
        bt_store_flag(&out, rows[i].path);
        assert_string_equal(bt_text_str(&out), rows[i].want);
        bt_text_release(&out);
    }
    unsetenv("BITRAIN_STORE");
}

static void remote_file_systems_are_refused(void **state) {
    (void)state;
    static const struct {
        long magic;
        const char *name; /* NULL: accepted */
    } rows[] = {{0x6969, "NFS"},          {0x517B, "SMB"},
                {0xFF534D42, "CIFS"},     {0xFE534D42, "SMB2"},
                {0x0BD00BD0, "Lustre"},   {0x47504653, "GPFS"},
                {0x19830326, "BeeGFS"},   {0x00C36400, "CephFS"},
                {0x5346414F, "AFS"},      {0x6B414653, "AFS"},
                {0x73757245, "Coda"},     {0x564c, "NCP"},
                {0x7461636f, "OCFS2"},    {0x01161970, "GFS2"},
                {0x65735546, "FUSE"},     {0x01021997, "9p"},
                {0xAAD7AAEA, "PanFS"},    {0x013111A8, "IBRIX"},
                {0x20030528, "OrangeFS"}, {0x858458F6, "remote ramfs"},
                {0xEF53, NULL},           {0x9123683E, NULL},
                {0x58465342, NULL},       {0x2FC12FC1, NULL},
                {0x794c7630, NULL},       {0, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = bt_file_system_shared(rows[i].magic);
        assert_int_equal(name != NULL, rows[i].name != NULL);
        if (name) assert_string_equal(name, rows[i].name);
    }
}

/* A file system is usable if two descriptors of one file share their memory map and their locks. */
static void file_systems_must_share_maps_and_locks(void **state) {
    const bt_tmp *t = *state;
    char path[200];
    int fd[2][2], ends[2];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%d", t->dir, k);
            fd[k][i] = open(path, O_RDWR | O_CREAT, 0600);
            assert_true(fd[k][i] >= 0);
        }
    assert_int_equal(pipe(ends), 0);
    assert_true(bt_fs_shares(fd[0][0], fd[0][1]));
    assert_false(bt_fs_shares(fd[1][0], fd[0][1])); /* The second map lacks the write. */
    assert_false(bt_fs_shares(fd[1][0], fd[1][0])); /* A descriptor cannot exclude itself. */
    assert_false(bt_fs_shares(ends[1], ends[0]));   /* Pipes cannot be mapped. */
    for (int i = 0; i < 2; i++) {
        close(fd[0][i]);
        close(fd[1][i]);
        close(ends[i]);
    }
    assert_null(bt_fs_fault(t->dir, 0xEF53));
    assert_null(bt_fs_fault(t->dir, 0x65735546)); /* The type is FUSE, but the trial succeeds. */
    assert_string_equal(bt_fs_fault(t->dir, 0x6969), "NFS");
    snprintf(path, sizeof path, "ls -A '%s' | grep -q probe", t->dir);
    assert_int_not_equal(system(path), 0);
}

/* Mounts a real FUSE file system if this machine permits it. */
/* A trial on one host cannot show whether other hosts use the file system. */
static void a_network_on_fuse_has_a_name(void **state) {
    (void)state;
    char mounts[] = "36 1 0:42 / /home/a rw,nosuid - fuse.sshfs host:/home rw,user_id=0\n"
                    "37 1 0:43 / /b rw shared:7 master:1 - fuse.fuse-overlayfs overlay rw\n"
                    "38 1 0:44 / /c rw - fuse s3fs rw\n"
                    "39 1 0:45 / /d rw - fuse.rclone remote: rw\n"
                    "40 1 259:1 / / rw - ext4 /dev/sshfs rw\n"
                    "line of another form\n";
    static const struct {
        unsigned minor;
        const char *want;
    } rows[] = {{42, "sshfs"}, {43, NULL}, {44, "s3fs"}, {45, "rclone"}, {46, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FILE *f = fmemopen(mounts, sizeof mounts - 1, "r");
        assert_non_null(f);
        const char *got = bt_fs_network_fuse(f, 0, rows[i].minor);
        if (rows[i].want)
            assert_string_equal(got, rows[i].want);
        else
            assert_null(got);
        fclose(f);
    }
}

static void a_database_lives_on_fuse(void **state) {
    const bt_tmp *t = *state;
    char cmd[800], path[200];
    const char *d = t->dir;
    snprintf(cmd, sizeof cmd,
             "cd '%s' && mkdir l u w m && fuse-overlayfs -o lowerdir=l,upperdir=u,workdir=w m "
             ">/dev/null 2>&1",
             d);
    if (system(cmd) != 0) {
        print_message("skipped: fuse-overlayfs cannot mount a file system here\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/m/b.db", d);
    sqlite3 *db = NULL;
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_sql_open_rw(&db, path, &why);
    const int rc = code == BT_OK ? sqlite3_exec(db, "PRAGMA journal_mode=wal; CREATE TABLE t(a)",
                                                NULL, NULL, NULL)
                                 : -1;
    sqlite3_close(db);
    snprintf(cmd, sizeof cmd, "fusermount3 -u '%s/m' || umount -l '%s/m'", d, d);
    assert_int_equal(system(cmd), 0);
    if (code != BT_OK) fail_msg("%s", why.msg);
    assert_int_equal(rc, SQLITE_OK);
}

static void a_checkpoint_is_there(void **state) {
    const bt_tmp *t = *state;
    char path[200];
    assert_false(bt_checkpoint_there(NULL));
    assert_false(bt_checkpoint_there(""));
    assert_false(bt_checkpoint_there(t->dir));
    snprintf(path, sizeof path, "%s/manifest.json", t->dir);
    fclose(fopen(path, "w"));
    assert_true(bt_checkpoint_there(t->dir));
    assert_false(bt_checkpoint_there(path));
}

/* ---- opening ----------------------------------------------------------------------------------- */

static void foreign_files_are_not_opened(void **state) {
    const bt_tmp *t = *state;
    sqlite3 *db = NULL;
    bt_err why = BT_ERR_INIT;
    char path[200], says[400];
    assert_int_equal(bt_sql_open_ro(&db, t->db, &why), BT_NOTFOUND);
    assert_null(db);
    snprintf(says, sizeof says,
             "no metrics database at '%s': nothing has been trained there yet (see --store)",
             t->db);
    assert_string_equal(why.msg, says);
    assert_int_equal(bt_sql_open_ro(&db, t->dir, &why), BT_FORMAT);
    assert_int_equal(bt_sql_open_rw(&db, t->dir, &why), BT_FORMAT);
    snprintf(says, sizeof says, "'%s' is not a file", t->dir);
    assert_string_equal(why.msg, says);
    fclose(fopen(t->db, "w"));
    snprintf(path, sizeof path, "%s/below.db", t->db);
    assert_int_equal(bt_sql_open_ro(&db, path, &why), BT_NOTFOUND);
    assert_int_equal(bt_sql_open_rw(&db, path, &why), BT_IO);
    snprintf(path, sizeof path, "%s/a/b/below.db", t->db);
    assert_int_equal(bt_sql_open_rw(&db, path, &why), BT_IO);
    snprintf(says, sizeof says, "'%s' is not a folder (it is for the metrics database)", t->db);
    assert_string_equal(why.msg, says);
    assert_null(db);
    snprintf(path, sizeof path, "%s/loop", t->dir);
    assert_int_equal(symlink("loop", path), 0);
    assert_int_equal(bt_sql_open_ro(&db, path, &why), BT_IO);
    assert_non_null(strstr(why.msg, "cannot open metrics database '"));
}

static void connections_have_their_settings(void **state) {
    const bt_tmp *t = *state;
    sqlite3 *rw, *ro;
    bt_err why = BT_ERR_INIT;
    OK(bt_sql_open_rw(&rw, t->db, err));
    OK(bt_sql_exec(rw, t->db, "CREATE TABLE a(x); INSERT INTO a VALUES (7)", err));
    OK(bt_sql_open_ro(&ro, t->db, err));
    static const struct {
        const char *pragma;
        int rw, ro;
    } rows[] = {{"PRAGMA busy_timeout", 2000, 2000},
                {"PRAGMA temp_store", 2, 2},
                {"PRAGMA foreign_keys", 1, 0},
                {"PRAGMA wal_autocheckpoint", 0, 1000},
                {"PRAGMA query_only", 0, 1},
                {"PRAGMA trusted_schema", 0, 1},
                {"SELECT x FROM a", 7, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(bt_sql_int(rw, rows[i].pragma, -9), rows[i].rw);
        assert_int_equal(bt_sql_int(ro, rows[i].pragma, -9), rows[i].ro);
    }
    for (int k = 0; k < 2; k++) {
        int defensive = -1, on_close = -1;
        sqlite3_db_config(k ? ro : rw, SQLITE_DBCONFIG_DEFENSIVE, -1, &defensive);
        sqlite3_db_config(k ? ro : rw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1, &on_close);
        assert_int_equal(defensive, 1);
        assert_int_equal(on_close, !k);
    }
    assert_int_equal(bt_sql_exec(ro, t->db, "INSERT INTO a VALUES (8)", &why), BT_IO);
    assert_non_null(strstr(why.msg, "(check the permissions of the file and its folder)"));
    assert_int_equal(bt_sql_exec(rw, t->db, "CREATE TABLE a(y)", &why), BT_DB);
    /* The query returns one cell, or leaves the previous value. */
    int64_t value = 5;
    OK(bt_sql_get(rw, t->db, "SELECT x FROM a WHERE x = 0", &value, err));
    assert_int_equal(value, 5);
    OK(bt_sql_get(rw, t->db, "SELECT x, 3 FROM a", &value, err));
    assert_int_equal(value, 7);
    assert_int_equal(bt_sql_get(rw, t->db, "SELECT x FROM none", &value, &why), BT_DB);
    assert_int_equal(bt_sql_get(rw, t->db, "SELECT abs(-9223372036854775807 - 1)", &value, &why),
                     BT_DB);
    assert_int_equal(value, 7);
    assert_int_equal(bt_sql_int(rw, "SELECT x FROM none", -3), -3);
    sqlite3_stmt *st = NULL;
    OK(bt_sql_prepare(rw, t->db, "SELECT NULL, 1.5, 'x', 2", &st, err));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_true(isnan(bt_sql_number(st, 0)) && bt_sql_number(st, 1) == 1.5 &&
                bt_sql_number(st, 2) == 0 && bt_sql_number(st, 3) == 2);
    sqlite3_finalize(st);
    sqlite3_close(ro);
    sqlite3_close(rw);
}

static void codes_of_sqlite_have_messages(void **state) {
    (void)state;
    static const struct {
        int rc;
        bt_code code;
        const char *says;
    } rows[] = {
        {SQLITE_BUSY, BT_BUSY,
         "cannot write '/m.db': another program holds the database (close it, or wait)"},
        {SQLITE_BUSY_SNAPSHOT, BT_BUSY, "another program holds the database"},
        {SQLITE_LOCKED, BT_BUSY, "another program holds the database"},
        {SQLITE_NOTADB, BT_FORMAT,
         "'/m.db' is not a metrics database of bitrain (not an SQLite file)"},
        {SQLITE_CORRUPT, BT_FORMAT,
         "metrics database '/m.db' is damaged: database disk image is malformed (`bitrain runs "
         "repair` saves what is readable)"},
        {SQLITE_FULL, BT_IO, "cannot write '/m.db': the disk is full"},
        {SQLITE_IOERR, BT_IO, "cannot write '/m.db': disk I/O error"},
        {SQLITE_IOERR_WRITE, BT_IO, "cannot write '/m.db': disk I/O error"},
        {SQLITE_IOERR_NOMEM, BT_NOMEM, "cannot write '/m.db': out of memory"},
        {SQLITE_NOMEM, BT_NOMEM, "cannot write '/m.db': out of memory"},
        {SQLITE_CANTOPEN, BT_IO,
         "cannot write '/m.db': unable to open database file (check the permissions of the file "
         "and "
         "its folder)"},
        {SQLITE_PERM, BT_IO, "(check the permissions of the file and its folder)"},
        {SQLITE_READONLY, BT_IO, "(check the permissions of the file and its folder)"},
        {SQLITE_CONSTRAINT, BT_DB, "cannot write '/m.db': constraint failed"},
        {SQLITE_ERROR, BT_DB, "cannot write '/m.db': SQL logic error"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err why = BT_ERR_INIT;
        assert_int_equal(bt_sql_fail(NULL, rows[i].rc, "/m.db", "write", &why), rows[i].code);
        assert_int_equal(why.code, rows[i].code);
        if (!strstr(why.msg, rows[i].says)) fail_msg("'%s' lacks '%s'", why.msg, rows[i].says);
    }
}

/* ---- the writer lock --------------------------------------------------------------------------- */

static void one_process_writes_at_a_time(void **state) {
    const bt_tmp *t = *state;
    bt_lock a, b;
    bt_err why = BT_ERR_INIT;
    char path[200], host[64] = "", me[128], says[400], text[200] = "";
    gethostname(host, sizeof host - 1);
    snprintf(me, sizeof me, "pid %ld on %s", (long)getpid(), host);
    OK(bt_lock_open(&a, t->db, err));
    OK(bt_lock_open(&b, t->db, err));
    snprintf(path, sizeof path, "%s.lock", t->db);
    assert_string_equal(a.path, path);
    assert_string_equal(a.me, me);
    struct stat
        st; /* Other users must not be able to open the file, because they could hold the lock forever. */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    OK(bt_lock_take(&a, 0, err));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text - 1, f), strlen(me));
    fclose(f);
    assert_string_equal(text, me);
    const int64_t before = bt_now_ns();
    assert_int_equal(bt_lock_take(&b, 0.02, &why), BT_BUSY);
    assert_true(bt_now_ns() - before >= 20000000);
    snprintf(says, sizeof says,
             "metrics database is being written by %s: '%s' was locked for 0.02 s", me, path);
    assert_string_equal(why.msg, says);
    bt_lock_drop(&a);
    OK(bt_lock_take(&b, 0, err));
    bt_lock_drop(&b);
    /* A lock on a deleted file excludes no process. */
    assert_int_equal(unlink(path), 0);
    OK(bt_lock_take(&a, 0, err));
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(bt_lock_take(&b, 0, &why), BT_BUSY);
    bt_lock_drop(&a);
    OK(bt_lock_take(&b, 0, err));
    bt_lock_close(&b);
    assert_int_equal(b.fd, -1);
    bt_lock_drop(&b);
    bt_lock_close(&b);
    OK(bt_lock_take(&b, 0, err)); /* The lock file is opened again. */
    bt_lock_close(&b);
    /* The holder's signature is longer than the buffer. */
    f = fopen(path, "w");
    assert_true(fputs("pid 1 on a host with a long name that nobody knows, \033[31mred\n", f) >= 0);
    fclose(f);
    OK(bt_lock_open(&b, t->db, err));
    assert_int_equal(flock(b.fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(bt_lock_take(&a, 0, &why), BT_BUSY);
    assert_non_null(
        strstr(why.msg, "written by pid 1 on a host with a long name that nobody knows"));
    assert_null(strchr(why.msg, '\033'));
    assert_int_equal(ftruncate(b.fd, 0), 0);
    assert_int_equal(bt_lock_take(&a, 0, &why), BT_BUSY);
    assert_non_null(strstr(why.msg, "written by another process: '"));
    bt_lock_close(&b);
    OK(bt_lock_take(&a, 0, err));
    bt_lock_close(&a);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_equal(bt_lock_open(&a, t->db, &why), BT_IO);
    assert_non_null(strstr(why.msg, "cannot open lock file '"));
}

/* ---- progress ---------------------------------------------------------------------------------- */

/* The last share of the work that was reported during a read. */
static double told_last;
static int told_times;
static void on_progress(void *ctx, const char *what, double done) {
    (void)ctx;
    assert_string_equal(what, "looking");
    assert_true(done >= told_last && done <= 1);
    told_last = done;
    told_times++;
}

static void a_long_read_reports_progress(void **state) {
    const bt_tmp *t = *state;
    sqlite3 *db = NULL;
    bt_sql_reading r;
    const bt_store_progress to = {.fn = on_progress}, nobody = {.fn = NULL};
    OK(bt_sql_open_rw(&db, t->db, err));
    OK(bt_sql_exec(
        db, t->db,
        "CREATE TABLE a(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM "
        "n WHERE i < 50000) INSERT INTO a SELECT hex(zeroblob(40)) FROM n",
        err));
    sqlite3_close(db);
    OK(bt_sql_open_ro(&db, t->db, err));
    bt_sql_reading_begin(&r, db, &nobody, "looking");
    bt_sql_reading_begin(&r, db, NULL, "looking");
    assert_int_equal(bt_sql_int(db, "SELECT count(*) FROM a WHERE x > '1'", 0), 0);
    assert_int_equal(told_times, 0);
    bt_sql_reading_begin(&r, db, &to, "looking");
    assert_true(r.pages > 900);
    told_last = 0;
    assert_int_equal(bt_sql_int(db, "SELECT sum(length(x)) FROM a", 0), 50000 * 80);
    bt_sql_reading_end(&r);
    assert_true(told_times > 5 && told_last > 0.9);
    const int times = told_times;
    assert_int_equal(bt_sql_int(db, "SELECT sum(length(x)) FROM a", 0), 50000 * 80);
    assert_int_equal(told_times, times);
    sqlite3_close(db);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {TEST(paths_are_examined_before_use),
                                       cmocka_unit_test(a_path_has_its_limits),
                                       cmocka_unit_test(printed_commands_name_the_database),
                                       cmocka_unit_test(remote_file_systems_are_refused),
                                       TEST(file_systems_must_share_maps_and_locks),
                                       TEST(a_network_on_fuse_has_a_name),
                                       TEST(a_database_lives_on_fuse),
                                       TEST(a_checkpoint_is_there),
                                       TEST(foreign_files_are_not_opened),
                                       TEST(connections_have_their_settings),
                                       cmocka_unit_test(codes_of_sqlite_have_messages),
                                       TEST(one_process_writes_at_a_time),
                                       TEST(a_long_read_reports_progress)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
