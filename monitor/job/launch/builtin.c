/* builtin.c - creates the built-in text. `bible -f RANGE` prints one verse per line, "Ge1:1 In the beginning ...";
 * the references are removed, because they would be a sixteenth of the text and would teach counting. */
#include "monitor/job/launch/builtin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/system/folders.h"
#include "engine/base/system/start_process.h"

enum { VERSES = 31102 };
static bt_code start_bible(pid_t *pid, int *from, bt_err *err) {
    static const char *const argv[] = {"bible", "-f", "gen1:1-rev22:21", NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return bt_fail_errno(err, BT_IO, errno, "cannot make a pipe");
    const int e = bt_process_start(pid, &(bt_start){.argv = argv, .out = ends[1]});
    close(ends[1]);
    *from = ends[0];
    if (!e) return BT_OK;
    close(ends[0]);
    return e == ENOENT ? bt_fail(err, BT_NOTFOUND,
                                 "the built-in corpus needs the program 'bible': install bible-kjv "
                                 "or pass --data")
                       : bt_fail_errno(err, BT_IO, e, "cannot run 'bible'");
}

/* Copies verses without their references and counts them. */
static bt_code copy_verses(FILE *in, FILE *out, int *verses) {
    char line[4096];
    while (fgets(line, sizeof line, in)) {
        const char *text = strchr(line, ' ');
        if (!text || !strchr(line, ':') || strchr(line, ':') > text) continue;
        fputs(text + 1, out);
        ++*verses;
    }
    return fflush(out) == 0 && fsync(fileno(out)) == 0 && !ferror(in) ? BT_OK : BT_IO;
}

static bt_code make_builtin_text(const char *path, const char *tmp, bt_err *err) {
    pid_t pid;
    int from = -1, status = 0, verses = 0;
    FILE *out = fopen(tmp, "we");
    if (!out) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", tmp);
    bt_code code = start_bible(&pid, &from, err);
    if (code != BT_OK) {
        fclose(out);
        return code;
    }
    FILE *in = fdopen(from, "r");
    if (!in) {
        code = bt_fail_errno(err, BT_IO, errno, "cannot read from 'bible'");
        close(from);
    } else {
        if (copy_verses(in, out, &verses) != BT_OK)
            code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", tmp);
        fclose(in);
    }
    if (fclose(out) != 0 && code == BT_OK)
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", tmp);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (code != BT_OK) return code;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || verses != VERSES)
        return bt_fail(err, BT_IO,
                       "'bible' printed %d verses of %d: reinstall bible-kjv and bible-kjv-text, "
                       "or pass --data",
                       verses, VERSES);
    if (rename(tmp, path) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot rename '%s' to '%s'", tmp, path);
    return BT_OK;
}

bt_code bt_builtin_make(const char *path, bt_err *err) {
    char tmp[PATH_MAX];
    struct stat st;
    /* The file is renamed here only when it is complete. */
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) return BT_OK;
    if (snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid()) >= (int)sizeof tmp)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", path);
    BT_TRY(bt_make_folder_of(path, err));
    bt_code code = make_builtin_text(path, tmp, err);
    if (code != BT_OK) unlink(tmp);
    return code;
}
