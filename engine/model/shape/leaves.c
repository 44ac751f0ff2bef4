/* leaves.c - possible numbers of leaves of a model, and the assignment of kv heads to leaves. */
#include "engine/model/shape/leaves.h"

bool bt_leaves_fit(const bt_model_cfg *c, int n) {
    return n >= 1 && n <= BT_LEAVES_MAX && bt_slice_heads_fit(c, n) && c->F % n == 0 && c->V >= n;
}

int bt_leaves_auto(const bt_model_cfg *c) {
    int n = BT_LEAVES_AUTO;
    while (!bt_leaves_fit(c, n)) n /= 2;
    return n;
}

bool bt_leaves_divide(int leaves, int ranks) {
    int each = leaves / ranks;
    return ranks == 1 || (leaves % ranks == 0 && (each & (each - 1)) == 0);
}

static size_t query_heads_of_leaf(const bt_model_cfg *c, bt_model_slice slice, int leaves) {
    return (size_t)c->H / bt_slice_leaves(slice, leaves);
}

static size_t query_heads_of_kv(const bt_model_cfg *c) {
    return (size_t)(c->group ? c->group : c->H / c->KV);
}

size_t bt_leaves_first_kv(const bt_model_cfg *c, bt_model_slice slice, int leaves, size_t leaf) {
    size_t group = query_heads_of_kv(c);
    return ((size_t)c->skip + leaf * query_heads_of_leaf(c, slice, leaves) + group - 1) / group;
}

bool bt_leaves_split_kv(const bt_model_cfg *c, bt_model_slice slice, int leaves) {
    size_t each = query_heads_of_leaf(c, slice, leaves), group = query_heads_of_kv(c);
    return leaves > 1 && each % group && group % each;
}

size_t bt_leaves_kv_runs(const bt_model_cfg *c, bt_model_slice slice, int leaves) {
    size_t n = bt_slice_leaves(slice, leaves), kv = (size_t)c->KV;
    if (bt_leaves_split_kv(c, slice, leaves)) return n > 1 ? 2 : 1;
    return kv < n ? n / kv : 1;
}

size_t bt_leaves_packed(const bt_model_cfg *c, bt_model_slice slice, int leaves,
                        const bt_tensor *t) {
    size_t n = bt_slice_leaves(slice, leaves), kv = (size_t)c->KV;
    if (t->shard == BT_SHARD_KVROW) return kv < n || bt_leaves_split_kv(c, slice, leaves) ? kv : n;
    return t->shard == BT_SHARD_ROW ? n : 1;
}
