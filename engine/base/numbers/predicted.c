/* predicted.c - reads and writes pairs of a key and milliseconds. */
#include "engine/base/numbers/predicted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *bt_predicted_key(int part) {
    if (part == 0) return "step_ms";
    if (part == 1) return "tried_ms";
    return bt_rank_metrics[bt_phases[part - 2].metric].key;
}

double *bt_predicted_part(bt_predicted *p, int part) {
    if (part == 0) return &p->step_ms;
    if (part == 1) return &p->tried_ms;
    return &p->phase_ms[part - 2];
}

static void clear_predicted(bt_predicted *p) {
    for (int i = 0; i < BT_PREDICTED_PARTS; i++) *bt_predicted_part(p, i) = NAN;
}

bt_predicted bt_predicted_of(double step_s, const double *phase_s, double trial_s) {
    bt_predicted p;
    p.step_ms = 1e3 * step_s;
    p.tried_ms = trial_s > 0 ? 1e3 * trial_s : NAN;
    for (int i = 0; i < BT_PHASE_COUNT; i++) p.phase_ms[i] = 1e3 * phase_s[i];
    return p;
}

void bt_predicted_put(const bt_predicted *p, bt_text *out) {
    bt_predicted all = *p;
    const char *between = "";
    for (int i = 0; i < BT_PREDICTED_PARTS; i++) {
        const double ms = *bt_predicted_part(&all, i);
        if (!isfinite(ms)) continue;
        bt_text_printf(out, "%s%s=%.6g", between, bt_predicted_key(i), ms);
        between = " ";
    }
}

static bool read_predicted_pair(const char **text, bt_predicted *out) {
    for (int i = 0; i < BT_PREDICTED_PARTS; i++) {
        const size_t n = strlen(bt_predicted_key(i));
        char *end;
        if (strncmp(*text, bt_predicted_key(i), n) != 0 || (*text)[n] != '=') continue;
        const double ms = strtod(*text + n + 1, &end);
        if (end == *text + n + 1 || !isfinite(ms) || ms < 0) return false;
        *bt_predicted_part(out, i) = ms;
        *text = end;
        return true;
    }
    return false;
}

bool bt_predicted_read(const char *text, bt_predicted *out) {
    bool read = true;
    clear_predicted(out);
    while (read && *text) {
        read = read_predicted_pair(&text, out) && (*text == ' ' || *text == '\0');
        while (*text == ' ') text++;
    }
    if (!read) clear_predicted(out);
    return read;
}
