/* fuse_trial.c - decides from its type whether a file system can hold SQLite's log; for FUSE, from the name of the FUSE
 * program and a trial. Some FUSE file systems do not share memory and locks between the processes of a host. Network
 * file systems pass the trial on one host, because its kernel has one cache and one set of locks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/os/file_system.h"
#include "store/sql/sql.h"

enum { PAGE = 4096 };

static bool does_share_memory(int a, int b) {
    char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0), seen = 0;
    if (map == MAP_FAILED) return false;
    map[1] = 'm';
    bool ok = pread(b, &seen, 1, 1) == 1 && seen == 'm';
    ok = ok && pwrite(b, "w", 1, 2) == 1 && *(volatile char *)(map + 2) == 'w';
    munmap(map, PAGE);
    return ok;
}

/* These locks belong to open file descriptions, so two descriptors exclude each other even in one process. */
static bool do_locks_exclude_each_other(int a, int b) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(a, F_OFD_SETLK, &lock) != 0) return false;
    struct flock other = lock;
    if (fcntl(b, F_OFD_SETLK, &other) == 0 || (errno != EAGAIN && errno != EACCES)) return false;
    return flock(a, LOCK_EX | LOCK_NB) == 0 && flock(b, LOCK_EX | LOCK_NB) != 0 &&
           errno == EWOULDBLOCK;
}

bool bt_fs_shares(int a, int b) {
    static const char zeros[PAGE];
    /* Writes the page first, because a full disk would raise SIGBUS in the mapping. SQLite reports a full disk
     * itself. */
    if (pwrite(a, zeros, PAGE, 0) != PAGE) return errno == ENOSPC || errno == EDQUOT;
    return does_share_memory(a, b) && do_locks_exclude_each_other(a, b);
}

/* Skips folders without write permission, because no database can be written there. */
static bool passes_fuse_trial(const char *folder) {
    char path[BT_PATH_BYTES + 40];
    snprintf(path, sizeof path, "%s/.bitrain-probe-XXXXXX", folder);
    const int a = mkostemp(path, O_CLOEXEC);
    if (a < 0) return true;
    const int b = open(path, O_RDWR | O_CLOEXEC);
    const bool works = b >= 0 && bt_fs_shares(a, b);
    if (b >= 0) close(b);
    close(a);
    unlink(path);
    return works;
}

/* FUSE programs whose files other hosts can change */
static const char *const network_types[] = {
    "sshfs",     "rclone",    "s3fs",     "gcsfuse",     "goofys",   "geesefs",       "blobfuse",
    "blobfuse2", "glusterfs", "ceph",     "ceph-fuse",   "juicefs",  "JuiceFS",       "davfs",
    "davfs2",    "curlftpfs", "smbnetfs", "gvfsd-fuse",  "moosefs",  "mfs",           "lizardfs",
    "seaweedfs", "hdfs",      "fuse_dfs", "nfs-ganesha", "mount-s3", "mountpoint-s3", "ipfs",
};

const char *bt_fs_network_fuse(FILE *mounts, unsigned major, unsigned minor) {
    const char *found = NULL;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, mounts) > 0) {
        unsigned a, b;
        char type[64] = "", source[32] = "";
        const char *end = strstr(line, " - "); /* end of the optional fields */
        if (sscanf(line, "%*u %*u %u:%u", &a, &b) != 2 || a != major || b != minor || !end ||
            sscanf(end, " - %63s %31s", type, source) < 1)
            continue;
        /* "fuse.sshfs"; a program without a subtype is named by its source, for example "s3fs". */
        const char *name = strncmp(type, "fuse.", 5) == 0 ? type + 5 : source;
        found = NULL;
        for (size_t i = 0; i < sizeof network_types / sizeof *network_types; i++)
            if (strcmp(name, network_types[i]) == 0) found = network_types[i];
    }
    free(line);
    return found;
}

static const char *find_network_fuse(const char *folder) {
    unsigned a, b;
    FILE *mounts = bt_file_system_mounts(folder, &a, &b);
    if (!mounts) return NULL;
    const char *name = bt_fs_network_fuse(mounts, a, b);
    fclose(mounts);
    return name;
}

/* SQLite's WAL needs shared memory between all processes: one host, one kernel (sqlite.org/wal.html). */
const char *bt_fs_fault(const char *folder, long kind) {
    const bool fuse = bt_file_system_is_fuse(kind);
    const char *network = fuse ? find_network_fuse(folder) : NULL;
    if (network) return network;
    if (fuse && passes_fuse_trial(folder)) return NULL;
    return bt_file_system_shared(kind);
}
