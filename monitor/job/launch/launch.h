/* launch.h - starts mpirun: a table of its arguments with the reason for each, its environment,
 * its session.
 *
 * The table (launch_rows.c) is for Open MPI 4.1 and 5; a word in braces is a placeholder.
 * Threads:  no shared state. */
#ifndef BT_MONITOR_JOB_LAUNCH_LAUNCH_H
#define BT_MONITOR_JOB_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef enum {
    BT_LAUNCH_ALWAYS,
    BT_LAUNCH_LOCAL,
    BT_LAUNCH_MAPPED, /* local, and the map of the machine is in a file */
    BT_LAUNCH_UNMAPPED,
    BT_LAUNCH_HOSTS,
    BT_LAUNCH_TRAINS,
    BT_LAUNCH_ROOT,
    BT_LAUNCH_NO_CMA,
    BT_LAUNCH_HOMELESS, /* true: neither HOME nor the user database names a home folder */
    BT_LAUNCH_CROWDED,
    BT_LAUNCH_OLD_AGENT /* hosts, and the user replaced ssh by a variable that only Open MPI 4.1 reads */
} bt_launch_when;

#define BT_LAUNCH_SETTINGS "BITRAIN_RANK_SETTINGS"

typedef struct bt_launch_row {
    int since,
        until; /* major versions of Open MPI that accept the words: from `since` to before `until`; 0: no limit */
    bt_launch_when when;
    /* separated by blanks; the placeholders {ranks} {hosts} {shm} {tmp} {map} {orted} {prted} {agent} {settings} are
     * one word each; NAME=... is environment */
    const char *words;
    const char *reason;
} bt_launch_row;

extern const bt_launch_row bt_launch_rows[];
extern const size_t bt_launch_rows_n;

typedef struct bt_launch {
    int ranks;
    int mpi;           /* major version of Open MPI; 0: the version of the mpirun that is found */
    const char *hosts; /* host file, "" for this machine */
    const char *mpirun_args;  /* further arguments from the user, or "" */
    const char *tmp, *shm;    /* folders of this attempt */
    const char *map;          /* file of bt_machine_map_write; NULL or "": none */
    const char *program;      /* absolute path of bitrain */
    const char *const *words; /* arguments of the program */
    size_t n_words;
    const char *settings; /* sent to all ranks in the variable BT_LAUNCH_SETTINGS; NULL: none */
    /* descriptors that mpirun inherits (locks live as long as mpirun) */
    int inherit[4], n_inherit;
} bt_launch;

typedef struct bt_child {
    pid_t pid; /* pid of mpirun and its session */
    int out;   /* stdout and stderr of mpirun, which must be read until mpirun ends */
} bt_child;

bool bt_launch_applies(bt_launch_when when, const bt_launch *l);
/* true if this major version of Open MPI accepts the words of the row; mpi 0: unknown, assumed to be 4 */
bool bt_launch_known(const bt_launch_row *row, int mpi);
/* true if the row applies to l and version l->mpi accepts its words */
bool bt_launch_in_effect(const bt_launch_row *row, const bt_launch *l);
/* Returns the command that the user's environment names instead of ssh, or "". */
const char *bt_launch_agent(void);
/* Writes the full command, one word per line, for logs and --dry-run. */
void bt_launch_command(const bt_launch *l, bt_text *out);
/* Starts mpirun in its own session with default signals and without stdin. mpirun also keeps the read end of its
 * output open, so that it can outlive this process without SIGPIPE. */
bt_code bt_launch_start(const bt_launch *l, bt_child *out, bt_err *err) BT_MUST_CHECK;

#endif
