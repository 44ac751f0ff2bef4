/* bench_http.c - `bitrain bench http`: measures the speed of the dashboard's server and its behaviour under load, with
 * a run and a server of its own.
 *
 *     first byte   of the page on a new connection; start: from starting `bitrain dash` to its first response
 *     series       /series of a new server for the whole run, for rank 0, and for random ranges: 1024 columns, five
 *                  axes
 *     requests     per second, for the run's head (small JSON), from 16 connections
 *     attacked     a request on a new connection, beside 200 clients that send one byte per second and 1000 that send
 *                  nothing
 *     stream       from a step's commit to its event at a client, with a step every 100 ms; then the server's memory */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"
#include "cli/bench/http_client.h"
#include "engine/base/clock.h"
#include "engine/base/opt.h"
#include "engine/base/os/process_info.h"
#include "engine/base/os/process_usage.h"
#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/base/system/start_process.h"
#include "monitor/job/launch/viewer_process.h"

typedef struct http_cfg {
    char dir[512];
    int64_t ranks, steps, load_s, stream_s;
    bool json;
} http_cfg;

static const bt_opt http_opts[] = {
    BT_ROW_INT(http_cfg, ranks, "--ranks", "8", 1, 4096, NULL,
               "ranks of the run that is displayed"),
    BT_ROW_INT(http_cfg, steps, "--steps", "50000", 100, 1e8, "steps", "its length"),
    BT_ROW_INT(http_cfg, load_s, "--load-s", "3", 1, 3600, "s",
               "duration of each load; the attack lasts twice as long"),
    BT_ROW_INT(http_cfg, stream_s, "--stream-s", "10", 1, 86400, "s",
               "duration for which a client follows a live run"),
    BT_ROW_TEXT(http_cfg, dir, "--dir", "",
                "folder for the database of the measurement (default: $TMPDIR or /tmp)"),
    BT_ROW_JSON(http_cfg),
};

const bt_option_set bt_bench_http_opts = BT_OPTION_SET(http_opts, http_cfg);

static const char token[] = "0123456789abcdef0123456789abcdef";
enum { CLIENTS = 16, SLOW = 200, IDLE = 1000, ZOOMS = 60, BYTES_PROBES = 40 };

typedef struct http_bench {
    const http_cfg *cfg;
    char dir[600], db[640];
    bt_viewer server;
    int port;
    double start_ms, first_byte_p50, first_byte_p95, cold_p95, cold_max, rank_ms, zoom_p50,
        zoom_p95, zoom_max, per_s, per_s_tiny, honest_p50, honest_p99, honest_max;
    double attacked_cores, event_p50, event_p95, rss_before, rss_after;
    int64_t honest, honest_failed, events;
} http_bench;

/* ---- the server under test ---- */

static bt_code start_server(http_bench *b, bt_err *err) {
    char program[600];
    BT_TRY(bt_own_program(program, sizeof program, err));
    setenv("BITRAIN_DASH_TOKEN", token, 1);
    setenv("XDG_RUNTIME_DIR", b->dir, 1);
    int64_t t0 = bt_now_ns();
    BT_TRY(bt_viewer_start(&b->server,
                           (const char *const[]){program, "dash", "--store", b->db, "--port", "0",
                                                 "--json", NULL},
                           err));
    bool ended = false;
    for (b->port = 0; !ended && !b->port && bt_now_ns() - t0 < 10000000000;) {
        const char *line = bt_viewer_line(&b->server, &ended),
                   *at = line ? strstr(line, "\"port\":") : NULL;
        if (at)
            b->port = atoi(at + 7);
        else
            bt_sleep_ns(500000);
    }
    if (!b->port) return bt_fail(err, BT_IO, "the dashboard did not start");
    bt_http h = {.fd = -1, .port = b->port, .token = token};
    int rc = bt_http_get(&h, "/");
    b->start_ms = (double)(bt_now_ns() - t0) / 1e6;
    bt_http_close(&h);
    return rc ? bt_fail(err, BT_IO, "the dashboard does not answer") : BT_OK;
}

static double rss_mib(int pid) {
    size_t all, resident;
    return bt_process_memory(pid, &all, &resident) ? (double)resident / 1048576 : NAN;
}

/* Returns the processor time of the server so far, in seconds. */
static double server_cpu_s(int pid) {
    bt_process_info info;
    return bt_process_info_read(pid, &info) ? info.cpu_s : NAN;
}

static bt_code request_and_check(bt_http *h, const char *path, bt_err *err) {
    if (bt_http_get(h, path) == 0 && h->status == 200) return BT_OK;
    return bt_fail(err, BT_IO, "'%s' was answered with status %d: %.100s", path, h->status,
                   h->body ? h->body : "");
}

/* ---- one client ---- */

static bt_code measure_first_bytes(http_bench *b, bt_err *err) {
    double ms[BYTES_PROBES];
    for (int i = 0; i < BYTES_PROBES; i++) {
        bt_http h = {.fd = -1, .port = b->port, .token = token};
        int64_t t0 = bt_now_ns();
        bt_code code = request_and_check(&h, "/", err);
        ms[i] = (double)(bt_now_ns() - t0 - h.done_ns + h.first_byte_ns) / 1e6;
        bt_http_close(&h);
        if (code != BT_OK) return code;
    }
    qsort(ms, BYTES_PROBES, sizeof ms[0], bt_compare_doubles);
    b->first_byte_p50 = ms[BYTES_PROBES / 2];
    b->first_byte_p95 = ms[BYTES_PROBES * 95 / 100];
    return BT_OK;
}

/* Measures the requests of the page when a run is opened, on a server that has read no data yet. */
static bt_code measure_series_requests(http_bench *b, bt_err *err) {
    static const char *const whole[] = {
        "metric=loss&metric=val_loss&x=step",
        "metric=grad_norm&x=tokens",
        "metric=lr&x=time",
        "metric=tokens_per_s&x=active",
        "metric=step_ms&x=bytes",
        "metric=bytes_logical&metric=bytes_wire",
        "metric=comm_overhead&metric=overlap",
        "metric=rss_mib",
        "metric=mfu",
        "metric=loss&metric=grad_norm&metric=lr&metric=tokens_per_s&metric=step_ms"};
    enum { WHOLE = sizeof whole / sizeof whole[0] };
    bt_http h = {.fd = -1, .port = b->port, .token = token};
    char path[512];
    double cold[WHOLE], zoom[ZOOMS];
    bt_code code = BT_OK;
    for (int i = 0; i < WHOLE && code == BT_OK; i++) {
        snprintf(path, sizeof path, "/api/v1/runs/bench/series?%s&width=1024", whole[i]);
        code = request_and_check(&h, path, err);
        cold[i] = (double)h.done_ns / 1e6;
    }
    snprintf(
        path, sizeof path,
        "/api/v1/runs/bench/series?metric=step_ms&metric=wait_ms&metric=data_ms&rank=0&width=1024");
    if (code == BT_OK) code = request_and_check(&h, path, err);
    b->rank_ms = (double)h.done_ns / 1e6;
    for (int i = 0; i < ZOOMS && code == BT_OK; i++) {
        double width = (double)b->cfg->steps * pow(10, -3 * bt_rng_unit(2, 0, (uint64_t)i)),
               from = ((double)b->cfg->steps - width) * bt_rng_unit(2, 1, (uint64_t)i);
        snprintf(path, sizeof path, "/api/v1/runs/bench/series?%s&width=1024&x0=%.0f&x1=%.0f",
                 whole[i % WHOLE], from, from + width);
        code = request_and_check(&h, path, err);
        zoom[i] = (double)h.done_ns / 1e6;
    }
    bt_http_close(&h);
    if (code != BT_OK) return code;
    qsort(cold, WHOLE, sizeof cold[0], bt_compare_doubles);
    qsort(zoom, ZOOMS, sizeof zoom[0], bt_compare_doubles);
    b->cold_p95 = cold[WHOLE * 95 / 100];
    b->cold_max = cold[WHOLE - 1];
    b->zoom_p50 = zoom[ZOOMS / 2];
    b->zoom_p95 = zoom[ZOOMS * 95 / 100];
    b->zoom_max = zoom[ZOOMS - 1];
    return BT_OK;
}

/* ---- many clients ---- */

typedef struct load {
    int port;
    const char *path;
    atomic_bool *stop;
    int64_t done;
    bool failed;
    pthread_t thread;
} load;

static void *request_repeatedly(void *ctx) {
    load *l = ctx;
    bt_http h = {.fd = -1, .port = l->port, .token = token};
    while (!atomic_load(l->stop) && !l->failed) {
        if (bt_http_get(&h, l->path) != 0 || h.status != 200)
            l->failed = true;
        else
            l->done++;
    }
    bt_http_close(&h);
    return NULL;
}

static bt_code measure_request_rate(http_bench *b, const char *path, double *per_s, bt_err *err) {
    load all[CLIENTS];
    atomic_bool stop = false;
    int64_t t0 = bt_now_ns(), done = 0;
    bool failed = false;
    for (int i = 0; i < CLIENTS; i++) {
        all[i] = (load){.port = b->port, .path = path, .stop = &stop};
        if (pthread_create(&all[i].thread, NULL, request_repeatedly, &all[i]) != 0)
            return bt_fail(err, BT_NOMEM, "cannot start a client");
    }
    bt_sleep_ns(b->cfg->load_s * 1000000000);
    atomic_store(&stop, true);
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(all[i].thread, NULL);
        done += all[i].done;
        failed |= all[i].failed;
    }
    *per_s = (double)done / ((double)(bt_now_ns() - t0) / 1e9);
    return failed ? bt_fail(err, BT_IO, "a request among %d connections failed", CLIENTS) : BT_OK;
}

/* A client that reconnects at once when its connection is closed. */
static void *attack_server(void *ctx) {
    load *l = ctx;
    static int fd[SLOW + IDLE];
    const char *text = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    for (int i = 0; i < SLOW + IDLE; i++) fd[i] = -1;
    for (int64_t second = 0; !atomic_load(l->stop); second++) {
        for (int i = 0; i < SLOW + IDLE && !atomic_load(l->stop); i++) {
            char c = second < (int64_t)strlen(text) ? text[second] : 'a', got;
            bool gone = fd[i] >= 0 && recv(fd[i], &got, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
            if (gone) close(fd[i]);
            if (gone || fd[i] < 0) {
                fd[i] = bt_http_connect(l->port);
                l->done++;
            }
            if (i < SLOW && fd[i] >= 0) send(fd[i], &c, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        for (int k = 0; k < 50 && !atomic_load(l->stop); k++) bt_sleep_ns(20000000);
    }
    for (int i = 0; i < SLOW + IDLE; i++)
        if (fd[i] >= 0) close(fd[i]);
    return NULL;
}

static bt_code measure_under_attack(http_bench *b, bt_err *err) {
    enum { MOST = 2000 };
    double *ms = malloc(sizeof *ms * MOST);
    atomic_bool stop = false;
    load l = {.port = b->port, .stop = &stop};
    struct rlimit files;
    if (!ms) return bt_fail(err, BT_NOMEM, "no memory for the measurement");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (pthread_create(&l.thread, NULL, attack_server, &l) != 0) {
        free(ms);
        return bt_fail(err, BT_NOMEM, "cannot start the attackers");
    }
    bt_sleep_ns(500000000);
    int n = 0;
    const double used = server_cpu_s((int)b->server.pid);
    const int64_t t0 = bt_now_ns();
    while (bt_now_ns() - t0 < 2 * b->cfg->load_s * 1000000000 && n < MOST) {
        bt_http h = {.fd = -1, .port = b->port, .token = token};
        int64_t t = bt_now_ns();
        if (bt_http_get(&h, "/healthz") != 0) b->honest_failed++;
        ms[n++] = (double)(bt_now_ns() - t) / 1e6;
        bt_http_close(&h);
        bt_sleep_ns(20000000);
    }
    b->attacked_cores = (server_cpu_s((int)b->server.pid) - used) /
                        ((double)(bt_now_ns() - t0) / 1e9);
    atomic_store(&stop, true);
    pthread_join(l.thread, NULL);
    qsort(ms, (size_t)n, sizeof ms[0], bt_compare_doubles);
    b->honest = n;
    b->honest_p50 = ms[n / 2];
    b->honest_p99 = ms[n * 99 / 100];
    b->honest_max = ms[n - 1];
    free(ms);
    return BT_OK;
}

/* ---- a live run and a client that follows it ---- */

typedef struct follow {
    int port;
    int64_t *seen_ns;
    int64_t most, n;
    atomic_bool *stop;
    pthread_t thread;
} follow;

/* Stores the arrival time of each new step's event. */
static void *follow_run(void *ctx) {
    follow *f = ctx;
    static char buf[1 << 16];
    char text[512];
    size_t n = 0;
    int fd = bt_http_connect(f->port);
    int len = snprintf(text, sizeof text,
                       "GET /api/v1/runs/live/stream HTTP/1.1\r\nHost: "
                       "127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n\r\n",
                       f->port, token);
    struct timeval limit = {.tv_usec = 200000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (fd < 0 || send(fd, text, (size_t)len, MSG_NOSIGNAL) != len) return NULL;
    while (!atomic_load(f->stop)) {
        ssize_t k = recv(fd, buf + n, sizeof buf - n - 1, 0);
        if (k == 0) break;
        if (k < 0) continue;
        int64_t now = bt_now_ns();
        n += (size_t)k;
        buf[n] = '\0';
        char *last = NULL;
        for (char *p = buf; (p = strstr(p, "\"newest_step\":")); p++) {
            long step = strtol(p + 14, NULL, 10);
            for (int64_t s = step; s >= 0 && s < f->most && !f->seen_ns[s]; s--)
                f->seen_ns[s] = now;
            f->n++;
            last = p;
        }
        if (last || n > sizeof buf / 2) n = 0;
    }
    close(fd);
    return NULL;
}

static bt_code measure_event_stream(http_bench *b, bt_err *err) {
    const int64_t every_ns = 100000000, steps = b->cfg->stream_s * 10;
    bt_writer *w = NULL;
    atomic_bool stop = false;
    int64_t *committed = calloc((size_t)steps, sizeof *committed);
    follow f = {.port = b->port,
                .seen_ns = calloc((size_t)steps, sizeof *f.seen_ns),
                .most = steps,
                .stop = &stop};
    double values[BT_MS_COUNT], *all = malloc(sizeof *all * (size_t)b->cfg->ranks * BT_MR_COUNT),
                                *late = malloc(sizeof *late * (size_t)steps);
    bt_code code = committed && f.seen_ns && all && late
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "no memory for the measurement");
    if (code == BT_OK) code = bt_writer_open(&w, b->db, 5, err);
    if (code == BT_OK) code = bt_bench_begin(w, "live", (int)b->cfg->ranks, err);
    if (code == BT_OK) code = bt_writer_flush(w, err);
    bool following = code == BT_OK && pthread_create(&f.thread, NULL, follow_run, &f) == 0;
    bt_sleep_ns(300000000);
    b->rss_before = rss_mib((int)b->server.pid);
    for (int64_t i = 0; i < steps && following; i++) {
        int64_t next = bt_now_ns() + every_ns;
        bt_bench_step(i, (int)b->cfg->ranks, values, all);
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx,
                                &(bt_step_record){.step = i,
                                                  .wall_us = bt_wall_us(),
                                                  .values = values,
                                                  .n_ranks = (int)b->cfg->ranks,
                                                  .rank_values = all});
        while (bt_writer_committed_step(w) < i && bt_now_ns() < next) bt_sleep_ns(100000);
        committed[i] = bt_now_ns();
        if (next > bt_now_ns()) bt_sleep_ns(next - bt_now_ns());
    }
    bt_sleep_ns(500000000);
    b->rss_after = rss_mib((int)b->server.pid);
    atomic_store(&stop, true);
    if (following) pthread_join(f.thread, NULL);
    int64_t n = 0;
    for (int64_t i = 0; following && i < steps; i++)
        if (f.seen_ns[i]) late[n++] = fmax(0, (double)(f.seen_ns[i] - committed[i]) / 1e6);
    if (code == BT_OK && n < steps * 9 / 10)
        code = bt_fail(err, BT_IO, "only %lld of %lld steps arrived at the client", (long long)n,
                       (long long)steps);
    if (code == BT_OK) {
        qsort(late, (size_t)n, sizeof *late, bt_compare_doubles);
        b->event_p50 = late[n / 2];
        b->event_p95 = late[n * 95 / 100];
        b->events = f.n;
        code = bt_writer_end(w, "done", "bench", 0, err);
    }
    bt_writer_close(w);
    free(committed);
    free(f.seen_ns);
    free(all);
    free(late);
    return code;
}

/* ---- result ---- */

static bt_code print_http_result(const http_bench *b, bt_err *err) {
    const bt_figure rows[] = {
        {"start_ms", "starting bitrain dash until its first answer", b->start_ms, "ms"},
        {"first_byte_ms_p50", "first byte of the page, new connection, median", b->first_byte_p50,
         "ms"},
        {"first_byte_ms_p95", "first byte of the page, 95 %", b->first_byte_p95, "ms"},
        {"series_cold_ms_p95", "/series of the whole run, asked the first time, 95 %", b->cold_p95,
         "ms"},
        {"series_cold_ms_max", "/series of the whole run, asked the first time, largest",
         b->cold_max, "ms"},
        {"series_rank_ms", "/series of one rank, asked the first time", b->rank_ms, "ms"},
        {"series_zoom_ms_p50", "/series zoomed to a random range, median", b->zoom_p50, "ms"},
        {"series_zoom_ms_p95", "/series zoomed to a random range, 95 %", b->zoom_p95, "ms"},
        {"series_zoom_ms_max", "/series zoomed to a random range, largest", b->zoom_max, "ms"},
        {"requests_per_s", "requests for a run's head, 16 connections", b->per_s, "/s"},
        {"requests_tiny_per_s", "requests for a constant, 16 connections", b->per_s_tiny, "/s"},
        {"attacked_ms_p50", "honest request among 200 slow and 1000 idle clients, median",
         b->honest_p50, "ms"},
        {"attacked_ms_p99", "honest request among them, 99 %", b->honest_p99, "ms"},
        {"attacked_ms_max", "honest request among them, largest", b->honest_max, "ms"},
        {"attacked_failed", "honest requests refused", (double)b->honest_failed, ""},
        {"attacked_cores", "what the attack takes of the machine: cores the server is busy",
         b->attacked_cores, "cores"},
        {"event_ms_p50", "step committed until its event arrives, median", b->event_p50, "ms"},
        {"event_ms_p95", "step committed until its event arrives, 95 %", b->event_p95, "ms"},
        {"rss_before_mib", "memory of the server before the stream", b->rss_before, "MiB"},
        {"rss_after_mib", "memory of the server after it", b->rss_after, "MiB"},
    };
    const bt_figure sizes[] = {{"steps", "steps", (double)b->cfg->steps, ""},
                               {"ranks", "ranks", (double)b->cfg->ranks, ""},
                               {"stream_s", "s of stream", (double)b->cfg->stream_s, ""},
                               {"stream_events", "events of it", (double)b->events, ""}};
    return bt_bench_print(b->cfg->json, "dashboard server", sizes, sizeof sizes / sizeof sizes[0],
                          rows, sizeof rows / sizeof rows[0], err);
}

static bt_code measure_server(http_bench *b, bt_err *err) {
    double wall, used;
    bt_progress bar;
    bt_progress_begin(&bar, b->cfg->json);
    bt_code written = bt_bench_write_run(b->db, b->cfg->steps, (int)b->cfg->ranks, true, &bar,
                                         &wall, &used, err);
    bt_progress_end(&bar);
    BT_TRY(written);
    BT_TRY(start_server(b, err));
    BT_TRY(measure_series_requests(b, err));
    BT_TRY(measure_first_bytes(b, err));
    BT_TRY(measure_request_rate(b, "/api/v1/server", &b->per_s_tiny, err));
    BT_TRY(measure_request_rate(b, "/api/v1/runs/bench/head", &b->per_s, err));
    BT_TRY(measure_event_stream(b, err));
    return measure_under_attack(b, err);
}

bt_code bt_bench_http(bt_call *call, bt_err *err) {
    http_cfg *cfg = call->cfg;
#ifndef BITRAIN_HAVE_WEB
    return bt_fail(err, BT_UNSUPPORTED,
                   "cannot measure the dashboard: this program was built without it "
                   "(./bootstrap build makes it where there is a network)");
#endif
    http_bench b = {.cfg = cfg};
    BT_TRY(bt_bench_folder(b.dir, sizeof b.dir, cfg->dir, err));
    snprintf(b.db, sizeof b.db, "%s/m.db", b.dir);
    bt_code code = measure_server(&b, err);
    bt_viewer_stop(&b.server);
    static const char *const files[] = {"m.db", "m.db-wal", "m.db-shm", "m.db.lock", "bitrain"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", b.dir, files[i]);
        remove(path);
    }
    rmdir(b.dir);
    return code == BT_OK ? print_http_result(&b, err) : code;
}
