/* hub_server.h - the hub of a job of islands: it manages members, applies their updates and decides which islands may
 * begin the next step. The caller supplies frames and times, so the hub uses neither sockets nor a clock.
 *
 *     an island            the hub
 *     hello             -> are the settings equal to the job's? does the key match the name? then
 *                       <- welcome; the first island sends the first weights
 *                       <- go: the step's data, the version of the weights
 *     fetch             -> parts of the weights, or of the newest update
 *     chunk* push       -> staged, checked, applied by the mode's rule
 *                       <- go: applied; may begin the next step
 *     bye
 *
 * (island, incarnation, seq) identifies an update. The hub applies each at most once: it repeats the go for a
 * repeated push and ignores an older one. A sender from before the hub's last start (epoch) receives 'stranger'
 * and must send hello.
 * Threads: one. */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_SERVER_H
#define BT_ENGINE_ISLANDS_HUB_HUB_SERVER_H

#include "engine/base/sink.h"
#include "engine/islands/hub/hub_model.h"
#include "engine/islands/rules/data_lease.h"
#include "engine/islands/wire/hub_port.h"
#include "engine/islands/wire/island_message.h"
#include "engine/parallel/mpi/comm.h"

enum { BT_HUB_ISLANDS = 64, BT_HUB_STALENESS = 65, BT_HUB_ROUNDS = 8 };

typedef enum {
    BT_MEMBER_NONE,
    BT_MEMBER_JOINS,
    BT_MEMBER_TRAINS,
    BT_MEMBER_DEAD,
    BT_MEMBER_LEFT
} bt_member_state;

typedef struct bt_member { /* one island */
    bt_member_state state;
    bt_hub_peer peer;
    uint32_t incarnation;
    char name[BT_ISLAND_NAME], host[BT_HOST_MAX], key[44];
    int pid;
    int64_t ranks;
    int64_t clock;                       /* number of steps that it has done in the job */
    int64_t base;                        /* version of the weights that its newest go names */
    int64_t round;                       /* round of its next update */
    uint64_t applied;                    /* highest acknowledged sequence number */
    int64_t outcome;                     /* bt_update_outcome of the update `applied` */
    uint64_t staging;                    /* sequence number of the update in `staged` */
    unsigned char *staged, *have;        /* (chunks x BT_ISLAND_CHUNK), (chunks) */
    uint32_t chunks, arrived, end_bytes; /* end_bytes: size of the last chunk */
    bool pushed;                         /* all chunks have arrived */
    bool waits;                          /* it waits for a go */
    bt_island_push push;
    bt_island_go go;
    int64_t sequences;        /* number of sequences per step */
    int64_t lease, lease_end; /* sequences leased to it for an update that is not applied yet */
    int64_t next, next_end;   /* sequences of its next round of inner steps; equal: none */
    int64_t seen_ns, pinged_ns, gone_ns; /* gone_ns 0: the island is connected */
    int64_t tokens, bytes;               /* tokens of applied updates; received bytes */
    int64_t updates, left_out;           /* applied updates; rejected updates with tokens */
    int64_t told_bytes;                  /* value of `bytes` in the newest step record */
    double loss;
    /* time at which its newest go was sent; time at which its newest message other than a sign of life arrived */
    int64_t go_ns, worked_ns;
    int64_t pushed_ns; /* time of its newest complete update; 0: none yet */
    /* times between complete updates; the newest n_rounds are valid */
    int64_t rounds_ns[BT_HUB_ROUNDS];
    size_t n_rounds;
    bool named, overdue; /* named: the delay was reported; overdue: the job does not wait for it */
    bt_island_fetch fetch; /* requested parts for which the queue had no room; n 0: none */
} bt_member;

typedef struct bt_hub_cfg {
    bt_hub_port port;
    int islands;      /* the job begins when so many islands have joined */
    double grace_s;   /* an island without a connection is declared dead after this time */
    double silence_s; /* a connected island that sends nothing is declared dead after this time */
    /* longest wait for an update, at least 3 of the island's rounds; 0: no limit */
    double overdue_s;
    int quorum; /* number of updates that completes a round of islands that step together; 0: all */
    double quorum_s; /* time to wait for further updates after the quorum */
    /* a delta may be late by so many rounds (bt_outer_average), later ones are rejected */
    int64_t late;
    const bt_sink *sink; /* may be NULL; borrowed */
    uint64_t epoch;      /* random, not 0 */
    /* Waits about a second after the disk refused something; false: the hub must end. NULL: a refusal ends it. */
    bool (*wait)(void *ctx);
    void *wait_ctx;
} bt_hub_cfg;

typedef struct bt_hub {
    bt_hub_cfg cfg;
    bt_hub_model *model; /* NULL: no island has sent hello yet */
    bt_text settings;    /* settings of the job */
    bt_member members[BT_HUB_ISLANDS];
    size_t n;
    bt_leases leases;
    int64_t round;       /* islands that step together: number of finished rounds */
    int64_t round_begin; /* islands that step together: first new sequence of the round */
    bool started, finished;
    int64_t tokens;   /* tokens of all applied updates */
    uint64_t refused; /* refused messages and updates */
    /* number of updates by staleness; the last entry counts all larger values */
    uint64_t staleness[BT_HUB_STALENESS];
    double norms[32]; /* norms of the newest updates of one kind, for bt_poisoned */
    size_t n_norms;
    int64_t norms_kind;
    int64_t quorum_ns; /* time at which the quorum of this round was reached; 0: not yet */
    int64_t held_ns;   /* time since which an island waits for another; 0: none waits */
    int64_t waits_ns[BT_HUB_ROUNDS]; /* durations of waits; the newest n_waits are valid */
    size_t n_waits;
    int64_t now_ns, told_ns; /* told_ns: time of the newest step record */
    bool room_again;         /* the disk has accepted a write again, so a checkpoint may be tried */
    bt_err unsaved; /* why the newest checkpoint could not be written; code BT_OK: it was written */
    struct bt_hub_state *state; /* NULL: the hub stores nothing; borrowed (hub_state.h) */
    int awaited; /* after a restart of the hub: number of islands that trained before */
    /* time of resuming from a checkpoint; 0: not resumed, or all islands have returned */
    int64_t resumed_ns;
    unsigned char *frame; /* (BT_ISLAND_FRAME) */
} bt_hub;

bt_code bt_hub_create(bt_hub **out, const bt_hub_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_hub_destroy(bt_hub *h); /* accepts NULL */
/* Handles one frame. An error ends the hub; faults of a peer are reported to it. */
bt_code bt_hub_receive(bt_hub *h, const bt_hub_peer *from, const void *frame, size_t bytes,
                       int64_t now_ns, bt_err *err) BT_MUST_CHECK;
/* Reports that a message of several frames from this peer was discarded (hub_socket.h). */
void bt_hub_refuse_frames(bt_hub *h, const bt_hub_peer *from);
/* Reports that all connections were closed at `mib` beyond bt_hub_bytes (limit: `most`). */
void bt_hub_refuse_memory(bt_hub *h, double mib, double most);
/* Returns the memory of the model's arrays and of received updates. */
size_t bt_hub_bytes(const bt_hub *h);
/* number of chunks of an update, or of weights, of `bytes` bytes */
uint32_t bt_hub_chunks(size_t bytes);
/* Called about every 100 ms: sends pings, and detects dead and overdue islands. */
bt_code bt_hub_tick(bt_hub *h, int64_t now_ns, bt_err *err) BT_MUST_CHECK;
/* Sends parts for which a connection had no room when an island requested them. Returns true if some still wait; the
 * hub must then call this again within about a millisecond, even if no message arrives. */
bool bt_hub_serve(bt_hub *h);
/* Returns the number of islands that train and are not overdue, and the steps of the slowest and fastest of them. */
size_t bt_hub_training(const bt_hub *h, int64_t *slowest, int64_t *fastest);

#endif
