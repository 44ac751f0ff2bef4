/* run_control.c - the request box and the wait during a pause. */
#include "engine/train/run_control.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"

enum { PAUSE_POLL_NS = 20000000 };

double bt_control_lr_factor(const bt_control *c) {
    double factor;
    memcpy(&factor, &c->lr_bits, sizeof factor);
    return factor;
}

/* Bits of positive doubles have the order of their values. Only rank 0 sets a factor, so the maximum over ranks is
 * its. */
bt_control bt_control_take(bt_request_box *box) {
    bt_control c = {0, 0};
    if (!box) return c;
    c.verbs = atomic_exchange(&box->bits, 0);
    if (!(c.verbs & BT_REQ_LR)) return c;
    c.lr_bits = (int64_t)atomic_load(&box->lr_factor_bits);
    double factor = bt_control_lr_factor(&c);
    if (factor > 0 && factor < 1e6) return c;
    c.verbs &= ~(int64_t)BT_REQ_LR;
    c.lr_bits = 0;
    return c;
}

static bool post_text_request(bt_request_box *box, _Atomic(char *) *slot, uint32_t bit,
                              const char *text) {
    char *copy = strdup(text);
    if (!copy) return false;
    free(atomic_exchange(slot, copy));
    atomic_fetch_or(&box->bits, bit);
    return true;
}

bool bt_control_request_sample(bt_request_box *box, const char *prompt) {
    return post_text_request(box, &box->prompt, BT_REQ_SAMPLE, prompt);
}

bool bt_control_request_mixture(bt_request_box *box, const char *weights) {
    return post_text_request(box, &box->mixture, BT_REQ_MIXTURE, weights);
}

char *bt_control_take_prompt(bt_request_box *box) {
    return box ? atomic_exchange(&box->prompt, NULL) : NULL;
}

char *bt_control_take_mixture(bt_request_box *box) {
    return box ? atomic_exchange(&box->mixture, NULL) : NULL;
}

/* A blocking broadcast would occupy every core during the whole pause. */
bt_code bt_control_wait(bt_comm *world, bt_request_box *box, const bt_control_idle *idle,
                        bt_control *out, bt_err *err) {
    int64_t asked[2] = {0, 0};
    bt_request r;
    while (bt_comm_rank(world) == 0) {
        *out = bt_control_take(box);
        asked[0] = out->verbs;
        asked[1] = out->lr_bits;
        if (asked[0] != 0) break;
        idle->work(idle->ctx);
        bt_sleep_ns(PAUSE_POLL_NS);
    }
    BT_TRY(bt_all_reduce_i64_start(world, asked, 2, BT_MAX, &r, err));
    for (bool done = false;;) {
        BT_TRY(bt_request_test(&r, &done, err));
        if (done) break;
        bt_sleep_ns(PAUSE_POLL_NS);
    }
    *out = (bt_control){.verbs = asked[0], .lr_bits = asked[1]};
    return BT_OK;
}
