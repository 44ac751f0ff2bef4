/* doctor_mpi.c - checks MPI: version, launch flags with their reasons, and a test job on the hosts. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "engine/base/clock.h"
#include "engine/base/system/start_process.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "monitor/job/launch/host_file.h"
#include "monitor/job/launch/job_dirs.h"
#include "monitor/job/launch/launch.h"
#include "monitor/job/launch/output.h"
#include "monitor/job/machine/mpirun.h"

/* ROUNDS all-reduces of 1 MiB */
enum { ROUNDS = 20, FLOATS = 262144 };

typedef struct node_card {
    char host[64], cpu[64], isa[16];
    int32_t cores, failed;
} node_card;

static bt_code exchange_node_cards(node_card *card, double *us, bt_err *err) {
    float *x = calloc(FLOATS, sizeof *x);
    bt_comm *world = bt_comm_world();
    bt_code code = x ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for 1 MiB of numbers");
    code = bt_agree(world, code, err);
    int64_t start = 0;
    for (int i = -2; code == BT_OK && i < ROUNDS; i++) {
        if (i == 0) start = bt_now_ns();
        for (size_t k = 0; k < FLOATS; k++) x[k] = 1;
        code = bt_all_reduce_f32(world, x, FLOATS, BT_SUM, err);
        card->failed |= code == BT_OK && (x[0] != (float)bt_comm_size(world) ||
                                          x[FLOATS - 1] != (float)bt_comm_size(world));
    }
    *us = (double)(bt_now_ns() - start) / 1e3 / ROUNDS;
    free(x);
    return code;
}

bt_code bt_doctor_probe_rank(bt_err *err) {
    node_card mine = {0}, *all = NULL;
    double us = 0;
    BT_TRY(bt_comm_init(err));
    bt_comm *world = bt_comm_world();
    bt_code code = bt_kernels_select("auto", err);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.cpu, sizeof mine.cpu, "%.63s", bt_cpu_get()->model);
    snprintf(mine.isa, sizeof mine.isa, "%.15s", bt_kernels_isa());
    mine.cores = bt_cpu_get()->cores;
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = exchange_node_cards(&mine, &us, err);
    if (code == BT_OK && bt_comm_rank(world) == 0) {
        all = calloc((size_t)bt_comm_size(world), sizeof *all);
        if (!all) code = bt_fail(err, BT_NOMEM, "no memory for the nodes' answers");
    }
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_gather(world, &mine, sizeof mine, all, 0, err);
    for (int r = 0; code == BT_OK && all && r < bt_comm_size(world); r++)
        printf("node %d|%s|%d|%s|%d|%s\n", r, all[r].host, all[r].cores, all[r].isa, all[r].failed,
               all[r].cpu);
    if (code == BT_OK && all) printf("all_reduce_us %.1f\n", us);
    fflush(stdout);
    free(all);
    bt_comm_finalize();
    return code;
}

/* Reads all output of mpirun within limit_s; false: it exceeded the time and was killed. */
static bool read_all_output(const bt_child *child, bt_text *out, double limit_s, int *status) {
    int64_t end = bt_now_ns() + (int64_t)(limit_s * 1e9);
    bool in_time = true, open = true;
    while (open) {
        struct pollfd p = {.fd = child->out, .events = POLLIN};
        char buf[4096];
        int left_ms = (int)((end - bt_now_ns()) / 1000000);
        if (left_ms <= 0) {
            in_time = false;
            break;
        }
        if (poll(&p, 1, left_ms) <= 0) continue;
        ssize_t n = read(child->out, buf, sizeof buf);
        if (n > 0 && out->len < 65536) bt_text_putn(out, buf, (size_t)n);
        open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    }
    if (!in_time) kill(-child->pid, SIGKILL);
    waitpid(child->pid, status, 0);
    close(child->out);
    return in_time;
}

static void report_unlike_nodes(bt_doctor *d, const char *said) {
    char first_isa[16] = "", first_host[64] = "";
    bool unlike = false;
    for (const char *line = said; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char host[64], isa[16], cpu[64];
        int rank, cores, failed;
        if (sscanf(line, "node %d|%63[^|]|%d|%15[^|]|%d|%63[^\n]", &rank, host, &cores, isa,
                   &failed, cpu) != 6)
            continue;
        if (failed)
            bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "mpi",
                                               "rank %d on '%s' received wrong sums", rank, host),
                              "memory or network of that node is broken");
        if (d->hosts[0])
            bt_doctor_report(d, BT_DOC_INFO, "node", "rank %d: %s, %d cores, %s, %s", rank, host,
                             cores, isa, cpu);
        if (!first_isa[0]) {
            memcpy(first_isa, isa, sizeof isa);
            memcpy(first_host, host, sizeof host);
        }
        if (!unlike && strcmp(first_isa, isa) != 0) {
            unlike = true;
            bt_finding_remedy(
                bt_doctor_report(d, BT_FINDING_WARN, "node",
                                 "unlike processors: '%s' has %s, '%s' has %s; all ranks of a "
                                 "job will compute with the least of them",
                                 first_host, first_isa, host, isa),
                "leave the slower hosts out, or let --balance auto give them less");
        }
    }
}

static void run_test_job(bt_doctor *d, const char *program) {
    static const char *const words[] = {"doctor", "mpi-probe"};
    bt_err err = BT_ERR_INIT;
    bt_job_dirs scratch;
    char tmp[280], shm[280];
    memset(&scratch, 0, sizeof scratch);
    bt_child child = {0};
    bt_text said;
    bt_text_init(&said);
    int status = 0;
    double limit_s = 30;
    int64_t start = bt_now_ns();
    bt_code code = bt_job_dirs_create(&scratch, d->ranks, &err);
    if (code == BT_OK) code = bt_job_dirs_attempt(&scratch, d->ranks, 0, tmp, shm, &err);
    if (code == BT_OK) {
        bt_launch l = {.ranks = d->ranks,
                       .hosts = d->hosts,
                       .mpirun_args = "",
                       .tmp = tmp,
                       .shm = shm,
                       .program = program,
                       .words = words,
                       .n_words = 2};
        code = bt_launch_start(&l, &child, &err);
    }
    if (code != BT_OK) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "mpi", "%s", err.msg),
                          "see the lines above");
    } else if (!read_all_output(&child, &said, limit_s, &status)) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "mpi",
                                           "a job of %d ranks did not end within %.0f s", d->ranks,
                                           limit_s),
                          "a firewall between the nodes, or no ssh without a password");
    } else if (status != 0 || !strstr(bt_text_str(&said), "all_reduce_us ")) {
        bt_output o;
        bt_output_open(&o, "/dev/null", 1);
        bt_output_feed(&o, bt_text_str(&said), said.len);
        bt_output_feed(&o, "\n", 1);
        bt_output_close(&o);
        const char *why = o.reported ? o.message : o.said[0] ? o.said : o.last_line;
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "mpi",
                                           "a job of %d ranks failed: %s", d->ranks,
                                           why[0] ? why : "it printed nothing"),
                          d->hosts[0] ? "ssh HOST true must work for each host without a question"
                                      : "mpirun -np %d hostname shows whether Open MPI works here",
                          d->ranks);
    } else {
        double seconds = (double)(bt_now_ns() - start) / 1e9,
               us = strtod(strstr(bt_text_str(&said), "all_reduce_us ") + 14, NULL);
        bt_doctor_report(
            d, BT_FINDING_OK, "mpi",
            "a job of %d ranks took %.2f s from start to end; all-reduce of 1 MiB: %.2f ms",
            d->ranks, seconds, us / 1e3);
        report_unlike_nodes(d, bt_text_str(&said));
    }
    bt_job_dirs_attempt_end(&scratch, 0);
    bt_job_dirs_remove(&scratch);
    bt_text_release(&said);
}

/* Lists the flags in effect with this version of Open MPI, and those of other versions that it does not support. */
static void report_launch_flags(bt_doctor *d, int mpi) {
    const bt_launch l = {.ranks = d->ranks,
                         .mpi = mpi,
                         .hosts = d->hosts,
                         .mpirun_args = "",
                         .tmp = "",
                         .shm = "",
                         .program = ""};
    for (size_t i = 0; i < bt_launch_rows_n; i++)
        if (bt_launch_in_effect(&bt_launch_rows[i], &l))
            bt_doctor_report(d, BT_DOC_INFO, "mpirun", "%s: %s", bt_launch_rows[i].words,
                             bt_launch_rows[i].reason);
    for (size_t i = 0; i < bt_launch_rows_n; i++)
        if (bt_launch_rows[i].until && mpi >= bt_launch_rows[i].until &&
            bt_launch_applies(bt_launch_rows[i].when, &l))
            bt_doctor_report(d, BT_DOC_INFO, "mpirun",
                             "left out, because Open MPI %d does not know it: %s", mpi,
                             bt_launch_rows[i].words);
}

/* Reports the TCP sockets on which mpirun listens: Open MPI 4.1.4 opens them before it places the ranks.
 * oob_tcp_if_include, oob_tcp_disable_ipv6_family and plm isolated were tried without effect; oob ^tcp is refused. */
static void report_listening_sockets(bt_doctor *d, int mpi) {
    bt_finding_remedy(
        bt_doctor_report(
            d, BT_DOC_INFO, "network",
            "during a run mpirun listens on 0.0.0.0 and [::]%s (one random TCP port each), "
            "also if all ranks are on this machine%s; Open MPI closes connections that are "
            "not its own, but encrypts nothing",
            mpi >= 5 ? ", and on an address of this host" : "",
            d->hosts[0] ? ", and so does every rank (ports from 1024)" : ""),
        "on an untrusted network use a firewall%s; cli/launch/README.md lists all "
        "listening sockets",
        d->hosts[0] ? ""
                    : ", or a namespace: unshare -rn sh -c 'ip link set lo up; exec "
                      "bitrain train ...'");
}

void bt_doctor_mpi(bt_doctor *d) {
    char text[200], program[1024];
    bt_comm_library(text, sizeof text);
    bt_doctor_report(d, BT_FINDING_OK, "mpi", "%s", text);
    if (bt_comm_am_rank())
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "mpi",
                                           "this shell runs inside an MPI job"),
                          "outside of it, 'bitrain train' starts its own ranks");
    bt_mpirun m;
    bt_err err = BT_ERR_INIT;
    if (d->hosts[0] && bt_host_file_check(d->hosts, d->ranks, "", &err) != BT_OK) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "mpi", "%s", err.msg),
                          "'bitrain train' refuses this file, too");
        return;
    }
    if (bt_mpirun_find(&m, true, &err) != BT_OK) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "mpi", "%s", err.msg),
                          "'bitrain train' cannot start ranks before that");
        return;
    }
    if (m.passed_over[0])
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "mpi", "%s: '%s' is used",
                                           m.passed_over, m.path),
                          "put the right one first in PATH, or set BITRAIN_MPIRUN");
    bt_doctor_report(d, BT_FINDING_OK, "mpi", "ranks are started by '%s' (%s)", m.path,
                     m.owner[0] ? m.owner : "its owner is unknown");
    report_launch_flags(d, m.major);
    report_listening_sockets(d, m.major);
    if (!d->quick && bt_own_program(program, sizeof program, &err) == BT_OK)
        run_test_job(d, program);
}
