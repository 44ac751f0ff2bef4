/* simulator_state.c - next pass of a stage and messages of a rank, used by both simulations of a pipeline. */
#include "engine/plan/step_simulator/simulator_state.h"

#include <math.h>

/* While the gradients of a tied embedding are sent to another receiver, a message gets half of the link. */
void bt_simulated_post(bt_simulator_state *s, bt_simulated_rank *r, double *there) {
    const double wire_s = s->w->wire_s, begin = wire_s > 0 ? fmax(r->now, r->link_free) : r->now,
                 beside = fmin(wire_s, fmax(0, r->table_sent - begin));
    if (wire_s > 0) r->link_free = begin + wire_s + beside;
    if (beside > 0) s->tied_at = r->table_sent += beside;
    *there = begin + s->w->flight_s + beside;
}

void bt_simulated_post_table(bt_simulator_state *s, bt_simulated_rank *r) {
    const double before = fmin(s->w->tied_s, fmax(0, r->link_free - r->now));
    s->tied_at = r->table_sent = r->now + s->w->tied_s + before;
}

bool bt_simulated_next(const bt_simulator_state *s, const bt_simulated_rank *r, int stage,
                       bt_simulated_pass *out) {
    const bt_pass_order order = {s->w->pp, stage, s->chunks, s->w->micros};
    if (r->done == bt_pass_count(&order)) return false;
    const bt_pass pass = bt_pass_at(&order, r->done);
    const int at = pass.chunk * s->w->pp + stage;
    *out = (bt_simulated_pass){.pass = pass,
                               .at = at,
                               .work = &s->w->stage[at],
                               .begins = at == 0,
                               .ends = at == s->chunks * s->w->pp - 1,
                               .final = pass.backward && pass.micro == s->w->micros - 1};
    return true;
}
