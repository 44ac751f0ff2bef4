/* exchange_thread.h - runs one exchange with the hub in a separate thread while the job continues to train.
 *
 * Order:    init -> { start -> wait* -> end }* -> release. Between start and end only the thread may access the data of
 *           `work`.
 * Threads:  the training thread calls all functions except bt_exchange_thread_note. If the system cannot create a
 *           thread, `start` calls `work` itself. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_EXCHANGE_THREAD_H
#define BT_ENGINE_ISLANDS_ISLAND_EXCHANGE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/base/status.h"

enum { BT_EXCHANGE_NOTES = 8, BT_EXCHANGE_LINE = 240 };

typedef struct bt_exchange_thread {
    bt_code (*work)(void *ctx, bt_err *err);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ready, started, busy; /* busy: guarded by the lock */
    bt_code code;              /* result of work */
    bt_err err;
    atomic_bool cancel; /* work must return soon; it polls this flag */
    struct {
        bool warning;
        char line[BT_EXCHANGE_LINE];
    } notes[BT_EXCHANGE_NOTES]; /* lines not taken yet; guarded by the lock */
    int n_notes;
} bt_exchange_thread;

bt_code bt_exchange_thread_init(bt_exchange_thread *x, bt_code (*work)(void *ctx, bt_err *err),
                                void *ctx, bt_err *err) BT_MUST_CHECK;
void bt_exchange_thread_release(bt_exchange_thread *x); /* cancels; accepts an all-zero struct */

void bt_exchange_thread_start(bt_exchange_thread *x);
/* Waits at most timeout_ms (0: not at all). Returns true if work has returned. */
bool bt_exchange_thread_wait(bt_exchange_thread *x, int timeout_ms);
/* waits, and returns the result of work */
bt_code bt_exchange_thread_end(bt_exchange_thread *x, bt_err *err) BT_MUST_CHECK;

/* The thread calls this to queue a line of at most BT_EXCHANGE_LINE bytes for the training thread. */
void bt_exchange_thread_note(bt_exchange_thread *x, bool warning, const char *line);
bool bt_exchange_thread_take_note(bt_exchange_thread *x, bool *warning, char *line);

#endif
