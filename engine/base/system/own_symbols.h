/* own_symbols.h - names the functions of this program in stack traces, including static ones.
 *
 * dladdr reads the dynamic symbol table, which lacks static functions. This module reads .symtab of the executable,
 * which a stripped program lacks. Threads: find is safe in a signal handler after load. */
#ifndef BT_ENGINE_BASE_SYSTEM_OWN_SYMBOLS_H
#define BT_ENGINE_BASE_SYSTEM_OWN_SYMBOLS_H

/* Maps the executable for the lifetime of the process; a failure has no effect. */
void bt_own_symbols_load(void);
/* Returns the function that contains the address; NULL: it is not in this program, or the program is stripped. */
const char *bt_own_symbol(const void *at);

#endif
