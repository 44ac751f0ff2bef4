/* tree_sum.h - sums in the order of one fixed binary tree, for any distribution of its leaves over ranks.
 *
 *  units 0 1 2 3 4 5 6 a node sums an aligned run of 2^level units; at
 *  the right edge what is
 *  level 1 0+1 2+3 4+5 6 missing adds nothing
 *  level 2 (0+1)+(2+3) (4+5)+6
 *  level 3 all
 *
 * Units arrive in ascending order. Two finished siblings are added at once (a binary counter), so a
 * rank that holds the units [a, b) is left with few nodes; what the ranks hold, pushed rank after
 * rank, gives the same root bits for any cut.
 * Threads: one owner. Nothing is allocated; arrays belong to the caller. */
#ifndef BT_ENGINE_PARALLEL_GRAD_TREE_SUM_H
#define BT_ENGINE_PARALLEL_GRAD_TREE_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_TREE_SUM_MAX = 64 };

typedef struct bt_node {
    /* sum of the units [index << level, (index + 1) << level) */
    int64_t index;
    int level;
    float *x; /* NULL: shape only */
} bt_node;

typedef struct bt_tree_sum {
    bt_node at[BT_TREE_SUM_MAX]; /* left to right */
    size_t n;
} bt_tree_sum;

typedef void (*bt_tree_sum_add)(float *into, const float *x, size_t n); /* into += x */

/* Appends a node of n elements, right of all existing nodes, and adds siblings. A sum is stored in the array of
 * its left part, or, if the array of the right part is `keep`, in that. */
void bt_tree_sum_push(bt_tree_sum *f, bt_node node, const float *keep, size_t n,
                      bt_tree_sum_add add);
/* Returns true if the node is the right sibling of the last one, so that a push would add them. */
bool bt_tree_sum_pairs(const bt_tree_sum *f, const bt_node *node);
/* Adds the remaining nodes into one array and returns it (NULL for no node). */
float *bt_tree_sum_root(bt_tree_sum *f, const float *keep, size_t n, bt_tree_sum_add add);
/* Returns the nodes that remain after units [first, first + count). */
bt_tree_sum bt_tree_sum_shape(int64_t first, int64_t count);

#endif
