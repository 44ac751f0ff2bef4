/* testing.c - the hooks of testing.h, read from the environment. */
#include "engine/base/testing/testing.h"

#include <stdlib.h>

bool bt_testing_tp_messages;

double bt_testing_slowness(int rank) {
    const char *text = getenv("BITRAIN_TEST_SLOW");
    char *end;
    if (!text || strtol(text, &end, 10) != rank || *end != ':') return 1;
    double factor = strtod(end + 1, NULL);
    return factor > 1 && factor < 1000 ? factor : 1;
}
