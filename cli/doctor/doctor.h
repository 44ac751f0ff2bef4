/* doctor.h - the findings of `bitrain doctor`: each a line with a state and, if something is
 * wrong, the remedy. */
#ifndef BT_CLI_DOCTOR_DOCTOR_H
#define BT_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef enum { BT_DOC_INFO, BT_FINDING_OK, BT_FINDING_WARN, BT_FINDING_FAIL } bt_finding_state;

typedef struct bt_finding {
    bt_finding_state state;
    const char *topic;           /* "cpu", "mpi", ... */
    char text[400], remedy[300]; /* remedy "" when nothing is to be done */
} bt_finding;

typedef struct bt_doctor {
    const char *store; /* path of the metrics database */
    const char *isa;   /* fastest kernel set allowed, "auto" */
    bool quick;        /* start no MPI job */
    const char *hosts; /* host file whose nodes the job visits, "" */
    int ranks;         /* ranks of that job */
    bt_finding findings[96];
    size_t n;
    bt_finding_state worst;
} bt_doctor;

/* Appends a finding and returns it; the last place of a full report is written again. */
bt_finding *bt_doctor_report(bt_doctor *d, bt_finding_state state, const char *topic,
                             const char *fmt, ...) BT_PRINTF(4, 5);
/* sets the remedy of a finding */
void bt_finding_remedy(bt_finding *f, const char *fmt, ...) BT_PRINTF(2, 3);

/* the checks, in the order of the report */
void bt_doctor_processor(bt_doctor *d); /* processor, cores, quotas */
void bt_doctor_energy(bt_doctor *d);    /* true where the processors count it */
void bt_doctor_kernels(bt_doctor *d);   /* the winner of each slot, OpenBLAS */
void bt_doctor_memory(bt_doctor *d);    /* memory, /dev/shm, limits */
/* version, mpirun, launch flags, a job that visits the nodes */
void bt_doctor_mpi(bt_doctor *d);
/* place, file system, SQLite, the database itself */
void bt_doctor_store(bt_doctor *d);
void bt_doctor_screens(bt_doctor *d);     /* terminal, dashboard */
void bt_doctor_environment(bt_doctor *d); /* BITRAIN_ variables without a reader */

/* Runs a rank of that job (`bitrain doctor mpi-probe`): prints its node and sums some numbers. */
bt_code bt_doctor_probe_rank(bt_err *err);

#endif
