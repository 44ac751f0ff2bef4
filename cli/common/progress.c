/* progress.c - redraws its line a few times a second and erases it at the end. */
#include "cli/common/progress.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/tables/metric.h"
#include "engine/base/text.h"

enum { BAR = 24, EVERY_MS = 100 };

void bt_progress_begin(bt_progress *p, bool quiet) {
    const char *term = getenv("TERM");
    *p = (bt_progress){.begun_ns = bt_now_ns()};
    p->on = !quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->blocks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    /* Work that ends soon needs no bar. BITRAIN_TEST_PROGRESS shows the bar at once. */
    const int64_t soon_ns = getenv("BITRAIN_TEST_PROGRESS") ? 0 : (int64_t)3 * EVERY_MS * 1000000;
    p->next_ns = p->begun_ns + soon_ns;
}

double bt_progress_seconds(const bt_progress *p) {
    return (double)(bt_now_ns() - p->begun_ns) * 1e-9;
}

void bt_progress_show(bt_progress *p, const char *what, double done, const char *note) {
    if (!p->on || bt_now_ns() < p->next_ns) return;
    p->next_ns = bt_now_ns() + (int64_t)EVERY_MS * 1000000;
    p->drawn = true;
    if (!(done > 0)) done = 0;
    if (done > 1) done = 1;
    double seconds = bt_progress_seconds(p);
    char bar[BAR * 4] = "", eta[32] = "";
    for (int i = 0; i < BAR; i++)
        strcat(bar, i < (int)(done * BAR) ? (p->blocks ? "█" : "#") : (p->blocks ? "░" : "-"));
    if (done > 0.02) bt_duration(eta, sizeof eta, seconds * (1 - done) / done);
    fprintf(stderr, "\r\033[K%s %s %3.0f %%  %s%s%s", what, bar, 100 * done, note,
            *eta ? "  left " : "", eta);
}

void bt_progress_stage(bt_progress *p, const char *what, double done, const char *note) {
    p->next_ns = p->begun_ns;
    bt_progress_show(p, what, done, note);
}

void bt_progress_of(void *ctx, const char *what, double done) {
    bt_progress_show(ctx, what, done, "");
}

void bt_progress_tokenising(void *ctx, double done, uint64_t ids) {
    bt_progress *p = ctx;
    char count[32], note[64], rate[32];
    snprintf(note, sizeof note, "%s tokens, %s",
             bt_metric_format(count, sizeof count, (double)ids, BT_UNIT_COUNT),
             bt_metric_format(rate, sizeof rate, (double)ids / bt_progress_seconds(p),
                              BT_UNIT_PER_S));
    bt_progress_show(p, "tokenising", done, note);
}

void bt_progress_end(bt_progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
