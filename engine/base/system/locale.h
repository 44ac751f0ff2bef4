/* locale.h - the process's locale: only whether the terminal takes UTF-8 is read from the user's.
 *
 * All categories but LC_CTYPE stay "C", so numbers have a decimal point. LC_CTYPE becomes C.UTF-8 or "C", not the
 * user's own: a library that compares letters by locale would otherwise find in Turkish that 'i' and 'I' are different
 * letters. This is the only caller of setlocale. Threads: call before others start. */
#ifndef BT_ENGINE_BASE_SYSTEM_LOCALE_H
#define BT_ENGINE_BASE_SYSTEM_LOCALE_H

#include <stdbool.h>

/* follows LC_ALL, LC_CTYPE and LANG; true: output may be UTF-8 */
bool bt_locale_follow(void);
/* takes UTF-8 whatever the environment names; false: this machine has no such locale, "C" remains */
bool bt_locale_force_utf8(void);

#endif
