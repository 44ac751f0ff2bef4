/* test_packed_documents.c - documents packed into a sequence: the loss of each document has the same bits as alone,
 * gradients agree, and no document attends to another. */
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 96, V = 53, M = B * T };

static bt_model *model_of(bt_linear_kind linear, bool train, bt_recompute recompute) {
    bt_model_setup s = small_setup(B, T, V, 32, 48);
    s.cfg.linear = linear;
    s.train = train;
    s.recompute = recompute;
    s.documents = true;
    bt_model *m = small_model(&s, 5);
    bt_model_quantise(m);
    return m;
}

typedef struct batch {
    int32_t inputs[M], targets[M], positions[M];
} batch;

static const int lengths[B][4] = {{33, 17, 40, 0}, {1, 64, 20, 0}};

/* If only >= 0, puts document `only` at the beginning of sequence `seq`; otherwise all documents consecutively. */
static void fill_sequence(batch *b, int seq, int only) {
    for (int i = 0; i < M; i++) b->inputs[i] = 0, b->targets[i] = b->positions[i] = -1;
    for (int s = 0; s < B; s++) {
        int at = s * T;
        for (int d = 0; lengths[s][d]; d++) {
            if (only >= 0 && (s != seq || d != only)) continue;
            for (int i = 0; i < lengths[s][d]; i++, at++) {
                uint64_t stream = (uint64_t)(s * 8 + d);
                b->inputs[at] = (int32_t)(bt_rng_u64(3, stream, (uint64_t)i) % V);
                b->positions[at] = i;
                if (i + 1 < lengths[s][d])
                    b->targets[at] = (int32_t)(bt_rng_u64(3, stream, (uint64_t)i + 1) % V);
            }
        }
    }
}

/* Removes the targets of all other documents. */
static void keep_one_document(batch *b, int seq, int doc) {
    int first = seq * T;
    for (int d = 0; d < doc; d++) first += lengths[seq][d];
    for (int i = 0; i < M; i++)
        if (i < first || i >= first + lengths[seq][doc]) b->targets[i] = -1;
}

static void packed_losses_are_those_of_each_document_alone(void **state) {
    (void)state;
    for (int linear = BT_LIN_BITNET158; linear <= BT_LIN_DENSE; linear++) {
        bt_model *m = model_of((bt_linear_kind)linear, false, BT_RECOMPUTE_NONE);
        for (int s = 0; s < B; s++) {
            for (int d = 0; lengths[s][d]; d++) {
                batch packed, alone;
                fill_sequence(&packed, 0, -1);
                keep_one_document(&packed, s, d);
                fill_sequence(&alone, s, d);
                bt_model_documents(m, packed.positions);
                double a = bt_model_eval_micro(m, packed.inputs, packed.targets);
                bt_model_documents(m, alone.positions);
                double b = bt_model_eval_micro(m, alone.inputs, alone.targets);
                if (memcmp(&a, &b, sizeof a) != 0) fail_msg("packed %.17g, alone %.17g", a, b);
                if (lengths[s][d] > 1) assert_true(a > 0);
            }
        }
        bt_model_destroy(m);
    }
}

static void documents_do_not_see_each_other(void **state) {
    (void)state;
    bt_model *m = model_of(BT_LIN_BITNET158, false, BT_RECOMPUTE_NONE);
    batch b;
    fill_sequence(&b, 0, -1);
    keep_one_document(&b, 0, 2);
    bt_model_documents(m, b.positions);
    double before = bt_model_eval_micro(m, b.inputs, b.targets);
    for (int i = 0; i < lengths[0][0] + lengths[0][1]; i++) b.inputs[i] = (b.inputs[i] + 7) % V;
    double after = bt_model_eval_micro(m, b.inputs, b.targets);
    assert_memory_equal(&before, &after, sizeof before);
    bt_model_documents(m, NULL); /* In one sequence they attend to each other. */
    assert_true(bt_model_eval_micro(m, b.inputs, b.targets) != before);
    bt_model_destroy(m);
}

static void gradients_are_the_sum_of_the_documents(void **state) {
    (void)state;
    for (int recompute = BT_RECOMPUTE_NONE; recompute <= BT_RECOMPUTE_FULL; recompute++) {
        bt_model *m = model_of(BT_LIN_DENSE, true, (bt_recompute)recompute);
        size_t n = bt_model_params(m)->total;
        float *want = malloc(n * sizeof *want);
        batch b;
        bt_model_zero_grads(m);
        double sum = 0, diff = 0, norm = 0;
        for (int s = 0; s < B; s++)
            for (int d = 0; lengths[s][d]; d++) {
                fill_sequence(&b, s, d);
                bt_model_documents(m, b.positions);
                sum += bt_model_train_micro(m, b.inputs, b.targets, 0.5, NULL, NULL);
            }
        memcpy(want, bt_model_grads(m), n * sizeof *want);
        bt_model_zero_grads(m);
        fill_sequence(&b, 0, -1);
        bt_model_documents(m, b.positions);
        double all = bt_model_train_micro(m, b.inputs, b.targets, 0.5, NULL, NULL);
        for (size_t i = 0; i < n; i++) {
            double d = (double)want[i] - (double)bt_model_grads(m)[i];
            diff += d * d;
            norm += (double)want[i] * (double)want[i];
        }
        assert_true(fabs(all - sum) < 1e-9 * sum);
        if (!(diff < 1e-12 * norm)) fail_msg("gradients differ by %.2e", sqrt(diff / norm));
        free(want);
        bt_model_destroy(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_losses_are_those_of_each_document_alone),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(gradients_are_the_sum_of_the_documents),
    };
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}
