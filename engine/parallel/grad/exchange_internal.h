/* exchange_internal.h - what the files of the exchange share.
 *
 *     exchange.c           buckets in slots, one round after another: the interface but create
 *     exchange_rounds.c    what each round sends, receives and adds
 *     exchange_host.c      the rounds inside a host, through memory that its ranks share
 *     exchange_messages.c  messages, payloads and their counts
 *     exchange_memory.c    create, destroy, and the plan of what they take
 * Included by these alone (it shows MPI types).
 *
 * Items: buckets go one after another, in one item each; where all ranks share memory in several, a
 * stretch of every part each, so that what one rank has written is still in a cache when another reads it.
 * Items are counted from create on; item i is in slot i % n_slots. */
#ifndef BT_ENGINE_PARALLEL_GRAD_EXCHANGE_INTERNAL_H
#define BT_ENGINE_PARALLEL_GRAD_EXCHANGE_INTERNAL_H

#include "engine/base/arena.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/exchange_route.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"

enum { BT_EXCHANGE_SLOTS = 16 }; /* items on their way at most */

/* SUM_INSIDE     the ranks of a host group -> its relay for every owner: nodes of the owner's part
 * SUM_ACROSS     relays -> owners: the host group's nodes; the owner adds all, in the order of the tree
 * BACK_ACROSS    owners -> relays: the sum
 * BACK_INSIDE    owners and relays -> their host group: the sum
 * What goes ACROSS is encoded (codec.h), what stays INSIDE a host is fp32, in messages, or in memory that
 * the ranks share (exchange_host.c). */
typedef enum bt_round {
    BT_ROUND_SUM_INSIDE,
    BT_ROUND_SUM_ACROSS,
    BT_ROUND_BACK_ACROSS,
    BT_ROUND_BACK_INSIDE,
    BT_ROUND_COUNT,
    BT_ROUND_NONE = BT_ROUND_COUNT /* of a slot: it is free */
} bt_round;

/* rank of the world; 0 bytes: one that leaves */
typedef struct bt_exchange_message {
    int from;
    size_t bytes;
    size_t *arrived; /* a payload: how many bytes came, at most `bytes`; else NULL */
} bt_exchange_message;

typedef struct bt_exchange_slot {
    bt_round round;
    uint64_t item;
    size_t bucket, piece; /* and which stretch of its parts */
    int turn;             /* shared memory: the next rank whose sums are taken */
    /* (owners relayed, nodes of the other ranks of the host group) pieces; in shared memory one node at
     * least */
    float *inside;
    /* payloads, or, where nothing is encoded, parts: (nodes of the other host groups) that arrive,
     * then this rank's sum that goes back */
    unsigned char *in;
    /* encoded only: (nodes of the host group for every owner relayed) payloads that leave, then sums
     * that come back */
    unsigned char *out;
    size_t *payload_bytes; /* of the payloads that arrived in this round */
    MPI_Request *requests;
    bt_exchange_message *messages; /* what each request brings */
    int n_requests, n_left;
    uint64_t logical, wire; /* bytes sent in this round */
    int64_t asked_ns;
} bt_exchange_slot;

/* what the ranks of the host group share; indices of its ranks are from its first */
typedef struct bt_exchange_host {
    bt_host_memory memory; /* memory.at NULL: they send messages */
    size_t *region;        /* (ranks) where a rank's boxes begin, bytes */
    size_t *relayed;       /* (ranks) owners that it relays, */
    size_t *number;        /* (all ranks) and which of them an owner is */
    size_t *before;        /* (ranks + 1) nodes of the ranks before it */
} bt_exchange_host;

struct bt_exchange {
    bt_exchange_cfg cfg;
    bt_route route;
    bt_exchange_host host;
    const bt_codec *codec;
    bt_payload_form back; /* of BACK_ACROSS; of SUM_ACROSS the plan's */
    size_t part, piece;   /* elements; piece: of a part in one item */
    size_t pieces;        /* items of a bucket */
    size_t place_bytes;   /* bytes between two places of in or out */
    float *scratch;       /* (nodes that wait at the same time) parts: decoded */
    unsigned char *state; /* (elements) of error feedback, perhaps borrowed; NULL: none */
    bt_tree_sum mine;     /* this rank's nodes, with arrays */
    bt_arena arena;
    bt_exchange_slot slots[BT_EXCHANGE_SLOTS]; /* n_slots of them are used */
    size_t n_slots;
    int *arrived; /* requests that came in this poll, */
    MPI_Status *statuses;
    /* items: of the first bucket; started by the caller, on their way, arrived */
    uint64_t first, asked, posted, done;
    bool moved; /* something went or came */
    int64_t still_since_ns;
};

/* ---- exchange_rounds.c ----------------------------------------------------------------------- */

/* post sends, and asks for, the messages of a round; when they have come and gone, and what does not come
 * in messages has come (NULL: all does), finish (NULL: nothing) */
typedef struct bt_round_ops {
    bt_code (*post)(bt_exchange *x, bt_exchange_slot *s, bt_err *err);
    bt_code (*finish)(bt_exchange *x, bt_exchange_slot *s, bt_err *err);
    bool (*came)(bt_exchange *x, bt_exchange_slot *s);
} bt_round_ops;
extern const bt_round_ops bt_rounds[BT_ROUND_COUNT];
/* what an owner owns of the slot's item; empty in a short bucket's last parts */
bt_range bt_exchange_owned_by(const bt_exchange *x, const bt_exchange_slot *s, int owner);
bt_code bt_exchange_discard_others(bt_exchange *x, bt_exchange_slot *s, bt_err *err);

/* ---- exchange_host.c ------------------------------------------------------------------------- */

extern const bt_round_ops bt_host_rounds[BT_ROUND_COUNT]; /* the two inside a host */
bt_code bt_exchange_host_plan(bt_exchange_host *h, const bt_route *r, bt_err *err) BT_MUST_CHECK;
/* Collective over the data-parallel ranks, after the plan; n_slots and piece are known. memory.at is NULL,
 * which is no error, where the ranks of this host group do not share memory */
bt_code bt_exchange_host_open(bt_exchange *x, bt_err *err) BT_MUST_CHECK;
void bt_exchange_host_release(bt_exchange_host *h); /* accepts an all-zero struct */
/* a slot's `inside` */
float *bt_exchange_host_inside(const bt_exchange *x, size_t slot);
/* the other ranks have done with what the item's slot held before */
bool bt_exchange_host_free(const bt_exchange *x, uint64_t item);
/* until another rank may have come, or a millisecond has passed */
void bt_exchange_host_sleep(const bt_exchange *x);

/* ---- exchange_messages.c --------------------------------------------------------------------- */

bool bt_exchange_encoded(const bt_exchange *x);
/* n gradients as fp32, into or from an array */
bt_code bt_exchange_receive_part(bt_exchange *x, bt_exchange_slot *s, float *to, size_t n, int from,
                                 bt_err *err) BT_MUST_CHECK;
bt_code bt_exchange_send_part(bt_exchange *x, bt_exchange_slot *s, const float *from, size_t n,
                              int to, bt_err *err) BT_MUST_CHECK;
/* the gradients r in a payload (fp32 where nothing is encoded), at place i of a region; the bytes that
 * came will stand in s->payload_bytes[i] */
bt_code bt_exchange_receive_payload(bt_exchange *x, bt_exchange_slot *s, unsigned char *region,
                                    size_t i, bt_range r, int from, bt_err *err) BT_MUST_CHECK;
/* n gradients in `bytes` bytes */
bt_code bt_exchange_send(bt_exchange *x, bt_exchange_slot *s, const void *from, size_t bytes,
                         size_t n, int to, bt_err *err) BT_MUST_CHECK;
/* the gradients r of the flat array, from `from` on, into a payload of this round. Returns its bytes */
size_t bt_exchange_encode(const bt_exchange *x, const bt_exchange_slot *s, unsigned char *payload,
                          const float *from, bt_range r);
/* what decoding said of a payload of n gradients, as an error */
bt_code bt_exchange_check_payload(bool valid, const bt_exchange *x, size_t n, size_t bytes,
                                  bt_err *err) BT_MUST_CHECK;
/* the messages that have come since the last look */
bt_code bt_exchange_take_arrivals(bt_exchange *x, bt_exchange_slot *s, bt_err *err) BT_MUST_CHECK;
void bt_exchange_count_sent(const bt_exchange *x, const bt_exchange_slot *s);

#endif
