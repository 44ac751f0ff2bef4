// ctest: timeout=60
/* The database file: its application number and version, the columns of its views, and updates of older files. */
#include <sqlite3.h>
#include <sys/stat.h>

#include "engine/base/os/file_system.h"
#include "old_file.h"
#include "store/sql/sql.h"
#include "store_test.h"

static int64_t read_one_integer(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    int64_t v = bt_sql_int(db, sql, -1);
    sqlite3_close(db);
    return v;
}

static void make_new(const char *path) {
    bt_writer *w = NULL;
    OK(bt_writer_open(&w, path, 1, err));
    bt_writer_close(w);
}

static void a_new_file_is_marked(void **state) {
    const bt_tmp *t = *state;
    make_new(t->db);
    assert_int_equal(read_one_integer(t->db, "PRAGMA application_id"), BT_APPLICATION_ID);
    assert_int_equal(read_one_integer(t->db, "PRAGMA user_version"), BT_SCHEMA_VERSION);
    assert_string_equal(bt_word(t->db,
                                "SELECT (SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
                                "AND sql NOT LIKE '%STRICT%' AND name NOT LIKE 'sqlite_%')",
                                NULL),
                        "0");
    sqlite3 *db = NULL;
    sqlite3_open(t->db, &db);
    sqlite3_stmt *st = NULL;
    sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &st, NULL);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(st, 0), "wal");
    sqlite3_finalize(st);
    sqlite3_close(db);
}

/* Scripts of users rely on these names. */
static void views_have_the_promised_columns(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *view, *columns;
    } promised[] = {
        {"steps", "run attempt step time_s tokens loss val_loss grad_norm lr tokens_per_s step_ms "
                  "mfu comm_overhead bytes_wire"},
        {"rank_steps",
         "run attempt step rank loss step_ms data_ms fwd_ms bwd_ms comm_exposed_ms comm_busy_ms "
         "wait_ms optim_ms ckpt_ms monitor_ms other_ms bytes_logical bytes_wire rss_mib"},
        {"ranks", "run attempt rank host pid isa threads pp dp_replicate dp_shard tp"},
        {"attempts", "run attempt from_step started ended reason world_size"},
        {"layers", "run attempt step layer tensor zero_frac pos_frac flip_frac scale grad_norm"},
        {"runs", "run state ranks steps tokens loss val_loss tokens_per_s started ended goodput "
                 "host build argv config"},
        {"events", "run attempt step rank kind level title body"},
        {"checkpoints", "run attempt step path bytes took_ms hash"},
        {"metrics", "key unit meaning"},
        {"facts", "run key value"},
        {"configs", "run key value origin"},
    };
    bt_db *db = NULL;
    make_new(t->db);
    OK(bt_db_open(&db, t->db, err));
    for (size_t i = 0; i < sizeof promised / sizeof promised[0]; i++) {
        char list[400], sql[128], *rest = list;
        snprintf(list, sizeof list, "%s", promised[i].columns);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM pragma_table_info('%s') WHERE name = ?1",
                 promised[i].view);
        for (char *word; (word = strsep(&rest, " ")) != NULL;) {
            double n = 0;
            OK(bt_db_value(db, sql, word, &n, err));
            if (n != 1) fail_msg("view %s has no column %s", promised[i].view, word);
        }
    }
    /* Each row of metrics.def has a column with its unit. */
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        const bt_scope_row *scope = &bt_scopes[s];
        for (int k = 0; k < scope->n; k++) {
            char sql[200];
            double found = 0;
            snprintf(sql, sizeof sql,
                     "SELECT count(*) FROM pragma_table_info('%s') i JOIN metrics m ON m.view = "
                     "'%s' AND m.key = i.name WHERE i.name = ?1 AND m.unit = '%s'",
                     scope->view, scope->view, bt_unit_name(scope->metric[k].unit));
            OK(bt_db_value(db, sql, scope->metric[k].key, &found, err));
            if (found != 1) fail_msg("%s.%s", scope->view, scope->metric[k].key);
        }
    }
    bt_db_close(db);
}

static void assert_open_refused(const char *path, bt_code code, const char *words) {
    bt_err why = BT_ERR_INIT;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    assert_int_equal(bt_writer_open(&w, path, 1, &why), code);
    if (!strstr(why.msg, words)) fail_msg("'%s' lacks '%s'", why.msg, words);
    assert_int_equal(bt_db_open(&db, path, &why), code);
    if (!strstr(why.msg, words)) fail_msg("'%s' lacks '%s'", why.msg, words);
}

static long file_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void foreign_files_are_left_alone(void **state) {
    const bt_tmp *t = *state;
    char wal[128];
    snprintf(wal, sizeof wal, "%s-wal", t->db);
    run_sql(t->db, "CREATE TABLE songs(a); INSERT INTO songs VALUES (1)");
    long before = file_bytes(t->db);
    assert_open_refused(t->db, BT_FORMAT, "another program");
    assert_int_equal(file_bytes(t->db), before);
    assert_int_equal(file_bytes(wal), -1); /* The reader does not convert the file to WAL mode. */
    unlink(t->db);
    run_sql(t->db, "PRAGMA application_id = 77; CREATE TABLE songs(a)");
    assert_open_refused(t->db, BT_FORMAT, "another program");
    unlink(t->db);
    FILE *f = fopen(t->db, "w");
    for (int i = 0; i < 3000; i++) fprintf(f, "this is a text file, line %d\n", i);
    fclose(f);
    assert_open_refused(t->db, BT_FORMAT, "not an SQLite file");
}

static void a_newer_file_is_refused(void **state) {
    const bt_tmp *t = *state;
    make_new(t->db);
    run_sql(t->db, "PRAGMA user_version = 99");
    assert_open_refused(t->db, BT_FORMAT, "written by a newer bitrain (schema 99");
}

static void a_damaged_file_is_refused(void **state) {
    const bt_tmp *t = *state;
    make_new(t->db);
    assert_int_equal(truncate(t->db, 4096), 0);
    assert_open_refused(t->db, BT_FORMAT, "damaged");
}

static void check_fixture(const char *path) {
    assert_true(bt_number(path, "SELECT count(*) FROM steps WHERE run = ?1", "old-1") == 12);
    assert_true(bt_number(path, "SELECT count(*) FROM rank_steps WHERE run = ?1", "old-1") == 24);
    assert_true(bt_number(path, "SELECT loss FROM steps WHERE run = ?1 AND step = 7", "old-1") ==
                2 + 3 * exp(-0.07));
    assert_true(bt_number(path,
                          "SELECT data_ms FROM rank_steps WHERE run = ?1 AND step = 7 AND rank = 1",
                          "old-1") == 10);
    assert_true(bt_number(path, "SELECT count(*) FROM attempts WHERE run = ?1", "old-1") == 2);
    assert_true(bt_number(path, "SELECT steps FROM runs WHERE run = ?1", "old-1") == 12);
}

/* A reader opens the older file first; then this program resumes the run in it. */
static void an_older_file_is_updated(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    bt_old_file(t->db);
    assert_int_equal(read_one_integer(t->db, "PRAGMA user_version"), 1);
    check_fixture(t->db);
    assert_int_equal(read_one_integer(t->db, "PRAGMA user_version"), BT_SCHEMA_VERSION);
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("old-1");
    s.resume = true;
    s.from_step = 12;
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(attempt, 2);
    bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 12, 2));
    /* This table was added in version 4. */
    const double v[BT_MC_COUNT] = {[BT_MC_STEPS] = 1, [BT_MC_BYTES_WIRE] = 8};
    bt_writer_sink(w)->rows(
        bt_writer_sink(w)->ctx,
        &(bt_row_record){.scope = BT_SCOPE_COMM,
                         .step = 12,
                         .n = 1,
                         .keys = (bt_key[]){{.i = 1}, {.s = "all_reduce"}, {.s = "dp"}},
                         .values = v});
    /* This table was added in version 5. */
    const double pair[BT_MP_COUNT] = {[BT_MP_STEPS] = 1, [BT_MP_FLIGHT] = 2.5};
    bt_writer_sink(w)->rows(bt_writer_sink(w)->ctx,
                            &(bt_row_record){.scope = BT_SCOPE_PAIR,
                                             .step = 12,
                                             .n = 1,
                                             .keys = (bt_key[]){{.i = 1}, {.i = 3}},
                                             .values = pair});
    bt_writer_close(w);
    assert_true(bt_number(t->db,
                          "SELECT flight_ms FROM comm_pairs WHERE run = ?1 AND step = 12 AND rank "
                          "= 1 AND peer = 3",
                          "old-1") == 2.5);
    assert_true(
        bt_number(t->db,
                  "SELECT bytes_wire FROM comm_ops WHERE run = ?1 AND rank = 1 AND axis = 'dp'",
                  "old-1") == 8);
    assert_true(bt_number(t->db, "SELECT count(*) FROM metrics WHERE view = ?1", "comm_ops") ==
                BT_MC_COUNT);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "old-1") == 13);
    assert_string_equal(bt_word(t->db, "SELECT quick_check FROM pragma_quick_check", NULL), "ok");
}

/* A metric that the file lacks becomes a column; a column that this program does not define is kept. */
static void new_metrics_become_columns(void **state) {
    const bt_tmp *t = *state;
    make_new(t->db);
    run_sql(t->db,
            "DROP VIEW evaluations; DROP VIEW steps; DROP VIEW all_steps; DROP VIEW rank_phases; "
            "DROP VIEW "
            "rank_steps; DELETE FROM metric WHERE "
            "key = 'mfu'; ALTER TABLE step DROP COLUMN mfu;"
            "ALTER TABLE step ADD COLUMN sparkle_us INTEGER; INSERT INTO metric VALUES ('step', "
            "'sparkle_ms', 99, 'ms', 'train', 'of the future', 'sparkle_us', 1000.0);");
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    assert_string_equal(bt_word(t->db, "SELECT count(*) FROM steps", NULL), "0");
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 3, 0));
    bt_writer_close(w);
    assert_true(fabs(bt_number(t->db, "SELECT mfu FROM steps WHERE run = ?1", "a") -
                     bt_truth(3, BT_MS_MFU)) < 1e-12);
    run_sql(t->db, "UPDATE step SET sparkle_us = 2500");
    assert_true(bt_number(t->db, "SELECT sparkle_ms FROM steps WHERE run = ?1", "a") == 2.5);
}

static void places_are_chosen_and_refused(void **state) {
    const bt_tmp *t = *state;
    char out[1024], deep[200];
    bt_err why;
    setenv("BITRAIN_STORE", "/a/b.db", 1);
    OK(bt_store_path(out, sizeof out, "/x/y.db", err));
    assert_string_equal(out, "/x/y.db");
    OK(bt_store_path(out, sizeof out, "", err));
    assert_string_equal(out, "/a/b.db");
    unsetenv("BITRAIN_STORE");
    setenv("XDG_DATA_HOME", "/data", 1);
    OK(bt_store_path(out, sizeof out, NULL, err));
    assert_string_equal(out, "/data/bitrain/bitrain.db");
    unsetenv("XDG_DATA_HOME");
    setenv("HOME", "/home/me", 1);
    OK(bt_store_path(out, sizeof out, NULL, err));
    assert_string_equal(out, "/home/me/.local/share/bitrain/bitrain.db");
    assert_int_equal(bt_store_path(out, 10, "", &why), BT_ARG);
    assert_int_equal(bt_store_path(out, sizeof out, ":memory:", &why), BT_ARG);
    assert_string_equal(bt_file_system_shared(0x6969), "NFS");
    assert_string_equal(bt_file_system_shared(0x0BD00BD0), "Lustre");
    assert_null(bt_file_system_shared(0xEF53));
    assert_null(bt_file_system_shared(0x01021994));
    snprintf(deep, sizeof deep, "%s/some/new/folders/m.db", t->dir);
    make_new(deep);
    assert_true(file_bytes(deep) > 0);
    bt_db *db = NULL;
    snprintf(deep, sizeof deep, "%s/nothing/here.db", t->dir);
    assert_int_equal(bt_db_open(&db, deep, &why), BT_NOTFOUND);
    bt_writer *w = NULL;
    assert_int_equal(bt_writer_open(&w, "/proc/1/no/m.db", 1, &why), BT_IO);
}

/* Readers open the file as a URI, so special characters in its name must be escaped. */
static void special_characters_in_file_names_are_escaped(void **state) {
    const bt_tmp *t = *state;
    char path[200];
    snprintf(path, sizeof path, "%s/100%% odd?mode=rw#x.db", t->dir);
    make_new(path);
    assert_string_equal(bt_word(path, "SELECT count(*) FROM runs", NULL), "0");
}

static bool ignore_row(void *ctx, const bt_row *row) {
    (void)ctx;
    return row->n > 0;
}

/* If any bytes of the file are damaged, each query returns a result or an error. */
static void damaged_bytes_give_errors_only(void **state) {
    const bt_tmp *t = *state;
    char copy[128];
    uint32_t x = 12345;
    int refused_count = 0;
    bt_old_file(t->db);
    run_sql(t->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    FILE *f = fopen(t->db, "rb");
    static unsigned char good[1 << 20], bad[1 << 20];
    size_t n = fread(good, 1, sizeof good, f);
    fclose(f);
    assert_true(n > 50000 && n < sizeof good);
    snprintf(copy, sizeof copy, "%s/copy.db", t->dir);
    for (int round = 0; round < 150; round++) {
        bt_db *db = NULL;
        bt_err why;
        memcpy(bad, good, n);
        for (int k = 0; k <= round % 20; k++) {
            x = x * 1664525u + 1013904223u;
            /* Every third time the damage is in the header or the schema's root page. */
            size_t at = (x >> 8) % (round % 3 ? n : 400);
            x = x * 1664525u + 1013904223u;
            bad[at] ^= (unsigned char)(1 + (x >> 16) % 255);
        }
        f = fopen(copy, "wb");
        assert_true(fwrite(bad, 1, round % 5 ? n : n - 4096 * (1 + (x >> 10) % 8), f) > 0);
        fclose(f);
        bt_code code = bt_db_open(&db, copy, &why);
        static const char *const questions[] = {
            "SELECT * FROM runs",
            "SELECT * FROM steps WHERE run = 'old-1'",
            "SELECT rank, avg(wait_ms) FROM rank_steps GROUP BY rank",
            "SELECT * FROM layers",
            "SELECT * FROM events",
            "SELECT * FROM attempts",
            "SELECT * FROM configs",
            "SELECT * FROM all_steps ORDER BY loss"};
        for (size_t q = 0; code == BT_OK && q < sizeof questions / sizeof questions[0]; q++) {
            if (bt_db_query(db, &(bt_query){.sql = questions[q], .max_s = 2}, ignore_row, NULL,
                            &why) != BT_OK)
                refused_count++;
        }
        refused_count += code != BT_OK;
        bt_db_close(db);
        char cmd[300];
        snprintf(cmd, sizeof cmd, "%s-wal", copy);
        unlink(cmd);
        snprintf(cmd, sizeof cmd, "%s-shm", copy);
        unlink(cmd);
    }
    assert_true(refused_count > 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_file_is_marked, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(views_have_the_promised_columns, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(foreign_files_are_left_alone, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_newer_file_is_refused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_refused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(an_older_file_is_updated, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(new_metrics_become_columns, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(places_are_chosen_and_refused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(damaged_bytes_give_errors_only, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(special_characters_in_file_names_are_escaped, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
