/* launch.c - the table, and the start of mpirun. */
#include "monitor/job/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/system/start_process.h"
#include "engine/base/system/words.h"
#include "monitor/job/launch/host_file.h"
#include "monitor/job/machine/mpirun.h"

const bt_launch_row bt_launch_rows[] = {
    {BT_LAUNCH_ALWAYS, "-np {ranks}", "one process a rank"},
    {BT_LAUNCH_HOSTS, "--hostfile {hosts}", "the hosts given with --hosts"},
    {BT_LAUNCH_HOSTS, "--mca orte_keep_fqdn_hostnames 1",
     "complete names of hosts: otherwise ssh is called for 'node1' if the file has "
     "'node1.example.org'"},
    {BT_LAUNCH_HOSTS, "--map-by slot",
     "ranks fill a host before the next: those of --tp, then of --dp-shard, lie together"},
    {BT_LAUNCH_TRAINS, "-x " BT_LAUNCH_SETTINGS,
     "mpirun sends the settings to the ranks of every host; no file is needed, also where none can "
     "be "
     "written"},
    {BT_LAUNCH_ALWAYS, "--bind-to none",
     "bitrain places its own threads; the default would pin every one-rank job to core 0"},
    {BT_LAUNCH_ALWAYS, "--mca pml ob1",
     "no probing for fabrics: 0.06 s instead of 0.27 s to start"},
    {BT_LAUNCH_LOCAL, "--mca btl self,vader", "one host: shared memory only"},
    {BT_LAUNCH_LOCAL, "--mca ras ^slurm,tm,lsf,gridengine --mca plm ^slurm,tm,lsf",
     "this host alone, also in a batch job: where that has other nodes, or another name for this "
     "one, mpirun would wait for daemons there"},
    {BT_LAUNCH_HOSTS, "--mca btl self,vader,tcp", "shared memory inside a host, TCP between hosts"},
    {BT_LAUNCH_ALWAYS, "--mca odls_base_sigkill_timeout 0",
     "a dead rank ends the job in 7-15 ms instead of 1-2 s, so a restart is quick"},
    {BT_LAUNCH_HOSTS,
     "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca "
     "oob_tcp_keepalive_probes 4",
     "mpirun notices a dead link after 4 to 6 s instead of 491 s; one that is gone for 2 s ends "
     "nothing"},
    {BT_LAUNCH_HOSTS, "--mca orte_launch_agent {daemon}",
     "a termination notice to all processes of a host does not end the daemon: the ranks, which "
     "start with "
     "an empty mask, save and end"},
    {BT_LAUNCH_LOCAL, "--oversubscribe", "more ranks than cores is allowed, on this host"},
    {BT_LAUNCH_CROWDED, "--mca mpi_yield_when_idle 1",
     "more ranks than cores: a waiting rank gives its core away"},
    {BT_LAUNCH_ROOT, "--allow-run-as-root", "refused otherwise"},
    {BT_LAUNCH_NO_CMA, "--mca btl_vader_single_copy_mechanism none",
     "this kernel or container forbids process_vm_readv"},
    {BT_LAUNCH_LOCAL, "--mca btl_vader_backing_directory {shm}",
     "shared-memory segments in a folder of this attempt, so that none is left behind"},
    {BT_LAUNCH_UNMAPPED, "HWLOC_COMPONENTS=-gl,-opencl",
     "the map of the machine without displays and graphics cards: querying a display can wait "
     "for a name server, 5 s a process"},
    {BT_LAUNCH_MAPPED, "HWLOC_XMLFILE={map}",
     "the map of the machine is read, not made anew by mpirun and every rank: half of their start"},
    {BT_LAUNCH_MAPPED, "HWLOC_THISSYSTEM=1", "the map in the file is of this machine"},
    {BT_LAUNCH_MAPPED, "HWLOC_COMPONENTS=xml,stop",
     "any other list of components makes hwloc overlook the file"},
    {BT_LAUNCH_MAPPED, "HWLOC_LIBXML=0", "the file is read without loading an XML library"},
    {BT_LAUNCH_MAPPED, "HWLOC_PLUGINS_PATH=/nonexistent",
     "hwloc's plug-ins are for what the file has already"},
    {BT_LAUNCH_LOCAL, "PMIX_MCA_gds=hash",
     "data that ranks exchange at their start go through a socket: quicker than a shared "
     "segment that is made for it"},
    {BT_LAUNCH_LOCAL, "--mca orte_tmpdir_base {tmp}",
     "mpirun's own files in a folder of this attempt"},
    {BT_LAUNCH_HOMELESS, "HOME={tmp}",
     "a user without an entry and without HOME, as a service's or a container's: PMIx crashes"},
    {BT_LAUNCH_TRAINS, BT_LAUNCH_SETTINGS "={settings}",
     "the settings, which only the user's own processes can read there, unlike a command line"},
    {BT_LAUNCH_HOSTS, "TMPDIR={tmp}", "the same on this host; other hosts have no such folder"},
};
const size_t bt_launch_rows_n = sizeof bt_launch_rows / sizeof bt_launch_rows[0];

static bool cma_allowed(void) {
    char from = 'x', to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

static int allowed_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
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
    case BT_LAUNCH_NO_CMA: return !cma_allowed();
    case BT_LAUNCH_HOMELESS: return !getenv("HOME") && !getpwuid(geteuid());
    case BT_LAUNCH_CROWDED: return !l->hosts[0] && l->ranks > allowed_cores();
    }
    return false;
}

static void put_filled(bt_words *w, const bt_launch *l, const char *s, size_t n) {
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", l->ranks);
    const struct {
        const char *name, *value;
    } holes[] = {{"{ranks}", ranks},
                 {"{hosts}", l->hosts},
                 {"{shm}", l->shm},
                 {"{tmp}", l->tmp},
                 {"{daemon}", "env --block-signal=TERM orted"},
                 {"{map}", l->map ? l->map : ""},
                 {"{settings}", l->settings ? l->settings : ""}};
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++)
        if (strlen(holes[i].name) == n && strncmp(s, holes[i].name, n) == 0) {
            bt_words_put(w, holes[i].value);
            return;
        }
    bt_words_putn(w, s, n);
}

static void put_split(bt_words *w, const bt_launch *l, const char *s) {
    while (*s) {
        s += strspn(s, " ");
        size_t n = strcspn(s, " ");
        if (n) put_filled(w, l, s, n);
        s += n;
    }
}

static bool is_environment(const bt_launch_row *row) {
    return row->words[0] >= 'A' && row->words[0] <= 'Z';
}

static void build_mpirun_words(bt_words *w, const bt_launch *l, const char *mpirun) {
    bt_words_put(w, mpirun);
    for (size_t i = 0; i < bt_launch_rows_n; i++)
        if (bt_launch_applies(bt_launch_rows[i].when, l) && !is_environment(&bt_launch_rows[i]))
            put_split(w, l, bt_launch_rows[i].words);
    put_split(w, l, l->mpirun_args);
    bt_words_put(w, l->program);
    for (size_t i = 0; i < l->n_words; i++) bt_words_put(w, l->words[i]);
}

void bt_launch_command(const bt_launch *l, bt_text *out) {
    bt_words w = {0};
    bt_mpirun m;
    bt_err ignored = BT_ERR_INIT; /* the start reports it */
    (void)!bt_mpirun_find(&m, false, &ignored);
    build_mpirun_words(&w, l, m.command);
    const char *p = bt_text_str(&w.text);
    for (size_t i = 0; !w.text.failed && i < w.n; i++) {
        bt_text_put(out, p);
        bt_text_put(out, "\n");
        p += strlen(p) + 1;
    }
    bt_words_release(&w);
}

/* Variables of an enclosing MPI job would make our mpirun behave as a rank of
 * it. */
static bool inherited_from_mpi(const char *var) {
    static const char *const prefixes[] = {"OMPI_COMM_WORLD_",
                                           "OMPI_UNIVERSE_",
                                           "OMPI_COMMAND",
                                           "OMPI_ARGV",
                                           "OMPI_NUM_APP",
                                           "OMPI_APP_CTX",
                                           "OMPI_FIRST_RANKS",
                                           "OMPI_FILE_LOCATION",
                                           "OMPI_MCA_ess",
                                           "OMPI_MCA_orte_ess",
                                           "OMPI_MCA_orte_hnp",
                                           "OMPI_MCA_orte_local_daemon",
                                           "OMPI_MCA_orte_jobfam",
                                           "OMPI_MCA_initial_wdir",
                                           "PMIX_",
                                           "PMI_",
                                           "PRTE_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(var, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* ours without that, and with the table's own settings; own[] holds their text */
static char **make_environment(const bt_launch *l, bt_words *own) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < bt_launch_rows_n; i++) {
        const bt_launch_row *row = &bt_launch_rows[i];
        const char *hole = strchr(row->words, '{');
        if (!is_environment(row) || !bt_launch_applies(row->when, l)) continue;
        bt_text_putn(&own->text, row->words,
                     hole ? (size_t)(hole - row->words) : strlen(row->words));
        if (hole)
            put_filled(own, l, hole, strlen(hole));
        else
            bt_words_put(own, "");
    }
    while (environ[n]) n++;
    char **env = own->text.failed ? NULL : calloc(n + bt_launch_rows_n + 1, sizeof *env);
    char *p = own->text.data;
    for (size_t i = 0; env && i < own->n; i++, p += strlen(p) + 1) env[k++] = p;
    const size_t first = k;
    for (size_t i = 0; env && i < n; i++) {
        bool keep = !inherited_from_mpi(environ[i]);
        for (size_t o = 0; o < first; o++)
            keep &= strncmp(environ[i], env[o], strcspn(env[o], "=") + 1) != 0;
        if (keep) env[k++] = environ[i];
    }
    return env;
}

/* A notice to leave (scancel, a systemd slice) goes to every process of the job. mpirun would end its ranks at once;
 * with the signals blocked, which survives exec, it ignores them, and the ranks, which it starts with an empty mask,
 * save and leave. */
static int start_mpirun(const bt_launch *l, const char *const *argv, char *const *env,
                        const int out[2], pid_t *pid) {
    int keep[1 + sizeof l->inherit / sizeof *l->inherit] = {out[0]};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    memcpy(keep + 1, l->inherit, (size_t)l->n_inherit * sizeof *keep);
    return bt_process_start(pid, &(bt_start){.argv = argv,
                                             .env = env,
                                             .out = out[1],
                                             .err = out[1],
                                             .keep = keep,
                                             .n_keep = 1 + (size_t)l->n_inherit,
                                             .blocked = &blocked,
                                             .session = true});
}

bt_code bt_launch_start(const bt_launch *given, bt_child *child, bt_err *err) {
    bt_words w = {0}, own = {0};
    bt_mpirun m;
    char hosts[PATH_MAX];
    bt_launch own_launch = *given;
    const bt_launch *l = &own_launch;
    if (given->hosts[0]) {
        BT_TRY(bt_host_file_for_mpirun(given->hosts, given->tmp, hosts, sizeof hosts, err));
        own_launch.hosts = hosts;
    }
    BT_TRY(bt_mpirun_find(&m, false, err));
    if (m.passed_over[0])
        bt_log(BT_LOG_WARN, "%s: ranks are started by '%s'", m.passed_over, m.path);
    build_mpirun_words(&w, l, m.command);
    const char **argv = bt_words_argv(&w);
    char **env = make_environment(l, &own);
    int out[2] = {-1, -1};
    bt_code code = BT_OK;
    pid_t pid = -1;
    if (!argv || !env)
        code = bt_fail(err, BT_NOMEM, "cannot allocate the command line of mpirun");
    else if (pipe2(out, O_CLOEXEC) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot make the pipe for mpirun's output");
    else {
        /* room for a minute of warnings while we are stopped */
        fcntl(out[1], F_SETPIPE_SZ, 1 << 20);
        int e = start_mpirun(l, argv, env, out, &pid);
        if (e == ENOENT)
            code = bt_fail(err, BT_UNSUPPORTED,
                           "cannot start '%s': not found (Debian: install openmpi-bin)", argv[0]);
        else if (e)
            code = bt_fail_errno(err, BT_IO, e, "cannot start '%s'", argv[0]);
    }
    if (out[1] >= 0) close(out[1]);
    if (code == BT_OK) {
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        child->pid = pid;
        child->out = out[0];
    } else if (out[0] >= 0)
        close(out[0]);
    free(env);
    free(argv);
    bt_words_release(&own);
    bt_words_release(&w);
    return code;
}
