// ctest: timeout=60 labels=web
/* The process that executes a user's SQL, with shell scripts in its place: its input, every way in which it can end,
 * and limits on long and missing responses. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "../web_test.h"
#include "tests/message.h"
#include "web/api/query_process.h"

typedef struct asked {
    bt_code code;
    bt_err err;
    bt_text out;
} asked;

static void write_program(char program[100], const bt_tmp *t, const char *body) {
    snprintf(program, 100, "%s/program", t->dir);
    unlink(program);
    FILE *f = fopen(program, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", body);
    fclose(f);
    assert_int_equal(chmod(program, 0700), 0);
}

/* Returns the response to a statement by a script with this body. */
static asked run_query_script(const bt_tmp *t, const char *body, const char *sql, size_t bytes,
                              double seconds) {
    char program[100];
    asked a = {.err = BT_ERR_INIT};
    write_program(program, t, body);
    const bt_query_process q = {.program = program,
                                .store = "the store",
                                .sql = sql,
                                .rows = 7,
                                .memory_mib = 64,
                                .seconds = seconds,
                                .bytes = bytes};
    bt_text_init(&a.out);
    a.code = bt_query_process_run(&q, &a.out, &a.err);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child remains */
    return a;
}

static void check_response(const bt_tmp *t, const char *body, const char *sql, const char *want) {
    asked a = run_query_script(t, body, sql, 1 << 20, 50);
    if (a.code != BT_OK) fail_msg("%s: %s", body, a.err.msg);
    assert_string_equal(bt_text_str(&a.out), want);
    bt_text_release(&a.out);
}

static void check_failure(const bt_tmp *t, const char *body, bt_code code, const char *says) {
    asked a = run_query_script(t, body, "SELECT 1", 1 << 20, 50);
    if (a.code != code) fail_msg("%s: %s: %s", body, bt_code_name(a.code), a.err.msg);
    assert_int_equal(a.err.code, code);
    assert_string_equal(a.err.msg, says);
    bt_text_release(&a.out);
}

static void the_process_receives_statement_and_limits(void **state) {
    check_response(
        *state, "for w; do echo \"<$w>\"; done", "SELECT 1",
        "<query>\n<->\n<--json-table>\n<--limit>\n<7>\n<--timeout>\n<50.000>\n<--memory>\n<64>\n<"
        "--store>\n<the store>\n");
    check_response(*state, "cat", "SELECT 'a\nb'", "SELECT 'a\nb'");
    check_response(*state, "cat", "", "");
    check_response(*state, "echo to the page; echo only a remark >&2", "SELECT 1", "to the page\n");
}

/* Statement and response exceed the buffers of sockets, in both directions at once. */
static void long_statements_and_answers_pass(void **state) {
    const size_t n = 900000;
    char *sql = malloc(n + 1);
    for (size_t i = 0; i < n; i++) sql[i] = (char)('a' + i % 23);
    sql[n] = '\0';
    check_response(*state, "cat", sql, sql);
    check_response(*state, "echo does not read", sql, "does not read\n");
    free(sql);
}

static void each_way_to_fail_has_its_code(void **state) {
    char body[200];
    static const bt_code kept[] = {BT_ARG, BT_BUSY, BT_NOTFOUND};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        snprintf(body, sizeof body, "echo 'bitrain query: no such column: x' >&2; exit %d",
                 bt_exit_code(kept[i]));
        check_failure(*state, body, kept[i], "no such column: x");
    }
    check_failure(*state,
                  "echo 'a warning' >&2; echo 'bitrain query: the reason' >&2; echo >&2; exit 99",
                  BT_IO, "the reason");
    check_failure(*state, "echo 'cannot load a library' >&2; exit 127", BT_IO,
                  "cannot load a library");
    check_failure(*state, "printf '\\n\\n' >&2; exit 99", BT_IO, "the query's process failed");
    check_failure(*state, "exit 99", BT_IO, "the query's process failed");
    check_failure(*state, "kill -9 $$", BT_BUSY,
                  "query took too much time or memory (50 s, 64 MiB) and was stopped");
}

static void output_above_the_limit_is_stopped(void **state) {
    static const char stopped[] =
        "query took too much time or memory (50 s, 64 MiB) and was stopped";
    asked a = run_query_script(*state, "printf 1234567890", "SELECT 1", 10, 50);
    assert_int_equal(a.code, BT_OK);
    assert_string_equal(bt_text_str(&a.out), "1234567890");
    bt_text_release(&a.out);
    a = run_query_script(*state, "printf 12345678901; exec sleep 100", "SELECT 1", 10, 50);
    assert_int_equal(a.code, BT_BUSY);
    assert_string_equal(a.err.msg, stopped);
    bt_text_release(&a.out);
    check_failure(*state, "head -c 4097 /dev/zero >&2; exec sleep 100", BT_BUSY, stopped);
    a = run_query_script(*state, "head -c 4096 /dev/zero >&2", "SELECT 1", 10, 50);
    assert_int_equal(a.code, BT_OK);
    bt_text_release(&a.out);
}

/* These are the limits that the server sets for a statement of a page. */
static void limits_of_the_route(void **state) {
    static const struct {
        const char *body;
        bt_code code;
        size_t bytes;
        const char *says;
    } rows[] = {{"for w; do echo \"$w\"; done", BT_OK, 0, NULL},
                {"head -c 16777216 /dev/zero | tr '\\0' x", BT_OK, 16777216, NULL},
                {"head -c 16777217 /dev/zero | tr '\\0' x; exec sleep 100", BT_BUSY, 0,
                 "query took too much time or memory (2 s, 256 MiB) and was stopped"}};
    const bt_tmp *t = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char program[100], want[200];
        bt_api *api = NULL;
        bt_answer a;
        bt_err why = BT_ERR_INIT;
        write_program(program, t, rows[i].body);
        OK(bt_api_open(&api, t->db, &(bt_api_allows){.query = true, .program = program}, err));
        assert_int_equal(bt_web_ask(api, "/api/v1/query", NULL, "sql=SELECT 1", &a, &why),
                         rows[i].code);
        snprintf(want, sizeof want,
                 "query\n-\n--json-table\n--limit\n10000\n--timeout\n2.000\n--memory\n256\n--"
                 "store\n%s\n",
                 t->db);
        if (i == 0) assert_string_equal(bt_text_str(&a.body), want);
        if (rows[i].bytes) assert_int_equal(a.body.len, rows[i].bytes);
        if (rows[i].says) assert_string_equal(why.msg, rows[i].says);
        bt_text_release(&a.body);
        bt_api_close(api);
    }
}

static void one_that_never_answers_is_stopped(void **state) {
    asked a = run_query_script(*state, "exec sleep 100", "SELECT 1", 10, 0.125);
    assert_int_equal(a.code, BT_BUSY);
    message_has(a.err.msg, "query took longer than 0.125 s and was stopped");
    bt_text_release(&a.out);
}

static void a_missing_program(void **state) {
    (void)state;
    bt_err why = BT_ERR_INIT;
    bt_text out;
    bt_text_init(&out);
    const bt_query_process q = {
        .program = "/nonexistent/bitrain", .store = "s", .sql = "SELECT 1", .seconds = 1};
    assert_int_equal(bt_query_process_run(&q, &out, &why), BT_IO);
    message_has(why.msg, "cannot start '/nonexistent/bitrain' for a query");
    bt_text_release(&out);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(the_process_receives_statement_and_limits),
                                       CASE(long_statements_and_answers_pass),
                                       CASE(each_way_to_fail_has_its_code),
                                       CASE(output_above_the_limit_is_stopped),
                                       CASE(limits_of_the_route),
                                       CASE(one_that_never_answers_is_stopped),
                                       cmocka_unit_test(a_missing_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
