/* view_summary.c - composes the summary of a run: its configuration and progress and, if it is
 * not training, the cause and the remedy. All views show these sentences unchanged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/system/json_fields.h"
#include "engine/base/tables/fact.h"
#include "store/sql/sql.h"
#include "store/view/view_impl.h"

/* ---- cache between two loads ----------------------------------------------------------------- */

/* A setting may be text. */
static double numeric_setting(const bt_row *r, int i) {
    return r->cells[i] ? strtod(r->cells[i], NULL) : r->nums[i];
}

static bool take_summary_setting(void *ctx, const bt_row *r) {
    bt_summary *s = ctx;
    const char *key = r->cells[0] ? r->cells[0] : "", *value = r->cells[1] ? r->cells[1] : "";
    if (strcmp(key, "model.preset") == 0) bt_text_plain(s->preset, sizeof s->preset, value);
    if (strcmp(key, "data.path") == 0) {
        s->has_data = true;
        bt_text_plain(s->data, sizeof s->data, value);
    }
    if (strcmp(key, "optim.schedule") == 0) bt_text_plain(s->schedule, sizeof s->schedule, value);
    if (strcmp(key, "optim.lr") == 0) s->lr = numeric_setting(r, 1);
    if (strcmp(key, "model.seq_len") == 0) s->seq_len = numeric_setting(r, 1);
    if (strcmp(key, "mesh.zero") == 0) s->zero = numeric_setting(r, 1);
    if (strcmp(key, "parallel.virtual_stages") == 0) s->virtual_stages = numeric_setting(r, 1);
    if (strcmp(key, "train.batch_tokens") == 0) s->batch_tokens = numeric_setting(r, 1);
    return true;
}

static bool take_summary_fact(void *ctx, const bt_row *r) {
    bt_summary *s = ctx;
    const char *key = r->cells[0] ? r->cells[0] : "";
    if (strcmp(key, "data.tokens") == 0) s->data_tokens = numeric_setting(r, 1);
    if (strcmp(key, "data.epoch_tokens") == 0) s->epoch_tokens = numeric_setting(r, 1);
    if (strcmp(key, "batch_tokens") == 0) s->batch_tokens = numeric_setting(r, 1);
    return true;
}

static bool take_summary_event(void *ctx, const bt_row *r) {
    bt_summary *s = ctx;
    const bt_event_kind kind = r->cells[0] ? bt_event_find(r->cells[0]) : BT_EVENT_COUNT;
    char *text = kind == BT_EVENT_FAILURE   ? s->failure
                 : kind == BT_EVENT_STALLED ? s->stall
                                            : s->asked;
    bt_text_plain(text, sizeof s->failure, r->cells[1] ? r->cells[1] : "");
    if (kind == BT_EVENT_FAILURE) s->failure_s = r->nums[2];
    return true;
}

/* Matches "peak learning rate 0.004 -> 0.001 (requested by ctl)" (monitor/job/requests.c) and the title of earlier
 * versions, "... its peak is 0.001". */
static bool read_new_lr_peak(void *ctx, const bt_row *r) {
    bt_summary *s = ctx;
    static const char *const before[] = {" -> ", "its peak is "};
    for (size_t i = 0; r->cells[0] && i < sizeof before / sizeof before[0]; i++) {
        const char *at = strstr(r->cells[0], before[i]);
        if (at) s->lr_peak = strtod(at + strlen(before[i]), NULL);
    }
    return false;
}

static bool take_summary_attempt(void *ctx, const bt_row *r) {
    bt_summary *s = ctx;
    bt_text_plain(s->reason, sizeof s->reason, r->cells[0] ? r->cells[0] : "");
    s->pid = (int)bt_whole(r->nums[1], 0);
    return true;
}

/* Settings and facts change with an attempt. Facts are recorded after the attempt's row and before its first step. */
static bt_code load_constants(bt_view *v, bt_summary *s, bt_err *err) {
    const char *run = v->head.run;
    bt_view_impl *m = v->impl;
    if (s->whole) return BT_OK;
    BT_TRY(bt_vq_rows(m,
                      "SELECT key, value FROM configs WHERE run = ?1 AND key IN ('model.preset', "
                      "'data.path', 'optim.schedule', 'optim.lr', 'model.seq_len', 'mesh.zero', "
                      "'parallel.virtual_stages', "
                      "'train.batch_tokens')",
                      run, NULL, 0, take_summary_setting, s, err));
    BT_TRY(bt_vq_rows(m,
                      "SELECT key, value FROM facts WHERE run = ?1 AND key IN ('data.tokens', "
                      "'data.epoch_tokens', 'batch_tokens')",
                      run, NULL, 0, take_summary_fact, s, err));
    s->whole = m->newest_step >= 0;
    return BT_OK;
}

static bt_code load_events(bt_view *v, bt_summary *s, bt_err *err) {
    const char *run = v->head.run;
    bt_view_impl *m = v->impl;
    double x[1];
    if (s->events_at >= 0 && s->events_at == m->event_newest) return BT_OK;
    s->events_at = -1;
    s->failure[0] = s->stall[0] = s->asked[0] = s->reason[0] = 0;
    /* The newest event of each kind overwrites earlier ones. */
    BT_TRY(bt_vq_rows(
        m,
        "SELECT kind, title, time_s FROM events WHERE run = ?1 AND seq IN (SELECT "
        "max(seq) FROM events WHERE run = ?1 AND (kind IN ('failure', 'stalled') OR (kind = "
        "'control' AND (title GLOB 'pause *' OR title GLOB 'stop *'))) GROUP BY kind)",
        run, NULL, 0, take_summary_event, s, err));
    s->lr_peak = NAN;
    BT_TRY(bt_vq_rows(m,
                      "SELECT title FROM events WHERE run = ?1 AND kind = 'control' AND (title "
                      "GLOB 'peak learning rate * -> *' OR title GLOB 'learning rate times *its "
                      "peak is *') ORDER BY seq DESC LIMIT 1",
                      run, NULL, 0, read_new_lr_peak, s, err));
    BT_TRY(bt_vq_rows(m, "SELECT reason, pid FROM attempts WHERE run = ?1 ORDER BY attempt", run,
                      NULL, 0, take_summary_attempt, s, err));
    BT_TRY(bt_vq_row(m, "SELECT best_val_step FROM runs WHERE run = ?1", run, NULL, 0, x, 1, err));
    s->best_val_step = bt_whole(x[0], -1);
    BT_TRY(bt_vq_row(
        m, "SELECT step FROM checkpoints WHERE run = ?1 ORDER BY attempt DESC, step DESC LIMIT 1",
        run, NULL, 0, x, 1, err));
    s->ckpt_step = bt_whole(x[0], -1);
    s->events_at = m->event_newest;
    return BT_OK;
}

static bt_code read_summary(bt_view *v, bt_summary *s, bt_err *err) {
    const bt_view_head *h = &v->head;
    bool same = strcmp(s->run, h->run) == 0 && s->n_attempts == h->n_attempts &&
                s->created_s >= h->started_s && s->created_s <= h->started_s;
    if (!same) {
        *s = (bt_summary){.n_attempts = h->n_attempts,
                          .created_s = h->started_s,
                          .events_at = -1,
                          .best_val_step = -1,
                          .ckpt_step = -1,
                          .lr = NAN,
                          .lr_peak = NAN,
                          .data_tokens = NAN,
                          .epoch_tokens = NAN,
                          .batch_tokens = NAN,
                          .seq_len = NAN,
                          .zero = NAN,
                          .virtual_stages = NAN,
                          .failure_s = NAN};
        snprintf(s->run, sizeof s->run, "%s", h->run);
    }
    BT_TRY(load_constants(v, s, err));
    return load_events(v, s, err);
}

/* ---- chips ----------------------------------------------------------------------------------- */

static void add_chip(bt_view_head *h, const char *name, const char *text) {
    if (!text[0] || h->n_chips == BT_VIEW_CHIPS) return;
    bt_view_chip *c = &h->chip[h->n_chips++];
    c->name = name;
    snprintf(c->text, sizeof c->text, "%s", text);
}

static void add_model_chip(bt_view_head *h, const bt_summary *s) {
    char text[120], many[32];
    double params = h->params[0] ? strtod(h->params, NULL) : NAN;
    int n = snprintf(text, sizeof text, "%s", s->preset);
    if (params > 0)
        snprintf(text + n, sizeof text - (size_t)n, "%s%s parameters", n ? ", " : "",
                 bt_metric_format(many, sizeof many, params, BT_UNIT_COUNT));
    add_chip(h, "model", text);
}

/* ["a.txt","b.txt"] -> a.txt, b.txt */
static void strip_json_list(char *out, size_t size, const char *list) {
    size_t n = 0;
    for (const char *p = list; *p && n + 3 < size; p++) {
        if (strchr("[]\"", *p)) continue;
        out[n++] = *p;
        if (*p == ',' && p[1] != ' ') out[n++] = ' ';
    }
    out[n] = 0;
}

static void add_data_chip(bt_view_head *h, const bt_summary *s) {
    char text[120], many[32], list[sizeof s->data];
    strip_json_list(list, sizeof list, s->data);
    const char *path = list[0] ? list : s->has_data ? "built-in corpus" : "", *slash;
    /* Keeps the end of a long path, its most specific part. */
    while (strlen(path) > 48 && (slash = strchr(path, '/'))) path = slash + 1;
    int n = snprintf(text, sizeof text, "%.60s", path);
    if (s->data_tokens > 0)
        snprintf(text + n, sizeof text - (size_t)n, ", %s tokens",
                 bt_metric_format(many, sizeof many, s->data_tokens, BT_UNIT_COUNT));
    add_chip(h, "data", text);
}

/* Composes for example "4 ranks x 2 threads on 2 hosts, dp 2, shard 2 (ZeRO 3)"; axes of size 1 are omitted. */
static void add_layout_chip(bt_view_head *h, const bt_view_ranks *r, const bt_summary *s) {
    char text[120];
    const size_t size = sizeof text;
    int hosts = 0;
    for (size_t i = 0; i < r->n; i++) {
        /* The window may contain ranks of an earlier, larger attempt. */
        bool known = r->rank[i].rank >= h->world_size || !r->rank[i].host[0];
        for (size_t k = 0; k < i && !known; k++)
            known = strcmp(r->rank[k].host, r->rank[i].host) == 0;
        hosts += !known;
    }
    if (h->world_size <= 0) return;
    int n = snprintf(text, size, "%d rank%s", h->world_size, h->world_size == 1 ? "" : "s");
    if (r->n > 0 && r->rank[0].threads > 0)
        n += snprintf(text + n, size - (size_t)n, " x %d thread%s", r->rank[0].threads,
                      r->rank[0].threads == 1 ? "" : "s");
    if (hosts > 1) n += snprintf(text + n, size - (size_t)n, " on %d hosts", hosts);
    const struct {
        const char *name;
        int size;
    } axes[] = {{"pp", r->n ? r->rank[0].pp : 0},
                {"dp", r->n ? r->rank[0].dp_replicate : 0},
                {"shard", r->n ? r->rank[0].dp_shard : 0},
                {"tp", r->n ? r->rank[0].tp : 0}};
    int most[4] = {0};
    for (size_t i = 0; i < r->n; i++) {
        const int at[] = {r->rank[i].pp, r->rank[i].dp_replicate, r->rank[i].dp_shard,
                          r->rank[i].tp};
        for (int a = 0; a < 4; a++) most[a] = at[a] > most[a] ? at[a] : most[a];
    }
    for (int a = 0; a < 4; a++) { /* coordinates count from 0 */
        if (most[a] > 0)
            n += snprintf(text + n, size - (size_t)n, ", %s %d", axes[a].name, most[a] + 1);
        if (a == 0 && most[a] > 0 && s->virtual_stages > 1)
            n += snprintf(text + n, size - (size_t)n, " (%.0f virtual)", s->virtual_stages);
    }
    if (most[2] > 0 && s->zero > 0) snprintf(text + n, size - (size_t)n, " (ZeRO %.0f)", s->zero);
    add_chip(h, "layout", text);
}

static void add_rate_chip(bt_view_head *h, const bt_summary *s) {
    char text[120] = "";
    const bool changed = s->lr_peak > 0 && fabs(s->lr_peak / s->lr - 1) > 1e-6;
    if (s->lr > 0 || changed) {
        int n = snprintf(text, sizeof text, "%.3g%s%s", changed ? s->lr_peak : s->lr,
                         s->schedule[0] ? ", " : "", s->schedule);
        if (changed && s->lr > 0)
            snprintf(text + n, sizeof text - (size_t)n, ", began as %.3g", s->lr);
    }
    add_chip(h, "lr", text);
}

static void add_batch_chip(bt_view_head *h, const bt_summary *s) {
    char text[120] = "";
    if (s->batch_tokens > 0) {
        int n = snprintf(text, sizeof text, "%.0f tokens", s->batch_tokens);
        if (s->seq_len > 0)
            snprintf(text + n, sizeof text - (size_t)n, " (%.0f x %.0f)",
                     ceil(s->batch_tokens / s->seq_len), s->seq_len);
    }
    add_chip(h, "batch", text);
}

/* ---- what happened --------------------------------------------------------------------------- */

static void copy_phrase(char *out, size_t size, const char *text) {
    size_t n = strcspn(text, "\n");
    while (n > 0 && (text[n - 1] == '.' || text[n - 1] == ' ')) n--;
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), text);
}

/* Composes "bitrain train --resume NAME", with the database if another shell would not find it. */
static void compose_run_command(bt_view *v, const char *before, const char *after, char *out,
                                size_t size) {
    bt_text text;
    bt_text_init(&text);
    bt_text_printf(&text, "bitrain %s %s%s", before, v->head.run, after);
    bt_store_flag(&text, bt_db_path(v->impl->db));
    snprintf(out, size, "%s", text.failed || text.len >= size ? "" : bt_text_str(&text));
    bt_text_release(&text);
}

/* "failed after step 122 of 500" */
static void describe_end(bt_view *v, const char *word, double since_s) {
    const bt_view_head *h = &v->head;
    bt_view_trouble *t = &v->head.trouble;
    char where[80] = " before the first step";
    if (t->step >= 0 && h->steps_total > 0)
        snprintf(where, sizeof where, " after step %lld of %lld", (long long)t->step + 1,
                 (long long)h->steps_total);
    else if (t->step >= 0)
        snprintf(where, sizeof where, " after step %lld", (long long)t->step + 1);
    t->when_s = since_s;
    snprintf(t->what, sizeof t->what, "%s%s", word, where);
}

const char *bt_view_trouble_line(const bt_view_trouble *t, char *buf, size_t size) {
    char span[32];
    snprintf(buf, size, "%s%s%s%s", t->what, t->age_s >= 0 ? ", " : "",
             t->age_s >= 0 ? bt_duration(span, sizeof span, floor(t->age_s)) : "",
             t->age_s >= 0 ? " ago" : "");
    return buf;
}

static bool is_own_host(const char *host) {
    char here[BT_HOST_MAX] = "";
    gethostname(here, sizeof here - 1);
    return strcmp(here, host) == 0;
}

/* Composes the advice on resuming. A checkpoint's step is the number of completed steps. */
static void put_resume_command(bt_view *v, const bt_summary *s, const char *first) {
    bt_view_trouble *t = &v->head.trouble;
    long long lost = (long long)(t->step + 1 - s->ckpt_step);
    char resume[BT_HOST_MAX + 32];
    if (v->head.hub) {
        snprintf(t->advice, sizeof t->advice,
                 "%sstart the hub again with its own command: it continues from its newest "
                 "checkpoint, and its islands rejoin",
                 first);
        return;
    }
    t->resumes = is_own_host(v->head.host);
    snprintf(resume, sizeof resume, "%sresume%s%s", first[0] ? "then " : "",
             t->resumes ? "" : " on ", t->resumes ? "" : v->head.host);
    if (s->ckpt_step < 0)
        snprintf(t->advice, sizeof t->advice,
                 "%s%s: no checkpoint was written, so training restarts at step 1", first, resume);
    else if (lost > 0)
        snprintf(
            t->advice, sizeof t->advice,
            "%s%s: training continues from the checkpoint of step %lld and repeats %lld step%s",
            first, resume, (long long)s->ckpt_step, lost, lost == 1 ? "" : "s");
    else
        snprintf(t->advice, sizeof t->advice,
                 "%s%s: training continues from the checkpoint of step %lld", first, resume,
                 (long long)s->ckpt_step);
    compose_run_command(v, "train --resume", "", t->command, sizeof t->command);
}

static const struct {
    const char *kind, *first;
} remedies[] = {
    {"out of memory", "use less memory per rank (--micro-batch 1 or --recompute full), "},
    {"node lost", "check that every host responds (bitrain doctor), "},
    {"hung", "find the rank that hung (end of log.txt, page Ranks), "},
    {"launch", "fix what mpirun reports (bitrain doctor checks for it), "},
    {"error", "fix the cause, "},
};

static void put_failed_state(bt_view *v, const bt_summary *s) {
    const bt_view_head *h = &v->head;
    bt_view_trouble *t = &v->head.trouble;
    const char *first = "";
    t->level = BT_EV_ERROR;
    describe_end(v, "failed", isnan(v->impl->ended_s) ? v->impl->last_s : v->impl->ended_s);
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
        if (strcmp(h->exit_kind, remedies[i].kind) == 0) first = remedies[i].first;
    copy_phrase(t->why, sizeof t->why, s->failure[0] ? s->failure : h->exit_kind);
    put_resume_command(v, s, first);
}

static void put_lost_state(bt_view *v, const bt_summary *s) {
    bt_view_trouble *t = &v->head.trouble;
    t->level = BT_EV_ERROR;
    describe_end(v, "lost", v->impl->last_s);
    snprintf(
        t->why, sizeof t->why,
        "its supervisor (pid %d on %.60s) disappeared: it was killed, or the machine went down",
        s->pid, v->head.host);
    put_resume_command(v, s, "");
}

static void put_stalled_state(bt_view *v, const bt_summary *s) {
    const bt_view_head *h = &v->head;
    bt_view_trouble *t = &v->head.trouble;
    char usual[40];
    t->level = BT_EV_WARN;
    describe_end(v, "stalled", v->impl->last_s);
    copy_phrase(t->why, sizeof t->why, s->stall);
    if (!t->why[0] && h->step_p50_ms > 0)
        snprintf(t->why, sizeof t->why, "no step since then; a step usually takes %s",
                 bt_metric_format(usual, sizeof usual, h->step_p50_ms, BT_UNIT_MS));
    if (h->hub) {
        snprintf(t->advice, sizeof t->advice,
                 "no island has sent an update since then: see the runs of its islands");
        return;
    }
    snprintf(
        t->advice, sizeof t->advice,
        "find the rank that hangs (page Ranks, log.txt); the supervisor restarts the ranks after "
        "launch.hang_s, or stop the run");
    compose_run_command(v, "ctl", " stop", t->command, sizeof t->command);
    t->verb = BT_VERB_STOP;
}

/* Finds the newest request that matches the verb, "pause requested by ctl". */
static void put_request_reason(bt_view_trouble *t, const bt_summary *s, const char *verb) {
    copy_phrase(t->why, sizeof t->why,
                strncmp(s->asked, verb, strlen(verb)) == 0 ? s->asked : "on request");
}

static void put_paused_state(bt_view *v, const bt_summary *s) {
    bt_view_trouble *t = &v->head.trouble;
    describe_end(v, "paused", v->impl->last_s);
    put_request_reason(t, s, bt_verbs[BT_VERB_PAUSE].word);
    snprintf(t->advice, sizeof t->advice, "paused between two steps: resume to continue");
    compose_run_command(v, "ctl", " resume", t->command, sizeof t->command);
    t->verb = BT_VERB_RESUME;
}

static void put_stopped_state(bt_view *v, const bt_summary *s) {
    bt_view_trouble *t = &v->head.trouble;
    describe_end(v, "stopped", isnan(v->impl->ended_s) ? v->impl->last_s : v->impl->ended_s);
    put_request_reason(t, s, bt_verbs[BT_VERB_STOP].word);
    put_resume_command(v, s, "");
}

/* Restarted by the supervisor or a user: reports the cause of the previous end. */
static void put_restarted_state(bt_view *v, const bt_summary *s) {
    const bt_view_head *h = &v->head;
    bt_view_trouble *t = &v->head.trouble;
    bool now = h->state == BT_STATE_RESTARTING;
    if (!now && (h->n_attempts < 2 || !s->failure[0] || h->state != BT_STATE_RUNNING)) {
        t->any = false;
        return;
    }
    if (now) {
        t->level = BT_EV_WARN;
        describe_end(v, "restarting", v->impl->last_s);
    } else {
        t->when_s = s->failure_s + h->started_s;
        char times[24] = "once"; /* restarted manually */
        if (h->restarts > 1) snprintf(times, sizeof times, "%d times", h->restarts);
        snprintf(t->what, sizeof t->what, "restarted %s", times);
    }
    copy_phrase(t->why, sizeof t->why, s->failure[0] ? s->failure : s->reason);
}

static void compose_summary(bt_view *v, const bt_summary *s) {
    bt_view_head *h = &v->head;
    h->trouble = (bt_view_trouble){.any = true,
                                   .level = BT_EV_INFO,
                                   .when_s = NAN,
                                   .step = h->newest_step,
                                   .verb = BT_VERB_COUNT};
    switch (h->state) {
    case BT_STATE_FAILED: put_failed_state(v, s); break;
    case BT_STATE_LOST: put_lost_state(v, s); break;
    case BT_STATE_STALLED: put_stalled_state(v, s); break;
    case BT_STATE_PAUSED: put_paused_state(v, s); break;
    case BT_STATE_STOPPED: put_stopped_state(v, s); break;
    case BT_STATE_RUNNING:
    case BT_STATE_RESTARTING: put_restarted_state(v, s); break;
    default: h->trouble.any = false;
    }
    h->trouble.age_s = fmax(0, (double)v->impl->now_us / 1e6 - h->trouble.when_s);
    if (isnan(h->trouble.when_s)) h->trouble.age_s = NAN;
}

bt_code bt_view_load_summary(bt_view *v, bt_err *err) {
    bt_view_head *h = &v->head;
    bt_summary *s = &v->impl->summary;
    BT_TRY(read_summary(v, s, err));
    h->progress = h->steps_total > 0 && h->step >= 0
                      ? fmin(1, (double)(h->step + 1) / (double)h->steps_total)
                      : NAN;
    /* Older records lack this fact and have only the tokens without padding. */
    h->passes = bt_derived_passes(h->tokens,
                                  s->epoch_tokens > 0 ? s->epoch_tokens : s->data_tokens);
    h->best_val_step = s->best_val_step;
    h->n_chips = 0;
    add_model_chip(h, s);
    if (!h->hub) add_data_chip(h, s);
    if (!h->hub) add_layout_chip(h, &v->ranks, s);
    add_rate_chip(h, s);
    add_batch_chip(h, s);
    BT_TRY(bt_view_load_remarks(v, err));
    compose_summary(v, s);
    return BT_OK;
}

/* ---- settings -------------------------------------------------------------------------------- */

typedef struct settings_reading {
    bt_view *v;
    bt_err *err;
    bt_code code;
} settings_reading;

static bool take_summary_row(void *ctx, const bt_row *r) {
    settings_reading *x = ctx;
    bt_view_settings *l = &x->v->settings;
    char number[32] = "";
    x->code = BT_GROW(l->row, x->v->impl->cap_settings, l->n + 1, x->err);
    if (x->code != BT_OK) return false;
    if (!r->cells[1] && !isnan(r->nums[1])) snprintf(number, sizeof number, "%.10g", r->nums[1]);
    bt_view_setting *s = &l->row[l->n++];
    bt_text_plain(s->key, sizeof s->key, r->cells[0] ? r->cells[0] : "");
    bt_text_plain(s->value, sizeof s->value, r->cells[1] ? r->cells[1] : number);
    bt_text_plain(s->from, sizeof s->from, r->cells[2] ? r->cells[2] : "");
    char text[sizeof s->value];
    if (strcmp(s->from, "fact") == 0)
        bt_fact_format(text, sizeof text, s->key, s->value);
    else
        bt_setting_format(text, sizeof text, s->value);
    memcpy(s->value, text, sizeof text);
    return true;
}

bt_code bt_view_load_settings(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    const char *run = v->head.run;
    if (v->settings.n > 0 && strcmp(m->settings_of, run) == 0 && m->summary.whole &&
        m->settings_attempt == v->head.n_attempts)
        return BT_OK;
    settings_reading x = {v, err, BT_OK};
    v->settings.n = 0;
    m->settings_of[0] = 0;
    BT_TRY(bt_vq_rows(m,
                      "SELECT key, value, coalesce(nullif(place, ''), origin) FROM configs WHERE "
                      "run = ?1",
                      run, NULL, 0, take_summary_row, &x, err));
    if (x.code == BT_OK)
        BT_TRY(bt_vq_rows(m, "SELECT key, value, 'fact' FROM facts WHERE run = ?1 ORDER BY key",
                          run, NULL, 0, take_summary_row, &x, err));
    if (x.code != BT_OK) return x.code;
    snprintf(m->settings_of, sizeof m->settings_of, "%s", run);
    m->settings_attempt = v->head.n_attempts;
    return BT_OK;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Keeps line breaks; replaces every other control character by a visible one. */
static void copy_printable_lines(char *out, size_t size, const char *text) {
    size_t n = 0;
    out[0] = 0;
    while (*text && n + 2 < size) {
        size_t len = strcspn(text, "\n");
        char line[2048], plain[2048];
        snprintf(line, sizeof line, "%.*s", (int)(len < sizeof line ? len : sizeof line - 1), text);
        bt_text_plain(plain, size - n - 1 < sizeof plain ? size - n - 1 : sizeof plain, line);
        n += (size_t)snprintf(out + n, size - n, "%s", plain);
        text += len;
        if (*text == '\n' && n + 1 < size) out[n++] = '\n', out[n] = 0, text++;
    }
}

static bool append_generated_text(void *ctx, const bt_row *r) {
    bt_view_events *e = ctx;
    bt_view_text *t = &e->text[e->n_texts++];
    t->step = bt_whole(r->nums[0], -1);
    bt_text_plain(t->prompt, sizeof t->prompt, r->cells[1] ? r->cells[1] : "");
    copy_printable_lines(t->text, sizeof t->text, r->cells[2] ? r->cells[2] : "");
    return e->n_texts < 2;
}

bt_code bt_view_load_texts(bt_view *v, int64_t until_step, bt_err *err) {
    double until = until_step >= 0 ? (double)until_step : 1e15;
    v->events.n_texts = 0;
    /* The body is {"prompt", "text"}; a sample of another prompt is not comparable. */
    return bt_vq_rows(
        v->impl,
        "WITH texts AS (SELECT seq, step, json_extract(body, '$.prompt') AS prompt, "
        "json_extract(body, '$.text') AS text FROM events WHERE run = ?1 AND kind = 'sample' AND "
        "json_valid(body) AND coalesce(step, 0) <= ?2) SELECT step, prompt, text FROM texts WHERE "
        "prompt IS (SELECT prompt FROM texts ORDER BY seq DESC LIMIT 1) ORDER BY seq DESC LIMIT 2",
        v->impl->run, &until, 1, append_generated_text, &v->events, err);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

void bt_view_trouble_json(const bt_view_trouble *t, bt_json *j) {
    if (!t->any) {
        bt_json_null(j, "trouble");
        return;
    }
    bt_json_object(j, "trouble");
    bt_json_str(j, "level", bt_event_level_name(t->level));
    BT_JSON_FIELDS(j, t, F(what), F(when_s), F(age_s), F_KIND("step", step, BT_JSON_AT), F(why),
                   F(advice), F_KIND("command", command, BT_JSON_SAID));
    bt_json_str(j, "verb", t->verb < BT_VERB_COUNT ? bt_verbs[t->verb].word : NULL);
    bt_json_bool(j, "resumes", t->resumes);
    bt_json_end(j, '}');
}

void bt_view_chips_json(const bt_view_head *h, bt_json *j) {
    BT_JSON_ROWS(j, "chips", h->chip, (size_t)h->n_chips, F(name), F(text));
}
