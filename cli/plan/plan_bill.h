/* plan_bill.h - energy and cost of a planned run: its duration times the power and the price of whole machines. */
#ifndef BT_CLI_PLAN_PLAN_BILL_H
#define BT_CLI_PLAN_PLAN_BILL_H

#include "engine/base/text.h"

typedef struct bt_bill {
    double host_watts; /* given, or measured with the rates; 0: unknown */
    bool given;        /* true: given; false: measured */
    double host_price; /* per hour, in the user's currency; 0: not given */
    double hosts, seconds, tokens;
} bt_bill;

/* Appends the line "energy ..." (or why it is unknown) and, if a price was given, "cost ...". */
void bt_bill_put_text(const bt_bill *b, bt_text *out);
/* Writes the fields host_watts, energy_j, token_j and cost (null: unknown). */
void bt_bill_put_json(const bt_bill *b, bt_json *j);

#endif
