/* own_symbols.h - names of this program's functions, static ones too, for stacks.
 *
 * dladdr reads the dynamic symbol table, which has no static functions; this reads .symtab of the executable, which a
 * stripped program lacks. Threads: find is safe in a signal handler after load. */
#ifndef BT_ENGINE_BASE_SYSTEM_OWN_SYMBOLS_H
#define BT_ENGINE_BASE_SYSTEM_OWN_SYMBOLS_H

/* maps the executable, for the life of the process; without effect if that fails */
void bt_own_symbols_load(void);
/* the function that contains the address; NULL: none of this program, or its names are not there */
const char *bt_own_symbol(const void *at);

#endif
