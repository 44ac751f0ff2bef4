/* wires.c - chooses the links of groups and computes the costs of a step's exchanges over them. */
#include "engine/plan/wires.h"

#include <math.h>

/* Defaults without a measurement: latency of a message through shared memory, copy rate, synchronisation. */
static const double SHM_LATENCY_S = 2e-6, SHM_BYTES_PER_S = 3e9, MEET_S = 3e-6;

/* Returns how many ranks of a group are on one host; the mean if hosts have unequal numbers. */
static int group_ranks_on_host(const bt_cluster *c, int n, int stride) {
    if (bt_cluster_together(c) / stride >= n) return n;
    const int most = c->hosts > 0 ? (c->ranks + c->hosts - 1) / c->hosts : c->ranks_per_host,
              here = most / stride;
    return here < 1 ? 1 : here < n ? here : n - 1;
}

static bt_wire measured_wire(const bt_rates *r, int world, int n, int stride) {
    const bt_link_rate *l = bt_rates_link(r, world, n, stride);
    return l ? (bt_wire){.latency_s = l->latency_s, .bytes_per_s = l->bytes_per_s}
             : (bt_wire){SHM_LATENCY_S, SHM_BYTES_PER_S, false};
}

/* Hosts of a simulated cluster have the links of this machine, measured in a job of one group. */
static int link_world(const bt_cluster *c, int n) { return c->simulated ? n : c->ranks; }
static int link_stride(const bt_cluster *c, int stride) { return c->simulated ? 1 : stride; }

static bt_wire wire_inside_group(const bt_rates *r, const bt_cluster *c, int n, int stride) {
    bt_wire w = measured_wire(r, link_world(c, n), n, link_stride(c, stride));
    w.copies = true;
    return w;
}

bt_wire bt_wire_of(const bt_rates *r, const bt_cluster *c, int n, int stride) {
    if (group_ranks_on_host(c, n, stride) == n) return wire_inside_group(r, c, n, stride);
    if (!c->simulated) return measured_wire(r, c->ranks, n, stride);
    /* All ranks of a host send at the same time. */
    const int senders = bt_cluster_fullest(c);
    return (bt_wire){.latency_s = c->latency_s, .bytes_per_s = c->bytes_per_s / senders};
}

double bt_wire_s(const bt_wire *w, double rounds, double bytes) {
    return rounds * w->latency_s + (w->bytes_per_s > 0 ? bytes / w->bytes_per_s : 0);
}

/* Shares of an element that each of n ranks sends: to the owners (there), and the owners' sums back to all n ranks or
 * to the replicas of the owner's shard (back). */
typedef struct ways {
    double there, back;
} ways;

static ways ring_shares(double n, double receivers) {
    return (ways){(n - 1) / n, (receivers - 1) / n};
}

/* The codec towards the owners, and that of the way back. */
typedef struct coding {
    bool encodes;
    bt_codec_rate there, back;
} coding;

static coding choose_codecs(const bt_rates *r, int64_t codec) {
    const bt_codec_id id = (bt_codec_id)codec;
    return (coding){bt_codec_at(id)->encode != NULL, r->codec[id], r->codec[bt_codec_back(id)]};
}

/* Returns the codec time of one rank, which encodes sent elements and decodes received ones. */
static double codec_s(const coding *k, double add_s, ways w) {
    if (!k->encodes) return w.there * add_s;
    return w.there * (k->there.encode_s + k->there.decode_add_s) +
           fmax(0, w.back) * k->back.encode_s + w.back * k->back.decode_s;
}

/* Returns the bytes sent per element. */
static double wire_bytes_of(const coding *k, ways w) {
    return w.there * k->there.wire_bytes + w.back * k->back.wire_bytes;
}

/* Returns the seconds per element through memory that n ranks of a host share, scaled by the share of elements that so
 * many ranks send; 0: not measured or not available. */
static double shared_memory_s(const bt_rates *r, const bt_cluster *c, int n, int stride, ways w) {
    const bt_link_rate *l = bt_rates_link(r, link_world(c, n), n, link_stride(c, stride));
    if (!l || !(l->grads_sum_s > 0)) return 0;
    return (l->grads_sum_s * w.there + l->grads_back_s * fmax(0, w.back)) /
           ring_shares(l->n, l->n).there;
}

/* Every bucket is hashed before it is sent (reducer.c). */
static double digest_s(const bt_rates *r, double elems) { return bt_rates_elem(&r->norm, elems); }

/* Cost if every rank sends directly to the owners. */
static bt_exchange_cost flat_all_reduce_time(const bt_rates *r, const bt_cluster *c,
                                             const bt_run_cfg *cfg, const bt_mesh_shape *shape,
                                             double elems) {
    int n = shape->dp_replicate * shape->dp_shard;
    bt_wire wire = bt_wire_of(r, c, n, shape->tp);
    coding k = choose_codecs(r, cfg->parallel.codec);
    if (!(k.there.wire_bytes > 0)) k.there.wire_bytes = k.back.wire_bytes = sizeof(float);
    bool sharded = cfg->mesh.zero > 0 && shape->dp_shard > 1;
    ways w = ring_shares(n, sharded ? shape->dp_replicate : n);
    double bytes = wire_bytes_of(&k, w), sent_s = bt_wire_s(&wire, 0, bytes),
           copied_s = wire.copies && !k.encodes ? shared_memory_s(r, c, n, shape->tp, w) : 0;
    if (copied_s > 0) return (bt_exchange_cost){.bytes = bytes, .cpu_s = copied_s};
    return (bt_exchange_cost){.bytes = bytes,
                              .wire_s = wire.copies ? 0 : sent_s,
                              .cpu_s = (wire.copies ? sent_s : 0) + codec_s(&k, r->add_s, w) +
                                       digest_s(r, elems),
                              .latency_s = wire.latency_s * (w.back > 0 ? 2 : 1)};
}

/* Cost if `here` neighbouring ranks of a host add first, and one sum per host is sent over the network. */
static bt_exchange_cost hierarchical_all_reduce_time(const bt_rates *r, const bt_cluster *c,
                                                     const bt_run_cfg *cfg,
                                                     const bt_mesh_shape *shape, int here,
                                                     double elems) {
    int n = shape->dp_replicate * shape->dp_shard, groups = n / here;
    bt_wire in = wire_inside_group(r, c, here, shape->tp), across = bt_wire_of(r, c, n, shape->tp);
    const coding k = choose_codecs(r, cfg->parallel.codec);
    bool sharded = cfg->mesh.zero > 0 && shape->dp_shard > 1;
    ways w_in = ring_shares(here, here), w = ring_shares(groups, groups);
    if (sharded) {
        /* Sums stay with the owner of a shard and return to as many groups of hosts as there are replicas. */
        double back = fmin(groups, shape->dp_replicate);
        w.back = (back - 1) / groups;
        w_in.back = 0;
    }
    /* Each rank of the host sends its part to other hosts. */
    double wire_bytes = wire_bytes_of(&k, w) / here,
           in_bytes = (w_in.there + w_in.back) * sizeof(float),
           coded = codec_s(&k, r->add_s, w) / here,
           copied_s = shared_memory_s(r, c, here, shape->tp, w_in);
    const bool copies = copied_s > 0; /* data for other hosts are encoded afterwards */
    if (!copies)
        copied_s = bt_wire_s(&in, 0, in_bytes) + w_in.there * r->add_s + digest_s(r, elems);
    return (bt_exchange_cost){.bytes = wire_bytes + in_bytes,
                              .wire_s = bt_wire_s(&across, 0, wire_bytes),
                              .cpu_s = copied_s + coded,
                              .latency_s = across.latency_s * (w.back > 0 ? 2 : 1) +
                                           (copies ? 0 : in.latency_s) * (w_in.back > 0 ? 2 : 1)};
}

bt_exchange_cost bt_wire_exchange(const bt_rates *r, const bt_cluster *c, const bt_run_cfg *cfg,
                                  const bt_mesh_shape *shape, double elems) {
    int n = shape->dp_replicate * shape->dp_shard, here = group_ranks_on_host(c, n, shape->tp);
    return bt_cluster_hosts(c) > 1 && here > 1 && here < n && n % here == 0
               ? hierarchical_all_reduce_time(r, c, cfg, shape, here, elems)
               : flat_all_reduce_time(r, c, cfg, shape, elems);
}

double bt_wire_rows_s(const bt_rates *r, const bt_cluster *c, int tp, double meetings,
                      double bytes) {
    const bt_link_rate *l = bt_rates_link(r, c->simulated ? tp : c->ranks, tp, 1);
    double moved = bytes * (tp - 1) / tp;
    if (group_ranks_on_host(c, tp, 1) == tp && l && l->rows_bytes_per_s > 0)
        return meetings * l->meet_s + moved / l->rows_bytes_per_s;
    bt_wire w = bt_wire_of(r, c, tp, 1);
    return meetings * (w.copies ? fmax(w.latency_s, MEET_S) : w.latency_s) +
           bt_wire_s(&w, 0, moved);
}

double bt_wire_agree_s(const bt_rates *r, const bt_cluster *c) {
    if (c->ranks == 1) return 0;
    const bt_link_rate *l = c->simulated ? NULL : bt_rates_link(r, c->ranks, c->ranks, 1);
    if (!c->simulated) return l ? l->agree_s : 0;
    /* The messages follow a tree over the hosts in both directions. */
    double rounds = 2 * ceil(log2((double)(bt_cluster_hosts(c) > 1 ? bt_cluster_hosts(c) : 1))) + 2;
    return rounds * (bt_cluster_hosts(c) > 1 ? c->latency_s : SHM_LATENCY_S);
}
