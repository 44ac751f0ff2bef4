/* pipe.h - between neighbouring stages of a pipeline: residuals down to the next stage, their
 * gradients up to the one before.
 *
 * Messages of one size, in order, each way. Two are received ahead of need and two may be on their
 * way out, so that a stage waits only for what is not made yet. Where stages have several chunks of
 * layers (virtual stages) the pipeline is a ring: what leaves the last stage goes to the first one's
 * next chunk, and gradients back. Besides: copies of a tied embedding between the first and the last
 * stage, and values that one stage knows.
 * Order:    create -> { begin (says how many messages will come) -> recv, send ... -> end }* ->
 *           destroy. Between begin and end it is an idle hook of the thread pool: MPI moves data
 *           only inside its calls.
 * Time:     charged where it is spent (base/span.h): WAIT while a neighbour is late, COMM_EXPOSED for
 *           what the exchange takes this rank, which bt_pipe_take_busy_ns tells besides.
 * Threads:  the training thread. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_PP_PIPE_H
#define BT_ENGINE_PARALLEL_PP_PIPE_H

#include "engine/parallel/mpi/mesh.h"

typedef struct bt_pipe bt_pipe;
typedef enum { BT_PIPE_DOWN, BT_PIPE_UP } bt_pipe_way;

typedef struct bt_pipe_cfg {
    size_t elems; /* floats of a message */
    bool bf16;    /* they travel rounded to bf16 (half to even); copies and sums do not */
    int chunks;   /* of layers, of each stage */
    int tables; /* that may be on their way by bt_pipe_copy_up, or are awaited by bt_pipe_expect; 0: none */
    size_t table_bytes;
} bt_pipe_cfg;
bt_code bt_pipe_create(bt_pipe **out, const bt_mesh *mesh, const bt_pipe_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
/* that create takes; 0 for one stage */
size_t bt_pipe_bytes(const bt_mesh_shape *shape, int stage, const bt_pipe_cfg *cfg);
void bt_pipe_destroy(bt_pipe *p); /* accepts NULL */
/* so many will pass each border between two virtual stages */
bt_code bt_pipe_begin(bt_pipe *p, int64_t down, int64_t up, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_recv(bt_pipe *p, bt_pipe_way way, float *to, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_send(bt_pipe *p, bt_pipe_way way, const float *from, bt_err *err) BT_MUST_CHECK;
/* everything sent has left */
bt_code bt_pipe_end(bt_pipe *p, bt_err *err) BT_MUST_CHECK;

/* n bytes between the first and the last stage, by both; others return at once. UP: last to
 * first. */
bt_code bt_pipe_copy(bt_pipe *p, bt_pipe_way way, void *x, size_t n, bt_err *err) BT_MUST_CHECK;
/* UP without waiting for the first stage, which takes it with bt_pipe_copy: of table_bytes, the `at`th of those
 * that may be on their way; x stays as it is until copy_up_wait of the same one, which accepts those that
 * were never sent. The last stage alone calls these */
bt_code bt_pipe_copy_up(bt_pipe *p, int at, const void *x, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_copy_up_wait(bt_pipe *p, int at, bt_err *err) BT_MUST_CHECK;
/* The first stage alone: the next table that comes UP goes to x, while this stage computes; until bt_pipe_take, which
 * waits for it, x is not to be touched */
bt_code bt_pipe_expect(bt_pipe *p, void *x, bt_err *err) BT_MUST_CHECK;
bt_code bt_pipe_take(bt_pipe *p, bt_err *err) BT_MUST_CHECK;
/* x of the stage that knows it, to all: the others have zeros. Collective over the stages */
bt_code bt_pipe_sum(bt_pipe *p, double *x, size_t n, bt_err *err) BT_MUST_CHECK;

/* what moving messages took this rank since the last call */
int64_t bt_pipe_take_busy_ns(bt_pipe *p);

#endif
