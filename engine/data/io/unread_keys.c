/* unread_keys.c - counts the keys of JSON objects that no reader uses. */
#include "engine/data/io/unread_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool bt_key_in(const char *const *set, const char *key) {
    for (; set && *set; set++) {
        const size_t n = strlen(*set);
        const bool prefix = n > 0 && (*set)[n - 1] == '*';
        if (prefix ? strncmp(*set, key, n - 1) == 0 : strcmp(*set, key) == 0) return true;
    }
    return false;
}

void bt_unread_add_key(bt_unread *u, const char *within, const char *key) {
    char raw[BT_UNREAD_NAME], name[BT_UNREAD_NAME];
    size_t i = 0;
    (void)snprintf(raw, sizeof raw, "%.40s%s%s", within ? within : "", within ? "." : "", key);
    bt_text_plain(name, sizeof name, raw);
    while (i < u->n && strcmp(u->at[i].name, name) != 0) i++;
    if (i == BT_UNREAD_MOST) {
        u->more++;
        return;
    }
    if (i == u->n) memcpy(u->at[u->n++].name, name, sizeof name);
    u->at[i].count++;
}

void bt_unread_add(bt_unread *u, json_t *o, const char *within, const char *const *used,
                   const char *const *harmless) {
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v) {
        if (!json_is_null(v) && !bt_key_in(used, key) && !bt_key_in(harmless, key))
            bt_unread_add_key(u, within, key);
    }
}

void bt_unread_print(bt_text *out, const bt_unread *u, size_t most, const char *unit) {
    const size_t n = u->n < most ? u->n : most;
    for (size_t i = 0; i < n; i++) {
        const uint64_t count = u->at[i].count;
        bt_text_printf(out, "%s'%s'", i ? ", " : "", u->at[i].name);
        if (unit) bt_text_printf(out, " (%" PRIu64 " %s%s)", count, unit, count == 1 ? "" : "s");
    }
    if (u->more)
        bt_text_put(out, " and others");
    else if (u->n > n)
        bt_text_printf(out, " and %zu more", u->n - n);
}
