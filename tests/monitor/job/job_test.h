/* job_test.h - a supervisor's job without processes, for tests of its parts: a wire to which a simulated rank 0
 * connects, and a screen that records its output. */
#ifndef BT_TESTS_MONITOR_JOB_TEST_H
#define BT_TESTS_MONITOR_JOB_TEST_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/tables/event.h"
#include "monitor/job/job.h"

typedef struct desk {
    char dir[64], shown[8192]; /* events as lines: "warning 1 title {body}" */
    bt_job_setup setup;
    bt_job_result result;
    bt_job job;
    bt_wire *rank; /* NULL: not connected */
    pthread_mutex_t lock;
    char told[2048]; /* messages to the rank: "set 0.5;sample 0 Once;" */
} desk;

static inline void desk_show(void *ctx, const bt_event *e) {
    desk *d = ctx;
    const size_t n = strlen(d->shown);
    snprintf(d->shown + n, sizeof d->shown - n, "%s %d %s%s%s\n", bt_events[e->kind].name, e->rank,
             e->title, e->body ? " " : "", e->body ? e->body : "");
}

static inline void desk_told(void *ctx, const bt_ctl *c) {
    desk *d = ctx;
    pthread_mutex_lock(&d->lock);
    const size_t n = strlen(d->told);
    snprintf(d->told + n, sizeof d->told - n, "%s %g%s%s;", bt_verbs[c->verb].word, c->value,
             c->text[0] ? " " : "", c->text);
    pthread_mutex_unlock(&d->lock);
}

static inline int desk_open(void **state) {
    desk *d = calloc(1, sizeof *d);
    char path[96];
    bt_err err = BT_ERR_INIT;
    strcpy(d->dir, "/tmp/bt_job_XXXXXX");
    if (!mkdtemp(d->dir)) return -1;
    pthread_mutex_init(&d->lock, NULL);
    d->setup = (bt_job_setup){.run = "r",
                              .out_dir = d->dir,
                              .hosts = "",
                              .ranks = 2,
                              .run_lock = -1,
                              .lr = 0.002,
                              .alert = {.command = "", .webhook = "", .curl = ""},
                              .ui = {.ctx = d, .event = desk_show, .input_fd = -1}};
    d->job = (bt_job){.s = &d->setup,
                      .result = &d->result,
                      .world_size = 2,
                      .last_step = -1,
                      .leaving = -1,
                      .lr_factor = 1,
                      .told_factor = 1,
                      .from = {.lr_factor = 1}};
    snprintf(path, sizeof path, "%s/wire", d->dir);
    if (bt_wire_listen(&d->job.wire, path, &err) != BT_OK) return -1;
    bt_job_run_sink(&d->job);
    *state = d;
    return 0;
}

static inline void desk_serve(desk *d) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_wire_serve(d->job.wire, d->job.attempt, &d->job.into, &err), BT_OK);
}

static inline void desk_connect(desk *d) {
    const bt_wire_handlers h = {.ctx = d, .control = desk_told};
    char path[96];
    bt_err err = BT_ERR_INIT;
    snprintf(path, sizeof path, "%s/wire", d->dir);
    assert_int_equal(bt_wire_connect(&d->rank, path, d->job.attempt, &h, &err), BT_OK);
    while (!bt_wire_connected(d->job.wire)) desk_serve(d);
}

static inline void desk_leave(desk *d) {
    bt_wire_close(d->rank);
    d->rank = NULL;
    while (bt_wire_connected(d->job.wire)) desk_serve(d);
}

/* Waits until the rank has received exactly this since the last call. */
static inline void desk_hears(desk *d, const char *want) {
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&d->lock);
        const bool same = strcmp(d->told, want) == 0;
        const size_t n = strlen(d->told);
        if (same) d->told[0] = '\0';
        pthread_mutex_unlock(&d->lock);
        if (same) return;
        if (n >= strlen(want)) break;
        bt_sleep_ns(1000000);
    }
    fail_msg("the rank received '%s', not '%s'", d->told, want);
}

/* Compares the output since the last call. */
static inline void desk_shows(desk *d, const char *want) {
    assert_string_equal(d->shown, want);
    d->shown[0] = '\0';
}

static inline int desk_close(void **state) {
    desk *d = *state;
    char cmd[96];
    bt_wire_close(d->rank);
    bt_wire_server_close(d->job.wire);
    bt_job_result_release(&d->result);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", d->dir);
    const int rc = system(cmd);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return rc;
}

#endif
