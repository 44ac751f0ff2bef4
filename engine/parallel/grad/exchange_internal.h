/* exchange_internal.h - declarations shared by the files of the exchange.
 *
 *     exchange.c           buckets in slots, one round after another: the interface except create
 *     exchange_rounds.c    data sent, received and added in each round
 *     exchange_host.c      the rounds inside a host, through shared memory
 *     exchange_messages.c  messages, payloads and their counts
 *     exchange_memory.c    create, destroy, and the memory plan
 *
 * Only these files include this header, because it exposes MPI types.
 *
 * Items: a bucket is one item. If all ranks share memory it is several, each with a piece of every part, so that
 *        data written by one rank are still cached when another reads them. Items are counted from create on; item
 *        i is in slot i % n_slots. */
#ifndef BT_ENGINE_PARALLEL_GRAD_EXCHANGE_INTERNAL_H
#define BT_ENGINE_PARALLEL_GRAD_EXCHANGE_INTERNAL_H

#include "engine/base/arena.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/exchange_route.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"

enum { BT_EXCHANGE_SLOTS = 16 }; /* maximum number of items in flight */

/* SUM_INSIDE     ranks of a host group -> its relay for every owner: nodes of the owner's part
 * SUM_ACROSS     relays -> owners: the host group's nodes; the owner adds all, in the order of the tree
 * BACK_ACROSS    owners -> relays: the sum
 * BACK_INSIDE    owners and relays -> their host group: the sum
 * Messages ACROSS are encoded (codec.h); data INSIDE a host are fp32, in messages or in shared memory
 * (exchange_host.c). */
typedef enum bt_round {
    BT_ROUND_SUM_INSIDE,
    BT_ROUND_SUM_ACROSS,
    BT_ROUND_BACK_ACROSS,
    BT_ROUND_BACK_INSIDE,
    BT_ROUND_COUNT,
    BT_ROUND_NONE = BT_ROUND_COUNT /* the slot is free */
} bt_round;

/* from: rank in the world; bytes 0: a message being sent */
typedef struct bt_exchange_message {
    int from;
    size_t bytes;
    size_t *arrived; /* number of received bytes of a payload, at most `bytes`; otherwise NULL */
} bt_exchange_message;

typedef struct bt_exchange_slot {
    bt_round round;
    uint64_t item;
    size_t bucket, piece; /* bucket and piece of its parts */
    int turn;             /* shared memory: the next rank whose sums are read */
    /* pieces (owners relayed, nodes of the other ranks of the host group); in shared memory at least one node */
    float *inside;
    /* received payloads, or parts if they are not encoded: (nodes of the other host groups), then this rank's sum to
     * send back */
    unsigned char *in;
    /* encoded only: payloads to send (nodes of the host group for every owner relayed), then received sums */
    unsigned char *out;
    size_t *payload_bytes; /* sizes of the payloads received in this round */
    MPI_Request *requests;
    bt_exchange_message *messages; /* the message of each request */
    int n_requests, n_left;
    uint64_t logical, wire; /* bytes sent in this round */
    int64_t asked_ns;
} bt_exchange_slot;

/* shared state of a host group, whose ranks are counted from its first */
typedef struct bt_exchange_host {
    bt_host_memory memory; /* memory.at NULL: the ranks send messages */
    size_t *region;        /* (ranks) offset of each rank's boxes in bytes */
    size_t *relayed;       /* (ranks) number of owners that it relays */
    size_t *number; /* (all ranks) index of an owner among the owners that its relay serves */
    size_t *before; /* (ranks + 1) number of nodes of earlier ranks */
} bt_exchange_host;

struct bt_exchange {
    bt_exchange_cfg cfg;
    bt_route route;
    bt_exchange_host host;
    const bt_codec *codec;
    bt_payload_form back; /* encoding of BACK_ACROSS; SUM_ACROSS uses the plan's */
    size_t part, piece;   /* numbers of elements; piece: part of an item */
    size_t pieces;        /* number of items per bucket */
    size_t place_bytes;   /* bytes between two buffers of in or out */
    float *scratch;       /* decoded parts of the nodes that wait for a sibling at the same time */
    unsigned char *state; /* (elements) state of error feedback, perhaps borrowed; NULL: none */
    bt_tree_sum mine;     /* this rank's nodes, with arrays */
    bt_arena arena;
    bt_exchange_slot slots[BT_EXCHANGE_SLOTS]; /* n_slots of them are used */
    size_t n_slots;
    int *arrived; /* indices of the requests completed in this poll */
    MPI_Status *statuses;
    /* numbers of items: first of the bucket; started by the caller, in flight, complete */
    uint64_t first, asked, posted, done;
    bool moved; /* a message was sent or received in this poll */
    int64_t still_since_ns;
};

/* ---- exchange_rounds.c ----------------------------------------------------------------------- */

/* post sends and receives the messages of a round. When these are complete and `came` returns true (NULL: always),
 * finish is called (NULL: nothing). */
typedef struct bt_round_ops {
    bt_code (*post)(bt_exchange *x, bt_exchange_slot *s, bt_err *err);
    bt_code (*finish)(bt_exchange *x, bt_exchange_slot *s, bt_err *err);
    bool (*came)(bt_exchange *x, bt_exchange_slot *s);
} bt_round_ops;
extern const bt_round_ops bt_rounds[BT_ROUND_COUNT];
/* Returns the range that an owner owns in the slot's item; empty in the last parts of a short bucket. */
bt_range bt_exchange_owned_by(const bt_exchange *x, const bt_exchange_slot *s, int owner);
bt_code bt_exchange_discard_others(bt_exchange *x, bt_exchange_slot *s, bt_err *err);

/* ---- exchange_host.c ------------------------------------------------------------------------- */

extern const bt_round_ops bt_host_rounds[BT_ROUND_COUNT]; /* the two rounds inside a host */
bt_code bt_exchange_host_plan(bt_exchange_host *h, const bt_route *r, bt_err *err) BT_MUST_CHECK;
/* Collective over the data-parallel ranks, after the plan; n_slots and piece are set. If the ranks of this host
 * group do not share memory, memory.at is NULL, which is not an error. */
bt_code bt_exchange_host_open(bt_exchange *x, bt_err *err) BT_MUST_CHECK;
void bt_exchange_host_release(bt_exchange_host *h); /* accepts an all-zero struct */
/* Returns a slot's `inside`. */
float *bt_exchange_host_inside(const bt_exchange *x, size_t slot);
/* Returns true if the other ranks no longer need the previous content of the item's slot. */
bool bt_exchange_host_free(const bt_exchange *x, uint64_t item);
/* Sleeps at most 1 ms, until another rank may have arrived. */
void bt_exchange_host_sleep(const bt_exchange *x);

/* ---- exchange_messages.c --------------------------------------------------------------------- */

bool bt_exchange_encoded(const bt_exchange *x);
/* Receives or sends n gradients as fp32. */
bt_code bt_exchange_receive_part(bt_exchange *x, bt_exchange_slot *s, float *to, size_t n, int from,
                                 bt_err *err) BT_MUST_CHECK;
bt_code bt_exchange_send_part(bt_exchange *x, bt_exchange_slot *s, const float *from, size_t n,
                              int to, bt_err *err) BT_MUST_CHECK;
/* Receives the gradients r in a payload (fp32 if not encoded) at index i of a region; s->payload_bytes[i] receives
 * the number of bytes. */
bt_code bt_exchange_receive_payload(bt_exchange *x, bt_exchange_slot *s, unsigned char *region,
                                    size_t i, bt_range r, int from, bt_err *err) BT_MUST_CHECK;
/* Sends n gradients in `bytes` bytes. */
bt_code bt_exchange_send(bt_exchange *x, bt_exchange_slot *s, const void *from, size_t bytes,
                         size_t n, int to, bt_err *err) BT_MUST_CHECK;
/* Encodes the gradients r of the flat array, from `from` on, as a payload of this round. Returns its size. */
size_t bt_exchange_encode(const bt_exchange *x, const bt_exchange_slot *s, unsigned char *payload,
                          const float *from, bt_range r);
/* Turns the result of decoding a payload of n gradients into an error. */
bt_code bt_exchange_check_payload(bool valid, const bt_exchange *x, size_t n, size_t bytes,
                                  bt_err *err) BT_MUST_CHECK;
/* Handles the messages received since the last call. */
bt_code bt_exchange_take_arrivals(bt_exchange *x, bt_exchange_slot *s, bt_err *err) BT_MUST_CHECK;
void bt_exchange_count_sent(const bt_exchange *x, const bt_exchange_slot *s);

#endif
