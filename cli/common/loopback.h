/* loopback.h - addresses to listen on. */
#ifndef BT_CLI_COMMON_LOOPBACK_H
#define BT_CLI_COMMON_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "engine/base/status.h"

/* address: name or number, optionally followed by ":PORT"; an IPv6 number with a port is in brackets. */
static inline bool bt_is_loopback(const char *address) {
    static const char *const names[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(address, names[i], n) == 0 && (!address[n] || address[n] == ':')) return true;
    }
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* BT_ARG: an address with a port, such as "localhost:8159". option: the option for the address, which the error
 * contains beside --port */
static inline bt_code bt_address_without_port(const char *address, const char *option,
                                              bt_err *err) {
    const char *colon = strchr(address, ':');
    if (!colon || strchr(colon + 1, ':')) return BT_OK; /* two colons: an IPv6 address */
    return bt_fail(err, BT_ARG, "%s takes an address without port (%s %.*s --port %.10s)", option,
                   option, (int)(colon - address), address, colon + 1);
}

#endif
