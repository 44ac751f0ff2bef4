/* Ten losses of a tiny run per variant, stored in golden_trainer_losses.txt, detect a change of numerics. After an
 * intended change rewrite the file: build/tests/t.engine.train.golden --write >
 * tests/engine/train/golden_trainer_losses.txt */
#include "tests/tiny_run.h"

#include <math.h>

static const struct variant {
    const char *name;
    const char *words[8];
} variants[] = {
    {"subln-relu2-bitnet158", {NULL}},
    {"pre-silu-bitnet158", {"--set", "model.norm=pre", "--set", "model.act=silu"}},
    {"bitlinear-relu2-bitnet158", {"--set", "model.norm=bitlinear"}},
    {"subln-relu2-bitnet1", {"--set", "model.linear=bitnet1"}},
    {"pre-silu-dense-qknorm-untied",
     {"--set", "model.linear=dense", "--set", "model.qk_norm=true", "--set", "model.tied=false"}},
    {"subln-relu2-bf16", {"--precision", "bf16", "--grad", "float"}},
    {"subln-relu2-int8", {"--precision", "bf16", "--grad", "int8"}},
    {"shares-of-followers", {"--set", "train.share_steps=4"}},
    {"dense-then-ternary", {"--set", "train.dense_steps=4"}},
    {"growing-sequences", {"--set", "train.seq_ramp=0.3,0.6"}},
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0], STEPS = 10 };

static fake_sink sink;

static void losses_of(const struct variant *v, double out[STEPS]) {
    bt_run_cfg cfg;
    tiny_cfg(&cfg, v->words);
    tiny_run(&cfg, &sink, NULL, "");
    assert_int_equal(sink.n_steps, STEPS);
    for (int i = 0; i < STEPS; i++) out[i] = sink.steps[i].v[BT_MS_LOSS];
}

/* After a failure the variant runs again, and all ten losses of both runs are printed, which distinguishes changed
 * numerics from a run that is not deterministic. */
static void print_both_runs(const struct variant *v, const double losses[STEPS],
                            const double want[STEPS], int step) {
    double again[STEPS];
    losses_of(v, again);
    for (int i = 0; i < STEPS; i++)
        print_message("step %d: golden %.9g, this run %.9g, once more %.9g\n", i, want[i],
                      losses[i], again[i]);
    fail_msg("%s, step %d: %.9g, golden %.9g; the same run once more %s", v->name, step,
             losses[step], want[step],
             memcmp(losses, again, sizeof again) == 0 ? "is the same"
                                                      : "DIFFERS: not deterministic");
}

static void ten_losses_of_every_variant(void **state) {
    (void)state;
    char path[1024], name[64];
    snprintf(path, sizeof path, "%s/tests/engine/train/golden_trainer_losses.txt",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".");
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("cannot open '%s' (set BT_SRC)", path);
    for (int k = 0; k < N_VARIANTS; k++) {
        double losses[STEPS], want[STEPS];
        assert_int_equal(fscanf(f, "%63s", name), 1);
        assert_string_equal(name, variants[k].name);
        losses_of(&variants[k], losses);
        for (int i = 0; i < STEPS; i++) assert_int_equal(fscanf(f, "%lf", &want[i]), 1);
        for (int i = 0; i < STEPS; i++) {
            /* Another compiler rounds transcendental functions differently and may change a ternary code, so losses are
             * compared with a tolerance. */
            if (!(fabs(losses[i] - want[i]) <= 1e-4 * want[i]))
                print_both_runs(&variants[k], losses, want, i);
        }
    }
    fclose(f);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
        for (int k = 0; k < N_VARIANTS; k++) {
            double losses[STEPS];
            losses_of(&variants[k], losses);
            printf("%s\n", variants[k].name);
            for (int i = 0; i < STEPS; i++) printf("  %.9g\n", losses[i]);
        }
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_losses_of_every_variant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
