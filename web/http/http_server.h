/* http_server.h - the parts of libmicrohttpd that this program's HTTP servers share: reading requests, headers of every
 * response, compiled-in assets, connections with deadlines, the token. */
#ifndef BT_WEB_HTTP_HTTP_SERVER_H
#define BT_WEB_HTTP_HTTP_SERVER_H

#include <microhttpd.h>

#include "engine/base/status.h"
#include "web/http/assets.h"
#include "web/http/http_request.h"
#include "web/http/links.h"

enum {
    BT_HTTP_CONNECTIONS = 512,
    BT_HTTP_CROWD = 384,
    BT_HTTP_HEADER_BYTES = 16384,
    BT_HTTP_IDLE_S = 10
};

/* Reads method, path, headers and query arguments; the texts belong to the connection. */
void bt_http_read(bt_req *q, struct MHD_Connection *c, const char *path, const char *method);
const char *bt_http_header(struct MHD_Connection *c, const char *name); /* NULL: absent */
/* Detects requests that two parsers may interpret differently: Content-Length together with Transfer-Encoding, one of
 * these or Host twice, or an encoded NUL in the address, at which libmicrohttpd truncates it. Returns the message for a
 * 400, or NULL. */
const char *bt_http_ambiguity(struct MHD_Connection *c);
/* encodings: value of an Accept-Encoding header; may be NULL. */
bool bt_http_takes_gzip(const char *encodings);

typedef struct bt_header {
    const char *name, *value; /* value NULL: the header is not sent; name NULL: end of the list */
} bt_header;

/* Adds the content policy, the other security headers, the headers `more`, and Retry-After for status 429 and 503;
 * takes ownership of r. MHD_NO, which closes the connection, if memory for a header runs out: a missing response is
 * better than one without its content policy, or a compressed one without its Content-Encoding. */
enum MHD_Result bt_http_send(struct MHD_Connection *c, int status, struct MHD_Response *r,
                             const bt_header *more);
/* headers of an event stream, including one against buffering in proxies */
extern const bt_header bt_http_events[];
const bt_asset *bt_http_asset(const bt_asset *assets, size_t n, const char *path); /* NULL: none */
enum MHD_Result bt_http_send_asset(struct MHD_Connection *c, const bt_req *q, const bt_asset *a);
/* Sent if the Authorization header had the token: sets the cookie bitrain_PORT to the token. */
enum MHD_Result bt_http_send_login(struct MHD_Connection *c, int port, const char *token);

/* Generates 32 random hexadecimal digits. */
bt_code bt_http_make_token(char token[BT_TOKEN_HEX + 1], bt_err *err) BT_MUST_CHECK;

/* Callbacks of libmicrohttpd that list a daemon's connections; their context is a bt_links. The bt_link of a connection
 * is stored as its socket context. */
bt_link *bt_http_link(struct MHD_Connection *c);
void bt_http_connection(void *links, struct MHD_Connection *c, void **socket_context,
                        enum MHD_ConnectionNotificationCode what);
void *bt_http_request_begins(void *links, const char *uri, struct MHD_Connection *c);

#endif
