/* spark.c - keeps a curve of a few points for a run of any length. */
#include "store/write/spark.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPARK = BT_SPARK_POINTS };

void bt_spark_add(bt_spark *s, int64_t step, double loss) {
    if (!isfinite(loss)) return;
    while (step / s->stride >= SPARK) {
        /* Of two neighbours the later one remains, unless it is missing. */
        for (int i = 0; i < SPARK / 2; i++) {
            double even = s->at[2 * i], odd = 2 * i + 1 < s->n ? s->at[2 * i + 1] : NAN;
            s->at[i] = isnan(odd) ? even : odd;
        }
        s->n = (s->n + 1) / 2;
        s->stride *= 2;
    }
    int at = (int)(step / s->stride);
    for (; s->n < at; s->n++) s->at[s->n] = NAN;
    s->at[at] = loss;
    /* A repeated step truncates the curve to its position. */
    s->n = at + 1;
}

void bt_spark_text(const bt_spark *s, char *out, size_t size) {
    size_t n = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < s->n && n + 16 < size; i++) {
        if (isnan(s->at[i]))
            n += (size_t)snprintf(out + n, size - n, "%snull", i ? "," : "");
        else
            n += (size_t)snprintf(out + n, size - n, "%s%.4g", i ? "," : "", s->at[i]);
    }
    snprintf(out + n, size - n, "]");
}

void bt_spark_parse(bt_spark *s, const char *text, int64_t last_step) {
    s->stride = 1;
    while (last_step / s->stride >= SPARK) s->stride *= 2;
    s->n = 0;
    if (!text || *text != '[') return;
    for (const char *p = text + 1; *p && *p != ']' && s->n < SPARK;) {
        char *end;
        double v = strtod(p, &end);
        if (end == p) { /* null */
            v = NAN;
            end += strcspn(end, ",]");
        }
        s->at[s->n++] = v;
        p = *end == ',' ? end + 1 : end;
    }
}
