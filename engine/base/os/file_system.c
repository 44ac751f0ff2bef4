/* file_system.c - statfs. */
#include "engine/base/os/file_system.h"

#include <linux/magic.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

enum { FUSE_MAGIC = 0x65735546 };

bool bt_file_system_of_path(const char *path, long *kind) {
    struct statfs fs;
    if (statfs(path, &fs) != 0) return false;
    *kind = (long)fs.f_type;
    return true;
}

const char *bt_file_system_shared(long kind) {
    static const struct {
        long magic;
        const char *name;
    } shared[] = {
        {NFS_SUPER_MAGIC, "NFS"},     {SMB_SUPER_MAGIC, "SMB"},      {0xFF534D42L, "CIFS"},
        {0xFE534D42L, "SMB2"},        {0x0BD00BD0L, "Lustre"},       {0x47504653L, "GPFS"},
        {0x19830326L, "BeeGFS"},      {0x00C36400L, "CephFS"},       {AFS_SUPER_MAGIC, "AFS"},
        {0x6B414653L, "AFS"},         {CODA_SUPER_MAGIC, "Coda"},    {NCP_SUPER_MAGIC, "NCP"},
        {OCFS2_SUPER_MAGIC, "OCFS2"}, {0x01161970L, "GFS2"},         {FUSE_MAGIC, "FUSE"},
        {V9FS_MAGIC, "9p"},           {0xAAD7AAEAL, "PanFS"},        {0x013111A8L, "IBRIX"},
        {0x20030528L, "OrangeFS"},    {0x858458F6L, "remote ramfs"},
    };
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        if (shared[i].magic == kind) return shared[i].name;
    return NULL;
}

bool bt_file_system_is_fuse(long kind) { return kind == FUSE_MAGIC; }

bool bt_file_system_in_memory(long kind) { return kind == TMPFS_MAGIC || kind == RAMFS_MAGIC; }

FILE *bt_file_system_mounts(const char *path, unsigned *major_number, unsigned *minor_number) {
    struct stat st;
    if (stat(path, &st) != 0) return NULL;
    *major_number = major(st.st_dev);
    *minor_number = minor(st.st_dev);
    return fopen("/proc/self/mountinfo", "re");
}
