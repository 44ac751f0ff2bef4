/* save_async.c - copies the state, and runs each stage of the save in a thread. */
#include "engine/ckpt/save_async.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/os/own_process.h"
#include "engine/base/stream_copy.h"
#include "engine/base/threads.h"
#include "engine/ckpt/save_steps.h"

enum { PIECE = 1 << 20, ALIGN = 64, WRITER_NICE = 10 };

typedef enum { IDLE, MAKING, WRITING, COMMITTING } stage;

typedef struct copy_piece {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
} copy_piece;

struct bt_ckpt_async {
    unsigned char *room;
    size_t room_bytes;
    bt_ckpt_slice *slices; /* slices of the job, which point into `room` */
    bt_ckpt_meta meta;
    ckpt_save save;
    stage at;
    pthread_t thread;
    bool started; /* the thread was started and must be joined */
    _Atomic bool busy;
    bt_code code;   /* result of the thread; valid after the join, like the next two members */
    int64_t cpu_ns; /* processor time of the save's threads */
    bt_err err;
};

static size_t async_slice_bytes(const bt_ckpt_slice *s) {
    const size_t n = s->count * bt_ckpt_type_bytes(s->type);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t bt_ckpt_copy_bytes(const bt_ckpt_slice *slices, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += async_slice_bytes(&slices[i]);
    return sum;
}

static void copy_slice_range(void *ctx, int thread, size_t begin, size_t end) {
    const copy_piece *pieces = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        bt_stream_copy(pieces[i].to, pieces[i].from, pieces[i].bytes);
}

static size_t count_copy_pieces(const bt_ckpt_slice *s) {
    return (s->count * bt_ckpt_type_bytes(s->type) + PIECE - 1) / PIECE;
}

/* Makes slices[i].data point to the copy. */
static bt_code copy_slices(bt_ckpt_async *a, bt_ckpt_slice *slices, size_t n, bt_err *err) {
    size_t count = 0, k = 0;
    unsigned char *to = a->room;
    if (bt_ckpt_copy_bytes(slices, n) > a->room_bytes)
        return bt_fail(err, BT_NOMEM,
                       "the copy of the state needs %zu bytes, but only %zu were allocated",
                       bt_ckpt_copy_bytes(slices, n), a->room_bytes);
    for (size_t i = 0; i < n; i++) count += count_copy_pieces(&slices[i]);
    copy_piece *pieces = calloc(count + 1, sizeof *pieces);
    if (!pieces) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of %zu", count);
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = slices[i].count * bt_ckpt_type_bytes(slices[i].type);
        for (size_t at = 0; at < bytes; at += PIECE)
            pieces[k++] = (copy_piece){to + at, (const unsigned char *)slices[i].data + at,
                                       bytes - at < PIECE ? bytes - at : PIECE};
        slices[i].data = to;
        to += async_slice_bytes(&slices[i]);
    }
    bt_parallel_for(count, 1, copy_slice_range, pieces);
    free(pieces);
    return BT_OK;
}

bt_code bt_ckpt_async_create(bt_ckpt_async **out, size_t bytes, bt_err *err) {
    bt_ckpt_async *a = *out = calloc(1, sizeof *a);
    if (!a) return bt_fail(err, BT_NOMEM, "cannot allocate memory for checkpoints");
    a->room_bytes = bytes;
    /* Touches the pages now; otherwise the first copy would take twice as long. */
    a->room = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0);
    if (a->room == MAP_FAILED) {
        a->room = NULL;
        bt_ckpt_async_destroy(a);
        *out = NULL;
        return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for a copy of the state", bytes);
    }
    bt_pages_prefer_huge(a->room, bytes);
    memset(a->room, 0, bytes);
    return BT_OK;
}

static void join_stage(bt_ckpt_async *a) {
    if (a->started) pthread_join(a->thread, NULL);
    a->started = false;
}

static void finish_async_save(bt_ckpt_async *a, bt_code code) {
    ckpt_save_end(&a->save, code);
    bt_ckpt_meta_release(&a->meta);
    memset(&a->meta, 0, sizeof a->meta);
    free(a->slices);
    a->slices = NULL;
    a->at = IDLE;
}

void bt_ckpt_async_destroy(bt_ckpt_async *a) {
    if (!a) return;
    join_stage(a);
    if (a->at != IDLE) { /* without communication, because other ranks may have ended */
        a->save.made = false;
        finish_async_save(a, BT_STOPPED);
    }
    if (a->room) munmap(a->room, a->room_bytes ? a->room_bytes : 1);
    free(a);
}

static bt_code run_stage(bt_ckpt_async *a, bt_err *err) {
    const bool first = a->save.rank == 0;
    switch (a->at) {
    case MAKING: return first ? ckpt_save_make_folder(&a->save, err) : BT_OK;
    case WRITING: return ckpt_save_write(&a->save, err);
    case COMMITTING: return first ? ckpt_save_commit(&a->save, err) : BT_OK;
    case IDLE: break;
    }
    return BT_OK;
}

static void *async_save_thread(void *arg) {
    bt_ckpt_async *a = arg;
    (void)setpriority(PRIO_PROCESS, (id_t)bt_thread_number(), WRITER_NICE);
    a->code = run_stage(a, &a->err);
    a->cpu_ns += bt_thread_cpu_ns();
    atomic_store_explicit(&a->busy, false, memory_order_release);
    return NULL;
}

/* If no thread can be started, the caller does the work of the stage. */
static void begin_stage(bt_ckpt_async *a, stage at) {
    sigset_t all, old;
    a->at = at;
    a->code = BT_OK;
    a->err = (bt_err)BT_ERR_INIT;
    if (at != WRITING && a->save.rank != 0) return;
    atomic_store(&a->busy, true);
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->started = pthread_create(&a->thread, NULL, async_save_thread, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (a->started) return;
    a->code = run_stage(a, &a->err);
    atomic_store(&a->busy, false);
}

static bt_code start_async_save(bt_ckpt_async *a, const bt_ckpt_job *job, bt_ckpt_meta *meta,
                                bt_err *err) {
    a->slices = calloc(job->n + 1, sizeof *a->slices);
    if (!a->slices)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of %zu slices", job->n);
    memcpy(a->slices, job->slices, job->n * sizeof *a->slices);
    a->meta = *meta;
    memset(meta, 0, sizeof *meta);
    return copy_slices(a, a->slices, job->n, err);
}

bt_code bt_ckpt_async_start(bt_ckpt_async *a, bt_comm *c, const bt_ckpt_job *job,
                            bt_ckpt_meta *meta, bt_err *err) {
    assert(a->at == IDLE);
    bt_code code = bt_agree(c, start_async_save(a, job, meta, err), err);
    bt_ckpt_job mine = *job;
    mine.meta = &a->meta;
    mine.slices = a->slices;
    if (code == BT_OK) code = ckpt_save_begin(&a->save, c, &mine, err);
    if (code != BT_OK) {
        finish_async_save(a, code);
        return code;
    }
    a->cpu_ns = 0;
    begin_stage(a, MAKING);
    return BT_OK;
}

bool bt_ckpt_async_pending(const bt_ckpt_async *a) { return a && a->at != IDLE; }

bool bt_ckpt_async_busy(bt_ckpt_async *a) {
    return a && atomic_load_explicit(&a->busy, memory_order_acquire);
}

bt_code bt_ckpt_async_advance(bt_ckpt_async *a, bool *finished, bt_ckpt_saved *out, bt_err *err) {
    *finished = false;
    join_stage(a);
    bt_code code = a->code;
    if (code != BT_OK && err) *err = a->err;
    switch (a->at) {
    case IDLE: return BT_OK;
    case MAKING:
        code = bt_agree(a->save.c, code, err);
        a->save.made = code == BT_OK;
        if (code == BT_OK) begin_stage(a, WRITING);
        break;
    case WRITING:
        code = ckpt_save_gather(&a->save, code, err);
        if (code == BT_OK) begin_stage(a, COMMITTING);
        break;
    case COMMITTING:
        code = ckpt_save_tell(&a->save, code, out, err);
        *finished = code == BT_OK;
        if (*finished && out) out->cpu_ns = a->cpu_ns;
        break;
    }
    if (code != BT_OK || *finished) finish_async_save(a, code);
    return code;
}
