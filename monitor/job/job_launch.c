/* job_launch.c - starts the ranks of an attempt or of the hot spare. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "monitor/job/job.h"
#include "monitor/job/machine/machine_map.h"

bool bt_job_ring_path(const bt_job *job, const char *name, char *out, size_t size) {
    return job->s->writer && snprintf(out, size, "%s/%s", job->s->out_dir, name) < (int)size;
}

bt_code bt_job_launch(bt_job *job, const bt_job_ranks *how, bt_child *child,
                      bt_rank_progress *places, bt_err *err) {
    const bt_job_setup *s = job->s;
    char tmp[280], shm[280], wire[300], number[16], fence[16], ring[PATH_MAX], boxes[300];
    BT_TRY(bt_job_dirs_attempt(&job->scratch, job->world_size, how->folder, tmp, shm, err));
    if (job->scratch.shm_lock >= 0 && strncmp(shm, "/dev/shm/", 9) != 0)
        bt_job_event(job, BT_EVENT_WARNING, -1,
                     "/dev/shm has no room: the shared segments of attempt %d are in '%s'",
                     job->attempt, shm);
    snprintf(wire, sizeof wire, "%s/wire", job->scratch.tmp);
    snprintf(number, sizeof number, "%d", how->attempt);
    snprintf(fence, sizeof fence, "%d", how->fence);
    snprintf(boxes, sizeof boxes, "%s/places", tmp);
    bt_err why = BT_ERR_INIT;
    /* A cleaner of temporary folders may have removed the file. */
    if (job->map[0] && access(job->map, R_OK) != 0 && !bt_machine_map_write(job->map))
        job->map[0] = '\0';
    if (bt_rank_progress_open(places, boxes, job->world_size, &why) != BT_OK)
        bt_job_event(job, BT_EVENT_WARNING, -1, "ranks that hang will not be found: %s", why.msg);
    if (!bt_job_ring_path(job, BT_JOB_RING, ring, sizeof ring)) ring[0] = '\0';
    const char *words[] = {"rank",
                           "--wire",
                           wire,
                           "--attempt",
                           number,
                           "--fence",
                           fence,
                           "--resume-from",
                           how->resume_from ? how->resume_from : "",
                           "--ring",
                           ring,
                           "--places",
                           boxes,
                           "--kept",
                           job->scratch.tmp,
                           "--memory",
                           job->memory,
                           "--spare",
                           how->spare};
    char hosts[PATH_MAX];
    bt_code code = bt_job_hosts_file(job, tmp, hosts, sizeof hosts, err);
    bt_launch l = {.ranks = job->world_size,
                   .hosts = hosts,
                   .mpirun_args = s->mpirun_args,
                   .tmp = tmp,
                   .shm = shm,
                   .map = job->map,
                   .program = s->program,
                   .words = words,
                   .n_words = sizeof words / sizeof *words,
                   .settings = job->settings};
    const int keep[] = {s->run_lock, job->scratch.lock, job->scratch.shm_lock};
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
        if (keep[i] >= 0) l.inherit[l.n_inherit++] = keep[i];
    if (code == BT_OK) code = bt_launch_start(&l, child, err);
    return code;
}

int bt_job_next_fence(bt_job *job) {
    const int free = job->s->fence(job->s->resume_ctx, job->attempt);
    job->fence = free > job->last_fence ? free : job->last_fence + 1;
    return job->fence;
}
