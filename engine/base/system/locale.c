/* locale.c - sets LC_CTYPE to a UTF-8 locale without a language. */
#include "engine/base/system/locale.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>

static bool is_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

bool bt_locale_force_utf8(void) {
    static const char *const names[] = {"C.UTF-8", "C.utf8", "POSIX.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_CTYPE, names[i]) && is_utf8()) return true;
    return false;
}

bool bt_locale_follow(void) {
    const bool utf8 = setlocale(LC_CTYPE, "") && is_utf8();
    if (!utf8) setlocale(LC_CTYPE, "C");
    /* older systems have no C.UTF-8, so the user's locale is used */
    else if (!bt_locale_force_utf8())
        setlocale(LC_CTYPE, "");
    return utf8;
}
