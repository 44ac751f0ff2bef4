/* job_dirs.c - creates the folders of an attempt, and removes folders whose job has ended. */
#include "monitor/job/launch/job_dirs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* a vader segment has 4 MiB */
enum { SHM_PER_RANK = 5 << 20 };

static const char *temporary_folder(void) {
    const char *t = getenv("TMPDIR");
    return t && t[0] == '/' && strlen(t) < 64 ? t
                                              : "/tmp"; /* a socket path has at most 108 bytes */
}

static int remove_job_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    remove(path);
    return 0;
}

static void remove_tree(const char *path) {
    nftw(path, remove_job_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void remove_dead_job_dirs(const char *base) {
    char prefix[48];
    snprintf(prefix, sizeof prefix, "bitrain-%u-", (unsigned)getuid());
    DIR *d = opendir(base);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        char path[PATH_MAX], lock[PATH_MAX + 8];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", base, e->d_name);
        if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid()) continue;
        snprintf(lock, sizeof lock, "%s/lock", path);
        int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) remove_tree(path);
        close(fd);
    }
    closedir(d);
}

void bt_job_dirs_sweep(void) {
    remove_dead_job_dirs(temporary_folder());
    remove_dead_job_dirs("/dev/shm");
}

/* The file is locked before it is renamed, so that another supervisor never finds it unlocked. The lock file contains
 * the path of the job's folder, so each of the two folders of a job identifies the job. */
static int create_locked_job_file(const char *folder, const char *job, bt_err *err) {
    char fresh[300], name[300];
    snprintf(fresh, sizeof fresh, "%s/lock.new", folder);
    snprintf(name, sizeof name, "%s/lock", folder);
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char line[280];
    int n = snprintf(line, sizeof line, "%s\n", job);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0 && write(fd, line, (size_t)n) == n &&
        rename(fresh, name) == 0)
        return fd;
    bt_fail_errno(err, BT_IO, errno, "cannot lock '%s'", name);
    if (fd >= 0) close(fd);
    return -1;
}

static bool shm_has_room(int ranks) {
    struct statvfs v;
    if (statvfs("/dev/shm", &v) != 0 || access("/dev/shm", W_OK) != 0) return false;
    return (uint64_t)v.f_bavail * v.f_frsize >= (uint64_t)ranks * SHM_PER_RANK;
}

bt_code bt_job_dirs_create(bt_job_dirs *s, int ranks, bt_err *err) {
    memset(s, 0, sizeof *s);
    s->lock = s->shm_lock = -1;
    snprintf(s->tmp, sizeof s->tmp, "%s/bitrain-%u-XXXXXX", temporary_folder(), (unsigned)getuid());
    if (!mkdtemp(s->tmp)) {
        bt_code code = bt_fail_errno(
            err, BT_IO, errno, "cannot create '%s' (set TMPDIR to a folder that can be written)",
            s->tmp);
        s->tmp[0] = '\0';
        return code;
    }
    s->lock = create_locked_job_file(s->tmp, s->tmp, err);
    if (s->lock < 0) goto failed;
    if (shm_has_room(ranks)) {
        snprintf(s->shm, sizeof s->shm, "/dev/shm/bitrain-%u-XXXXXX", (unsigned)getuid());
        if (mkdtemp(s->shm)) {
            s->shm_lock = create_locked_job_file(s->shm, s->tmp, err);
            if (s->shm_lock < 0) goto failed;
            return BT_OK;
        }
    }
    if (snprintf(s->shm, sizeof s->shm, "%s/shm", s->tmp) >= (int)sizeof s->shm ||
        mkdir(s->shm, 0700) != 0) {
        bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", s->shm);
        goto failed;
    }
    return BT_OK;
failed:
    bt_job_dirs_remove(s);
    return err ? err->code : BT_IO;
}

void bt_job_dirs_remove(bt_job_dirs *s) {
    if (!s->tmp[0]) return;
    if (s->shm[0]) remove_tree(s->shm);
    remove_tree(s->tmp);
    if (s->lock >= 0) close(s->lock);
    if (s->shm_lock >= 0) close(s->shm_lock);
    memset(s, 0, sizeof *s);
    s->lock = s->shm_lock = -1;
}

static void attempt_folder(char out[280], const char *base, int attempt) {
    snprintf(out, 280, "%.260s/%d", base, attempt);
}

bt_code bt_job_dirs_attempt(const bt_job_dirs *s, int ranks, int attempt, char tmp[280],
                            char shm[280], bt_err *err) {
    attempt_folder(tmp, s->tmp, attempt);
    if (mkdir(tmp, 0700) != 0 && errno != EEXIST)
        return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", tmp);
    attempt_folder(shm, s->shm, attempt);
    const bool memory = s->shm_lock >= 0;
    if ((!memory || shm_has_room(ranks)) && (mkdir(shm, 0700) == 0 || errno == EEXIST))
        return BT_OK;
    if (memory) {
        char base[280];
        snprintf(base, sizeof base, "%s/shm", s->tmp);
        attempt_folder(shm, base, attempt);
        if ((mkdir(base, 0700) == 0 || errno == EEXIST) &&
            (mkdir(shm, 0700) == 0 || errno == EEXIST))
            return BT_OK;
    }
    return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", shm);
}

void bt_job_dirs_attempt_end(const bt_job_dirs *s, int attempt) {
    char folder[280], base[280];
    attempt_folder(folder, s->tmp, attempt);
    remove_tree(folder);
    attempt_folder(folder, s->shm, attempt);
    remove_tree(folder);
    snprintf(base, sizeof base, "%s/shm", s->tmp);
    attempt_folder(folder, base, attempt);
    remove_tree(folder);
}
