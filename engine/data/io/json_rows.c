/* json_rows.c - scans JSON text without building a tree. */
#include "engine/data/io/json_rows.h"

#include <string.h>

enum { MAX_LEVEL = 64 };

/* values of data.form, each with a key that only rows of this form have */
static const struct {
    const char *key, *form;
} signs[] = {{"rejected", "preference"}, {"rejected_response", "preference"},
             {"kto_tag", "preference"},  {"conversations", "sharegpt"},
             {"messages", "messages"},   {"instruction", "alpaca"},
             {"label", "label"},         {"completion", "completion"},
             {"text", "completion"}};
enum { N_SIGNS = sizeof signs / sizeof *signs };

typedef struct scan {
    char *s;
    size_t i, n;
    const bt_json_selection *w;
    bt_json_unread *u;
    size_t sign; /* the first of `signs` that the row has */
} scan;

static bool is_json_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static char skip_json_blanks(scan *p) {
    while (p->i < p->n && is_json_blank(p->s[p->i])) p->i++;
    return p->i < p->n ? p->s[p->i] : '\0';
}

static bool skip_string(scan *p) {
    for (p->i++; p->i < p->n; p->i++) {
        if (p->s[p->i] == '\\')
            p->i++;
        else if (p->s[p->i] == '"')
            return ++p->i, true;
    }
    return false;
}

/* Skips a number of any size, true, false, null, and Python's spellings of NaN and infinity. */
static bool skip_scalar(scan *p) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    const size_t from = p->i;
    while (p->i < p->n && !is_json_blank(p->s[p->i]) && !strchr(",]}", p->s[p->i])) p->i++;
    const size_t n = p->i - from;
    const char *s = p->s + from;
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k]) == n && memcmp(words[k], s, n) == 0) return true;
    size_t k = n > 0 && s[0] == '-';
    if (k >= n || s[k] < '0' || s[k] > '9') return false;
    while (k < n && (strchr("+-.eE", s[k]) || (s[k] >= '0' && s[k] <= '9'))) k++;
    return k == n;
}

static bool skip_value(scan *p) {
    const char c = skip_json_blanks(p);
    if (c == '"') return skip_string(p);
    if (c != '{' && c != '[') return c && skip_scalar(p);
    size_t depth = 0;
    while (p->i < p->n) {
        const char at = p->s[p->i];
        if (at == '"') {
            if (!skip_string(p)) return false;
            continue;
        }
        if (at == '{' || at == '[') depth++;
        p->i++;
        if ((at == '}' || at == ']') && --depth == 0) return true;
    }
    return false;
}

static bool list_has_key(const char *const *list, const char *key, size_t n) {
    for (; list && *list; list++)
        if (strlen(*list) == n && memcmp(*list, key, n) == 0) return true;
    return false;
}

/* True if the path equals the key, or begins with the key and a dot. inner: also after any dot of the path. */
static bool on_path(const char *path, bool inner, const char *key, size_t n) {
    for (const char *p = path; p; p = strchr(p, '.')) {
        if (p != path) p++;
        if (inner == (p != path) && strncmp(p, key, n) == 0 && (p[n] == '\0' || p[n] == '.'))
            return true;
    }
    return false;
}

static bool is_selected_key(const bt_json_selection *w, bool inner, const char *key, size_t n) {
    return list_has_key(inner ? w->inner : w->row, key, n) || on_path(w->path, inner, key, n) ||
           memchr(key, '\\', n); /* an escaped key is left to the parser */
}

static void count_unread(bt_json_unread *u, bool inner, const char *key, size_t n) {
    if (n >= BT_UNREAD_NAME) n = BT_UNREAD_NAME - 1;
    for (size_t k = 0; k < u->n; k++) { /* rows usually have their keys in the same order */
        const size_t i = (u->next + k) % u->n;
        if (u->keys[i].inner != inner || strncmp(u->keys[i].name, key, n) != 0 ||
            u->keys[i].name[n])
            continue;
        u->keys[i].count++;
        u->next = i + 1;
        return;
    }
    if (u->n == BT_UNREAD_MAX) {
        u->others++;
        return;
    }
    memcpy(u->keys[u->n].name, key, n);
    u->keys[u->n].name[n] = '\0';
    u->keys[u->n].inner = inner;
    u->keys[u->n++].count = 1;
    u->next = u->n;
}

static void note_sign(scan *p, const char *key, size_t n) {
    for (size_t i = 0; i < p->sign; i++)
        if (strlen(signs[i].key) == n && memcmp(signs[i].key, key, n) == 0) p->sign = i;
}

static bool keep_value(scan *p, int level);

/* Processes an object, from '{' past '}'. */
static bool keep_object(scan *p, int level) {
    size_t comma = 0; /* end of the last member that is kept */
    for (p->i++;;) {
        char c = skip_json_blanks(p);
        if (c == '}') return p->i++, true;
        const size_t key = p->i;
        if (c != '"' || !skip_string(p)) return false;
        const size_t n = p->i - key - 2;
        if (skip_json_blanks(p) != ':') return false;
        p->i++;
        if (level == 0) note_sign(p, p->s + key + 1, n);
        const bool wanted = is_selected_key(p->w, level > 0, p->s + key + 1, n);
        if (!(wanted ? keep_value(p, level + 1) : skip_value(p))) return false;
        c = skip_json_blanks(p);
        if (c != ',' && c != '}') return false;
        if (wanted) {
            if (c == ',') comma = p->i;
        } else {
            count_unread(p->u, level > 0, p->s + key + 1, n);
            memset(p->s + key, ' ', p->i + (c == ',') - key);
            if (c == '}' && comma) p->s[comma] = ' ';
        }
        if (c == ',') {
            p->i++;
            if (wanted && skip_json_blanks(p) == '}') return false;
        }
    }
}

static bool keep_array(scan *p, int level) {
    p->i++;
    if (skip_json_blanks(p) == ']') return p->i++, true;
    for (;;) {
        if (!keep_value(p, level)) return false;
        const char c = skip_json_blanks(p);
        p->i++;
        if (c == ']') return true;
        if (c != ',') return false;
    }
}

static bool keep_value(scan *p, int level) {
    const char c = skip_json_blanks(p);
    if (level > MAX_LEVEL) return false;
    return c == '{' ? keep_object(p, level) : c == '[' ? keep_array(p, level + 1) : skip_value(p);
}

void bt_json_drop_unread(char *s, size_t n, const bt_json_selection *w, bt_json_unread *u) {
    scan p = {.s = s, .n = n, .w = w, .u = u, .sign = N_SIGNS};
    if (skip_json_blanks(&p) == '{') (void)keep_object(&p, 0);
    u->form = p.sign < N_SIGNS ? signs[p.sign].form : NULL;
}

size_t bt_json_object_end(const char *s, size_t n, bool *lines) {
    size_t depth = 0;
    bool quoted = false;
    *lines = false;
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        if (c == '\n') {
            if (quoted) return 0;
            *lines = true;
        } else if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

void bt_json_unread_text(const bt_json_unread *u, bt_text *out) {
    enum { SHOWN = 12 };
    const char *between = "";
    for (size_t i = 0; i < u->n && i < SHOWN; i++, between = ", ") {
        char name[BT_UNREAD_NAME];
        bt_text_plain(name, sizeof name, u->keys[i].name);
        bt_text_printf(out, "%s%s%s (%llu)", between, name, u->keys[i].inner ? " in messages" : "",
                       (unsigned long long)u->keys[i].count);
    }
    const size_t more = u->n > SHOWN ? u->n - SHOWN : 0;
    if (more || u->others) bt_text_printf(out, " and %zu%s more", more, u->others ? " or" : "");
}
