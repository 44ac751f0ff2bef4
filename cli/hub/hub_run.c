/* hub_run.c - the main loop of a hub, with its storage and its record. */
#include "cli/hub/hub_run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/common/given_path.h"
#include "cli/common/run_name.h"
#include "cli/common/signals.h"
#include "cli/version/version.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/os/memory_pages.h"
#include "engine/islands/hub/hub_changes.h"
#include "engine/observe/meter.h"
#include "store/store.h"

static bt_request_box box;

typedef struct record { /* the sink of a hub, which writes to the terminal and to the database */
    const bt_hub_settings *settings;
    bt_guarded *guarded; /* NULL: no guard process */
    bt_writer *writer;   /* NULL: the run is not recorded */
    const bt_sink *sink; /* sink of the writer */
    bt_sink both;
    uint64_t refused_keys;
    char name[BT_NAME_MAX], store[1024], out[PATH_MAX];
} record;

static void record_hub_event(void *ctx, const bt_event *e) {
    const record *r = ctx;
    const bool warn = bt_events[e->kind].level != BT_EV_INFO;
    if (!r->settings->quiet || warn) fprintf(stderr, "hub: %s\n", e->title);
    if (r->sink) r->sink->event(r->sink->ctx, e);
}
static void record_hub_ranks(void *ctx, const bt_rank_info *ranks, size_t n) {
    const record *r = ctx;
    if (r->sink) r->sink->ranks(r->sink->ctx, ranks, n);
}
static void record_hub_fact(void *ctx, const char *key, const char *value) {
    const record *r = ctx;
    if (r->sink) r->sink->fact(r->sink->ctx, key, value);
}
static void record_hub_step(void *ctx, const bt_step_record *s) {
    const record *r = ctx;
    if (r->sink) r->sink->step(r->sink->ctx, s);
}
static void record_hub_rows(void *ctx, const bt_row_record *rows) {
    const record *r = ctx;
    if (r->sink) r->sink->rows(r->sink->ctx, rows);
}

/* ---- the run in the database ------------------------------------------------------------------- */

bt_code bt_hub_name(bt_hub_settings *s, bt_err *err) {
    char store[1024], name[BT_NAME_MAX];
    if (s->name[0]) return BT_OK;
    BT_TRY(bt_store_path(store, sizeof store, s->store, err));
    BT_TRY(bt_run_make_name(store, name, err));
    snprintf(s->name, sizeof s->name, "%.63s", name);
    return BT_OK;
}

static bt_code choose_hub_paths(record *r, bt_err *err) {
    const bt_hub_settings *s = r->settings;
    char given[PATH_MAX];
    BT_TRY(bt_store_path(r->store, sizeof r->store, s->store, err));
    snprintf(r->name, sizeof r->name, "%s", s->name);
    if (r->name[0] && !bt_name_ok(r->name))
        return bt_fail(err, BT_ARG, "'%s' is no name for a run (a-z, 0-9, -, _, .)", r->name);
    const char *slash = strrchr(r->store, '/');
    if (s->out[0])
        snprintf(r->out, sizeof r->out, "%s", s->out);
    else
        snprintf(r->out, sizeof r->out, "%.*sruns/%s", slash ? (int)(slash - r->store + 1) : 0,
                 r->store, r->name);
    memcpy(given, r->out, sizeof given);
    /* absolute, because readers of the record may have another current folder */
    return bt_absolute_path(given, r->out, err);
}

/* True if a hub of this name ended before an island joined, so that it has no state to resume. */
static bool never_had_an_island(const record *r) {
    bt_db *db = NULL;
    double yes = 0;
    bt_err ignored = BT_ERR_INIT;
    const bool known = bt_db_open(&db, r->store, &ignored) == BT_OK &&
                       bt_db_value(db,
                                   "SELECT note = 'a hub of islands' AND coalesce(steps, 0) = 0 "
                                   "FROM runs WHERE run = ?1",
                                   r->name, &yes, &ignored) == BT_OK;
    bt_db_close(db);
    return known && yes == 1;
}

static bt_code begin_hub_record(record *r, const bt_hub *h, bt_err *err) {
    char host[BT_HOST_MAX] = "?";
    int attempt;
    bt_err first = BT_ERR_INIT;
    if (r->settings->no_monitor) return BT_OK;
    gethostname(host, sizeof host - 1);
    bt_run_start start = {.name = r->name,
                          .resume = h->model || never_had_an_island(r),
                          .from_step = h->model ? h->model->version : 0,
                          .reason = h->model ? "the hub was started again" : "start",
                          .argv = "bitrain hub",
                          .config_json = "{}",
                          .host = host,
                          .user = "",
                          .build = bt_version_text(),
                          .mpi = "",
                          .note = "a hub of islands",
                          .out_dir = r->out,
                          .world_size = (int)r->settings->islands,
                          .pid = (int)getpid()};
    BT_TRY(bt_writer_open(&r->writer, r->store, 10, err));
    bt_code code = bt_writer_begin(r->writer, &start, &attempt, &first);
    /* the previous process may still be ending */
    for (int tries = 0; code == BT_BUSY && start.resume && tries < 50; tries++) {
        bt_sleep_ns(100000000);
        first = (bt_err)BT_ERR_INIT;
        code = bt_writer_begin(r->writer, &start, &attempt, &first);
    }
    if (code == BT_NOTFOUND) { /* there is a folder without a record */
        start.resume = false;
        code = bt_writer_begin(r->writer, &start, &attempt, &first);
    }
    if (code != BT_OK) {
        *err = first;
        return code;
    }
    r->sink = bt_writer_sink(r->writer);
    return BT_OK;
}

static void record_hub_start(const record *r, const bt_hub *h, int64_t replayed) {
    char title[200];
    const int64_t version = h->model ? h->model->version : 0;
    if (h->model)
        snprintf(title, sizeof title,
                 "the hub continues after update %" PRId64 ", %" PRId64 " of them from its log",
                 version, replayed);
    else
        snprintf(title, sizeof title, "a new hub waits for %" PRId64 " island%s",
                 r->settings->islands, r->settings->islands == 1 ? "" : "s");
    const bt_event e = {.kind = h->model ? BT_EVENT_RESUMED : BT_EVENT_STARTED,
                        .step = version - 1,
                        .rank = -1,
                        .wall_us = bt_wall_us(),
                        .title = title};
    record_hub_event((void *)(uintptr_t)r, &e);
}

static void report_hub_restart(record *r, const bt_hub *h) {
    char title[200];
    const bt_guarded *guarded = r->guarded;
    if (!guarded || !guarded->signal) return;
    snprintf(title, sizeof title,
             "the hub's process was ended by signal %d (%s) and started again, %d time%s so far",
             guarded->signal, strsignal(guarded->signal), guarded->restarts,
             guarded->restarts == 1 ? "" : "s");
    const bt_event e = {.kind = BT_EVENT_RESTARTED,
                        .step = h->model ? h->model->version - 1 : -1,
                        .rank = -1,
                        .wall_us = bt_wall_us(),
                        .title = title};
    record_hub_event(r, &e);
}

static void end_hub_run(record *r, const bt_hub *h, bt_code code, const bt_err *err) {
    bt_err trouble = BT_ERR_INIT;
    const char *state = code != BT_OK ? "failed" : h && h->finished ? "done" : "stopped";
    if (!r->writer) return;
    if (r->sink && bt_writer_end(r->writer, state, code == BT_OK ? state : err->msg,
                                 code == BT_OK ? 0 : bt_exit_code(code), &trouble) != BT_OK)
        bt_log(BT_LOG_WARN, "%s", trouble.msg);
    bt_writer_close(r->writer);
}

/* ---- the loop ---------------------------------------------------------------------------------- */

static void report_refused_keys(record *r, const bt_hub_socket *socket) {
    char key[BT_CURVE_KEY], title[160];
    const uint64_t n = bt_hub_socket_refused(socket, key);
    if (n == r->refused_keys) return;
    r->refused_keys = n;
    snprintf(title, sizeof title,
             key[0] ? "a connection was refused: its key '%s' is not listed"
                    : "a connection without a key was refused",
             key);
    const bt_event e = {
        .kind = BT_EVENT_REFUSED, .step = -1, .rank = -1, .wall_us = bt_wall_us(), .title = title};
    record_hub_event(r, &e);
}

/* libzmq reads messages of any length into memory without a limit, so this closes connections that use too much.
 * base_mib: memory of the process beyond that of the hub, measured after its connections had been closed. */
static bt_code bound_memory(const bt_hub_settings *s, bt_hub *h, bt_hub_socket *socket,
                            double *base_mib, bt_err *err) {
    const double own_mib = (double)bt_hub_bytes(h) / 1048576.0,
                 over_mib = bt_rss_mib() - own_mib - *base_mib;
    if (!(s->memory_mib > 0) || !(over_mib > s->memory_mib)) return BT_OK;
    BT_TRY(bt_hub_socket_renew(socket, err));
    bt_pages_return_free();
    *base_mib = fmax(0, bt_rss_mib() - own_mib);
    bt_hub_refuse_memory(h, over_mib, s->memory_mib);
    return BT_OK;
}

static bool is_every_island_gone(const bt_hub *h) {
    for (size_t i = 0; i < h->n; i++)
        if (h->members[i].state == BT_MEMBER_JOINS ||
            (h->members[i].state == BT_MEMBER_TRAINS && !h->members[i].overdue))
            return false;
    return true;
}

static bt_code receive_message(bt_hub *h, bt_hub_socket *socket, int timeout_ms, bt_err *err) {
    bt_hub_peer from;
    const void *frame;
    size_t bytes;
    bool many;
    BT_TRY(bt_hub_socket_receive(socket, timeout_ms, &from, &frame, &bytes, &many, err));
    if (many) bt_hub_refuse_frames(h, &from);
    if (bytes) BT_TRY(bt_hub_receive(h, &from, frame, bytes, bt_now_ns(), err));
    return BT_OK;
}

/* Sleeps for a second; returns false, at once, if the hub must end. */
static bool wait_a_second(void *ctx) {
    enum { LOOK_MS = 50, TIMES = 20 };
    (void)ctx;
    for (int k = 0; k < TIMES && !(atomic_load(&box.bits) & BT_REQ_STOP); k++)
        bt_sleep_ns(LOOK_MS * INT64_C(1000000));
    return !(atomic_load(&box.bits) & BT_REQ_STOP);
}

/* Reports the disk space that the hub will use, when its model is known; warns if there is less. */
static void report_disk_need(record *r, const bt_hub *h) {
    struct statvfs v;
    char title[200];
    const double mib = 1024.0 * 1024.0, need = (double)bt_hub_state_need(h->model) / mib;
    const bool known = statvfs(r->out, &v) == 0;
    const double free_mib = known ? (double)v.f_bavail * (double)v.f_frsize / mib : 0;
    const bool few = known && free_mib < need;
    snprintf(title, sizeof title, "checkpoints and the log of updates take up to %.0f MiB of disk",
             need);
    if (known)
        snprintf(title + strlen(title), sizeof title - strlen(title), "; %.0f MiB are free",
                 free_mib);
    const bt_event e = {.kind = few ? BT_EVENT_WARNING : BT_EVENT_NOTICE,
                        .step = h->model->version - 1,
                        .rank = -1,
                        .wall_us = bt_wall_us(),
                        .title = title};
    record_hub_event(r, &e);
}

static bt_code serve_hub_sockets(bt_hub *h, bt_hub_socket *socket, record *r, bt_err *err) {
    enum {
        TICK_MS = 100,
        ROOM_MS = 1
    }; /* ROOM_MS: interval of checks for room in a connection's queue */
    const int64_t again_ns = 2000000000; /* delay before a failed checkpoint is tried again */
    int64_t ticked = bt_now_ns(), tried = 0;
    bool need_reported = false;
    double base_mib = 0;
    while (!(atomic_load(&box.bits) & BT_REQ_STOP)) {
        BT_TRY(receive_message(h, socket, bt_hub_serve(h) ? ROOM_MS : TICK_MS, err));
        const int64_t now = bt_now_ns();
        if (bt_hub_state_due(h->state) && (h->room_again || now - tried >= again_ns)) {
            h->room_again = false;
            BT_TRY(bt_hub_save(h, err));
            tried = h->unsaved.code == BT_OK ? 0 : now;
        }
        if (now - ticked < TICK_MS * INT64_C(1000000)) continue;
        ticked = now;
        if (!need_reported && h->model) report_disk_need(r, h);
        need_reported = h->model != NULL;
        if (r->guarded && h->model) r->guarded->progress = h->model->version;
        BT_TRY(bt_hub_tick(h, now, err));
        report_refused_keys(r, socket);
        BT_TRY(bound_memory(r->settings, h, socket, &base_mib, err));
        if (h->finished && is_every_island_gone(h)) return BT_OK;
    }
    return BT_OK;
}

static bt_code run_hub_loop(bt_hub *h, bt_hub_socket *socket, record *r, bt_err *err) {
    int64_t replayed = 0;
    bt_code code = bt_hub_state_open(&h->state, h, r->out, &replayed, err);
    if (code == BT_OK) code = begin_hub_record(r, h, err);
    if (code == BT_OK) {
        if (h->model) h->resumed_ns = bt_now_ns();
        record_hub_start(r, h, replayed);
        report_hub_restart(r, h);
        if (r->guarded) r->guarded->serving = true;
        code = serve_hub_sockets(h, socket, r, err);
    }
    if (code == BT_OK) code = bt_hub_save(h, err);
    if (code == BT_OK && h->unsaved.code != BT_OK) {
        *err = h->unsaved;
        code = err->code;
    }
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%" PRIu64, bt_hub_socket_traffic(socket));
    record_hub_fact(r, "islands.bytes_both_ways", bytes);
    bt_hub_state_close(h->state);
    return code;
}

bt_code bt_hub_run(const bt_hub_settings *s, bt_guarded *guarded, bt_hub_socket *socket,
                   bt_err *err) {
    record r = {.settings = s, .guarded = guarded};
    bt_hub *h = NULL;
    r.both = (bt_sink){.ctx = &r,
                       .ranks = record_hub_ranks,
                       .fact = record_hub_fact,
                       .step = record_hub_step,
                       .rows = record_hub_rows,
                       .event = record_hub_event};
    bt_hub_cfg cfg = {.port = bt_hub_socket_port(socket),
                      .islands = (int)s->islands,
                      .grace_s = s->grace_s,
                      .silence_s = s->silence_s,
                      .quorum = (int)s->quorum,
                      .quorum_s = s->quorum_s,
                      .overdue_s = s->overdue_s,
                      .late = s->late,
                      .wait = wait_a_second,
                      .sink = &r.both};
    if (getrandom(&cfg.epoch, sizeof cfg.epoch, 0) != sizeof cfg.epoch)
        return bt_fail(err, BT_IO, "the system gives no random numbers");
    cfg.epoch |= 1;
    bt_signals_rank(&box, 1);
    BT_TRY(choose_hub_paths(&r, err));
    BT_TRY(bt_hub_create(&h, &cfg, err));
    const bt_code code = run_hub_loop(h, socket, &r, err);
    if (code == BT_OK && !s->quiet)
        fprintf(stderr, "hub: %s after %" PRId64 " updates, %" PRId64 " tokens; checkpoint in %s\n",
                h->finished ? "done" : "stopped", h->model ? h->model->version : 0, h->tokens,
                r.out);
    end_hub_run(&r, h, code, err);
    bt_hub_destroy(h);
    return code;
}
