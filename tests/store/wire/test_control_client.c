// ctest: timeout=60
/* The client of a run's control socket: every possible reply, and requests of every length. The test replaces
 * poll(). */
#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "answering.h"
#include "engine/base/tables/verb.h"
#include "store/wire/control_client.h"
#include "tests/message.h"

/* result of poll: 0: timeout; > 0: errno of a failure, EINTR only once; -1: calls the real poll */
static int poll_says = -1;

int poll(struct pollfd *p, nfds_t n, int ms) {
    const int says = poll_says;
    assert_true(ms > 4000 && ms <= 5001); /* poll() waits for a reply at most five seconds. */
    if (says < 0) return (int)syscall(SYS_poll, p, n, ms);
    if (says == 0) return 0;
    if (says == EINTR) poll_says = -1;
    return errno = says, -1;
}

/* The run is stopped, waits for a disk, or the connection fails. */
static void no_reply_arrives(void **state) {
    static const struct {
        int poll_says;
        bt_code code;
        const char *before, *behind; /* parts of the path before and after the socket's name */
    } rows[] = {{0, BT_BUSY, "the run does not answer at '", "'"},
                {EIO, BT_IO, "cannot wait for '", "': Input/output error"},
                {EINTR, BT_OK, NULL, NULL}};
    const bt_tmp *t = *state;
    char path[100], want[200], reply[32];
    bt_err why = BT_ERR_INIT;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        answering a;
        answering_begin(&a, path, "ok taken\n");
        poll_says = rows[i].poll_says;
        const bt_code code = bt_control_call(path, "stop", reply, sizeof reply, &why);
        poll_says = -1;
        answering_end(&a, path);
        assert_int_equal(code, rows[i].code);
        if (!rows[i].before) continue;
        snprintf(want, sizeof want, "%s%s%s", rows[i].before, path, rows[i].behind);
        assert_string_equal(why.msg, want);
    }
    assert_string_equal(reply, "taken");
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bt_code code = bt_control_call(path, "stop", reply, sizeof reply, &why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(code, BT_IO);
    message_has(why.msg, "cannot create a socket");
}

static void every_answer_is_understood(void **state) {
    static const struct {
        const char *script;
        bt_code code;
        const char *says; /* the reply, or the error's message; NULL: any */
    } cases[] = {{"ok all is well\n", BT_OK, "all is well"},
                 {"ok\n", BT_OK, ""},
                 {"ok \n", BT_OK, ""},
                 {"ok in two^ pieces\n", BT_OK, "in two pieces"},
                 {"ok the first line\nok the second\n", BT_OK, "the first line"},
                 {"ok 0123456789012345678901234567890123456789\n", BT_OK,
                  "0123456789012345678901234567890"},
                 {"okay\n", BT_FORMAT, "the answer of the run is neither 'ok' nor 'no'"},
                 {"o\n", BT_FORMAT, NULL},
                 {"\n", BT_FORMAT, NULL},
                 {"no 0 a refusal without a cause\n", BT_FORMAT, NULL},
                 {"no 1 the least code\n", (bt_code)1, "the least code"},
                 {"no -1 none\n", BT_FORMAT, NULL},
                 {"no way\n", BT_FORMAT, NULL},
                 {"no", BT_BUSY, NULL},
                 {"", BT_BUSY, NULL},
                 {"ok without an end", BT_BUSY, NULL}};
    const bt_tmp *t = *state;
    char path[100], want[300];
    snprintf(path, sizeof path, "%s/sock", t->dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        answering a;
        bt_err why = BT_ERR_INIT;
        char reply[32] = "untouched";
        answering_begin(&a, path, cases[i].script);
        errno = EINTR; /* errno of an earlier call must not affect the result. */
        const bt_code code = bt_control_call(path, "status", reply, sizeof reply, &why);
        answering_end(&a, path);
        assert_string_equal(a.asked, "status\n");
        assert_int_equal(code, cases[i].code);
        snprintf(want, sizeof want,
                 "the run closed '%s' without an answer: it is ending, or has too many requests at "
                 "once (try again; 'bitrain show RUN' shows how it ended)",
                 path);
        if (code == BT_OK)
            assert_string_equal(reply, cases[i].says);
        else {
            assert_int_equal(why.code, code);
            assert_string_equal(reply, "untouched");
            if (code == BT_BUSY) assert_string_equal(why.msg, want);
            if (cases[i].says) assert_string_equal(why.msg, cases[i].says);
        }
    }
}

/* Every valid error code of a reply is returned; numbers above the last code are refused. */
static void refusals_keep_their_code(void **state) {
    const bt_tmp *t = *state;
    char path[100], script[64];
    snprintf(path, sizeof path, "%s/sock", t->dir);
    for (int c = BT_OK + 1; c <= BT_CODE_COUNT; c++) {
        answering a;
        bt_err why = BT_ERR_INIT;
        char reply[32];
        snprintf(script, sizeof script, "no %d it cannot\n", c);
        answering_begin(&a, path, script);
        const bt_code code = bt_control_call(path, "stop", reply, sizeof reply, &why);
        answering_end(&a, path);
        assert_int_equal(code, c < BT_CODE_COUNT ? c : BT_FORMAT);
        if (c < BT_CODE_COUNT) assert_string_equal(why.msg, "it cannot");
    }
}

static void the_longest_answer_is_read_and_a_longer_one_refused(void **state) {
    const bt_tmp *t = *state;
    const size_t most = 16 * (size_t)BT_CONTROL_LINE -
                        1; /* the longest line, with its terminator */
    char path[100], want[200], *script = malloc(most + 2), *reply = malloc(most + 2);
    snprintf(path, sizeof path, "%s/sock", t->dir);
    snprintf(want, sizeof want, "the answer from '%s' is too long", path);
    for (size_t more = 0; more <= 1; more++) {
        answering a;
        bt_err why = BT_ERR_INIT;
        memset(script, 'x', most + more);
        memcpy(script, "ok ", 3);
        script[most + more - 1] = '\n';
        script[most + more] = '\0';
        answering_begin(&a, path, script);
        const bt_code code = bt_control_call(path, "status", reply, most + 2, &why);
        answering_end(&a, path);
        assert_int_equal(code, more ? BT_FORMAT : BT_OK);
        if (more)
            assert_string_equal(why.msg, want);
        else
            assert_int_equal(strlen(reply), most - 4);
    }
    free(script);
    free(reply);
}

/* The reply has no line end and arrives in two pieces; the second exceeds the remaining buffer. */
static void an_answer_without_end_is_refused(void **state) {
    const bt_tmp *t = *state;
    enum { MANY = 16 * BT_CONTROL_LINE + 64 };
    char path[100], reply[8], *script = malloc(MANY + 1);
    bt_err why = BT_ERR_INIT;
    answering a;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    memset(script, 'y', MANY);
    memcpy(script, "ok the first piece^", 19);
    script[MANY] = '\0';
    answering_begin(&a, path, script);
    assert_int_equal(bt_control_call(path, "status", reply, sizeof reply, &why), BT_FORMAT);
    answering_end(&a, path);
    free(script);
}

static void the_longest_request_is_sent_and_a_longer_one_refused(void **state) {
    const bt_tmp *t = *state;
    char path[100], request[BT_CONTROL_LINE + 1], reply[32], many[300];
    bt_err why = BT_ERR_INIT;
    answering a;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    memset(request, 'r', sizeof request);
    request[BT_CONTROL_LINE - 2] = '\0';
    answering_begin(&a, path, "ok taken\n");
    OK(bt_control_call(path, request, reply, sizeof reply, err));
    assert_string_equal(reply, "taken");
    answering_end(&a, path);
    assert_int_equal(strlen(a.asked), BT_CONTROL_LINE - 1);
    answering_begin(&a, path, "ok taken\n");
    request[BT_CONTROL_LINE - 2] = 'r', request[BT_CONTROL_LINE - 1] = '\0';
    assert_int_equal(bt_control_call(path, request, reply, sizeof reply, &why), BT_ARG);
    message_has(why.msg, "the request is too long or has more than one");
    answering_end(&a, path);
    assert_string_equal(a.asked, "");
    memset(many, 'p', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_int_equal(bt_control_call(many, "stop", reply, sizeof reply, &why), BT_ARG);
    assert_non_null(strstr(why.msg, "is too long"));
    snprintf(path, sizeof path, "%s/m.db", t->dir);
    assert_int_equal(bt_control_call(path, "stop", reply, sizeof reply, &why), BT_BUSY);
    snprintf(request, sizeof request, "the run is not live: no process listens at '%s'", path);
    assert_string_equal(why.msg, request);
    assert_int_equal(why.code, BT_BUSY);
}

static void words_of_a_request(void **state) {
    (void)state;
    char word[64], back[64], line[16], fits[7];
    bt_err why = BT_ERR_INIT;
    OK(bt_control_word(word, sizeof word, "a\x01\x1f #%\x7f!\"~", err));
    assert_string_equal(word, "a%01%1F%20%23%25%7F!\"~");
    OK(bt_control_word(fits, sizeof fits, "abcd", err));
    assert_string_equal(fits, "abcd");
    OK(bt_control_word(fits, sizeof fits, "a", err));
    assert_string_equal(fits, "a");
    OK(bt_control_word(fits, sizeof fits, "", err));
    assert_string_equal(fits, "%");
    /* The last byte of the buffer is the terminator. */
    OK(bt_control_word(fits, sizeof fits, "abc ", err));
    assert_string_equal(fits, "abc%20");
    assert_int_equal(bt_control_word(fits, sizeof fits, "abcd ", &why), BT_ARG);
    message_has(why.msg, "the text of 5 bytes is too long for a");
    static const char *const pairs[][2] = {
        {"%4F%4A", "OJ"}, {"%4f", "%4f"},        {"%G1", "%G1"}, {"%1G", "%1G"},       {"%", ""},
        {"%%", "%%"},     {"%/0", "%/0"},        {"%:0", "%:0"}, {"%@0%0@", "%@0%0@"}, {"%39", "9"},
        {"a%", "a%"},     {"%F0%AF", "\xf0\xaf"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        bt_control_unword(back, sizeof back, pairs[i][0]);
        assert_string_equal(back, pairs[i][1]);
    }
    /* 16 bytes with the terminator */
    OK(bt_control_line(line, sizeof line, "set", "lr=0.1", "web", err));
    assert_string_equal(line, "set lr=0.1 #web");
    assert_int_equal(bt_control_line(line, sizeof line, "set", "lr=0.01", "web", &why), BT_ARG);
    assert_string_equal(why.msg, "'lr=0.01...' is too long");
    assert_int_equal(bt_control_line(line, sizeof line, "checkpoint", NULL, "dashboard", &why),
                     BT_ARG);
    assert_string_equal(why.msg, "'checkpoint...' is too long");
    OK(bt_control_line(line, sizeof line, "pause", NULL, "web", err));
    assert_string_equal(line, "pause #web");
}

/* A prompt is encoded as one word; other values are unchanged. */
static void lines_of_prompts(void **state) {
    (void)state;
    char line[BT_CONTROL_LINE], prompt[BT_PROMPT_MAX + 2], want[BT_PROMPT_MAX + 30];
    bt_err why = BT_ERR_INIT;
    OK(bt_control_line(line, sizeof line, "sample", "a b #c", "web", err));
    assert_string_equal(line, "sample a%20b%20%23c #web");
    OK(bt_control_line(line, sizeof line, "sample", NULL, "web", err));
    assert_string_equal(line, "sample #web");
    OK(bt_control_line(line, sizeof line, "mixture", "1:2", "ctl", err));
    assert_string_equal(line, "mixture 1:2 #ctl");
    static const char *const blank[] = {"", " ", "\t\r\n"};
    for (size_t i = 0; i < sizeof blank / sizeof *blank; i++) {
        assert_int_equal(bt_control_line(line, sizeof line, "sample", blank[i], "web", &why),
                         BT_ARG);
        assert_string_equal(why.msg, "the prompt is empty");
    }
    memset(prompt, 'p', sizeof prompt);
    prompt[BT_PROMPT_MAX] = '\0';
    OK(bt_control_line(line, sizeof line, "sample", prompt, "web", err));
    snprintf(want, sizeof want, "sample %s #web", prompt);
    assert_string_equal(line, want);
    prompt[BT_PROMPT_MAX] = 'p';
    prompt[BT_PROMPT_MAX + 1] = '\0';
    assert_int_equal(bt_control_line(line, sizeof line, "sample", prompt, "web", &why), BT_ARG);
    message_has(why.msg, "the prompt has 513 bytes");
}

static void start_run(bt_writer *w, const char *folder, const char *host) {
    bt_run_start s = bt_fake_run("r");
    int attempt;
    s.out_dir = folder;
    s.host = host;
    OK(bt_writer_begin(w, &s, &attempt, err));
}

/* The file `control` in the run's folder contains the path of the socket. */
static void a_run_is_found_by_its_name(void **state) {
    const bt_tmp *t = *state;
    char path[100], file[100], reply[32];
    bt_err why = BT_ERR_INIT;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    answering a;
    OK(bt_writer_open(&w, t->db, 1, err));
    start_run(w, t->dir, "here");
    OK(bt_db_open(&db, t->db, err));
    snprintf(path, sizeof path, "%s/sock", t->dir);
    snprintf(file, sizeof file, "%s/control", t->dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f, "%s\nanother line\n", path);
    fclose(f);
    static const char *const names[] = {"r", "last"};
    for (int i = 0; i < 2; i++) {
        answering_begin(&a, path, "ok done\n");
        OK(bt_control_request(db, names[i], "checkpoint #top", reply, sizeof reply, err));
        answering_end(&a, path);
        assert_string_equal(a.asked, "checkpoint #top\n");
        assert_string_equal(reply, "done");
    }
    answering_begin(&a, path, "no 1 not now\n");
    assert_int_equal(bt_control_request(db, "r", "stop", reply, sizeof reply, &why), (bt_code)1);
    assert_string_equal(why.msg, "not now");
    answering_end(&a, path);
    answering_begin(&a, path, "");
    assert_int_equal(bt_control_request(db, "r", "stop", reply, sizeof reply, &why), BT_BUSY);
    answering_end(&a, path);
    assert_int_equal(bt_control_request(db, "none", "stop", reply, sizeof reply, &why),
                     BT_NOTFOUND);
    bt_db_close(db);
    OK(bt_writer_end(w, "done", "", 0, err));
    bt_writer_close(w);
}

/* Replaces @D by the database, @H by this host and @P by a process. */
static void fill_placeholders(char *out, size_t size, const char *says, const char *db,
                              const char *host, int pid) {
    size_t n = 0;
    for (const char *c = says; *c; c++) {
        if (*c != '@') {
            n += (size_t)snprintf(out + n, size - n, "%c", *c);
            continue;
        }
        c++;
        n += *c == 'P' ? (size_t)snprintf(out + n, size - n, "%d", pid)
                       : (size_t)snprintf(out + n, size - n, "%s", *c == 'D' ? db : host);
    }
}

/* If no process listens or there is no path, the message states what happened to the run and the remedy. */
static void the_reason_of_a_missing_reply(void **state) {
    static const struct {
        const char *run_state, *host; /* host "": this host */
        int pid;                      /* 2: this process; 3: a dead process */
        const char *last_step, *says;
    } rows[] = {
        {"done", "far", 2, "0",
         "run 'r' is not live: it has done its 1 step (to train it for as many again: bitrain "
         "train --resume r "
         "--steps 2 --store @D)"},
        {"done", "", 3, "4",
         "run 'r' is not live: it has done its 5 steps (to train it for as many again: bitrain "
         "train --resume r "
         "--steps 10 --store @D)"},
        {"failed", "", 2, "6",
         "run 'r' is not live: it failed after 7 steps (to continue it: bitrain train --resume r "
         "--store @D)"},
        {"stopped", "", 2, "NULL",
         "run 'r' is not live: it was stopped after 0 steps (to continue it: bitrain train "
         "--resume r --store @D)"},
        {"running", "far", 2, "6",
         "run 'r' is not live on this host: its supervisor takes requests on host 'far' only"},
        {"running", "", 0, "6",
         "run 'r' is not live on this host: its supervisor takes requests on host '@H' only"},
        {"running", "", 1, "6", /* pid 1 (init) always exists */
         "run 'r' takes no requests now: its process 1 begins or ends at this moment, or has no "
         "supervisor, as when "
         "mpirun starts 'bitrain train' (to stop it with a checkpoint: kill 1)"},
        {"running", "", -1, "6", /* -1: no pid in the record */
         "run 'r' is not live on this host: its supervisor takes requests on host '@H' only"},
        {"running", "", 2, "6",
         "run 'r' takes no requests now: its process @P begins or ends at this moment, or has no "
         "supervisor, as "
         "when mpirun starts 'bitrain train' (to stop it with a checkpoint: kill @P)"},
        {"running", "", 3, "6",
         "run 'r' is not live: its process @P has ended (to continue it: bitrain train --resume "
         "r --store @D)"},
    };
    static const char *const files[] = {NULL, "", "\n", "/nowhere/sock\n", "/nowhere/sock"};
    const bt_tmp *t = *state;
    char file[100], here[BT_HOST_MAX] = "", sql[300], want[600], reply[32];
    bt_writer *w = NULL;
    bt_db *db = NULL;
    gethostname(here, sizeof here - 1);
    snprintf(file, sizeof file, "%s/control", t->dir);
    OK(bt_writer_open(&w, t->db, 1, err));
    start_run(w, t->dir, "here");
    OK(bt_writer_end(w, "done", "", 0, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int pid = rows[i].pid == 2   ? (int)getpid()
                        : rows[i].pid == 3 ? 2147483000
                                           : rows[i].pid;
        snprintf(sql, sizeof sql,
                 "UPDATE run SET state = '%s', host = '%s', pid = nullif(%d, -1), last_step = %s",
                 rows[i].run_state, rows[i].host[0] ? rows[i].host : here, pid, rows[i].last_step);
        run_sql(t->db, sql);
        fill_placeholders(want, sizeof want, rows[i].says, t->db, here, pid);
        for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
            bt_err why = BT_ERR_INIT;
            unlink(file);
            FILE *f = files[k] ? fopen(file, "w") : NULL;
            if (f) fputs(files[k], f);
            if (f) fclose(f);
            assert_int_equal(bt_control_request(db, "r", "stop", reply, sizeof reply, &why),
                             BT_BUSY);
            want[sizeof why.msg - 1] = '\0'; /* An error message is truncated to this size. */
            assert_string_equal(why.msg, want);
            assert_int_equal(why.code, BT_BUSY);
        }
    }
    bt_db_close(db);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(every_answer_is_understood),
                                       CASE(refusals_keep_their_code),
                                       CASE(no_reply_arrives),
                                       CASE(the_longest_answer_is_read_and_a_longer_one_refused),
                                       CASE(an_answer_without_end_is_refused),
                                       CASE(the_longest_request_is_sent_and_a_longer_one_refused),
                                       CASE(words_of_a_request),
                                       CASE(lines_of_prompts),
                                       CASE(the_reason_of_a_missing_reply),
                                       CASE(a_run_is_found_by_its_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
