/* links.c - lists accepted connections and finds those that exceed their deadline. */
#include "web/http/links.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/clock.h"

void bt_links_init(bt_links *l) {
    memset(l, 0, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
}

void bt_links_release(bt_links *l) { pthread_mutex_destroy(&l->lock); }

bt_link *bt_links_add(bt_links *l, int fd) {
    bt_link *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->fd = fd;
    k->since_ns = bt_now_ns();
    pthread_mutex_lock(&l->lock);
    k->next = l->first;
    if (l->first) l->first->prev = k;
    l->first = k;
    l->n++;
    pthread_mutex_unlock(&l->lock);
    return k;
}

void bt_links_remove(bt_links *l, bt_link *k) {
    if (!k) return;
    pthread_mutex_lock(&l->lock);
    if (k->prev)
        k->prev->next = k->next;
    else
        l->first = k->next;
    if (k->next) k->next->prev = k->prev;
    l->n--;
    pthread_mutex_unlock(&l->lock);
    free(k);
}

void bt_links_begin(bt_links *l, bt_link *k) {
    pthread_mutex_lock(&l->lock);
    if (k && k->idle) {
        k->since_ns = bt_now_ns();
        k->idle = false;
    }
    pthread_mutex_unlock(&l->lock);
}

void bt_links_end(bt_links *l, bt_link *k) {
    pthread_mutex_lock(&l->lock);
    if (k) {
        k->since_ns = bt_now_ns();
        k->idle = true;
        k->exempt = false;
    }
    pthread_mutex_unlock(&l->lock);
}

void bt_links_exempt(bt_links *l, bt_link *k) {
    pthread_mutex_lock(&l->lock);
    if (k) k->exempt = true;
    pthread_mutex_unlock(&l->lock);
}

void bt_links_cut(bt_links *l, int64_t deadline_ns, int crowd) {
    const int64_t now = bt_now_ns();
    int kept = 0;
    pthread_mutex_lock(&l->lock);
    for (bt_link *k = l->first; k; k = k->next) {
        if (k->exempt || (now - k->since_ns <= deadline_ns * (k->idle ? 2 : 1) && ++kept <= crowd))
            continue;
        shutdown(k->fd, SHUT_RDWR);
        k->since_ns = now;
    }
    pthread_mutex_unlock(&l->lock);
}
