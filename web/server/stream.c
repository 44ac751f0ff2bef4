/* stream.c - composes the next event of an event stream. The only state of a stream is the cursor, which the client
 * sends back, so that a restarted server can continue the stream.
 *
 *     id: ATTEMPT.STEP.SEQ
 *     event: tick     data: {"head": {...}, "new_events": n}    new records; pages request again what they show
 *     event: resync   data: {}                                  the client is too far behind and must reload everything
 *     */
#include <stdio.h>

#include "web/api/api.h"

/* in steps */
enum { FAR_BEHIND = 5000 };

void bt_cursor_parse(bt_cursor *c, const char *text) {
    long long attempt, step, seq;
    char rest;
    *c = (bt_cursor){-1, -1, -1};
    if (text && sscanf(text, "%lld.%lld.%lld%c", &attempt, &step, &seq, &rest) == 3 &&
        attempt >= 0 && step >= -1 && seq >= 0) {
        *c = (bt_cursor){attempt, step, seq};
    }
}

bt_code bt_stream_since(bt_api *a, const char *run, bt_cursor *cursor, bt_text *out, bt_err *err) {
    bt_db *db = bt_api_db(a, err);
    if (!db) return err->code;
    double seq = 0;
    BT_TRY(
        bt_db_value(db, "SELECT coalesce(max(seq), 0) FROM events WHERE run = ?1", run, &seq, err));
    bt_view_request ask;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_HEAD;
    ask.run = run;
    bt_view *v = bt_api_view(a, run, err);
    if (!v) return err->code;
    BT_TRY(bt_view_load(v, &ask, err));
    bt_cursor now = {v->head.attempt, v->head.newest_step, (int64_t)seq};
    if (now.attempt == cursor->attempt && now.step == cursor->step && now.seq == cursor->seq)
        return BT_OK;
    bool first = cursor->attempt < 0, far = !first && now.step - cursor->step > FAR_BEHIND;
    bt_text_printf(out, "id: %lld.%lld.%lld\nevent: %s\ndata: ", (long long)now.attempt,
                   (long long)now.step, (long long)now.seq, far ? "resync" : "tick");
    bt_json j;
    bt_json_begin(&j, out);
    bt_view_json(v, BT_VIEW_HEAD, &j, NULL);
    bt_text_put(out, "\n\n");
    *cursor = now;
    return out->failed ? bt_fail(err, BT_NOMEM, "no memory for an event") : BT_OK;
}
