/* hosts.h - the hosts of a host file: which of them answer, and which are set aside for now.
 *
 * A host is asked by a connection to its ssh port that nobody waits for: accepted or refused is an
 * answer (0.1 to 9 ms, measured); a machine that is off, or whose link is down, says nothing at all. One
 * that never answered may be behind a wall that swallows such packets: it is not judged by silence.
 * Order:    open -> (look | set_aside | take_back | write)* -> close. Threads: one.
 * Cost:     look makes at most one connection a host and LOOK_S, and waits for none. */
#ifndef BT_MONITOR_JOB_LAUNCH_HOSTS_H
#define BT_MONITOR_JOB_LAUNCH_HOSTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

enum { BT_HOSTS_MAX = 256, BT_HOST_NAME = 128, BT_SSH_PORT = 22 };

typedef struct bt_host {
    char name[BT_HOST_NAME];
    char line[256]; /* of the file */
    int slots;      /* ranks it takes; 0: the file does not say */
    bool here;      /* this machine */
    bool aside;
    char why[96]; /* it is set aside */
    bool back;    /* set aside, and answers again */
    /* asking: the address (known: it was resolved), a connection under way (-1: none) */
    struct sockaddr_storage address;
    socklen_t address_len;
    int fd;
    bool answered;        /* ever */
    int64_t asked_ns;     /* when the first question was asked that has no answer; 0: answered */
    int64_t look_ns;      /* when the newest was asked */
    int64_t next_look_ns; /* of one set aside */
    double wait_s;        /* between looks at one set aside: 1, 2, 4 ... 60 s */
} bt_host;

typedef struct bt_hosts {
    bt_host *host;
    int n;
} bt_hosts;

/* path "": no hosts. port: BT_SSH_PORT but in tests */
bt_code bt_hosts_open(bt_hosts *h, const char *path, int port, bt_err *err) BT_MUST_CHECK;
void bt_hosts_close(bt_hosts *h); /* accepts all-zero */
/* asks those in use (aside: those set aside that are due) and takes what answers came */
void bt_hosts_look(bt_hosts *h, bool aside, int64_t now_ns);
/* the same for those in use, until each has answered or so many seconds have passed */
void bt_hosts_ask(bt_hosts *h, double wait_s);
/* seconds since the first question without an answer; 0: it answered, was not asked, or never answers */
double bt_host_silence_s(const bt_host *h, int64_t now_ns);
void bt_hosts_set_aside(bt_host *h, const char *why, int64_t now_ns);
/* those that answer again are in use from now on; how many */
int bt_hosts_take_back(bt_hosts *h);
int bt_hosts_aside(const bt_hosts *h);
/* the host that a message of ssh or mpirun names; NULL: none */
bt_host *bt_hosts_named(bt_hosts *h, const char *message);
/* a host file of those in use, for mpirun */
bt_code bt_hosts_write(const bt_hosts *h, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
