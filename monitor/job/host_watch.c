/* host_watch.c - a run on several hosts that may disappear and return: it continues without a lost host if --elastic
 * allows it, and uses the host again after a checkpoint when it responds. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"

/* TCP repairs a link that was down for up to 2 s, so no restart is needed. */
static const double GRACE_S = 2.3;
/* hosts are tested after this time without a step */
static const double QUIET_S = 0.5;
/* A cloud machine ends 30 to 120 s after its notice. */
static const int64_t NOTICE_AWAY_NS = 150 * (int64_t)1000000000;
/* a response takes 0.1 to 9 ms */
static const double FIRST_ASK_S = 0.3;

static bool may_drop_hosts(const bt_job *job) { return job->s->elastic_max > 0 && job->s->layout; }

bt_code bt_job_hosts_open(bt_job *job, bt_err *err) {
    BT_TRY(bt_hosts_open(&job->hosts, job->s->hosts, BT_SSH_PORT, err));
    bt_hosts_connect(&job->hosts, FIRST_ASK_S);
    for (int i = 0; may_drop_hosts(job) && i < job->hosts.n; i++)
        if (job->hosts.host[i].slots == 0)
            return bt_fail(err, BT_ARG,
                           "--elastic needs the slots of every host: '%.60s' in '%.100s' has no "
                           "slots=N",
                           job->hosts.host[i].name, job->s->hosts);
    return BT_OK;
}

bt_code bt_job_hosts_file(bt_job *job, const char *folder, char *path, size_t size, bt_err *err) {
    if (!bt_hosts_aside(&job->hosts)) {
        snprintf(path, size, "%s", job->s->hosts);
        return BT_OK;
    }
    snprintf(path, size, "%s/hosts", folder);
    return bt_hosts_write(&job->hosts, path, err);
}

void bt_job_hosts_check(bt_job *job, int64_t now) {
    const double median = bt_health_median_s(&job->health);
    const double quiet = 5 * median > QUIET_S ? 5 * median : QUIET_S;
    if (!job->hosts.n || job->lost_host || job->hung || !job->connected || job->paused) return;
    if (bt_health_silence_s(&job->health, now) < quiet) {
        /* The run makes progress, so a test without a response is no sign of a lost host. */
        for (int i = 0; i < job->hosts.n; i++)
            if (!job->hosts.host[i].aside) job->hosts.host[i].asked_ns = 0;
        return;
    }
    bt_hosts_test(&job->hosts, false, now);
    for (int i = 0; i < job->hosts.n; i++) {
        bt_host *h = &job->hosts.host[i];
        if (h->aside || bt_host_silence_s(h, now) < GRACE_S) continue;
        job->lost_host = h;
        bt_job_event(job, BT_EVENT_FAILURE, -1,
                     "host %.60s has not answered for %.1f s: the ranks are ended", h->name,
                     bt_host_silence_s(h, now));
        bt_proc_kill_session(job->child.pid, 1);
        return;
    }
}

/* Tests hosts that were set aside; those that respond are used after the next checkpoint. */
void bt_job_hosts_tick(bt_job *job, int64_t now) {
    bt_hosts *h = &job->hosts;
    if (!bt_hosts_aside(h)) return;
    bool was[BT_HOSTS_MAX];
    for (int i = 0; i < h->n; i++) was[i] = h->host[i].back;
    bt_hosts_test(h, true, now);
    for (int i = 0; i < h->n; i++)
        if (h->host[i].back && !was[i])
            bt_job_event(job, BT_EVENT_HOST_BACK, -1,
                         "host %.60s answers again: it takes part after the next checkpoint",
                         h->host[i].name);
}

/* Computes the layout on the hosts in use and those that respond again. */
static bt_code compute_hosts_layout(bt_job *job, bt_job_layout *l, bt_err *err) {
    bt_job_host list[BT_HOSTS_MAX];
    const bt_resize_request w = bt_resize_request_of_hosts(job, list);
    return job->s->layout(job->s->layout_ctx, &w, false, l, err);
}

void bt_job_hosts_checkpoint(bt_job *job) {
    bt_job_layout l = {0};
    bt_err why = BT_ERR_INIT;
    const char *back = NULL;
    for (int i = 0; i < job->hosts.n; i++)
        if (job->hosts.host[i].back) back = job->hosts.host[i].name;
    if (!back || !may_drop_hosts(job) || job->resize.wanted || job->stop_asked) return;
    if (compute_hosts_layout(job, &l, &why) != BT_OK || l.same) return;
    if (bt_job_send_verb(job, BT_VERB_STOP, 0, &why) == BT_OK)
        bt_job_request_hosts(job, "host %.60s is back", back);
}

/* Finds a host in use that is at fault, and the reason; NULL: no further host. */
static bt_host *find_lost_host(bt_job *job, const bt_end *end, char *why, size_t size) {
    bt_hosts *h = &job->hosts;
    const int64_t now = bt_now_ns();
    for (int i = 0; i < h->n; i++) {
        if (h->host[i].aside || !(bt_host_silence_s(&h->host[i], now) > 0)) continue;
        snprintf(why, size, "it does not answer");
        return &h->host[i];
    }
    if (end->kind != BT_END_LAUNCH) return NULL;
    snprintf(why, size, "%.*s", (int)size - 1, end->message);
    bt_host *named = bt_hosts_named(h, end->message);
    for (int i = 0; !named && i < h->n; i++) {
        bt_host *host = &h->host[i];
        if (!host->aside && !host->here && !host->answered && host->asked_ns) {
            snprintf(why, size, "it has never answered");
            named = host;
        }
    }
    return named;
}

bool bt_job_hosts_ended(bt_job *job, const bt_end *end) {
    bt_job_layout l = {0};
    bt_err err = BT_ERR_INIT;
    bt_hosts *h = &job->hosts;
    bool lost[BT_HOSTS_MAX] = {false};
    char why[96];
    const char *name = NULL;
    if (!h->n || !may_drop_hosts(job) || job->stop_asked) return false;
    bt_hosts_connect(h, FIRST_ASK_S);
    for (bt_host *host; (host = find_lost_host(job, end, why, sizeof why));) {
        bt_hosts_set_aside(host, why, bt_now_ns());
        lost[host - h->host] = true;
        name = host->name;
    }
    if (!name) return false;
    if (compute_hosts_layout(job, &l, &err) != BT_OK) {
        bt_job_event(job, BT_EVENT_WARNING, -1, "host %.60s is away, and the run waits for it: %s",
                     name, err.msg);
        for (int i = 0; i < h->n; i++) h->host[i].aside &= !lost[i];
        return false;
    }
    for (int i = 0; i < h->n; i++)
        if (lost[i])
            bt_job_event(job, BT_EVENT_HOST_LOST, -1, "host %.60s is set aside: %s",
                         h->host[i].name, h->host[i].why);
    bt_job_request_hosts(job, "host %.60s is away", name);
    return true;
}

/* mpirun's --map-by slot fills one host after the other, in the order of the file. */
static bt_host *find_host_of_rank(bt_job *job, int rank) {
    int before = 0;
    for (int i = 0; i < job->hosts.n; i++) {
        bt_host *h = &job->hosts.host[i];
        if (h->aside) continue;
        if (h->slots == 0) return NULL; /* the host file has no slots for the host */
        before += h->slots;
        if (rank < before) return h;
    }
    return NULL;
}

bool bt_job_hosts_left(bt_job *job) {
    bt_job_layout l = {0};
    bt_err err = BT_ERR_INIT;
    bt_host *host = job->leaving >= 0 ? find_host_of_rank(job, job->leaving) : NULL;
    if (!host || host->here || !may_drop_hosts(job) || job->stop_asked) return false;
    bt_hosts_set_aside(host, "a signal ended its rank", bt_now_ns());
    if (compute_hosts_layout(job, &l, &err) != BT_OK) {
        bt_job_event(job, BT_EVENT_WARNING, -1, "host %.60s is to be left, but: %s", host->name,
                     err.msg);
        host->aside = false;
        return false;
    }
    /* The machine still responds for a while after its notice, so its host must not be used again at once. */
    host->next_look_ns = bt_now_ns() + NOTICE_AWAY_NS;
    bt_job_event(job, BT_EVENT_HOST_LOST, -1, "host %.60s is set aside for %d s: %s", host->name,
                 (int)(NOTICE_AWAY_NS / 1000000000), host->why);
    bt_job_request_hosts(job, "host %.60s is to be left", host->name);
    return true;
}

void bt_job_hosts_begin(bt_job *job) {
    job->lost_host = NULL;
    if (bt_hosts_take_back(&job->hosts) > 0 && may_drop_hosts(job) && !job->resize.wanted)
        bt_job_request_hosts(job, "a host is back");
}
