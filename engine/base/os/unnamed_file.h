/* unnamed_file.h - files without a path, in memory or on a disk. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_UNNAMED_FILE_H
#define BT_ENGINE_BASE_OS_UNNAMED_FILE_H

#include <stdbool.h>
#include <sys/types.h>

/* Creates an empty file without a path, which is deleted when its last descriptor is closed; exec closes the
 * descriptor. name: for lists of mapped files. Returns the descriptor; -1: error in errno. */
int bt_memory_file_create(const char *name);
/* Opens the file behind a descriptor of another process of this user for reading and writing. Returns the descriptor;
 * -1: error in errno. */
int bt_file_of_process(pid_t pid, int fd);
/* Opens a new file without a name, which the system deletes unless bt_file_give_name is called. Returns its descriptor;
 * -1: the file system of the folder, or the system, has no such files. */
int bt_file_create_unnamed(const char *folder, mode_t mode);
/* Gives it a path on the same file system that does not exist yet. Returns false: error in errno. */
bool bt_file_give_name(int fd, const char *path);

#endif
