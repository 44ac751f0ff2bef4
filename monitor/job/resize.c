/* resize.c - changes the number of ranks: they save and exit, and the next attempt reads the checkpoint into the new
 * layout. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/job/job.h"

static bt_code parse_resize_number(const char *word, const char *what, const char *arg, int least,
                                   int *out, bt_err *err) {
    char *end = NULL;
    const long n = strtol(word, &end, 10);
    if (end == word || *end || n < least || n > 65536)
        return bt_fail(
            err, BT_ARG,
            "resize %.60s: %s must be a whole number from %d on (as in resize 4 or resize "
            "4,tp=2,pp=1,zero=3)",
            arg, what, least);
    *out = (int)n;
    return BT_OK;
}

/* Parses for example "4,tp=2,zero=1". */
static bt_code parse_resize(const char *arg, bt_resize_request *w, bt_err *err) {
    char words[96], *rest;
    const struct {
        const char *name;
        int least, *to;
    } sizes[] = {{"tp", 1, &w->tp}, {"pp", 1, &w->pp}, {"zero", 0, &w->zero}};
    *w = (bt_resize_request){.zero = -1};
    snprintf(words, sizeof words, "%s", arg);
    char *word = strtok_r(words, ",", &rest);
    BT_TRY(parse_resize_number(word ? word : "", "the number of ranks", arg, 1, &w->most, err));
    w->least = w->most;
    while ((word = strtok_r(NULL, ",", &rest))) {
        size_t i = 0;
        const size_t n = strcspn(word, "=");
        while (i < 3 && (strlen(sizes[i].name) != n || strncmp(word, sizes[i].name, n) != 0)) i++;
        if (i == 3 || word[n] != '=')
            return bt_fail(err, BT_ARG,
                           "resize %.60s: '%s' is none of tp=N, pp=N, zero=N (as in resize "
                           "4,tp=2,pp=1,zero=3)",
                           arg, word);
        BT_TRY(parse_resize_number(word + n + 1, sizes[i].name, arg, sizes[i].least, sizes[i].to,
                                   err));
    }
    return BT_OK;
}

static bt_code check_resize_range(const bt_job *job, const bt_resize_request *w, bt_err *err) {
    const bt_job_setup *s = job->s;
    int slots = 0;
    for (int i = 0; i < job->hosts.n; i++) {
        if (job->hosts.host[i].slots == 0) slots = INT_MAX / 2; /* mpirun decides on the number */
        if (!job->hosts.host[i].aside && slots < INT_MAX / 2) slots += job->hosts.host[i].slots;
    }
    if (job->hosts.n && w->most > slots)
        return bt_fail(err, BT_ARG, "%d ranks: the hosts in use have %d slot%s", w->most, slots,
                       slots == 1 ? "" : "s");
    if (!s->elastic_max || (w->most >= s->elastic_min && w->most <= s->elastic_max)) return BT_OK;
    return bt_fail(err, BT_ARG, "%d rank%s: outside the %d to %d of --elastic", w->most,
                   w->most == 1 ? "" : "s", s->elastic_min, s->elastic_max);
}

bt_code bt_job_request_resize(bt_job *job, const char *arg, const char *by, bt_err *err) {
    bt_resize_request w;
    bt_job_layout l = {0};
    BT_TRY(parse_resize(arg, &w, err));
    if (!job->s->layout)
        return bt_fail(err, BT_UNSUPPORTED, "the ranks of this run were not started by bitrain");
    if (job->stop_asked) return bt_fail(err, BT_BUSY, "the run is stopping");
    if (job->resize.wanted)
        return bt_fail(err, BT_BUSY, "the run is already on its way to %d ranks",
                       job->resize.to.most);
    BT_TRY(check_resize_range(job, &w, err));
    BT_TRY(job->s->layout(job->s->layout_ctx, &w, false, &l, err));
    if (l.same) return bt_fail(err, BT_BUSY, "the run has %s already", l.told);
    if (!job->restarting) BT_TRY(bt_job_send_verb(job, BT_VERB_STOP, 0, err));
    job->resize.wanted = true;
    job->resize.by_hosts = false;
    job->resize.to = w;
    snprintf(job->resize.why, sizeof job->resize.why, "requested by %.40s", by);
    bt_job_event(job, BT_EVENT_CONTROL, -1, "resize to %s requested by %.40s", l.told, by);
    return BT_OK;
}

/* Quotes in a text of the object are escaped, so this finds only the key. */
static bool has_stopped_flag(const char *result_json) {
    return result_json && strstr(result_json, "\"stopped\":true");
}

void bt_job_request_hosts(bt_job *job, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(job->resize.why, sizeof job->resize.why, fmt, ap);
    va_end(ap);
    job->resize.wanted = job->resize.by_hosts = true;
}

bt_resize_request bt_resize_request_of_hosts(const bt_job *job, bt_job_host *list) {
    const bt_hosts *h = &job->hosts;
    for (int i = 0; i < h->n; i++)
        list[i] = (bt_job_host){h->host[i].slots, !h->host[i].aside || h->host[i].back};
    return (bt_resize_request){.hosts = list, .n_hosts = (size_t)h->n, .zero = -1};
}

static bt_resize_request pending_resize_request(const bt_job *job, bt_job_host *list) {
    return job->resize.by_hosts ? bt_resize_request_of_hosts(job, list) : job->resize.to;
}

bool bt_job_ended_to_resize(const bt_job *job, const bt_end *end) {
    bt_job_host list[BT_HOSTS_MAX];
    bt_job_layout l = {0};
    bt_resize_request w = pending_resize_request(job, list);
    bt_err why = BT_ERR_INIT;
    w.from_step = job->last_step + 1;
    return job->resize.wanted && !job->stop_asked && end->kind == BT_END_DONE &&
           has_stopped_flag(job->result->result_json) &&
           job->s->layout(job->s->layout_ctx, &w, false, &l, &why) != BT_STOPPED;
}

bool bt_job_left_unasked(const bt_job *job, const bt_end *end) {
    bt_job_layout l = {0};
    bt_err why = BT_ERR_INIT;
    const bt_resize_request w = {.most = job->world_size,
                                 .least = job->world_size,
                                 .zero = -1,
                                 .from_step = job->last_step + 1};
    return job->s->layout && !job->resize.wanted && !job->stop_asked && end->kind == BT_END_DONE &&
           has_stopped_flag(job->result->result_json) &&
           job->s->layout(job->s->layout_ctx, &w, false, &l, &why) != BT_STOPPED;
}

bool bt_job_take_layout(bt_job *job, char *told, size_t size) {
    bt_job_host list[BT_HOSTS_MAX];
    bt_job_layout l = {0};
    bt_err why = BT_ERR_INIT;
    if (!job->resize.wanted) return false;
    bt_resize_request w = pending_resize_request(job, list);
    job->resize.wanted = false;
    w.from_step = job->from.step;
    if (job->s->layout(job->s->layout_ctx, &w, true, &l, &why) != BT_OK) {
        bt_job_event(job, BT_EVENT_WARNING, -1, "the number of ranks stays %d: %s", job->world_size,
                     why.msg);
        return false;
    }
    if (l.same) return false;
    snprintf(told, size, "continues with %s (%d before): %s", l.told, job->world_size,
             job->resize.why);
    job->world_size = l.ranks;
    job->settings = l.settings;
    return true;
}

void bt_job_resized_event(bt_job *job, int ranks_before, const char *told) {
    bt_text body;
    bt_json j;
    bt_text_init(&body);
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "from", ranks_before);
    bt_json_int(&j, "to", job->world_size);
    bt_json_str(&j, "why", job->resize.why);
    bt_json_end(&j, '}');
    bt_job_event_body(job, BT_EVENT_RESIZED, told, bt_text_str(&body));
    bt_text_release(&body);
}
