/* layout_why.c - compares the first layout with the fastest of other meshes and with other numbers of chunks. */
#include "engine/plan/layout_why.h"

#include "engine/base/tables/metric.h"

/* A phase is called the cause if it accounts for this share of the difference. */
static const double EXPLAINS = 0.5;
/* A ratio of trial to prediction beyond this exceeds the model's own error. */
static const double PARTED = 0.2;
/* Tasks per processor above which other programs slow ranks down: before a trial (BUSY), and while rates are measured
 * (CROWDED), where the ranks' own tasks are included. */
static const double BUSY = 0.5, CROWDED = 1.5;

static bool has_predicted_time(const bt_layout *l) { return l->fits && l->time.step.step_s > 0; }

/* Returns the fastest layout with the mesh of the first one and `several` chunks per stage, or with one; or NULL. */
static const bt_layout *fastest_with_chunks(const bt_layouts *l, bool several) {
    const bt_layout *found = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const bt_layout *x = &l->at[i];
        if (!has_predicted_time(x) || (x->virtual_stages > 1) != several ||
            !bt_layout_same_mesh(&l->at[0], x))
            continue;
        if (!found || bt_layout_step_s(x) < bt_layout_step_s(found)) found = x;
    }
    return found;
}

/* Difference in time between another layout and the best one. Trials are compared with trials and predictions with
 * predictions, because a busy machine lengthens only a trial. */
typedef struct gap {
    bool tried;
    double s, frac; /* frac: relative to the other layout's step */
} gap;

static gap measure_gap(const bt_layout *best, const bt_layout *other) {
    const bool tried = best->trial_s > 0 && other->trial_s > 0;
    const double of = tried ? other->trial_s : other->time.step.step_s,
                 s = of - (tried ? best->trial_s : best->time.step.step_s);
    return (gap){.tried = tried, .s = s, .frac = s / of};
}

static void explain_chunks(const bt_layouts *l, bt_text *out) {
    char more[32], waits[32], instead[32];
    const bt_layout *best = &l->at[0];
    const bool several = best->virtual_stages > 1;
    const bt_layout *other = best->shape.pp > 1 ? fastest_with_chunks(l, !several) : NULL;
    if (!other) return;
    const gap g = measure_gap(best, other);
    bt_metric_format(more, sizeof more, 1e3 * g.s, BT_UNIT_MS);
    bt_metric_format(waits, sizeof waits, 1e3 * other->time.step.phase_s[BT_PH_WAIT], BT_UNIT_MS);
    bt_metric_format(instead, sizeof instead, 1e3 * best->time.step.phase_s[BT_PH_WAIT],
                     BT_UNIT_MS);
    if (g.s <= 0 && !several) {
        bt_text_printf(out, "; %d chunks of layers a stage gain less than %.0f %%",
                       other->virtual_stages, 100 * BT_LAYOUT_NEAR);
        return;
    }
    if (g.s <= 0) return;
    if (several)
        bt_text_printf(out, "; with one chunk of layers a stage instead of %d it takes %s more%s",
                       best->virtual_stages, more, g.tried ? ", as tried" : "");
    else
        bt_text_printf(out, "; with %d chunks of layers a stage it takes %s more%s",
                       other->virtual_stages, more, g.tried ? ", as tried" : "");
    if (!g.tried) bt_text_printf(out, ", and waits %s, not %s", waits, instead);
}

/* Returns the phase whose additional time in the other layout explains the difference; BT_PHASE_COUNT: none. */
static bt_phase find_cause_phase(const bt_layout *best, const bt_layout *other, double gap_s,
                                 double *more_s) {
    bt_phase cause = BT_PHASE_COUNT;
    *more_s = EXPLAINS * gap_s;
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        const double d = other->time.step.phase_s[p] - best->time.step.phase_s[p];
        if (d >= *more_s) *more_s = d, cause = (bt_phase)p;
    }
    return cause;
}

static void explain_mesh(const bt_layouts *l, bt_text *out) {
    char words[160], ms[32];
    double more_s;
    const bt_layout *best = &l->at[0], *other = NULL;
    for (size_t i = 1; i < l->n && !other; i++)
        if (has_predicted_time(&l->at[i]) && !bt_layout_same_mesh(best, &l->at[i]))
            other = &l->at[i];
    if (!other) {
        bt_text_put(out, "no other mesh is possible");
        return;
    }
    const gap g = measure_gap(best, other);
    const char *source = g.tried ? "as tried" : "as predicted";
    bt_layout_words(other, words, sizeof words);
    if (g.s < 0 && best->trial_s > 0) {
        bt_text_printf(
            out, "the fastest that was tried; %s, which was not, is predicted to take %s less",
            words, bt_metric_format(ms, sizeof ms, -1e3 * g.s, BT_UNIT_MS));
        return;
    }
    if (g.frac < 1e-3) {
        bt_text_printf(out, "as fast as %s (within %.0f %%, %s), and simpler or smaller", words,
                       100 * BT_LAYOUT_NEAR, source);
        return;
    }
    bt_text_printf(out, "%s a step less (%.1f %%, %s) than the next mesh, %s",
                   bt_metric_format(ms, sizeof ms, 1e3 * g.s, BT_UNIT_MS), 100 * g.frac, source,
                   words);
    if (best->trial_s > 0 || other->trial_s > 0) return; /* predictions do not explain a trial */
    const bt_phase cause = find_cause_phase(best, other, g.s, &more_s);
    if (cause < BT_PHASE_COUNT)
        bt_text_printf(out, ", which spends %s more on %s",
                       bt_metric_format(ms, sizeof ms, 1e3 * more_s, BT_UNIT_MS),
                       bt_phases[cause].title);
}

void bt_layout_why_parted(const bt_layout *l, double rates_load, double load, bt_text *out) {
    const double x = l->trial_s / l->time.step.step_s;
    if (!(x > 1 + PARTED) && !(x < 1 - PARTED)) return;
    bt_text_printf(out, x > 1 ? ", %.2g times as long" : ", %.2g of it", x);
    if (x > 1 && load > BUSY)
        bt_text_printf(out, ": other programs used the processors, load %.2g before the trial",
                       load);
    else if (x > 1 && load <= BUSY)
        bt_text_put(out, ": the processors were free before the trial, so the rates may be old "
                         "(--measure)");
    else if (x < 1 && rates_load > CROWDED)
        bt_text_printf(out, ": the rates were measured beside other programs, load %.2g",
                       rates_load);
}

void bt_layout_why(const bt_layouts *l, bt_text *out) {
    explain_mesh(l, out);
    explain_chunks(l, out);
}
