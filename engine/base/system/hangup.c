/* hangup.c - reads the disposition of SIGHUP inherited from the parent. */
#include "engine/base/system/hangup.h"

#include <stddef.h>

static struct sigaction inherited;
static bool recorded;

/* Runs before the constructors of the shared libraries. */
static void record_disposition(void) { recorded = sigaction(SIGHUP, NULL, &inherited) == 0; }
__attribute__((section(".preinit_array"),
               used)) static void (*const record_entry)(void) = record_disposition;

void bt_hangup_restore(void) {
    if (recorded) (void)sigaction(SIGHUP, &inherited, NULL);
}

bool bt_hangup_heeded(void) {
    struct sigaction now;
    return sigaction(SIGHUP, NULL, &now) != 0 || now.sa_handler != SIG_IGN;
}

void bt_hangup_add(sigset_t *set) {
    if (bt_hangup_heeded()) sigaddset(set, SIGHUP);
}
