/* plan_bill.c - computes energy and cost from the duration of a run. */
#include "cli/plan/plan_bill.h"

#include <math.h>

#include "engine/base/tables/metric.h"

/* Joules of all machines; NaN: unknown. */
static double bill_joules(const bt_bill *b) {
    return b->host_watts > 0 ? b->host_watts * b->hosts * b->seconds : NAN;
}

/* Cost in the currency of host_price; NaN: no price was given. */
static double bill_cost(const bt_bill *b) {
    return b->host_price > 0 ? b->host_price * b->hosts * b->seconds / 3600 : NAN;
}

static double token_joules(const bt_bill *b) {
    return b->tokens > 0 ? bill_joules(b) / b->tokens : NAN;
}

void bt_bill_put_text(const bt_bill *b, bt_text *out) {
    const double joules = bill_joules(b), cost = bill_cost(b);
    char token[32], watts[32];
    if (isnan(joules))
        bt_text_put(out, "energy     not known: no counter of the processors can be read here "
                         "(--watts)\n");
    else
        bt_text_printf(out, "energy     %.3g %s, %s a token (%s W a machine, %s)\n",
                       joules < 3.6e6 ? joules / 3600 : joules / 3.6e6,
                       joules < 3.6e6 ? "Wh" : "kWh",
                       bt_metric_format(token, sizeof token, token_joules(b), BT_UNIT_J),
                       bt_metric_format(watts, sizeof watts, b->host_watts, BT_UNIT_NONE),
                       b->given ? "as given" : "counted by its processors");
    if (!isnan(cost))
        bt_text_printf(out, "cost       %.2f (%.4g for each machine's hour, %.4g machine%s)\n",
                       cost, b->host_price, b->hosts, b->hosts == 1 ? "" : "s");
}

void bt_bill_put_json(const bt_bill *b, bt_json *j) {
    bt_json_num(j, "host_watts", b->host_watts > 0 ? b->host_watts : NAN);
    bt_json_num(j, "energy_j", bill_joules(b));
    bt_json_num(j, "token_j", token_joules(b));
    bt_json_num(j, "cost", bill_cost(b));
}
