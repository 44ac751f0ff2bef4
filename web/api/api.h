/* api.h - responses of the routes in routes.def, created by api_*.c. A handler reads the request and writes the body.
 *
 * Threads: the server's thread, which alone uses `bt_api` (connection, cached views). */
#ifndef BT_WEB_API_API_H
#define BT_WEB_API_API_H

#include "engine/base/text.h"
#include "store/store.h"
#include "store/view/view.h"
#include "web/http/http_request.h"

typedef struct bt_answer {
    int status;       /* default 200 */
    const char *type; /* default "application/json" */
    bt_text body;
} bt_answer;

typedef struct bt_api bt_api;

/* options of the server that permit more than reading */
typedef struct bt_api_allows {
    bool control, query;
    const char *program; /* program that executes queries; see query_process.h */
    /* Restarts an ended run, detached; NULL: not available. May take a second. */
    bt_code (*resume)(void *ctx, const char *run, bt_err *err);
    void *resume_ctx;
    /* Removes an ended run's records, and its checkpoints if requested; reply receives a summary. ctx is resume_ctx.
     * NULL: not available. */
    bt_code (*remove)(void *ctx, const char *run, bool checkpoints, char *reply, size_t size,
                      bt_err *err);
    /* Starts a run, detached, with n arguments of `bitrain train`. name: the requested name, or "", which is replaced
     * by a generated one. May take a second. ctx is resume_ctx. NULL: not available. */
    bt_code (*start)(void *ctx, int n, const char *const *words, char name[BT_NAME_MAX],
                     bt_err *err);
} bt_api_allows;

bt_code bt_api_open(bt_api **out, const char *store, const bt_api_allows *allows, bt_err *err)
    BT_MUST_CHECK;
void bt_api_close(bt_api *a);
/* Opens the database at the first use, because the file may be created later. On failure returns NULL and fills err. */
bt_db *bt_api_db(bt_api *a, bt_err *err);
/* Closes a removed or replaced database file and its views; to be called before each request. */
void bt_api_refresh(bt_api *a);
int64_t bt_api_version(
    bt_api *a); /* changes with every commit and every file; -1: there is no file */
bt_view *bt_api_view(bt_api *a, const char *run,
                     bt_err *err); /* cached by run; on failure NULL, with err */

typedef bt_code (*bt_api_fn)(bt_api *a, const bt_req *r, const char *run, bt_answer *out,
                             bt_err *err);

bt_api_allows bt_api_allowed(const bt_api *a);
const char *bt_api_store(const bt_api *a);

/* THREAD: like TOKEN, for slow handlers: each runs in its own thread and uses only constant fields of `bt_api`. */
typedef enum { BT_ROUTE_OPEN, BT_ROUTE_TOKEN, BT_ROUTE_THREAD, BT_ROUTE_CONTROL } bt_route_guard;
typedef struct bt_route {
    const char *method;
    /* exact path; with per_run, the verb after /api/v1/runs/{run}/ ("": the run itself) */
    const char *path;
    bool per_run;
    bt_route_guard guard;
    bt_api_fn fn;
    const char *help;
} bt_route;
extern const bt_route bt_routes[];
extern const size_t bt_routes_n;
/* Returns the route of a request, or NULL. run receives the name of a per-run route; path_known: the path has routes
 * with other methods. */
const bt_route *bt_route_find(const bt_req *r, char run[BT_NAME_MAX], bool *path_known);

/* Writes a JSON error: {"error":{"code","message","hint"}}. */
void bt_answer_error(bt_answer *out, int status, const char *code, const char *message,
                     const char *hint);
int bt_status_of(bt_code code); /* HTTP status of a failure */

/* Writes the events of a stream since `cursor`, which it advances; empty without new events (stream.c). */
typedef struct bt_cursor {
    int64_t attempt, step, seq;
} bt_cursor;
/* Parses Last-Event-ID. An invalid id starts the stream at the newest record, with a full state. */
void bt_cursor_parse(bt_cursor *c, const char *text);
bt_code bt_stream_since(bt_api *a, const char *run, bt_cursor *cursor, bt_text *out, bt_err *err);

#define BT_ROUTE(method, path, per_run, guard, fn, help) \
    bt_code fn(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err);
#include "web/api/routes.def"
#undef BT_ROUTE

#endif
