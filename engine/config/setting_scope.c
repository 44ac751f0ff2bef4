/* setting_scope.c - looks up a key in setting_scopes.def and in the tables of parts. */
#include "engine/config/setting_scope.h"

#include <string.h>

static const struct {
    const char *key;
    bt_setting_scope scope;
} rows[] = {
#define BT_SETTING(key, resumes, ranks, why) {key, {BT_SETTING_##resumes, BT_SETTING_##ranks, why}},
#include "engine/config/setting_scopes.def"
#undef BT_SETTING
#define BT_SCOPE(key, resumes, ranks, why) {key, {BT_SETTING_##resumes, BT_SETTING_##ranks, why}},
#include "engine/config/settings/each_part_setting.def"
};

bt_setting_scope bt_setting_scope_of(const char *key) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].key, key) == 0) return rows[i].scope;
    if (strncmp(key, "model.", 6) == 0) return (bt_setting_scope){.resumes = BT_SETTING_FIXED};
    return (bt_setting_scope){.resumes = BT_SETTING_KEPT};
}
