/* hosts.h - tests which hosts of a host file respond, and sets others aside.
 *
 * A test is a non-blocking connection to the ssh port. Accepted and refused connections count as a response (0.1 to 9
 * ms, measured); a machine that is off, or whose link is down, does not respond. A host that never responded may be
 * behind a firewall that drops packets, so its silence is ignored.
 * Order: open -> (test | set_aside | take_back | write)* -> close. Threads: one.
 * Cost: a test makes at most one connection per host and LOOK_S, and does not wait. */
#ifndef BT_MONITOR_JOB_LAUNCH_HOSTS_H
#define BT_MONITOR_JOB_LAUNCH_HOSTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

enum { BT_HOSTS_MAX = 256, BT_HOST_NAME = 128, BT_SSH_PORT = 22 };

typedef struct bt_host {
    char name[BT_HOST_NAME];
    char line[256];
    int slots; /* 0: not in the file */
    bool here; /* this machine */
    bool aside;
    char why[96];
    bool back; /* set aside, but responds again */
    /* address, valid if `known`; descriptor of the pending connection, -1: none */
    struct sockaddr_storage address;
    socklen_t address_len;
    int fd;
    bool answered;    /* has responded at least once */
    int64_t asked_ns; /* time of the first test without a response; 0: none */
    int64_t look_ns;
    int64_t next_look_ns; /* time of the next test of a host that is set aside */
    double wait_s;        /* interval between tests of a host that is set aside: 1, 2, 4 ... 60 s */
} bt_host;

typedef struct bt_hosts {
    bt_host *host;
    int n;
} bt_hosts;

/* True for names and addresses of this machine. */
bool bt_host_is_here(const char *name);
/* path "": no hosts. port: BT_SSH_PORT except in tests. */
bt_code bt_hosts_open(bt_hosts *h, const char *path, int port, bt_err *err) BT_MUST_CHECK;
void bt_hosts_close(bt_hosts *h); /* accepts all-zero */
/* Tests the hosts in use (aside: those that are set aside and due) and collects responses. */
void bt_hosts_test(bt_hosts *h, bool aside, int64_t now_ns);
/* Tests the hosts in use until each has responded or wait_s has passed. */
void bt_hosts_connect(bt_hosts *h, double wait_s);
/* Seconds since the first test without a response; 0: the host responded, was not tested, or has never responded. */
double bt_host_silence_s(const bt_host *h, int64_t now_ns);
void bt_hosts_set_aside(bt_host *h, const char *why, int64_t now_ns);
/* Uses hosts again that respond; returns their number. */
int bt_hosts_take_back(bt_hosts *h);
int bt_hosts_aside(const bt_hosts *h);
/* Finds the host that a message of ssh or mpirun names; NULL: none. */
bt_host *bt_hosts_named(bt_hosts *h, const char *message);
/* Writes a host file of the hosts in use, for mpirun. */
bt_code bt_hosts_write(const bt_hosts *h, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
