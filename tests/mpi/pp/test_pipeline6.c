// ctest: ranks=6 timeout=200
/* A pipeline of three stages with two replicas, one of which has more micro-batches than the mean: at most as many
 * micro-batches are in flight as there are stages. */
#include "tests/mpi/tp.h"

static const tp_shape shapes[] = {{"four layers", {"--set", "model.layers=4", "--lr", "1e-4"}}};
static const tp_layout layouts[] = {
    {"pp 3 x 2 replicas, shares 3 and 1",
     0,
     {"--pp", "3", "--micro-batch", "4", "--balance", "3,1"}},
    {"pp 3 x 2 shards, zero 2, shares 1 and 7",
     0,
     {"--pp", "3", "--micro-batch", "2", "--balance", "1,7", "--zero", "2"}},
    {"pp 3 x tp 2", 0, {"--pp", "3", "--tp", "2", "--micro-batch", "4"}},
};

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) tp_compare(shapes, &layouts[k]);
}

int main(void) {
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 6)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_records_as_one_rank)};
    return tp_end(cmocka_run_group_tests(tests, NULL, NULL));
}
