/* peft_config: every setting of adapter_config.json is used, refused by name or reported; a module's scale
 * is determined as in PEFT. */
#include "tests/engine/data/data_fixture.h"

#include <math.h>

#include "engine/model/shape/config.h"
#include "engine/tune/peft_config.h"

static const char *in_folder(const char *name) {
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", fixture_dir, name);
    return path;
}

/* Writes tensors of q_proj and down_proj; PEFT's files have more, which the model's reader compares. */
static void write_weights(void) {
    static const char head[] = "{\"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight\":{"
                               "\"dtype\":\"F32\",\"shape\":[1,1],"
                               "\"data_offsets\":[0,4]},\"base_model.model.model.layers.0.self_"
                               "attn.q_proj.lora_A.weight\":{\"dtype\":"
                               "\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}";
    unsigned char length[8] = {(unsigned char)(sizeof head - 1),
                               (unsigned char)((sizeof head - 1) >> 8)};
    FILE *f = fopen(in_folder(BT_PEFT_WEIGHTS), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(length, 1, 8, f), 8);
    assert_int_equal(fwrite(head, 1, sizeof head - 1, f), sizeof head - 1);
    assert_int_equal(fwrite(length, 1, 8, f), 8);
    fclose(f);
}

/* members: additions to a usual configuration, "" or ", ..." */
static bt_code read_with(bt_peft *p, const char *members, bt_text *notes, bt_err *err) {
    FILE *f = fopen(in_folder(BT_PEFT_CONFIG), "w");
    assert_non_null(f);
    fprintf(f,
            "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"r\": 4, \"lora_alpha\": 8, "
            "\"bias\": \"none\", "
            "\"target_modules\": [\"q_proj\", \"down_proj\"], \"lora_dropout\": 0.05, "
            "\"modules_to_save\": null, "
            "\"init_lora_weights\": true, \"inference_mode\": true, \"loftq_config\": {}, "
            "\"alpha_pattern\": {}, "
            "\"base_model_name_or_path\": \"owner/base\"%s}",
            members);
    fclose(f);
    write_weights();
    *err = (bt_err)BT_ERR_INIT;
    return bt_peft_read(p, fixture_dir, notes, err);
}

static void a_usual_configuration_is_read(void **state) {
    (void)state;
    static bt_peft p;
    bt_text notes = {0};
    bt_err err;
    assert_int_equal(read_with(&p, "", &notes, &err), BT_OK);
    assert_string_equal(bt_text_str(&notes), "");
    assert_int_equal(p.rank, 4);
    assert_int_equal(p.targets, BT_LORA_Q | BT_LORA_DOWN);
    assert_true(fabs(bt_peft_scale(&p) - 2) < 1e-12);
    assert_true(fabs(p.dropout - 0.05) < 1e-12);
    bt_peft_compare_base(&p, "/models/base/", &notes);
    assert_string_equal(bt_text_str(&notes), "");
    bt_peft_compare_base(&p, "/models/other", &notes);
    assert_non_null(strstr(bt_text_str(&notes), "names 'owner/base'"));
    assert_true(bt_peft_is(fixture_dir));
    bt_text_release(&notes);
}

static void settings_of_other_adapters_are_refused(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {", \"use_dora\": true", "has no magnitudes (lora_magnitude_vector), but 'use_dora'"},
        {", \"use_dora\": \"no\"", "'use_dora' is not true or false"},
        {", \"lora_bias\": true", "'lora_bias' is true"},
        {", \"fan_in_fan_out\": true", "'fan_in_fan_out'"},
        {", \"layer_replication\": [[0, 1]]", "'layer_replication'"},
        {", \"target_parameters\": [\"w\"]", "'target_parameters'"},
        {", \"trainable_token_indices\": [1]", "'trainable_token_indices'"},
        {", \"rank_pattern\": {\"q_proj\": 8}",
         "'rank_pattern' gives 'q_proj' another rank than 4"},
    };
    static const char *const edits[][3] = {
        {"\"none\"", "\"all\"", "'bias' is \"all\""},
        {"null", "[\"lm_head\"]", "'modules_to_save' is [\"lm_head\"]"},
        {"\"LORA\"", "\"IA3\"", "'peft_type' is not LORA"},
        {"\"CAUSAL_LM\"", "\"SEQ_CLS\"", "'task_type' is \"SEQ_CLS\""},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"",
         "'init_lora_weights' is \"pissa\""},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"v_pro[jk]\": 4}",
         "'alpha_pattern' has the key 'v_pro[jk]'"},
        {"0.05", "1.5", "'lora_dropout' is not a probability"},
        {"0.05", "\"some\"", "'lora_dropout' is not a probability"},
        {"\"r\": 4", "\"r\": \"4\"", "does not contain the rank"},
        {"\"r\": 4", "\"r\": 4, \"r\": 8", "duplicate"},
    };
    static bt_peft p;
    static char text[4096];
    bt_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(read_with(&p, rows[i][0], NULL, &err), BT_OK);
        if (!strstr(err.msg, rows[i][1])) fail_msg("'%s' does not contain %s", err.msg, rows[i][1]);
    }
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        assert_int_equal(read_with(&p, "", NULL, &err), BT_OK);
        FILE *f = fopen(in_folder(BT_PEFT_CONFIG), "r");
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        fclose(f);
        f = fopen(in_folder(BT_PEFT_CONFIG), "w");
        fprintf(f, "%.*s%s%s", (int)(at - text), text, edits[i][1], at + strlen(edits[i][0]));
        fclose(f);
        assert_int_not_equal(bt_peft_read(&p, fixture_dir, NULL, &err), BT_OK);
        if (!strstr(err.msg, edits[i][2]))
            fail_msg("'%s' does not contain %s", err.msg, edits[i][2]);
    }
}

static void a_key_without_a_use_is_reported(void **state) {
    (void)state;
    static bt_peft p;
    bt_text notes = {0};
    bt_err err;
    assert_int_equal(read_with(&p, ", \"unheard_of\": 0.5, \"off\": false", &notes, &err), BT_OK);
    assert_non_null(strstr(bt_text_str(&notes), "not used here: 'unheard_of'\n"));
    bt_text_release(&notes);
}

static void modules_have_their_own_scale(void **state) {
    (void)state;
    static bt_peft p;
    bt_err err;
    assert_int_equal(read_with(&p,
                               ", \"use_rslora\": true, \"rank_pattern\": {\"q_proj\": 4}, "
                               "\"lora_alpha\": 8",
                               NULL, &err),
                     BT_FORMAT); /* lora_alpha occurs twice */
    assert_int_equal(read_with(&p, ", \"use_rslora\": true, \"rank_pattern\": {\"q_proj\": 4}",
                               NULL, &err),
                     BT_OK);
    assert_true(fabs(bt_peft_scale(&p) - 4) < 1e-12); /* 8 / sqrt 4 */
    p.n_patterns = 3;
    strcpy(p.pattern[0].module, "layers.1.self_attn.v_proj");
    p.pattern[0].alpha = 2;
    strcpy(p.pattern[1].module, "v_proj");
    p.pattern[1].alpha = 64;
    strcpy(p.pattern[2].module, "proj");
    p.pattern[2].alpha = 100;
    static const struct {
        const char *module;
        double scale;
    } rows[] = {{"model.layers.1.self_attn.v_proj", 1},
                {"model.layers.11.self_attn.v_proj", 32},
                {"model.layers.0.self_attn.v_proj", 32},
                {"v_proj", 32},
                {"model.layers.0.mlp.up_proj", 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(fabs(bt_peft_scale_of(&p, rows[i].module) - rows[i].scale) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_usual_configuration_is_read),
        cmocka_unit_test(settings_of_other_adapters_are_refused),
        cmocka_unit_test(a_key_without_a_use_is_reported),
        cmocka_unit_test(modules_have_their_own_scale),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
