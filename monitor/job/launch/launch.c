/* launch.c - the command line and the environment of mpirun, and its start. */
#include "monitor/job/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/system/start_process.h"
#include "engine/base/system/words.h"
#include "monitor/job/launch/host_file.h"
#include "monitor/job/machine/mpirun.h"

static void put_word_with_values(bt_words *w, const bt_launch *l, const char *s, size_t n) {
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", l->ranks);
    const struct {
        const char *name, *value;
    } holes[] = {{"{ranks}", ranks},
                 {"{hosts}", l->hosts},
                 {"{shm}", l->shm},
                 {"{tmp}", l->tmp},
                 {"{orted}", "env --block-signal=TERM orted"},
                 {"{prted}", "env --block-signal=TERM prted"},
                 {"{agent}", bt_launch_agent()},
                 {"{map}", l->map ? l->map : ""},
                 {"{settings}", l->settings ? l->settings : ""}};
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++)
        if (strlen(holes[i].name) == n && strncmp(s, holes[i].name, n) == 0) {
            bt_words_put(w, holes[i].value);
            return;
        }
    bt_words_putn(w, s, n);
}

static void put_launch_words(bt_words *w, const bt_launch *l, const char *s) {
    while (*s) {
        s += strspn(s, " ");
        size_t n = strcspn(s, " ");
        if (n) put_word_with_values(w, l, s, n);
        s += n;
    }
}

static bool sets_environment(const bt_launch_row *row) {
    return row->words[0] >= 'A' && row->words[0] <= 'Z';
}

static void build_mpirun_words(bt_words *w, const bt_launch *l, const char *mpirun) {
    bt_words_put(w, mpirun);
    for (size_t i = 0; i < bt_launch_rows_n; i++)
        if (bt_launch_in_effect(&bt_launch_rows[i], l) && !sets_environment(&bt_launch_rows[i]))
            put_launch_words(w, l, bt_launch_rows[i].words);
    put_launch_words(w, l, l->mpirun_args);
    bt_words_put(w, l->program);
    for (size_t i = 0; i < l->n_words; i++) bt_words_put(w, l->words[i]);
}

void bt_launch_command(const bt_launch *l, bt_text *out) {
    bt_words w = {0};
    bt_mpirun m;
    bt_err ignored = BT_ERR_INIT; /* the start reports it */
    (void)!bt_mpirun_find(&m, false, &ignored);
    bt_launch own = *l;
    if (!own.mpi) own.mpi = m.major;
    build_mpirun_words(&w, &own, m.command);
    const char *p = bt_text_str(&w.text);
    for (size_t i = 0; !w.text.failed && i < w.n; i++) {
        bt_text_put(out, p);
        bt_text_put(out, "\n");
        p += strlen(p) + 1;
    }
    bt_words_release(&w);
}

/* Variables of an enclosing MPI job would make our mpirun behave as a rank of it. PRTE_MCA_* and PMIX_MCA_* are
 * parameters, which a user may have set, except those that name the enclosing job. */
static bool is_variable_of_enclosing_job(const char *var) {
    static const char *const settings[] = {"PRTE_MCA_", "PMIX_MCA_"};
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
                                           "OMPI_MCA_num_procs",
                                           "OMPI_WORLD_",
                                           "PRTE_MCA_ess",
                                           "PRTE_MCA_prte_ess",
                                           "PRTE_MCA_prte_hnp",
                                           "PRTE_MCA_prte_parent",
                                           "PMIX_",
                                           "PMI_",
                                           "PRTE_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t n = strlen(prefixes[i]);
        if (strncmp(var, prefixes[i], n) != 0) continue;
        /* A variable of the enclosing job may begin like a setting, so it is recognised by a longer prefix first. */
        bool setting = false;
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
            setting |= n < strlen(settings[k]) &&
                       strncmp(var, settings[k], strlen(settings[k])) == 0;
        if (!setting) return true;
    }
    return false;
}

/* Returns the environment of this process without the variables of an enclosing MPI job, and with the settings of the
 * table; own[] holds the text of these settings. */
static char **build_mpirun_environment(const bt_launch *l, bt_words *own) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < bt_launch_rows_n; i++) {
        const bt_launch_row *row = &bt_launch_rows[i];
        const char *hole = strchr(row->words, '{');
        if (!sets_environment(row) || !bt_launch_in_effect(row, l)) continue;
        bt_text_putn(&own->text, row->words,
                     hole ? (size_t)(hole - row->words) : strlen(row->words));
        if (hole)
            put_word_with_values(own, l, hole, strlen(hole));
        else
            bt_words_put(own, "");
    }
    while (environ[n]) n++;
    char **env = own->text.failed ? NULL : calloc(n + bt_launch_rows_n + 1, sizeof *env);
    char *p = own->text.data;
    for (size_t i = 0; env && i < own->n; i++, p += strlen(p) + 1) env[k++] = p;
    const size_t first = k;
    for (size_t i = 0; env && i < n; i++) {
        bool keep = !is_variable_of_enclosing_job(environ[i]);
        for (size_t o = 0; o < first; o++)
            keep &= strncmp(environ[i], env[o], strcspn(env[o], "=") + 1) != 0;
        if (keep) env[k++] = environ[i];
    }
    return env;
}

/* A notice to leave (scancel, a systemd slice) is sent to every process of the job, and mpirun would end its ranks
 * at once. mpirun is therefore started with these signals blocked; exec keeps the mask. mpirun starts the ranks with an
 * empty mask, so they receive the notice, save and exit. */
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
    if (!own_launch.mpi) own_launch.mpi = m.major;
    if (m.passed_over[0])
        bt_log(BT_LOG_WARN, "%s: ranks are started by '%s'", m.passed_over, m.path);
    build_mpirun_words(&w, l, m.command);
    const char **argv = bt_words_argv(&w);
    char **env = build_mpirun_environment(l, &own);
    int out[2] = {-1, -1};
    bt_code code = BT_OK;
    pid_t pid = -1;
    if (!argv || !env)
        code = bt_fail(err, BT_NOMEM, "cannot allocate the command line of mpirun");
    else if (pipe2(out, O_CLOEXEC) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot make the pipe for mpirun's output");
    else {
        /* room for a minute of warnings while this process is stopped */
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
