/* rank_stack.c - handler of SIGUSR2 in a rank. The functions that the handler calls take no lock that a hanging rank
 * could hold, except for the loader's lock; the supervisor ends the rank afterwards in any case. */
#include "cli/train/rank/rank_stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/own_process.h"
#include "engine/base/system/own_symbols.h"

enum { DEPTH = 32, OWN = 2 /* frames of the handler and of the kernel's return from it */ };
static int me;

/* Returns the name of the function, or its object and offset. */
static const char *symbol_name(void *at, char *out, size_t size) {
    Dl_info where;
    memset(&where, 0, sizeof where);
    (void)dladdr(at, &where);
    if (where.dli_sname) return where.dli_sname;
    const char *own = bt_own_symbol(at);
    if (own) return own;
    const char *file = where.dli_fname ? strrchr(where.dli_fname, '/') : NULL;
    snprintf(out, size, "%s+0x%zx", file ? file + 1 : "?",
             (size_t)((const char *)at - (const char *)where.dli_fbase));
    return out;
}

static void write_stack_on_signal(int sig) {
    char line[900];
    void *frames[DEPTH];
    if (bt_signal_main_thread(sig)) return; /* a thread of MPI received it */
    const int depth = backtrace(frames, DEPTH);
    size_t n = (size_t)snprintf(line, sizeof line, "bitrain: warning: stack of rank %d:", me);
    for (int i = OWN; i < depth; i++) {
        char other[96];
        const char *name = symbol_name(frames[i], other, sizeof other);
        const size_t more = strlen(name) + 3;
        if (n + more + 2 > sizeof line) break;
        n += (size_t)sprintf(line + n, "%s%s", i == OWN ? " " : " < ", name);
        if (strcmp(name, "main") == 0) break;
    }
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0) return;
}

void bt_rank_stack_on_signal(int rank) {
    void *frames[DEPTH];
    struct sigaction a;
    me = rank;
    (void)backtrace(frames, DEPTH); /* loads the libraries of backtrace() outside of the handler */
    bt_own_symbols_load();
    memset(&a, 0, sizeof a);
    a.sa_handler = write_stack_on_signal;
    a.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &a, NULL);
}
