/* pipe.h - messages between neighbouring stages of a pipeline: residuals down to the next stage, their gradients
 * up to the previous one.
 *
 * Messages have one size and one order in each direction. A stage posts the receives of two messages in advance and
 * has at most two sends in transit, so that it waits only for messages that have not been produced yet. With several
 * chunks of layers per stage (virtual stages) the pipeline is a ring: the last stage sends to the next chunk of the
 * first one, and gradients go back. The pipe also copies tied embeddings between the first and the last stage, and sums
 * values that one stage has.
 * Order:    create -> { begin (number of messages) -> recv, send ... -> end }* -> destroy. Between begin and end
 *           it is an idle hook of the thread pool, because MPI moves data only inside its calls.
 * Time:     charged by base/span.h: WAIT while a neighbour is late, COMM_EXPOSED for the exchange itself (also
 *           bt_pipe_take_busy_ns).
 * Threads:  the training thread. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_PP_PIPE_H
#define BT_ENGINE_PARALLEL_PP_PIPE_H

#include "engine/parallel/mpi/mesh.h"

typedef struct bt_pipe bt_pipe;
typedef enum { BT_PIPE_DOWN, BT_PIPE_UP } bt_pipe_way;

typedef struct bt_pipe_cfg {
    size_t elems; /* floats per message */
    bool bf16;    /* messages are rounded to bf16 (half to even); copies and sums are not */
    int chunks;   /* chunks of layers per stage */
    int tables; /* maximum number in flight by bt_pipe_copy_up, or awaited by bt_pipe_expect; 0: none */
    size_t table_bytes;
} bt_pipe_cfg;
bt_code bt_pipe_create(bt_pipe **out, const bt_mesh *mesh, const bt_pipe_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
/* memory used by create; 0 for one stage */
size_t bt_pipe_bytes(const bt_mesh_shape *shape, int stage, const bt_pipe_cfg *cfg);
void bt_pipe_destroy(bt_pipe *p); /* accepts NULL */
/* Announces the number of messages that cross each border between two virtual stages. */
bt_code bt_pipe_begin(bt_pipe *p, int64_t down, int64_t up, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_recv(bt_pipe *p, bt_pipe_way way, float *to, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_send(bt_pipe *p, bt_pipe_way way, const float *from, bt_err *err) BT_MUST_CHECK;
/* Returns when all messages that this rank sent have left it. */
bt_code bt_pipe_end(bt_pipe *p, bt_err *err) BT_MUST_CHECK;

/* Copies n bytes between the first and the last stage, both of which call it; other stages return at once. UP: last
 * to first. */
bt_code bt_pipe_copy(bt_pipe *p, bt_pipe_way way, void *x, size_t n, bt_err *err) BT_MUST_CHECK;
/* Copies UP without waiting for the first stage, which receives it with bt_pipe_copy: table_bytes bytes, in slot
 * `at` of cfg.tables. x must not change until copy_up_wait of the same slot, which accepts a slot that was never
 * sent. Called by the last stage only. */
bt_code bt_pipe_copy_up(bt_pipe *p, int at, const void *x, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_copy_up_wait(bt_pipe *p, int at, bt_err *err) BT_MUST_CHECK;
/* Called by the first stage only: receives the next table sent UP into x, during computation. x must not be used
 * until bt_pipe_take, which waits for it. */
bt_code bt_pipe_expect(bt_pipe *p, void *x, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_take(bt_pipe *p, bt_err *err) BT_MUST_CHECK;
/* Sums x over the stages, all but one of which pass zeros. Collective over the stages. */
bt_code bt_pipe_sum(bt_pipe *p, double *x, size_t n, bt_err *err) BT_MUST_CHECK;

/* time spent moving messages since the last call */
int64_t bt_pipe_take_busy_ns(bt_pipe *p);

#endif
