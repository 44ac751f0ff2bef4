/* island_message.h - a message between the hub and an island: a frame with a head of 64 bytes and a payload.
 *
 * The byte order is little-endian, like that of the supported processors. The checksum in the head (XXH3-64 of the
 * frame with the checksum field zero) covers every byte. A parser accepts a frame completely or returns an error; it
 * never reads beyond the frame.
 * Threads: pure functions. */
#ifndef BT_ENGINE_ISLANDS_WIRE_ISLAND_MESSAGE_H
#define BT_ENGINE_ISLANDS_WIRE_ISLAND_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

enum {
    BT_ISLAND_VERSION = 4, /* protocol version */
    BT_ISLAND_CHUNK =
        256
        << 10, /* payload of a chunk in bytes; it is small because CURVE copies a frame three times */
    BT_ISLAND_HEAD = 64,
    BT_ISLAND_FRAME = BT_ISLAND_HEAD + BT_ISLAND_CHUNK, /* the largest frame */
    BT_ISLAND_WINDOW = 4,       /* number of weight chunks that an island requests ahead */
    BT_ISLAND_CHUNKS = 1 << 20, /* maximum number of chunks of one update: 256 GiB */
    BT_ISLAND_NAME = 64,
    BT_ISLAND_LINE = 240 /* maximum length of a notice, with its terminating zero */
};

/* Kind of an update, whose sequence number is head.seq. */
typedef enum { BT_PUSH_WEIGHTS, BT_PUSH_GRADIENT, BT_PUSH_DELTA } bt_push_kind;

typedef struct bt_island_push {
    int64_t kind;  /* bt_push_kind */
    int64_t bytes; /* sum over all chunks; 0 if there is no update */
    int64_t base;  /* version of the weights from which the update was computed */
    /* weight of the island in the mean; 0: there is no update to apply, because the step was skipped */
    int64_t tokens;
    int64_t steps;     /* inner steps of the update */
    int64_t sequences; /* sequences per step, for the size of the next lease */
    double loss;       /* mean loss of these steps on the island; NaN: unknown */
    double grad_norm;
} bt_island_push;

/* Arrays that an island can fetch from the hub. */
typedef enum {
    BT_FETCH_WEIGHTS, /* as fp32 */
    BT_FETCH_UPDATE,  /* newest published change of the weights, encoded by the codec */
    BT_FETCH_MOMENT1, /* optimizer states of the hub, as fp32 */
    BT_FETCH_MOMENT2
} bt_fetch_kind;

typedef struct bt_island_fetch {
    int64_t kind;     /* bt_fetch_kind */
    int64_t version;  /* for UPDATE: version of the weights after the update */
    int64_t first, n; /* range of chunks */
} bt_island_fetch;

typedef struct bt_island_welcome {
    int64_t island, incarnation; /* used in the heads of all further messages */
    int64_t applied;      /* highest sequence number of this island that the hub has acknowledged */
    int64_t elements;     /* length of the flat array */
    int64_t want_weights; /* 1: the hub has no weights yet; push the first ones */
    int64_t resend;       /* 1: push the update that the hello named again */
    int64_t had;          /* 1: that update was processed before; its go follows */
} bt_island_welcome;

#define BT_UPDATE_OUTCOME(id, name, help) BT_UPDATE_##id,
typedef enum bt_update_outcome {
#include "engine/islands/wire/update_outcomes.def"
    BT_UPDATE_OUTCOMES
} bt_update_outcome;
#undef BT_UPDATE_OUTCOME

typedef struct bt_island_go {
    int64_t seq;     /* number of the push that this go acknowledges; 0: the hello */
    int64_t outcome; /* bt_update_outcome of that push */
    int64_t version; /* current version of the hub's weights */
    int64_t clock;   /* steps that this island has done in the job */
    int64_t kind;    /* bt_push_kind of the next push */
    int64_t steps;   /* inner steps until the next push; 0: the job is finished */
    /* The sequences of the next step are [begin, begin + n), those of the following step [begin + stride, ...). They
     * are leased to this island for `steps` steps. */
    int64_t begin, stride, n;
    int64_t offset; /* sequences of the same round before these */
    /* number of updates of other islands between this island's fetch and its push */
    int64_t staleness;
    int64_t islands; /* number of members that train */
    int64_t tokens;  /* tokens in the update that includes this push */
    int64_t moments; /* 1: fetch the optimizer states as well */
    /* The update after the next one has `next_steps` steps on [next_begin, ...), in the same layout. The island may
     * begin them before the hub acknowledges its push. 0: not leased yet. */
    int64_t next_begin, next_steps;
    int64_t fragment;            /* fragment of the next delta (islands.fragments) */
    double lr, grad_norm, decay; /* values used for that update; NaN: unknown */
} bt_island_go;

#define BT_ISLAND_MESSAGE(id, name, from, least, most, help) BT_ISLAND_##id,
typedef enum bt_island_type {
#include "engine/islands/wire/island_messages.def"
    BT_ISLAND_TYPES
} bt_island_type;
#undef BT_ISLAND_MESSAGE

typedef struct bt_island_head {
    bt_island_type type;
    uint64_t epoch; /* random number of this start of the hub; 0 in the first hello */
    uint32_t island, incarnation;
    uint64_t seq;     /* sequence number of the update */
    uint64_t version; /* for PART: version of the weights in the chunk */
    uint32_t chunk, chunks;
    uint32_t bytes; /* size of the payload */
} bt_island_head;

typedef enum { BT_SENT_BY_ISLAND, BT_SENT_BY_HUB } bt_island_sender;

const char *bt_island_type_name(bt_island_type t);
const char *bt_update_outcome_name(bt_update_outcome o);
const char *bt_update_outcome_help(bt_update_outcome o); /* a sentence; static storage */
/* frame: room for BT_ISLAND_HEAD + head->bytes. Returns the number of bytes of the frame. */
size_t bt_island_write(void *frame, const bt_island_head *head, const void *payload);
/* Validates a frame; *payload points into it. BT_FORMAT: damaged. BT_UNSUPPORTED: another version. */
bt_code bt_island_parse(const void *frame, size_t bytes, bt_island_sender from,
                        bt_island_head *head, const void **payload, bt_err *err) BT_MUST_CHECK;

/* Copies the value of `key` from the lines 'key=value' of a hello. false: missing or too long. */
int bt_island_line(const char *text, size_t n, const char *key, char *out, size_t size);

#endif
