/* exchange_thread.c - runs each exchange with the hub in a thread, and queues the lines that it reports. */
#include "engine/islands/island/exchange_thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

bt_code bt_exchange_thread_init(bt_exchange_thread *x, bt_code (*work)(void *ctx, bt_err *err),
                                void *ctx, bt_err *err) {
    memset(x, 0, sizeof *x);
    x->work = work;
    x->ctx = ctx;
    pthread_condattr_t how;
    if (pthread_condattr_init(&how) == 0) {
        if (pthread_condattr_setclock(&how, CLOCK_MONOTONIC) == 0 &&
            pthread_mutex_init(&x->lock, NULL) == 0) {
            x->ready = pthread_cond_init(&x->changed, &how) == 0;
            if (!x->ready) pthread_mutex_destroy(&x->lock);
        }
        pthread_condattr_destroy(&how);
    }
    return x->ready ? BT_OK
                    : bt_fail(err, BT_NOMEM, "cannot start the thread that exchanges with the hub");
}

void bt_exchange_thread_release(bt_exchange_thread *x) {
    bt_err ignored = BT_ERR_INIT;
    if (!x->ready) return;
    atomic_store(&x->cancel, true);
    (void)!bt_exchange_thread_end(x, &ignored);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    x->ready = false;
}

static void *exchange_thread(void *at) {
    bt_exchange_thread *x = at;
    x->code = x->work(x->ctx, &x->err);
    pthread_mutex_lock(&x->lock);
    x->busy = false;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

void bt_exchange_thread_start(bt_exchange_thread *x) {
    sigset_t all, old;
    x->code = BT_OK;
    x->err = (bt_err)BT_ERR_INIT;
    x->busy = true;
    atomic_store(&x->cancel, false);
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    x->started = pthread_create(&x->thread, NULL, exchange_thread, x) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!x->started) exchange_thread(x);
}

bool bt_exchange_thread_wait(bt_exchange_thread *x, int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&x->lock);
    int rc = 0;
    while (x->busy && timeout_ms > 0 && rc == 0)
        rc = pthread_cond_timedwait(&x->changed, &x->lock, &until);
    const bool done = !x->busy;
    pthread_mutex_unlock(&x->lock);
    return done;
}

bt_code bt_exchange_thread_end(bt_exchange_thread *x, bt_err *err) {
    if (x->started) pthread_join(x->thread, NULL);
    x->started = false;
    if (x->code != BT_OK) *err = x->err;
    return x->code;
}

void bt_exchange_thread_note(bt_exchange_thread *x, bool warning, const char *line) {
    pthread_mutex_lock(&x->lock);
    if (x->n_notes < BT_EXCHANGE_NOTES) {
        x->notes[x->n_notes].warning = warning;
        snprintf(x->notes[x->n_notes++].line, BT_EXCHANGE_LINE, "%s", line);
    }
    pthread_mutex_unlock(&x->lock);
}

bool bt_exchange_thread_take_note(bt_exchange_thread *x, bool *warning, char *line) {
    pthread_mutex_lock(&x->lock);
    const bool any = x->n_notes > 0;
    if (any) {
        *warning = x->notes[0].warning;
        memcpy(line, x->notes[0].line, BT_EXCHANGE_LINE);
        memmove(&x->notes[0], &x->notes[1], (size_t)--x->n_notes * sizeof x->notes[0]);
    }
    pthread_mutex_unlock(&x->lock);
    return any;
}
