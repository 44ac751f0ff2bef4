/* view_islands.c - loads the islands of a hub's run at its newest sample, the age of their updates, and their
 * events. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "store/view/view_impl.h"

static bool append_island_row(void *ctx, const bt_row *r) {
    bt_view_islands *l = ctx;
    if (l->n == BT_VIEW_ISLANDS_MAX) return false;
    bt_view_island *x = &l->island[l->n++];
    bt_text_plain(x->name, sizeof x->name, r->cells[0] ? r->cells[0] : "");
    bt_text_plain(x->host, sizeof x->host, r->cells[1] ? r->cells[1] : "");
    x->recorded = r->cells[2] != NULL;
    for (int k = 0; k < BT_MI_COUNT; k++) x->value[k] = r->nums[3 + k];
    return true;
}

static bt_code load_island_rows(bt_view *v, double step, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    /* A rank of a hub's run is an island; its isa column contains the island's name. */
    bt_text_put(&sql, "SELECT island, (SELECT host FROM ranks r WHERE r.run = i.run AND r.isa = "
                      "i.island ORDER BY attempt DESC LIMIT 1), (SELECT n.run FROM runs n WHERE "
                      "n.run = i.island)");
    for (int k = 0; k < BT_MI_COUNT; k++)
        bt_text_printf(&sql, ", i.\"%s\"", bt_scopes[BT_SCOPE_ISLAND].metric[k].key);
    bt_text_put(&sql, " FROM islands i WHERE run = ?1 AND step = ?2 ORDER BY island");
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : bt_vq_rows(v->impl, bt_text_str(&sql), v->head.run, &step, 1,
                                           append_island_row, &v->islands, err);
    bt_text_release(&sql);
    return code;
}

static bool append_staleness_row(void *ctx, const double *col, int n) {
    bt_view_islands *l = ctx;
    if (l->n_stale == BT_VIEW_STALENESS_MAX || n < 2) return false;
    l->stale[l->n_stale++] = (bt_view_staleness){bt_whole(col[0], 0), col[1]};
    return true;
}

static bool count_island_events(void *ctx, const bt_row *r) {
    bt_view_islands *l = ctx;
    const bt_event_kind kind = r->cells[0] ? bt_event_find(r->cells[0]) : BT_EVENT_COUNT;
    int64_t *n = kind == BT_EVENT_ISLAND_JOINED ? &l->joined
                 : kind == BT_EVENT_ISLAND_LEFT ? &l->left
                 : kind == BT_EVENT_ISLAND_LOST ? &l->lost
                 : kind == BT_EVENT_ISLAND_LATE ? &l->late
                 : kind == BT_EVENT_REFUSED     ? &l->refused
                                                : NULL;
    if (n) *n = bt_whole(r->nums[1], 0);
    return true;
}

static void sum_island_updates(bt_view *v) {
    bt_view_islands *l = &v->islands;
    double weighted = 0;
    for (size_t i = 0; i < l->n; i++) {
        const double *x = l->island[i].value;
        l->bytes += x[BT_MI_BYTES] > 0 ? x[BT_MI_BYTES] : 0;
        l->left_out += x[BT_MI_LEFT_OUT] > 0 ? x[BT_MI_LEFT_OUT] : 0;
        /* After the end of the hub no island trains, so the progress of all islands counts. */
        if (!(x[BT_MI_TRAINS] > 0) && v->head.live) continue;
        l->training += x[BT_MI_TRAINS] > 0;
        l->sequences += x[BT_MI_BATCH];
        if (isnan(l->slowest) || x[BT_MI_CLOCK] < l->slowest) l->slowest = x[BT_MI_CLOCK];
        if (isnan(l->fastest) || x[BT_MI_CLOCK] > l->fastest) l->fastest = x[BT_MI_CLOCK];
    }
    for (size_t i = 0; i < l->n_stale; i++) {
        l->updates += l->stale[i].updates;
        weighted += (double)l->stale[i].staleness * l->stale[i].updates;
    }
    l->mean_staleness = l->updates > 0 ? weighted / l->updates : (double)NAN;
    if (v->head.step >= 0) l->tokens_per_update = v->head.tokens / (double)(v->head.step + 1);
}

bt_code bt_view_load_islands(bt_view *v, bt_err *err) {
    bt_view_islands *l = &v->islands;
    const char *run = v->head.run;
    *l = (bt_view_islands){.step = -1,
                           .slowest = NAN,
                           .fastest = NAN,
                           .mean_staleness = NAN,
                           .tokens_per_update = NAN};
    if (!v->head.hub) return BT_OK;
    BT_TRY(
        bt_vq_rows(v->impl,
                   "SELECT kind, count(*) FROM events WHERE run = ?1 AND (kind LIKE 'island_%' OR "
                   "kind = 'refused') GROUP BY kind",
                   run, NULL, 0, count_island_events, l, err));
    BT_TRY(bt_view_sample_before(v, BT_SCOPE_ISLAND, v->head.step, &l->step, err));
    if (l->step < 0) return BT_OK;
    const double step = (double)l->step;
    BT_TRY(load_island_rows(v, step, err));
    BT_TRY(bt_vq_each(v->impl,
                      "SELECT staleness, updates FROM staleness WHERE run = ?1 AND step = ?2 ORDER "
                      "BY staleness",
                      run, &step, 1, append_staleness_row, l, err));
    /* The newest sample precedes the end of the hub. */
    for (size_t i = 0; i < l->n && !v->head.live; i++) l->island[i].value[BT_MI_TRAINS] = 0;
    sum_island_updates(v);
    return BT_OK;
}

void bt_view_islands_json(const bt_view_islands *l, bt_json *j) {
    bt_json_object(j, "islands");
    BT_JSON_FIELDS(j, l, F(step), F(training), F(slowest), F(fastest), F(sequences),
                   F(tokens_per_update), F_AS("bytes_wire", bytes), F(updates), F(mean_staleness),
                   F(left_out), F(joined), F(left), F(lost), F(late), F(refused));
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n; i++) {
        bt_json_object(j, NULL);
        bt_json_str(j, "island", l->island[i].name);
        bt_json_str(j, "host", l->island[i].host);
        bt_json_str(j, "run", l->island[i].recorded ? l->island[i].name : NULL);
        for (int k = 0; k < BT_MI_COUNT; k++)
            bt_json_num(j, bt_scopes[BT_SCOPE_ISLAND].metric[k].key, l->island[i].value[k]);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    BT_JSON_ROWS(j, "staleness", l->stale, l->n_stale, F(staleness), F(updates));
    bt_json_end(j, '}');
}
