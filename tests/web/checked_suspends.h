/* checked_suspends.h - checks in tests of a server that libmicrohttpd resumes only suspended connections and suspends
 * only active ones. A violation aborts the test. Any thread may call it. */
#ifndef BT_TESTS_WEB_CHECKED_SUSPENDS_H
#define BT_TESTS_WEB_CHECKED_SUSPENDS_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <microhttpd.h>

static struct {
    pthread_mutex_t lock;
    const struct MHD_Connection *conn[256];
} asleep = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Replaces one entry by another: NULL by a connection, or a connection by NULL. */
static void change_sleep(const struct MHD_Connection *from, const struct MHD_Connection *to) {
    enum { MOST = sizeof asleep.conn / sizeof *asleep.conn };
    int at = 0, known = 0;
    pthread_mutex_lock(&asleep.lock);
    for (int i = 0; to && i < MOST; i++) known += asleep.conn[i] == to;
    while (at < MOST && asleep.conn[at] != from) at++;
    if (known || at == MOST) {
        fprintf(stderr, "a connection that is %s is %s\n", to ? "suspended" : "not suspended",
                to ? "suspended again" : "resumed");
        abort();
    }
    asleep.conn[at] = to;
    pthread_mutex_unlock(&asleep.lock);
}

void MHD_suspend_connection(struct MHD_Connection *c) {
    void (*suspend)(struct MHD_Connection *);
    *(void **)&suspend = dlsym(RTLD_NEXT, "MHD_suspend_connection");
    change_sleep(NULL, c);
    suspend(c);
}

void MHD_resume_connection(struct MHD_Connection *c) {
    void (*resume)(struct MHD_Connection *);
    *(void **)&resume = dlsym(RTLD_NEXT, "MHD_resume_connection");
    change_sleep(c, NULL);
    resume(c);
}

#endif
