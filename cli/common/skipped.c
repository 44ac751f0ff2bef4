/* skipped.c - one line for all files that were passed over. */
#include "cli/common/skipped.h"

#include <stdio.h>

#include "engine/base/text.h"

void bt_cli_tell_skipped(const bt_sources *s) {
    char first[sizeof s->first_skipped];
    if (!s->skipped) return;
    bt_text_plain(first, sizeof first, s->first_skipped);
    fprintf(stderr,
            "warning: %zu file%s passed over, no text: %s%s (--glob '*.txt' chooses by name)\n",
            s->skipped, s->skipped == 1 ? " is" : "s are", first, s->skipped == 1 ? "" : ", ...");
}
