/* send_verbs.c - sends verbs to the ranks, or keeps them until ranks are connected. */
#include "monitor/job/job.h"

bool bt_job_waits_for_ranks(const bt_job *job) {
    return job->restarting || !bt_wire_connected(job->wire);
}

bt_code bt_job_send_verb(bt_job *job, bt_verb verb, double value, bt_err *err) {
    if (!bt_job_waits_for_ranks(job))
        return bt_wire_send_control(job->wire, &(bt_ctl){verb, value, NULL}, err);
    bt_run_state state = job->restarting ? BT_STATE_RESTARTING : BT_STATE_STARTING;
    if (!bt_verb_offered(verb, state))
        return bt_fail(err, BT_BUSY, "no rank can receive '%s' yet (the run is %s)",
                       bt_verbs[verb].word, bt_run_states[state].name);
    job->pending &= ~(uint32_t)(BT_PENDING(PAUSE) | BT_PENDING(RESUME));
    job->pending |= UINT32_C(1) << verb;
    return BT_OK;
}

void bt_job_send_pending(bt_job *job) {
    for (int verb = 0; verb < BT_VERB_COUNT; verb++) {
        bt_ctl c = {(bt_verb)verb, 0, NULL};
        bt_err err = BT_ERR_INIT;
        if (!(job->pending >> verb & 1)) continue;
        if (bt_wire_send_control(job->wire, &c, &err) == BT_OK)
            job->pending &= ~(UINT32_C(1) << verb);
    }
    /* The factor was changed after the checkpoint from which the ranks started. */
    if (job->lr_factor != job->told_factor) {
        bt_ctl c = {BT_VERB_LR, job->lr_factor, NULL};
        bt_err err = BT_ERR_INIT;
        if (bt_wire_send_control(job->wire, &c, &err) != BT_OK)
            bt_job_event(job, BT_EVENT_WARNING, -1, "%s", err.msg);
        else
            job->told_factor = job->lr_factor;
    }
}
