/* locale.h - sets the locale of the process. The user's locale only determines whether the terminal supports UTF-8. All
 * categories except LC_CTYPE are "C", so numbers have a decimal point. LC_CTYPE is C.UTF-8 or "C", not the user's
 * locale, because otherwise a library that compares letters by locale would treat 'i' and 'I' as different letters in
 * Turkish. Only this module calls setlocale. Threads: call before any thread is started. */
#ifndef BT_ENGINE_BASE_SYSTEM_LOCALE_H
#define BT_ENGINE_BASE_SYSTEM_LOCALE_H

#include <stdbool.h>

/* Follows LC_ALL, LC_CTYPE and LANG. Returns true if output may be UTF-8. */
bool bt_locale_follow(void);
/* Sets a UTF-8 locale regardless of the environment. Returns false if this machine has none; "C" then remains. */
bool bt_locale_force_utf8(void);

#endif
