/* run_cfg_texts.c - writes all settings as one text and reads it: for checkpoints and ranks. */
#include <jansson.h>
#include <stdlib.h>

#include "engine/config/run_cfg.h"

void bt_run_cfg_texts(const bt_run_cfg *cfg, bt_text *out) {
    const bt_opts o = {.table = bt_run_opts, .n = bt_run_opts_n, .values = (void *)(uintptr_t)cfg};
    bt_json j;
    bt_text value;
    bt_text_init(&value);
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    for (size_t i = 0; i < o.n; i++) {
        bt_text_clear(&value);
        bt_opt_value(&o, i, &value);
        bt_json_bytes(&j, o.table[i].key, bt_text_str(&value));
    }
    bt_json_end(&j, '}');
    bt_text_release(&value);
}

bt_code bt_run_cfg_each_text(const char *texts, bt_set_text *set, void *ctx, bt_err *err) {
    json_error_t e;
    json_t *all = json_loads(texts, 0, &e), *v;
    const char *key;
    bt_text value = {0};
    bt_code code = BT_OK;
    if (!json_is_object(all))
        code = bt_fail(err, BT_FORMAT, "%s", all ? "the settings are not a JSON object" : e.text);
    json_object_foreach(all, key, v) {
        if (code != BT_OK || !json_is_string(v)) continue;
        bt_text_clear(&value);
        bt_text_put_bytes(&value, json_string_value(v));
        code = value.failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings")
                            : set(ctx, key, bt_text_str(&value), err);
    }
    bt_text_release(&value);
    json_decref(all);
    return code;
}

static bt_code set_resolved(void *ctx, const char *key, const char *value, bt_err *err) {
    return bt_opts_set(ctx, key, value, BT_FROM_FLAG, key, err);
}

bt_code bt_run_cfg_from_texts(bt_run_cfg *cfg, const char *texts, bt_err *err) {
    bt_opts *o = malloc(sizeof *o); /* too large for the stack */
    if (!o) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings");
    bt_code code = bt_opts_init(o, bt_run_opts, bt_run_opts_n, cfg, err);
    if (code == BT_OK) code = bt_run_cfg_each_text(texts, set_resolved, o, err);
    free(o);
    return code;
}
