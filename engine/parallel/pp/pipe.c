/* pipe.c - messages between neighbouring pipeline stages: alternating buffers, whose receives are posted in advance. */
#include "engine/parallel/pp/pipe.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { DEPTH = 2, TAG = 30400, COPY_TAG = 30410, COPY_MOST = 1 << 30, POLL_NS = 50000 };

typedef struct channel { /* one way to or from one neighbour */
    int peer;            /* index of the neighbour on the pipeline axis; -1: no neighbour */
    float *buf[DEPTH];
    MPI_Request requests[DEPTH];
    int64_t started, done, expected; /* numbers of messages; expected: by a receiving channel */
} channel;

struct bt_pipe {
    const bt_mesh *mesh;
    bt_pipe_cfg cfg;
    channel in[2], out[2]; /* by way */
    float *memory;
    MPI_Request *tables; /* (cfg.tables, parts of a table) requests */
    int64_t polled_at, busy_ns;
};

static void poll_pipe(void *pipe) {
    bt_pipe *p = pipe;
    int64_t now = bt_now_ns();
    int flag;
    if (now - p->polled_at < POLL_NS) return;
    p->polled_at = now;
    /* later calls that wait for messages return the error */
    (void)MPI_Iprobe(MPI_ANY_SOURCE, COPY_TAG, p->mesh->pp->mpi, &flag, MPI_STATUS_IGNORE);
}

/* with several chunks the stages form a ring */
static int neighbour(int stage, int by, int stages, int chunks) {
    const int at = stage + by;
    if (at >= 0 && at < stages) return at;
    return chunks > 1 ? (at + stages) % stages : -1;
}

size_t bt_pipe_bytes(const bt_mesh_shape *shape, int stage, const bt_pipe_cfg *c) {
    size_t channels = 0;
    for (int by = -1; by <= 1; by += 2)
        channels += neighbour(stage, by, shape->pp, c->chunks) >= 0 ? 2 : 0;
    return channels * DEPTH * c->elems * sizeof(float);
}

static size_t parts_of(size_t bytes) { return (bytes + COPY_MOST - 1) / COPY_MOST; }

static float *open_channel(channel *c, int peer, float *memory, size_t elems) {
    *c = (channel){.peer = peer};
    for (int k = 0; k < DEPTH; k++) {
        c->requests[k] = MPI_REQUEST_NULL;
        if (peer < 0) continue;
        c->buf[k] = memory;
        memory += elems;
    }
    return memory;
}

static size_t requests_of(const bt_pipe_cfg *c) {
    return (size_t)c->tables * parts_of(c->table_bytes);
}

bt_code bt_pipe_create(bt_pipe **out, const bt_mesh *mesh, const bt_pipe_cfg *c, bt_err *err) {
    int n = bt_comm_size(mesh->pp), me = bt_comm_rank(mesh->pp);
    *out = NULL;
    if (c->elems > INT_MAX)
        return bt_fail(err, BT_ARG,
                       "a micro-batch of %zu values is too large to be sent between pipeline "
                       "stages (use a smaller --micro-batch)",
                       c->elems);
    bt_pipe *p = calloc(1, sizeof *p);
    if (p)
        *p = (bt_pipe){.mesh = mesh,
                       .cfg = *c,
                       .memory = malloc(bt_pipe_bytes(&mesh->shape, me, c) + 1),
                       .tables = malloc((requests_of(c) + 1) * sizeof *p->tables)};
    if (!p || !p->memory || !p->tables) {
        bt_pipe_destroy(p);
        return bt_fail(err, BT_NOMEM, "cannot take memory for what pipeline stages send");
    }
    int before = neighbour(me, -1, n, c->chunks), after = neighbour(me, 1, n, c->chunks);
    float *at = p->memory;
    at = open_channel(&p->in[BT_PIPE_DOWN], before, at, c->elems);
    at = open_channel(&p->out[BT_PIPE_UP], before, at, c->elems);
    at = open_channel(&p->in[BT_PIPE_UP], after, at, c->elems);
    (void)open_channel(&p->out[BT_PIPE_DOWN], after, at, c->elems);
    for (size_t i = 0; i < requests_of(c); i++) p->tables[i] = MPI_REQUEST_NULL;
    *out = p;
    return BT_OK;
}

void bt_pipe_destroy(bt_pipe *p) {
    if (!p) return;
    bt_threads_off_idle(poll_pipe, p);
    free(p->memory);
    free(p->tables);
    free(p);
}

/* ---- messages -------------------------------------------------------------------------------- */

static size_t message_bytes(const bt_pipe *p) {
    return p->cfg.elems * (p->cfg.bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* type of a message's elements */
static MPI_Datatype message_type(const bt_pipe *p) {
    return p->cfg.bf16 ? MPI_UINT16_T : MPI_FLOAT;
}

static void pack_boundary(const bt_pipe *p, void *message, const float *from) {
    if (p->cfg.bf16)
        bt_active_kernels()->to_bf16(message, from, p->cfg.elems);
    else
        memcpy(message, from, message_bytes(p));
}

static void unpack_boundary(const bt_pipe *p, float *to, const void *message) {
    if (p->cfg.bf16)
        bt_active_kernels()->from_bf16(to, message, p->cfg.elems);
    else
        memcpy(to, message, message_bytes(p));
}

static bt_code post_receive(bt_pipe *p, channel *c, bt_pipe_way way, bt_err *err) {
    while (c->started < c->expected && c->started < c->done + DEPTH) {
        int k = (int)(c->started++ % DEPTH);
        int rc = MPI_Irecv(c->buf[k], (int)p->cfg.elems, message_type(p), c->peer, TAG + (int)way,
                           p->mesh->pp->mpi, &c->requests[k]);
        BT_TRY(bt_mpi_check(rc, "receiving from a pipeline stage", err));
    }
    return BT_OK;
}

bt_code bt_pipe_begin(bt_pipe *p, int64_t down, int64_t up, bt_err *err) {
    const int stage = bt_comm_rank(p->mesh->pp), last = bt_comm_size(p->mesh->pp) - 1,
              chunks = p->cfg.chunks;
    /* each chunk receives a message, except the model's first chunk (down) and its last one (up) */
    const int64_t expected[2] = {down * (chunks - (stage == 0)), up * (chunks - (stage == last))};
    for (int way = 0; way < 2; way++) {
        channel *c = &p->in[way];
        if (c->peer < 0) continue;
        c->started = c->done = 0;
        c->expected = expected[way];
        BT_TRY(post_receive(p, c, (bt_pipe_way)way, err));
    }
    bt_threads_on_idle(poll_pipe, p);
    return BT_OK;
}

/* waited_ns: receives the duration of the wait; may be NULL */
static bt_code wait_for_request(MPI_Request *r, int64_t *waited_ns, const char *what, bt_err *err) {
    int64_t start = bt_now_ns();
    bt_span_begin(BT_MR_WAIT);
    BT_TRY(bt_mpi_check(MPI_Wait(r, MPI_STATUS_IGNORE), what, err));
    bt_span_end();
    if (waited_ns) *waited_ns = bt_now_ns() - start;
    return BT_OK;
}

/* Begins the time that this rank spends moving a message. */
static int64_t begin_move(void) {
    bt_span_begin(BT_MR_COMM_EXPOSED);
    return bt_now_ns();
}

static int64_t end_move(bt_pipe *p, int64_t start) {
    int64_t took = bt_now_ns() - start;
    bt_span_end();
    p->busy_ns += took;
    return took;
}

static void count_pipe_bytes(const bt_pipe *p, uint64_t logical, uint64_t bytes, int64_t took_ns) {
    bt_comm_count(logical, bytes);
    bt_traffic_add(BT_COLL_SEND, p->mesh->pp->axis,
                   &(bt_traffic){.calls = 1,
                                 .bytes_logical = (int64_t)logical,
                                 .bytes_wire = (int64_t)bytes,
                                 .busy_ns = took_ns,
                                 .exposed_ns = took_ns});
}

static void count_received(const bt_pipe *p, int from, size_t bytes, int64_t waited_ns,
                           int64_t took_ns) {
    bt_pair_add(bt_mesh_peer(p->mesh, BT_AXIS_PP, from),
                &(bt_pair){.messages = 1, .bytes = (int64_t)bytes});
    bt_traffic_add(BT_COLL_SEND, p->mesh->pp->axis,
                   &(bt_traffic){.busy_ns = took_ns, .exposed_ns = took_ns, .wait_ns = waited_ns});
}

bt_code bt_pipe_recv(bt_pipe *p, bt_pipe_way way, float *to, bt_err *err) {
    channel *c = &p->in[way];
    int k = (int)(c->done % DEPTH);
    int64_t waited;
    BT_TRY(wait_for_request(&c->requests[k], &waited, "receiving from a pipeline stage", err));
    int64_t start = begin_move();
    unpack_boundary(p, to, c->buf[k]);
    c->done++;
    BT_TRY(post_receive(p, c, way, err));
    count_received(p, c->peer, message_bytes(p), waited, end_move(p, start));
    return BT_OK;
}

bt_code bt_pipe_send(bt_pipe *p, bt_pipe_way way, const float *from, bt_err *err) {
    channel *c = &p->out[way];
    int k = (int)(c->started++ % DEPTH);
    /* waits for the message before the last, which used the same buffer */
    BT_TRY(wait_for_request(&c->requests[k], NULL, "sending to a pipeline stage", err));
    int64_t start = begin_move();
    pack_boundary(p, c->buf[k], from);
    int rc = MPI_Isend(c->buf[k], (int)p->cfg.elems, message_type(p), c->peer, TAG + (int)way,
                       p->mesh->pp->mpi, &c->requests[k]);
    BT_TRY(bt_mpi_check(rc, "sending to a pipeline stage", err));
    count_pipe_bytes(p, p->cfg.elems * sizeof *from, message_bytes(p), end_move(p, start));
    return BT_OK;
}

bt_code bt_pipe_end(bt_pipe *p, bt_err *err) {
    bt_threads_off_idle(poll_pipe, p);
    for (int way = 0; way < 2; way++)
        for (int k = 0; k < DEPTH; k++)
            BT_TRY(wait_for_request(&p->out[way].requests[k], NULL, "sending to a pipeline stage",
                                    err));
    return BT_OK;
}

int64_t bt_pipe_take_busy_ns(bt_pipe *p) {
    int64_t ns = p->busy_ns;
    p->busy_ns = 0;
    return ns;
}

/* ---- between the first and the last stage, and over all ---------------------------------------- */

bt_code bt_pipe_copy(bt_pipe *p, bt_pipe_way way, void *x, size_t n, bt_err *err) {
    int last = bt_comm_size(p->mesh->pp) - 1, me = bt_comm_rank(p->mesh->pp),
        from = way == BT_PIPE_UP ? last : 0, to = last - from;
    if (me != from && me != to) return BT_OK;
    int64_t start = begin_move();
    char *bytes = x;
    for (size_t i = 0; i < n; i += COPY_MOST) {
        int some = (int)(n - i < COPY_MOST ? n - i : COPY_MOST);
        int rc = me == from ? MPI_Send(bytes + i, some, MPI_BYTE, to, COPY_TAG, p->mesh->pp->mpi)
                            : MPI_Recv(bytes + i, some, MPI_BYTE, from, COPY_TAG, p->mesh->pp->mpi,
                                       MPI_STATUS_IGNORE);
        BT_TRY(bt_mpi_check(rc, "sending the tied embedding between stages", err));
    }
    int64_t took = end_move(p, start);
    if (me == from)
        count_pipe_bytes(p, n, n, took);
    else
        count_received(p, from, n, 0, took);
    return BT_OK;
}

bt_code bt_pipe_copy_up(bt_pipe *p, int at, const void *x, bt_err *err) {
    const size_t n = p->cfg.table_bytes, parts = parts_of(n);
    int64_t start = begin_move();
    for (size_t i = 0; i < parts; i++) {
        const size_t from = i * COPY_MOST, some = n - from < COPY_MOST ? n - from : COPY_MOST;
        int rc = MPI_Isend((const char *)x + from, (int)some, MPI_BYTE, 0, COPY_TAG,
                           p->mesh->pp->mpi, &p->tables[(size_t)at * parts + i]);
        BT_TRY(bt_mpi_check(rc, "sending the tied embedding's gradients", err));
    }
    count_pipe_bytes(p, n, n, end_move(p, start));
    return BT_OK;
}

bt_code bt_pipe_copy_up_wait(bt_pipe *p, int at, bt_err *err) {
    const size_t parts = parts_of(p->cfg.table_bytes);
    for (size_t i = 0; i < parts; i++)
        BT_TRY(wait_for_request(&p->tables[(size_t)at * parts + i], NULL,
                                "sending the tied embedding's gradients", err));
    return BT_OK;
}

bt_code bt_pipe_expect(bt_pipe *p, void *x, bt_err *err) {
    const size_t n = p->cfg.table_bytes, parts = parts_of(n);
    for (size_t i = 0; i < parts; i++) {
        const size_t to = i * COPY_MOST, some = n - to < COPY_MOST ? n - to : COPY_MOST;
        int rc = MPI_Irecv((char *)x + to, (int)some, MPI_BYTE, bt_comm_size(p->mesh->pp) - 1,
                           COPY_TAG, p->mesh->pp->mpi, &p->tables[i]);
        BT_TRY(bt_mpi_check(rc, "receiving the tied embedding's gradients", err));
    }
    return BT_OK;
}

bt_code bt_pipe_take(bt_pipe *p, bt_err *err) {
    const size_t parts = parts_of(p->cfg.table_bytes);
    int64_t waited = 0;
    for (size_t i = 0; i < parts; i++) {
        int64_t ns;
        BT_TRY(
            wait_for_request(&p->tables[i], &ns, "receiving the tied embedding's gradients", err));
        waited += ns;
    }
    count_received(p, bt_comm_size(p->mesh->pp) - 1, p->cfg.table_bytes, waited, 0);
    return BT_OK;
}

bt_code bt_pipe_sum(bt_pipe *p, double *x, size_t n, bt_err *err) {
    bt_span_begin(BT_MR_WAIT);
    BT_TRY(bt_all_reduce_f64(p->mesh->pp, x, n, BT_SUM, err));
    bt_span_end();
    return BT_OK;
}
