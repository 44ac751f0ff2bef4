/* train_layout.c - `train --layout auto`: lets the planner choose the settings that the user left open; predicts the
 * step time of a plan from known rates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/layout/choose_layout.h"
#include "cli/layout/layout_trial.h"
#include "cli/train/train_direct.h"
#include "cli/train/train_parts.h"
#include "engine/base/clock.h"
#include "engine/base/tables/metric.h"
#include "store/store.h"

/* Writes the line about the choice for the user, and the facts for the record. */
static void report_chosen_layout(bt_train_plan *p, const bt_layout_choice *c) {
    char words[160], ms[32];
    const bt_layout *best = &c->layouts.at[0];
    bt_text_printf(&p->layout, "%s, %s a step predicted",
                   bt_layout_words(best, words, sizeof words),
                   bt_metric_format(ms, sizeof ms, 1e3 * best->time.step.step_s, BT_UNIT_MS));
    if (best->trial_s > 0) {
        bt_text_printf(&p->layout, ", %s when it was tried",
                       bt_metric_format(ms, sizeof ms, 1e3 * best->trial_s, BT_UNIT_MS));
        bt_layout_why_parted(best, c->rates.load, NAN, &p->layout);
    }
    bt_text_put(&p->layout, ": ");
    bt_layout_why(&c->layouts, &p->layout);
}

bt_code bt_train_choose_layout(bt_train_plan *p, bt_err *err) {
    bt_layout_choice *choice = NULL;
    if (p->cfg.launch.layout != BT_LAYOUT_AUTO || p->resume) return BT_OK;
    if (p->world)
        return bt_fail(err, BT_ARG,
                       "--layout auto measures the machine before ranks start, and these have been "
                       "started already ('bitrain plan --ranks %d' prints the layout to set)",
                       p->world);
    const bt_layout_job job = {.opts = &p->opts,
                               .cfg = &p->cfg,
                               .ranks = p->ranks,
                               .store = p->store,
                               .never = bt_train_only_prints(p),
                               .trial_s = BT_LAYOUT_TRIAL_S,
                               .quiet = p->cfg.run.quiet || p->cfg.run.json};
    bt_code code = bt_layout_choose(&choice, &job, &p->layout_notes, err);
    if (code == BT_NOTFOUND && job.never) { /* a printed plan measures nothing */
        *err = (bt_err)BT_ERR_INIT;
        bt_text_printf(&p->layout_notes,
                       "layout     not chosen: --layout auto needs rates of this machine, which "
                       "'bitrain plan' and the run itself measure; what follows is the layout "
                       "without it\n");
        return BT_OK;
    }
    BT_TRY(code);
    report_chosen_layout(p, choice);
    code = bt_layout_apply(&p->opts, &choice->layouts.at[0], "--layout auto", err);
    bt_layout_choice_release(choice);
    return code;
}

/* Writes for example "'FILE', 2026-11-22 17:40". */
static void describe_rates_file(const bt_train_plan *p, const bt_rates *rates, bt_text *from) {
    char path[PATH_MAX + 64], when[32] = "";
    struct stat st;
    struct tm tm;
    bt_machine_rates_file(rates, p->store, path, sizeof path);
    if (stat(path, &st) == 0 && localtime_r(&st.st_mtime, &tm))
        strftime(when, sizeof when, ", %Y-%m-%d %H:%M", &tm);
    bt_text_printf(from, "'%s'%s", path, when);
}

bool bt_train_predict(const bt_train_plan *p, bt_prediction *out, bt_trial_rate *tried,
                      bt_text *from) {
    bt_err why = BT_ERR_INIT;
    bt_rates *rates = malloc(sizeof *rates);
    bool known = false;
    *tried = (bt_trial_rate){.load = NAN};
    if (rates) {
        bt_cluster cluster = bt_cluster_here(&p->cfg, p->ranks);
        const bt_rates_request wanted = {.cfg = &p->cfg,
                                         .ranks = p->ranks,
                                         .ranks_per_host = cluster.ranks_per_host,
                                         .store = p->store,
                                         .never = true};
        known = bt_machine_rates(&wanted, rates, from, &why) == BT_OK;
        if (known) cluster.data = bt_data_facts_of(&p->cfg);
        known = known && bt_time_predict(&p->cfg, rates, &cluster, out, &why) == BT_OK;
        if (known) {
            bt_text_clear(from);
            describe_rates_file(p, rates, from);
            const bt_trial_rate *kept = bt_layout_tried(&p->opts, &p->cfg, p->ranks, rates);
            if (kept) *tried = *kept;
        }
    }
    free(rates);
    return known;
}

static void record_title_event(const bt_sink *sink, bt_event_kind kind, const char *title) {
    const bt_event e = {
        .kind = kind, .step = -1, .rank = -1, .wall_us = bt_wall_us(), .title = title};
    if (sink->event && title[0]) sink->event(sink->ctx, &e);
}

/* Records each line as an event, without its first word. */
static void record_recipe(const bt_train_plan *p, const bt_sink *sink) {
    static const char word[] = "plan       ";
    for (const char *line = bt_text_str(&p->recipe); *line; line += strcspn(line, "\n") + 1) {
        char title[400];
        const size_t n = strlen(word);
        snprintf(title, sizeof title, "%.*s", (int)(strcspn(line, "\n") - n), line + n);
        record_title_event(sink, BT_EVENT_RECIPE, title);
    }
}

void bt_train_record_layout(const bt_train_plan *p, const bt_sink *sink) {
    record_recipe(p, sink);
    record_title_event(sink, BT_EVENT_LAYOUT, bt_text_str(&p->layout));
}
