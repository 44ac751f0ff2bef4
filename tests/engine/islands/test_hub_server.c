/* test_hub_server.c - the hub with simulated islands: each update is applied once, at the right time; bounded staleness
 * over 10 000 clocks; dead islands; refused messages. */
#include "engine/islands/hub/hub_server.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/islands/hub/hub_state.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/islands/rules/outer_step.h"
#include "tests/engine/islands/hub_world.h"

static void gradients_are_added_by_tokens(void **state) {
    (void)state;
    world *w = WORLD(2, "--steps", "3", "--lr", "0.1", "--lr-schedule", "constant");
    hello(w, 0, "");
    assert_int_equal(w->at[0].welcome.want_weights, 1);
    send_update(w, 0, BT_PUSH_WEIGHTS, 0.5f, 0);
    assert_int_equal(w->at[0].gos, 0); /* The job begins when the second island has joined. */
    hello(w, 1, "");
    assert_int_equal(w->at[1].welcome.want_weights, 0);
    assert_int_equal(w->at[0].gos + w->at[1].gos, 2);
    assert_int_equal(w->at[0].go.begin, 0);
    assert_int_equal(w->at[1].go.begin, 4);
    assert_int_equal(w->at[1].go.stride, 8);

    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 100);
    assert_int_equal(w->at[0].gos, 1); /* The first island waits for the second. */
    send_update(w, 1, BT_PUSH_GRADIENT, 0.004f, 300);
    assert_int_equal(w->at[0].gos, 2);
    const double mean = (0.001 * 100 + 0.004 * 300) / 400, norm = mean * sqrt((double)w->elements);
    assert_true(fabs(w->at[1].go.grad_norm - norm) < 1e-6 * norm);
    assert_int_equal(w->at[1].go.tokens, 400);
    assert_int_equal(w->hub->model->version, 1);
    /* AdamW's first step with equal gradients changes every element by lr; weight decay is separate. */
    const bt_tensor *gain = NULL;
    for (size_t k = 0; k < w->hub->model->setup.params.n && !gain; k++)
        if (!w->hub->model->setup.params.tensors[k].decay)
            gain = &w->hub->model->setup.params.tensors[k];
    assert_true(fabs(w->hub->model->theta[gain->offset] - (0.5 - 0.1)) < 1e-4);

    /* One island skips a step; then the job is finished, and both islands are notified. */
    send_update(w, 0, BT_PUSH_GRADIENT, 0, 0);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 300);
    assert_int_equal(w->at[0].go.tokens, 300);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 100);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 100);
    assert_int_equal(w->at[0].go.steps, 0);
    assert_true(w->hub->finished);
    close_world(w);
}

static void a_repeated_update_is_applied_once(void **state) {
    (void)state;
    world *w = WORLD(1, "--steps", "10");
    join(w, 1);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    const int64_t gos = w->at[0].gos;
    /* The reply was lost: the island sends the same update with its old base again. */
    w->at[0].seq--;
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 1);
    assert_int_equal(w->at[0].gos, gos + 1);
    w->at[0].seq -= 2; /* and the previous update */
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 1);
    assert_int_equal(w->at[0].gos, gos + 1);
    /* Missing chunks are requested again. */
    const bt_island_push push = {.kind = BT_PUSH_GRADIENT,
                                 .bytes = (int64_t)(w->elements * sizeof(float)),
                                 .base = 1,
                                 .tokens = 1,
                                 .steps = 1,
                                 .sequences = 4};
    post(w, 0, (bt_island_head){.type = BT_ISLAND_PUSH, .seq = 3, .bytes = sizeof push}, &push);
    assert_int_equal(w->at[0].resends, 1);
    assert_int_equal(w->hub->model->version, 1);
    close_world(w);
}

static void a_dead_island_blocks_no_peer(void **state) {
    (void)state;
    world *w = WORLD(2, "--steps", "10");
    bt_err err = BT_ERR_INIT;
    join(w, 2);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 0);
    w->at[1].gone = true;
    for (int i = 0; i < 20; i++)
        assert_int_equal(bt_hub_tick(w->hub, now_ns += 200000000, &err), BT_OK);
    assert_int_equal(w->hub->model->version, 1);
    assert_int_equal(w->at[0].go.clock, 1);
    assert_int_equal(w->at[0].go.begin, 4); /* The data of the dead island are assigned first. */
    /* Its update arrives too late; it joins again at the current round. */
    w->at[1].gone = false;
    w->at[1].strangers = 0;
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_true(w->at[1].strangers > 0);
    assert_int_equal(w->hub->model->version, 1);
    hello(w, 1, "");
    assert_int_equal(w->at[1].go.clock, 1);
    assert_true(w->at[1].go.begin != w->at[0].go.begin);
    close_world(w);
}

static void ask_for_parts(world *w, int i, int64_t first, int64_t n) {
    const bt_island_fetch f = {.kind = BT_FETCH_WEIGHTS, .first = first, .n = n};
    post(w, i, (bt_island_head){.type = BT_ISLAND_FETCH, .bytes = sizeof f}, &f);
}

/* If requests for parts were dropped instead of queued, an island would wait two seconds in each step. */
static void parts_wait_for_room(void **state) {
    (void)state;
    world *w = WORLD(1, "--steps", "10", "--set", "model.d_model=256", "--set", "model.vocab=1024");
    join(w, 1);
    peer *p = &w->at[0];
    const int64_t chunks = (int64_t)bt_hub_chunks(w->elements * sizeof(float));
    assert_true(chunks >= 4);
    assert_false(bt_hub_serve(w->hub));
    p->narrow = true;
    p->room = 1;
    ask_for_parts(w, 0, 0, 2);
    assert_int_equal(p->parts, 1);
    p->room = 0;
    assert_true(bt_hub_serve(w->hub));
    /* A request that continues where the first ends is appended, and does not replace it. */
    ask_for_parts(w, 0, 2, 2);
    assert_int_equal(p->parts, 1);
    p->room = 2;
    assert_true(bt_hub_serve(w->hub));
    assert_int_equal(p->parts, 3);
    p->room = 9;
    assert_false(bt_hub_serve(w->hub));
    assert_int_equal(p->parts, 4);
    /* A new request replaces the queued one. */
    p->room = 0;
    ask_for_parts(w, 0, 0, 2);
    p->next_part = 3;
    p->room = 9;
    ask_for_parts(w, 0, 3, 1);
    assert_int_equal(p->parts, 5);
    assert_false(bt_hub_serve(w->hub));
    /* A request beyond the end returns the existing parts; a dead island receives nothing. */
    p->next_part = chunks - 1;
    ask_for_parts(w, 0, chunks - 1, 64);
    assert_int_equal(p->parts, 6);
    p->room = 0;
    ask_for_parts(w, 0, 0, 2);
    p->gone = true;
    assert_false(bt_hub_serve(w->hub));
    assert_int_equal(p->parts, 6);
    close_world(w);
}

static void staleness_is_bounded(void **state) {
    (void)state;
    enum { ISLANDS = 3, BOUND = 4, CLOCKS = 10000, SEQUENCES = 8 * CLOCKS };
    static unsigned char trained[SEQUENCES];
    world *w = WORLD(ISLANDS, "--mode", "ps", "--staleness", "4", "--steps", "1000000", "--set",
                     "model.layers=1", "--lr-schedule", "constant", "--lr", "1e-6");
    w->hub->cfg.sink = NULL; /* The list of steps would be too short. */
    join(w, ISLANDS);
    int64_t seen[ISLANDS] = {0}, updates = 0, most = 0;
    uint64_t s = 99;
    while (updates < CLOCKS) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        /* One island is much faster. */
        const int i = (s >> 33) % 100 < 75 ? 0 : 1 + (int)((s >> 45) % 2);
        peer *p = &w->at[i];
        if (p->gos == seen[i]) continue; /* The island waits for its next round. */
        seen[i] = p->gos;
        int64_t slowest = INT64_MAX;
        for (int k = 0; k < ISLANDS; k++)
            if (w->hub->members[k].clock < slowest) slowest = w->hub->members[k].clock;
        assert_true(p->go.clock - slowest <= BOUND);
        if (p->go.clock - slowest > most) most = p->go.clock - slowest;
        for (int64_t q = p->go.begin; q < p->go.begin + p->go.n && q < SEQUENCES; q++)
            assert_int_equal(trained[q]++, 0);
        send_update(w, i, BT_PUSH_GRADIENT, 0.001f, 10);
        updates++;
    }
    assert_int_equal(most, BOUND);
    assert_int_equal(w->hub->model->version, CLOCKS);
    uint64_t counted = 0;
    for (int i = 0; i < BT_HUB_STALENESS; i++) counted += w->hub->staleness[i];
    assert_int_equal(counted, CLOCKS);
    close_world(w);
}

static void asynchronous_steps_shrink(void **state) {
    (void)state;
    world *w = WORLD(2, "--mode", "ps", "--staleness", "-1", "--steps", "100", "--lr", "0.1",
                     "--lr-schedule", "constant");
    join(w, 2);
    for (int i = 0; i < 3; i++) send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->at[0].go.clock, 3);
    assert_true(fabs(w->at[0].go.lr - 0.1) < 1e-9);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.001f, 10); /* three versions old */
    assert_int_equal(w->at[1].go.staleness, 3);
    assert_true(fabs(w->at[1].go.lr - 0.1 / 4) < 1e-9);
    assert_int_equal(w->hub->staleness[3], 1);
    close_world(w);
}

static void deltas_take_an_outer_step(void **state) {
    (void)state;
    world *w = WORLD(2, "--mode", "diloco", "--inner", "5", "--steps", "20", "--set",
                     "islands.warmup=0", "--set", "islands.outer_lr=0.7", "--set",
                     "islands.outer_momentum=0.9");
    join(w, 2);
    assert_int_equal(w->at[0].go.kind, BT_PUSH_DELTA);
    assert_int_equal(w->at[0].go.steps, 5);
    assert_int_equal(w->at[1].go.begin, 20); /* Each island has five steps of four sequences. */
    double theta = 0.5, buf = 0;
    for (int r = 0; r < 4; r++) {
        send_update(w, 0, BT_PUSH_DELTA, 0.1f, 50);
        send_update(w, 1, BT_PUSH_DELTA, 0.3f, 50);
        buf = 0.9 * buf + 0.2;
        theta -= 0.7 * (0.2 + 0.9 * buf);
        assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-5);
        assert_int_equal(w->at[0].go.clock, 5 * (r + 1));
    }
    assert_int_equal(w->at[1].go.steps, 0);
    close_world(w);
}

/* islands.outer_momentum=-1 depends on the number of islands in each round, also after one has left. */
static void momentum_follows_the_islands(void **state) {
    (void)state;
    world *w = WORLD(4, "--mode", "diloco", "--inner", "5", "--steps", "20", "--set",
                     "islands.warmup=0", "--set", "islands.ramp=0");
    join(w, 4);
    double theta = 0.5, buf = 0;
    for (int r = 0; r < 4; r++) {
        const int islands = r < 2 ? 4 : 3;
        const double mu = 1 - sqrt(2.0 / islands);
        if (r == 2) post(w, 3, (bt_island_head){.type = BT_ISLAND_BYE}, NULL);
        for (int i = 0; i < islands; i++) send_update(w, i, BT_PUSH_DELTA, 0.1f, 50);
        buf = mu * buf + 0.1;
        theta -= 0.1 + mu * buf;
        assert_int_equal(w->hub->model->version, r + 1);
        assert_true(fabs(w->hub->model->theta[0] - theta) < 1e-5);
    }
    close_world(w);
}

static char warned[300];

static void keep_warning(void *ctx, bt_log_level level, const char *text) {
    (void)ctx;
    if (level == BT_LOG_WARN) snprintf(warned, sizeof warned, "%s", text);
}

/* errno of the next read of a hub's log; 0: success. The test replaces libc's function. */
static int log_errno;

ssize_t read(int fd, void *to, size_t n) {
    char name[40], path[256];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t k = log_errno ? readlink(name, path, sizeof path - 1) : 0;
    path[k > 0 ? k : 0] = 0;
    if (!strstr(path, "/updates.log")) return syscall(SYS_read, fd, to, n);
    errno = log_errno;
    log_errno = 0;
    return -1;
}

static void keep_state_in(world *w, const char *dir, int64_t replayed) {
    bt_err err = BT_ERR_INIT;
    int64_t n;
    if (bt_hub_state_open(&w->hub->state, w->hub, dir, &n, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(n, replayed);
}

/* Joins again and reports the update that the island holds. */
static void hello_again(world *w, int i, const peer *as) {
    char holds[128];
    snprintf(holds, sizeof holds, "holds=%d %d %d %d %d %d\n", (int)as->seq, (int)as->go.begin,
             (int)as->go.begin + 4, (int)as->go.version, (int)as->go.kind, (int)as->go.steps);
    hello(w, i, holds);
}

static void a_restarted_hub_continues(void **state) {
    (void)state;
    char dir[] = "/tmp/bitrain-hub-XXXXXX", command[64];
    bt_err err = BT_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    world *w = WORLD(2, "--steps", "10", "--lr", "0.1");
    keep_state_in(w, dir, 0);
    join(w, 2);
    peer first = w->at[1];
    first.seq++;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 2; i++)
            send_update(w, i, BT_PUSH_GRADIENT, 0.001f * (float)(r + i + 1), 10);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.002f, 10); /* The round is incomplete. */
    const bt_hub_cfg cfg = w->hub->cfg;
    const size_t n = w->hub->model->n;
    float *theta = malloc(n * sizeof *theta);
    memcpy(theta, w->hub->model->theta, n * sizeof *theta);
    /* The hub dies without a checkpoint after that of the first weights. */
    bt_hub_state_close(w->hub->state);
    bt_hub_destroy(w->hub);

    /* A log with a read error is not treated as complete, and is left unchanged. */
    int64_t replayed;
    log_errno = EIO;
    assert_int_equal(bt_hub_create(&w->hub, &cfg, &err), BT_OK);
    assert_int_equal(bt_hub_state_open(&w->hub->state, w->hub, dir, &replayed, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot read the log of updates"));
    bt_hub_destroy(w->hub);

    log_errno = EINTR;
    bt_log_set(keep_warning, NULL, BT_LOG_WARN);
    assert_int_equal(bt_hub_create(&w->hub, &cfg, &err), BT_OK);
    keep_state_in(w, dir, 3);
    assert_int_equal(log_errno, 0);
    assert_int_equal(w->hub->model->version, 3);
    assert_memory_equal(w->hub->model->theta, theta, n * sizeof *theta);
    const peer held = w->at[0];
    /* The reply to the newest applied update was lost: the island continues with the same reply. */
    const peer newest = w->at[1];
    char was[200];
    snprintf(was, sizeof was, "was=%d\nholds=%d %d %d %d %d %d\n", (int)newest.welcome.incarnation,
             (int)newest.seq, (int)newest.go.begin - 8, (int)newest.go.begin - 4, 2,
             (int)newest.go.kind, 1);
    hello(w, 1, was);
    assert_int_equal(w->at[1].welcome.had, 1);
    assert_int_equal(w->at[1].welcome.resend, 0);
    assert_int_equal(w->at[1].seq, newest.seq);
    /* An update of another incarnation of the island is rejected. */
    hello(w, 1, was);
    assert_int_equal(w->at[1].welcome.had, 0);
    hello_again(w, 1, &first); /* The update was applied, so the hub does not request it again. */
    assert_int_equal(w->at[1].welcome.resend, 0);
    hello_again(w, 0, &held);
    assert_int_equal(w->at[0].welcome.resend, 1);
    assert_int_equal(w->at[1].go.clock, 3); /* Both islands are back and the job continues. */
    assert_true(w->at[1].go.begin != held.go.begin);
    send_update(w, 0, BT_PUSH_GRADIENT, 0.002f, 10);
    send_update(w, 1, BT_PUSH_GRADIENT, 0.002f, 10);
    assert_int_equal(w->hub->model->version, 4);
    assert_int_equal(w->at[0].go.clock, 4);
    assert_int_equal(w->at[1].go.clock, 4);

    /* A second hub in the same folder is refused; damage to the last record of the log drops that record. */
    bt_hub_state *second = NULL;
    bt_hub *other = NULL;
    assert_int_equal(bt_hub_create(&other, &cfg, &err), BT_OK);
    assert_int_equal(bt_hub_state_open(&second, other, dir, &replayed, &err), BT_BUSY);
    bt_hub_state_close(w->hub->state);
    w->hub->state = NULL;
    snprintf(command, sizeof command, "truncate -s -1 %s/updates.log", dir);
    assert_int_equal(system(command), 0);
    assert_string_equal(warned, "");
    assert_int_equal(bt_hub_state_open(&second, other, dir, &replayed, &err), BT_OK);
    bt_log_set(NULL, NULL, BT_LOG_WARN);
    assert_non_null(strstr(warned, "are not a whole record: they are dropped"));
    assert_int_equal(other->model->version, 3); /* The fourth update counts as not acknowledged. */
    bt_hub_state_close(second);
    bt_hub_destroy(other);
    close_world(w);
    free(theta);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void flip_bit_at(const char *dir, int64_t at) {
    char path[64], c;
    snprintf(path, sizeof path, "%s/updates.log", dir);
    FILE *f = fopen(path, "r+");
    assert_true(f && fseek(f, (long)at, SEEK_SET) == 0 && fread(&c, 1, 1, f) == 1);
    c ^= 1;
    assert_true(fseek(f, (long)at, SEEK_SET) == 0 && fwrite(&c, 1, 1, f) == 1);
    assert_int_equal(fclose(f), 0);
}

/* The hub dies and another hub starts in its folder. */
static void restart_hub_from(world *w, const char *dir, int64_t replayed) {
    const bt_hub_cfg cfg = w->hub->cfg;
    bt_err err = BT_ERR_INIT;
    bt_hub_state_close(w->hub->state);
    bt_hub_destroy(w->hub);
    warned[0] = 0;
    bt_log_set(keep_warning, NULL, BT_LOG_WARN);
    assert_int_equal(bt_hub_create(&w->hub, &cfg, &err), BT_OK);
    keep_state_in(w, dir, replayed);
    bt_log_set(NULL, NULL, BT_LOG_WARN);
}

static off_t log_bytes(const char *dir) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "%s/updates.log", dir);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* A record in the middle of the log is damaged. If the next record repeats a skipped step, nothing is lost; if an
 * update is lost, later ones cannot be applied. */
static void a_damaged_record_loses_its_own_update(void **state) {
    (void)state;
    char dir[] = "/tmp/bitrain-hub-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    for (int updates = 0; updates < 2; updates++) {
        world *w = WORLD(1, "--steps", "20");
        off_t begin[5];
        keep_state_in(w, dir, 0);
        join(w, 1);
        for (int r = 0; r < 5; r++) { /* The second record is a skipped step or an update. */
            begin[r] = log_bytes(dir);
            send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, r == 1 && !updates ? 0 : 10);
        }
        flip_bit_at(dir, begin[2] - 2);
        restart_hub_from(w, dir, updates ? 1 : 4);
        assert_int_equal(w->hub->model->version, updates ? 1 : 4);
        assert_int_equal(w->hub->tokens, updates ? 10 : 40);
        if (updates)
            assert_non_null(strstr(warned, "begin with a damaged update"));
        else
            assert_string_equal(warned, "");
        bt_hub_state_close(w->hub->state);
        w->hub->state = NULL;
        close_world(w);
        snprintf(command, sizeof command, "rm -rf %s/*", dir);
        assert_int_equal(system(command), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* All assigned ranges of data are returned, however many there are. */
static void assigned_data_are_returned(void **state) {
    (void)state;
    enum { N = 1000 };
    char dir[] = "/tmp/bitrain-hub-XXXXXX", command[64];
    bt_err err = BT_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    world *w = WORLD(1, "--steps", "10");
    keep_state_in(w, dir, 0);
    join(w, 1);
    bt_leases *l = &w->hub->leases;
    for (int64_t i = 1; i <= N; i++)
        assert_int_equal(bt_leases_return(l, 100 * i, 100 * i + 7, &err), BT_OK);
    l->next = 1 << 20;
    assert_int_equal(bt_hub_state_save(w->hub->state, &err), BT_OK);
    restart_hub_from(w, dir, 0);
    int64_t sum = 0;
    l = &w->hub->leases;
    for (size_t i = 0; i < l->n; i++) sum += l->at[i].end - l->at[i].begin;
    assert_int_equal(sum, 7 * N + 4); /* including those of the island */
    assert_int_equal(l->next, 1 << 20);
    bt_hub_state_close(w->hub->state);
    w->hub->state = NULL;
    close_world(w);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void assert_island_refused(world *w, int i, const char *part) {
    if (!strstr(w->at[i].refused, part))
        fail_msg("'%s' does not contain '%s'", w->at[i].refused, part);
    w->at[i].refused[0] = 0;
}

static void foreign_messages_are_refused(void **state) {
    (void)state;
    world *w = WORLD(1, "--steps", "10");
    bt_err err = BT_ERR_INIT;
    join(w, 1);
    hello(w, 1, "optim.lr=0.5\n"); /* If a key occurs twice, its first line counts. */
    assert_island_refused(w, 1, "optim.lr is '0.5' here");
    hello(w, 1, "model=00\n");
    assert_island_refused(w, 1, "the model");
    hello(w, 1, "data=00\n");
    assert_island_refused(w, 1, "the data or the tokenizer");
    hello(w, 1, "program=0.0.1\n");
    assert_island_refused(w, 1, "program");
    hello(w, 1, "name=island-0\n");
    assert_island_refused(w, 1, "another key");
    hello(w, 1, "name=..\n");
    assert_island_refused(w, 1, "no name");

    const bt_hub_peer from = {.n = 1, .id = {1}, .key = "key-1"};
    assert_int_equal(bt_hub_receive(w->hub, &from, "x", 1, now_ns, &err), BT_OK);
    assert_island_refused(w, 1, "shorter");
    assert_int_equal(bt_hub_receive(w->hub, &from, w->frame, BT_ISLAND_FRAME + 1, now_ns, &err),
                     BT_OK);
    assert_island_refused(w, 1, "longer");

    /* sequence number too early or too late, or values that are not finite */
    w->at[0].seq += 5;
    send_update(w, 0, BT_PUSH_GRADIENT, 0.1f, 10);
    assert_island_refused(w, 0, "out of order");
    w->at[0].seq -= 6;
    const bt_island_head too_long = {
        .type = BT_ISLAND_CHUNK_MESSAGE, .seq = w->at[0].seq + 1, .chunks = 1000, .bytes = 4};
    post(w, 0, too_long, "abcd");
    assert_island_refused(w, 0, "longer than the model");
    assert_int_equal(w->hub->model->version, 0);
    /* The last chunk is missing; without this check its memory would be uninitialized. */
    const uint32_t whole = (uint32_t)(w->elements * sizeof(float));
    assert_true(whole <= BT_ISLAND_CHUNK);
    w->at[0].seq++;
    const bt_island_head short_chunk = {
        .type = BT_ISLAND_CHUNK_MESSAGE, .seq = w->at[0].seq, .chunks = 1, .bytes = whole - 4};
    const bt_island_push push = {
        .kind = BT_PUSH_GRADIENT, .bytes = whole, .tokens = 10, .steps = 1, .sequences = 4};
    unsigned char *zeros = calloc(whole, 1);
    post(w, 0, short_chunk, zeros);
    free(zeros);
    post(w, 0,
         (bt_island_head){.type = BT_ISLAND_PUSH, .seq = w->at[0].seq--, .bytes = sizeof push},
         &push);
    assert_island_refused(w, 0, "does not have the size");
    assert_int_equal(w->hub->model->version, 0);
    send_update(w, 0, BT_PUSH_GRADIENT, NAN, 10);
    /* The update is rejected and reported; the island continues. */
    assert_int_equal(w->hub->model->version, 0);
    assert_int_equal(w->at[0].go.clock, 1);
    assert_non_null(strstr(w->sink->events[w->sink->n_events - 1].title, "poisoned"));
    for (int i = 0; i < 6; i++) send_update(w, 0, BT_PUSH_GRADIENT, 0.001f, 10);
    assert_int_equal(w->hub->model->version, 6);
    send_update(w, 0, BT_PUSH_GRADIENT, 1.0f, 10);
    assert_int_equal(w->hub->model->version, 6);
    assert_true(w->hub->model->theta[0] == w->hub->model->theta[0]);
    close_world(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_added_by_tokens),
                                       cmocka_unit_test(a_repeated_update_is_applied_once),
                                       cmocka_unit_test(a_dead_island_blocks_no_peer),
                                       cmocka_unit_test(parts_wait_for_room),
                                       cmocka_unit_test(staleness_is_bounded),
                                       cmocka_unit_test(asynchronous_steps_shrink),
                                       cmocka_unit_test(deltas_take_an_outer_step),
                                       cmocka_unit_test(momentum_follows_the_islands),
                                       cmocka_unit_test(a_restarted_hub_continues),
                                       cmocka_unit_test(a_damaged_record_loses_its_own_update),
                                       cmocka_unit_test(assigned_data_are_returned),
                                       cmocka_unit_test(foreign_messages_are_refused)};
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
