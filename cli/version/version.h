/* version.h - which build this program is. Threads: one. */
#ifndef BT_CLI_VERSION_VERSION_H
#define BT_CLI_VERSION_VERSION_H

/* "0.1.0 (3f2c9d1ab)", or "0.1.0" if the commit is unknown; a "+" after the commit: with changes that are in none */
const char *bt_version_text(void);

#endif
