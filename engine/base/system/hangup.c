/* hangup.c - reads the disposition of SIGHUP inherited from the parent. */
#include "engine/base/system/hangup.h"

#include <stddef.h>

bool bt_hangup_heeded(void) {
    struct sigaction now;
    return sigaction(SIGHUP, NULL, &now) != 0 || now.sa_handler != SIG_IGN;
}

void bt_hangup_add(sigset_t *set) {
    if (bt_hangup_heeded()) sigaddset(set, SIGHUP);
}
