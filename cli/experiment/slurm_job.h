/* slurm_job.h - the resources of a Slurm job that contains a sweep, and the command that starts one of its runs
 * as a job step of its own on one node. */
#ifndef BT_CLI_EXPERIMENT_SLURM_JOB_H
#define BT_CLI_EXPERIMENT_SLURM_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

enum { BT_SLURM_NODES = 4096, BT_SLURM_WORDS = 12 };

typedef struct bt_slurm {
    char job[32];
    int n_nodes, cpus[BT_SLURM_NODES]; /* processors of this job on each node */
    int64_t node_mib,
        cpu_mib; /* memory of this job per node, or per processor; 0: Slurm does not manage memory */
} bt_slurm;

/* Returns true if this process is the shell of a job (sbatch, salloc), not one of its steps, and srun exists. */
bool bt_slurm_here(void);
/* BT_ARG: the environment of the job cannot be parsed. */
bt_code bt_slurm_read(bt_slurm *s, bt_err *err) BT_MUST_CHECK;
int bt_slurm_cpus_least(const bt_slurm *s); /* processors of the smallest node */
/* Returns how many runs with this number of processors fit on all nodes at the same time. */
int bt_slurm_places(const bt_slurm *s, int cpus);

typedef struct bt_slurm_words {
    const char *at[BT_SLURM_WORDS];
    size_t n;
    char text[3][48];
} bt_slurm_words;
/* Builds `srun ...` for a run with this number of processors; the run gets the same share of a node's memory. */
void bt_slurm_step(const bt_slurm *s, int cpus, const char *run, bt_slurm_words *out);

#endif
