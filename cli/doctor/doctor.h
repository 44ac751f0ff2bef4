/* doctor.h - the findings of `bitrain doctor`: each is a line with a state and, for a fault, the remedy. */
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
    char text[400], remedy[300]; /* remedy "": no action is needed */
} bt_finding;

typedef struct bt_doctor {
    const char *store; /* path of the metrics database */
    const char *isa;   /* value of --isa */
    bool quick;        /* true: start no MPI job */
    const char *hosts; /* host file with the hosts of the test job; "": this machine only */
    int ranks;         /* number of ranks of the test job */
    bt_finding findings[96];
    size_t n;
    bt_finding_state worst;
} bt_doctor;

/* Appends a finding and returns it. In a full report the last finding is overwritten. */
bt_finding *bt_doctor_report(bt_doctor *d, bt_finding_state state, const char *topic,
                             const char *fmt, ...) BT_PRINTF(4, 5);
void bt_finding_remedy(bt_finding *f, const char *fmt, ...) BT_PRINTF(2, 3);

/* The checks, in the order of the report. */
void bt_doctor_processor(bt_doctor *d); /* processor, cores, quotas */
void bt_doctor_energy(bt_doctor *d);    /* checks that energy counters can be read */
void bt_doctor_kernels(bt_doctor *d);   /* kernel set of each slot, OpenBLAS */
void bt_doctor_memory(bt_doctor *d);    /* memory, /dev/shm, limits */
/* checks the MPI version, mpirun and the launch flags, and runs a test job on the hosts */
void bt_doctor_mpi(bt_doctor *d);
/* checks path, file system and SQLite, and the database itself */
void bt_doctor_store(bt_doctor *d);
void bt_doctor_screens(bt_doctor *d);     /* terminal, dashboard */
void bt_doctor_environment(bt_doctor *d); /* BITRAIN_ variables without effect */

/* Runs one rank of the test job (`bitrain doctor mpi-probe`): prints its host and sums numbers over the ranks. */
bt_code bt_doctor_probe_rank(bt_err *err);

#endif
