/* view_remarks.c - composes sentences about the whole run, which every view shows below its chips. */
#include <stdio.h>

#include "store/view/view_impl.h"

static void fill_remarks(bt_view_head *h) {
    char step[32];
    h->n_remarks = 0;
    if (h->grad_lost_step >= 0)
        snprintf(h->remark[h->n_remarks++], sizeof h->remark[0],
                 "The gradient norm has not been finite since step %s, so no norm is shown.",
                 bt_metric_format(step, sizeof step, (double)(h->grad_lost_step + 1),
                                  BT_UNIT_COUNT));
    if (h->measured_load > BT_MEASURED_BUSY)
        snprintf(h->remark[h->n_remarks++], sizeof h->remark[0],
                 "The peak FLOP rate and the links were measured while other programs had %.2g "
                 "runnable tasks per processor: shares of them (MFU, of the link) are too high.",
                 h->measured_load);
}

bt_code bt_view_load_remarks(bt_view *v, bt_err *err) {
    fill_remarks(&v->head);
    return bt_view_memorising(v, err);
}

void bt_view_remarks_json(const bt_view_head *h, bt_json *j) {
    bt_json_array(j, "remarks");
    for (int i = 0; i < h->n_remarks; i++) bt_json_str(j, NULL, h->remark[i]);
    bt_json_end(j, ']');
}
