/* print_config.c - prints the settings of a run as a configuration file with origins. */
#include "cli/train/print_config.h"

#include <string.h>

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"

/* True for options of a single call, which a configuration file does not contain. */
static bool is_option_of_call(const char *key) {
    return strcmp(key, "run.print_config") == 0 || strcmp(key, "run.dry_run") == 0;
}

/* True for a value that was derived from other settings. The file omits it, because it would contradict later
 * changes of those settings. */
static bool is_derived_setting(const bt_opts *o, size_t i) {
    return o->origin[i] <= BT_FROM_PRESET || strcmp(o->where[i], "auto") == 0;
}

/* Writes a YAML scalar that is parsed as exactly this text, with double quotes if plain text would be ambiguous. */
static void put_yaml_scalar(bt_text *out, const char *s, size_t n) {
    bool plain = n > 0;
    for (size_t i = 0; plain && i < n; i++) {
        char c = s[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '.' || c == '/' || c == '+';
        plain = word || (i > 0 && c == '-') ||
                (i == 0 && c == '-' && n > 1 && s[1] >= '0' && s[1] <= '9');
    }
    if (plain) {
        bt_text_putn(out, s, n);
        return;
    }
    bt_text_put(out, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            bt_text_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            bt_text_printf(out, "\\x%02x", c);
        else
            bt_text_putn(out, s + i, 1);
    }
    bt_text_put(out, "\"");
}

static void value_line(const bt_opts *o, size_t i, bt_text *out) {
    bt_text value;
    bt_text_init(&value);
    bt_opt_value(o, i, &value);
    const char *s = bt_text_str(&value);
    size_t start = out->len;
    if (is_derived_setting(o, i)) bt_text_put(out, "# ");
    bt_text_printf(out, "%s: ", o->table[i].key);
    if (o->table[i].type == BT_OPT_LIST && value.len) {
        bt_text_put(out, "[");
        for (size_t n; *s; s += n + (s[n] == '\n')) {
            n = strcspn(s, "\n");
            if (s != value.data) bt_text_put(out, ", ");
            put_yaml_scalar(out, s, n);
        }
        bt_text_put(out, "]");
    } else {
        put_yaml_scalar(out, s, value.len);
    }
    enum { COLUMN = 40 };
    size_t used = out->len - start;
    const char *origin = bt_origin_name(o->origin[i]);
    bool automatic = strcmp(o->where[i], "auto") == 0;
    bt_text_printf(out, "%*s# %s", used < COLUMN ? (int)(COLUMN - used) : 1, "",
                   automatic ? "auto" : origin);
    if (!automatic && strcmp(o->where[i], origin) != 0) bt_text_printf(out, ", %s", o->where[i]);
    bt_text_put(out, "\n");
    if (value.failed) out->failed = true;
    bt_text_release(&value);
}

bt_code bt_print_config(const bt_opts *o, bool json, FILE *to, bt_err *err) {
    bt_text out;
    bt_text_init(&out);
    if (json) {
        bt_run_cfg_json(o, &out);
        bt_text_put(&out, "\n");
    } else {
        bt_text_put(&out, "# Commented lines are values that were not set: defaults, values of the "
                          "preset, and automatic values.\n");
        for (size_t i = 0; i < o->n; i++)
            if (!is_option_of_call(o->table[i].key)) value_line(o, i, &out);
    }
    bt_code code = out.failed ? bt_fail(err, BT_NOMEM, "no memory to print the settings") : BT_OK;
    if (code == BT_OK) fputs(bt_text_str(&out), to);
    bt_text_release(&out);
    return code;
}
