/* view.c - opens the view model, loads the requested parts, names axes and values. */
#include "store/view/view.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "store/sql/sql.h"
#include "store/view/view_impl.h"

const char *bt_verdict_name(bt_verdict v) {
    static const char *const names[] = {"ok",        "late",       "bursty",
                                        "node-wide", "recovering", "crowded"};
    return (unsigned)v < sizeof names / sizeof names[0] ? names[v] : "";
}

static const struct {
    const char *name, *title;
    bt_unit unit;
} axes[BT_X_COUNT] = {
    {"step", "step", BT_UNIT_COUNT},
    {"tokens", "tokens", BT_UNIT_COUNT},
    {"time", "wall time", BT_UNIT_NONE},
    {"active", "active time", BT_UNIT_NONE},
    {"bytes", "bytes on the wire", BT_UNIT_BYTES},
};

const char *bt_x_axis_name(bt_x_axis x) { return (unsigned)x < BT_X_COUNT ? axes[x].name : ""; }
const char *bt_x_axis_title(bt_x_axis x) { return (unsigned)x < BT_X_COUNT ? axes[x].title : ""; }
bt_unit bt_x_axis_unit(bt_x_axis x) {
    return (unsigned)x < BT_X_COUNT ? axes[x].unit : BT_UNIT_NONE;
}

bool bt_x_axis_parse(const char *word, bt_x_axis *x) {
    for (int i = 0; i < BT_X_COUNT; i++) {
        if (strcmp(word, axes[i].name) == 0) {
            *x = (bt_x_axis)i;
            return true;
        }
    }
    return false;
}

const char *bt_heat_value_name(bt_heat_value v) {
    static const char *const names[] = {"busy",   "step", "wait", "data",  "comm",
                                        "memory", "fwd",  "bwd",  "optim", "loss"};
    return (unsigned)v < BT_HEAT_VALUES ? names[v] : "";
}

bt_code bt_view_open(bt_view **out, bt_db *db, bt_err *err) {
    bt_view *v = calloc(1, sizeof *v);
    bt_view_impl *m = calloc(1, sizeof *m);
    if (!v || !m) {
        free(v);
        free(m);
        return bt_fail(err, BT_NOMEM, "cannot allocate the view");
    }
    v->impl = m;
    m->db = db;
    *out = v;
    return BT_OK;
}

void bt_view_close(bt_view *v) {
    if (!v) return;
    bt_view_impl *m = v->impl;
    bt_vq_release(m);
    for (size_t i = 0; i < m->n_streams; i++) bt_view_stream_release(&m->stream[i]);
    free(m->stream);
    bt_ledger_release(&m->ledger);
    bt_ledger_release(&m->other);
    free(m->tail);
    free(m->row);
    free(m->work);
    free(m->at_median);
    free(m->judged);
    free(m->named);
    free(m->tail_sql);
    free(m->rank_sql);
    free(m->op_sql);
    free(m->heat.sum);
    free(m->heat.count);
    free(m->heat_base.sum);
    free(m->heat_base.count);
    free(m->heat_work);
    free(m->heat_cell);
    free(m->heat_time);
    free(m->heat_step);
    free(v->ranks.rank);
    free(v->ranks.order);
    free(v->layers.layer);
    free(v->distribution.tensor);
    free(v->comm.op);
    free(v->comm.pair);
    free(v->events.event);
    free(v->events.mark);
    free(v->settings.row);
    free(v->runs.run);
    free(m);
    free(v);
}

void bt_view_request_init(bt_view_request *ask) {
    *ask = (bt_view_request){.parts = BT_VIEW_HEAD, .at_step = -1, .x = BT_X_STEP};
}

static bt_code load_requested_parts(bt_view *v, const bt_view_request *ask, bt_err *err) {
    if (ask->parts & BT_VIEW_RUNS) BT_TRY(bt_view_load_runs(v, ask, err));
    if (!ask->run || !(ask->parts & ~(unsigned)BT_VIEW_RUNS)) return BT_OK;
    if (ask->bare) {
        BT_TRY(bt_view_load_position(v, ask, err));
        return bt_view_load_series(v, ask, err);
    }
    /* selects the displayed step for all other parts */
    BT_TRY(bt_view_load_head(v, ask, err));
    BT_TRY(bt_view_load_ranks(v, ask, err));
    BT_TRY(bt_view_load_summary(v, err));
    if (ask->parts & BT_VIEW_SERIES) BT_TRY(bt_view_load_series(v, ask, err));
    if (ask->parts & BT_VIEW_HEAT) BT_TRY(bt_view_load_heat(v, ask, err));
    if (ask->parts & BT_VIEW_LAYERS) BT_TRY(bt_view_load_layers(v, ask, err));
    if (ask->parts & BT_VIEW_DISTRIBUTION) BT_TRY(bt_view_load_distribution(v, ask, err));
    if (ask->parts & BT_VIEW_COMM) BT_TRY(bt_view_load_comm(v, ask, err));
    if (ask->parts & BT_VIEW_PANEL) BT_TRY(bt_view_load_panel(v, ask, err));
    if (ask->parts & BT_VIEW_EVENTS) BT_TRY(bt_view_load_events(v, ask, err));
    if (ask->parts & BT_VIEW_ISLANDS) BT_TRY(bt_view_load_islands(v, err));
    if (ask->parts & BT_VIEW_SETTINGS) BT_TRY(bt_view_load_settings(v, err));
    return BT_OK;
}

bt_code bt_view_load(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    m->now_us = ask->now_us ? ask->now_us : bt_wall_us();
    m->loads++;
    BT_TRY(bt_db_snapshot(m->db, err));
    bt_code code = load_requested_parts(v, ask, err);
    bt_db_snapshot_end(m->db);
    return code;
}
