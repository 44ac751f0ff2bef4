/* fold.c - parses data.fold. */
#include "engine/data/shards/fold.h"

#include <math.h>
#include <stdio.h>

bt_code bt_fold_parse(bt_fold *out, const char *text, double val_frac, bt_err *err) {
    int end = 0;
    *out = (bt_fold){0, 0};
    if (!text[0]) return BT_OK;
    if (sscanf(text, "%9d/%9d%n", &out->i, &out->of, &end) != 2 || text[end] || out->i < 1 ||
        out->i > out->of)
        return bt_fail(err, BT_ARG,
                       "data.fold=%.40s is not of the form I/K, such as 2/5: the held-out part "
                       "ends with part I of K equal parts",
                       text);
    if (out->of * val_frac <= 1 + 1e-9) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "data.fold=%.40s: %d held-out parts of data.val_frac=%g are more than the whole "
                   "text (set data.val_frac=%.3g or less)",
                   text, out->of, val_frac, floor(1000. / out->of) / 1000);
}

bt_held_out bt_fold_held_out(const bt_fold *f, double val_frac) {
    const double end = f->of ? (double)f->i / f->of : 1;
    return (bt_held_out){end > val_frac ? end - val_frac : 0, end};
}
