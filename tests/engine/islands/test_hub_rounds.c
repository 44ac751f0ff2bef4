/* test_hub_rounds.c - rounds that continue without an island, and updates that are applied one by one: quorum and late
 * updates, asynchronous deltas, assignment of data, norms of each kind. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "engine/islands/hub/hub_changes.h"
#include "engine/islands/hub/hub_state.h"
#include "tests/engine/islands/hub_world.h"

/* The hub announces the data of the next round with each round, and the next round uses them. */
static void the_data_of_the_next_round_are_announced(void **state) {
    (void)state;
    world *w = WORLD(2, "--mode", "diloco", "--inner", "5", "--steps", "12", "--set",
                     "islands.warmup=0");
    join(w, 2);
    static unsigned char trained[96];
    for (int r = 0; r < 3; r++) {
        const bt_island_go was[2] = {w->at[0].go, w->at[1].go};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(was[i].steps, r < 2 ? 5 : 2);
            assert_int_equal(was[i].next_steps, r == 0 ? 5 : r == 1 ? 2 : 0);
            for (int64_t q = was[i].begin; q < was[i].begin + was[i].steps * 4; q++)
                assert_int_equal(trained[q]++, 0);
        }
        for (int i = 0; i < 2; i++) send_update(w, i, BT_PUSH_DELTA, 0.1f, 50);
        for (int i = 0; i < 2 && r < 2; i++) assert_int_equal(w->at[i].go.begin, was[i].next_begin);
    }
    for (int q = 0; q < 96; q++) assert_int_equal(trained[q], 1);
    assert_int_equal(w->at[0].go.steps, 0);
    close_world(w);
    w = WORLD(1, "--mode", "diloco", "--set", "islands.warmup=0", "--set", "islands.away=0");
    join(w, 1);
    assert_int_equal(w->at[0].go.next_steps, 0);
    close_world(w);
}

/* The length of a round is a tenth of the steps before it, at most --inner, and the round begins with the announced
 * data. */
static void rounds_grow_with_the_training(void **state) {
    static const int64_t want[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                   1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 5};
    enum { ROUNDS = sizeof want / sizeof *want };
    (void)state;
    world *w = WORLD(2, "--mode", "diloco", "--inner", "5", "--steps", "1000", "--set",
                     "islands.warmup=0", "--set", "islands.ramp=0.1");
    join(w, 2);
    int64_t clock = 0;
    for (int r = 0; r < ROUNDS; r++) {
        const bt_island_go was[2] = {w->at[0].go, w->at[1].go};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(was[i].clock, clock);
            assert_int_equal(was[i].steps, want[r]);
            if (r + 1 < ROUNDS) assert_int_equal(was[i].next_steps, want[r + 1]);
        }
        for (int i = 0; i < 2; i++) send_update(w, i, BT_PUSH_DELTA, 0.1f, 50);
        for (int i = 0; i < 2; i++) assert_int_equal(w->at[i].go.begin, was[i].next_begin);
        clock += want[r];
    }
    close_world(w);
}

static void asynchronous_deltas_are_averaged(void **state) {
    (void)state;
    world *w = WORLD(2, "--mode", "diloco", "--inner", "5", "--steps", "20", "--staleness", "-1",
                     "--set", "islands.warmup=0");
    join(w, 2);
    double theta = 0.5;
    for (int r = 0; r < 3; r++) {
        send_update(w, 0, BT_PUSH_DELTA, 0.1f, 50);
        theta -= 0.1 / 2; /* Neither islands.outer_lr nor its momentum is applied. */
        assert_int_equal(w->at[0].go.clock, 5 * (r + 1));
    }
    send_update(w, 1, BT_PUSH_DELTA, 0.3f, 50);
    theta -= 0.3 / 2;
    assert_int_equal(w->at[1].go.staleness, 3);
    assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-6);
    close_world(w);
}

static void fragments_take_turns(void **state) {
    (void)state;
    enum { OF = 3, ROUNDS = 8 };
    char dir[] = "/tmp/bitrain-hub-XXXXXX", command[64];
    bt_err err = BT_ERR_INIT;
    int64_t replayed;
    assert_non_null(mkdtemp(dir));
    world *w = WORLD(1, "--mode", "diloco", "--inner", "6", "--steps", "100", "--codec", "int8",
                     "--set", "islands.warmup=0", "--set", "islands.fragments=3", "--set",
                     "islands.outer_lr=0.7", "--set", "islands.outer_momentum=0.9");
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_OK);
    join(w, 1);
    bt_hub_model *m = w->hub->model;
    double theta[OF] = {0.5, 0.5, 0.5}, buf[OF] = {0};
    for (int r = 0; r < ROUNDS; r++) {
        assert_int_equal(w->at[0].go.fragment, r % OF);
        assert_int_equal(w->at[0].go.steps, 2);
        send_update(w, 0, BT_PUSH_DELTA, 0.01f, 10);
        assert_string_equal(w->at[0].refused, "");
        buf[r % OF] = 0.9 * buf[r % OF] + 0.01;
        theta[r % OF] -= 0.7 * (0.01 + 0.9 * buf[r % OF]);
        for (int64_t f = 0; f < OF; f++) {
            size_t begin, n;
            bt_vector_code c = {.params = &m->setup.params, .codec = m->up.codec};
            bt_vector_fragment(&c, f, OF, &begin, &n);
            assert_true(fabs(m->theta[begin] - theta[f]) < 1e-4);
            assert_true(fabs(m->published[begin] - theta[f]) < 1e-4);
            assert_true(fabs(m->theta[begin + n - 1] - theta[f]) < 1e-4);
        }
    }
    /* Replaying the log gives the same bits. */
    const bt_hub_cfg cfg = w->hub->cfg;
    float *was = malloc(m->n * sizeof *was);
    memcpy(was, m->theta, m->n * sizeof *was);
    bt_hub_state_close(w->hub->state);
    bt_hub_destroy(w->hub);
    assert_int_equal(bt_hub_create(&w->hub, &cfg, &err), BT_OK);
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_OK);
    assert_int_equal(replayed, ROUNDS);
    assert_memory_equal(w->hub->model->theta, was, w->hub->model->n * sizeof *was);
    assert_int_equal(bt_hub_model_fragment(w->hub->model), ROUNDS % OF);
    bt_hub_state_close(w->hub->state);
    close_world(w);
    free(was);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);

    w = WORLD(1, "--mode", "diloco", "--set", "islands.fragments=3");
    hello(w, 0, "");
    assert_non_null(strstr(w->at[0].refused, "needs a codec"));
    close_world(w);
    w = WORLD(1, "--mode", "diloco", "--set", "islands.fragments=3", "--codec", "int8",
              "--staleness", "2");
    hello(w, 0, "");
    assert_non_null(strstr(w->at[0].refused, "set --staleness 0"));
    close_world(w);
}

static void pass_time(world *w, double seconds) {
    bt_err err = BT_ERR_INIT;
    now_ns += (int64_t)(seconds * 1e9);
    assert_int_equal(bt_hub_tick(w->hub, now_ns, &err), BT_OK);
}

static const char *newest_event(const world *w) {
    return w->sink->events[w->sink->n_events - 1].title;
}

/* Checks the hub's counters for one island and for all. */
static void check_counters(const world *w, int i, int64_t updates, int64_t left_out) {
    uint64_t by_staleness = 0;
    int64_t all = 0;
    assert_int_equal(w->hub->members[i].updates, updates);
    assert_int_equal(w->hub->members[i].left_out, left_out);
    for (int k = 0; k < BT_HUB_STALENESS; k++) by_staleness += w->hub->staleness[k];
    for (size_t k = 0; k < w->hub->n; k++) all += w->hub->members[k].updates;
    assert_int_equal(by_staleness, all);
}

static void a_quorum_continues(void **state) {
    (void)state;
    world *w = WORLD(3, "--steps", "3", "--lr", "0.1");
    w->hub->cfg.quorum = 2;
    w->hub->cfg.quorum_s = 1;
    join(w, 3);
    const bt_island_go slow = w->at[2].go;
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    pass_time(w, 5);
    assert_int_equal(w->hub->model->version, 0); /* One island is not a quorum. */
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    pass_time(w, 0.9);
    assert_int_equal(w->hub->model->version, 0);
    pass_time(w, 0.2);
    assert_int_equal(w->hub->model->version, 1);
    assert_non_null(strstr(newest_event(w), "continues with 2 of 3 islands"));
    assert_int_equal(w->at[0].go.clock, 1);
    /* The third island's gradient was computed with older weights. */
    const int64_t tokens = w->hub->tokens;
    send_update(w, 2, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 1);
    assert_int_equal(w->hub->tokens, tokens);
    assert_non_null(strstr(newest_event(w), "left out, its data are returned"));
    assert_int_equal(w->at[2].go.outcome, BT_UPDATE_CLOSED);
    check_counters(w, 2, 0, 1);
    assert_int_equal(w->at[2].go.version, 1);
    /* The sequences of the late island are assigned again first. */
    assert_int_equal(w->at[2].go.begin, slow.begin);
    /* All three updates arrive in time, so the hub does not wait. */
    for (int i = 0; i < 3; i++) send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 2);
    assert_int_equal(w->hub->tokens, tokens + 30);
    for (int i = 0; i < 3; i++) assert_int_equal(w->at[i].go.outcome, BT_UPDATE_APPLIED);
    check_counters(w, 2, 1, 1);
    /* The job ends for all islands, also for the one with one step fewer. */
    for (int i = 0; i < 3; i++) send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
    for (int i = 0; i < 3; i++) assert_int_equal(w->at[i].go.steps, 0);
    close_world(w);
}

static void a_late_delta_is_averaged(void **state) {
    (void)state;
    world *w = WORLD(2, "--mode", "diloco", "--inner", "5", "--steps", "100", "--set",
                     "islands.warmup=0", "--set", "islands.outer_lr=0.7", "--set",
                     "islands.outer_momentum=0");
    w->hub->cfg.quorum = 1;
    join(w, 2);
    double theta = 0.5;
    send_update(w, 0, BT_PUSH_DELTA, 0.1f, 50);
    theta -= 0.7 * 0.1;
    assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-6);
    send_update(w, 1, BT_PUSH_DELTA, 0.2f, 50); /* one round late */
    theta -= 0.2 / 2;
    assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-6);
    assert_int_equal(w->at[1].go.clock, 5);
    assert_int_equal(w->at[1].go.staleness, 1);
    /* A late delta is averaged instead of being part of the round. */
    assert_int_equal(w->at[1].go.outcome, BT_UPDATE_APPLIED);
    const bt_island_go slow = w->at[1].go;
    for (int r = 0; r < 2; r++) { /* The other islands do not become late. */
        send_update(w, 0, BT_PUSH_DELTA, 0.1f, 50);
        theta -= 0.7 * 0.1;
    }
    assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-6);
    send_update(w, 1, BT_PUSH_DELTA, 0.2f, 50); /* An update two rounds late is rejected. */
    assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-6);
    assert_non_null(strstr(newest_event(w), "2 rounds late: left out"));
    assert_int_equal(w->at[1].go.outcome, BT_UPDATE_LATE);
    check_counters(w, 1, 1, 1);
    assert_int_equal(w->at[1].go.clock, 5);
    assert_int_equal(w->at[1].go.begin, slow.begin);
    close_world(w);
}

static bool has_event(const world *w, const char *words) {
    for (size_t i = 0; i < w->sink->n_events; i++)
        if (strstr(w->sink->events[i].title, words)) return true;
    return false;
}

/* All islands of the world send updates in rounds of one second. */
static void push_usual_rounds(world *w, int islands, int rounds) {
    for (int r = 0; r < rounds; r++) {
        pass_time(w, 1);
        for (int i = 0; i < islands; i++) send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
    }
}

/* The island sends only heartbeats, a tenth of a second apart. */
static void send_only_heartbeats(world *w, int i, double seconds) {
    for (double t = 0; t < seconds - 0.05; t += 0.1) {
        post(w, i, (bt_island_head){.type = BT_ISLAND_BEAT}, NULL);
        pass_time(w, 0.1);
    }
}

static void a_frozen_island_is_named_and_left_behind(void **state) {
    (void)state;
    world *w = WORLD(3, "--steps", "40", "--lr", "0.1");
    w->hub->cfg.overdue_s = 2;
    join(w, 3);
    push_usual_rounds(w, 3, 4);
    assert_int_equal(w->hub->model->version, 4);
    const bt_island_go before = w->at[1].go;
    for (int i = 0; i < 3; i += 2) send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
    send_only_heartbeats(w, 1, 1.8);
    assert_false(has_event(w, "is waited for"));
    send_only_heartbeats(w, 1, 0.4);
    assert_true(has_event(w, "island 'island-1' on 'h' is waited for"));
    assert_non_null(strstr(w->at[0].notice, "waits for island 'island-1'"));
    assert_string_equal(w->at[1].notice, "");
    assert_int_equal(w->hub->model->version, 4);
    send_only_heartbeats(w, 1, 1); /* Three usual rounds have passed. */
    assert_int_equal(w->hub->model->version, 5);
    assert_true(has_event(w, "the job continues without it"));
    /* The hub does not wait for the island in the following rounds. */
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 3; i += 2) send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 8);
    /* The island returns: its old update is rejected, its data are assigned again, and the hub waits for it as
     * before. */
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->at[1].go.outcome, BT_UPDATE_CLOSED);
    assert_int_equal(w->at[1].go.begin, before.begin);
    for (int i = 0; i < 3; i += 2) send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 8);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 9);
    check_counters(w, 1, 5, 1);
    close_world(w);
}

/* A member that sends heartbeats but no update is declared dead after --silence. */
static void heartbeats_without_updates_end_at_the_silence_limit(void **state) {
    (void)state;
    world *w = WORLD(2, "--steps", "40");
    w->hub->cfg.overdue_s = 2;
    w->hub->cfg.silence_s = 20;
    join(w, 2);
    push_usual_rounds(w, 2, 4);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    send_only_heartbeats(w, 1, 5);
    assert_int_equal(w->hub->members[1].state, BT_MEMBER_TRAINS);
    for (int k = 0; k < 5; k++) { /* The other island sends updates as usual. */
        send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
        send_only_heartbeats(w, 1, 4);
    }
    assert_int_equal(w->hub->members[1].state, BT_MEMBER_DEAD);
    assert_int_equal(w->hub->members[0].state, BT_MEMBER_TRAINS);
    close_world(w);
}

static void a_long_round_of_all_excludes_no_island(void **state) {
    (void)state;
    world *w = WORLD(2, "--steps", "40");
    w->hub->cfg.overdue_s = 2;
    join(w, 2);
    push_usual_rounds(w, 2, 4);
    for (int k = 0; k < 40; k++) {
        post(w, 0, (bt_island_head){.type = BT_ISLAND_BEAT}, NULL);
        send_only_heartbeats(w, 1, 0.5);
    }
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    send_only_heartbeats(w, 1, 8);
    assert_int_equal(w->hub->model->version, 4);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 5);
    assert_int_equal(w->at[1].go.outcome, BT_UPDATE_APPLIED);
    close_world(w);
}

/* A frozen island blocks the other islands through the limit of staleness only for a limited time; then they continue
 * without it. */
static void a_frozen_island_blocks_others_for_a_limited_time(void **state) {
    (void)state;
    world *w = WORLD(2, "--mode", "ps", "--staleness", "1", "--steps", "100");
    w->hub->cfg.overdue_s = 2;
    join(w, 2);
    push_usual_rounds(w, 2, 5);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    const int64_t bound = w->hub->model->version, gos = w->at[0].gos;
    send_only_heartbeats(w, 1, 1);
    assert_int_equal(w->at[0].gos, gos); /* This island waits for the frozen one. */
    send_only_heartbeats(w, 1, 3);
    assert_int_equal(w->at[0].gos, gos + 1);
    for (int k = 0; k < 6; k++) send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, bound + 6);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->at[1].go.outcome, BT_UPDATE_CLOSED);
    assert_int_equal(w->at[1].go.clock, w->at[0].go.clock);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->at[1].go.outcome, BT_UPDATE_APPLIED);
    close_world(w);
}

typedef struct full_disk {
    struct rlimit before;
    int waits, until;
} full_disk;

/* A limit of file sizes simulates a full disk: the hub handles EFBIG like ENOSPC. */
static void limit_file_size(rlim_t bytes, rlim_t most) {
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, most}), 0);
}

static bool wait_for_room(void *ctx) {
    full_disk *d = ctx;
    if (++d->waits == d->until) limit_file_size(d->before.rlim_cur, d->before.rlim_max);
    return d->waits < 10;
}

static void a_full_disk_delays_answers(void **state) {
    (void)state;
    char dir[] = "/tmp/bitrain-hub-XXXXXX", command[64];
    bt_err err = BT_ERR_INIT;
    int64_t replayed;
    full_disk disk = {.until = 2};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &disk.before), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(dir));
    world *w = WORLD(2, "--steps", "40");
    w->hub->cfg.wait = wait_for_room;
    w->hub->cfg.wait_ctx = &disk;
    /* A new hub does not wait for the disk. */
    limit_file_size(100, disk.before.rlim_max);
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_IO);
    assert_int_equal(disk.waits, 0);
    limit_file_size(disk.before.rlim_cur, disk.before.rlim_max);
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_OK);
    join(w, 2);
    push_usual_rounds(w, 2, 2);
    limit_file_size(100, disk.before.rlim_max);
    const int64_t gos = w->at[1].gos;
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10); /* The call returns when there is space. */
    assert_int_equal(disk.waits, 2);
    assert_int_equal(w->at[1].gos, gos + 1);
    assert_true(has_event(w, "cannot write the log of updates in"));
    assert_true(has_event(w, "the disk takes updates again"));
    assert_string_equal(w->at[0].notice, "the hub's disk takes updates again");
    /* A checkpoint that cannot be written does not end the hub. */
    limit_file_size(100, disk.before.rlim_max);
    assert_int_equal(bt_hub_save(w->hub, &err), BT_OK);
    assert_int_equal(w->hub->unsaved.code, BT_IO);
    limit_file_size(disk.before.rlim_cur, disk.before.rlim_max);
    push_usual_rounds(w, 2, 1);
    const int64_t version = w->hub->model->version;
    /* The log contains every acknowledged update completely and once. */
    const bt_hub_cfg cfg = w->hub->cfg;
    float *was = malloc(w->hub->model->n * sizeof *was);
    memcpy(was, w->hub->model->theta, w->hub->model->n * sizeof *was);
    bt_hub_state_close(w->hub->state);
    bt_hub_destroy(w->hub);
    /* A restarted hub waits for the disk. */
    disk.waits = 0;
    limit_file_size(100, disk.before.rlim_max);
    assert_int_equal(bt_hub_create(&w->hub, &cfg, &err), BT_OK);
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_OK);
    assert_int_equal(disk.waits, 2);
    assert_int_equal(w->hub->model->version, version);
    assert_memory_equal(w->hub->model->theta, was, w->hub->model->n * sizeof *was);
    free(was);
    bt_hub_state_close(w->hub->state);
    close_world(w);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* Norms of gradients are not compared with norms of deltas. */
static void norms_of_gradients_and_deltas_are_separate(void **state) {
    (void)state;
    world *w = WORLD(1, "--mode", "diloco", "--inner", "2", "--steps", "50", "--set",
                     "islands.warmup=6");
    join(w, 1);
    for (int i = 0; i < 6; i++) send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->at[0].go.kind, BT_PUSH_DELTA);
    send_update(w, 0, BT_PUSH_DELTA, 0.1f, 20);
    assert_int_equal(w->hub->model->version, 7);
    for (int i = 0; i < 4; i++) send_update(w, 0, BT_PUSH_DELTA, 0.1f, 20);
    send_update(w, 0, BT_PUSH_DELTA, 50, 20);
    assert_int_equal(w->hub->model->version, 11); /* The update is rejected. */
    assert_int_equal(w->at[0].go.outcome, BT_UPDATE_POISONED);
    check_counters(w, 0, 11, 1);
    close_world(w);
}

/* A lost reply is sent again, even by a hub that was restarted. */
static void a_restarted_hub_repeats_a_lost_reply(void **state) {
    (void)state;
    char dir[] = "/tmp/bitrain-hub-XXXXXX", command[64], was[200];
    bt_err err = BT_ERR_INIT;
    int64_t replayed;
    assert_non_null(mkdtemp(dir));
    world *w = WORLD(1, "--steps", "50");
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_OK);
    join(w, 1);
    for (int i = 0; i < 5; i++) send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    send_update(w, 0, BT_PUSH_GRADIENT, 1, 10);
    assert_int_equal(w->at[0].go.outcome, BT_UPDATE_POISONED);
    assert_int_equal(w->at[0].go.clock, 6);
    check_counters(w, 0, 5, 1);
    w->at[0].seq--; /* sends the same update again */
    const int64_t gos = w->at[0].gos;
    send_update(w, 0, BT_PUSH_GRADIENT, 1, 10);
    assert_int_equal(w->at[0].gos, gos + 1);
    assert_int_equal(w->at[0].go.outcome, BT_UPDATE_POISONED);
    check_counters(w, 0, 5, 1);

    const bt_hub_cfg cfg = w->hub->cfg;
    const peer before = w->at[0];
    bt_hub_state_close(w->hub->state);
    bt_hub_destroy(w->hub);
    assert_int_equal(bt_hub_create(&w->hub, &cfg, &err), BT_OK);
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_OK);
    snprintf(was, sizeof was, "was=%d\nholds=%d %d %d %d %d %d\n", (int)before.welcome.incarnation,
             (int)before.seq, (int)before.go.begin - 4, (int)before.go.begin,
             (int)before.go.version, (int)before.go.kind, 1);
    w->at[0].go.outcome = -1;
    hello(w, 0, was);
    assert_int_equal(w->at[0].welcome.had, 1);
    assert_int_equal(w->at[0].go.outcome, BT_UPDATE_POISONED);
    check_counters(w, 0, 5, 1);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->at[0].go.outcome, BT_UPDATE_APPLIED);
    check_counters(w, 0, 6, 1);
    bt_hub_state_close(w->hub->state);
    close_world(w);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_data_of_the_next_round_are_announced),
        cmocka_unit_test(rounds_grow_with_the_training),
        cmocka_unit_test(asynchronous_deltas_are_averaged),
        cmocka_unit_test(fragments_take_turns),
        cmocka_unit_test(a_quorum_continues),
        cmocka_unit_test(a_late_delta_is_averaged),
        cmocka_unit_test(a_frozen_island_is_named_and_left_behind),
        cmocka_unit_test(heartbeats_without_updates_end_at_the_silence_limit),
        cmocka_unit_test(a_long_round_of_all_excludes_no_island),
        cmocka_unit_test(a_frozen_island_blocks_others_for_a_limited_time),
        cmocka_unit_test(a_full_disk_delays_answers),
        cmocka_unit_test(norms_of_gradients_and_deltas_are_separate),
        cmocka_unit_test(a_restarted_hub_repeats_a_lost_reply)};
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
