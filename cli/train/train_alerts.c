/* train_alerts.c - checks the user's alert rules before the run begins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/train/train_parts.h"

/* Finds the first program of this name in PATH; returns false if there is none. */
static bool find_program(const char *name, char path[PATH_MAX]) {
    const char *p = getenv("PATH");
    for (; p && *p; p += strcspn(p, ":"), p += *p == ':') {
        const int n = (int)strcspn(p, ":");
        if (n > 0 && snprintf(path, PATH_MAX, "%.*s/%s", n, p, name) < PATH_MAX &&
            access(path, X_OK) == 0)
            return true;
    }
    path[0] = '\0';
    return false;
}

bt_code bt_train_alerts(bt_train_plan *p, bt_err *err) {
    const bt_run_cfg *c = &p->cfg;
    BT_TRY(bt_alert_parse(&p->alerts, c->alert.rules, err));
    if (!c->alert.webhook[0]) return BT_OK;
    if (strncmp(c->alert.webhook, "http://", 7) != 0 &&
        strncmp(c->alert.webhook, "https://", 8) != 0)
        return bt_fail(err, BT_ARG, "alert.webhook '%.100s' must begin with http:// or https://",
                       c->alert.webhook);
    if (!find_program("curl", p->curl))
        return bt_fail(
            err, BT_UNSUPPORTED,
            "alert.webhook needs the program curl, which is not installed (alert.command "
            "runs another one)");
    return BT_OK;
}
