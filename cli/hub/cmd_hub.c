/* cmd_hub.c - `bitrain hub`: creates keys for islands, and runs the hub to which whole jobs connect. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/loopback.h"
#include "cli/hub/hub_run.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/islands/zmq/hub_socket.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"

static const bt_opt hub_opts[] = {
    BT_ROW_TEXT(bt_hub_settings, listen, "--listen", "",
                "HOST:PORT to serve islands at (PORT: this machine only; 0: any)"),
    BT_ROW_TEXT(bt_hub_settings, keys, "--keys", "",
                "folder of keys, or the file hub.key; without --listen keys are made there"),
    BT_ROW_TEXT(bt_hub_settings, allow, "--allow", "",
                "folder of the islands' public keys (default: 'allowed' beside the hub's key)"),
    BT_ROW_INT(bt_hub_settings, islands, "--islands", "1", 1, BT_HUB_ISLANDS, NULL,
               "begin the job when this number of islands has joined"),
    {"grace", "--grace", BT_OPT_REAL, BT_FIELD(bt_hub_settings, grace_s), "5", 0, 1e6, NULL,
     "seconds", "declare an island dead after this time without a connection"},
    {"link_timeout", "--link-timeout", BT_OPT_REAL, BT_FIELD(bt_hub_settings, link_s), "10", 1, 1e6,
     NULL, "seconds",
     "close a connection that has acknowledged nothing for this time (a cut "
     "link)"},
    {"silence", "--silence", BT_OPT_REAL, BT_FIELD(bt_hub_settings, silence_s), "600", 1, 1e6, NULL,
     "seconds", "declare an island dead after this time without a message"},
    {"overdue", "--overdue", BT_OPT_REAL, BT_FIELD(bt_hub_settings, overdue_s), "2", 0, 1e6, NULL,
     "seconds",
     "a round waits for a missing update this long plus three usual rounds (0: without "
     "limit)"},
    BT_ROW_INT(bt_hub_settings, quorum, "--quorum", "0", 0, BT_HUB_ISLANDS, NULL,
               "number of updates that complete a round (0: those of all training islands)"),
    {"quorum_wait", "--quorum-wait", BT_OPT_REAL, BT_FIELD(bt_hub_settings, quorum_s), "1", 0, 1e6,
     NULL, "seconds", "time that a round waits for the remaining islands once it has its quorum"},
    BT_ROW_INT(bt_hub_settings, late, "--late", "2", 0, 1e6, "rounds",
               "diloco: maximum delay, in rounds, of an update that is still applied (with weight "
               "1 / islands)"),
    {"memory", "--memory", BT_OPT_REAL, BT_FIELD(bt_hub_settings, memory_mib), "512", 0, 1e9, NULL,
     "MiB",
     "limit of memory beyond the model and complete updates; above it all connections are "
     "reopened (0: no limit)"},
    BT_ROW_INT(bt_hub_settings, restarts, "--restarts", "12", 0, 1e6, NULL,
               "restarts in a row without an update after a signal ended the hub's process (0: "
               "never restart)"),
    BT_ROW_TEXT(bt_hub_settings, name, "--name", "",
                "name of the hub's run in the database (default: generated)"),
    BT_ROW_STORE(bt_hub_settings),
    BT_ROW_TEXT(bt_hub_settings, out, "--out", "",
                "folder of the hub's checkpoints (default: runs/NAME beside the database)"),
    BT_ROW_INT(bt_hub_settings, threads, "--threads", "1", 1, 1024, NULL,
               "threads of the optimizer's step"),
    BT_ROW_TEXT(bt_hub_settings, isa, "--isa", "auto", "fastest kernel set allowed"),
    BT_ROW_FLAG(bt_hub_settings, no_monitor, "--no-monitor", "do not record metrics"),
    BT_ROW_FLAG(bt_hub_settings, quiet, "--quiet", "print the address, warnings and errors only"),
};

enum { NAMES = 64 };

static bt_code make_keys(const char *dir, const char *const *names, size_t n, bt_err *err) {
    static const char *const one[] = {"island"};
    const char *const *list = n ? names : one;
    for (size_t i = 0; i < (n ? n : 1); i++) {
        bool made;
        BT_TRY(bt_curve_make(dir, list[i], &made, err));
        printf("%s/%s.key%s\n", dir, list[i], made ? "" : "   (was there already)");
    }
    fprintf(stderr,
            "an island needs its file alone (--keys FILE); copy it by a safe way. The hub "
            "needs %s/hub.key and %s/allowed\n",
            dir, dir);
    return BT_OK;
}

/* "8160" and ":8160" mean the loopback interface of this machine. */
static bt_code complete_address(bt_hub_settings *s, bt_err *err) {
    char given[48];
    const char *port = s->listen[0] == ':' ? s->listen + 1 : s->listen;
    if (strchr(s->listen, ','))
        return bt_fail(err, BT_ARG, "--listen '%.60s' is a list, and a hub has one address",
                       s->listen);
    if (strchr(port, ':')) return BT_OK;
    if (!*port || port[strspn(port, "0123456789")])
        return bt_fail(err, BT_ARG, "--listen '%.60s' has no port (HOST:PORT, as 0.0.0.0:8160)",
                       s->listen);
    snprintf(given, sizeof given, "%.40s", port);
    snprintf(s->listen, sizeof s->listen, "127.0.0.1:%s", given);
    return BT_OK;
}

static void print_hub_address(const bt_hub_settings *s, const char *address) {
    printf("%s\n", address);
    fflush(stdout);
    if (s->quiet) return;
    fprintf(stderr, "hub at %s%s; islands: bitrain train --hub %s --keys FILE; Ctrl-C ends it\n",
            address, bt_is_loopback(s->listen) ? " (this machine only)" : "", address);
}

/* guarded: contains the address on which a process of this hub listened before a restart; or NULL. */
static bt_code open_hub_socket(const bt_hub_settings *s, const bt_guarded *guarded,
                               bt_hub_socket **socket, bt_err *err) {
    enum { AGAIN_MS = 100 };
    const int tries = 20;
    char allowed[PATH_MAX];
    bt_curve_keys keys;
    if (!s->keys[0])
        return bt_fail(err, BT_ARG,
                       "--listen needs keys: --keys DIR (make them with 'bitrain hub --keys DIR "
                       "NAME...')");
    BT_TRY(bt_curve_read(&keys, s->keys, "hub", false, err));
    if (s->allow[0])
        snprintf(allowed, sizeof allowed, "%s", s->allow);
    else
        bt_curve_allowed_dir(allowed, sizeof allowed, s->keys);
    const bt_hub_socket_cfg cfg = {.listen = guarded && guarded->place[0] ? guarded->place
                                                                          : s->listen,
                                   .keys = &keys,
                                   .allowed_dir = allowed,
                                   .link_s = s->link_s};
    bt_code code = bt_hub_socket_open(socket, &cfg, err);
    /* a process of a hub that was killed may live a moment longer */
    for (int k = 0; code == BT_BUSY && k < tries; k++) {
        bt_sleep_ns(AGAIN_MS * INT64_C(1000000));
        code = bt_hub_socket_open(socket, &cfg, err);
    }
    bt_curve_wipe(&keys);
    return code;
}

static bt_code serve_islands(const bt_hub_settings *s, bt_guarded *guarded, bt_err *err) {
    bt_hub_socket *socket = NULL;
    BT_TRY(open_hub_socket(s, guarded, &socket, err));
    const char *address = bt_hub_socket_address(socket);
    /* A restarted process has the address that the islands use already. */
    if (!guarded || !guarded->signal) print_hub_address(s, address);
    if (guarded) snprintf(guarded->place, sizeof guarded->place, "%s", address);
    const bt_code code = bt_hub_run(s, guarded, socket, err);
    bt_hub_socket_close(socket);
    return code;
}

static void print_guard_line(const char *line) { fprintf(stderr, "hub: %s\n", line); }

static bt_code cmd_hub(bt_call *call, bt_err *err) {
    bt_hub_settings *s = call->cfg;
    const char *const *names = call->words;
    bt_guarded *guarded;
    int rank, ranks;
    if (!s->listen[0] && !s->keys[0])
        return bt_fail(err, BT_ARG,
                       "use --keys DIR to make keys, or --listen HOST:PORT --keys DIR to serve "
                       "islands");
    if (!s->listen[0]) return make_keys(s->keys, names, call->n, err);
    if (s->quorum > s->islands)
        return bt_fail(
            err, BT_ARG,
            "--quorum %lld is more than the %lld of --islands: no round would ever have it",
            (long long)s->quorum, (long long)s->islands);
    if (call->n)
        return bt_fail(err, BT_ARG, "'%s': names are for making keys, without --listen", names[0]);
    BT_TRY(complete_address(s, err));
    bt_comm_env_place(&rank, &ranks);
    if (ranks > 1) return bt_fail(err, BT_ARG, "a hub is one process: start it without mpirun");
    BT_TRY(bt_hub_name(s, err));
    BT_TRY(bt_guard_begin(&guarded, bt_comm_am_rank() ? 0 : s->restarts, print_guard_line,
                          call->exit_status, err));
    if (*call->exit_status >= 0) return BT_OK;
    BT_TRY(bt_comm_init(err));
    bt_code code = bt_kernels_select(s->isa, err);
    if (code == BT_OK) code = bt_threads_init((int)s->threads, err);
    if (code == BT_OK) code = serve_islands(s, guarded, err);
    bt_comm_finalize();
    return code;
}

const bt_command bt_cmd_hub = {
    .name = "hub",
    .summary = "server for islands: separate jobs that train one model together",
    .args = "[NAME...]",
    .examples = "bitrain hub --keys keys a b c # makes the keys of a hub and three islands\n"
                "bitrain hub --listen 127.0.0.1:8160 --keys keys --islands 3\n"
                "bitrain train --hub 127.0.0.1:8160 --keys keys/a.key --mode diloco --inner 50\n",
    .options = BT_OPTION_SET(hub_opts, bt_hub_settings),
    .max_words = NAMES,
    .run = cmd_hub,
};
