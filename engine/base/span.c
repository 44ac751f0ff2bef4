/* span.c - the stack of phases, and the time charged to each. */
#include "engine/base/span.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "engine/base/clock.h"

enum { DEPTH = 16 };

static struct {
    int open[DEPTH + 1]; /* phases from the outermost to the innermost; open[0] is OTHER */
    int top;
    int excluded;     /* number of open spans with BT_SPAN_EXCLUDED */
    int64_t since_ns; /* the innermost phase has been charged up to this time */
    int64_t charged[BT_SPANS];
    bool processor; /* processor time is charged as well */
    int64_t processor_since_ns;
    int64_t processor_charged[BT_SPANS]; /* processor time since the last cut */
    int64_t processor_before[BT_SPANS];  /* processor time before the last cut */
} spans = {.open = {BT_MR_OTHER}};

static int innermost_phase(void) {
    return spans.excluded > 0 ? BT_SPAN_EXCLUDED : spans.open[spans.top];
}

static void add_elapsed_time(void) {
    int64_t now = bt_now_ns();
    spans.charged[innermost_phase()] += now - spans.since_ns;
    spans.since_ns = now;
    if (!spans.processor) return;
    now = bt_thread_cpu_ns();
    spans.processor_charged[innermost_phase()] += now - spans.processor_since_ns;
    spans.processor_since_ns = now;
}

void bt_span_reset(void) {
    memset(&spans, 0, sizeof spans);
    spans.open[0] = BT_MR_OTHER;
    spans.since_ns = bt_now_ns();
}

void bt_span_begin(int phase) {
    assert(spans.top < DEPTH && phase >= 0 && phase < BT_SPANS);
    add_elapsed_time();
    spans.open[++spans.top] = phase;
    spans.excluded += phase == BT_SPAN_EXCLUDED;
}

void bt_span_end(void) {
    assert(spans.top > 0);
    add_elapsed_time();
    spans.excluded -= spans.open[spans.top--] == BT_SPAN_EXCLUDED;
}

bool bt_span_excluded(void) { return spans.excluded > 0; }

void bt_span_transfer(int to, int64_t ns) {
    if (spans.excluded > 0) return;
    add_elapsed_time();
    int from = innermost_phase();
    double share = spans.charged[from] > 0 ? (double)ns / (double)spans.charged[from] : 0;
    spans.charged[from] -= ns;
    spans.charged[to] += ns;
    if (!spans.processor) return;
    int64_t moved = (int64_t)((share < 1 ? share : 1) * (double)spans.processor_charged[from]);
    spans.processor_charged[from] -= moved;
    spans.processor_charged[to] += moved;
}

int64_t bt_span_ns(int phase) {
    add_elapsed_time();
    return spans.charged[phase];
}

void bt_span_cut(int64_t ns[BT_SPANS]) {
    add_elapsed_time();
    memcpy(ns, spans.charged, sizeof spans.charged);
    memset(spans.charged, 0, sizeof spans.charged);
    for (int i = 0; i < BT_SPANS; i++) spans.processor_before[i] += spans.processor_charged[i];
    memset(spans.processor_charged, 0, sizeof spans.processor_charged);
}

void bt_span_processor(bool on) {
    add_elapsed_time();
    memset(spans.processor_charged, 0, sizeof spans.processor_charged);
    memset(spans.processor_before, 0, sizeof spans.processor_before);
    spans.processor = on;
    spans.processor_since_ns = bt_thread_cpu_ns();
}

int64_t bt_span_processor_ns(int phase) {
    add_elapsed_time();
    return spans.processor_before[phase] + spans.processor_charged[phase];
}
