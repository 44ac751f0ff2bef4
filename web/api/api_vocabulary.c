/* api_vocabulary.c - /api/v1/metrics: the tables of engine/base/tables as JSON, so that the page and other clients need
 * no list of metrics, phases, events or verbs of their own. */
#include <stdio.h>

#include "engine/base/system/json_fields.h"
#include "engine/base/tables/event.h"
#include "engine/base/tables/figure.h"
#include "engine/base/tables/metric.h"
#include "engine/base/tables/time_part.h"
#include "engine/base/tables/verb.h"
#include "web/api/api.h"

static void put_scope_metrics(bt_json *j, const bt_scope_row *scope) {
    for (int i = 0; i < scope->n; i++) {
        const bt_metric *m = &scope->metric[i];
        bt_json_object(j, NULL);
        bt_json_str(j, "scope", scope->name);
        bt_json_str(j, "key", m->key);
        bt_json_str(j, "unit", bt_unit_name(m->unit));
        bt_json_str(j, "panel", bt_panel_name(m->panel));
        bt_json_str(j, "help", m->help);
        bt_json_end(j, '}');
    }
}

static void put_scope(bt_json *j, const bt_scope_row *s) {
    bt_json_object(j, NULL);
    BT_JSON_FIELDS(j, s, F(name), F(view), F(per));
    bt_json_array(j, "keys");
    for (int k = 0; k < s->n_keys; k++) bt_json_str(j, NULL, s->key[k].name);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void put_panel(bt_json *j, bt_metric_panel p) {
    bt_json_object(j, NULL);
    bt_json_str(j, "name", bt_panel_name(p));
    bt_json_str(j, "title", bt_panel_title(p));
    bt_json_str(j, "question", bt_panel_query(p));
    bt_json_end(j, '}');
}

static void put_phase(bt_json *j, const bt_phase_row *p) {
    const char letter[2] = {p->letter, '\0'};
    bt_json_object(j, NULL);
    bt_json_str(j, "name", p->name);
    bt_json_str(j, "key", bt_rank_metrics[p->metric].key);
    bt_json_str(j, "title", p->title);
    bt_json_str(j, "letter", letter);
    BT_JSON_FIELDS(j, p, F(light), F(dark), F(rest));
    bt_json_end(j, '}');
}

static void put_event_kind(bt_json *j, const bt_event_row *e) {
    bt_json_object(j, NULL);
    bt_json_str(j, "kind", e->name);
    bt_json_str(j, "level", bt_event_level_name(e->level));
    bt_json_str(j, "mark", bt_event_mark_name(e->mark));
    bt_json_str(j, "help", e->help);
    bt_json_end(j, '}');
}

static void put_verb(bt_json *j, bt_verb verb) {
    const bt_verb_row *v = &bt_verbs[verb];
    bt_json_object(j, NULL);
    BT_JSON_FIELDS(j, v, F_AS("verb", word), F(argument), F(label), F(help));
    bt_json_str(j, "outcome", v->outcome < BT_EVENT_COUNT ? bt_events[v->outcome].name : "");
    bt_json_array(j, "states");
    for (int s = 0; s < BT_STATE_COUNT; s++)
        if (bt_verb_offered(verb, (bt_run_state)s)) bt_json_str(j, NULL, bt_run_states[s].name);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void put_time_part(bt_json *j, const bt_time_row *t) {
    bt_json_object(j, NULL);
    BT_JSON_FIELDS(j, t, F(key), F(title), F(light), F(dark), F(help));
    bt_json_end(j, '}');
}

static void put_figure(bt_json *j, const bt_figure_row *f) {
    bt_json_object(j, NULL);
    bt_json_str(j, "key", f->key);
    bt_json_str(j, "label", f->label);
    bt_json_str(j, "span", bt_figure_span_name(f->span));
    bt_json_str(j, "unit", bt_unit_name(f->unit));
    bt_json_str(j, "help", f->help);
    bt_json_end(j, '}');
}

static void put_run_state_kind(bt_json *j, const bt_run_state_row *s) {
    bt_json_object(j, NULL);
    BT_JSON_FIELDS(j, s, F(name), F(live), F(help));
    bt_json_end(j, '}');
}

bt_code bt_api_metrics(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    (void)a;
    (void)r;
    (void)run;
    (void)err;
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_array(&j, "metrics");
    for (int k = 0; k < BT_SCOPE_COUNT; k++) put_scope_metrics(&j, &bt_scopes[k]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "scopes");
    for (int k = 0; k < BT_SCOPE_COUNT; k++) put_scope(&j, &bt_scopes[k]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "panels");
    for (int p = 0; p < BT_PANEL_COUNT; p++) put_panel(&j, (bt_metric_panel)p);
    bt_json_end(&j, ']');
    bt_json_array(&j, "phases");
    for (int p = 0; p < BT_PHASE_COUNT; p++) put_phase(&j, &bt_phases[p]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "events");
    for (int e = 0; e < BT_EVENT_COUNT; e++) put_event_kind(&j, &bt_events[e]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "verbs");
    for (int v = 0; v < BT_VERB_COUNT; v++) put_verb(&j, (bt_verb)v);
    bt_json_end(&j, ']');
    bt_json_array(&j, "figures");
    for (int f = 0; f < BT_FIGURES; f++) put_figure(&j, &bt_figures[f]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "times");
    for (int p = 0; p < BT_TIME_PARTS; p++) put_time_part(&j, &bt_times[p]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "states");
    for (int s = 0; s < BT_STATE_COUNT; s++) put_run_state_kind(&j, &bt_run_states[s]);
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    return BT_OK;
}
