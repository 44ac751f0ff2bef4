/* unit_accumulator.c - keeps sums of complete subtrees of units until their siblings are complete. */
#include "engine/parallel/grad/unit_accumulator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

enum { GRAIN = 16384 };

typedef struct lane { /* a part of the array */
    bt_range range;
    int64_t done;
    float *unit;      /* array of the current unit */
    bt_tree_sum fold; /* sums of the finished units; arrays from their beginnings */
} lane;

struct bt_unit_accumulator {
    float *grads;
    size_t n;
    int64_t first, count;
    bt_unit_rounding *rounding;
    bt_arena arena;
    float *buffers[BT_TREE_SUM_MAX];
    size_t n_buffers;
    lane *lanes;
    int n_lanes;
};

typedef struct pass {
    float *into, *unit;
    size_t first;               /* first element of this lane in the arrays */
    bt_unit_rounding *rounding; /* NULL: none */
    int64_t index;              /* index of the unit */
} pass;

static void round_range(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    pass *p = ctx;
    begin += p->first, end += p->first;
    bt_rounding_range(p->rounding, p->unit + begin, (bt_range){begin, end}, p->index);
}

static void add_unit_range(void *ctx, int thread, size_t begin, size_t end) {
    pass *p = ctx;
    if (p->rounding) round_range(ctx, thread, begin, end);
    begin += p->first, end += p->first;
    bt_active_kernels()->add(p->into + begin, p->unit + begin, end - begin);
    memset(p->unit + begin, 0, (end - begin) * sizeof(float));
}

/* Returns the maximum number of nodes that wait for the next unit, each of which needs a further array. */
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

bt_code bt_accumulator_create(bt_unit_accumulator **out, const bt_accumulator_cfg *c, bt_err *err) {
    *out = NULL;
    const int n_lanes = c->n_lanes > 0 ? c->n_lanes : 1;
    bt_unit_accumulator *p = calloc(1, sizeof *p);
    lane *lanes = calloc((size_t)n_lanes, sizeof *lanes);
    if (!p || !lanes) {
        free(p);
        free(lanes);
        return bt_fail(err, BT_NOMEM, "cannot take memory for the partial sums");
    }
    *p = (bt_unit_accumulator){.grads = c->grads,
                               .n = c->n,
                               .first = c->first_unit,
                               .count = c->n_units,
                               .rounding = c->rounding,
                               .n_buffers = most_waiting(c->first_unit, c->n_units),
                               .lanes = lanes,
                               .n_lanes = n_lanes};
    for (int i = 0; i < n_lanes; i++)
        lanes[i].range = c->n_lanes > 0 ? c->lanes[i] : (bt_range){0, c->n};
    bt_arena_plan(&p->arena, "partial sums");
    size_t offsets[BT_TREE_SUM_MAX];
    for (size_t i = 0; i < p->n_buffers; i++)
        offsets[i] = bt_arena_reserve(&p->arena, c->n, sizeof(float));
    bt_code code = bt_arena_commit(&p->arena, err);
    if (code != BT_OK) {
        free(lanes);
        free(p);
        return code;
    }
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): all offsets were reserved above
    for (size_t i = 0; i < p->n_buffers; i++) p->buffers[i] = bt_arena_at(&p->arena, offsets[i]);
    *out = p;
    return BT_OK;
}

void bt_accumulator_destroy(bt_unit_accumulator *p) {
    if (!p) return;
    bt_arena_release(&p->arena);
    free(p->lanes);
    free(p);
}

void bt_accumulator_begin(bt_unit_accumulator *p) {
    for (int i = 0; i < p->n_lanes; i++) p->lanes[i].done = 0, p->lanes[i].fold.n = 0;
}

static float *free_buffer(const bt_unit_accumulator *p, const lane *l) {
    for (size_t i = 0; i < p->n_buffers; i++) {
        bool used = false;
        for (size_t k = 0; k < l->fold.n; k++) used |= l->fold.at[k].x == p->buffers[i];
        if (!used) return p->buffers[i];
    }
    assert(!"most_waiting counts every node");
    return NULL;
}

/* Returns true if the unit has an odd index and the unit before it waits to be added to it. */
static bool completes_a_pair(const bt_unit_accumulator *p, const lane *l) {
    const bt_tree_sum *f = &l->fold;
    return f->n > 0 && ((p->first + l->done) & 1) && f->at[f->n - 1].level == 0;
}

float *bt_accumulator_unit(bt_unit_accumulator *p, int i) {
    lane *l = &p->lanes[i];
    l->unit = p->grads;
    if (l->done == p->count - 1 || completes_a_pair(p, l)) return l->unit;
    l->unit = free_buffer(p, l);
    bt_op_zero(l->unit + l->range.begin, l->range.end - l->range.begin);
    return l->unit;
}

/* Adds a node to the range of a lane; arrays are passed and stored from their beginnings. */
static void push_node(bt_tree_sum *f, bt_node node, bt_range r) {
    for (size_t i = 0; i < f->n; i++) f->at[i].x += r.begin;
    node.x += r.begin;
    bt_tree_sum_push(f, node, NULL, r.end - r.begin, bt_op_add);
    for (size_t i = 0; i < f->n; i++) f->at[i].x -= r.begin;
}

void bt_accumulator_unit_done(bt_unit_accumulator *p, int i) {
    lane *l = &p->lanes[i];
    bt_tree_sum *f = &l->fold;
    const size_t n = l->range.end - l->range.begin;
    bt_node node = {p->first + l->done, 0, l->unit};
    /* The sum is stored in the sibling's array, and the next unit begins with zeros. */
    if (l->unit == p->grads) {
        pass job = {f->at[f->n - 1].x, p->grads, l->range.begin, p->rounding, node.index};
        bt_parallel_for(n, GRAIN, add_unit_range, &job);
        f->n--;
        node = (bt_node){node.index >> 1, 1, job.into};
    } else if (p->rounding) {
        pass job = {NULL, l->unit, l->range.begin, p->rounding, node.index};
        bt_parallel_for(n, GRAIN, round_range, &job);
    }
    l->done++;
    assert(l->done < p->count);
    push_node(f, node, l->range);
}

/* Returns the nodes including the last unit, with arrays from `begin` on. Adds n elements; n 0: shape only. */
static bt_tree_sum fold_with_last_unit(const bt_unit_accumulator *p, const lane *l, size_t begin,
                                       size_t n) {
    bt_tree_sum f = l->fold;
    for (size_t i = 0; i < f.n; i++) f.at[i].x += begin;
    bt_tree_sum_push(&f, (bt_node){p->first + p->count - 1, 0, p->grads + begin}, p->grads + begin,
                     n, bt_op_add);
    return f;
}

void bt_accumulator_range(bt_unit_accumulator *p, bt_range r) {
    for (int i = 0; i < p->n_lanes; i++) {
        const lane *l = &p->lanes[i];
        const bt_range part = {bt_max_size(r.begin, l->range.begin),
                               bt_min_size(r.end, l->range.end)};
        if (part.begin >= part.end) continue;
        assert(l->done == p->count - 1);
        if (p->rounding)
            bt_rounding_range(p->rounding, p->grads + part.begin, part, p->first + l->done);
        if (l->fold.n > 0) fold_with_last_unit(p, l, part.begin, part.end - part.begin);
    }
}

/* All lanes take buffers in the same order. */
bt_tree_sum bt_accumulator_nodes(const bt_unit_accumulator *p) {
    return fold_with_last_unit(p, &p->lanes[p->n_lanes - 1], 0, 0);
}
