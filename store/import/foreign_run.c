/* foreign_run.c - chooses the reader of a file by its first bytes. */
#include "store/import/foreign_run.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 256 << 20 };

void bt_foreign_run_release(bt_foreign_run *r) {
    free(r->at);
    bt_text_release(&r->unused);
    bt_text_release(&r->notes);
    *r = (bt_foreign_run){0};
}

static bool is_event_file(const char *head, size_t n) {
    static const char version[] = "brain.Event:";
    for (size_t i = 12; i + sizeof version - 1 <= n && i < 64; i++)
        if (memcmp(head + i, version, sizeof version - 1) == 0) return true;
    return false;
}

static bt_code read_foreign_text(bt_text *out, FILE *f, const char *path, bt_err *err) {
    char buf[65536];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0 && out->len <= FILE_MOST)
        bt_text_putn(out, buf, n);
    if (ferror(f)) return bt_fail_errno(err, BT_IO, errno, "cannot read '%s'", path);
    if (out->len > FILE_MOST)
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is larger than %d MiB", path, FILE_MOST >> 20);
    return out->failed ? bt_fail(err, BT_NOMEM, "no memory for '%s'", path) : BT_OK;
}

static bt_code read_one_file(bt_foreign_run *r, const char *path, bt_err *err) {
    char head[256];
    bt_text text = {0};
    FILE *f = fopen(path, "re");
    if (!f)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno, "cannot open '%s'",
                             path);
    const size_t n = fread(head, 1, sizeof head, f);
    bt_code code = BT_OK;
    if (is_event_file(head, n)) {
        code = bt_read_tensorboard(r, path, err);
    } else {
        bt_text_putn(&text, head, n);
        code = read_foreign_text(&text, f, path, err);
        if (code == BT_OK && strlen(bt_text_str(&text)) != text.len)
            code = bt_fail(err, BT_FORMAT,
                           "'%s' is neither text nor a TensorBoard event file (CSV, JSON rows and "
                           "event files can be imported)",
                           path);
        if (code == BT_OK && text.len == 0) code = bt_fail(err, BT_FORMAT, "'%s' is empty", path);
        char *first = text.len ? text.data + strspn(text.data, " \t\r\n") : NULL;
        if (code == BT_OK)
            code = *first == '{' || *first == '[' ? bt_read_json_rows(r, path, first, err)
                                                  : bt_read_csv(r, path, bt_text_str(&text), err);
        bt_text_release(&text);
    }
    (void)fclose(f);
    return code;
}

static int is_event_name(const struct dirent *e) { return strstr(e->d_name, ".tfevents.") != NULL; }

static bt_code read_folder(bt_foreign_run *r, const char *path, bt_err *err) {
    struct dirent **list = NULL;
    const int n = scandir(path, &list, is_event_name, alphasort);
    bt_code code = n > 0 ? BT_OK
                         : bt_fail(err, BT_NOTFOUND,
                                   "the folder '%s' has no event file of TensorBoard "
                                   "(events.out.tfevents.*); give the folder of one run",
                                   path);
    for (int i = 0; i < n; i++) {
        bt_text file = {0};
        bt_text_printf(&file, "%s/%s", path, list[i]->d_name);
        if (code == BT_OK) code = read_one_file(r, bt_text_str(&file), err);
        bt_text_release(&file);
        free(list[i]);
    }
    free(list);
    return code;
}

bt_code bt_foreign_run_read(bt_foreign_run *out, const char *path, bt_err *err) {
    struct stat st;
    *out = (bt_foreign_run){0};
    bt_code code = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? read_folder(out, path, err)
                                                               : read_one_file(out, path, err);
    if (code == BT_OK && out->n == 0)
        code = bt_fail(err, BT_FORMAT,
                       "'%s' has no value of a known metric, such as loss, eval_loss or "
                       "learning_rate, with a step",
                       path);
    if (code == BT_OK && (out->unused.failed || out->notes.failed))
        code = bt_fail(err, BT_NOMEM, "no memory for '%s'", path);
    if (code != BT_OK)
        bt_foreign_run_release(out);
    else
        bt_foreign_run_merge(out);
    return code;
}
