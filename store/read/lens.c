/* lens.c - finds lenses in the table and in files. */
#include "store/read/lens.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/expand.h"

enum { FILE_BYTES = 64 << 10, LENSES_MAX = 256 };

static const struct {
    const char *name, *about, *sql;
} shipped[] = {
#define BT_LENS(name, about, sql) {name, about, sql},
#include "store/read/lens.def"
#undef BT_LENS
};
enum { N_SHIPPED = sizeof shipped / sizeof shipped[0] };

void bt_lens_release(bt_lens *l) {
    if (l) bt_text_release(&l->sql);
}

static bool lens_folder(char *out, size_t size) {
    const char *own = getenv("BITRAIN_LENSES"), *config = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    int n = 0;
    if (own && own[0])
        n = snprintf(out, size, "%s", own);
    else if (config && config[0] == '/')
        n = snprintf(out, size, "%s/bitrain/lenses", config);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.config/bitrain/lenses", home);
    return n > 0 && (size_t)n < size;
}

static bt_code read_lens(const char *dir, const char *name, bt_lens *out, bt_err *err) {
    char buf[4096];
    size_t n;
    *out = (bt_lens){0};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->file, sizeof out->file, "%s/%s.sql", dir, name);
    FILE *f = fopen(out->file, "rb");
    if (!f)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno,
                             "cannot read lens '%s'", out->file);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0 && out->sql.len <= FILE_BYTES)
        bt_text_putn(&out->sql, buf, n);
    bool bad = ferror(f) != 0;
    fclose(f);
    const char *sql = bt_text_str(&out->sql);
    bt_code code = BT_OK;
    if (bad || out->sql.failed)
        code = bt_fail(err, BT_IO, "cannot read lens '%s'", out->file);
    else if (out->sql.len > FILE_BYTES || strlen(sql) != out->sql.len)
        code = bt_fail(err, BT_FORMAT, "lens '%s' is not a text of at most 64 KiB", out->file);
    if (code != BT_OK) {
        bt_lens_release(out);
        return code;
    }
    if (strncmp(sql, "--", 2) == 0) {
        const char *words = sql + 2 + strspn(sql + 2, " ");
        snprintf(out->about, sizeof out->about, "%.*s", (int)strcspn(words, "\r\n"), words);
    }
    return BT_OK;
}

static bt_code read_shipped_lens(size_t i, bt_lens *out, bt_err *err) {
    *out = (bt_lens){0};
    snprintf(out->name, sizeof out->name, "%s", shipped[i].name);
    snprintf(out->about, sizeof out->about, "%s", shipped[i].about);
    return bt_sql_expand(&out->sql, shipped[i].sql, err);
}

static bool is_lens_file(const struct dirent *e, char name[64]) {
    size_t n = strlen(e->d_name);
    if (n <= 4 || n - 4 >= 64 || strcmp(e->d_name + n - 4, ".sql") != 0) return false;
    memcpy(name, e->d_name, n - 4);
    name[n - 4] = 0;
    return bt_name_ok(name);
}

static int compare_lens_names(const void *a, const void *b) {
    return strcmp(((const bt_lens *)a)->name, ((const bt_lens *)b)->name);
}

bt_code bt_lens_list(bt_lens **out, size_t *n, bt_err *err) {
    char dir[1024], name[64];
    *n = 0;
    *out = calloc(LENSES_MAX + N_SHIPPED, sizeof **out);
    if (!*out) return bt_fail(err, BT_NOMEM, "no memory for the lenses");
    DIR *d = lens_folder(dir, sizeof dir) ? opendir(dir) : NULL;
    for (const struct dirent *e; d && *n < LENSES_MAX && (e = readdir(d)) != NULL;) {
        bt_err ignored;
        if (is_lens_file(e, name) && read_lens(dir, name, &(*out)[*n], &ignored) == BT_OK) ++*n;
    }
    if (d) closedir(d);
    qsort(*out, *n, sizeof **out, compare_lens_names);
    size_t own = *n;
    for (size_t i = 0; i < N_SHIPPED; i++) {
        bool hidden = false;
        for (size_t k = 0; k < own; k++)
            hidden = hidden || strcmp((*out)[k].name, shipped[i].name) == 0;
        if (!hidden) BT_TRY(read_shipped_lens(i, &(*out)[(*n)++], err));
    }
    return BT_OK;
}

bt_code bt_lens_find(const char *name, bt_lens *out, bt_err *err) {
    char dir[1024];
    bt_lens *all = NULL;
    size_t n = 0;
    if (bt_name_ok(name) && lens_folder(dir, sizeof dir)) {
        bt_code code = read_lens(dir, name, out, err);
        if (code != BT_NOTFOUND) return code;
    }
    for (size_t i = 0; i < N_SHIPPED; i++) {
        if (strcmp(shipped[i].name, name) == 0) return read_shipped_lens(i, out, err);
    }
    bt_code code = bt_lens_list(&all, &n, err);
    if (code == BT_OK) {
        const char *names[LENSES_MAX + N_SHIPPED];
        char shown[64];
        for (size_t i = 0; i < n; i++) names[i] = all[i].name;
        const char *near = bt_nearest(name, names, n);
        bt_text_plain(shown, sizeof shown, name);
        code = near ? bt_fail(err, BT_NOTFOUND, "no lens '%s' (did you mean '%s'?)", shown, near)
                    : bt_fail(err, BT_NOTFOUND,
                              "no lens '%s' (`bitrain query --lenses` lists them)", shown);
    }
    for (size_t i = 0; i < n; i++) bt_lens_release(&all[i]);
    free(all);
    return code;
}
