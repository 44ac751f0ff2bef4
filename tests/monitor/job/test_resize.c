// ctest: timeout=60
/* Changing the number of ranks: accepted requests and their effect between two attempts; hosts that are lost, excluded
 * by request, and available again. */
#include <sys/socket.h>
#include <sys/un.h>

#include "job_test.h"
#include "tests/message.h"

/* The caller defines the layouts: here 1 to 8 ranks, up to step 100. */
typedef struct answers {
    bt_resize_request asked; /* the newest request */
    size_t alive, slots;
    int taken;
} answers;

static bt_code on_layout(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                         bt_err *err) {
    answers *a = ctx;
    int ranks = w->most;
    a->asked = *w;
    a->alive = a->slots = 0;
    for (size_t i = 0; i < w->n_hosts; i++) {
        a->alive += w->hosts[i].alive;
        a->slots += w->hosts[i].alive ? (size_t)w->hosts[i].slots : 0;
    }
    if (w->n_hosts) ranks = (int)a->slots;
    if (ranks > 8 || ranks < 1)
        return bt_fail(err, BT_ARG, "%d ranks are too many or too few", ranks);
    if (w->from_step >= 100) return bt_fail(err, BT_STOPPED, "nothing is left");
    *out = (bt_job_layout){.ranks = ranks, .settings = "more ranks", .same = ranks == 2};
    snprintf(out->told, sizeof out->told, "%d ranks", ranks);
    a->taken += take;
    return BT_OK;
}

static answers heard;

static int open_elastic(void **state) {
    if (desk_open(state) != 0) return -1;
    desk *d = *state;
    heard = (answers){0};
    d->setup.layout = on_layout;
    d->setup.layout_ctx = &heard;
    return 0;
}

static void check_refused_request(desk *d, const char *arg, bt_code code, const char *says) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_job_request_resize(&d->job, arg, "ctl", &err), code);
    assert_string_equal(err.msg, says);
    assert_false(d->job.resize.wanted);
}

static void invalid_layouts_are_refused(void **state) {
    desk *d = *state;
#define AS_IN " (as in resize 4 or resize 4,tp=2,pp=1,zero=3)"
    check_refused_request(d, "", BT_ARG,
                          "resize : the number of ranks must be a whole number from 1 on" AS_IN);
    check_refused_request(d, "0", BT_ARG,
                          "resize 0: the number of ranks must be a whole number from 1 on" AS_IN);
    check_refused_request(
        d, "65537", BT_ARG,
        "resize 65537: the number of ranks must be a whole number from 1 on" AS_IN);
    check_refused_request(d, "4x", BT_ARG,
                          "resize 4x: the number of ranks must be a whole number from 1 on" AS_IN);
    check_refused_request(d, "4,tp=0", BT_ARG,
                          "resize 4,tp=0: tp must be a whole number from 1 on" AS_IN);
    check_refused_request(d, "4,pp=", BT_ARG,
                          "resize 4,pp=: pp must be a whole number from 1 on" AS_IN);
    check_refused_request(d, "4,zero=-1", BT_ARG,
                          "resize 4,zero=-1: zero must be a whole number from 0 on" AS_IN);
    check_refused_request(
        d, "4,dp=2", BT_ARG,
        "resize 4,dp=2: 'dp=2' is none of tp=N, pp=N, zero=N (as in resize 4,tp=2,pp=1,zero=3)");
    check_refused_request(
        d, "4,zp=2", BT_ARG,
        "resize 4,zp=2: 'zp=2' is none of tp=N, pp=N, zero=N (as in resize 4,tp=2,pp=1,zero=3)");
    check_refused_request(
        d, "4,t=2", BT_ARG,
        "resize 4,t=2: 't=2' is none of tp=N, pp=N, zero=N (as in resize 4,tp=2,pp=1,zero=3)");
    check_refused_request(
        d, "4,tp", BT_ARG,
        "resize 4,tp: 'tp' is none of tp=N, pp=N, zero=N (as in resize 4,tp=2,pp=1,zero=3)");
    check_refused_request(d, "9", BT_ARG, "9 ranks are too many or too few");
    check_refused_request(d, "2", BT_BUSY, "the run has 2 ranks already");
    d->setup.elastic_min = 2;
    d->setup.elastic_max = 4;
    check_refused_request(d, "1", BT_ARG, "1 rank: outside the 2 to 4 of --elastic");
    check_refused_request(d, "5", BT_ARG, "5 ranks: outside the 2 to 4 of --elastic");
    d->job.stop_asked = true;
    check_refused_request(d, "4", BT_BUSY, "the run is stopping");
    d->setup.layout = NULL;
    check_refused_request(d, "4", BT_UNSUPPORTED,
                          "the ranks of this run were not started by bitrain");
}

/* The ranks stop; the next attempt, and only that one, begins with the requested layout. */
static void from_the_request_to_the_next_attempt(void **state) {
    desk *d = *state;
    bt_err err = BT_ERR_INIT;
    char told[480] = "";
    const bt_end done = {.kind = BT_END_DONE}, dead = {.kind = BT_END_SIGNAL};
    d->setup.elastic_min = 2;
    d->setup.elastic_max = 4;
    desk_connect(d);
    assert_false(bt_job_take_layout(&d->job, told, sizeof told));
    assert_int_equal(bt_job_request_resize(&d->job, "4,tp=2,pp=1,zero=3", "ctl", &err), BT_OK);
    desk_hears(d, "stop 0;");
    desk_shows(d, "control -1 resize to 4 ranks requested by ctl\n");
    assert_true(d->job.resize.wanted && !d->job.stop_asked);
    assert_true(heard.asked.most == 4 && heard.asked.least == 4 && heard.asked.tp == 2 &&
                heard.asked.pp == 1 && heard.asked.zero == 3 && heard.taken == 0);
    assert_int_equal(bt_job_request_resize(&d->job, "3", "ctl", &err), BT_BUSY);
    message_has(err.msg, "the run is already on its way to 4");
    /* Only ranks that stopped after a step, with steps left, continue in another layout. */
    d->job.last_step = 41;
    assert_false(bt_job_ended_to_resize(&d->job, &done));
    d->result.result_json = strdup("{\"text\":\"\\\"stopped\\\":true\"}");
    assert_false(bt_job_ended_to_resize(&d->job, &done));
    free(d->result.result_json);
    d->result.result_json = strdup("{\"stopped\":true}");
    assert_true(bt_job_ended_to_resize(&d->job, &done));
    assert_int_equal(heard.asked.from_step, 42);
    assert_int_equal(heard.taken, 0);
    assert_false(bt_job_ended_to_resize(&d->job, &dead));
    d->job.stop_asked = true;
    assert_false(bt_job_ended_to_resize(&d->job, &done));
    d->job.stop_asked = false;
    d->job.last_step = 99;
    assert_false(bt_job_ended_to_resize(&d->job, &done));
    d->job.from.step = 42;
    assert_true(bt_job_take_layout(&d->job, told, sizeof told));
    assert_string_equal(told, "continues with 4 ranks (2 before): requested by ctl");
    assert_int_equal(heard.asked.from_step, 42);
    assert_int_equal(heard.taken, 1);
    assert_int_equal(d->job.world_size, 4);
    assert_string_equal(d->job.settings, "more ranks");
    bt_job_resized_event(&d->job, 2, told);
    desk_shows(d, "resized -1 continues with 4 ranks (2 before): requested by ctl "
                  "{\"from\":2,\"to\":4,\"why\":\"requested by ctl\"}\n");
    assert_false(bt_job_take_layout(&d->job, told, sizeof told));
    assert_false(bt_job_ended_to_resize(&d->job, &done));
}

/* Between two attempts no rank has to stop; if the layout has become impossible, the previous one is kept. */
static void an_impossible_layout_is_not_used(void **state) {
    desk *d = *state;
    bt_err err = BT_ERR_INIT;
    char told[480] = "";
    d->job.restarting = true;
    assert_int_equal(bt_job_request_resize(&d->job, "8", "web", &err), BT_OK);
    assert_int_equal(d->job.pending, 0);
    assert_int_equal(heard.asked.zero, -1);
    desk_shows(d, "control -1 resize to 8 ranks requested by web\n");
    d->job.from.step = 100;
    assert_false(bt_job_take_layout(&d->job, told, sizeof told));
    desk_shows(d, "warning -1 the number of ranks stays 2: nothing is left\n");
    assert_int_equal(d->job.world_size, 2);
    assert_false(d->job.resize.wanted);
    /* An unchanged layout is not a change. */
    d->job.from.step = 0;
    d->job.resize.wanted = true;
    d->job.resize.to = (bt_resize_request){.most = 2, .least = 2};
    assert_false(bt_job_take_layout(&d->job, told, sizeof told));
    desk_shows(d, "");
}

static void ranks_that_left_by_themselves(void **state) {
    desk *d = *state;
    const bt_end done = {.kind = BT_END_DONE}, dead = {.kind = BT_END_SIGNAL};
    d->result.result_json = strdup("{\"stopped\":true}");
    d->job.last_step = 50;
    assert_true(bt_job_left_unasked(&d->job, &done));
    assert_true(heard.asked.most == 2 && heard.asked.least == 2 && heard.asked.from_step == 51 &&
                heard.asked.zero == -1);
    assert_false(bt_job_left_unasked(&d->job, &dead));
    d->job.stop_asked = true;
    assert_false(bt_job_left_unasked(&d->job, &done));
    d->job.stop_asked = false;
    d->job.resize.wanted = true;
    assert_false(bt_job_left_unasked(&d->job, &done));
    d->job.resize.wanted = false;
    d->job.last_step = 99;
    assert_false(bt_job_left_unasked(&d->job, &done));
    d->job.last_step = 50;
    free(d->result.result_json);
    d->result.result_json = strdup("{\"stopped\":false}");
    assert_false(bt_job_left_unasked(&d->job, &done));
    d->setup.layout = NULL;
    assert_false(bt_job_left_unasked(&d->job, &done));
}

enum { HOSTS = 3 };

/* Three hosts with two slots each. They have no address, so the supervisor does not probe them. */
static void have_hosts(desk *d, bt_host *hosts) {
    for (int i = 0; i < HOSTS; i++) {
        hosts[i] = (bt_host){.slots = 2, .fd = -1};
        snprintf(hosts[i].name, sizeof hosts[i].name, "h%d", i);
        snprintf(hosts[i].line, sizeof hosts[i].line, "h%d slots=2", i);
    }
    d->job.hosts = (bt_hosts){.host = hosts, .n = HOSTS};
    d->setup.elastic_min = 1;
    d->setup.elastic_max = 8;
    d->setup.hosts = "/h/hosts";
}

static void slots_limit_the_ranks(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    have_hosts(d, hosts);
    hosts[2].aside = true;
    check_refused_request(d, "5", BT_ARG, "5 ranks: the hosts in use have 4 slots");
    hosts[0].aside = true;
    hosts[1].slots = 1;
    check_refused_request(d, "2", BT_ARG, "2 ranks: the hosts in use have 1 slot");
    hosts[1].slots = 0; /* 0: the number that mpirun determines */
    check_refused_request(d, "2", BT_BUSY, "the run has 2 ranks already");
}

static void the_host_file_contains_the_hosts_in_use(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    char path[96], text[200] = "";
    bt_err err = BT_ERR_INIT;
    have_hosts(d, hosts);
    assert_int_equal(bt_job_hosts_file(&d->job, d->dir, path, sizeof path, &err), BT_OK);
    assert_string_equal(path, "/h/hosts");
    hosts[1].aside = true;
    assert_int_equal(bt_job_hosts_file(&d->job, d->dir, path, sizeof path, &err), BT_OK);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, "h0 slots=2\nh2 slots=2\n");
}

/* A host that does not respond is set aside, and the run continues on the other hosts; if that is impossible, it
 * waits. */
static void a_lost_host_is_set_aside(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    char told[480] = "";
    bt_end end = {.kind = BT_END_NODE_LOST};
    have_hosts(d, hosts);
    hosts[1].answered = true;
    hosts[1].asked_ns = 1;
    d->job.world_size = 6;
    d->job.stop_asked = true;
    assert_false(bt_job_hosts_ended(&d->job, &end));
    d->job.stop_asked = false;
    assert_true(bt_job_hosts_ended(&d->job, &end));
    desk_shows(d, "host_lost -1 host h1 is set aside: it does not answer\n");
    assert_true(hosts[1].aside && !hosts[0].aside && !hosts[2].aside);
    assert_int_equal(heard.alive, 2);
    assert_true(d->job.resize.wanted && d->job.resize.by_hosts);
    assert_true(bt_job_take_layout(&d->job, told, sizeof told));
    assert_string_equal(told, "continues with 4 ranks (6 before): host h1 is away");
    assert_false(bt_job_hosts_ended(&d->job, &end)); /* No other host is at fault. */
    /* If the attempt ended in another way, a message about a host is not its cause. */
    end = (bt_end){.kind = BT_END_ERROR, .message = "ssh: connect to host h2 port 22: refused"};
    hosts[2].asked_ns = 1;
    assert_false(bt_job_hosts_ended(&d->job, &end));
    hosts[2].asked_ns = 0;
    /* mpirun prints the host that it could not reach. */
    end = (bt_end){.kind = BT_END_LAUNCH, .message = "ssh: connect to host h2 port 22: refused"};
    assert_true(bt_job_hosts_ended(&d->job, &end));
    desk_shows(d, "host_lost -1 host h2 is set aside: ssh: connect to host h2 port 22: refused\n");
    hosts[2].aside = hosts[1].aside = false;
    hosts[1].asked_ns = 0;
    hosts[2].asked_ns = 1;
    snprintf(end.message, sizeof end.message, "a daemon died");
    assert_true(bt_job_hosts_ended(&d->job, &end));
    desk_shows(d, "host_lost -1 host h2 is set aside: it has never answered\n");
    /* All hosts are lost: none is set aside, because none would remain. */
    hosts[2].aside = false;
    for (int i = 0; i < HOSTS; i++) {
        hosts[i].answered = true;
        hosts[i].asked_ns = 1;
    }
    assert_false(bt_job_hosts_ended(&d->job, &end));
    desk_shows(
        d,
        "warning -1 host h2 is away, and the run waits for it: 0 ranks are too many or too few\n");
    for (int i = 0; i < HOSTS; i++) assert_false(hosts[i].aside);
    d->setup.elastic_max = 0;
    assert_false(bt_job_hosts_ended(&d->job, &end));
}

static void a_shutdown_notice_of_a_rank_excludes_its_host(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    have_hosts(d, hosts);
    assert_false(bt_job_hosts_left(&d->job)); /* no host was set aside */
    d->job.leaving = 6;                       /* No host has that many slots. */
    assert_false(bt_job_hosts_left(&d->job));
    d->job.leaving = 2;
    d->job.stop_asked = true;
    assert_false(bt_job_hosts_left(&d->job));
    d->job.stop_asked = false;
    hosts[1].here = true;
    assert_false(bt_job_hosts_left(&d->job));
    hosts[1].here = false;
    hosts[0].slots = 0;
    assert_false(bt_job_hosts_left(&d->job));
    hosts[0].slots = 2;
    const int64_t before = bt_now_ns();
    assert_true(bt_job_hosts_left(&d->job));
    assert_true(hosts[1].aside && !hosts[0].aside && !hosts[2].aside);
    assert_true(hosts[1].next_look_ns - before >= INT64_C(150000000000));
    desk_shows(d, "host_lost -1 host h1 is set aside for 150 s: a signal ended its rank\n");
    assert_string_equal(d->job.resize.why, "host h1 is to be left");
    /* Ranks fill the hosts in use, one after the other. */
    d->job.leaving = 2;
    assert_true(bt_job_hosts_left(&d->job));
    assert_true(hosts[2].aside);
    desk_shows(d, "host_lost -1 host h2 is set aside for 150 s: a signal ended its rank\n");
    d->job.leaving = 1;
    assert_false(bt_job_hosts_left(&d->job));
    desk_shows(d, "warning -1 host h0 is to be left, but: 0 ranks are too many or too few\n");
    assert_false(hosts[0].aside);
}

/* A host that responds again joins after a checkpoint, for which the ranks stop. */
static void a_host_is_taken_back(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    char told[480] = "";
    have_hosts(d, hosts);
    desk_connect(d);
    d->job.world_size = 2;
    hosts[0].aside = hosts[1].aside = true;
    bt_job_hosts_checkpoint(&d->job); /* No host has returned. */
    assert_false(d->job.resize.wanted);
    hosts[1].back = true;
    d->job.stop_asked = true;
    bt_job_hosts_checkpoint(&d->job);
    d->job.stop_asked = false;
    assert_false(d->job.resize.wanted);
    bt_job_hosts_checkpoint(&d->job);
    desk_hears(d, "stop 0;");
    assert_true(d->job.resize.wanted && d->job.resize.by_hosts);
    assert_string_equal(d->job.resize.why, "host h1 is back");
    assert_int_equal(heard.slots, 4); /* the slots in use and those of the returned host */
    bt_job_hosts_checkpoint(&d->job); /* a second call has no effect */
    d->job.lost_host = &hosts[0];
    bt_job_hosts_begin(&d->job);
    assert_null(d->job.lost_host);
    assert_true(!hosts[1].aside && hosts[0].aside);
    assert_string_equal(d->job.resize.why, "host h1 is back");
    assert_true(bt_job_take_layout(&d->job, told, sizeof told));
    assert_string_equal(told, "continues with 4 ranks (2 before): host h1 is back");
    /* An attempt that begins for another reason includes it. */
    hosts[0].back = true;
    bt_job_hosts_begin(&d->job);
    assert_true(d->job.resize.wanted && d->job.resize.by_hosts);
    assert_string_equal(d->job.resize.why, "a host is back");
    d->job.resize.wanted = false;
    bt_job_hosts_begin(&d->job);
    assert_false(d->job.resize.wanted);
    desk_hears(d, "");
}

/* A run that may change its size needs the slots of each host. */
static void hosts_of_elastic_runs_have_slots(void **state) {
    static const struct {
        const char *file;
        int elastic_max, n; /* n: number of hosts; 0: refused */
    } rows[] = {{"127.0.0.1 slots=2\nlocalhost slots=1\n", 4, 2},
                {"127.0.0.1 slots=2\nlocalhost\n", 4, 0},
                {"127.0.0.1 slots=2\nlocalhost\n", 0, 2}};
    desk *d = *state;
    char path[96], want[200];
    snprintf(path, sizeof path, "%s/hosts", d->dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(rows[i].file, f);
        fclose(f);
        d->setup.hosts = path;
        d->setup.elastic_max = rows[i].elastic_max;
        const bt_code code = bt_job_hosts_open(&d->job, &err);
        assert_int_equal(code, rows[i].n ? BT_OK : BT_ARG);
        snprintf(want, sizeof want,
                 "--elastic needs the slots of every host: 'localhost' in '%s' has no slots=N",
                 path);
        if (code == BT_OK)
            assert_int_equal(d->job.hosts.n, rows[i].n);
        else
            assert_string_equal(err.msg, want);
        bt_hosts_close(&d->job.hosts);
    }
    d->setup.hosts = "/nowhere/hosts";
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_job_hosts_open(&d->job, &err), BT_NOTFOUND);
}

/* The hosts in use are reported, and each return is reported once. */
static void returning_hosts_are_reported(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    bt_job_host list[HOSTS];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int64_t s = 1000000000;
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", d->dir);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 4), 0);
    have_hosts(d, hosts);
    bt_job_hosts_tick(&d->job, 10 * s); /* All hosts are in use. */
    for (int i = 1; i < HOSTS; i++) bt_hosts_set_aside(&hosts[i], "x", 0);
    hosts[2].slots = 5;
    memcpy(&hosts[1].address, &a, sizeof a);
    hosts[1].address_len = sizeof a;
    bt_job_hosts_tick(&d->job, s - 1); /* the next probe is later */
    desk_shows(d, "");
    for (int i = 0; i < 2; i++) {
        bt_job_hosts_tick(&d->job, (10 + i) * s);
        desk_shows(
            d, i ? ""
                 : "host_back -1 host h1 answers again: it takes part after the next checkpoint\n");
    }
    const bt_resize_request w = bt_resize_request_of_hosts(&d->job, list);
    assert_ptr_equal(w.hosts, list);
    assert_true(w.n_hosts == HOSTS && w.zero == -1 && w.most == 0 && w.least == 0 && w.tp == 0 &&
                w.pp == 0);
    static const bool alive[HOSTS] = {true, true, false};
    for (int i = 0; i < HOSTS; i++)
        assert_true(list[i].alive == alive[i] && list[i].slots == (i == 2 ? 5 : 2));
    close(listener);
    unlink(a.sun_path);
}

/* A job on hosts that have all responded. */
static void all_hosts_responded(desk *d, bt_host *hosts) {
    have_hosts(d, hosts);
    d->job.connected = true;
    d->job.child.pid = -2; /* no session has this number */
    for (int i = 0; i < HOSTS; i++) hosts[i].answered = true;
    bt_health_start(&d->job.health);
}

/* If there are no steps the hosts are probed, and a host that does not respond in time ends the attempt. */
static void a_host_that_does_not_respond_ends_the_attempt(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    const int64_t now = INT64_C(1000000000000), s = 1000000000;
    all_hosts_responded(d, hosts);
    bt_health_step(&d->job.health, now);
    hosts[1].asked_ns = now - 3 * s;
    /* After a recent step an earlier probe does not count. */
    bt_job_hosts_check(&d->job, now + s / 4);
    assert_int_equal(hosts[1].asked_ns, 0);
    hosts[1].asked_ns = now - 3 * s;
    d->job.paused = true;
    bt_job_hosts_check(&d->job, now + s);
    d->job.paused = false;
    d->job.connected = false;
    bt_job_hosts_check(&d->job, now + s);
    d->job.connected = true;
    d->job.hung = true;
    bt_job_hosts_check(&d->job, now + s);
    d->job.hung = false;
    assert_null(d->job.lost_host);
    hosts[1].aside = true;
    bt_job_hosts_check(&d->job, now + s);
    assert_null(d->job.lost_host);
    hosts[1].aside = false;
    hosts[1].asked_ns = now - s; /* two seconds, within which TCP recovers */
    bt_job_hosts_check(&d->job, now + s);
    assert_null(d->job.lost_host);
    bt_job_hosts_check(&d->job, now + 2 * s);
    assert_ptr_equal(d->job.lost_host, &hosts[1]);
    desk_shows(d, "failure -1 host h1 has not answered for 3.0 s: the ranks are ended\n");
    bt_job_hosts_check(&d->job, now + 3 * s); /* a second call has no effect */
    desk_shows(d, "");
}

/* A host is suspected only after five steps of the usual length. */
static void long_steps_make_a_long_silence(void **state) {
    desk *d = *state;
    bt_host hosts[HOSTS];
    const int64_t now = INT64_C(1000000000000), s = 1000000000;
    all_hosts_responded(d, hosts);
    for (int i = -6; i <= 0; i++) bt_health_step(&d->job.health, now + i * s);
    hosts[1].asked_ns = now;
    bt_job_hosts_check(&d->job, now + 5 * s - 1000000);
    assert_int_equal(hosts[1].asked_ns, 0);
    assert_null(d->job.lost_host);
    hosts[1].asked_ns = now + s;
    bt_job_hosts_check(&d->job, now + 5 * s);
    assert_ptr_equal(d->job.lost_host, &hosts[1]);
    desk_shows(d, "failure -1 host h1 has not answered for 4.0 s: the ranks are ended\n");
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_elastic, desk_close)
    const struct CMUnitTest tests[] = {
        T(invalid_layouts_are_refused),
        T(from_the_request_to_the_next_attempt),
        T(an_impossible_layout_is_not_used),
        T(ranks_that_left_by_themselves),
        T(slots_limit_the_ranks),
        T(the_host_file_contains_the_hosts_in_use),
        T(a_lost_host_is_set_aside),
        T(a_shutdown_notice_of_a_rank_excludes_its_host),
        T(hosts_of_elastic_runs_have_slots),
        T(returning_hosts_are_reported),
        T(a_host_is_taken_back),
        T(a_host_that_does_not_respond_ends_the_attempt),
        T(long_steps_make_a_long_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
