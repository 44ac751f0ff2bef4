/* flip_gather.c - sends one message from each shard to each other shard. */
#include "engine/parallel/shard/flip_gather.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/shard/flip_code.h"

enum { TAG = 30002 };

struct bt_flip_gather {
    const bt_mesh *mesh;
    size_t *at;              /* (shards + 1) offsets of the shards' codes in `codes` */
    unsigned char *codes;    /* codes of all shards after the last gather */
    unsigned char *messages; /* (shards) received messages, and this rank's own */
    MPI_Request *requests;   /* (2, shards) */
    MPI_Status *statuses;
};

size_t bt_flip_gather_bytes(size_t all) { return 2 * all; }

static size_t shard_code_bytes(const bt_flip_gather *f, int shard) {
    return f->at[shard + 1] - f->at[shard];
}

static unsigned char *message_of(const bt_flip_gather *f, int shard) {
    return f->messages + f->at[shard] + (size_t)shard * BT_FLIPS_HEAD;
}

bt_code bt_flip_gather_create(bt_flip_gather **out, const bt_mesh *mesh, const size_t *bytes,
                              bt_err *err) {
    size_t n = (size_t)bt_comm_size(mesh->shard), longest = 0;
    bt_flip_gather *f = calloc(1, sizeof *f);
    *out = NULL;
    if (f) f->mesh = mesh;
    if (f) f->at = calloc(n + 1, sizeof *f->at);
    for (size_t s = 0; f && f->at && s < n; s++) {
        f->at[s + 1] = f->at[s] + bytes[s];
        if (bytes[s] > longest) longest = bytes[s];
    }
    if (f && f->at) {
        f->codes = calloc(f->at[n] + 1, 1);
        f->messages = malloc(f->at[n] + n * BT_FLIPS_HEAD);
        f->requests = calloc(2 * n, sizeof *f->requests);
        f->statuses = calloc(2 * n, sizeof *f->statuses);
    }
    bt_code code = BT_OK;
    if (!f || !f->at || !f->codes || !f->messages || !f->requests || !f->statuses)
        code = bt_fail(err, BT_NOMEM, "cannot take memory for the codes of %zu shards", n);
    else if (longest > INT_MAX - BT_FLIPS_HEAD)
        code =
            bt_fail(err, BT_UNSUPPORTED,
                    "a shard's ternary codes are %zu bytes: more than one message holds (use more "
                    "shards, or parallel.gather=layer)",
                    longest);
    if (code != BT_OK) {
        bt_flip_gather_destroy(f);
        return code;
    }
    *out = f;
    return BT_OK;
}

void bt_flip_gather_destroy(bt_flip_gather *f) {
    if (!f) return;
    free(f->at);
    free(f->codes);
    free(f->messages);
    free(f->requests);
    free(f->statuses);
    free(f);
}

static bt_code check_flip_mpi(int rc, bt_err *err) {
    return bt_mpi_check(rc, "gathering of changed codes", err);
}

static bt_code receive_flip_message(bt_flip_gather *f, int from, const MPI_Status *status,
                                    bt_err *err) {
    int length = 0;
    BT_TRY(check_flip_mpi(MPI_Get_count(status, MPI_BYTE, &length), err));
    bt_pair_add(bt_mesh_peer(f->mesh, BT_AXIS_SHARD, from),
                &(bt_pair){.messages = 1, .bytes = length});
    if (bt_flip_decode(f->codes + f->at[from], shard_code_bytes(f, from), message_of(f, from),
                       (size_t)length))
        return BT_OK;
    return bt_fail(
        err, BT_CHECK,
        "shard %d sent %d bytes that are not what changed of %zu bytes of codes: they were "
        "damaged on their way (nothing of them is used)",
        from, length, shard_code_bytes(f, from));
}

bt_code bt_flip_gather_run(bt_flip_gather *f, const unsigned char *own, bt_err *err) {
    const bt_comm *c = f->mesh->shard;
    int n = 0;
    bt_traffic_mark mark = bt_traffic_begin();
    for (int d = 1; d < c->size; d++) {
        int from = (c->rank + d) % c->size;
        BT_TRY(check_flip_mpi(MPI_Irecv(message_of(f, from),
                                        (int)shard_code_bytes(f, from) + BT_FLIPS_HEAD, MPI_BYTE,
                                        from, TAG, c->mpi, &f->requests[n++]),
                              err));
    }
    size_t bytes = shard_code_bytes(f, c->rank),
           length = bt_flip_encode(message_of(f, c->rank), f->codes + f->at[c->rank], own, bytes);
    memcpy(f->codes + f->at[c->rank], own, bytes);
    for (int d = 1; d < c->size; d++) {
        int to = (c->rank - d + c->size) % c->size;
        bt_comm_count(bytes, length);
        BT_TRY(check_flip_mpi(MPI_Isend(message_of(f, c->rank), (int)length, MPI_BYTE, to, TAG,
                                        c->mpi, &f->requests[n++]),
                              err));
    }
    BT_TRY(check_flip_mpi(MPI_Waitall(n, f->requests, f->statuses), err));
    bt_traffic_end(&mark, BT_COLL_ALL_GATHER, c->axis);
    bt_traffic_add(BT_COLL_ALL_GATHER, c->axis, &(bt_traffic){.rounds = 1});
    for (int d = 1; d < c->size; d++)
        BT_TRY(receive_flip_message(f, (c->rank + d) % c->size, &f->statuses[d - 1], err));
    return BT_OK;
}

const unsigned char *bt_flip_gather_from(const bt_flip_gather *f, int shard) {
    return f->codes + f->at[shard];
}
