/* unit_accumulator.c - keeps sums of complete subtrees of units until their neighbours come. */
#include "engine/parallel/grad/unit_accumulator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

enum { GRAIN = 16384 };

struct bt_unit_accumulator {
    float *grads;
    size_t n;
    int64_t first, count, done;
    bt_unit_rounding *rounding;
    bt_arena arena;
    float *buffers[BT_TREE_SUM_MAX];
    size_t n_buffers;
    float *unit;      /* where the unit at work is written */
    bt_tree_sum fold; /* of the units done so far */
};

/* ---- passes over whole arrays ---------------------------------------------------------------- */

typedef struct pass {
    float *into, *unit;
    bt_unit_rounding *rounding; /* NULL: none */
    int64_t index;              /* of the unit */
} pass;

static void round_range(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    pass *p = ctx;
    bt_rounding_range(p->rounding, p->unit + begin, (bt_range){begin, end}, p->index);
}

static void add_range(void *ctx, int thread, size_t begin, size_t end) {
    pass *p = ctx;
    if (p->rounding) round_range(ctx, thread, begin, end);
    bt_k()->add(p->into + begin, p->unit + begin, end - begin);
    memset(p->unit + begin, 0, (end - begin) * sizeof(float));
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* arrays needed beside the gradients: the most nodes that ever wait for the next unit */
static size_t most_waiting(int64_t first, int64_t count) {
    size_t most = 0;
    for (int64_t k = 1; k < count; k++) {
        bt_tree_sum f = bt_tree_sum_shape(first, k);
        if (f.n > most) most = f.n;
    }
    return most;
}

size_t bt_accumulator_bytes(size_t n, int64_t first, int64_t count) {
    return most_waiting(first, count) * n * sizeof(float);
}

bt_code bt_accumulator_create(bt_unit_accumulator **out, float *grads, size_t n, int64_t first,
                              int64_t count, bt_unit_rounding *rounding, bt_err *err) {
    *out = NULL;
    bt_unit_accumulator *p = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for the partial sums");
    *p = (bt_unit_accumulator){.grads = grads,
                               .n = n,
                               .first = first,
                               .count = count,
                               .rounding = rounding,
                               .n_buffers = most_waiting(first, count)};
    bt_arena_plan(&p->arena, "partial sums");
    size_t offsets[BT_TREE_SUM_MAX];
    for (size_t i = 0; i < p->n_buffers; i++)
        offsets[i] = bt_arena_reserve(&p->arena, n, sizeof(float));
    bt_code code = bt_arena_commit(&p->arena, err);
    if (code != BT_OK) {
        free(p);
        return code;
    }
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): all were reserved above
    for (size_t i = 0; i < p->n_buffers; i++) p->buffers[i] = bt_arena_at(&p->arena, offsets[i]);
    *out = p;
    return BT_OK;
}

void bt_accumulator_destroy(bt_unit_accumulator *p) {
    if (!p) return;
    bt_arena_release(&p->arena);
    free(p);
}

/* ---- use ------------------------------------------------------------------------------------- */

void bt_accumulator_begin(bt_unit_accumulator *p) {
    p->done = 0;
    p->fold.n = 0;
}

static float *free_buffer(const bt_unit_accumulator *p) {
    for (size_t i = 0; i < p->n_buffers; i++) {
        bool used = false;
        for (size_t k = 0; k < p->fold.n; k++) used |= p->fold.at[k].x == p->buffers[i];
        if (!used) return p->buffers[i];
    }
    assert(!"most_waiting counts every node");
    return NULL;
}

/* it is added to the node before it, which waits for nothing else */
static bool completes_a_pair(const bt_unit_accumulator *p) {
    const bt_tree_sum *f = &p->fold;
    return f->n > 0 && ((p->first + p->done) & 1) && f->at[f->n - 1].level == 0;
}

float *bt_accumulator_unit(bt_unit_accumulator *p) {
    p->unit = p->grads;
    if (p->done == p->count - 1 || completes_a_pair(p)) return p->unit;
    p->unit = free_buffer(p);
    bt_op_zero(p->unit, p->n);
    return p->unit;
}

void bt_accumulator_unit_done(bt_unit_accumulator *p) {
    bt_tree_sum *f = &p->fold;
    bt_node node = {p->first + p->done, 0, p->unit};
    /* the sum lands in its sibling's array, the next unit finds zeros */
    if (p->unit == p->grads) {
        pass job = {f->at[f->n - 1].x, p->grads, p->rounding, node.index};
        bt_parallel_for(p->n, GRAIN, add_range, &job);
        f->n--;
        node = (bt_node){node.index >> 1, 1, job.into};
    } else if (p->rounding) {
        pass job = {NULL, p->unit, p->rounding, node.index};
        bt_parallel_for(p->n, GRAIN, round_range, &job);
    }
    p->done++;
    assert(p->done < p->count);
    bt_tree_sum_push(f, node, NULL, p->n, bt_op_add);
}

/* the nodes with the last unit, their arrays beginning at `begin`; adds n elements, or nothing when
 * only the shape is wanted */
static bt_tree_sum with_last(const bt_unit_accumulator *p, size_t begin, size_t n) {
    bt_tree_sum f = p->fold;
    for (size_t i = 0; i < f.n; i++) f.at[i].x += begin;
    bt_tree_sum_push(&f, (bt_node){p->first + p->count - 1, 0, p->grads + begin}, p->grads + begin,
                     n, bt_op_add);
    return f;
}

void bt_accumulator_range(bt_unit_accumulator *p, bt_range r) {
    assert(p->done == p->count - 1);
    if (p->rounding) bt_rounding_range(p->rounding, p->grads + r.begin, r, p->first + p->done);
    if (p->fold.n > 0 && r.end > r.begin) with_last(p, r.begin, r.end - r.begin);
}

bt_tree_sum bt_accumulator_nodes(const bt_unit_accumulator *p) { return with_last(p, 0, 0); }
