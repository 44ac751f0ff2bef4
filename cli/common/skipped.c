/* skipped.c - prints one line for all skipped files, and one for each note of a reader. */
#include "cli/common/skipped.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/text.h"

void bt_cli_report_skipped(const bt_sources *s) {
    char first[sizeof s->first_skipped];
    if (!s->skipped) return;
    bt_text_plain(first, sizeof first, s->first_skipped);
    fprintf(stderr,
            "warning: %zu file%s skipped (not text): %s%s (--glob '*.txt' selects "
            "files by name)\n",
            s->skipped, s->skipped == 1 ? " is" : "s are", first, s->skipped == 1 ? "" : ", ...");
}

void bt_cli_print_data_notes(const char *notes) {
    char line[600];
    for (const char *s = notes; *s; s += strcspn(s, "\n"), s += *s == '\n') {
        char raw[600];
        snprintf(raw, sizeof raw, "%.*s", (int)strcspn(s + 1, "\n"), s + 1);
        bt_text_plain(line, sizeof line, raw);
        fprintf(stderr, "%s: %s\n", *s == '!' ? "warning" : "note", line);
    }
}
