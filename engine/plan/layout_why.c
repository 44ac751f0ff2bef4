/* layout_why.c - the first layout beside the best of other meshes, and beside itself with other chunks. */
#include "engine/plan/layout_why.h"

#include "engine/base/tables/metric.h"

static bool usable(const bt_layout *l) { return l->fits && l->time.step.step_s > 0; }

/* the fastest of the first layout's mesh that has several chunks of layers a stage, or one; NULL: there is none */
static const bt_layout *with_chunks(const bt_layouts *l, bool several) {
    const bt_layout *found = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const bt_layout *x = &l->at[i];
        if (!usable(x) || (x->virtual_stages > 1) != several || !bt_layout_same_mesh(&l->at[0], x))
            continue;
        if (!found || bt_layout_step_s(x) < bt_layout_step_s(found)) found = x;
    }
    return found;
}

static void why_virtual(const bt_layouts *l, bt_text *out) {
    char more[32], waits[32], instead[32];
    const bt_layout *best = &l->at[0];
    const bool several = best->virtual_stages > 1;
    const bt_layout *other = best->shape.pp > 1 ? with_chunks(l, !several) : NULL;
    if (!other) return;
    bt_metric_format(more, sizeof more, 1e3 * (bt_layout_step_s(other) - bt_layout_step_s(best)),
                     BT_UNIT_MS);
    bt_metric_format(waits, sizeof waits, 1e3 * other->time.step.phase_s[BT_PH_WAIT], BT_UNIT_MS);
    bt_metric_format(instead, sizeof instead, 1e3 * best->time.step.phase_s[BT_PH_WAIT],
                     BT_UNIT_MS);
    if (several)
        bt_text_printf(out,
                       "; with one chunk of layers a stage instead of %d it takes %s more, and "
                       "waits %s, not %s",
                       best->virtual_stages, more, waits, instead);
    else if (bt_layout_step_s(other) > bt_layout_step_s(best))
        bt_text_printf(out,
                       "; with %d chunks of layers a stage it takes %s more, and waits %s, not %s",
                       other->virtual_stages, more, waits, instead);
    else
        bt_text_printf(out, "; %d chunks of layers a stage gain less than %.0f %%",
                       other->virtual_stages, 100 * BT_LAYOUT_NEAR);
}

static void why_mesh(const bt_layouts *l, bt_text *out) {
    char words[160], ms[32];
    const bt_layout *best = &l->at[0], *other = NULL;
    for (size_t i = 1; i < l->n && !other; i++)
        if (usable(&l->at[i]) && !bt_layout_same_mesh(best, &l->at[i])) other = &l->at[i];
    if (!other) {
        bt_text_put(out, "no other mesh is possible");
        return;
    }
    double gap = bt_layout_step_s(other) - bt_layout_step_s(best), most = 0;
    int phase = BT_PH_OTHER;
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        double d = other->time.step.phase_s[p] - best->time.step.phase_s[p];
        if (d > most) most = d, phase = p;
    }
    bt_layout_words(other, words, sizeof words);
    if (gap < 1e-3 * bt_layout_step_s(best)) {
        bt_text_printf(out, "as fast as %s (within %.0f %%), and simpler or smaller", words,
                       100 * BT_LAYOUT_NEAR);
        return;
    }
    bt_text_printf(out, "%s a step less (%.1f %%) than the next mesh, %s",
                   bt_metric_format(ms, sizeof ms, 1e3 * gap, BT_UNIT_MS),
                   100 * gap / bt_layout_step_s(other), words);
    if (most > 0)
        bt_text_printf(out, ", which spends %s more on %s",
                       bt_metric_format(ms, sizeof ms, 1e3 * most, BT_UNIT_MS),
                       bt_phases[phase].title);
}

void bt_layout_why(const bt_layouts *l, bt_text *out) {
    why_mesh(l, out);
    why_virtual(l, out);
}
