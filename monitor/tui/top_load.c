/* top_load.c - loads the view from the database, limited to the current screen. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/tui/screens/top_state.h"

const double bt_top_spans[] = {60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600, 0};
const int bt_top_spans_n = sizeof bt_top_spans / sizeof bt_top_spans[0];

static const bt_step_metric series_of[BT_TS_COUNT] = {
    [BT_TS_LOSS] = BT_MS_LOSS,
    [BT_TS_VAL] = BT_MS_VAL_LOSS,
    [BT_TS_GRAD] = BT_MS_GRAD_NORM,
    [BT_TS_LR] = BT_MS_LR,
    [BT_TS_SPEED] = BT_MS_TOKENS_PER_S,
    [BT_TS_STEP] = BT_MS_STEP_TIME,
    [BT_TS_OVERHEAD] = BT_MS_COMM_OVERHEAD,
    [BT_TS_OVERLAP] = BT_MS_OVERLAP,
    [BT_TS_LOGICAL] = BT_MS_BYTES_LOGICAL,
    [BT_TS_WIRE] = BT_MS_BYTES_WIRE,
    [BT_TS_RSS] = BT_MS_RSS_MAX,
    [BT_TS_MFU] = BT_MS_MFU,
};

bool bt_top_select_run(bt_top *t, const char *run) {
    bt_err err = BT_ERR_INIT;
    char name[BT_NAME_MAX];
    if (bt_db_run(t->cfg.db, run, name, &err) != BT_OK) {
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
        return false;
    }
    snprintf(t->run, sizeof t->run, "%s", name);
    t->has_run = true;
    t->n_marked_ranks = 0;
    t->at_step = -1;
    t->reload = true;
    return true;
}

bt_code bt_top_open(bt_top *t, const bt_top_cfg *cfg, bt_term *term, bt_err *err) {
    *t = (bt_top){.cfg = *cfg,
                  .term = term,
                  .at_step = cfg->at_step,
                  .x = cfg->x,
                  .span_s = cfg->span_s,
                  .smooth = BT_TOP_SMOOTH_FIRST,
                  .metric = BT_MS_LOSS,
                  .seen_version = -1};
    t->screen = cfg->screen >= 1 && cfg->screen < BT_SCREEN_COUNT ? (bt_screen_id)cfg->screen
                                                                  : BT_SCREEN_OVERVIEW;
    t->span = bt_top_spans_n - 1;
    for (int i = 0; i < bt_top_spans_n; i++)
        if (bt_top_spans[i] > 0 && fabs(bt_top_spans[i] - cfg->span_s) < 1) t->span = i;
    for (int i = 0; i < BT_SCREEN_COUNT; i++) t->list[i].sort = -1;
    if (cfg->baseline && cfg->baseline[0])
        BT_TRY(bt_db_run(cfg->db, cfg->baseline, t->baseline, err));
    if (cfg->run && cfg->run[0]) {
        BT_TRY(bt_db_run(cfg->db, cfg->run, t->run, err));
        t->has_run = true;
        snprintf(t->cursor_run, sizeof t->cursor_run, "%s", t->run);
    } else {
        t->screen = BT_SCREEN_RUNS;
    }
    return bt_view_open(&t->view, cfg->db, err);
}

void bt_top_close(bt_top *t) {
    bt_view_close(t->view);
    bt_canvas_release(&t->canvas);
    free(t->compared);
    free(t->setting);
    free(t->scatter.value);
    free(t->range);
    if (t->filter_is_re) regfree(&t->filter_re);
    *t = (bt_top){0};
}

bt_code bt_top_follow(bt_top *t, bt_err *err) {
    bt_view *view = NULL;
    char name[BT_NAME_MAX];
    bt_err none = BT_ERR_INIT;
    BT_TRY(bt_view_open(&view, t->cfg.db, err));
    bt_code code = bt_db_reopen(t->cfg.db, err);
    if (code != BT_OK) {
        bt_view_close(view);
        return code;
    }
    bt_view_close(t->view);
    t->view = view;
    t->seen_version = -1;
    t->comparing = false;
    t->n_marked = 0;
    t->sent.run[0] = t->range_of[0] = t->log.run[0] = 0;
    if (t->baseline[0] && bt_db_run(t->cfg.db, t->baseline, name, &none) != BT_OK)
        t->baseline[0] = 0;
    if (!t->has_run || bt_db_run(t->cfg.db, t->run, name, &none) == BT_OK) {
        bt_top_message(t, BT_C_WARN, "the database was replaced: this is the new one");
        return BT_OK;
    }
    bt_top_message(t, BT_C_WARN, "the database was replaced, and %s is not in the new one", t->run);
    t->has_run = false;
    t->run[0] = 0;
    t->screen = BT_SCREEN_RUNS;
    return BT_OK;
}

static void compose_view_request(const bt_top *t, unsigned parts, bt_view_request *ask) {
    int w, h;
    bt_term_size(t->term, &w, &h);
    bt_view_request_init(ask);
    ask->parts = parts;
    ask->run = t->has_run ? t->run : NULL;
    ask->baseline = t->baseline[0] ? t->baseline : NULL;
    ask->now_us = t->cfg.now_us;
    ask->at_step = t->at_step;
    ask->span_s = t->span_s;
    ask->x = t->x;
    ask->columns = 512; /* in every window, because averages use its buckets */
    ask->heat = t->heat;
    ask->max_runs = 2000;
    ask->max_marks = 60;
    ask->heat_columns = w > 24 ? w - 12 : 12;
    ask->panel = (bt_metric_panel)(t->mode % BT_PANEL_COUNT);
    ask->layer = t->tensor_layer;
    ask->tensor = t->tensor[0] ? t->tensor : NULL;
    ask->n_series = BT_TS_COUNT;
    for (int i = 0; i < BT_TS_CHOSEN; i++)
        ask->series[i] = (bt_series_request){.rank = -1, .metric = (int)series_of[i]};
    ask->series[BT_TS_CHOSEN] = (bt_series_request){.rank = -1, .metric = t->metric};
}

/* Samples the processes of this machine's ranks, at most once a second. */
static void sample_ranks(bt_top *t) {
    char here[BT_HOST_MAX];
    int pids[BT_PROCS_MAX], n = 0;
    int64_t now = bt_now_ns();
    if (now - t->procs.sampled_ns < INT64_C(1000000000) || gethostname(here, sizeof here) != 0)
        return;
    here[sizeof here - 1] = 0;
    for (size_t i = 0; i < t->view->ranks.n && n < BT_PROCS_MAX; i++)
        if (strcmp(t->view->ranks.rank[i].host, here) == 0) pids[n++] = t->view->ranks.rank[i].pid;
    if (n > 0) {
        bt_procs_sample(&t->procs, pids, n, now);
        if (t->screen == BT_SCREEN_SYSTEM) bt_cores_sample(&t->cores, pids, n, now);
    } else
        t->procs.n = 0;
}

bt_code bt_top_load(bt_top *t, bt_err *err) {
    bt_view_request ask;
    unsigned parts = bt_screens[t->screen].parts;
    if (bt_top_small(t)) parts = bt_top_small_parts(t);
    compose_view_request(t, t->has_run ? parts : BT_VIEW_RUNS, &ask);
    bt_code code = t->comparing ? bt_compare_load(t, err) : BT_OK;
    if (code == BT_OK) code = bt_view_load(t->view, &ask, err);
    if (code == BT_OK && (parts & BT_VIEW_HEAT) && t->view->ranks.n == 1 &&
        ask.heat == BT_HEAT_BUSY && !ask.baseline) {
        /* The ratio of a single rank to the median is always 1, so the map shows step times. */
        ask.heat = BT_HEAT_STEP;
        code = bt_view_load(t->view, &ask, err);
    }
    if (code == BT_OK && t->screen == BT_SCREEN_OVERVIEW && t->has_run)
        code = bt_lr_chart_load(t, err);
    if (code == BT_OK && t->screen == BT_SCREEN_RUNS) code = bt_scatter_load(t, err);
    if (code == BT_OK && t->screen == BT_SCREEN_EVENTS && t->has_run) bt_top_log_load(t);
    if (code == BT_OK && t->screen == BT_SCREEN_SYSTEM && t->view->head.live) sample_ranks(t);
    if (code == BT_OK) bt_top_steer_outcome(t);
    t->reload = false;
    t->dirty = true;
    return code;
}

/* Loads the quick part of a screen of a long run: everything that needs only the newest steps. */
bool bt_top_load_numbers(bt_top *t) {
    bt_view_request ask;
    bt_err err = BT_ERR_INIT;
    unsigned parts = bt_screens[t->screen].parts, slow = BT_VIEW_SERIES | BT_VIEW_HEAT |
                                                         BT_VIEW_LAYERS | BT_VIEW_PANEL |
                                                         BT_VIEW_DISTRIBUTION;
    if (!t->has_run || !(parts & slow)) return false;
    compose_view_request(t, parts & ~slow, &ask);
    if (bt_view_load(t->view, &ask, &err) != BT_OK) return false;
    int64_t ranks = t->view->head.world_size > 1 ? t->view->head.world_size : 1;
    return t->view->head.newest_step >= BT_VIEW_EXACT_STEPS / ranks;
}

bt_code bt_top_json(const bt_top_cfg *cfg, bt_text *out, bt_err *err) {
    bt_term *term = NULL;
    bt_top *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot allocate the screens");
    bt_code code = bt_term_open_text(
        &term, NULL, (bt_term_caps){BT_CHARS_ASCII, BT_DEPTH_MONO, false}, 160, 50, false, err);
    if (code == BT_OK) code = bt_top_open(t, cfg, term, err);
    unsigned parts = cfg->screen >= 1 && cfg->screen < BT_SCREEN_COUNT
                         ? bt_screens[cfg->screen].parts
                         : BT_VIEW_ALL & ~(unsigned)BT_VIEW_RUNS;
    if (!t->has_run) parts = BT_VIEW_RUNS;
    if (code == BT_OK) {
        bt_view_request ask;
        compose_view_request(t, parts, &ask);
        code = bt_view_load(t->view, &ask, err);
    }
    if (code == BT_OK) {
        bt_json j;
        bt_json_begin(&j, out);
        bt_view_json(t->view, parts, &j, NULL);
        bt_text_put(out, "\n");
    }
    if (t->view) bt_top_close(t);
    bt_term_close(term);
    free(t);
    return code;
}
