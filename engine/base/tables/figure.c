/* figure.c - descriptors of the rows of figures.def. */
#include "engine/base/tables/figure.h"

#include "engine/base/tables/derived.h"

#define BT_FIGURE(id, key, label, brief, span, unit, help) \
    {key, label, brief, BT_SPAN_##span, BT_UNIT_##unit, help},
const bt_figure_row bt_figures[BT_FIGURES] = {
#include "engine/base/tables/figures.def"
};
#undef BT_FIGURE

#define TEXT_OF(n) #n
#define NUMBER_TEXT(n) TEXT_OF(n)

const char *bt_figure_span_name(bt_figure_span span) {
    static const char *const names[] = {"newest step", "newest evaluation",
                                        "average of about 10 steps",
                                        ("newest steps, at most " NUMBER_TEXT(BT_RECENT_STEPS)),
                                        "whole run"};
    return (unsigned)span <= BT_SPAN_RUN ? names[span] : "";
}
