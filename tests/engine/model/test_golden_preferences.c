// ctest: timeout=120 labels=golden optimised
/* Twenty losses of small dense models that learn from pairs of answers equal PyTorch's in float64, with the same
 * initial weights and the same pairs (golden_preferences.txt): DPO, ORPO, SimPO and rewards, adapters and all weights;
 * KTO with and without its reference point, of one answer of each pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/golden.h"

/* The values are those of make_golden.py. */
enum { T = 64, V = 48, RANK = 4, PROMPT = 5, ROWS = 4, BATCHES = 2, STEPS = 20, SEED = 3 };
#define SCALE 2.0
#define RATE 2e-3f
#define TOLERANCE 1e-5

typedef struct pair_batch {
    int32_t inputs[ROWS * T], targets[ROWS * T], positions[ROWS * T];
} pair_batch;

static uint64_t draw(int row, int i) { return bt_rng_u64(5, (uint64_t)row, (uint64_t)i); }

/* Each row has a pair: the chosen answer, then the rejected one, behind the same prompt. */
static void fill_batch(pair_batch *b, int batch) {
    for (int i = 0; i < ROWS * T; i++) b->inputs[i] = 0, b->targets[i] = b->positions[i] = -1;
    for (int r = 0; r < ROWS; r++) {
        const int row = batch * ROWS + r;
        for (int which = 0, at = r * T; which < 2; which++) {
            const int n = PROMPT + 4 + (int)(draw(row, which) % 20);
            for (int i = 0; i < n; i++) {
                const int from = i < PROMPT ? 100 + i : 1000 * (which + 1) + i - PROMPT;
                b->inputs[at + i] = (int32_t)(draw(row, from) % V);
                b->positions[at + i] = i;
                if (i >= PROMPT) b->targets[at + i - 1] = b->inputs[at + i];
            }
            at += n;
        }
    }
}

static int put_token(pair_batch *b, int at, int position, int32_t id, bool learned) {
    b->inputs[at] = id;
    b->positions[at] = position;
    if (learned) b->targets[at - 1] = id;
    return at + 1;
}

static int answer_of(int row) { return PROMPT + 4 + (int)(draw(row, row % 2) % 20); }
static int32_t answer_token(int row, int i) {
    return (int32_t)(draw(row, i < PROMPT ? 100 + i : 1000 * (row % 2 + 1) + i - PROMPT) % V);
}

/* Each row has an example (row_set.h): the answer that the row's number selects, one token in place of the other, and
 * with `mismatched` the prompt with the answer of the next row. */
static void fill_singles(pair_batch *b, int batch, bool mismatched) {
    for (int i = 0; i < ROWS * T; i++) b->inputs[i] = 0, b->targets[i] = b->positions[i] = -1;
    for (int r = 0; r < ROWS; r++) {
        const int row = batch * ROWS + r, other = batch * ROWS + (r + 1) % ROWS;
        int at = r * T;
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < (which == row % 2 ? answer_of(row) : 1); i++)
                at = put_token(b, at, i, answer_token(row, i), i >= PROMPT);
        for (int i = 0; mismatched && i < answer_of(other); i++)
            at = put_token(b, at, i, answer_token(i < PROMPT ? row : other, i), i >= PROMPT);
    }
}

static bt_model *model_of(bool lora, bt_dpo how) {
    bt_model_setup s = {.cfg = {.L = 2,
                                .C = 32,
                                .H = 4,
                                .KV = 2,
                                .D = 8,
                                .F = 48,
                                .T = T,
                                .V = V,
                                .norm = BT_NORM_SUBLN,
                                .act = BT_ACT_RELU2,
                                .linear = BT_LIN_DENSE,
                                .tied = true,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5,
                                .init_std = 0.08},
                        .B = ROWS,
                        .prec = BT_PREC_FP32,
                        .train = true,
                        .documents = true,
                        .pairs = true,
                        .n_threads = 2};
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    if (how.loss == BT_PREFER_REWARD) s.cfg.classes = 1;
    if (lora) s.cfg.lora = (bt_lora){.rank = RANK, .scale = SCALE, .targets = BT_LORA_ALL};
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, SEED);
    bt_model_dpo(m, how);
    return m;
}

/* The base has the initial weights of a whole model, and the adapters those of make_golden.py. */
static void fill_adapters(bt_model *m) {
    bt_model_setup s = {.cfg = *bt_model_config(m), .B = 1, .prec = BT_PREC_FP32, .train = true};
    bt_model *full = NULL;
    bt_err err = BT_ERR_INIT;
    s.cfg.lora = (bt_lora){0};
    s.cfg.classes = 0;
    s.n_threads = 2;
    if (bt_model_create(&full, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(full, SEED);
    const bt_params *p = bt_model_params(full), *a = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++)
        bt_model_base_put(m, i, 0, p->tensors[i].count,
                          bt_model_weights(full) + p->tensors[i].offset, 1);
    bt_model_base_done(m);
    bt_model_destroy(full);
    for (size_t i = 0; i < a->n; i++)
        bt_rng_normal(bt_model_weights(m) + a->tensors[i].offset, a->tensors[i].count, 0, 0.1f,
                      SEED, bt_hash_name(a->tensors[i].name));
}

static double preference_step(bt_model *m, bt_optim *o, const pair_batch *b, int64_t t,
                              float decay) {
    const size_t total = bt_model_params(m)->total;
    bt_model_zero_grads(m);
    bt_model_documents(m, b->positions);
    const double loss = bt_model_train_micro(m, b->inputs, b->targets, 1.0 / ROWS, NULL, NULL) /
                        ROWS,
                 norm = sqrt(bt_op_sum_squares(bt_model_grads(m), total)), clip = 1 / (norm + 1e-6);
    const bt_optim_update u = {
        .t = t, .grad_scale = (float)(clip < 1 ? clip : 1), .lr = RATE, .decay = decay};
    bt_optim_step(o, bt_model_weights(m), bt_model_grads(m), &u);
    bt_model_quantise(m);
    return loss;
}

static void twenty_losses(bool lora, bt_dpo how, const double *want, const char *name) {
    static pair_batch batches[BATCHES];
    bt_optim_span *spans;
    bt_model *m = model_of(lora, how);
    if (lora) fill_adapters(m);
    bt_optim *o = model_optim(m, &spans);
    for (int i = 0; i < BATCHES; i++)
        if (bt_prefer_is_single(how.loss))
            fill_singles(&batches[i], i, how.loss == BT_PREFER_KTO);
        else
            fill_batch(&batches[i], i);
    bt_model_quantise(m);
    for (int step = 0; step < STEPS; step++) {
        const double got = preference_step(m, o, &batches[step % BATCHES], step + 1,
                                           lora ? 0 : 0.1f);
        const bt_score s = bt_model_take_score(m);
        how.z0 = fmax(0, s.ratios / s.n);
        bt_model_dpo(m, how);
        print_message("%s step %d: %.9f, PyTorch %.9f, relative difference %+.1e\n", name, step,
                      got, want[step], got / want[step] - 1);
        if (!(fabs(got / want[step] - 1) < TOLERANCE))
            fail_msg("%s, step %d: loss %.9f, PyTorch %.9f", name, step, got, want[step]);
    }
    bt_optim_destroy(o);
    free(spans);
    bt_model_destroy(m);
}

static void losses_equal_pytorch(void **state) {
    (void)state;
    static const char *const kinds[] = {"dpo", "orpo", "simpo", "kto", "apo", "reward"};
    FILE *f = golden_open("golden_preferences.txt");
    char line[1024], what[8], kind[8];
    int lines = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        double beta, gamma, want[STEPS];
        int at = 0;
        if (sscanf(line, "%7s %7s %lf %lf%n", what, kind, &beta, &gamma, &at) != 4 || *line == '#')
            continue;
        char *p = line + at;
        for (int i = 0; i < STEPS; i++) want[i] = strtod(p, &p);
        bt_dpo how = {.on = true, .beta = beta, .gamma = gamma, .desirable = 1, .undesirable = 1};
        if (strcmp(kind, "kto") == 0) how.desirable = gamma;
        if (strcmp(kind, "apo") == 0) how.undesirable = gamma;
        if (strcmp(kind, "reward") == 0) how.centre = gamma;
        for (int k = 0; k < 6; k++)
            if (strcmp(kind, kinds[k]) == 0) how.loss = (bt_preference)k;
        line[at] = '\0';
        twenty_losses(strcmp(what, "lora") == 0, how, want, line);
        lines++;
    }
    (void)fclose(f);
    assert_int_equal(lines, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_equal_pytorch)};
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}
