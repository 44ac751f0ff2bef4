/* record.h - private to store/: encodes every call of a sink as bytes, and queues the records.
 *
 * One encoding serves the writer's queue, the frames of the wire and the ring file: a sink
 * encodes each call into a bt_record and queues it; the bytes are unchanged until the writer
 * delivers them to its own sink. The head has the step and the number of rows, so a queue or a
 * supervisor need not decode the payload. Delivery checks every length, count and string against
 * the record.
 * Queue:    pushed by one thread (the training thread, or the supervisor), taken by one other.
 *           push never waits. Above max_bytes the oldest per-rank values and the oldest rows of
 *           sampled scopes are dropped and counted; step values, events and checkpoints are
 *           kept. */
#ifndef BT_STORE_RECORD_RECORD_H
#define BT_STORE_RECORD_RECORD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/sink.h"

typedef enum {
    BT_REC_RANKS = 1,
    BT_REC_FACT,
    BT_REC_STEP,
    BT_REC_ROWS,
    BT_REC_EVENT,
    BT_REC_CKPT,
    BT_REC_RESULT,
    BT_REC_COUNT
} bt_rec_kind;

typedef struct bt_record_head {
    uint32_t kind, bytes; /* bytes: payload size */
    int64_t step;         /* -1: no step */
    uint32_t rows;        /* ROWS: rows of a sampled scope; RANKS: ranks */
    uint32_t rank_rows;   /* STEP: number of ranks whose values end the payload */
} bt_record_head;

typedef struct bt_record {
    struct bt_record *next;
    bt_record_head head;
    _Alignas(8) unsigned char data[];
} bt_record;

/* The following functions return a malloc'd record, or NULL if out of memory. */
bt_record *bt_record_ranks(const bt_rank_info *ranks, size_t n);
bt_record *bt_record_fact(const char *key, const char *value);
bt_record *bt_record_step(const bt_step_record *r);
bt_record *bt_record_rows(const bt_row_record *r);
bt_record *bt_record_event(const bt_event *e);
bt_record *bt_record_ckpt(const bt_ckpt_record *c);
bt_record *bt_record_result(const char *json);
/* Allocates room for the payload, which the caller fills. */
bt_record *bt_record_empty(const bt_record_head *head);
/* Checks the record and calls the sink's function for it, if there is one. data must be aligned to 8. Returns false,
 * without a call, if it is malformed. */
bool bt_record_deliver(const bt_record_head *head, const void *data, const bt_sink *into);
void bt_records_free(bt_record *list);
/* Removes the rank values of a STEP record; returns the number of ranks removed */
uint32_t bt_record_drop_ranks(bt_record *r);

/* Hash of the tables that define the payloads: metrics, scopes, events. Equal hashes mean equal encodings. */
uint64_t bt_record_mark(void);

typedef struct bt_queue {
    pthread_mutex_t mu;
    pthread_cond_t work, drained; /* CLOCK_MONOTONIC */
    bt_record *head, *tail;
    size_t bytes, max_bytes, in_flight;
    uint64_t dropped;           /* dropped rows of ranks and of sampled scopes */
    bool sleeping;              /* the taker waits for work, so a push must wake it */
    bool flush_requested, stop; /* flush requested; end requested */
    bool closed;                /* no thread takes records any longer, so a push frees its record */
    int wake_fd;                /* bt_wake_fd that is notified instead of `work`; -1: none */
    /* ring that also receives pushed records, even after `closed`; borrowed, NULL: none */
    struct bt_ring *ring;
} bt_queue;

bool bt_queue_init(bt_queue *q, size_t max_bytes);
void bt_queue_release(bt_queue *q);
/* Takes ownership of r; NULL counts as dropped. */
void bt_queue_push(bt_queue *q, bt_record *r);
/* Takes the oldest records; they are in flight until `done` or `requeue` */
bt_record *bt_queue_take(bt_queue *q, size_t max_bytes);
void bt_queue_done(bt_queue *q);
void bt_queue_requeue(bt_queue *q, bt_record *list); /* back to the front */
/* Sets &q->flush_requested or &q->stop, and wakes the taker. */
void bt_queue_set(bt_queue *q, bool *flag, bool value);
/* Returns false if the queue is not empty after ns. */
bool bt_queue_wait_drained(bt_queue *q, int64_t ns);
/* Sets `closed` and frees the queued records. */
void bt_queue_close(bt_queue *q);
uint64_t bt_queue_dropped(bt_queue *q);
/* Fills in a sink that encodes and pushes. */
void bt_queue_sink(bt_queue *q, bt_sink *out);

#endif
