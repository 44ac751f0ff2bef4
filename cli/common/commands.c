/* commands.c - the table of commands, as main registered it. */
#include <string.h>

#include "cli/common/command.h"

static const bt_command *const *commands;
static size_t n_commands;

void bt_commands_register(const bt_command *const *table, size_t n) {
    commands = table;
    n_commands = n;
}

size_t bt_command_count(void) { return n_commands; }
const bt_command *bt_command_at(size_t i) { return commands[i]; }

const bt_command *bt_command_find(const char *name) {
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}
