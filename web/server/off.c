/* off.c - replaces web.h, serve.h and report.h in a program built without the dashboard: every function reports the
 * missing libraries. */
#include "web/api/report.h"
#include "web/serve/serve.h"
#include "web/web.h"

bt_code bt_web_start(bt_web **out, const bt_web_cfg *cfg, bt_err *err) {
    *out = NULL;
    return bt_fail(err, BT_UNSUPPORTED,
                   "cannot listen on %s: this program was built without the dashboard "
                   "(./bootstrap build makes it where there is a network)",
                   cfg->host);
}

int bt_web_port(const bt_web *w) {
    (void)w;
    return 0;
}

const char *bt_web_token(const bt_web *w) {
    (void)w;
    return "";
}

void bt_web_stop(bt_web *w) { (void)w; }

bt_code bt_report(bt_text *out, const char *store, const char *run,
                  const bt_store_progress *progress, bt_err *err) {
    (void)out;
    (void)store;
    (void)progress;
    return bt_fail(err, BT_UNSUPPORTED,
                   "cannot draw '%.64s': this program was built without the dashboard "
                   "(./bootstrap build makes it where there is a network)",
                   run);
}

bt_code bt_serve_start(bt_serve **out, const bt_serve_cfg *cfg, bt_err *err) {
    *out = NULL;
    return bt_fail(err, BT_UNSUPPORTED,
                   "cannot listen on %s: this program was built without its web pages "
                   "(./bootstrap build makes them where there is a network)",
                   cfg->host);
}

int bt_serve_port(const bt_serve *s) {
    (void)s;
    return 0;
}

const char *bt_serve_token(const bt_serve *s) {
    (void)s;
    return "";
}

void bt_serve_stop(bt_serve *s) { (void)s; }

void bt_reply_set(bt_reply *r, void *work) { (void)r, (void)work; }

void bt_reply_send(bt_reply *r, int status, const char *type, const char *body, size_t n) {
    (void)r, (void)status, (void)type, (void)body, (void)n;
}

void bt_reply_error(bt_reply *r, int status, const bt_serve_error *e) {
    (void)r, (void)status, (void)e;
}

const char *bt_reply_id(const bt_reply *r) {
    (void)r;
    return "";
}

void bt_reply_put(bt_reply *r, const char *data, size_t n) { (void)r, (void)data, (void)n; }

void bt_reply_end(bt_reply *r) { (void)r; }
