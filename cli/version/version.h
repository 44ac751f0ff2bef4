/* version.h - the version of this program and the commit of its source. Threads: one. */
#ifndef BT_CLI_VERSION_VERSION_H
#define BT_CLI_VERSION_VERSION_H

/* "0.1.0 (3f2c9d1ab)", or "0.1.0" if the commit is unknown; "+" after the commit: the source had uncommitted changes */
const char *bt_version_text(void);

#endif
