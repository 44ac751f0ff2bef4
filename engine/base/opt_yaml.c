/* opt_yaml.c - reads a configuration file into an option table.
 *
 * A strict subset of YAML through libyaml's event parser: nested mappings whose leaves are scalars or lists of
 * scalars. Keys of other programs (bt_opts.aliases) are at the top level and may have lists of flat mappings as values.
 * Dots join mapping keys: "lr:" inside "optim:" is optim.lr, and "optim.lr:" is equivalent. The option's type
 * determines how a scalar is parsed. A key without a value is ignored. Anchors, aliases, tags, directives, duplicate
 * keys and further documents are errors with file:line:column. */
#include "engine/base/opt.h"
#include "engine/base/system/ascii.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "engine/base/opt_private.h"

enum { MAX_DEPTH = 8, MAX_KEY = 160, MAX_FILE_BYTES = 1 << 20 };

typedef struct reader {
    bt_opts *o;
    const char *path, *data; /* name of the file and its n bytes */
    size_t n;
    yaml_parser_t parser;
    yaml_event_t event;
    bool have_event;
    bool broken;                    /* the rest of the file is not valid YAML */
    int level;                      /* number of open mappings and lists */
    unsigned seen_line[BT_OPT_MAX]; /* line of the option's first occurrence; 0: none */
    bt_err *err;
} reader;

static bt_code fail_at(const reader *r, yaml_mark_t mark, bt_code code, const char *what) {
    return bt_fail(r->err, code, "%s:%zu:%zu: %s", r->path, mark.line + 1, mark.column + 1, what);
}

/* Finds a tab in the current line because libyaml reports "found character that cannot start any token". */
static bool tab_in_line(const reader *r, yaml_mark_t *mark) {
    size_t line = 0, from = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->data[i] == '\t' && line == mark->line && i - from <= mark->column) {
            mark->column = i - from;
            return true;
        }
        if (r->data[i] == '\n') {
            line++;
            from = i + 1;
        }
    }
    return false;
}

static bt_code next_yaml_event(reader *r) {
    if (r->have_event) yaml_event_delete(&r->event);
    r->have_event = false;
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        r->broken = true;
        char what[200];
        snprintf(what, sizeof what, "not valid YAML: %s",
                 r->parser.problem ? r->parser.problem : "unknown problem");
        if (r->parser.error == YAML_MEMORY_ERROR)
            return bt_fail(r->err, BT_NOMEM, "cannot allocate memory to read '%s'", r->path);
        if (r->parser.error == YAML_READER_ERROR)
            return bt_fail(r->err, BT_ARG, "%s: byte %zu: %s", r->path, r->parser.problem_offset,
                           what);
        yaml_mark_t mark = r->parser.problem_mark;
        if (tab_in_line(r, &mark))
            return fail_at(r, mark, BT_ARG, "a tab is not allowed: indent YAML with spaces");
        return fail_at(r, mark, BT_ARG, what);
    }
    r->have_event = true;
    r->level += r->event.type == YAML_MAPPING_START_EVENT ||
                r->event.type == YAML_SEQUENCE_START_EVENT;
    r->level -= r->event.type == YAML_MAPPING_END_EVENT || r->event.type == YAML_SEQUENCE_END_EVENT;
    return BT_OK;
}

static int level_of_value(const reader *r) {
    return r->level - (r->event.type == YAML_MAPPING_START_EVENT ||
                       r->event.type == YAML_SEQUENCE_START_EVENT);
}

/* Handles an error in a value: adds it to the collected errors, if any are collected, and skips the value. */
static bt_code end_value(reader *r, bt_code code, int level) {
    if (!r->broken) code = bt_opts_fault(r->o, code, r->err);
    while (code == BT_OK && r->level > level) code = next_yaml_event(r);
    return code;
}

/* Returns true if nothing or "null" follows the colon. */
static bool is_empty(const yaml_event_t *e) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (e->type != YAML_SCALAR_EVENT || e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp((const char *)e->data.scalar.value, words[i]) == 0) return true;
    return false;
}

static void add_to_list(bt_text *list, const char *key, const char *ours) {
    char plain[80];
    if (!list) return;
    bt_text_plain(plain, sizeof plain, key);
    bt_text_printf(list, "%s%s", list->len ? ", " : "", plain);
    if (*ours) bt_text_printf(list, " (%s)", ours);
}

static void note_ignored(reader *r, const char *key) { add_to_list(r->o->ignored, key, ""); }

static bt_code check_plain_yaml(const reader *r) {
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_ALIAS_EVENT)
        return fail_at(r, e->start_mark, BT_ARG, "aliases are not supported");
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
            return fail_at(r, e->start_mark, BT_ARG, "a value contains a NUL byte");
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    }
    if (anchor) return fail_at(r, e->start_mark, BT_ARG, "anchors are not supported");
    if (tag) return fail_at(r, e->start_mark, BT_ARG, "tags are not supported");
    return BT_OK;
}

static bt_code set_value(reader *r, const char *key, const char *text, yaml_mark_t mark) {
    char where[300], what[220];
    size_t i = bt_opt_find(r->o->table, r->o->n, key);
    snprintf(where, sizeof where, "%s:%zu", r->path, mark.line + 1);
    if (i < r->o->n) {
        if (r->seen_line[i]) {
            snprintf(what, sizeof what, "'%.100s' was already set on line %u", key,
                     r->seen_line[i]);
            return fail_at(r, mark, BT_ARG, what);
        }
        r->seen_line[i] = (unsigned)mark.line + 1;
    }
    return bt_opts_set(r->o, key, text, BT_FROM_FILE, where, r->err);
}

static const bt_opt_alias *alias_of(const reader *r, const char *key) {
    if (bt_opt_find(r->o->table, r->o->n, key) < r->o->n) return NULL;
    for (size_t i = 0; i < r->o->n_aliases; i++)
        if (strcmp(r->o->aliases[i].key, key) == 0) return &r->o->aliases[i];
    return NULL;
}

/* names: one path per line. */
static bool all_files_exist(const char *names) {
    char path[1024];
    for (size_t n; *names; names += n + (names[n] == '\n')) {
        n = strcspn(names, "\n");
        if (n >= sizeof path) return false;
        memcpy(path, names, n);
        path[n] = '\0';
        if (access(path, F_OK) != 0) return false;
    }
    return true;
}

/* Translates a value into out. Returns false if the value is refused. */
static bool translate_alias_value(const bt_opt_alias *a, const char *text, char *out, size_t size) {
    for (const char *item = a->values; *item;) {
        const size_t n = strcspn(item, "|"), k = strcspn(item, "=|");
        if (n == 1 && (*item == '*' || (*item == '@' && all_files_exist(text)) ||
                       (*item == '%' && strspn(text, "0123456789., ") == strlen(text)))) {
            (void)snprintf(out, size, "%s", text);
            for (char *c = out; *item == '%' && *c; c++)
                if (*c == ',') *c = ':';
            return true;
        }
        if (strlen(text) == k && bt_ascii_equal_n(text, item, k)) {
            (void)snprintf(out, size, "%.*s", (int)(n - k - 1), item + k + 1);
            return true;
        }
        item += n + (item[n] == '|');
    }
    return false;
}

static bool is_deferred(const bt_opt_alias *a) {
    const size_t n = strlen(a->values);
    return n && a->values[n - 1] == '?';
}

static bt_code defer_alias(reader *r, const bt_opt_alias *a, const char *text, yaml_mark_t mark) {
    bt_opt_deferred *d = &r->o->deferred[r->o->n_deferred];
    if (r->o->n_deferred == BT_OPT_DEFERRED_MAX || strlen(text) >= sizeof d->text)
        return fail_at(r, mark, BT_ARG, "the list has too many names of data sets");
    r->o->n_deferred++;
    d->alias = a;
    (void)snprintf(d->text, sizeof d->text, "%s", text);
    (void)snprintf(d->where, sizeof d->where, "%.250s:%zu:%zu", r->path, mark.line + 1,
                   mark.column + 1);
    return BT_OK;
}

/* Returns true if an option of the command line overrides the value, so that it need not be refused. */
static bool is_overridden_by_flag(const reader *r, const bt_opt_alias *a) {
    const size_t i = bt_opt_find(r->o->table, r->o->n, a->ours);
    return i < r->o->n && r->o->origin[i] >= BT_FROM_SET;
}

/* Returns true if another list in the file has set the option to the same value. */
static bool is_repeated(const reader *r, const char *ours, const char *value) {
    const size_t i = bt_opt_find(r->o->table, r->o->n, ours);
    bt_text now = {0};
    if (i == r->o->n || !r->seen_line[i]) return false;
    bt_opt_value(r->o, i, &now);
    const bool equal = strcmp(bt_text_str(&now), value) == 0;
    bt_text_release(&now);
    return equal;
}

/* in_list: the key is in the mappings of a list; several lists may set an option to the same value. */
static bt_code set_alias(reader *r, const bt_opt_alias *a, bool in_list, const char *text,
                         yaml_mark_t mark) {
    char value[1024], what[520];
    if (strcmp(a->values, "~") == 0) {
        note_ignored(r, a->key);
        return BT_OK;
    }
    if (!translate_alias_value(a, text, value, sizeof value)) {
        char plain[64];
        if (is_overridden_by_flag(r, a)) {
            const size_t i = bt_opt_find(r->o->table, r->o->n, a->ours);
            add_to_list(r->o->taken, a->key, r->o->where[i]);
            return BT_OK;
        }
        if (is_deferred(a)) return defer_alias(r, a, text, mark);
        bt_text_plain(plain, sizeof plain, text);
        (void)snprintf(what, sizeof what, "'%.60s: %.60s' %.360s", a->key, plain, a->why);
        return fail_at(r, mark, BT_ARG, what);
    }
    add_to_list(r->o->taken, a->key, a->ours);
    char *more = strchr(value, ';');
    if (more) *more++ = '\0';
    if (*value && !(in_list && is_repeated(r, a->ours, value)))
        BT_TRY(set_value(r, a->ours, value, mark));
    for (char *rest = NULL, *one = more ? strtok_r(more, ";", &rest) : NULL; one;
         one = strtok_r(NULL, ";", &rest)) {
        char *is = strchr(one, '=');
        if (!is) continue;
        *is = '\0';
        BT_TRY(bt_opts_set(r->o, one, is + 1, BT_FROM_PRESET, a->key, r->err));
    }
    return BT_OK;
}

typedef struct map_list {
    bt_text paths;
    const bt_opt_alias *aliases[16];
    char values[16][64];
    size_t n;
} map_list;

/* All mappings of a list must have the same value of each key, except the path. */
static bt_code add_list_item(reader *r, map_list *l, const bt_opt_alias *a, const char *text,
                             yaml_mark_t mark) {
    char what[200];
    for (size_t i = 0; i < l->n; i++) {
        if (l->aliases[i] != a) continue;
        if (strcmp(l->values[i], text) == 0) return BT_OK;
        (void)snprintf(what, sizeof what, "'%.60s' differs between the data sets of one run",
                       a->key);
        return fail_at(r, mark, BT_ARG, what);
    }
    if (l->n < 16) {
        l->aliases[l->n] = a;
        (void)snprintf(l->values[l->n++], sizeof l->values[0], "%s", text);
    }
    return set_alias(r, a, true, text, mark);
}

/* Joins the words of the list that starts at the current event, and returns at the end of the list. */
static bt_code join_list_words(reader *r, const char *between, bt_text *out) {
    for (;;) {
        BT_TRY(next_yaml_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return BT_OK;
        BT_TRY(check_plain_yaml(r));
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail_at(r, r->event.start_mark, BT_ARG, "a list may contain only plain values");
        bt_text_printf(out, "%s%s", out->len ? between : "",
                       (const char *)r->event.data.scalar.value);
    }
}

/* Reads the value of a key in a mapping inside the key `key`, beginning at the current event. */
static bt_code read_item(reader *r, const char *key, map_list *l, int depth);

static bt_code read_item_value(reader *r, const char *key, const char *name, map_list *l, int depth,
                               yaml_mark_t mark) {
    char path[MAX_KEY], what[MAX_KEY + 80];
    bt_text words = {0};
    const bt_opt_alias *a = alias_of(r, name);
    if (is_empty(&r->event)) {
        note_ignored(r, name);
        return BT_OK;
    }
    if (a && strcmp(a->values, "~") == 0) {
        note_ignored(r, name);
        return BT_OK; /* any value is accepted */
    }
    if (r->event.type == YAML_MAPPING_START_EVENT && depth < MAX_DEPTH)
        return read_item(r, name, l, depth + 1);
    (void)snprintf(path, sizeof path, "%s.path", key);
    if (a && r->event.type == YAML_SEQUENCE_START_EVENT && strcmp(name, path) != 0) {
        bt_code code = join_list_words(r, ",", &words);
        if (code == BT_OK) code = add_list_item(r, l, a, bt_text_str(&words), mark);
        bt_text_release(&words);
        return code;
    }
    if (!a || r->event.type != YAML_SCALAR_EVENT) {
        (void)snprintf(what, sizeof what, "'%s' is not read ('bitrain help options' lists data.*)",
                       name);
        return fail_at(r, mark, BT_ARG, what);
    }
    const char *text = (const char *)r->event.data.scalar.value;
    if (strcmp(name, path) != 0) return add_list_item(r, l, a, text, mark);
    bt_text_printf(&l->paths, "%s%s", l->paths.len ? "\n" : "", text);
    return BT_OK;
}

/* Reads a mapping inside the key `key`, from its start event to its end event. */
static bt_code read_item(reader *r, const char *key, map_list *l, int depth) {
    char name[MAX_KEY];
    for (;;) {
        BT_TRY(next_yaml_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return BT_OK;
        BT_TRY(check_plain_yaml(r));
        const yaml_mark_t mark = r->event.start_mark;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail_at(r, mark, BT_ARG, "a key must be a plain word");
        (void)snprintf(name, sizeof name, "%.60s.%.80s", key,
                       (const char *)r->event.data.scalar.value);
        BT_TRY(next_yaml_event(r));
        const int level = level_of_value(r);
        bt_code code = check_plain_yaml(r);
        if (code == BT_OK) code = read_item_value(r, key, name, l, depth, mark);
        BT_TRY(end_value(r, code, level));
    }
}

/* Reads a list of words, or of mappings with a path. */
static bt_code read_alias_list(reader *r, const bt_opt_alias *a, yaml_mark_t mark) {
    map_list l = {.n = 0};
    bt_code code;
    const size_t i = bt_opt_find(r->o->table, r->o->n, a->ours);
    const char *between = i < r->o->n && r->o->table[i].type == BT_OPT_LIST ? "\n" : ",";
    while ((code = next_yaml_event(r)) == BT_OK && r->event.type != YAML_SEQUENCE_END_EVENT) {
        code = check_plain_yaml(r);
        if (code != BT_OK) break;
        if (r->event.type == YAML_MAPPING_START_EVENT)
            code = read_item(r, a->key, &l, 0);
        else if (r->event.type == YAML_SCALAR_EVENT)
            bt_text_printf(&l.paths, "%s%s", l.paths.len ? between : "",
                           (const char *)r->event.data.scalar.value);
        else
            code = fail_at(r, r->event.start_mark, BT_ARG, "a list inside a list is not supported");
        if (code != BT_OK) break;
    }
    if (code == BT_OK && l.paths.failed)
        code = bt_fail(r->err, BT_NOMEM, "cannot allocate memory to read '%s'", r->path);
    if (code == BT_OK && l.paths.len) code = set_alias(r, a, false, bt_text_str(&l.paths), mark);
    if (code == BT_OK && !l.paths.len && l.n)
        code = fail_at(r, mark, BT_ARG, "no entry of the list has a 'path'");
    if (code == BT_OK && !l.paths.len && !l.n) note_ignored(r, a->key);
    bt_text_release(&l.paths);
    return code;
}

static bt_code read_list(reader *r, const char *key, yaml_mark_t mark) {
    char what[220];
    bt_text items;
    bt_code code;
    size_t i = bt_opt_find(r->o->table, r->o->n, key);
    if (i < r->o->n && r->o->table[i].type != BT_OPT_LIST) {
        snprintf(what, sizeof what, "'%.100s' takes one value, not a list", key);
        return fail_at(r, mark, BT_ARG, what);
    }
    bt_text_init(&items);
    while ((code = next_yaml_event(r)) == BT_OK && r->event.type != YAML_SEQUENCE_END_EVENT) {
        code = check_plain_yaml(r);
        if (code == BT_OK && (r->event.type != YAML_SCALAR_EVENT ||
                              strchr((const char *)r->event.data.scalar.value, '\n')))
            code = fail_at(r, r->event.start_mark, BT_ARG,
                           "a list may contain only plain values of one line");
        if (code != BT_OK) break;
        bt_text_printf(&items, "%s%s", items.len ? "\n" : "",
                       (const char *)r->event.data.scalar.value);
    }
    if (code == BT_OK && items.failed)
        code = bt_fail(r->err, BT_NOMEM, "cannot allocate memory to read '%s'", r->path);
    if (code == BT_OK) code = set_value(r, key, bt_text_str(&items), mark);
    bt_text_release(&items);
    return code;
}

static bool is_group(const bt_opts *o, const char *prefix) {
    size_t n = strlen(prefix);
    for (size_t i = 0; i < o->n; i++)
        if (strncmp(o->table[i].key, prefix, n) == 0 && o->table[i].key[n] == '.') return true;
    return false;
}

static bt_code unknown_group(const reader *r, const char *prefix, yaml_mark_t mark) {
    char what[260], groups[BT_OPT_MAX][32];
    const char *names[BT_OPT_MAX];
    if (bt_opt_find(r->o->table, r->o->n, prefix) < r->o->n) {
        snprintf(what, sizeof what, "'%.100s' is a value, not a group: write '%.100s: VALUE'",
                 prefix, prefix);
        return fail_at(r, mark, BT_ARG, what);
    }
    for (size_t i = 0; i < r->o->n; i++) {
        snprintf(groups[i], sizeof groups[i], "%.*s", (int)strcspn(r->o->table[i].key, "."),
                 r->o->table[i].key);
        names[i] = groups[i];
    }
    const char *near = bt_nearest(prefix, names, r->o->n);
    if (near)
        snprintf(what, sizeof what, "unknown group '%.100s' (did you mean '%s'?)", prefix, near);
    else
        snprintf(what, sizeof what, "unknown group '%.100s' ('bitrain help options' lists them)",
                 prefix);
    return fail_at(r, mark, BT_ARG, what);
}

static bt_code read_mapping(reader *r, const char *prefix, int depth);

/* Reads the value of a key, beginning at the current event. */
static bt_code read_value(reader *r, const char *key, int depth, yaml_mark_t mark) {
    const bt_opt_alias *alias = depth ? NULL : alias_of(r, key);
    const yaml_event_type_t type = r->event.type;
    const char *text = (const char *)r->event.data.scalar.value;
    if (is_empty(&r->event)) {
        note_ignored(r, key);
        return BT_OK;
    }
    if (alias && (type == YAML_SCALAR_EVENT || strcmp(alias->values, "~") == 0))
        return set_alias(r, alias, false, type == YAML_SCALAR_EVENT ? text : "", mark);
    if (alias && type == YAML_SEQUENCE_START_EVENT) return read_alias_list(r, alias, mark);
    if (alias && type == YAML_MAPPING_START_EVENT && !is_group(r->o, key)) {
        map_list none = {.n = 0};
        return read_item(r, key, &none, 0);
    }
    if (type == YAML_SCALAR_EVENT) return set_value(r, key, text, mark);
    if (type == YAML_SEQUENCE_START_EVENT) return read_list(r, key, mark);
    if (depth + 1 >= MAX_DEPTH || !is_group(r->o, key)) return unknown_group(r, key, mark);
    return read_mapping(r, key, depth + 1);
}

/* Reads a mapping from its start event to its end event. */
static bt_code read_mapping(reader *r, const char *prefix, int depth) {
    for (;;) {
        char key[MAX_KEY];
        BT_TRY(next_yaml_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return BT_OK;
        BT_TRY(check_plain_yaml(r));
        yaml_mark_t mark = r->event.start_mark;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail_at(r, mark, BT_ARG, "a key must be a plain word");
        const int n = snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "",
                               (const char *)r->event.data.scalar.value);
        BT_TRY(next_yaml_event(r));
        const int level = level_of_value(r);
        bt_code code = check_plain_yaml(r);
        if (code == BT_OK && n >= MAX_KEY)
            code = fail_at(r, mark, BT_ARG, "the key is too long to be an option");
        if (code == BT_OK) code = read_value(r, key, depth, mark);
        BT_TRY(end_value(r, code, level));
    }
}

static bt_code read_yaml_document(reader *r) {
    BT_TRY(next_yaml_event(r)); /* stream start */
    BT_TRY(next_yaml_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return BT_OK;
    if (r->event.data.document_start.version_directive ||
        r->event.data.document_start.tag_directives.start !=
            r->event.data.document_start.tag_directives.end)
        return fail_at(r, r->event.start_mark, BT_ARG, "directives are not supported");
    BT_TRY(next_yaml_event(r));
    BT_TRY(check_plain_yaml(r));
    bool empty = r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0;
    if (!empty) {
        if (r->event.type != YAML_MAPPING_START_EVENT)
            return fail_at(r, r->event.start_mark, BT_ARG, "expected 'key: value' lines");
        BT_TRY(read_mapping(r, "", 0));
    }
    BT_TRY(next_yaml_event(r)); /* document end */
    BT_TRY(next_yaml_event(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return fail_at(r, r->event.start_mark, BT_ARG, "a second document is not supported");
    return BT_OK;
}

static bt_code read_yaml_file(const char *path, char **data, size_t *n, bt_err *err) {
    FILE *f = fopen(path, "rbe");
    if (!f)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno, "cannot open '%s'",
                             path);
    *data = malloc(MAX_FILE_BYTES + 1);
    if (!*data) {
        fclose(f);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    }
    errno = 0;
    *n = fread(*data, 1, MAX_FILE_BYTES + 1, f);
    int failed = ferror(f) ? errno : 0;
    fclose(f);
    if (failed) return bt_fail_errno(err, BT_IO, failed, "cannot read '%s'", path);
    if (*n > MAX_FILE_BYTES)
        return bt_fail(err, BT_ARG, "'%s' is larger than %d bytes: is it a configuration file?",
                       path, MAX_FILE_BYTES);
    return BT_OK;
}

bt_code bt_opts_yaml(bt_opts *o, const char *path, bt_err *err) {
    char *data = NULL;
    size_t n = 0;
    bt_code code = read_yaml_file(path, &data, &n, err);
    if (code != BT_OK) {
        free(data);
        return code;
    }
    reader r = {.o = o, .path = path, .data = data, .n = n, .err = err};
    if (!yaml_parser_initialize(&r.parser)) {
        free(data);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)data, n);
    code = read_yaml_document(&r);
    if (r.have_event) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    free(data);
    return code;
}
