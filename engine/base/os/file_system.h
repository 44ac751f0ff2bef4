/* file_system.h - kinds of file systems. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_FILE_SYSTEM_H
#define BT_ENGINE_BASE_OS_FILE_SYSTEM_H

#include <stdbool.h>
#include <stdio.h>

/* Writes the kind of the file system that contains a file or folder, a number whose meaning is the system's. Returns
 * false: error in errno. */
bool bt_file_system_of_path(const char *path, long *kind);

/* Returns the name of a kind whose files other hosts may change, or "FUSE", which may be such a kind; NULL: the files
 * belong to this host. */
const char *bt_file_system_shared(long kind);
bool bt_file_system_is_fuse(long kind);
/* True if the files are in memory, and end with the machine. */
bool bt_file_system_in_memory(long kind);
/* Opens the table of mounted file systems in the form of Linux's /proc/self/mountinfo for reading, and writes the
 * numbers of the device on which a file or folder is. NULL: there is no such table, file or folder. */
FILE *bt_file_system_mounts(const char *path, unsigned *major_number, unsigned *minor_number);

#endif
