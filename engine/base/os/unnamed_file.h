/* unnamed_file.h - files without a path, in memory or on a disk. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_UNNAMED_FILE_H
#define BT_ENGINE_BASE_OS_UNNAMED_FILE_H

#include <stdbool.h>
#include <sys/types.h>

/* Creates an empty file in memory without a path, which exists until its last descriptor is closed; exec closes the
 * descriptor. name: for lists of mapped files. Returns the descriptor; -1: error in errno. */
int bt_memory_file_create(const char *name);
/* Opens the file of another process's descriptor for reading and writing. Returns a descriptor; -1: error in errno. */
int bt_file_of_process(pid_t pid, int fd);
/* Creates a file without a name, which the system deletes unless bt_file_give_name is called. Returns its descriptor;
 * -1: the system, or the file system of the folder, does not support such files. */
int bt_file_create_unnamed(const char *folder, mode_t mode);
/* Gives the file a path on the same file system, at which nothing exists yet. false: error in errno. */
bool bt_file_give_name(int fd, const char *path);

#endif
