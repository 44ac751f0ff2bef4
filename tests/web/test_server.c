// ctest: timeout=60 labels=web
/* The server over its sockets: event streams that resume, send heartbeats and are limited in number; requests beyond
 * their deadline. */
#include <errno.h>
#include <pthread.h>

#include "web/server/server_impl.h"
#include "web/web.h"
#include "web_client.h"
#include "web_test.h"

static const char token[] = "0123456789abcdef0123456789abcdef";

static bt_web *start_server_on(const bt_tmp *t, int64_t heartbeat_ns, int64_t deadline_ns,
                               bool control) {
    bt_web *w = NULL;
    OK(bt_web_start(&w,
                    &(bt_web_cfg){.store = t->db,
                                  .host = "127.0.0.1",
                                  .socket = "",
                                  .token = token,
                                  .control = control,
                                  .heartbeat_ns = heartbeat_ns,
                                  .deadline_ns = deadline_ns},
                    err));
    return w;
}

static void send_to_server(client *c, const bt_web *w, const char *path, const char *more) {
    char text[1024];
    dial(c, bt_web_port(w));
    snprintf(text, sizeof text,
             "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n%s\r\n", path,
             bt_web_port(w), token, more);
    say(c, text, strlen(text));
}

static bool received_more(client *c) {
    const ssize_t k = recv(c->fd, c->text + c->n, sizeof c->text - c->n - 1, 0);
    c->n += k > 0 ? (size_t)k : 0;
    c->text[c->n] = '\0';
    return k > 0;
}

/* Reads until the response contains this word after `from`; returns its position. */
static const char *read_until_word(client *c, size_t from, const char *word) {
    const char *found;
    while (!(found = strstr(c->text + from, word))) {
        if (!received_more(c)) fail_msg("'%s' never came; what came was: %s", word, c->text);
    }
    return found;
}

static void hang_up(const client *c) { close(c->fd); }

static int count_of_word(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

#define ENDLESS \
    "/api/v1/" \
    "query?sql=WITH%20RECURSIVE%20c(x)%20AS%20(SELECT%201%20UNION%20ALL%20SELECT%20x%2B1%20" \
    "FROM%20c)%20SELECT%20sum(x)%20FROM%20c"

/* Four long queries run at a time; meanwhile all other requests are served, and the server can be stopped. */
static void a_long_query_blocks_no_other_request(void **state) {
    const bt_tmp *t = *state;
    static client slow[4], other;
    bt_web *w = NULL;
    bt_web_runs(t->db);
    OK(bt_web_start(&w,
                    &(bt_web_cfg){.store = t->db,
                                  .host = "127.0.0.1",
                                  .socket = "",
                                  .token = token,
                                  .query_program = getenv("BITRAIN")},
                    err));
    for (int i = 0; i < 4; i++) send_to_server(&slow[i], w, ENDLESS, "");
    send_to_server(&other, w, "/api/v1/runs", "Connection: close\r\n");
    read_until_word(&other, 0, "\"base\"");
    hang_up(&other);
    send_to_server(&other, w, ENDLESS, "Connection: close\r\n");
    read_until_word(&other, 0, "503");
    read_until_word(&other, 0, "\r\nRetry-After: 2\r\n");
    hang_up(&other);
    hang_up(&slow[3]); /* a client that disconnects */
    for (int i = 0; i < 3; i++) {
        char none;
        assert_true(recv(slow[i].fd, &none, 1, MSG_DONTWAIT | MSG_PEEK) < 0); /* still executing */
    }
    for (int i = 0; i < 3; i++) {
        read_until_word(&slow[i], 0, "took longer than 2 s");
        assert_non_null(strstr(slow[i].text, "409"));
        hang_up(&slow[i]);
    }
    send_to_server(&other, w, "/api/v1/query?sql=SELECT%2040%2B2%20AS%20answer",
                   "Connection: close\r\n");
    read_until_word(&other, 0, "[[42]]");
    hang_up(&other);
    send_to_server(&slow[0], w, ENDLESS, ""); /* executing when the server stops */
    bt_web_stop(w);
    hang_up(&slow[0]);
}

/* No thread can be created (its stack is larger than memory): the connection is closed, and its place is free again. */
static void a_query_without_a_thread(void **state) {
    const bt_tmp *t = *state;
    static client c;
    bt_web *w = NULL;
    pthread_attr_t given, huge;
    bt_web_runs(t->db);
    OK(bt_web_start(&w,
                    &(bt_web_cfg){.store = t->db,
                                  .host = "127.0.0.1",
                                  .socket = "",
                                  .token = token,
                                  .query_program = getenv("BITRAIN")},
                    err));
    assert_int_equal(pthread_getattr_default_np(&given), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 46), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    for (int i = 0; i < 5; i++) {
        send_to_server(&c, w, "/api/v1/query?sql=SELECT%201", "");
        assert_true(recv(c.fd, c.text, sizeof c.text, 0) <= 0);
        hang_up(&c);
    }
    assert_int_equal(pthread_setattr_default_np(&given), 0);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&given);
    send_to_server(&c, w, "/api/v1/query?sql=SELECT%2040%2B2%20AS%20answer",
                   "Connection: close\r\n");
    read_until_word(&c, 0, "[[42]]");
    hang_up(&c);
    bt_web_stop(w);
}

/* Adds 20 steps to the run "live" as a second attempt. */
static void write_second_attempt(const bt_tmp *t) {
    bt_writer *w = NULL;
    int attempt;
    bt_synth s = bt_synth_default("live");
    OK(bt_writer_open(&w, t->db, 10, err));
    OK(bt_writer_begin(w,
                       &(bt_run_start){.name = "live",
                                       .reason = "resume",
                                       .argv = "bitrain train",
                                       .config_json = "{}",
                                       .host = "nodes",
                                       .user = "nobody",
                                       .build = "synth",
                                       .mpi = "none",
                                       .out_dir = "/nowhere",
                                       .world_size = s.ranks,
                                       .seed = 1,
                                       .pid = 1,
                                       .resume = true,
                                       .from_step = 60,
                                       .started_us = s.start_us + 60000000},
                       &attempt, err));
    bt_synth_attempt(&s, w, 60, 80, s.start_us + 60000000);
    OK(bt_writer_flush(w, err));
    bt_writer_close(w);
}

static const char *const live = "/api/v1/runs/live/stream";

static void a_stream_sends_news_and_resumes(void **state) {
    const bt_tmp *t = *state;
    static client c, again;
    char last[64], more[128];
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 50000000, 0, false);
    const int64_t began = bt_now_ns();
    send_to_server(&c, w, live, "");
    read_until_word(&c, 0, "Content-Type: text/event-stream");
    read_until_word(&c, 0, "\r\nCache-Control: no-store\r\n");
    read_until_word(&c, 0, "\r\nX-Accel-Buffering: no\r\n");
    read_until_word(&c, 0, "retry: 2000\n\n");
    const char *id = read_until_word(&c, 0, "id: 0.59.");
    read_until_word(&c, 0, "event: tick\ndata: {");
    read_until_word(&c, 0, "\"newest_step\":59");
    const char *beat = read_until_word(&c, 0, ": hb\n\n"); /* connected, without news */
    const unsigned long long wakes = atomic_load(&w->wakes);
    for (int i = 0; i < 8; i++) beat = read_until_word(&c, (size_t)(beat - c.text) + 1, ": hb\n\n");
    assert_true(bt_now_ns() - began >= 9 * 50000000LL);
    assert_int_equal(atomic_load(&w->wakes), wakes); /* No connection is woken without news. */
    snprintf(last, sizeof last, "%.*s", (int)strcspn(id + 4, "\n"), id + 4);
    hang_up(&c);
    snprintf(more, sizeof more, "Last-Event-ID: %s\r\n", last);
    send_to_server(&again, w, live, more); /* the same position again: no news */
    read_until_word(&again, 0, ": hb\n\n");
    assert_null(strstr(again.text, "event:"));
    size_t before = again.n;
    write_second_attempt(t);
    read_until_word(&again, before, "\"newest_step\":79");
    read_until_word(&again, before, "id: 1.79.");
    hang_up(&again);
    /* After a reconnection one event with the present state arrives at once. */
    send_to_server(&c, w, live, more);
    read_until_word(&c, 0, "id: 1.79.");
    read_until_word(&c, 0, ": hb\n\n");
    assert_int_equal(count_of_word(c.text, "event: tick"), 1);
    hang_up(&c);
    send_to_server(&c, w, live, "Last-Event-ID: <script>\r\n"); /* an invalid id counts as none */
    read_until_word(&c, 0, "event: tick");
    bt_web_stop(w); /* the server ends although a stream is open */
    hang_up(&c);
}

/* The default interval of 15 s exceeds the duration of this test, so no heartbeat is sent. */
static void no_heartbeat_of_a_moment(void **state) {
    const bt_tmp *t = *state;
    static client c;
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 0, 0, false);
    const int64_t began = bt_now_ns();
    send_to_server(&c, w, live, "");
    read_until_word(&c, 0, "\"newest_step\":59");
    bt_sleep_ns(300000000); /* several polls of the publisher */
    write_second_attempt(t);
    read_until_word(&c, 0, "\"newest_step\":79");
    const int64_t most = (bt_now_ns() - began) / 15000000000;
    assert_true(count_of_word(c.text, ": hb") <= most);
    hang_up(&c);
    bt_web_stop(w);
}

/* One heartbeat an hour: none is sent between the initial state and the next news. */
static void heartbeats_are_sent_at_their_interval(void **state) {
    const bt_tmp *t = *state;
    static client c;
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 3600000000000, 0, false);
    send_to_server(&c, w, live, "");
    read_until_word(&c, 0, "\"newest_step\":59");
    write_second_attempt(t);
    read_until_word(&c, 0, "\"newest_step\":79");
    assert_null(strstr(c.text, ": hb"));
    hang_up(&c);
    bt_web_stop(w);
}

/* A commit every ten milliseconds wakes pages at most every hundred milliseconds, on any machine. */
static void many_commits_wake_pages_rarely(void **state) {
    const bt_tmp *t = *state;
    bt_writer *writer = NULL;
    bt_fake f;
    int attempt;
    const bt_run_start run = bt_fake_run("quick");
    bt_web *w = start_server_on(t, 0, 0, false);
    OK(bt_writer_open(&writer, t->db, 10, err));
    OK(bt_writer_begin(writer, &run, &attempt, err));
    const bt_sink *sink = bt_writer_sink(writer);
    const unsigned long long before = atomic_load(&w->wakes);
    const int64_t began = bt_now_ns();
    for (int i = 0; i < 40; i++) {
        sink->step(sink->ctx, bt_fake_step(&f, i, 1));
        OK(bt_writer_flush(writer, err));
        bt_sleep_ns(10000000);
    }
    const unsigned long long wakes = atomic_load(&w->wakes) - before;
    assert_true(wakes <= (unsigned long long)(bt_now_ns() - began) / 100000000 + 2);
    while (atomic_load(&w->wakes) == before) bt_sleep_ns(1000000);
    bt_writer_close(writer);
    bt_web_stop(w);
}

static void a_reader_far_behind_must_start_again(void **state) {
    const bt_tmp *t = *state;
    static client c;
    bt_synth s = bt_synth_default("long");
    s.ranks = 1;
    s.steps = 6000;
    s.layers_every = 0;
    OK(bt_synth_make(t->db, &s, err));
    bt_web *w = start_server_on(t, 0, 0, false);
    send_to_server(&c, w, "/api/v1/runs/long/stream", "Last-Event-ID: 0.998.1\r\n");
    read_until_word(&c, 0, "event: resync");
    read_until_word(&c, 0, "id: 0.5999.");
    hang_up(&c);
    send_to_server(&c, w, "/api/v1/runs/long/stream", "Last-Event-ID: 0.999.1\r\n");
    read_until_word(&c, 0, "event: tick");
    hang_up(&c);
    send_to_server(&c, w, "/api/v1/runs/nobody/stream", "");
    read_until_word(&c, 0, "HTTP/1.1 404");
    read_until_word(&c, 0, "\"code\":\"run_not_found\"");
    hang_up(&c);
    bt_web_stop(w);
}

/* A slow reader gets only the newest state: each poll gives one event, whatever was missed. */
static void missed_changes_are_one_event(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_cursor cursor;
    bt_text out;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    bt_text_init(&out);
    bt_cursor_parse(&cursor, "0.3.1");
    OK(bt_stream_since(api, "live", &cursor, &out, err));
    assert_int_equal(count_of_word(bt_text_str(&out), "event: "), 1);
    assert_int_equal((int)cursor.step, 59);
    bt_text_clear(&out);
    OK(bt_stream_since(api, "live", &cursor, &out, err));
    assert_int_equal((int)out.len, 0);
    bt_text_release(&out);
    bt_api_close(api);
}

/* A writer moves a damaged store aside, or a user removes it: the next store is another file with the same name. */
static void a_replaced_file_is_detected(void **state) {
    const bt_tmp *t = *state;
    static client c, list;
    char command[300], next[100];
    bt_synth s = bt_synth_default("live");
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 3600000000000, 0, false);
    send_to_server(&c, w, live, "");
    read_until_word(&c, 0, "\"newest_step\":59");
    send_to_server(&list, w, "/api/v1/runs", "Connection: close\r\n");
    read_until_word(&list, 0, "\"other\"");
    hang_up(&list);
    const size_t before = c.n;
    snprintf(next, sizeof next, "%s/next.db", t->dir);
    s.steps = 90;
    OK(bt_synth_make(next, &s, err));
    snprintf(command, sizeof command,
             "cd '%s' && mkdir old && mv m.db* old && sleep 0.2 && mv next.db m.db", t->dir);
    assert_int_equal(system(command), 0);
    read_until_word(&c, before, "id: 0.89.");
    send_to_server(&list, w, "/api/v1/runs", "Connection: close\r\n");
    read_until_word(&list, 0, "\"live\"");
    assert_null(strstr(list.text, "\"other\""));
    hang_up(&list);
    hang_up(&c);
    bt_web_stop(w);
}

/* Two readers within a short time get the same response, including its ages, until something is committed. */
static void responses_are_reused(void **state) {
    const bt_tmp *t = *state;
    static client first, second;
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 0, 0, false);
    for (int tries = 0, same = 0; same < 2; tries++) {
        if (tries > 1000) fail_msg("a thousand pairs of answers, each of two: %s", second.text);
        send_to_server(&first, w, "/api/v1/runs?limit=1", "Connection: close\r\n");
        read_until_word(&first, 0, "\"age_s\":");
        while (received_more(&first)) {}
        send_to_server(&second, w, "/api/v1/runs?limit=1", "Connection: close\r\n");
        read_until_word(&second, 0, "\"age_s\":");
        while (received_more(&second)) {}
        hang_up(&first);
        hang_up(&second);
        same += strcmp(strstr(first.text, "\"age_s\":"), strstr(second.text, "\"age_s\":")) == 0;
    }
    bt_web_stop(w);
}

static void the_number_of_streams_is_limited(void **state) {
    enum { MOST = 32 };
    const bt_tmp *t = *state;
    client *all = calloc(MOST + 1, sizeof *all);
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 20000000, 0, false);
    for (int i = 0; i < MOST; i++) {
        send_to_server(&all[i], w, live, "");
        read_until_word(&all[i], 0, "event: tick");
    }
    client *late = &all[MOST];
    send_to_server(late, w, live, "");
    read_until_word(late, 0, "HTTP/1.1 503");
    read_until_word(late, 0, "Retry-After:");
    read_until_word(late, 0, "\"code\":\"too_many_streams\"");
    hang_up(late);
    send_to_server(late, w, "/api/v1/runs/live/head", ""); /* all other requests are still served */
    read_until_word(late, 0, "HTTP/1.1 200");
    hang_up(late);
    /* The next heartbeat to it fails, and its place is free. */
    hang_up(&all[0]);
    for (int tries = 0;; tries++) {
        send_to_server(late, w, live, "");
        read_until_word(late, 0, "\r\n\r\n");
        hang_up(late);
        if (strstr(late->text, "HTTP/1.1 200")) break;
        if (tries == 400) fail_msg("a stream that was left is never forgotten");
        bt_sleep_ns(20000000);
    }
    for (int i = 1; i < MOST; i++) hang_up(&all[i]);
    bt_web_stop(w);
    free(all);
}

/* Sends a byte at intervals while the connection is open; returns false if it was never closed. */
static bool is_cut(const client *c, char byte) {
    for (int i = 0; i < 400; i++) {
        char got[512];
        ssize_t k = recv(c->fd, got, sizeof got, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno == ECONNRESET)) return true;
        if (send(c->fd, &byte, 1, MSG_NOSIGNAL) < 0) return true;
        bt_sleep_ns(10000000);
    }
    return false;
}

static void a_body_that_is_too_large_is_not_kept(void **state) {
    const bt_tmp *t = *state;
    static client c;
    for (int control = 0; control < 2; control++) {
        bt_web *w = start_server_on(t, 0, 60000000000, control);
        assert_true(post_much(&c, bt_web_port(w), "/api/v1/control") < MUCH / 2);
        read_until_word(&c, 0, control ? "HTTP/1.1 413" : "HTTP/1.1 405");
        hang_up(&c);
        bt_web_stop(w);
    }
}

static void a_request_has_a_deadline_as_a_whole(void **state) {
    const bt_tmp *t = *state;
    static client c;
    char text[400];
    bt_web_runs(t->db);
    bt_web *w = start_server_on(t, 100000000, 300000000, true);
    dial(&c, bt_web_port(w));
    /* The header never ends. */
    say(&c, "GET /healthz HTTP/1.1\r\nX-Slow: ", strlen("GET /healthz HTTP/1.1\r\nX-Slow: "));
    assert_true(is_cut(&c, 'a'));
    hang_up(&c);
    dial(&c, bt_web_port(w)); /* a body that never ends */
    snprintf(text, sizeof text,
             "POST /api/v1/control HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer "
             "%s\r\nContent-Length: 60000\r\n\r\n",
             bt_web_port(w), token);
    say(&c, text, strlen(text));
    assert_true(is_cut(&c, ' '));
    hang_up(&c);
    /* A second request on a connection whose first succeeded. */
    dial(&c, bt_web_port(w));
    snprintf(text, sizeof text, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
             bt_web_port(w));
    say(&c, text, strlen(text));
    read_until_word(&c, 0, "\r\n\r\nok\n");
    say(&c, "GET /healthz HT", strlen("GET /healthz HT"));
    assert_true(is_cut(&c, 'T'));
    hang_up(&c);
    /* A stream has no deadline: ten heartbeats are three deadlines. */
    send_to_server(&c, w, live, "");
    read_until_word(&c, 0, "event: tick");
    while (count_of_word(c.text, ": hb\n\n") < 10) read_until_word(&c, c.n, ": hb\n\n");
    hang_up(&c);
    bt_web_stop(w);
}

int main(void) {
    bt_web *w = NULL;
    bt_err why = BT_ERR_INIT;
    if (bt_web_start(
            &w,
            &(bt_web_cfg){
                .store = "/nowhere/m.db", .host = "127.0.0.1", .socket = "", .token = token},
            &why) != BT_OK) {
        printf("SKIP: %s\n", why.msg);
        return 77;
    }
    bt_web_stop(w);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_long_query_blocks_no_other_request, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_query_without_a_thread, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(many_commits_wake_pages_rarely, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(no_heartbeat_of_a_moment, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(heartbeats_are_sent_at_their_interval, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_stream_sends_news_and_resumes, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_reader_far_behind_must_start_again, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(missed_changes_are_one_event, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_replaced_file_is_detected, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(responses_are_reused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(the_number_of_streams_is_limited, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_body_that_is_too_large_is_not_kept, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_request_has_a_deadline_as_a_whole, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
