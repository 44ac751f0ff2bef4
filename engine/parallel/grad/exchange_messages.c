/* exchange_messages.c - messages of the exchange, the payloads in them, and their counts. */
#include "engine/base/clock.h"
#include "engine/parallel/grad/exchange_internal.h"

enum { FIRST_TAG = 1000, TAGS = 6000 };

bool bt_exchange_encoded(const bt_exchange *x) { return x->codec->encode != NULL; }

static int tag_of(const bt_exchange_slot *s) {
    return FIRST_TAG + (int)s->round * TAGS + (int)(s->bucket % TAGS);
}

static bt_code receive_payload(bt_exchange *x, bt_exchange_slot *s, void *to, bt_exchange_message m,
                               bt_err *err) {
    int from = m.from;
    m.from = bt_mesh_peer(x->cfg.mesh, BT_AXIS_DP, from);
    s->messages[s->n_requests] = m;
    return bt_mpi_check(MPI_Irecv(to, (int)m.bytes, MPI_BYTE, from, tag_of(s), x->cfg.mesh->dp->mpi,
                                  &s->requests[s->n_requests++]),
                        "gradient exchange", err);
}

bt_code bt_exchange_send(bt_exchange *x, bt_exchange_slot *s, const void *from, size_t bytes,
                         size_t n, int to, bt_err *err) {
    s->messages[s->n_requests] = (bt_exchange_message){.from = to};
    s->logical += n * sizeof(float);
    s->wire += bytes;
    return bt_mpi_check(MPI_Isend(from, (int)bytes, MPI_BYTE, to, tag_of(s), x->cfg.mesh->dp->mpi,
                                  &s->requests[s->n_requests++]),
                        "gradient exchange", err);
}

bt_code bt_exchange_receive_part(bt_exchange *x, bt_exchange_slot *s, float *to, size_t n, int from,
                                 bt_err *err) {
    return receive_payload(x, s, to, (bt_exchange_message){.from = from, .bytes = n * sizeof *to},
                           err);
}

bt_code bt_exchange_send_part(bt_exchange *x, bt_exchange_slot *s, const float *from, size_t n,
                              int to, bt_err *err) {
    return bt_exchange_send(x, s, from, n * sizeof *from, n, to, err);
}

/* Returns the payload format of a round between hosts. */
static const bt_payload_form *round_form(const bt_exchange *x, bt_round round) {
    return round == BT_ROUND_BACK_ACROSS ? &x->back : &x->cfg.plan.form;
}

bt_code bt_exchange_receive_payload(bt_exchange *x, bt_exchange_slot *s, unsigned char *region,
                                    size_t i, bt_range r, int from, bt_err *err) {
    bool encoded = bt_exchange_encoded(x);
    bt_exchange_message m = {from,
                             encoded ? bt_payload_bound(round_form(x, s->round), r)
                                     : (r.end - r.begin) * sizeof(float),
                             encoded ? &s->payload_bytes[i] : NULL};
    return receive_payload(x, s, region + i * x->place_bytes, m, err);
}

bt_coll bt_exchange_kind(const bt_exchange *x) {
    return x->cfg.plan.sharded ? BT_COLL_REDUCE_SCATTER : BT_COLL_ALL_REDUCE;
}

/* All rounds of the exchange count in one row of traffic.h; the reducer counts its calls and times. */
void bt_exchange_count_sent(const bt_exchange *x, const bt_exchange_slot *s) {
    if (s->n_requests == 0 && s->logical == 0) return;
    bt_comm_count(s->logical, s->wire);
    bt_traffic_add(bt_exchange_kind(x), x->cfg.mesh->dp->axis,
                   &(bt_traffic){.rounds = s->piece == 0,
                                 .bytes_logical = (int64_t)s->logical,
                                 .bytes_wire = (int64_t)s->wire});
}

/* Handles messages received since the last call and measures their time in flight. */
bt_code bt_exchange_take_arrivals(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    int n = 0;
    BT_TRY(bt_mpi_check(MPI_Testsome(s->n_requests, s->requests, &n, x->arrived, x->statuses),
                        "gradient exchange", err));
    /* MPI_UNDEFINED is below 0: no request was active */
    if (n <= 0) return BT_OK;
    int64_t took = bt_now_ns() - s->asked_ns;
    for (int i = 0; i < n; i++) {
        const bt_exchange_message *m = &s->messages[x->arrived[i]];
        int bytes = (int)m->bytes;
        if (bytes == 0) continue;
        if (m->arrived) {
            BT_TRY(bt_mpi_check(MPI_Get_count(&x->statuses[i], MPI_BYTE, &bytes),
                                "gradient exchange", err));
            *m->arrived = (size_t)bytes;
        }
        bt_pair_add(m->from,
                    &(bt_pair){.messages = 1, .bytes = bytes, .timed = 1, .flight_ns = took});
    }
    s->n_left -= n;
    x->moved = true;
    return BT_OK;
}

size_t bt_exchange_encode(const bt_exchange *x, const bt_exchange_slot *s, unsigned char *payload,
                          const float *from, bt_range r) {
    return bt_payload_encode(round_form(x, s->round), payload, from, r, x->state);
}

bt_code bt_exchange_check_payload(bool valid, const bt_exchange *x, size_t n, size_t bytes,
                                  bt_err *err) {
    return valid ? BT_OK
                 : bt_fail(err, BT_CHECK,
                           "another rank sent %zu bytes that are not %zu gradients encoded by "
                           "--codec %s: they were damaged on their way, or the ranks' settings "
                           "differ (nothing of them was added)",
                           bytes, n, x->codec->name);
}
