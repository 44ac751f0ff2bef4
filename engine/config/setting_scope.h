/* setting_scope.h - rules of settings: whether a resumed run uses the recorded value, and whether all ranks must agree
 * (setting_scopes.def). Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_SETTING_SCOPE_H
#define BT_ENGINE_CONFIG_SETTING_SCOPE_H

#include <stdbool.h>

typedef enum {
    BT_SETTING_KEPT,
    BT_SETTING_ANEW,
    BT_SETTING_FOUND,
    BT_SETTING_BEGUN,
    BT_SETTING_PLACED,
    BT_SETTING_PLANNED,
    BT_SETTING_FIXED
} bt_setting_resumes;
typedef enum { BT_SETTING_SAME, BT_SETTING_OWN } bt_setting_ranks;

typedef struct bt_setting_scope {
    bt_setting_resumes resumes; /* see setting_scopes.def */
    bt_setting_ranks ranks;
    const char *why; /* reason; NULL for the default, KEPT and SAME */
} bt_setting_scope;

bt_setting_scope bt_setting_scope_of(const char *key);

#endif
