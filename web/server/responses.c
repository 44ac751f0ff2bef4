/* responses.c - what the dashboard sends of its own: answers and errors. */

#include "web/server/server_impl.h"

enum MHD_Result bt_web_send_answer(struct MHD_Connection *c, bt_answer *a) {
    if (a->body.failed) bt_answer_error(a, 503, "memory", "out of memory", "try again");
    struct MHD_Response *r = MHD_create_response_from_buffer(a->body.len, a->body.data,
                                                             MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", a->type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    if (a->status == 429 || a->status == 503) MHD_add_response_header(r, "Retry-After", "2");
    return bt_http_send(c, a->status, r);
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
