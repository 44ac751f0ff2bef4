/* table.c - aligned columns. */
#include "cli/common/table.h"

#include <stdarg.h>
#include <string.h>

void bt_table_init(bt_table *t) {
    memset(t, 0, sizeof *t);
    bt_text_init(&t->cells);
    for (int i = 0; i < BT_TABLE_COLUMNS; i++) t->right[i] = true;
}

static int characters(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static bool like_a_figure(const char *s) {
    if (*s == '-' || *s == '+') s++;
    /* 2025-03-01 14:02 is none */
    return (*s == 0 || (*s >= '0' && *s <= '9') || *s == '.') && !strchr(s, ':');
}

void bt_table_cell(bt_table *t, const char *text) {
    char plain[1024];
    if (t->at >= BT_TABLE_COLUMNS) return;
    bt_text_plain(plain, sizeof plain, text ? text : "");
    bt_text_putn(&t->cells, plain, strlen(plain) + 1);
    int w = characters(plain);
    if (w > t->width[t->at]) t->width[t->at] = w;
    if (t->n_rows > 0 && !like_a_figure(plain)) t->right[t->at] = false;
    t->at++;
}

void bt_table_cellf(bt_table *t, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    bt_table_cell(t, text);
}

void bt_table_end_row(bt_table *t) {
    if (t->at > t->n_columns) t->n_columns = t->at;
    bt_text_putn(&t->cells, "\n", 2); /* no cell holds a newline: it ends the row */
    t->n_rows++;
    t->at = 0;
}

void bt_table_print(const bt_table *t, FILE *to, const char *indent) {
    const char *p = bt_text_str(&t->cells), *end = p + t->cells.len;
    int column = 0;
    if (t->cells.failed) return;
    while (p < end) {
        size_t n = strlen(p);
        const char *next = p + n + 1;
        if (strcmp(p, "\n") == 0) {
            fputc('\n', to);
            column = 0;
            p = next;
            continue;
        }
        bool last = strcmp(next, "\n") == 0;
        int pad = t->width[column] - characters(p);
        fputs(column ? "  " : indent, to);
        if (t->right[column])
            fprintf(to, "%*s%s", pad, "", p);
        else
            fprintf(to, "%s%*s", p, last ? 0 : pad, "");
        column++;
        p = next;
    }
}

void bt_table_release(bt_table *t) { bt_text_release(&t->cells); }
