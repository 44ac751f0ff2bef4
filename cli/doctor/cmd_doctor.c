/* cmd_doctor.c - `bitrain doctor`: examines this machine and reports faults with their remedies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/printout/printout.h"
#include "cli/doctor/doctor.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "monitor/job/launch/host_file.h"
#include "store/store.h"

typedef struct doctor_cfg {
    bool json, quick;
    int64_t ranks;
    char store[1024], isa[16], hosts[1024];
} doctor_cfg;

static const bt_opt doctor_opts[] = {
    BT_ROW_FLAG(doctor_cfg, json, "--json", "print one JSON object"),
    BT_ROW_FLAG(doctor_cfg, quick, "--quick", "do not start an MPI job"),
    BT_ROW_INT(doctor_cfg, ranks, "--ranks", "2", 1, 4096, NULL,
               "ranks of the MPI job that examines the nodes"),
    BT_ROW_TEXT(doctor_cfg, hosts, "--hosts", "",
                "host file, one 'host slots=N' per line: the nodes to examine"),
    BT_ROW_TEXT(doctor_cfg, store, "--store", "",
                "metrics database to examine (default: $BITRAIN_STORE, else the data directory)"),
    BT_ROW_TEXT(doctor_cfg, isa, "--isa", "auto",
                "fastest kernel set allowed, as in `bitrain train --isa`"),
};

static const char *const state_names[] = {"info", "ok", "warn", "fail"};

static size_t count_findings(const bt_doctor *d, bt_finding_state state) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) n += d->findings[i].state == state;
    return n;
}

static void put_doctor_finding(bt_printout *o, const bt_finding *f, bool colours) {
    static const char *const colour[] = {"", "\033[32m", "\033[33m", "\033[31m"};
    const bool coloured = colours && f->state != BT_DOC_INFO;
    bt_printout_row(o);
    bt_printout_str(o, "state", NULL, state_names[f->state]);
    bt_printout_str(o, "topic", NULL, f->topic);
    bt_printout_str(o, "text", NULL, f->text);
    bt_printout_str(o, "way_out", NULL, f->remedy[0] ? f->remedy : NULL);
    bt_printout_end(o);
    bt_printout_line(o, "%s%-4s%s  %-11s %s\n", coloured ? colour[f->state] : "",
                     f->state == BT_DOC_INFO ? "" : state_names[f->state],
                     coloured ? "\033[0m" : "", f->topic, bt_text_shown(f->text));
    if (f->remedy[0]) bt_printout_line(o, "%18s-> %s\n", "", f->remedy);
}

static bt_code print_doctor(const bt_doctor *d, bool json, bt_err *err) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    const bool colours = isatty(STDOUT_FILENO) && !(no_color && *no_color) && term &&
                         strcmp(term, "dumb") != 0;
    bt_printout o;
    bt_printout_begin(&o, json);
    bt_printout_version(&o);
    bt_printout_bool(&o, "ok", d->worst < BT_FINDING_FAIL);
    bt_printout_int(&o, "warnings", NULL, (int64_t)count_findings(d, BT_FINDING_WARN));
    bt_printout_int(&o, "failures", NULL, (int64_t)count_findings(d, BT_FINDING_FAIL));
    bt_printout_rows(&o, "findings");
    for (size_t i = 0; i < d->n; i++) put_doctor_finding(&o, &d->findings[i], colours);
    bt_printout_rows_end(&o, "");
    bt_printout_line(&o, "\nok %zu, warnings %zu, failures %zu\n", count_findings(d, BT_FINDING_OK),
                     count_findings(d, BT_FINDING_WARN), count_findings(d, BT_FINDING_FAIL));
    return bt_printout_print(&o, err);
}

static bt_code cmd_doctor(bt_call *call, bt_err *err) {
    doctor_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    char path[1024];
    if (word && strcmp(word, "mpi-probe") == 0 && bt_comm_am_rank())
        return bt_doctor_probe_rank(err);
    if (word)
        return bt_fail(err, BT_ARG, "unexpected word '%s' (--help lists the arguments)",
                       bt_text_shown(word));
    if (cfg->hosts[0] && access(cfg->hosts, R_OK) != 0)
        BT_TRY(bt_host_file_check(cfg->hosts, 0, "", err));
    BT_TRY(bt_store_path(path, sizeof path, cfg->store, err));

    static bt_doctor d; /* static because of its size, 70 KiB */
    d.store = path;
    d.isa = cfg->isa;
    d.quick = cfg->quick;
    d.hosts = cfg->hosts;
    d.ranks = (int)cfg->ranks;
    bt_doctor_processor(&d);
    bt_doctor_energy(&d);
    bt_doctor_kernels(&d);
    bt_doctor_memory(&d);
    bt_doctor_mpi(&d);
    bt_doctor_store(&d);
    bt_doctor_screens(&d);
    bt_doctor_environment(&d);
    BT_TRY(print_doctor(&d, cfg->json, err));
    if (d.worst < BT_FINDING_FAIL) return BT_OK;
    size_t failed = count_findings(&d, BT_FINDING_FAIL);
    return bt_fail(err, BT_CHECK, "%zu check%s failed", failed, failed == 1 ? "" : "s");
}

const bt_command bt_cmd_doctor = {
    .ranked = true,
    .name = "doctor",
    .summary = "examine this machine, or all nodes: processor, kernels, MPI, memory, store",
    .args = "",
    .examples =
        "bitrain doctor # properties, faults and their remedies\n"
        "bitrain doctor --json | jq '.findings[] | select(.state == \"warn\")'\n"
        "bitrain doctor --hosts nodes.txt --ranks 8 # starts 8 ranks there and compares the "
        "nodes",
    .options = BT_OPTION_SET(doctor_opts, doctor_cfg),
    .max_words = 1, /* the word that starts a rank of the probe */
    .run = cmd_doctor,
};
