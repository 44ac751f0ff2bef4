/* own_symbols.h - names the functions of this program in stack traces, including static ones.
 *
 * dladdr reads the dynamic symbol table, which has no static functions. This module reads .symtab of the executable,
 * which is missing in a stripped program. Threads: find is safe in a signal handler after load. */
#ifndef BT_ENGINE_BASE_SYSTEM_OWN_SYMBOLS_H
#define BT_ENGINE_BASE_SYSTEM_OWN_SYMBOLS_H

/* Maps the executable until the process ends; a failure has no effect. */
void bt_own_symbols_load(void);
/* Returns the name of the function that contains an address; NULL: it is outside of the program, or stripped. */
const char *bt_own_symbol(const void *at);

#endif
