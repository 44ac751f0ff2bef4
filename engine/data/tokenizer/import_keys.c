/* import_keys.c - reads values of Hugging Face's tokenizer.json and refuses unknown keys. */
#include "engine/data/tokenizer/import_keys.h"

#include "engine/base/text.h"
#include "engine/data/io/unread_keys.h"

const char *bt_import_type(json_t *o) {
    const char *type = json_string_value(json_object_get(o, "type"));
    return type ? type : "none";
}

bool bt_import_absent(json_t *v) {
    return !v || json_is_null(v) || (json_is_string(v) && !*json_string_value(v));
}

bool bt_import_true(json_t *v) { return v && !json_is_null(v) && !json_is_false(v); }

bt_code bt_import_known_keys(json_t *o, const char *within, const char *const *used, bt_err *err) {
    bt_unread unread = {0};
    bt_text names = {0};
    bt_unread_add(&unread, o, within, used, NULL);
    if (!unread.n) return BT_OK;
    bt_unread_print(&names, &unread, 3, NULL);
    const bt_code code = bt_fail(
        err, BT_UNSUPPORTED, "it has %s, which is unknown and could change the tokens of a text",
        bt_text_str(&names));
    bt_text_release(&names);
    return code;
}
