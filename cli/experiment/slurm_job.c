/* slurm_job.c - reads the environment of a Slurm job, and makes command lines of srun. */
#include "cli/experiment/slurm_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_srun(void) {
    const char *path = getenv("PATH");
    char file[1024];
    while (path && *path) {
        const size_t n = strcspn(path, ":");
        if (n + 8 < sizeof file) {
            snprintf(file, sizeof file, "%.*s/srun", (int)n, path);
            if (access(file, X_OK) == 0) return true;
        }
        path += n + (path[n] == ':');
    }
    return false;
}

bool bt_slurm_here(void) {
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    /* Slurm sets SLURM_STEP_ID in job steps, but not in the shell of a job. */
    return job && *job && (!step || !*step) && has_srun();
}

/* Parses "8(x2),4", the processors of each node; returns the number of nodes, 0: malformed. */
static int read_cpu_list(const char *text, int *cpus, int most) {
    int n = 0;
    while (*text) {
        char *end;
        const long count = strtol(text, &end, 10);
        long times = 1;
        if (end == text || count < 1 || count > 65536) return 0;
        text = end;
        if (strncmp(text, "(x", 2) == 0) {
            times = strtol(text + 2, &end, 10);
            if (end == text + 2 || *end != ')' || times < 1) return 0;
            text = end + 1;
        }
        if (*text && *text != ',') return 0;
        text += *text == ',';
        for (; times > 0; times--) {
            if (n == most) return 0;
            cpus[n++] = (int)count;
        }
    }
    return n;
}

static int64_t read_mib_variable(const char *name) {
    const char *text = getenv(name);
    const long long v = text ? strtoll(text, NULL, 10) : 0;
    return v > 0 ? (int64_t)v : 0;
}

bt_code bt_slurm_read(bt_slurm *s, bt_err *err) {
    const char *job = getenv("SLURM_JOB_ID"), *cpus = getenv("SLURM_JOB_CPUS_PER_NODE");
    *s = (bt_slurm){.n_nodes = 0};
    if (!job || !*job)
        return bt_fail(err, BT_ARG,
                       "no Slurm job here: start the sweep by sbatch or in salloc, or use 'on: "
                       "local'");
    if (!has_srun()) return bt_fail(err, BT_ARG, "there is no srun in PATH");
    snprintf(s->job, sizeof s->job, "%s", job);
    s->n_nodes = read_cpu_list(cpus ? cpus : "", s->cpus, BT_SLURM_NODES);
    if (s->n_nodes == 0)
        return bt_fail(err, BT_ARG,
                       "SLURM_JOB_CPUS_PER_NODE is '%.60s', which does not list the processors of "
                       "job %s (use 'on: local')",
                       cpus ? cpus : "", s->job);
    s->node_mib = read_mib_variable("SLURM_MEM_PER_NODE");
    s->cpu_mib = read_mib_variable("SLURM_MEM_PER_CPU");
    return BT_OK;
}

int bt_slurm_cpus_least(const bt_slurm *s) {
    int least = s->cpus[0];
    for (int i = 1; i < s->n_nodes; i++)
        if (s->cpus[i] < least) least = s->cpus[i];
    return least;
}

int bt_slurm_places(const bt_slurm *s, int cpus) {
    int n = 0;
    for (int i = 0; i < s->n_nodes; i++) n += s->cpus[i] / cpus;
    return n;
}

/* Returns the number of runs that fit on the largest node. */
static int count_runs_per_node(const bt_slurm *s, int cpus) {
    int most = 1;
    for (int i = 0; i < s->n_nodes; i++)
        if (s->cpus[i] / cpus > most) most = s->cpus[i] / cpus;
    return most;
}

void bt_slurm_step(const bt_slurm *s, int cpus, const char *run, bt_slurm_words *out) {
    static const char *const first[] = {"srun",       "--mpi=none", "--nodes=1",
                                        "--ntasks=1", "--exact",    "--quiet"};
    *out = (bt_slurm_words){.n = sizeof first / sizeof first[0]};
    memcpy(out->at, first, sizeof first);
    snprintf(out->text[0], sizeof out->text[0], "--cpus-per-task=%d", cpus);
    snprintf(out->text[1], sizeof out->text[1], "--job-name=%.36s", run);
    out->at[out->n++] = out->text[0];
    out->at[out->n++] = out->text[1];
    /* A job step without this option takes all memory of the job, and the next one waits for it. */
    if (s->cpu_mib)
        snprintf(out->text[2], sizeof out->text[2], "--mem-per-cpu=%lld", (long long)s->cpu_mib);
    else if (s->node_mib)
        snprintf(out->text[2], sizeof out->text[2], "--mem=%lld",
                 (long long)(s->node_mib / count_runs_per_node(s, cpus)));
    else
        return;
    out->at[out->n++] = out->text[2];
}
