/* data_lease.c - stores leases as a short list of ranges; an island has one, rarely two. */
#include "engine/islands/rules/data_lease.h"

#include <stdlib.h>
#include <string.h>

enum { BACK = -1 };

void bt_leases_release(bt_leases *l) {
    free(l->at);
    *l = (bt_leases){.next = 0};
}

static bt_code reserve_lease(bt_leases *l, bt_err *err) {
    if (l->n < l->cap) return BT_OK;
    const size_t cap = l->cap ? 2 * l->cap : 16;
    bt_lease *at = realloc(l->at, cap * sizeof *at);
    if (!at) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu leases of data", cap);
    l->at = at;
    l->cap = cap;
    return BT_OK;
}

static void remove_lease_at(bt_leases *l, size_t i) { l->at[i] = l->at[--l->n]; }

bt_code bt_leases_take(bt_leases *l, int64_t owner, int64_t n, int64_t *begin, bt_err *err) {
    BT_TRY(reserve_lease(l, err));
    bt_lease *from = NULL;
    for (size_t i = 0; i < l->n; i++) {
        bt_lease *x = &l->at[i];
        if (x->owner == BACK && x->end - x->begin >= n && (!from || x->begin < from->begin))
            from = x;
    }
    *begin = from ? from->begin : l->next;
    if (!from) {
        l->next += n;
    } else {
        from->begin += n;
        if (from->begin == from->end) remove_lease_at(l, (size_t)(from - l->at));
    }
    l->at[l->n++] = (bt_lease){*begin, *begin + n, owner};
    return BT_OK;
}

bool bt_leases_done(bt_leases *l, int64_t owner, int64_t begin, int64_t end) {
    for (size_t i = 0; i < l->n; i++) {
        bt_lease *x = &l->at[i];
        if (x->owner != owner || x->begin != begin || x->end < end) continue;
        x->begin = end;
        if (x->begin == x->end) remove_lease_at(l, i);
        return true;
    }
    return false;
}

/* Merges adjacent returned ranges, so that a larger step fits into them. */
static void merge_returned_ranges(bt_leases *l) {
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < l->n; k++) {
            if (l->at[i].owner != BACK || l->at[k].owner != BACK || l->at[i].end != l->at[k].begin)
                continue;
            l->at[i].end = l->at[k].end;
            remove_lease_at(l, k);
            if (i == l->n) i = k; /* the merge moved element n to k */
            k = (size_t)-1;
        }
}

int64_t bt_leases_give_back(bt_leases *l, int64_t owner) {
    int64_t sum = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i].owner != owner) continue;
        l->at[i].owner = BACK;
        sum += l->at[i].end - l->at[i].begin;
    }
    if (sum) merge_returned_ranges(l);
    return sum;
}

bt_code bt_leases_return(bt_leases *l, int64_t begin, int64_t end, bt_err *err) {
    BT_TRY(reserve_lease(l, err));
    if (begin < end) l->at[l->n++] = (bt_lease){begin, end, BACK};
    merge_returned_ranges(l);
    return BT_OK;
}

static bool cut_returned_range(bt_leases *l, int64_t begin, int64_t end) {
    for (size_t i = 0; i < l->n; i++) {
        bt_lease *x = &l->at[i];
        if (x->owner != BACK || x->begin > begin || x->end < end) continue;
        const bt_lease rest = {end, x->end, BACK};
        x->end = begin;
        if (x->begin == x->end) remove_lease_at(l, i);
        if (rest.begin < rest.end) l->at[l->n++] = rest;
        return true;
    }
    return false;
}

bool bt_leases_claim(bt_leases *l, int64_t owner, int64_t begin, int64_t end) {
    bt_err ignored = BT_ERR_INIT;
    if (begin < 0 || begin >= end || reserve_lease(l, &ignored) != BT_OK) return false;
    if (end >
        l->next) { /* the range was leased after the restored state of the hub had been stored */
        if (bt_leases_return(l, l->next, end, &ignored) != BT_OK) return false;
        l->next = end;
    }
    if (reserve_lease(l, &ignored) != BT_OK || l->n + 2 > l->cap) {
        bt_lease *at = realloc(l->at, (2 * l->cap + 4) * sizeof *at);
        if (!at) return false;
        l->at = at;
        l->cap = 2 * l->cap + 4;
    }
    if (!cut_returned_range(l, begin, end)) return false;
    l->at[l->n++] = (bt_lease){begin, end, owner};
    return true;
}
