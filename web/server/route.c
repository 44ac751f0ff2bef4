/* route.c - searches the table of routes; writes errors as JSON. */
#include <string.h>

#include "web/api/api.h"

const bt_route bt_routes[] = {
#define BT_ROUTE(method, path, per_run, guard, fn, help) {method, path, per_run, guard, fn, help},
#include "web/api/routes.def"
#undef BT_ROUTE
};
const size_t bt_routes_n = sizeof bt_routes / sizeof bt_routes[0];

const bt_route *bt_route_find(const bt_req *r, char run[BT_NAME_MAX], bool *path_known) {
    char verb[32];
    bool per_run = bt_req_run_path(r->path, run, verb, sizeof verb);
    const char *method = strcmp(r->method, "HEAD") == 0 ? "GET" : r->method;
    *path_known = false;
    for (size_t i = 0; i < bt_routes_n; i++) {
        const bt_route *x = &bt_routes[i];
        if (x->per_run != per_run || strcmp(x->path, per_run ? verb : r->path) != 0) continue;
        *path_known = true;
        if (strcmp(x->method, method) == 0) return x;
    }
    return NULL;
}

void bt_answer_error(bt_answer *out, int status, const char *code, const char *message,
                     const char *hint) {
    bt_json j;
    out->status = status;
    out->type = "application/json";
    bt_text_clear(&out->body);
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_object(&j, "error");
    bt_json_str(&j, "code", code);
    bt_json_str(&j, "message", message);
    bt_json_str(&j, "hint", hint);
    bt_json_end(&j, '}');
    bt_json_end(&j, '}');
}

int bt_status_of(bt_code code) {
    switch (code) {
    case BT_OK: return 200;
    case BT_ARG: return 400;
    case BT_NOTFOUND: return 404;
    case BT_BUSY: return 409;
    case BT_UNSUPPORTED: return 501;
    default: return 500;
    }
}
