/* message.h - compares only the key phrase of a message, so that its wording may change. */
#ifndef BT_TESTS_MESSAGE_H
#define BT_TESTS_MESSAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline void message_has(const char *message_text, const char *phrase) {
    if (!strstr(message_text, phrase)) fail_msg("'%s' does not contain '%s'", message_text, phrase);
}

#endif
