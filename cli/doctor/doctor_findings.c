/* doctor_findings.c - appends findings to the report of `bitrain doctor`. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/doctor/doctor.h"

bt_finding *bt_doctor_report(bt_doctor *d, bt_finding_state state, const char *topic,
                             const char *fmt, ...) {
    const size_t room = sizeof d->findings / sizeof d->findings[0];
    bt_finding *f = &d->findings[d->n < room ? d->n++ : room - 1];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    f->state = state;
    f->topic = topic;
    f->remedy[0] = '\0';
    if (state > d->worst) d->worst = state;
    return f;
}

void bt_finding_remedy(bt_finding *f, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->remedy, sizeof f->remedy, fmt, ap);
    va_end(ap);
}
