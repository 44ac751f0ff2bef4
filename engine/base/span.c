/* span.c - the stack, and what each phase was charged. */
#include "engine/base/span.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "engine/base/clock.h"

enum { DEPTH = 16 };

static struct {
    int open[DEPTH + 1]; /* open[0] is OTHER */
    int top;
    int excluded;     /* open spans that exclude */
    int64_t since_ns; /* when the innermost was last charged */
    int64_t charged[BT_SPANS];
} spans = {.open = {BT_MR_OTHER}};

static int innermost(void) { return spans.excluded > 0 ? BT_SPAN_EXCLUDED : spans.open[spans.top]; }

static void charge(void) {
    int64_t now = bt_now_ns();
    spans.charged[innermost()] += now - spans.since_ns;
    spans.since_ns = now;
}

void bt_span_reset(void) {
    memset(&spans, 0, sizeof spans);
    spans.open[0] = BT_MR_OTHER;
    spans.since_ns = bt_now_ns();
}

void bt_span_begin(int phase) {
    assert(spans.top < DEPTH && phase >= 0 && phase < BT_SPANS);
    charge();
    spans.open[++spans.top] = phase;
    spans.excluded += phase == BT_SPAN_EXCLUDED;
}

void bt_span_end(void) {
    assert(spans.top > 0);
    charge();
    spans.excluded -= spans.open[spans.top--] == BT_SPAN_EXCLUDED;
}

void bt_span_transfer(int to, int64_t ns) {
    if (spans.excluded > 0) return;
    spans.charged[innermost()] -= ns;
    spans.charged[to] += ns;
}

int64_t bt_span_ns(int phase) {
    charge();
    return spans.charged[phase];
}

void bt_span_cut(int64_t ns[BT_SPANS]) {
    charge();
    memcpy(ns, spans.charged, sizeof spans.charged);
    memset(spans.charged, 0, sizeof spans.charged);
}
