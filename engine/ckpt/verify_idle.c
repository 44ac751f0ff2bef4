/* verify_idle.c - reads a checkpoint again in a thread with low priority. */
#include "engine/ckpt/verify_idle.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/os/own_process.h"
#include "engine/ckpt/format.h"

struct bt_ckpt_reread {
    char path[PATH_MAX];
    pthread_t thread;
    _Atomic bool stop, over;
    bt_ckpt_checked found; /* valid after the thread has ended */
};

/* SCHED_IDLE is not used: a killed process exits when its last thread does, and on a busy machine such a thread was not
 * scheduled for seconds, which delayed the exit and the restart of the rank. */
static const double SHARE = 0.01;

static bt_code reread_all_files(bt_ckpt_reread *c, bt_err *err) {
    ckpt_manifest m;
    memset(&m, 0, sizeof m);
    BT_TRY(ckpt_manifest_read(c->path, &m, err));
    const ckpt_reading how = {.stop = &c->stop, .from_disk = true, .share = SHARE};
    bt_code code = BT_OK;
    for (size_t i = 0; i < m.n_files && code == BT_OK; i++) {
        code = ckpt_file_read_whole(c->path, &m.files[i], m.generation, m.meta.step, &how, err);
        c->found.bytes += (int64_t)m.files[i].bytes;
    }
    ckpt_manifest_release(&m);
    return code;
}

static void *reread_thread(void *arg) {
    bt_ckpt_reread *c = arg;
    const int64_t began = bt_now_ns();
    bt_thread_use_idle_disk();
    c->found.code = reread_all_files(c, &c->found.err);
    c->found.took_s = (double)(bt_now_ns() - began) / 1e9;
    atomic_store_explicit(&c->over, true, memory_order_release);
    return NULL;
}

bt_code bt_ckpt_reread_start(bt_ckpt_reread **out, const char *path, bt_err *err) {
    sigset_t all, old;
    bt_ckpt_reread *c = *out = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s' again", path);
    c->found.err = (bt_err)BT_ERR_INIT;
    snprintf(c->path, sizeof c->path, "%s", path);
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = pthread_create(&c->thread, NULL, reread_thread, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0) return BT_OK;
    free(c);
    *out = NULL;
    return bt_fail_errno(err, BT_NOMEM, rc, "cannot start a thread to read '%s' again", path);
}

bool bt_ckpt_reread_done(bt_ckpt_reread *c, bt_ckpt_checked *out) {
    if (!atomic_load_explicit(&c->over, memory_order_acquire)) return false;
    *out = c->found;
    return true;
}

void bt_ckpt_reread_destroy(bt_ckpt_reread *c) {
    if (!c) return;
    atomic_store(&c->stop, true);
    pthread_join(c->thread, NULL);
    free(c);
}
