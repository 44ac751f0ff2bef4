/* The chart of a learning-rate range test on the screen Overview: loss over the rate, and the suggested rate. */
#include "played_screens.h"

/* Makes a test with rates from 1e-6 to 1 by equal factors, in which the loss falls around 1e-3. */
static void make_range_test(void) {
    store_sql(
        "UPDATE run_doc SET config = '{\\\"optim.schedule\\\":{\\\"value\\\":\\\"range\\\"}}' "
        "WHERE run = (SELECT id FROM run WHERE name = 'base-1'); "
        "UPDATE step SET lr = 1e-6 * pow(1e6, step / 199.), "
        "loss = 5 - 2 / (1 + exp(-6 * (step / 199. - 0.5) * 3)) "
        "WHERE aid IN (SELECT a.id FROM attempt a JOIN run r ON r.id = a.run "
        "WHERE r.name = 'base-1')");
}

static void the_loss_is_drawn_over_the_rate(void **state) {
    (void)state;
    check("base-1", "~1~", "loss over rate", false, 100, 30); /* an ordinary run */
    make_range_test();
    check("base-1", "~1~", "loss over rate", true, 100, 30);
    check("base-1", "~1~", "suggested 0.00", true, 100, 30);
    check("base-1", "~1~", "use 0.00", true, 100, 30);
    check("base-1", "~1t~", "loss over rate", false, 100, 30); /* by step */
    check("base-1", "~1tt~", "loss over rate", true, 100, 30);
    char *frame = play_on("base-1", "~1e~", 100, 30), *chart = strstr(frame, "loss over rate");
    assert_non_null(chart); /* the time of day is above it */
    bt_golden("lr_chart_100x30", chart);
    free(frame);
    check("base-1", "~1~", "loss over rate", true, 80, 24);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_loss_is_drawn_over_the_rate)};
    return cmocka_run_group_tests(tests, make_store, drop_store);
}
