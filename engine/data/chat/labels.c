/* labels.c - reads the labels of a classifier from a setting or from the data. */
#include "engine/data/chat/labels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/documents.h"

bt_code bt_label_of(json_t *object, char out[BT_LABEL_BYTES], bt_err *err) {
    json_t *v = json_object_get(object, "label");
    if (!v || json_is_null(v)) return bt_fail(err, BT_FORMAT, "field 'label' is missing");
    if (json_is_integer(v)) {
        (void)snprintf(out, BT_LABEL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return BT_OK;
    }
    if (!json_is_string(v))
        return bt_fail(err, BT_FORMAT, "field 'label' is neither a text nor a whole number");
    const size_t n = json_string_length(v);
    if (n == 0) return bt_fail(err, BT_FORMAT, "field 'label' is empty");
    if (n >= BT_LABEL_BYTES || strpbrk(json_string_value(v), "\r\n") ||
        strlen(json_string_value(v)) != n)
        return bt_fail(err, BT_FORMAT, "field 'label' must be a single line of at most %d bytes",
                       BT_LABEL_BYTES - 1);
    memcpy(out, json_string_value(v), n + 1);
    return BT_OK;
}

size_t bt_labels_count(const char *list) {
    size_t n = *list != '\0';
    for (; *list; list++) n += *list == '\n';
    return n;
}

void bt_labels_name(const char *list, size_t i, char out[BT_LABEL_BYTES]) {
    for (; i > 0 && *list; i--) {
        list += strcspn(list, "\n");
        list += *list == '\n';
    }
    (void)snprintf(out, BT_LABEL_BYTES, "%.*s", (int)strcspn(list, "\n"), list);
}

int bt_labels_find(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (int i = 0; *list; i++) {
        const size_t n = strcspn(list, "\n");
        if (n == length && memcmp(list, name, n) == 0) return i;
        list += n;
        list += *list == '\n';
    }
    return -1;
}

void bt_labels_text(const char *list, bt_text *out) {
    enum { SHOWN = 8 };
    const size_t n = bt_labels_count(list);
    char name[BT_LABEL_BYTES];
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        bt_labels_name(list, i, name);
        bt_text_printf(out, "%s%s", i ? ", " : "", name);
    }
    if (n > SHOWN) bt_text_printf(out, " and %zu more", n - SHOWN);
}

bt_code bt_labels_check(const char *list, bt_err *err) {
    const size_t n = bt_labels_count(list);
    char name[BT_LABEL_BYTES];
    if (n < 2 || n > BT_LABELS_MAX)
        return bt_fail(err, BT_ARG, "data.labels has %zu name%s; a classifier has 2 to %d", n,
                       n == 1 ? "" : "s", BT_LABELS_MAX);
    for (size_t i = 0; i < n; i++) {
        bt_labels_name(list, i, name);
        if (!*name || bt_labels_find(list, name) != (int)i)
            return bt_fail(err, BT_ARG, "data.labels: name %zu, '%s', %s", i + 1, name,
                           !*name ? "is empty" : "occurs twice, or is longer than 63 bytes");
    }
    return BT_OK;
}

typedef struct found {
    char (*names)[BT_LABEL_BYTES];
    size_t n, cap;
} found;

static bool is_whole_number(const char *name) {
    char *end;
    errno = 0;
    (void)strtoll(name, &end, 10);
    return *name && !*end && errno == 0;
}

static int compare_labels_by_bytes(const void *a, const void *b) { return strcmp(a, b); }
static int compare_labels_by_number(const void *a, const void *b) {
    const long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    return (x > y) - (x < y);
}

static bt_code add_distinct_label(found *f, const char *name, bt_err *err) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0) return BT_OK;
    if (f->n == BT_LABELS_MAX)
        return bt_fail(err, BT_ARG,
                       "the rows have more than %d different labels, the limit for classes: is "
                       "'label' the class of a text?",
                       BT_LABELS_MAX);
    if (f->n == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : 16;
        void *more = realloc(f->names, cap * sizeof *f->names);
        if (!more) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu labels", cap);
        f->names = more;
        f->cap = cap;
    }
    memcpy(f->names[f->n++], name, strlen(name) + 1);
    return BT_OK;
}

static bt_code collect_labels(bt_documents *d, found *f, uint64_t *lines, bt_err *err) {
    for (;;) {
        json_t *object;
        bool end;
        char name[BT_LABEL_BYTES];
        bt_err why = BT_ERR_INIT;
        BT_TRY(bt_documents_object(d, &object, &end, err));
        if (end) return BT_OK;
        if (!object) continue;
        ++*lines;
        bt_code code = bt_label_of(object, name, &why);
        if (code == BT_OK) code = add_distinct_label(f, name, &why);
        if (code != BT_OK) BT_TRY(bt_documents_bad_row(d, code, &why, err));
    }
}

static bt_code put_labels(found *f, const char *path, uint64_t lines, bt_text *out, bt_err *err) {
    bool numbers = true;
    if (f->n == 0)
        return bt_fail(err, BT_ARG, "'%.200s' has no labels: list them in data.labels", path);
    if (f->n == 1)
        return bt_fail(err, BT_ARG,
                       "all %llu lines of '%.200s' have the label '%s': a classifier needs at "
                       "least two",
                       (unsigned long long)lines, path, f->names[0]);
    for (size_t i = 0; i < f->n; i++) numbers = numbers && is_whole_number(f->names[i]);
    qsort(f->names, f->n, sizeof *f->names,
          numbers ? compare_labels_by_number : compare_labels_by_bytes);
    for (size_t i = 0; i < f->n; i++) bt_text_printf(out, "%s%s", i ? "\n" : "", f->names[i]);
    return out->failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the labels") : BT_OK;
}

bt_code bt_labels_scan(const bt_source *files, size_t n, bool skip_bad, bt_text *out, bt_err *err) {
    static const char *const row[] = {"label", NULL};
    static const bt_json_selection keys = {.form = "label", .row = row};
    found f = {0};
    uint64_t lines = 0;
    bt_code code = BT_OK;
    for (size_t i = 0; code == BT_OK && i < n; i++) {
        bt_documents *d;
        if (files[i].kind != BT_SOURCE_JSONL) continue;
        code = bt_documents_open(&d, &files[i], 1, "text", err);
        if (code != BT_OK) break;
        bt_documents_rows(d, &keys, skip_bad);
        code = collect_labels(d, &f, &lines, err);
        bt_documents_close(d);
    }
    if (code == BT_OK) code = put_labels(&f, n ? files[0].path : "", lines, out, err);
    free(f.names);
    return code;
}
