/* table.c - prints rows of cells in aligned columns. */
#include "cli/common/printout/table.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void bt_table_init(bt_text_table *t) {
    memset(t, 0, sizeof *t);
    bt_text_init(&t->cells);
    for (int i = 0; i < BT_TABLE_COLUMNS; i++) t->right[i] = true;
}

static int count_characters(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static bool is_figure(const char *s) {
    if (*s == '-' || *s == '+') s++;
    /* a time such as "2025-03-01 14:02" is not a figure */
    return (*s == 0 || (*s >= '0' && *s <= '9') || *s == '.') && !strchr(s, ':');
}

void bt_table_cell(bt_text_table *t, const char *text) {
    char plain[1024];
    if (t->at >= BT_TABLE_COLUMNS) return;
    bt_text_plain(plain, sizeof plain, text ? text : "");
    bt_text_putn(&t->cells, plain, strlen(plain) + 1);
    int w = count_characters(plain);
    if (w > t->width[t->at]) t->width[t->at] = w;
    if (t->n_rows > 0 && !is_figure(plain)) t->right[t->at] = false;
    if (t->n_rows > 0 && plain[0] && !(plain[0] >= '0' && plain[0] <= '9')) t->text[t->at] = true;
    t->at++;
}

void bt_table_cellf(bt_text_table *t, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    bt_table_cell(t, text);
}

void bt_table_end_row(bt_text_table *t) {
    if (t->at > t->n_columns) t->n_columns = t->at;
    bt_text_putn(&t->cells, "\n", 2); /* a newline cannot be part of a cell, so it ends the row */
    t->n_rows++;
    t->at = 0;
}

enum { LEAST_TEXT = 12 }; /* minimum width of a cut text column */

int bt_table_terminal_width(void) {
    struct winsize ws;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) != 0) return 0;
    return ws.ws_col;
}

static int line_width(const bt_text_table *t, const char *indent) {
    int w = count_characters(indent), n = 0;
    for (int i = 0; i < t->n_columns; i++)
        if (!t->left_out[i]) w += t->width[i] + (n++ ? 2 : 0);
    return w;
}

int bt_table_fit(bt_text_table *t, const char *indent, int width) {
    int n = 0;
    while (width > 0 && line_width(t, indent) > width) {
        int worst = -1;
        for (int i = 0; i < t->n_columns; i++)
            if (!t->left_out[i] && t->drop[i] && (worst < 0 || t->drop[i] > t->drop[worst]))
                worst = i;
        if (worst < 0) break;
        t->left_out[worst] = true;
        n++;
    }
    while (width > 0 && line_width(t, indent) > width) {
        int widest = -1;
        for (int i = 0; i < t->n_columns; i++)
            if (!t->left_out[i] && !t->right[i] && t->text[i] && t->width[i] > LEAST_TEXT &&
                (widest < 0 || t->width[i] > t->width[widest]))
                widest = i;
        if (widest < 0) break;
        const int over = line_width(t, indent) - width, room = t->width[widest] - LEAST_TEXT;
        /* shrinks by small amounts, so that two wide columns share the cut */
        t->width[widest] -= over < room ? (over + 1) / 2 : (room + 1) / 2;
    }
    return n;
}

static const char *skip_characters(const char *s, int n) {
    for (; *s && n > 0; n--) do
            s++;
        while (((unsigned char)*s & 0xC0) == 0x80);
    return s;
}

/* Writes a text cut to `width` columns; a path keeps its end. */
static void put_cut_text(bt_text *to, const char *s, int width) {
    const int n = count_characters(s);
    if (n <= width)
        bt_text_put(to, s);
    else if (s[0] == '/')
        bt_text_printf(to, "…%s", skip_characters(s, n - width + 1));
    else
        bt_text_printf(to, "%.*s…", (int)(skip_characters(s, width - 1) - s), s);
}

void bt_table_put(const bt_text_table *t, bt_text *to, const char *indent) {
    const char *p = bt_text_str(&t->cells), *end = p + t->cells.len;
    int column = 0, printed = 0;
    if (t->cells.failed) return;
    while (p < end) {
        size_t n = strlen(p);
        const char *next = p + n + 1;
        if (strcmp(p, "\n") == 0) {
            bt_text_put(to, "\n");
            column = printed = 0;
            p = next;
            continue;
        }
        if (t->left_out[column]) {
            column++;
            p = next;
            continue;
        }
        bool last = strcmp(next, "\n") == 0;
        int pad = t->width[column] - count_characters(p);
        bt_text_put(to, printed++ ? "  " : indent);
        if (t->right[column])
            bt_text_printf(to, "%*s%s", pad, "", p);
        else {
            put_cut_text(to, p, t->width[column]);
            bt_text_printf(to, "%*s", last || pad < 0 ? 0 : pad, "");
        }
        column++;
        p = next;
    }
}

void bt_table_print(const bt_text_table *t, FILE *to, const char *indent) {
    bt_text text;
    bt_text_init(&text);
    bt_table_put(t, &text, indent);
    fputs(bt_text_str(&text), to);
    bt_text_release(&text);
}

void bt_table_release(bt_text_table *t) { bt_text_release(&t->cells); }
