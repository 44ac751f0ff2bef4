/* printout.c - writes a result as text or as JSON. */
#include "cli/common/printout/printout.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bt_printout_begin(bt_printout *r, bool json) {
    memset(r, 0, sizeof *r);
    r->json = json;
    bt_table_init(&r->table);
    bt_json_begin(&r->j, &r->out);
    if (json) bt_json_object(&r->j, NULL);
}

void bt_printout_version(bt_printout *r) {
    if (r->json) bt_json_int(&r->j, "version", 1);
}

void bt_printout_line(bt_printout *r, const char *fmt, ...) {
    char text[2048];
    va_list ap;
    if (r->json) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    bt_text_put(&r->out, text);
}

void bt_printout_object(bt_printout *r, const char *key) {
    if (r->json) bt_json_object(&r->j, key);
}

void bt_printout_rows(bt_printout *r, const char *key) {
    if (r->json) bt_json_array(&r->j, key);
    bt_table_release(&r->table);
    bt_table_init(&r->table);
    r->n_rows = 0;
}

void bt_printout_row(bt_printout *r) {
    if (r->json) bt_json_object(&r->j, NULL);
    r->in_row = true;
}

static void put_table_cells(bt_text_table *t, const bt_text *cells) {
    for (const char *p = cells->data; p && p < cells->data + cells->len; p += strlen(p) + 1)
        bt_table_cell(t, p);
    bt_table_end_row(t);
}

void bt_printout_end(bt_printout *r) {
    if (r->json) {
        bt_json_end(&r->j, '}');
    } else if (r->heads.len) { /* the first row with a cell */
        put_table_cells(&r->table, &r->heads);
        put_table_cells(&r->table, &r->first);
        bt_text_release(&r->heads);
        bt_text_release(&r->first);
    } else if (r->table.at) {
        bt_table_end_row(&r->table);
    }
    r->n_rows += r->in_row;
    r->in_row = false;
}

void bt_printout_rows_end(bt_printout *r, const char *indent) {
    if (r->json)
        bt_json_end(&r->j, ']');
    else
        bt_table_put(&r->table, &r->out, indent);
}

static void put_labelled_cell(bt_printout *r, const char *label, const char *text) {
    if (r->json || !label || !r->in_row) return;
    if (r->table.n_rows) {
        bt_table_cell(&r->table, text);
        return;
    }
    bt_text_putn(&r->heads, label, strlen(label) + 1);
    bt_text_putn(&r->first, text, strlen(text) + 1);
}

void bt_printout_str(bt_printout *r, const char *key, const char *label, const char *s) {
    if (r->json && key) bt_json_str(&r->j, key, s);
    put_labelled_cell(r, label, s ? s : "-");
}

void bt_printout_int(bt_printout *r, const char *key, const char *label, int64_t v) {
    char text[32];
    if (r->json && key) bt_json_int(&r->j, key, v);
    snprintf(text, sizeof text, "%lld", (long long)v);
    put_labelled_cell(r, label, text);
}

void bt_printout_bool(bt_printout *r, const char *key, bool v) {
    if (r->json) bt_json_bool(&r->j, key, v);
}

void bt_printout_num(bt_printout *r, const char *key, const char *label, double v, bt_unit unit) {
    char text[64];
    if (r->json && key) bt_json_num(&r->j, key, v);
    put_labelled_cell(r, label, bt_metric_format(text, sizeof text, v, unit));
}

void bt_printout_numf(bt_printout *r, const char *key, const char *label, double v, double scale,
                      const char *fmt) {
    char text[64] = "-";
    if (r->json && key) bt_json_num(&r->j, key, v);
    if (isfinite(v)) snprintf(text, sizeof text, fmt, scale * v);
    put_labelled_cell(r, label, text);
}

void bt_printout_cellf(bt_printout *r, const char *label, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    put_labelled_cell(r, label, text);
}

bt_code bt_printout_print(bt_printout *r, bt_err *err) {
    if (r->json) {
        bt_json_end(&r->j, '}');
        bt_text_put(&r->out, "\n");
    }
    const bool failed = r->out.failed || r->table.cells.failed;
    if (!failed) fputs(bt_text_str(&r->out), stdout);
    bt_printout_release(r);
    return failed ? bt_fail(err, BT_NOMEM, "no memory for the result") : BT_OK;
}

bt_code bt_printout_finish(bt_printout *r, bt_code code, bt_err *err) {
    if (code == BT_OK) return bt_printout_print(r, err);
    bt_printout_release(r);
    return code;
}

void bt_printout_release(bt_printout *r) {
    bt_table_release(&r->table);
    bt_text_release(&r->heads);
    bt_text_release(&r->first);
    bt_text_release(&r->out);
}
