/* file_system.h - recognises kinds of file systems. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_FILE_SYSTEM_H
#define BT_ENGINE_BASE_OS_FILE_SYSTEM_H

#include <stdbool.h>
#include <stdio.h>

/* Writes the operating system's number for the kind of a file's file system. Returns false: error in errno. */
bool bt_file_system_of_path(const char *path, long *kind);

/* Returns the name of a kind whose files other hosts may change ("FUSE": perhaps); NULL: only this host can. */
const char *bt_file_system_shared(long kind);
bool bt_file_system_is_fuse(long kind);
/* Returns true if the files are in memory and disappear when the machine stops. */
bool bt_file_system_in_memory(long kind);
/* Opens the table of mounted file systems in the form of Linux's /proc/self/mountinfo, and writes the device numbers of
 * a file or folder. NULL: no such table, file or folder. */
FILE *bt_file_system_mounts(const char *path, unsigned *major_number, unsigned *minor_number);

#endif
