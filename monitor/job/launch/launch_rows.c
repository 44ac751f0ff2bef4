/* launch_rows.c - the table of mpirun's arguments and variables, and when each is in effect.
 *
 * Open MPI 5 has another launcher, PRRTE, which ignores most parameters of 4.1 without a word: each name has the
 * versions that know it (tried with 4.1.4 and 5.0.7). vader is a synonym of sm in 5. */
#include <pwd.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/os/own_process.h"
#include "engine/base/os/processors.h"
#include "monitor/job/launch/launch.h"

#define FULL_NAMES \
    "complete names of hosts: otherwise ssh is called for 'node1' if the file has " \
    "'node1.example.org'"
#define DAEMON \
    "a termination notice to all processes of a host does not end the daemon: the ranks, which " \
    "start with an empty mask, save and end"
#define NO_CMA "this kernel or container forbids process_vm_readv"
#define OWN_FILES "mpirun's own files in a folder of this attempt"

const bt_launch_row bt_launch_rows[] = {
    {0, 0, BT_LAUNCH_ALWAYS, "-np {ranks}", "one process a rank"},
    {0, 0, BT_LAUNCH_HOSTS, "--hostfile {hosts}", "the hosts given with --hosts"},
    {0, 5, BT_LAUNCH_HOSTS, "--mca orte_keep_fqdn_hostnames 1", FULL_NAMES},
    {5, 0, BT_LAUNCH_HOSTS, "--mca prte_keep_fqdn_hostnames 1", FULL_NAMES},
    {5, 0, BT_LAUNCH_HOSTS, "--mca prte_do_not_resolve 0",
     "this host is recognised by its addresses, also where the file has another name for it"},
    {0, 0, BT_LAUNCH_HOSTS, "--map-by slot",
     "ranks fill a host before the next: those of --tp, then of --dp-shard, lie together"},
    {0, 0, BT_LAUNCH_TRAINS, "-x " BT_LAUNCH_SETTINGS,
     "mpirun sends the settings to the ranks of every host; no file is needed, also where none can "
     "be "
     "written"},
    {0, 0, BT_LAUNCH_ALWAYS, "--bind-to none",
     "bitrain places its own threads; the default would pin every one-rank job to core 0"},
    {0, 0, BT_LAUNCH_ALWAYS, "--mca pml ob1",
     "no probing for fabrics: 0.06 s instead of 0.27 s to start"},
    {0, 0, BT_LAUNCH_LOCAL, "--mca btl self,vader", "one host: shared memory only"},
    {0, 0, BT_LAUNCH_LOCAL, "--mca ras ^slurm,tm,lsf,gridengine --mca plm ^slurm,tm,lsf",
     "this host alone, also in a batch job: where that has other nodes, or another name for this "
     "one, mpirun would wait for daemons there"},
    {0, 0, BT_LAUNCH_HOSTS, "--mca btl self,vader,tcp",
     "shared memory inside a host, TCP between hosts"},
    {0, 5, BT_LAUNCH_ALWAYS, "--mca odls_base_sigkill_timeout 0",
     "a dead rank ends the job in 7-15 ms instead of 1-2 s, so a restart is quick"},
    {0, 0, BT_LAUNCH_HOSTS,
     "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca "
     "oob_tcp_keepalive_probes 4",
     "mpirun notices a dead link after 4 to 6 s instead of 491 s; one that is gone for 2 s ends "
     "nothing"},
    {0, 5, BT_LAUNCH_HOSTS, "--mca orte_launch_agent {orted}", DAEMON},
    {5, 0, BT_LAUNCH_HOSTS, "--mca prte_launch_agent {prted}", DAEMON},
    {0, 0, BT_LAUNCH_LOCAL, "--oversubscribe", "more ranks than cores is allowed, on this host"},
    {0, 0, BT_LAUNCH_CROWDED, "--mca mpi_yield_when_idle 1",
     "more ranks than cores: a waiting rank gives its core away"},
    {0, 0, BT_LAUNCH_ROOT, "--allow-run-as-root", "refused otherwise"},
    {0, 5, BT_LAUNCH_NO_CMA, "--mca btl_vader_single_copy_mechanism none", NO_CMA},
    {5, 0, BT_LAUNCH_NO_CMA, "--mca smsc ^cma", NO_CMA},
    {5, 0, BT_LAUNCH_ALWAYS, "--mca btl_vader_segment_size 4194304",
     "4 MiB of /dev/shm a rank, as Open MPI 4.1, instead of 16 MiB"},
    {0, 0, BT_LAUNCH_LOCAL, "--mca btl_vader_backing_directory {shm}",
     "shared-memory segments in a folder of this attempt, so that none is left behind"},
    {0, 0, BT_LAUNCH_UNMAPPED, "HWLOC_COMPONENTS=-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero",
     "the map of the machine without displays and graphics cards: querying a display can wait "
     "for a name server, 5 s a process"},
    {0, 0, BT_LAUNCH_MAPPED, "HWLOC_XMLFILE={map}",
     "the map of the machine is read, not made anew by mpirun and every rank: half of their start"},
    {0, 0, BT_LAUNCH_MAPPED, "HWLOC_THISSYSTEM=1", "the map in the file is of this machine"},
    {0, 0, BT_LAUNCH_MAPPED, "HWLOC_COMPONENTS=xml,stop",
     "any other list of components makes hwloc overlook the file"},
    {0, 0, BT_LAUNCH_MAPPED, "HWLOC_LIBXML=0", "the file is read without loading an XML library"},
    {0, 0, BT_LAUNCH_MAPPED, "HWLOC_PLUGINS_PATH=/nonexistent",
     "hwloc's plug-ins are for what the file has already"},
    {0, 0, BT_LAUNCH_LOCAL, "PMIX_MCA_gds=hash",
     "data that ranks exchange at their start go through a socket: quicker than a shared "
     "segment that is made for it"},
    {0, 5, BT_LAUNCH_LOCAL, "--mca orte_tmpdir_base {tmp}", OWN_FILES},
    {5, 0, BT_LAUNCH_ALWAYS, "--mca prte_local_tmpdir_base {tmp}", OWN_FILES},
    {5, 0, BT_LAUNCH_OLD_AGENT, "PRTE_MCA_plm_ssh_agent={agent}",
     "OMPI_MCA_plm_rsh_agent is set, which is the name in Open MPI 4.1"},
    {0, 0, BT_LAUNCH_HOMELESS, "HOME={tmp}",
     "a user without an entry and without HOME, as a service's or a container's: PMIx crashes"},
    {0, 0, BT_LAUNCH_TRAINS, BT_LAUNCH_SETTINGS "={settings}",
     "the settings, which only the user's own processes can read there, unlike a command line"},
    {0, 0, BT_LAUNCH_HOSTS, "TMPDIR={tmp}",
     "the same on this host; other hosts have no such folder"},
};
const size_t bt_launch_rows_n = sizeof bt_launch_rows / sizeof bt_launch_rows[0];

static int count_allowed_cores(void) {
    cpu_set_t set;
    const int n = bt_processors_allowed(&set);
    return n > 0 ? n : 1;
}

/* the variable of Open MPI 5, or NULL */
static const char *agent_of_open_mpi_5(void) {
    const char *agent = getenv("PRTE_MCA_plm_ssh_agent");
    if (!agent || !agent[0]) agent = getenv("PRTE_MCA_prte_ssh_agent");
    return agent && agent[0] ? agent : NULL;
}

const char *bt_launch_agent(void) {
    const char *agent = agent_of_open_mpi_5();
    if (!agent) agent = getenv("OMPI_MCA_plm_rsh_agent");
    return agent ? agent : "";
}

bool bt_launch_applies(bt_launch_when when, const bt_launch *l) {
    switch (when) {
    case BT_LAUNCH_ALWAYS: return true;
    case BT_LAUNCH_LOCAL: return !l->hosts[0];
    case BT_LAUNCH_MAPPED: return !l->hosts[0] && l->map && l->map[0];
    case BT_LAUNCH_UNMAPPED: return l->hosts[0] || !l->map || !l->map[0];
    case BT_LAUNCH_HOSTS: return l->hosts[0] != '\0';
    case BT_LAUNCH_TRAINS: return l->settings != NULL;
    case BT_LAUNCH_ROOT: return geteuid() == 0;
    case BT_LAUNCH_NO_CMA: return !bt_may_read_processes();
    case BT_LAUNCH_HOMELESS: return !getenv("HOME") && !getpwuid(geteuid());
    case BT_LAUNCH_CROWDED: return !l->hosts[0] && l->ranks > count_allowed_cores();
    case BT_LAUNCH_OLD_AGENT:
        return l->hosts[0] && getenv("OMPI_MCA_plm_rsh_agent") && !agent_of_open_mpi_5();
    }
    return false;
}

bool bt_launch_known(const bt_launch_row *row, int mpi) {
    if (mpi <= 0) mpi = 4;
    return mpi >= row->since && (!row->until || mpi < row->until);
}

bool bt_launch_in_effect(const bt_launch_row *row, const bt_launch *l) {
    return bt_launch_known(row, l->mpi) && bt_launch_applies(row->when, l);
}
