/* version.c - the version number with the commit. */
#include "cli/version/version.h"

#include <stdio.h>

extern const char bt_commit[]; /* defined by a file that commit.cmake writes at each build */

const char *bt_version_text(void) {
    static char text[64];
    if (!bt_commit[0]) return BITRAIN_VERSION;
    (void)snprintf(text, sizeof text, "%s (%s)", BITRAIN_VERSION, bt_commit);
    return text;
}
