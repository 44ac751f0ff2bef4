/* off.c - web.h and report.h in a program built without the dashboard: starting it says what was
 * missing. */
#include "web/api/report.h"
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

bt_code bt_report(bt_text *out, const char *store, const char *run, bt_err *err) {
    (void)out;
    (void)store;
    return bt_fail(err, BT_UNSUPPORTED,
                   "cannot draw '%.64s': this program was built without the dashboard "
                   "(./bootstrap build makes it where there is a network)",
                   run);
}
