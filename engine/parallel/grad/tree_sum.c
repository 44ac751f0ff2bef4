/* tree_sum.c - adds nodes like a binary counter: two sums of one level become one of the next. */
#include "engine/parallel/grad/tree_sum.h"

#include <assert.h>

/* Adds two neighbouring nodes into the array of one of them. */
static bt_node join_nodes(bt_node left, bt_node right, const float *keep, size_t n,
                          bt_tree_sum_add add) {
    float *x = NULL;
    if (left.x) {
        x = right.x == keep ? right.x : left.x;
        add(x, x == left.x ? right.x : left.x, n); /* a + b and b + a have the same bits */
    }
    return (bt_node){left.index >> 1, left.level + 1, x};
}

bool bt_tree_sum_pairs(const bt_tree_sum *f, const bt_node *node) {
    return f->n > 0 && (node->index & 1) && f->at[f->n - 1].level == node->level;
}

void bt_tree_sum_push(bt_tree_sum *f, bt_node node, const float *keep, size_t n,
                      bt_tree_sum_add add) {
    while (bt_tree_sum_pairs(f, &node)) node = join_nodes(f->at[--f->n], node, keep, n, add);
    assert(f->n < BT_TREE_SUM_MAX);
    f->at[f->n++] = node;
}

float *bt_tree_sum_root(bt_tree_sum *f, const float *keep, size_t n, bt_tree_sum_add add) {
    if (f->n == 0) return NULL;
    bt_node root = f->at[--f->n];
    while (f->n > 0) root = join_nodes(f->at[--f->n], root, keep, n, add);
    return root.x;
}

bt_tree_sum bt_tree_sum_shape(int64_t first, int64_t count) {
    bt_tree_sum f = {.n = 0};
    for (int64_t u = first; u < first + count; u++)
        bt_tree_sum_push(&f, (bt_node){u, 0, NULL}, NULL, 0, NULL);
    return f;
}
