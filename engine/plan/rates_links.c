/* rates_links.c - messages in groups of ranks, as the axes of a mesh make them: neighbours (tensor
 * parallelism, data parallelism beside it) and ranks far apart (replicas of a tensor-parallel group,
 * stages). */
#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/rates_probe.h"

enum { LINK_BYTES = 4 << 20, ROWS = 2048, COLS = 512, ROUNDS = 15, TP_MOST = 16, STEPS = 64 };

/* wall time: a quarter of the samples is shorter, so that what other programs take matters little */
static double low(double *samples, size_t n) {
    (void)bt_probe_median(samples, n); /* sorted now */
    return samples[n / 4];
}

/* All groups at once: they share what the machine has. */
static bt_code probe_tp(bt_link_rate *l, bt_comm *group, bt_err *err) {
    bt_tp_group *t = NULL;
    double meet[ROUNDS], rows[ROUNDS];
    char mine[64] = {0}, all[64 * TP_MOST];
    BT_TRY(bt_tp_group_create(&t, group, ROWS, COLS, err));
    bt_code code = BT_OK;
    for (int i = 0; code == BT_OK && i < ROUNDS; i++) {
        int64_t at = bt_now_ns();
        t->all_gather(t, mine, all, sizeof mine);
        meet[i] = (double)(bt_now_ns() - at) / 1e9;
        at = bt_now_ns();
        t->reduce_scatter_rows(t, ROWS, COLS);
        rows[i] = (double)(bt_now_ns() - at) / 1e9;
        code = bt_tp_group_check(t, err);
    }
    bt_tp_group_destroy(t);
    if (code != BT_OK) return code;
    l->meet_s = low(meet, ROUNDS);
    double moved_s = low(rows, ROUNDS) - l->meet_s,
           bytes = (double)ROWS * COLS * sizeof(float) * (l->n - 1) / l->n;
    l->rows_bytes_per_s = moved_s > 0 ? bytes / moved_s : 0;
    return BT_OK;
}

static bt_code probe_agreement(bt_comm *group, double *out, bt_err *err) {
    double took[STEPS];
    for (int i = 0; i < STEPS; i++) {
        int64_t said[5] = {0}, start = bt_now_ns();
        BT_TRY(bt_all_reduce_i64(group, said, 5, BT_MAX, err));
        took[i] = (double)(bt_now_ns() - start) / 1e9;
    }
    *out = low(took, STEPS);
    return BT_OK;
}

static bt_code probe_group(bt_rates *r, int n, int stride, bt_err *err) {
    bt_comm *world = bt_comm_world(), *group = NULL;
    int me = bt_comm_rank(world), block = n * stride;
    bt_link link;
    if (r->n_links == BT_RATES_LINKS) return BT_OK;
    BT_TRY(bt_comm_split(&group, world, me / block * stride + me % stride, me, err));
    bt_link_rate l = {.world = bt_comm_size(world), .n = n, .stride = stride};
    bt_code code = bt_link_measure(&link, group, LINK_BYTES, err);
    double v[] = {link.latency_s, link.bytes_per_s};
    if (code == BT_OK) code = probe_agreement(group, &l.agree_s, err);
    /* the slowest group's; a link that could not be measured in one group is not known */
    if (code == BT_OK) code = bt_all_reduce_f64(world, &v[0], 1, BT_MAX, err);
    if (code == BT_OK) code = bt_all_reduce_f64(world, &v[1], 1, BT_MIN, err);
    l.latency_s = v[0];
    l.bytes_per_s = v[1];
    if (code == BT_OK && stride == 1 && n <= TP_MOST) code = probe_tp(&l, group, err);
    bt_comm_free(group);
    if (code != BT_OK) return code;
    /* rank 0's group's; it is rank 0 that tells */
    r->links[r->n_links++] = l;
    return BT_OK;
}

bt_code bt_rates_probe_links(bt_rates *r, bt_err *err) {
    int world = bt_comm_size(bt_comm_world());
    bt_span_reset();
    r->n_links = 0;
    for (int n = 2; n <= world; n++) {
        if (world % n != 0) continue;
        BT_TRY(probe_group(r, n, 1, err));
        if (n < world) BT_TRY(probe_group(r, n, world / n, err));
    }
    bt_span_reset();
    return BT_OK;
}
