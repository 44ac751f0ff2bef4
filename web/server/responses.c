/* responses.c - calls the handler of a route and sends its response, or an error. */

#include <stdio.h>
#include <stdlib.h>

#include "web/http/compress.h"
#include "web/server/server_impl.h"

/* Converts the name of a code to one word for programs: "not found" becomes "not_found". */
static const char *write_error_identifier(char *out, size_t size, bt_code code) {
    snprintf(out, size, "%s", bt_code_name(code));
    for (char *p = out; *p; p++)
        if (*p == ' ') *p = '_';
    return out;
}

static const char *failure_hint(bt_web *w, bt_code code, const char *run) {
    bt_err none = BT_ERR_INIT;
    if (code == BT_ARG || code == BT_UNSUPPORTED)
        return "web/README.md lists the parameters of each route";
    if (code != BT_NOTFOUND) return "try again";
    return run[0] && bt_api_db(w->api, &none) ? "see the list of all runs"
                                              : "start one with `bitrain train`";
}

bt_code bt_web_make_answer(bt_web *w, const bt_route *route, const bt_req *q, const char *run,
                           bt_answer *out) {
    bt_err err = BT_ERR_INIT;
    char word[32];
    out->status = 200;
    out->type = "application/json";
    bt_code code = route->fn(w->api, q, run, out, &err);
    if (code != BT_OK)
        bt_answer_error(out, bt_status_of(code), write_error_identifier(word, sizeof word, code),
                        err.msg, failure_hint(w, code, run));
    return code;
}

enum MHD_Result bt_web_send_answer(struct MHD_Connection *c, bt_answer *a) {
    if (a->body.failed) bt_answer_error(a, 503, "memory", "out of memory", "try again");
    void *packed = NULL;
    size_t n = 0;
    const bool gzip = a->body.len >= BT_GZIP_FROM_BYTES &&
                      bt_http_takes_gzip(bt_http_header(c, "Accept-Encoding")) &&
                      bt_http_gzip(a->body.data, a->body.len, &packed, &n);
    struct MHD_Response *r =
        gzip ? MHD_create_response_from_buffer(n, packed, MHD_RESPMEM_MUST_FREE)
             : MHD_create_response_from_buffer(a->body.len, a->body.data, MHD_RESPMEM_MUST_COPY);
    if (!r) {
        free(packed);
        return MHD_NO;
    }
    return bt_http_send(c, a->status, r,
                        (const bt_header[]){{"Content-Encoding", gzip ? "gzip" : NULL},
                                            {"Vary", "Accept-Encoding"},
                                            {"Content-Type", a->type},
                                            {"Cache-Control", "no-store"},
                                            {NULL, NULL}});
}

enum MHD_Result bt_web_send_error(struct MHD_Connection *c, int status, const char *code,
                                  const char *message, const char *hint) {
    bt_answer a = {.status = status};
    bt_text_init(&a.body);
    bt_answer_error(&a, status, code, message, hint);
    enum MHD_Result ok = bt_web_send_answer(c, &a);
    bt_text_release(&a.body);
    return ok;
}
