/* prediction_check.c - compares the median step time with the prediction and derives the likely cause of a
 * difference. */
#include "engine/train/parts/prediction/prediction_check.h"

#include <math.h>
#include <stdio.h>

/* CROWDED: tasks per processor beyond which other programs slow down the ranks */
static const double CROWDED = 1.2, MUCH = 0.25;

bt_phase bt_prediction_phase(const bt_prediction_seen *s, const bt_predicted *p) {
    bt_phase found = BT_PHASE_COUNT;
    double most = 0;
    for (int i = 0; i < BT_PHASE_COUNT; i++) {
        const double more = s->phase_ms[i] - p->phase_ms[i], d = s->ratio < 1 ? -more : more;
        if (d > most) most = d, found = (bt_phase)i; /* false for NaN */
    }
    return found;
}

static const char *slow_phase(bt_phase phase) {
    switch (phase) {
    case BT_PH_FWD:
    case BT_PH_BWD:
    case BT_PH_OPTIM:
        return "computing is slower than when its rates were measured ('bitrain plan --measure' "
               "measures again)";
    case BT_PH_COMM_EXPOSED: return "messages take longer than the measured links need";
    case BT_PH_WAIT: return "ranks wait for a slower one, beyond what was predicted";
    case BT_PH_DATA: return "batches are read too slowly";
    case BT_PH_CKPT: return "checkpoints take longer than the measured disk needs";
    default: return "time is spent outside of the predicted phases";
    }
}

/* Returns the likely phase when the phases were not predicted. */
static bt_phase likely_phase(const bt_prediction_seen *s) {
    if (s->phase_ms[BT_PH_WAIT] > MUCH * s->step_ms) return BT_PH_WAIT;
    if (s->phase_ms[BT_PH_COMM_EXPOSED] > MUCH * s->step_ms) return BT_PH_COMM_EXPOSED;
    return BT_PH_FWD;
}

const char *bt_prediction_cause(const bt_prediction_seen *s, const bt_predicted *p, bt_phase phase,
                                char *buf, size_t size) {
    char most[96] = "";
    if (phase < BT_PHASE_COUNT)
        snprintf(most, sizeof most, "; most of it in %s: %.3g ms, %.3g predicted",
                 bt_phases[phase].title, s->phase_ms[phase], p->phase_ms[phase]);
    if (s->ratio < 1)
        snprintf(buf, size, "the machine is quieter than when its rates were measured%s", most);
    else if (s->load > CROWDED)
        snprintf(buf, size, "the machine is busy with other work, load %.2g%s", s->load, most);
    else
        snprintf(buf, size, "%s%s", slow_phase(phase < BT_PHASE_COUNT ? phase : likely_phase(s)),
                 most);
    return buf;
}

static bt_prediction_seen measured_medians(const bt_telemetry *t) {
    const double ms = bt_telemetry_median(t, BT_MR_STEP_TIME);
    bt_prediction_seen s = {
        .ratio = ms / t->predicted_ms, .step_ms = ms, .load = bt_telemetry_median(t, BT_MR_LOAD)};
    for (int i = 0; i < BT_PHASE_COUNT; i++)
        s.phase_ms[i] = bt_telemetry_median(t, bt_phases[i].metric);
    return s;
}

static void put_body(const bt_prediction_check *c, const bt_telemetry *t,
                     const bt_prediction_seen *s, bt_phase phase, bt_text *out) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_num(&j, "predicted_ms", t->predicted_ms);
    bt_json_num(&j, "tried_ms", c->predicted.tried_ms);
    bt_json_num(&j, "step_ms", s->step_ms);
    bt_json_num(&j, "machine_load", s->load);
    if (phase < BT_PHASE_COUNT) {
        bt_json_str(&j, "phase", bt_rank_metrics[bt_phases[phase].metric].key);
        bt_json_num(&j, "phase_ms", s->phase_ms[phase]);
        bt_json_num(&j, "phase_predicted_ms", c->predicted.phase_ms[phase]);
    }
    bt_json_end(&j, '}');
}

void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *t, int64_t step) {
    char cause[240];
    if (++c->steps % BT_PREDICTION_EVERY != 0) return;
    const bt_prediction_seen s = measured_medians(t);
    if (!isfinite(s.ratio)) return;
    const bool parted = fabs(s.ratio - 1) > BT_PREDICTION_PART;
    if (parted == c->deviates) return;
    c->deviates = parted;
    /* a trial is more accurate than the model */
    const char *source = isfinite(c->predicted.tried_ms) ? "of the trial before the run"
                                                         : "predicted";
    const bt_phase phase = bt_prediction_phase(&s, &c->predicted);
    bt_text body;
    bt_text_init(&body);
    put_body(c, t, &s, phase, &body);
    if (parted)
        bt_telemetry_event(t, BT_EVENT_PREDICTION, step, bt_text_str(&body),
                           "steps take %.3g ms, %.0f %% %s than the %.3g ms %s: %s", s.step_ms,
                           100 * fabs(s.ratio - 1), s.ratio > 1 ? "longer" : "less",
                           t->predicted_ms, source,
                           bt_prediction_cause(&s, &c->predicted, phase, cause, sizeof cause));
    else
        bt_telemetry_event(t, BT_EVENT_LAYOUT, step, bt_text_str(&body),
                           "steps take %.3g ms, as expected (the %.3g ms %s)", s.step_ms,
                           t->predicted_ms, source);
    bt_text_release(&body);
}
