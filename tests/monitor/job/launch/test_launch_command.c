/* The complete command line of mpirun, on one host and several; its environment, signals and descriptors, recorded by a
 * script in its place. */
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/launch.h"

static char folder[64];

static const char *const words[] = {"rank", "--set", "a b"};

static bt_launch run_launch_script(void) {
    return (bt_launch){.ranks = 1,
                       .mpi = 4,
                       .hosts = "",
                       .mpirun_args = "  -x  FOO {tmp} ",
                       .tmp = "/t",
                       .shm = "/s",
                       .program = "/bin/bitrain",
                       .words = words,
                       .n_words = 3};
}

/* Returns whether this kernel permits a process to read another one's memory; here its own. */
static bool reads_memory(void) {
    char from = 'x', to = 0;
    return process_vm_readv(getpid(), &(struct iovec){&to, 1}, 1, &(struct iovec){&from, 1}, 1,
                            0) == 1;
}

static int cores_setting(void) {
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void the_whole_command(void **state) {
    (void)state;
    char want[2048];
    bt_text got;
    bt_launch l = run_launch_script();
    const char *root = geteuid() == 0 ? "--allow-run-as-root\n" : "",
               *cma = reads_memory() ? "" : "--mca\nbtl_vader_single_copy_mechanism\nnone\n";
    bt_text_init(&got);
    unsetenv("BITRAIN_MPIRUN");
    for (int crowded = 0; crowded < 2; crowded++) {
        l.ranks = cores_setting() + crowded;
        bt_text_clear(&got);
        bt_launch_command(&l, &got);
        snprintf(want, sizeof want,
                 "mpirun\n-np\n%d\n--bind-to\nnone\n--mca\npml\nob1\n--mca\nbtl\nself,vader\n"
                 "--mca\nras\n^slurm,tm,lsf,gridengine\n--mca\nplm\n^slurm,tm,lsf\n"
                 "--mca\nodls_base_sigkill_timeout\n0\n--oversubscribe\n%s%s%s"
                 "--mca\nbtl_vader_backing_directory\n/s\n--mca\norte_tmpdir_base\n/t\n"
                 "-x\nFOO\n/t\n/bin/bitrain\nrank\n--set\na b\n",
                 l.ranks, crowded ? "--mca\nmpi_yield_when_idle\n1\n" : "", root, cma);
        assert_string_equal(bt_text_str(&got), want);
    }
    l.hosts = "h";
    l.ranks = 1000;
    setenv("BITRAIN_MPIRUN", "/my/mpirun", 1);
    bt_text_clear(&got);
    bt_launch_command(&l, &got);
    snprintf(
        want, sizeof want,
        "/my/mpirun\n-np\n1000\n--hostfile\nh\n--mca\norte_keep_fqdn_hostnames\n1\n--map-by\nslot\n"
        "--bind-to\nnone\n--mca\npml\nob1\n--mca\nbtl\nself,vader,tcp\n"
        "--mca\nodls_base_sigkill_timeout\n0\n--mca\noob_tcp_keepalive_time\n2\n"
        "--mca\noob_tcp_keepalive_intvl\n1\n--mca\noob_tcp_keepalive_probes\n4\n"
        "--mca\norte_launch_agent\nenv --block-signal=TERM orted\n%s%s"
        "-x\nFOO\n/t\n/bin/bitrain\nrank\n--set\na b\n",
        root, cma);
    assert_string_equal(bt_text_str(&got), want);
    /* Open MPI 5 has other names. */
    l.mpi = 5;
    bt_text_clear(&got);
    bt_launch_command(&l, &got);
    snprintf(want, sizeof want,
             "/my/"
             "mpirun\n-np\n1000\n--hostfile\nh\n--mca\nprte_keep_fqdn_hostnames\n1\n--mca\nprte_do_"
             "not_resolve\n0\n--map-by\nslot\n"
             "--bind-to\nnone\n--mca\npml\nob1\n--mca\nbtl\nself,vader,tcp\n"
             "--mca\noob_tcp_keepalive_time\n2\n"
             "--mca\noob_tcp_keepalive_intvl\n1\n--mca\noob_tcp_keepalive_probes\n4\n"
             "--mca\nprte_launch_agent\nenv --block-signal=TERM prted\n%s%s"
             "--mca\nbtl_vader_segment_size\n4194304\n--mca\nprte_local_tmpdir_base\n/t\n"
             "-x\nFOO\n/t\n/bin/bitrain\nrank\n--set\na b\n",
             root, reads_memory() ? "" : "--mca\nsmsc\n^cma\n");
    assert_string_equal(bt_text_str(&got), want);
    l.mpi = 4;
    setenv("BITRAIN_MPIRUN", "", 1);
    bt_text_clear(&got);
    bt_launch_command(&l, &got);
    assert_int_equal(strncmp(bt_text_str(&got), "mpirun\n", 7), 0);
    bt_text_release(&got);
}

/* Each parameter is passed to the versions of Open MPI that have it; an unknown version is treated as 4.1. */
static void parameters_depend_on_the_version(void **state) {
    (void)state;
    static const struct {
        const char *words;
        bool in[3]; /* unknown, 4, 5 */
    } rows[] = {{"--mca orte_tmpdir_base {tmp}", {true, true, false}},
                {"--mca prte_local_tmpdir_base {tmp}", {false, false, true}},
                {"--mca odls_base_sigkill_timeout 0", {true, true, false}},
                {"--mca orte_launch_agent {orted}", {true, true, false}},
                {"--mca prte_launch_agent {prted}", {false, false, true}},
                {"--mca btl_vader_backing_directory {shm}", {true, true, true}}};
    static const int versions[] = {0, 4, 5};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t r = 0;
        while (r < bt_launch_rows_n && strcmp(bt_launch_rows[r].words, rows[i].words) != 0) r++;
        if (r == bt_launch_rows_n) fail_msg("no row '%s'", rows[i].words);
        for (int v = 0; v < 3; v++)
            if (bt_launch_known(&bt_launch_rows[r], versions[v]) != rows[i].in[v])
                fail_msg("'%s' with Open MPI %d", rows[i].words, versions[v]);
    }
}

/* The agent that the user set for Open MPI 4.1 is passed to Open MPI 5 by its new name, unless that is set. */
static void the_agent_of_an_older_version(void **state) {
    (void)state;
    bt_launch l = run_launch_script();
    unsetenv("PRTE_MCA_plm_ssh_agent");
    unsetenv("OMPI_MCA_plm_rsh_agent");
    assert_string_equal(bt_launch_agent(), "");
    setenv("OMPI_MCA_plm_rsh_agent", "/old -x", 1);
    assert_string_equal(bt_launch_agent(), "/old -x");
    assert_false(bt_launch_applies(BT_LAUNCH_OLD_AGENT, &l));
    l.hosts = "h";
    assert_true(bt_launch_applies(BT_LAUNCH_OLD_AGENT, &l));
    setenv("PRTE_MCA_plm_ssh_agent", "/new", 1);
    assert_string_equal(bt_launch_agent(), "/new");
    assert_false(bt_launch_applies(BT_LAUNCH_OLD_AGENT, &l));
    unsetenv("PRTE_MCA_plm_ssh_agent");
    unsetenv("OMPI_MCA_plm_rsh_agent");
}

static void rows_that_apply(void **state) {
    (void)state;
    bt_launch l = run_launch_script();
    const bool homeless = !getpwuid(geteuid());
    const char *home = getenv("HOME");
    char kept[512];
    snprintf(kept, sizeof kept, "%s", home ? home : "");
    for (int hosts = 0; hosts < 2; hosts++)
        for (int map = 0; map < 3; map++) {
            static const char *const maps[] = {NULL, "", "/m"};
            l.hosts = hosts ? "h" : "";
            l.map = maps[map];
            assert_true(bt_launch_applies(BT_LAUNCH_ALWAYS, &l));
            assert_int_equal(bt_launch_applies(BT_LAUNCH_LOCAL, &l), !hosts);
            assert_int_equal(bt_launch_applies(BT_LAUNCH_HOSTS, &l), hosts);
            assert_int_equal(bt_launch_applies(BT_LAUNCH_MAPPED, &l), !hosts && map == 2);
            assert_int_equal(bt_launch_applies(BT_LAUNCH_UNMAPPED, &l), hosts || map < 2);
            assert_int_equal(bt_launch_applies(BT_LAUNCH_ROOT, &l), geteuid() == 0);
            assert_int_equal(bt_launch_applies(BT_LAUNCH_NO_CMA, &l), !reads_memory());
            for (int more = -1; more <= 1; more++) {
                l.ranks = cores_setting() + more;
                assert_int_equal(bt_launch_applies(BT_LAUNCH_CROWDED, &l), !hosts && more == 1);
            }
        }
    unsetenv("HOME");
    assert_int_equal(bt_launch_applies(BT_LAUNCH_HOMELESS, &l), homeless);
    setenv("HOME", "/h", 1);
    assert_false(bt_launch_applies(BT_LAUNCH_HOMELESS, &l));
    if (home)
        setenv("HOME", kept, 1);
    else
        unsetenv("HOME");
}

static void outcome_of_launch(const bt_launch *l, const char *body, char *out, size_t size) {
    char path[128];
    bt_child c;
    bt_err err = BT_ERR_INIT;
    size_t n = 0;
    ssize_t k;
    snprintf(path, sizeof path, "%s/mpirun", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", body);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("BITRAIN_MPIRUN", path, 1);
    assert_int_equal(bt_launch_start(l, &c, &err), BT_OK);
    assert_int_equal(waitpid(c.pid, NULL, 0), c.pid); /* the output fits into the pipe */
    while (n + 1 < size && (k = read(c.out, out + n, size - 1 - n)) > 0) n += (size_t)k;
    out[n] = '\0';
    close(c.out);
}

static void variables_of_an_enclosing_job_are_removed(void **state) {
    (void)state;
    static const char *const gone[] = {"OMPI_COMM_WORLD_SIZE",
                                       "OMPI_UNIVERSE_SIZE",
                                       "OMPI_COMMAND",
                                       "OMPI_ARGV",
                                       "OMPI_NUM_APP_CTX",
                                       "OMPI_APP_CTX_NUM",
                                       "OMPI_FIRST_RANKS",
                                       "OMPI_FILE_LOCATION",
                                       "OMPI_MCA_ess_base",
                                       "OMPI_MCA_orte_ess_id",
                                       "OMPI_MCA_orte_hnp",
                                       "OMPI_MCA_orte_local_daemon_uri",
                                       "OMPI_MCA_orte_jobfam",
                                       "OMPI_MCA_initial_wdir",
                                       "OMPI_MCA_num_procs",
                                       "OMPI_WORLD_SIZE",
                                       "PMIX_ID",
                                       "PMI_RANK",
                                       "PRTE_X",
                                       "PRTE_MCA_ess_base_vpid",
                                       "PRTE_MCA_prte_ess_x"};
    static const char *const kept[] = {"OMPI_MCA_btl", "OMPI_COMM", "OMPI_MCA_orte_x",
                                       "MYPMI_RANK",   "PMIXX",     "PRTE_MCA_plm_ssh_agent",
                                       "PMIX_MCA_x"};
    static char got[65536];
    char word[64];
    const bt_launch l = run_launch_script();
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) setenv(gone[i], "1", 1);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) setenv(kept[i], "1", 1);
    outcome_of_launch(&l, "env", got, sizeof got);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        snprintf(word, sizeof word, "\n%s=", gone[i]);
        if (strstr(got, word)) fail_msg("%s is passed on", gone[i]);
        unsetenv(gone[i]);
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        snprintf(word, sizeof word, "\n%s=1\n", kept[i]);
        if (!strstr(got, word)) fail_msg("%s is not passed on", kept[i]);
        unsetenv(kept[i]);
    }
}

/* Each setting of the table is set once, even if the user has set it. */
static void settings_of_the_table(void **state) {
    (void)state;
    char got[4096];
    bt_launch l = run_launch_script();
    setenv("HWLOC_THISSYSTEM", "0", 1);
    setenv("TMPDIR", folder, 1);
    static const char print[] = "env | grep -E '^(HWLOC_|PMIX_|TMPDIR)' | sort";
    l.map = "/m m";
    outcome_of_launch(&l, print, got, sizeof got);
    char want[512];
    snprintf(want, sizeof want,
             "HWLOC_COMPONENTS=xml,stop\nHWLOC_LIBXML=0\nHWLOC_PLUGINS_PATH=/"
             "nonexistent\nHWLOC_THISSYSTEM=1\n"
             "HWLOC_XMLFILE=/m m\nPMIX_MCA_gds=hash\nTMPDIR=%s\n",
             folder);
    assert_string_equal(got, want);
    char hosts[100];
    snprintf(hosts, sizeof hosts, "%s/h", folder);
    FILE *f = fopen(hosts, "w");
    assert_non_null(f);
    assert_true(fputs("a slots=1\n", f) >= 0 && fclose(f) == 0);
    l.hosts = hosts;
    outcome_of_launch(&l, print, got, sizeof got);
    assert_string_equal(got, "HWLOC_COMPONENTS=-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero\nHWLOC_"
                             "THISSYSTEM=0\nTMPDIR=/t\n");
    unsetenv("HWLOC_THISSYSTEM");
}

/* Replaces numbers: "pipe:[4711]" becomes "pipe", "/proc/4711/status" becomes "/proc/N/status". */
static void remove_numbers(char *text) {
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (*c == ':') c += strcspn(c, "\n");
        if (strncmp(c, "/proc/", 6) == 0) {
            memcpy(to, "/proc/N", 7);
            to += 7;
            c += 6 + strspn(c + 6, "0123456789");
        }
        *to++ = *c;
    }
    *to = '\0';
}

/* mpirun has TERM and INT blocked and ignores no signal (of the first 28: the C library reserves two more). Its
 * descriptors are the standard ones, the reading end of the pipe and those it inherits by request. */
static void signals_and_descriptors(void **state) {
    (void)state;
    char got[4096], want[256];
    bt_launch l = run_launch_script();
    sigset_t hup, before;
    const int mine = open("/proc/self/status", O_RDONLY | O_CLOEXEC),
              other = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    l.inherit[l.n_inherit++] = mine;
    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hup, &before);
    signal(SIGUSR1, SIG_IGN);
    outcome_of_launch(
        &l,
        /* The shell has no pipe of its own open while readlink runs. A program that it starts has its signals; the
         * shell itself blocks all of them for a moment when it starts one. */
        "exec 9<&-; grep -E '^Sig(Blk|Ign)' /proc/self/status | grep -o '.\\{7\\}$'; cd "
        "/proc/$$/fd; "
        "readlink 0 1 2 3 4 5 6 7 8; true",
        got, sizeof got);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, SIG_DFL);
    close(mine);
    close(other);
    remove_numbers(got);
    snprintf(want, sizeof want, "0004002\n0000000\n/dev/null\npipe\npipe\n%s",
             mine == 3 ? "/proc/N/status\npipe\n" : "");
    assert_string_equal(got, want);
}

int main(void) {
    char cmd[96];
    closefrom(3); /* The parent process may have left files open. */
    strcpy(folder, "/tmp/bt_cmd_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    alarm(30); /* A test that hangs is ended. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_command),
        cmocka_unit_test(rows_that_apply),
        cmocka_unit_test(parameters_depend_on_the_version),
        cmocka_unit_test(the_agent_of_an_older_version),
        cmocka_unit_test(variables_of_an_enclosing_job_are_removed),
        cmocka_unit_test(settings_of_the_table),
        cmocka_unit_test(signals_and_descriptors),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
    return failed + system(cmd);
}
