/* test_launch.c - the command line of mpirun, its session and environment, with a script in mpirun's place; temporary
 * folders of a job. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/job_dirs.h"
#include "monitor/job/launch/launch.h"
#include "monitor/job/launch/proc.h"
#include "monitor/job/machine/machine_map.h"

static char folder[64];

static void make_script(const char *body) {
    char path[128];
    snprintf(path, sizeof path, "%s/mpirun", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", body);
    fclose(f);
    chmod(path, 0755);
    setenv("BITRAIN_MPIRUN", path, 1);
}

static bt_launch launch_and_read(void) {
    static const char *const words[] = {"rank", "--set", "run.note=two words"};
    return (bt_launch){.ranks = 3,
                       .mpi = 4,
                       .hosts = "",
                       .mpirun_args = "-x  FOO",
                       .tmp = "/t m p",
                       .shm = "/shm",
                       .program = "/bin/bitrain",
                       .words = words,
                       .n_words = 3};
}

static void read_all(bt_child *c, char *out, size_t size) {
    size_t n = 0;
    for (int i = 0; i < 500 && n + 1 < size; i++) {
        ssize_t k = read(c->out, out + n, size - 1 - n);
        if (k > 0)
            n += (size_t)k;
        else if (k == 0)
            break;
        else
            bt_sleep_ns(10000000);
    }
    out[n] = '\0';
    close(c->out);
}

static int wait_for(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_arguments(void **state) {
    (void)state;
    unsetenv("BITRAIN_MPIRUN");
    bt_text t;
    bt_text_init(&t);
    bt_launch l = launch_and_read();
    bt_launch_command(&l, &t);
    const char *s = bt_text_str(&t);
    assert_int_equal(strncmp(s, "mpirun\n-np\n3\n", 13), 0);
    assert_non_null(strstr(s, "--mca\nbtl\nself,vader\n"));
    /* mpirun does not use the nodes of a batch job. */
    assert_non_null(strstr(s, "--mca\nplm\n^slurm,tm,lsf\n"));
    /* A blank in a value does not separate arguments. */
    assert_non_null(strstr(s, "--mca\norte_tmpdir_base\n/t m p\n"));
    assert_non_null(strstr(s, "\n-x\nFOO\n/bin/bitrain\nrank\n--set\nrun.note=two words\n"));
    assert_null(strstr(s, "--hostfile"));
    assert_null(strstr(s, "--enable-recovery"));
    bt_text_clear(&t);
    l.hosts = "hosts.txt";
    bt_launch_command(&l, &t);
    s = bt_text_str(&t);
    assert_non_null(strstr(s, "--hostfile\nhosts.txt\n"));
    assert_non_null(strstr(s, "--mca\nbtl\nself,vader,tcp\n"));
    assert_non_null(strstr(s, "oob_tcp_keepalive_time\n2\n"));
    assert_null(strstr(s, "vader_backing_directory"));
    assert_null(strstr(s, "--oversubscribe"));
    bt_text_release(&t);
    for (size_t i = 0; i < bt_launch_rows_n; i++) assert_true(strlen(bt_launch_rows[i].reason) > 8);
}

static void test_session_and_environment(void **state) {
    (void)state;
    make_script("env; echo sid=$(cut -d' ' -f6 /proc/$$/stat) pid=$$; read x && echo got=$x; echo "
                "to-stderr >&2; exit 7");
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("PMIX_RANK", "0", 1);
    setenv("OMPI_MCA_my_setting", "kept", 1);
    signal(SIGPIPE, SIG_IGN);
    bt_launch l = launch_and_read();
    bt_child c;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_launch_start(&l, &c, &err), BT_OK);
    char out[65536], want[64];
    read_all(&c, out, sizeof out);
    assert_int_equal(wait_for(c.pid), 7);
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("PMIX_RANK");
    snprintf(want, sizeof want, "sid=%d pid=%d\n", (int)c.pid, (int)c.pid);
    /* its own session */
    assert_non_null(strstr(out, want));
    assert_null(strstr(out, "OMPI_COMM_WORLD_RANK"));
    assert_null(strstr(out, "PMIX_RANK"));
    assert_non_null(strstr(out, "OMPI_MCA_my_setting=kept"));
    assert_null(strstr(out, "got=")); /* no standard input */
    assert_non_null(strstr(out, "to-stderr"));
}

/* Captures the environment of a job from a script in mpirun's place. */
static void environment_of(const bt_launch *l, char *out, size_t size) {
    bt_child c;
    bt_err err = BT_ERR_INIT;
    make_script("env");
    assert_int_equal(bt_launch_start(l, &c, &err), BT_OK);
    read_all(&c, out, size);
    assert_int_equal(wait_for(c.pid), 0);
}

/* The map describes this host; other hosts are other machines without our variables. */
static void test_map_of_the_machine(void **state) {
    (void)state;
    char out[65536], path[128], line[16] = "";
    bt_launch l = launch_and_read();
    environment_of(&l, out, sizeof out);
    assert_null(strstr(out, "HWLOC_XMLFILE"));
    assert_non_null(strstr(out, "HWLOC_COMPONENTS=-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero\n"));
    assert_non_null(strstr(out, "PMIX_MCA_gds=hash\n"));
    l.map = "/t m p/machine.xml";
    setenv("HWLOC_COMPONENTS", "-gl", 1); /* The user's value would hide the file. */
    environment_of(&l, out, sizeof out);
    unsetenv("HWLOC_COMPONENTS");
    assert_non_null(strstr(out, "HWLOC_XMLFILE=/t m p/machine.xml\n"));
    assert_non_null(strstr(out, "HWLOC_THISSYSTEM=1\n"));
    assert_non_null(strstr(out, "HWLOC_COMPONENTS=xml,stop\n"));
    assert_null(strstr(out, "HWLOC_COMPONENTS=-gl"));
    char hosts[128];
    snprintf(hosts, sizeof hosts, "%s/hosts.txt", folder);
    FILE *list = fopen(hosts, "w");
    assert_non_null(list);
    assert_true(fputs("a slots=1\n", list) >= 0 && fclose(list) == 0);
    l.hosts = hosts;
    environment_of(&l, out, sizeof out);
    assert_null(strstr(out, "HWLOC_XMLFILE"));
    assert_null(strstr(out, "PMIX_MCA_gds"));
    assert_non_null(strstr(out, "HWLOC_COMPONENTS=-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero\n"));

    assert_false(bt_machine_map_write("/nonexistent/folder/machine.xml"));
    snprintf(path, sizeof path, "%s/machine.xml", folder);
#ifdef BITRAIN_HAVE_HWLOC
    assert_true(bt_machine_map_write(path));
#else
    assert_false(bt_machine_map_write(path));
    assert_int_equal(access(path, F_OK), -1);
    return;
#endif
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    assert_memory_equal(line, "<?xml", 5);
}

/* mpirun sends the variable to the ranks of every host. */
static void test_settings_of_the_ranks(void **state) {
    (void)state;
    char out[65536];
    bt_text words;
    bt_text_init(&words);
    bt_launch l = launch_and_read();
    environment_of(&l, out, sizeof out);
    assert_null(strstr(out, BT_LAUNCH_SETTINGS));
    l.settings = "{\"run.note\": \"a 'b'; {tmp}\"}";
    environment_of(&l, out, sizeof out);
    assert_non_null(strstr(out, BT_LAUNCH_SETTINGS "={\"run.note\": \"a 'b'; {tmp}\"}\n"));
    bt_launch_command(&l, &words);
    assert_non_null(strstr(bt_text_str(&words), "\n-x\n" BT_LAUNCH_SETTINGS "\n"));
    assert_null(strstr(bt_text_str(&words), "run.note\""));
    bt_text_release(&words);
}

/* The child itself holds the reading end of its output. */
static void test_survives_its_parent(void **state) {
    (void)state;
    char done[128], body[300];
    snprintf(done, sizeof done, "%s/done", folder);
    snprintf(body, sizeof body,
             "sleep 0.2; for i in 1 2 3 4 5; do echo still here; done && touch %s", done);
    make_script(body);
    bt_launch l = launch_and_read();
    bt_child c;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_launch_start(&l, &c, &err), BT_OK);
    /* simulates the death of this process */
    close(c.out);
    assert_int_equal(wait_for(c.pid), 0);
    assert_int_equal(access(done, F_OK), 0);
}

static void test_no_mpirun(void **state) {
    (void)state;
    setenv("BITRAIN_MPIRUN", "/nonexistent/mpirun", 1);
    bt_launch l = launch_and_read();
    bt_child c;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_launch_start(&l, &c, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "openmpi-bin"));
}

static void test_kill_session(void **state) {
    (void)state;
    make_script("sleep 60 & (trap '' TERM; sleep 60) & sleep 60");
    bt_launch l = launch_and_read();
    bt_child c;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_launch_start(&l, &c, &err), BT_OK);
    bt_proc list[16];
    for (int i = 0; i < 500 && bt_proc_session(c.pid, list, 16) < 4; i++) bt_sleep_ns(10000000);
    assert_true(bt_proc_session(c.pid, list, 16) >= 4);
    assert_int_equal(bt_proc_kill_session(c.pid, 5), 0);
    assert_int_equal(wait_for(c.pid), 128 + SIGKILL);
    close(c.out);
}

/* A process stopped by a debugger is alive, a zombie is not. */
static void test_a_stopped_process_is_alive(void **state) {
    (void)state;
    bt_proc list[4];
    int status;
    const pid_t child = fork();
    if (child == 0) {
        if (setsid() < 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
        raise(SIGSTOP);
        pause();
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFEXITED(status)) skip(); /* tracing is forbidden here */
    assert_int_equal(bt_proc_session(child, list, 4), 1);
    assert_int_equal(list[0].state, 't');
    assert_int_equal(kill(child, SIGKILL), 0);
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(bt_proc_session(child, list, 4), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

static void test_temporary_folders_are_removed(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_job_dirs a, b;
    char tmp[280], shm[280], path[320];
    struct stat st;
    assert_int_equal(bt_job_dirs_create(&a, 2, &err), BT_OK);
    assert_int_equal(bt_job_dirs_attempt(&a, 2, 0, tmp, shm, &err), BT_OK);
    snprintf(path, sizeof path, "%s/session", tmp);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder of mpirun */
    snprintf(path, sizeof path, "%s/vader_segment.x", shm);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    bt_job_dirs_sweep(); /* The lock is held, so the folder remains. */
    assert_int_equal(stat(path, &st), 0);
    bt_job_dirs_attempt_end(&a, 0);
    assert_int_equal(stat(shm, &st), -1);
    assert_int_equal(stat(tmp, &st), -1);
    assert_int_equal(stat(a.shm, &st), 0);
    assert_int_equal(stat(a.tmp, &st), 0);

    /* Both holders died, so the next sweep removes it. */
    assert_int_equal(bt_job_dirs_create(&b, 2, &err), BT_OK);
    close(b.lock);
    if (b.shm_lock >= 0) close(b.shm_lock);
    bt_job_dirs_sweep();
    assert_int_equal(stat(b.tmp, &st), -1);
    assert_int_equal(stat(b.shm, &st), -1);
    assert_int_equal(stat(a.tmp, &st), 0);
    const bt_job_dirs gone = a;
    bt_job_dirs_remove(&a);
    assert_int_equal(a.lock, -1);
    assert_string_equal(a.tmp, "");
    assert_int_equal(stat(gone.tmp, &st), -1);
    assert_int_equal(stat(gone.shm, &st), -1);
    assert_int_equal(bt_job_dirs_attempt(&gone, 2, 1, tmp, shm, &err), BT_IO);
    bt_job_dirs none = {0};
    bt_job_dirs_remove(&none);
}

/* A sweep removes only folders of this user's dead jobs. */
static void test_sweep(void **state) {
    (void)state;
    char name[400], path[420];
    struct stat st;
    static const struct {
        const char *name, *lock; /* text of the lock; NULL: none */
        bool link, stays;
    } all[] = {
        {"bitrain-%u-deadOne", "x", false, false}, {"bitrain-%u-beginsNow", NULL, false, true},
        {"bitrain-%u", "x", false, true},          {"otherwise-%u-a", "x", false, true},
        {"bitrain-%u-linked", "x", true, true},    {"bitrain-%u-deadToo", "", false, false}};
    enum { N = sizeof all / sizeof all[0] };
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < N; i++) {
            snprintf(path, sizeof path, "%s/", folder);
            snprintf(path + strlen(path), sizeof path - strlen(path), all[i].name,
                     (unsigned)getuid());
            if (pass) {
                assert_int_equal(lstat(path, &st), all[i].stays ? 0 : -1);
                continue;
            }
            snprintf(name, sizeof name, all[i].link ? "%.300s/target" : "%.300s",
                     all[i].link ? folder : path);
            assert_int_equal(mkdir(name, 0700), 0);
            if (all[i].link) assert_int_equal(symlink(name, path), 0);
            snprintf(name + strlen(name), 8, "/lock");
            if (!all[i].lock) continue;
            FILE *f = fopen(name, "w");
            assert_non_null(f);
            fputs(all[i].lock, f);
            fclose(f);
            if (pass == 0 && i + 1 == N) bt_job_dirs_sweep();
        }
    /* The target of a link is not removed. */
    snprintf(path, sizeof path, "%s/target/lock", folder);
    assert_int_equal(stat(path, &st), 0);
}

/* The lock file contains the job; if TMPDIR cannot be used, /tmp is; a folder that cannot be created is an error. */
static void test_place_of_temporary_folders(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_job_dirs a;
    char path[320], text[320] = "", far[100], tmp[280], shm[280];
    struct stat st;
    assert_int_equal(bt_job_dirs_create(&a, 2, &err), BT_OK);
    assert_memory_equal(a.tmp, folder, strlen(folder));
    for (int half = 0; half < (strncmp(a.shm, "/dev/shm/", 9) == 0 ? 2 : 1); half++) {
        snprintf(path, sizeof path, "%s/lock", half ? a.shm : a.tmp);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_non_null(fgets(text, sizeof text, f));
        fclose(f);
        text[strcspn(text, "\n")] = 0;
        assert_string_equal(text, a.tmp);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        snprintf(path, sizeof path, "%s/lock.new", half ? a.shm : a.tmp);
        assert_int_equal(stat(path, &st), -1);
    }
    /* An attempt's folders may exist; a file in place of either is an error. */
    assert_int_equal(bt_job_dirs_attempt(&a, 2, 3, tmp, shm, &err), BT_OK);
    assert_int_equal(bt_job_dirs_attempt(&a, 2, 3, tmp, shm, &err), BT_OK);
    assert_int_equal(stat(tmp, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(shm, &st), 0);
    snprintf(path, sizeof path, "%s/3", a.shm);
    assert_string_equal(shm, path);
    bt_job_dirs_attempt_end(&a, 3);
    /* If /dev/shm is missing, the segments are beside the other files, or nowhere. */
    bt_job_dirs half = a;
    strcpy(half.shm, "/proc/none");
    half.shm_lock = half.lock;
    assert_int_equal(bt_job_dirs_attempt(&half, 2, 4, tmp, shm, &err), BT_OK);
    snprintf(path, sizeof path, "%s/shm/4", a.tmp);
    assert_string_equal(shm, path);
    assert_int_equal(stat(shm, &st), 0);
    bt_job_dirs_attempt_end(&half, 4);
    assert_int_equal(stat(shm, &st), -1);
    half.shm_lock = -1;
    assert_int_equal(bt_job_dirs_attempt(&half, 2, 4, tmp, shm, &err), BT_IO);
    assert_non_null(strstr(err.msg, "/proc/none/4"));
    bt_job_dirs_remove(&a);
    /* More ranks than /dev/shm has space for: their segments are beside the other files. */
    assert_int_equal(bt_job_dirs_create(&a, 1 << 30, &err), BT_OK);
    snprintf(path, sizeof path, "%s/shm", a.tmp);
    assert_string_equal(a.shm, path);
    assert_int_equal(stat(a.shm, &st), 0);
    bt_job_dirs_remove(&a);
    assert_int_equal(stat(path, &st), -1);
    memset(far, 'x', sizeof far);
    far[0] = '/';
    far[64] = 0; /* one character more than a socket path may have */
    const char *const unusable[] = {"relative", "", far};
    for (size_t i = 0; i < 3; i++) {
        setenv("TMPDIR", unusable[i], 1);
        assert_int_equal(bt_job_dirs_create(&a, 2, &err), BT_OK);
        assert_memory_equal(a.tmp, "/tmp/bitrain-", 13);
        bt_job_dirs_remove(&a);
    }
    far[63] = 0; /* the longest path; the folder does not exist */
    setenv("TMPDIR", far, 1);
    assert_int_equal(bt_job_dirs_create(&a, 2, &err), BT_IO);
    assert_non_null(strstr(err.msg, "(set TMPDIR to a folder that can be written)"));
    assert_non_null(strstr(err.msg, far));
    assert_string_equal(a.tmp, "");
    assert_int_equal(a.lock, -1);
    assert_int_equal(a.shm_lock, -1);
    bt_job_dirs_remove(&a);
    setenv("TMPDIR", folder, 1);
}

int main(void) {
    strcpy(folder, "/tmp/bt-launch-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    setenv("TMPDIR", folder, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arguments),
                                       cmocka_unit_test(test_session_and_environment),
                                       cmocka_unit_test(test_map_of_the_machine),
                                       cmocka_unit_test(test_settings_of_the_ranks),
                                       cmocka_unit_test(test_survives_its_parent),
                                       cmocka_unit_test(test_no_mpirun),
                                       cmocka_unit_test(test_kill_session),
                                       cmocka_unit_test(test_a_stopped_process_is_alive),
                                       cmocka_unit_test(test_temporary_folders_are_removed),
                                       cmocka_unit_test(test_sweep),
                                       cmocka_unit_test(test_place_of_temporary_folders)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd) != 0 || rc;
}
