/* test_island_rules.c - the rules of islands compared with plain loops: outer step, staleness, clocks, poisoned
 * updates, leases of data, encoded arrays, frames, settings. */
#include "engine/islands/rules/data_lease.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/islands/rules/outer_step.h"
#include "engine/islands/rules/vector_code.h"
#include "engine/islands/wire/island_message.h"
#include "tests/tiny_run.h"

#include <math.h>

/* The outer step equals torch.optim.SGD(lr, momentum, nesterov=True) on the gradient `delta`, in double precision. */
static void the_outer_step_equals_nesterov_sgd(void **state) {
    (void)state;
    enum { N = 5, ROUNDS = 6 };
    float theta[N], buf[N] = {0};
    double want[N], momentum[N] = {0};
    for (int i = 0; i < N; i++) want[i] = theta[i] = (float)i - 2;
    for (int r = 0; r < ROUNDS; r++) {
        float delta[N];
        for (int i = 0; i < N; i++) {
            delta[i] = 0.1f * (float)(i + 1) * (float)(r % 3 - 1);
            momentum[i] = r == 0 ? delta[i] : 0.9 * momentum[i] + delta[i];
            want[i] -= 0.7 * (delta[i] + 0.9 * momentum[i]);
        }
        bt_outer_nesterov(theta, buf, delta, N, 0.7f, 0.9f);
        for (int i = 0; i < N; i++) assert_true(fabs(theta[i] - want[i]) < 1e-5);
    }
    /* The result for eta 1 and mu 0 is the mean of the islands' weights. */
    float start[2] = {1, 2}, ends[2][2] = {{0.5f, 3}, {1.5f, 2}}, mean[2], none[2] = {0};
    for (int i = 0; i < 2; i++) mean[i] = start[i] - (ends[0][i] + ends[1][i]) / 2;
    bt_outer_nesterov(start, none, mean, 2, 1, 0);
    assert_true(start[0] == 1.0f && start[1] == 2.5f);
    /* Updates that are applied one by one give the same result. */
    float one[2] = {1, 2};
    for (int k = 0; k < 2; k++) {
        const float delta[2] = {1 - ends[k][0], 2 - ends[k][1]};
        bt_outer_average(one, delta, 2, 0.5f);
    }
    assert_true(one[0] == 1.0f && one[1] == 2.5f);
}

static void momentum_grows_with_the_number_of_islands(void **state) {
    (void)state;
    assert_true(bt_outer_momentum(1) == 0 && bt_outer_momentum(2) == 0 &&
                bt_outer_momentum(8) == 0.5);
    assert_true(fabs(bt_outer_momentum(4) - (1 - sqrt(0.5))) < 1e-12);
}

static void staleness_is_counted_in_clocks(void **state) {
    (void)state;
    assert_true(bt_staleness_factor(0) == 1 && bt_staleness_factor(3) == 0.25);
    assert_true(bt_clock_may_begin(4, 4, 0) && !bt_clock_may_begin(5, 4, 0));
    assert_true(bt_clock_may_begin(8, 4, 4) && !bt_clock_may_begin(9, 4, 4));
    assert_true(bt_clock_may_begin(1000, 0, -1));
}

static void poisoned_updates_are_recognized(void **state) {
    (void)state;
    const double norms[] = {1, 1.2, 0.8, 1.1, 0.9};
    assert_true(bt_poisoned(NAN, norms, 5, 0) && bt_poisoned(INFINITY, NULL, 0, 10));
    assert_false(bt_poisoned(9.9, norms, 5, 10));
    assert_true(bt_poisoned(10.1, norms, 5, 10));
    assert_false(bt_poisoned(1e9, norms, 5, 0));  /* A factor of 0 switches the check off. */
    assert_false(bt_poisoned(1e9, norms, 3, 10)); /* There are too few norms to compare with. */
    const float bad[3] = {1, NAN, 2};
    assert_false(bt_vector_finite(bad, 3));
    assert_true(bt_vector_finite(bad, 1));
}

/* Every sequence is leased to at most one island and used once, whatever the islands do. */
static void leases_use_every_sequence_once(void **state) {
    (void)state;
    enum { ISLANDS = 5, SEQUENCES = 1 << 16, ROUNDS = 4000 };
    static signed char owner[SEQUENCES], done[SEQUENCES];
    memset(owner, -1, sizeof owner);
    struct {
        int64_t begin, end;
    } has[ISLANDS] = {{0, 0}};
    bt_leases l = {.next = 0};
    bt_err err = BT_ERR_INIT;
    uint64_t s = 12345;
    for (int r = 0; r < ROUNDS; r++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        const int i = (int)((s >> 33) % ISLANDS);
        const int64_t n = 1 + (int64_t)((s >> 40) % 8);
        if ((s >> 50) % 10 == 0) { /* the island dies */
            const int64_t back = bt_leases_give_back(&l, i);
            assert_int_equal(back, has[i].end - has[i].begin);
            for (int64_t q = has[i].begin; q < has[i].end; q++) owner[q] = -1;
            has[i].begin = has[i].end = 0;
        } else if (has[i].begin == has[i].end) {
            assert_int_equal(bt_leases_take(&l, i, n, &has[i].begin, &err), BT_OK);
            has[i].end = has[i].begin + n;
            for (int64_t q = has[i].begin; q < has[i].end; q++) {
                assert_int_equal(owner[q], -1);
                assert_int_equal(done[q], 0);
                owner[q] = (signed char)i;
            }
        } else {
            assert_false(bt_leases_done(&l, (i + 1) % ISLANDS, has[i].begin, has[i].begin + 1));
            assert_true(bt_leases_done(&l, i, has[i].begin, has[i].begin + 1));
            owner[has[i].begin] = -1;
            done[has[i].begin++]++;
        }
    }
    assert_true(l.n < 1000);
    bt_leases_release(&l);
}

/* Adjacent returned ranges are joined, so that they suffice for a larger step. */
static void leases_grow_together(void **state) {
    (void)state;
    bt_leases l = {.next = 0};
    bt_err err = BT_ERR_INIT;
    int64_t begin;
    for (int i = 0; i < 4; i++) assert_int_equal(bt_leases_take(&l, i, 2, &begin, &err), BT_OK);
    for (int i = 0; i < 3; i++) bt_leases_give_back(&l, (i * 2) % 3);
    assert_int_equal(bt_leases_take(&l, 9, 6, &begin, &err), BT_OK);
    assert_int_equal(begin, 0);
    assert_int_equal(l.next, 8);
    bt_leases_release(&l);
}

static void encoded_arrays_are_restored(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_model_cfg model;
    bt_params p;
    bt_err err = BT_ERR_INIT;
    tiny_cfg(&cfg, NULL);
    bt_run_cfg_model(&cfg, &model);
    assert_int_equal(bt_params_init(&p, &model, (bt_model_slice){.tp_rank = 0}, &err), BT_OK);
    float *x = calloc(p.total, sizeof *x), *back = calloc(p.total, sizeof *x),
          *owed = calloc(p.total, sizeof *x), *sum = calloc(p.total, sizeof *x);
    double sent = 0, got = 0;
    for (size_t k = 0; k < p.n; k++)
        for (size_t i = 0; i < p.tensors[k].count; i++)
            x[p.tensors[k].offset + i] = sinf((float)(k * 7919 + i * 31));

    const bt_codec plain = {.name = "fp32"};
    const bt_vector_code fp32 = {.params = &p, .codec = &plain},
                         int8 = {.params = &p, .codec = &bt_codec_int8};
    unsigned char *bytes = malloc(bt_vector_bytes(&fp32));
    size_t n = bt_vector_encode(&fp32, bytes, x, NULL);
    assert_int_equal(n, p.count * sizeof *x);
    assert_true(bt_vector_decode(&fp32, back, bytes, n));
    assert_memory_equal(back, x, p.total * sizeof *x);
    assert_false(bt_vector_decode(&fp32, back, bytes, n - 1));

    /* Error feedback adds the rounding error of one message to the next. */
    n = bt_vector_bytes(&int8);
    assert_true(n < p.count * sizeof *x / 3);
    for (int r = 0; r < 20; r++) {
        assert_int_equal(bt_vector_encode(&int8, bytes, x, owed), n);
        assert_true(bt_vector_decode(&int8, back, bytes, n));
        for (size_t i = 0; i < p.total; i++) sum[i] += back[i];
    }
    for (size_t i = 0; i < p.total; i++) {
        sent += fabs(20.0 * (double)x[i]);
        got += fabs(20.0 * (double)x[i] - (double)sum[i]);
    }
    assert_true(got < 1e-3 * sent);
    free(x), free(back), free(owed), free(sum), free(bytes);
    bt_params_release(&p);
}

/* Each element of the array is in exactly one fragment. */
static void fragments_divide_the_array(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_model_cfg model;
    bt_params p;
    bt_err err = BT_ERR_INIT;
    tiny_cfg(&cfg, NULL);
    bt_run_cfg_model(&cfg, &model);
    assert_int_equal(bt_params_init(&p, &model, (bt_model_slice){.tp_rank = 0}, &err), BT_OK);
    float *x = calloc(p.total, sizeof *x), *whole = calloc(p.total, sizeof *x),
          *part = calloc(p.total, sizeof *x), *sum = calloc(p.total, sizeof *x),
          *owed = calloc(p.total, sizeof *x);
    for (size_t k = 0; k < p.n; k++)
        for (size_t i = 0; i < p.tensors[k].count; i++)
            x[p.tensors[k].offset + i] = sinf((float)(k * 7919 + i * 31));
    bt_vector_code c = {.params = &p, .codec = &bt_codec_int8};
    const size_t bytes = bt_vector_bytes(&c);
    unsigned char *to = malloc(bytes);
    assert_true(bytes < p.count * sizeof *x / 3);
    assert_int_equal(bt_vector_encode(&c, to, x, owed), bytes);
    assert_true(bt_vector_decode(&c, whole, to, bytes));
    for (int64_t of = 1; of <= (int64_t)p.n && of <= 16; of++) {
        size_t all = 0, next = 0, begin, n;
        memset(sum, 0, p.total * sizeof *sum);
        memset(owed, 0, p.total * sizeof *owed);
        for (int64_t k = 0; k < of; k++) {
            bt_vector_fragment(&c, k, of, &begin, &n);
            assert_true(c.end > c.first && c.first == next && n > 0);
            next = c.end;
            const size_t mine = bt_vector_encode(&c, to, x, owed);
            assert_int_equal(mine, bt_vector_bytes(&c));
            assert_true(bt_vector_decode(&c, part, to, mine));
            assert_false(bt_vector_decode(&c, part, to, mine + 1));
            for (size_t i = 0; i < p.total; i++) {
                assert_true((i >= begin && i < begin + n) || part[i] == 0);
                sum[i] += part[i];
            }
            all += mine;
        }
        assert_int_equal(next, p.n);
        assert_int_equal(all, bytes);
        assert_memory_equal(sum, whole, p.total * sizeof *sum);
    }
    free(x), free(whole), free(part), free(sum), free(owed), free(to);
    bt_params_release(&p);
}

static void damaged_frames_are_refused(void **state) {
    (void)state;
    static unsigned char frame[BT_ISLAND_FRAME];
    const bt_island_fetch f = {.kind = 1, .version = 7, .first = 3, .n = 2};
    const bt_island_head in = {.type = BT_ISLAND_FETCH,
                               .epoch = 0x1234567890abcdef,
                               .island = 3,
                               .incarnation = 4,
                               .seq = 99,
                               .bytes = sizeof f};
    bt_island_head out;
    const void *payload;
    bt_err err = BT_ERR_INIT;
    const size_t n = bt_island_write(frame, &in, &f);
    assert_int_equal(bt_island_parse(frame, n, BT_SENT_BY_ISLAND, &out, &payload, &err), BT_OK);
    assert_true(out.type == in.type && out.epoch == in.epoch && out.island == in.island &&
                out.incarnation == in.incarnation && out.seq == in.seq && out.bytes == in.bytes);
    assert_memory_equal(payload, &f, sizeof f);
    /* Any flipped bit, any other length, and the other direction are refused. */
    for (size_t bit = 0; bit < n * 8; bit++) {
        frame[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(bt_island_parse(frame, n, BT_SENT_BY_ISLAND, &out, &payload, &err),
                             BT_OK);
        frame[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t k = 0; k < n; k++)
        assert_int_not_equal(bt_island_parse(frame, k, BT_SENT_BY_ISLAND, &out, &payload, &err),
                             BT_OK);
    assert_int_not_equal(bt_island_parse(frame, n, BT_SENT_BY_HUB, &out, &payload, &err), BT_OK);
    char value[8];
    const char text[] = "ab=1\na=23456789\na=2";
    assert_true(bt_island_line(text, sizeof text - 1, "a", value, sizeof value));
    assert_string_equal(value, "2");
    assert_false(bt_island_line(text, sizeof text - 1, "b", value, sizeof value));
}

/* Settings of any length and with several lines are sent and compared completely. */
static void long_settings_are_sent_completely(void **state) {
    bt_run_cfg cfg, read;
    bt_text mine, theirs;
    bt_err err = BT_ERR_INIT;
    size_t at = 0;
    (void)state;
    TINY(&cfg, NULL);
    for (int i = 0; i < 50; i++)
        at += (size_t)snprintf(cfg.data.labels + at, sizeof cfg.data.labels - at, "%sclass %03d",
                               i ? "\n" : "", i);
    bt_text_init(&mine);
    bt_text_init(&theirs);
    bt_job_settings_put(&mine, &cfg, &(bt_job_hashes){1, 2});
    if (bt_job_settings_read(&read, bt_text_str(&mine), mine.len, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(read.data.labels, cfg.data.labels);
    assert_int_equal(bt_run_cfg_classes(&read), 50);
    cfg.data.labels[at - 1]++;
    bt_job_settings_put(&theirs, &cfg, &(bt_job_hashes){1, 2});
    assert_int_equal(bt_job_settings_compare(bt_text_str(&mine), bt_text_str(&mine), &err), BT_OK);
    assert_int_equal(bt_job_settings_compare(bt_text_str(&mine), bt_text_str(&theirs), &err),
                     BT_ARG);
    assert_non_null(strstr(err.msg, "data.labels is 'class 000 class 001 "));
    bt_text_release(&mine);
    bt_text_release(&theirs);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_outer_step_equals_nesterov_sgd),
                                       cmocka_unit_test(momentum_grows_with_the_number_of_islands),
                                       cmocka_unit_test(staleness_is_counted_in_clocks),
                                       cmocka_unit_test(poisoned_updates_are_recognized),
                                       cmocka_unit_test(leases_use_every_sequence_once),
                                       cmocka_unit_test(leases_grow_together),
                                       cmocka_unit_test(encoded_arrays_are_restored),
                                       cmocka_unit_test(fragments_divide_the_array),
                                       cmocka_unit_test(damaged_frames_are_refused),
                                       cmocka_unit_test(long_settings_are_sent_completely)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
