/* links.h - the connections accepted by a server, and the deadlines of their requests.
 *
 * libmicrohttpd's timeout measures inactivity only and does not end a client that sends one byte per second;
 * bt_links_cut closes its socket, even during the first line of a later request. Near the limit of connections the
 * oldest idle ones are closed at once, so that a client that opens hundreds and sends nothing does not exclude others.
 *
 * Threads: any; bt_links has its own lock. A bt_link is valid from add to remove. */
#ifndef BT_WEB_HTTP_LINKS_H
#define BT_WEB_HTTP_LINKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bt_link {
    int fd;
    /* time at which the connection was accepted, the current request began, or the previous request ended */
    int64_t since_ns;
    bool idle;   /* the client has not sent the first line of its next request */
    bool exempt; /* the response has no deadline, as an event stream */
    bool
        bad_target; /* the request's address contains an encoded NUL; used by the daemon's thread only */
    struct bt_link *next, *prev;
} bt_link;

typedef struct bt_links {
    pthread_mutex_t lock;
    bt_link *first; /* newest first */
    int n;
} bt_links;

void bt_links_init(bt_links *l);
void bt_links_release(bt_links *l);
bt_link *bt_links_add(bt_links *l,
                      int fd); /* NULL: out of memory; such a connection has no deadline */
/* all functions below accept a NULL link */
void bt_links_remove(bt_links *l, bt_link *k);
void bt_links_begin(bt_links *l, bt_link *k);  /* the first line of a request arrived */
void bt_links_end(bt_links *l, bt_link *k);    /* its response was sent */
void bt_links_exempt(bt_links *l, bt_link *k); /* removes the deadline until the request ends */
/* Closes the sockets of requests that exceed the deadline (idle connections: twice that) and, if there are more than
 * `crowd` connections, of the oldest idle ones. */
void bt_links_cut(bt_links *l, int64_t deadline_ns, int crowd);

#endif
