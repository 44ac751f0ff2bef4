/* hosts.c - reads the host file, tests its hosts without blocking, and writes a file of those in use. */
#include "monitor/job/launch/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"

/* A lost test is repeated after this time; the kernel would repeat it after 1 s. */
static const int64_t LOOK_NS = 250000000;
static const double LONGEST_WAIT_S = 60;
#define BLANKS " \t\r\n"

static void resolve_host(bt_host *h, int port) {
    struct addrinfo *list = NULL;
    char service[16];
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(h->name, service, &want, &list) == 0 && list &&
        list->ai_addrlen <= sizeof h->address) {
        memcpy(&h->address, list->ai_addr, list->ai_addrlen);
        h->address_len = list->ai_addrlen;
    }
    if (list) freeaddrinfo(list);
}

bool bt_host_is_here(const char *name) {
    char here[BT_HOST_NAME] = "";
    gethostname(here, sizeof here - 1);
    return strcmp(name, here) == 0 || strcmp(name, "localhost") == 0 ||
           strncmp(name, "127.", 4) == 0;
}

/* host_file.c has rejected invalid lines. */
static bool add_host_line(bt_host *h, const char *line, int port) {
    char words[sizeof h->line], *rest;
    *h = (bt_host){.fd = -1};
    snprintf(words, sizeof words, "%.*s", (int)sizeof words - 1, line);
    words[strcspn(words, "#\r\n")] = '\0';
    snprintf(h->line, sizeof h->line, "%.*s", (int)sizeof h->line - 1, words);
    const char *name = strtok_r(words, BLANKS, &rest);
    if (!name || *name == '^') return false;
    const char *at = strchr(name, '@');
    if (at) name = at + 1; /* the host's name follows the user of user@host */
    if (!*name || strlen(name) >= sizeof h->name) return false;
    memcpy(h->name, name, strlen(name) + 1);
    h->name[strcspn(h->name, ":")] = '\0';
    for (const char *w; (w = strtok_r(NULL, BLANKS, &rest));)
        if (strncmp(w, "slots=", 6) == 0 || strncmp(w, "count=", 6) == 0 ||
            strncmp(w, "cpu=", 4) == 0)
            h->slots = atoi(strchr(w, '=') + 1);
    h->here = bt_host_is_here(h->name);
    if (!h->here) resolve_host(h, port);
    return true;
}

bt_code bt_hosts_open(bt_hosts *h, const char *path, int port, bt_err *err) {
    char line[1024];
    *h = (bt_hosts){0};
    if (!path[0]) return BT_OK;
    FILE *f = fopen(path, "re");
    if (!f) return bt_fail_errno(err, BT_NOTFOUND, errno, "cannot read host file '%s'", path);
    h->host = calloc(BT_HOSTS_MAX, sizeof *h->host);
    while (h->host && h->n < BT_HOSTS_MAX && fgets(line, sizeof line, f))
        h->n += add_host_line(&h->host[h->n], line, port);
    fclose(f);
    return h->host ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the hosts of '%s'", path);
}

static void close_host_connection(bt_host *h) {
    if (h->fd >= 0) close(h->fd);
    h->fd = -1;
}

void bt_hosts_close(bt_hosts *h) {
    for (int i = 0; i < h->n; i++) close_host_connection(&h->host[i]);
    free(h->host);
    *h = (bt_hosts){0};
}

static void host_responded(bt_host *h) {
    close_host_connection(h);
    h->answered = true;
    h->asked_ns = 0;
}

static void connect_to_host(bt_host *h, int64_t now_ns) {
    close_host_connection(h);
    h->look_ns = now_ns;
    if (!h->asked_ns) h->asked_ns = now_ns;
    h->fd = socket(h->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (h->fd < 0) {
        h->asked_ns = 0; /* a lack of descriptors is not the host's fault */
        return;
    }
    if (connect(h->fd, (const struct sockaddr *)&h->address, h->address_len) == 0 ||
        errno == ECONNREFUSED)
        host_responded(h);
    else if (errno != EINPROGRESS)
        close_host_connection(h); /* no route counts as no response */
}

static void check_connection(bt_host *h) {
    struct pollfd p = {h->fd, POLLOUT, 0};
    int e = 0;
    socklen_t size = sizeof e;
    if (h->fd < 0 || poll(&p, 1, 0) != 1) return;
    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &e, &size) != 0) e = errno;
    if (e == 0 || e == ECONNREFUSED) host_responded(h);
    close_host_connection(h);
}

static void test_host(bt_host *h, int64_t now_ns) {
    check_connection(h);
    if (now_ns - h->look_ns < LOOK_NS) return;
    connect_to_host(h, now_ns);
}

static void test_hosts_aside(bt_host *h, int64_t now_ns) {
    if (h->back) return;
    if (h->fd >= 0) {
        check_connection(h);
        if (!h->asked_ns) h->back = true;
        return;
    }
    if (now_ns < h->next_look_ns) return;
    h->wait_s = h->wait_s * 2 > LONGEST_WAIT_S ? LONGEST_WAIT_S : h->wait_s * 2;
    h->next_look_ns = now_ns + (int64_t)(h->wait_s * 1e9);
    connect_to_host(h, now_ns);
    if (!h->asked_ns && h->answered) h->back = true;
}

void bt_hosts_test(bt_hosts *h, bool aside, int64_t now_ns) {
    for (int i = 0; i < h->n; i++) {
        bt_host *host = &h->host[i];
        if (host->here || !host->address_len || host->aside != aside) continue;
        if (!aside)
            test_host(host, now_ns);
        else {
            /* Closes a test of an earlier check without a response. */
            if (host->fd >= 0 && now_ns - host->look_ns > 4 * LOOK_NS) close_host_connection(host);
            test_hosts_aside(host, now_ns);
        }
    }
}

void bt_hosts_connect(bt_hosts *h, double wait_s) {
    const int64_t until = bt_now_ns() + (int64_t)(wait_s * 1e9);
    bool open = true;
    for (int64_t now = bt_now_ns(); open; now = bt_now_ns()) {
        open = false;
        bt_hosts_test(h, false, now);
        for (int i = 0; i < h->n; i++)
            open |= !h->host[i].here && !h->host[i].aside && h->host[i].asked_ns != 0;
        if (now >= until) break;
        if (open) bt_sleep_ns(1000000);
    }
}

double bt_host_silence_s(const bt_host *h, int64_t now_ns) {
    return h->answered && h->asked_ns ? (double)(now_ns - h->asked_ns) / 1e9 : 0;
}

void bt_hosts_set_aside(bt_host *h, const char *why, int64_t now_ns) {
    close_host_connection(h);
    h->aside = true;
    h->back = false;
    h->asked_ns = 0;
    snprintf(h->why, sizeof h->why, "%s", why);
    if (!(h->wait_s > 0)) h->wait_s = 0.5;
    h->next_look_ns = now_ns + (int64_t)(h->wait_s * 2e9);
}

int bt_hosts_take_back(bt_hosts *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        if (!h->host[i].aside || !h->host[i].back) continue;
        h->host[i].aside = h->host[i].back = false;
        h->host[i].asked_ns = 0;
        n++;
    }
    return n;
}

int bt_hosts_aside(const bt_hosts *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) n += h->host[i].aside;
    return n;
}

/* True if the message contains the name as a whole word: node1 is not in "node10". */
static bool mentions_host(const char *message, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = message; (at = strstr(at, name)); at += n) {
        const char before = at == message ? ' ' : at[-1], after = at[n];
        const bool joined = (before >= '0' && before <= '9') || (before >= 'a' && before <= 'z') ||
                            before == '.' || before == '-',
                   goes_on = (after >= '0' && after <= '9') || (after >= 'a' && after <= 'z') ||
                             after == '-' || (after == '.' && at[n + 1] > ' ');
        if (!joined && !goes_on) return true;
    }
    return false;
}

bt_host *bt_hosts_named(bt_hosts *h, const char *message) {
    for (int i = 0; i < h->n; i++)
        if (!h->host[i].here && !h->host[i].aside && mentions_host(message, h->host[i].name))
            return &h->host[i];
    return NULL;
}

bt_code bt_hosts_write(const bt_hosts *h, const char *path, bt_err *err) {
    FILE *f = fopen(path, "we");
    if (!f) return bt_fail_errno(err, BT_IO, errno, "cannot write host file '%s'", path);
    bool ok = true;
    for (int i = 0; i < h->n; i++)
        if (!h->host[i].aside) ok &= fprintf(f, "%s\n", h->host[i].line) > 0;
    ok &= fclose(f) == 0;
    return ok ? BT_OK : bt_fail(err, BT_IO, "cannot write host file '%s'", path);
}
