/* setting_value.c - finds a key in the JSON text of a configuration without parsing the rest. */
#include "store/read/setting_value.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/text.h"

static const char *skip_json_space(const char *p) { return p + strspn(p, " \t\r\n"); }

/* Returns the position after the member's colon, or NULL. Inside a JSON text every quote is
 * escaped, so a quote after a brace or a comma begins a name. */
static const char *find_member(const char *json, const char *key) {
    char name[200];
    if ((size_t)snprintf(name, sizeof name, "\"%s\"", key) >= sizeof name) return NULL;
    const size_t n = strlen(name);
    for (const char *p = json; (p = strstr(p, name)) != NULL; p += n) {
        const char *before = p;
        while (before > json && strchr(" \t\r\n", before[-1])) before--;
        const char *after = skip_json_space(p + n);
        if (before > json && (before[-1] == '{' || before[-1] == ',') && *after == ':')
            return skip_json_space(after + 1);
    }
    return NULL;
}

static unsigned hex_value(const char *p) {
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF",
                   *at = p[i] ? strchr(digits, p[i]) : NULL;
        if (!at) return 0xfffd;
        v = v << 4 | (unsigned)((at - digits) & 15);
    }
    return v;
}

static void put_character(bt_text *out, unsigned c) {
    const char utf8[3] = {(char)(c < 0x800 ? 0xc0 | c >> 6 : 0xe0 | c >> 12),
                          (char)(0x80 | (c < 0x800 ? c & 63 : c >> 6 & 63)),
                          (char)(0x80 | (c & 63))};
    const char ascii = (char)c;
    if (c < 0x80)
        bt_text_putn(out, &ascii, 1);
    else
        bt_text_putn(out, utf8, c < 0x800 ? 2 : 3);
}

/* p: after the opening quote. Escapes are those of bt_json_str; a surrogate pair becomes two U+FFFD, because no
 * setting contains one. */
static void put_unescaped_json(bt_text *out, const char *p) {
    static const char escapes[] = "n\nt\tr\rb\bf\f";
    while (*p && *p != '"') {
        if (*p != '\\') {
            const size_t n = strcspn(p, "\\\"");
            bt_text_putn(out, p, n);
            p += n;
            continue;
        }
        if (!*++p) return;
        if (*p == 'u') {
            const unsigned c = hex_value(p + 1);
            put_character(out, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
            p += strnlen(p, 5);
            continue;
        }
        const char *known = strchr("ntrbf", *p) ? strchr(escapes, *p) + 1 : p;
        bt_text_putn(out, known, 1);
        p++;
    }
}

static void sql_setting_value(sqlite3_context *c, int n, sqlite3_value **args) {
    const char *json = (const char *)sqlite3_value_text(args[0]);
    const char *key = (const char *)sqlite3_value_text(args[1]);
    const char *v = json && key ? find_member(json, key) : NULL;
    bt_text out;
    (void)n;
    if (v && *v == '{')
        v = find_member(v, "value"); /* the first member of the setting's own object */
    if (!v || strncmp(v, "null", 4) == 0) return;
    bt_text_init(&out);
    if (*v == '"')
        put_unescaped_json(&out, v + 1);
    else
        bt_text_putn(&out, v, strcspn(v, ",} \t\r\n"));
    if (out.failed)
        sqlite3_result_error_nomem(c);
    else
        sqlite3_result_text(c, bt_text_str(&out), (int)out.len, SQLITE_TRANSIENT);
    bt_text_release(&out);
}

int bt_setting_value_install(sqlite3 *db) {
    return sqlite3_create_function(db, BT_SETTING_FUNCTION, 2,
                                   SQLITE_UTF8 | SQLITE_INNOCUOUS | SQLITE_DETERMINISTIC, NULL,
                                   sql_setting_value, NULL, NULL);
}
