/* test_average.c - the average of the weights (optim.average) equals its formula, and a checkpoint contains the weights
 * that were validated. */
#include "tests/tiny_run.h"

#include <math.h>
#include <unistd.h>

#include "engine/train/trainer_impl.h"

static fake_sink first, second;

static struct {
    bt_trainer *t;
    float want[1 << 17];
    size_t n;
    int updates;
} seen;

static void average_step(void *arg, const bt_step_record *r) {
    const float *w = bt_model_weights(seen.t->model);
    const double n = ++seen.updates, keep = fmin(exp2(-1 / 3.0), (1 + n) / (10 + n));
    const float share = (float)(1 - keep), rest = 1 - share;
    (void)arg, (void)r;
    for (size_t i = 0; i < seen.n; i++) seen.want[i] = rest * seen.want[i] + share * w[i];
}

static void the_average_has_the_configured_half_life(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_train_result result;
    bt_err err = BT_ERR_INIT;
    TINY(&cfg, "--steps", "30", "--set", "optim.average=3", "--set", "data.val_frac=0.1", "--set",
         "train.eval_every=7", "--set", "train.eval_tokens=64");
    seen.t = tiny_create(&cfg, &first, NULL, "");
    seen.n = bt_model_params(seen.t->model)->total;
    assert_true(seen.n <= sizeof seen.want / sizeof *seen.want);
    memcpy(seen.want, bt_model_weights(seen.t->model), seen.n * sizeof *seen.want);
    first.on_step = average_step;
    assert_int_equal(bt_trainer_run(seen.t, &result, &err), BT_OK);
    assert_int_equal(seen.updates, 30);
    for (size_t i = 0; i < seen.t->update.n_pieces; i++) {
        const bt_range piece = seen.t->update.pieces[i];
        assert_memory_equal(seen.t->update.for_use[i], seen.want + piece.begin,
                            (piece.end - piece.begin) * sizeof(float));
    }
    assert_memory_not_equal(seen.want, bt_model_weights(seen.t->model), seen.n * sizeof(float));
    bt_trainer_destroy(seen.t);
    bt_threads_release();
}

/* A run that begins with the weights of a checkpoint and does not change them has the recorded validation loss. */
static void a_checkpoint_contains_the_validated_weights(void **state) {
    (void)state;
    bt_run_cfg cfg;
    char dir[] = "/tmp/bt-average-XXXXXX", command[64];
    double loss[3];
    first.on_step = NULL;
    assert_non_null(mkdtemp(dir));
    for (int k = 0; k < 3; k++) { /* no average; an average; the checkpoint of that run */
        TINY(&cfg, "--steps", k < 2 ? "8" : "1", "--lr", k < 2 ? "3e-3" : "1e-30", "--set",
             k == 1 ? "optim.average=4" : "optim.average=0", "--set", "optim.weight_decay=0",
             "--set", "data.val_frac=0.1", "--set", "train.eval_every=8");
        snprintf(cfg.run.out, sizeof cfg.run.out, "%s", k == 1 ? dir : "");
        cfg.ckpt.final = k == 1;
        if (k == 2) snprintf(cfg.model.init_from, sizeof cfg.model.init_from, "%s", dir);
        fake_sink *f = k < 2 ? &first : &second;
        (void)tiny_run(&cfg, f, NULL, "");
        loss[k] = f->steps[f->n_steps - 1].v[BT_MS_VAL_LOSS];
    }
    assert_true(loss[0] != loss[1]);
    assert_true(loss[1] == loss[2]);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_average_has_the_configured_half_life),
        cmocka_unit_test(a_checkpoint_contains_the_validated_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
