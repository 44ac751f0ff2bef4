/* loopback.h - recognises addresses that only this machine can reach. */
#ifndef BT_CLI_COMMON_LOOPBACK_H
#define BT_CLI_COMMON_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* address: name or number, optionally followed by ":PORT"; an IPv6 number with a port is in brackets. */
static inline bool bt_is_loopback(const char *address) {
    static const char *const names[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(address, names[i], n) == 0 && (!address[n] || address[n] == ':')) return true;
    }
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

#endif
