/* traffic.c - counters of bytes and times, by kind of exchange and axis. */
#include "engine/parallel/mpi/traffic.h"

#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/comm.h"

static bt_traffic counters[BT_COLL_COUNT][BT_AXIS_COUNT];
static uint64_t bytes_logical, bytes_wire; /* sent by this rank */
static bt_pair pairs[BT_PAIRS_MAX];
static _Atomic int64_t *begun;

#define BT_COLL(id, name) name,
#define BT_AXIS(id, name)
static const char *const coll_names[BT_COLL_COUNT] = {
#include "engine/parallel/mpi/coll.def"
};
#undef BT_COLL
#undef BT_AXIS
#define BT_COLL(id, name)
#define BT_AXIS(id, name) name,
static const char *const axis_names[BT_AXIS_COUNT] = {
#include "engine/parallel/mpi/coll.def"
};

const char *bt_coll_name(bt_coll c) { return coll_names[c]; }
const char *bt_axis_name(bt_axis a) { return axis_names[a]; }

void bt_comm_count(uint64_t logical, uint64_t wire) {
    bytes_logical += logical;
    bytes_wire += wire;
}

uint64_t bt_comm_bytes_logical(void) { return bytes_logical; }
uint64_t bt_comm_bytes_wire(void) { return bytes_wire; }

void bt_traffic_add(bt_coll c, bt_axis a, const bt_traffic *more) {
    bt_traffic *t = &counters[c][a];
    if (bt_span_excluded()) return;
    t->calls += more->calls;
    t->rounds += more->rounds;
    t->bytes_logical += more->bytes_logical;
    t->bytes_wire += more->bytes_wire;
    t->busy_ns += more->busy_ns;
    t->exposed_ns += more->exposed_ns;
    t->wait_ns += more->wait_ns;
}

const bt_traffic *bt_traffic_get(bt_coll c, bt_axis a) { return &counters[c][a]; }
void bt_traffic_reset(void) { memset(counters, 0, sizeof counters); }

void bt_pair_add(int from, const bt_pair *more) {
    if (from < 0 || from >= BT_PAIRS_MAX || bt_span_excluded()) return;
    bt_pair *p = &pairs[from];
    p->messages += more->messages;
    p->bytes += more->bytes;
    p->timed += more->timed;
    p->flight_ns += more->flight_ns;
}

const bt_pair *bt_pair_get(int from) { return &pairs[from]; }
void bt_pairs_reset(void) { memset(pairs, 0, sizeof pairs); }

void bt_traffic_count_in(_Atomic int64_t *at) { begun = at; }

void bt_traffic_next(void) {
    if (begun)
        atomic_store_explicit(begun, atomic_load_explicit(begun, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

bt_traffic_mark bt_traffic_begin(void) {
    bt_traffic_next();
    return (bt_traffic_mark){bt_now_ns(), bt_span_ns(BT_MR_WAIT), bt_comm_bytes_logical(),
                             bt_comm_bytes_wire()};
}

void bt_traffic_end(const bt_traffic_mark *m, bt_coll c, bt_axis a) {
    const int64_t wait_ns = bt_span_ns(BT_MR_WAIT) - m->wait_ns,
                  flight_ns = bt_now_ns() - m->begin_ns - wait_ns;
    bt_traffic_add(
        c, a,
        &(bt_traffic){.calls = 1,
                      .bytes_logical = (int64_t)(bt_comm_bytes_logical() - m->bytes_logical),
                      .bytes_wire = (int64_t)(bt_comm_bytes_wire() - m->bytes_wire),
                      .busy_ns = flight_ns,
                      .exposed_ns = flight_ns,
                      .wait_ns = wait_ns});
}
