/* responses.c - what the dashboard sends of its own: answers and errors. */

#include <stdlib.h>

#include "web/http/compress.h"
#include "web/server/server_impl.h"

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
