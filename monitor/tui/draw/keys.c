/* keys.c - the key table. */
#include "monitor/tui/draw/keys.h"

#define BT_BIND(action, group, keys, hint, help, a, b, c, d) \
    {BT_DO_##action, BT_KEYS_##group, keys, hint, help, {a, b, c, d}},
const bt_bind bt_binds[] = {
#include "monitor/tui/draw/keys.def"
};
const size_t bt_binds_n = sizeof bt_binds / sizeof bt_binds[0];

bt_action bt_keys_action(int32_t key) {
    if (key >= '0' && key <= '9') return BT_DO_SCREEN;
    if (key == BT_KEY_NONE) return BT_DO_NONE;
    for (size_t i = 0; i < bt_binds_n; i++)
        for (int k = 0; k < 4; k++)
            if (bt_binds[i].codes[k] == key) return bt_binds[i].action;
    return BT_DO_NONE;
}

const char *bt_keys_group_name(bt_key_group g) {
    static const char *const names[] = {"Control", "Look", "Move", "Time", "Runs", "Other"};
    return (unsigned)g < BT_KEYS_GROUPS ? names[g] : "";
}

void bt_keys_help(bt_text *out) {
    for (int g = 0; g < BT_KEYS_GROUPS; g++) {
        bt_text_printf(out, "%s%s\n", g ? "\n" : "", bt_keys_group_name((bt_key_group)g));
        for (size_t i = 0; i < bt_binds_n; i++)
            if ((int)bt_binds[i].group == g)
                bt_text_printf(out, "  %-12s  %s\n", bt_binds[i].keys, bt_binds[i].help);
    }
}
