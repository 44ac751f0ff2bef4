// ctest: timeout=300 labels=golden
/* The first ten losses of the preset nano on synth:chain equal PyTorch's with the same initial weights
 * (golden_losses.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/golden.h"

static void check_ten_losses(bt_norm_kind norm, int B, const double *want, double tolerance,
                             float lr) {
    bt_model_setup s = {.cfg = bt_preset_find("nano")->model,
                        .B = B,
                        .prec = BT_PREC_FP32,
                        .train = true,
                        .n_threads = 2};
    s.cfg.norm = norm;
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_optim_span *spans;
    bt_optim *o = model_optim(m, &spans);
    bt_model_init_weights(m, 1);
    bt_model_quantise(m);
    chain data = {.seed = 1, .V = 256};
    int32_t inputs[16 * 256], targets[16 * 256];
    for (int step = 0; step < 10; step++) {
        double got = train_step(m, o, &data, inputs, targets, B, 16 / B, step + 1, lr);
        print_message("step %d: %.6f, PyTorch %.6f, difference %+.1e\n", step, got, want[step],
                      got - want[step]);
        if (!(fabs(got - want[step]) < tolerance))
            fail_msg("step %d: loss %.6f, PyTorch %.6f", step, got, want[step]);
    }
    bt_optim_destroy(o);
    free(spans);
    bt_model_destroy(m);
}

static void check_golden_losses(const char *name, double lr, int B) {
    FILE *f = golden_open("golden_losses.txt");
    assert_non_null(f);
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        char word[32];
        int at = 0;
        double rate = 0, tolerance = 0, want[10];
        if (line[0] == '#' || sscanf(line, "%31s %lf %lf%n", word, &rate, &tolerance, &at) != 3 ||
            strcmp(word, name) != 0 || rate != lr)
            continue;
        char *p = line + at;
        for (int i = 0; i < 10; i++) want[i] = strtod(p, &p);
        found = true;
        check_ten_losses(strcmp(name, "pre") == 0 ? BT_NORM_PRE : BT_NORM_SUBLN, B, want, tolerance,
                         (float)lr);
    }
    (void)fclose(f);
    assert_true(found);
}

/* At this rate ten losses can agree to 1e-4: see make_golden.py. */
static void nano_pre_small_rate(void **state) {
    (void)state;
    check_golden_losses("pre", 5e-5, 16);
}

static void nano_pre(void **state) {
    (void)state;
    check_golden_losses("pre", 2e-3, 16);
}

static void nano_subln_accumulated(void **state) {
    (void)state;
    check_golden_losses("subln", 2e-3, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nano_pre_small_rate),
                                       cmocka_unit_test(nano_pre),
                                       cmocka_unit_test(nano_subln_accumulated)};
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}
