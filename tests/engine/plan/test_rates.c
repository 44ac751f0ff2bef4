/* test_rates.c - measured rates: as text, in files, from other builds, and scaled to other shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/config/run_cfg.h"
#include "engine/plan/rates.h"

static bt_run_cfg cfg;
static bt_rates a, b;
static char folder[] = "/tmp/bitrain-rates-XXXXXX";

static void resolve_rates_settings(int ranks) {
    static bt_opts o;
    bt_err err = BT_ERR_INIT;
    bool help;
    char *words[] = {"--preset", "nano", "--threads", "1"};
    assert_int_equal(bt_run_cfg_read(&o, &cfg, 4, words, &help, &err), BT_OK);
    assert_int_equal(bt_run_cfg_resolve(&cfg, ranks, &err), BT_OK);
}

static int begin(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static void fill_rates(bt_rates *r) {
    bt_err err = BT_ERR_INIT;
    resolve_rates_settings(2);
    assert_int_equal(bt_rates_identify(r, &cfg.launch, 2, &err), BT_OK);
    bt_part_rate layer = {.shape = bt_part_layer(&cfg, 1),
                          .fwd_s = 0.01,
                          .bwd_s = 0.03,
                          .attn_fwd_s = 0.002,
                          .attn_bwd_s = 0.006,
                          .quantise_s = 1e-3},
                 head = {.shape = bt_part_head(&cfg, 1), .fwd_s = 0.001, .bwd_s = 0.002};
    bt_rates_put_part(r, &layer);
    bt_rates_put_part(r, &head);
    r->add_s = 1e-9;
    r->update[1] = (bt_elem_rate){1e-9, 2e-9};
    r->codec[BT_CODEC_BF16] = (bt_codec_rate){2, 3e-10, 2e-10, 1e-10};
    const bt_link_rate links[] = {{.world = 4,
                                   .n = 2,
                                   .stride = 1,
                                   .bytes_per_s = 3e9,
                                   .grads_sum_s = 5e-10,
                                   .grads_back_s = 2e-10},
                                  {.world = 4, .n = 2, .stride = 2, .bytes_per_s = 1e9}};
    bt_rates_put_links(r, links, 2);
    bt_group_rate group = {
        .world = 4, .shape = bt_part_layer(&cfg, 2), .pass_s = 0.05, .alone_s = 0.04};
    bt_rates_put_group(r, &group);
    bt_rates_put_trial(r, &(bt_trial_rate){"0123456789abcdef", 0.25, 1.5});
}

static void text_restores_everything(void **state) {
    (void)state;
    bt_text out;
    bt_err err = BT_ERR_INIT;
    bt_text_init(&out);
    fill_rates(&a);
    bt_rates_put_json(&a, &out);
    assert_int_equal(bt_rates_take_json(&b, bt_text_str(&out), out.len, &err), BT_OK);
    assert_int_equal(b.n_parts, 2);
    assert_true(bt_part_same(&b.parts[0].shape, &a.parts[0].shape));
    assert_true(b.parts[0].bwd_s == a.parts[0].bwd_s);
    assert_true(b.update[1].large_s == 2e-9);
    assert_true(b.codec[BT_CODEC_BF16].decode_s == 2e-10);
    assert_true(bt_rates_link(&b, 4, 2, 2)->bytes_per_s == 1e9);
    assert_true(bt_rates_link(&b, 4, 2, 1)->grads_sum_s == 5e-10);
    assert_true(bt_rates_link(&b, 4, 2, 1)->grads_back_s == 2e-10);
    assert_string_equal(b.machine, a.machine);
    bt_part_shape other = b.groups[0].shape;
    other.T *= 2; /* A different number of tokens belongs to the same group. */
    assert_true(bt_rates_group_like(&b.groups[0], 4, &other));
    assert_true(bt_rates_group(&b, 4, &other)->alone_s == 0.04);
    assert_false(bt_rates_group_like(&b.groups[0], 2, &other));
    const bt_trial_rate *trial = bt_rates_trial(&b, "0123456789abcdef");
    assert_true(trial && trial->step_s == 0.25 && trial->load == 1.5);
    assert_null(bt_rates_trial(&b, "another"));
    assert_int_equal(bt_rates_take_json(&b, "{\"version\":2,\"parts\":[{}]}", 26, &err), BT_FORMAT);
    /* An older version, in which gradients were not exchanged through shared memory. */
    assert_int_equal(bt_rates_take_json(&b, "{\"version\":1}", 13, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "format 1"));
    assert_int_equal(bt_rates_take_json(&b, "{\"version\":7}", 13, &err), BT_FORMAT);
    assert_int_not_equal(bt_rates_take_json(&b, "{\"vers", 6, &err), BT_OK);
    bt_text_release(&out);
}

static void other_builds_are_refused(void **state) {
    (void)state;
    char path[512], why[240];
    bt_err err = BT_ERR_INIT;
    fill_rates(&a);
    char deep[64];
    snprintf(deep, sizeof deep, "%s/not/there", folder);
    bt_rates_path(&a, deep, path, sizeof path);
    assert_int_equal(bt_rates_load(&a, path, why, sizeof why, &err), BT_OK); /* no rates yet */
    assert_string_equal(why, "");
    assert_int_equal(bt_rates_save(&a, path, &err), BT_OK);
    resolve_rates_settings(2);
    assert_int_equal(bt_rates_identify(&b, &cfg.launch, 2, &err), BT_OK);
    assert_int_equal(bt_rates_load(&b, path, why, sizeof why, &err), BT_OK);
    assert_string_equal(why, "");
    assert_int_equal(b.n_parts, 2);
    a.build[0] = a.build[0] == '0' ? '1' : '0';
    assert_int_equal(bt_rates_save(&a, path, &err), BT_OK);
    assert_int_equal(bt_rates_identify(&b, &cfg.launch, 2, &err), BT_OK);
    assert_int_equal(bt_rates_load(&b, path, why, sizeof why, &err), BT_OK);
    assert_non_null(strstr(why, "another build"));
    assert_int_equal(b.n_parts, 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"version\":1", f);
    fclose(f);
    assert_int_equal(bt_rates_load(&b, path, why, sizeof why, &err), BT_OK);
    assert_non_null(strstr(why, "cannot be read"));
    assert_int_equal(b.n_parts, 0);
}

static void shapes_scale_by_their_work(void **state) {
    (void)state;
    bt_part_rate out;
    fill_rates(&a);
    bt_part_shape s = a.parts[0].shape;
    s.B *= 2; /* twice the tokens */
    assert_true(bt_rates_part_near(&a, &s, &out));
    assert_true(fabs(out.fwd_s - 0.02) < 1e-12 && fabs(out.bwd_s - 0.06) < 1e-12);
    s = a.parts[0].shape;
    s.T *= 2; /* twice as many positions to attend to */
    assert_true(bt_rates_part_near(&a, &s, &out));
    assert_true(fabs(out.fwd_s - (2 * 0.008 + 4 * 0.002)) < 1e-12);
    s = a.parts[0].shape;
    s.recompute = 2; /* the backward pass begins with another forward pass */
    assert_true(bt_rates_part_near(&a, &s, &out));
    assert_true(fabs(out.bwd_s - 0.04) < 1e-12);
    /* The rate of a layer does not predict that of a head. */
    a.n_parts = 1;
    s.kind = BT_PART_HEAD;
    assert_false(bt_rates_part_near(&a, &s, &out));
}

/* Twice the tokens in much more than twice the time of one sequence is implausible. */
static void implausible_times_are_doubtful(void **state) {
    (void)state;
    static bt_rates none;
    fill_rates(&a);
    bt_part_rate two = a.parts[0];
    two.shape.B *= 2;
    two.fwd_s *= 2.4;
    two.bwd_s *= 2.4;
    assert_false(bt_rates_part_doubtful(&a, &two));
    two.bwd_s *= 1.2;
    assert_true(bt_rates_part_doubtful(&a, &two));
    assert_false(bt_rates_part_doubtful(&none, &two)); /* the first of its kind */
}

static void shapes_are_formatted_and_parsed(void **state) {
    (void)state;
    resolve_rates_settings(2);
    bt_part_shape in[] = {bt_part_layer(&cfg, 2), bt_part_head(&cfg, 2)}, out;
    bt_text word;
    bt_text_init(&word);
    for (int i = 0; i < 2; i++) {
        bt_text_clear(&word);
        bt_part_put(&word, &in[i]);
        assert_null(strchr(bt_text_str(&word), ' '));
        assert_true(bt_part_parse(bt_text_str(&word), &out));
        assert_true(bt_part_same(&in[i], &out));
    }
    assert_false(bt_part_parse("layer:1:2", &out));
    assert_false(bt_part_parse("layer:0:1:1:1:1:0:1:1:0:0:0:0:0:0:0:1:0:0:0:0:0", &out));
    assert_false(bt_part_parse("tail:1:1:1:1:1:1:1:1:0:0:0:0:0:0:0:1:0:0:0:0:0", &out));
    /* a slice of no group, and the text without a slice */
    assert_false(bt_part_parse("layer:1:1:1:1:1:0:1:1:0:0:0:0:0:0:0:0:0:0:0:0:0", &out));
    assert_false(bt_part_parse("layer:1:1:1:1:1:0:1:1:0:0:0:0:0:0:0:1:0", &out));
    assert_true(bt_part_parse("layer:1:1:1:1:1:0:1:1:0:0:0:0:0:0:0:1:0:8:127:1:0", &out));
    assert_int_equal(out.lora, 8);
    assert_int_equal(out.targets, 127);
    assert_true(out.lean && !out.base8);
    bt_text_release(&word);
}

/* Each of two ranks has half of the products, and both compute the kv head that they share. */
static void slices_have_their_share_of_the_work(void **state) {
    (void)state;
    resolve_rates_settings(2);
    bt_part_shape whole = bt_part_layer(&cfg, 1), half = bt_part_layer(&cfg, 2), shared = whole;
    assert_true(fabs(bt_part_ops(&half) - bt_part_ops(&whole) / 2) < 1);
    assert_true(fabs(bt_part_attention_ops(&half) - bt_part_attention_ops(&whole) / 2) < 1);
    shared.KV = 1;
    double alone = bt_part_ops(&shared);
    shared.tp = 2;
    assert_true(2 * bt_part_ops(&shared) > alone);
    bt_part_shape head = bt_part_head(&cfg, 2);
    assert_int_equal(head.V, cfg.model.vocab);
    assert_true(bt_part_ops(&head) == 6.0 * head.C * head.V / 2 * head.T * head.B);
}

static int end(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_restores_everything),
        cmocka_unit_test(other_builds_are_refused),
        cmocka_unit_test(shapes_scale_by_their_work),
        cmocka_unit_test(implausible_times_are_doubtful),
        cmocka_unit_test(shapes_are_formatted_and_parsed),
        cmocka_unit_test(slices_have_their_share_of_the_work),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
