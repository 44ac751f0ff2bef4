/* model_notes.c - prints notes about a model line by line. */
#include "cli/model/model_notes.h"

#include <stdio.h>
#include <string.h>

/* The first line of p, without its line feed; *next is the beginning of the second. */
static size_t first_line_length(const char *p, const char **next) {
    const size_t n = strcspn(p, "\n");
    *next = p + n + (p[n] == '\n');
    return n;
}

void bt_notes_collect(bt_text *kept, bt_text *notes, const char *path) {
    for (const char *p = bt_text_str(notes), *next; *p; p = next) {
        const size_t n = first_line_length(p, &next);
        fprintf(stderr, "%s: %.*s\n", path, (int)n, p);
    }
    bt_text_put(kept, bt_text_str(notes));
    bt_text_clear(notes);
}

void bt_notes_json(bt_json *j, const bt_text *notes) {
    bt_text line = {0};
    bt_json_array(j, "notes");
    for (const char *p = bt_text_str(notes), *next; *p; p = next) {
        bt_text_clear(&line);
        bt_text_putn(&line, p, first_line_length(p, &next));
        bt_json_str(j, NULL, bt_text_str(&line));
    }
    bt_json_end(j, ']');
    bt_text_release(&line);
}
