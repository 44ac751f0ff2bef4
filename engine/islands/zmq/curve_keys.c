/* curve_keys.c - creates and reads key files, which only their owner can read. */
#include "engine/islands/zmq/curve_keys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zmq.h>

#include "engine/base/system/ascii.h"
#include "engine/base/text.h"

void bt_curve_wipe(bt_curve_keys *k) { explicit_bzero(k, sizeof *k); }

/* Writes the file completely or not at all. */
static bt_code write_key_file(const char *path, const char *text, mode_t mode, bt_err *err) {
    char tmp[PATH_MAX];
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return bt_fail(err, BT_ARG, "the path '%s' is too long", path);
    unlink(tmp); /* left by a process that died */
    const int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", tmp);
    const size_t n = strlen(text);
    bool ok = write(fd, text, n) == (ssize_t)n && fsync(fd) == 0;
    int why = errno;
    close(fd);
    if (ok && rename(tmp, path) != 0) {
        ok = false;
        why = errno;
    }
    if (ok) return BT_OK;
    unlink(tmp);
    return bt_fail_errno(err, BT_IO, why, "cannot write '%s'", path);
}

/* Writes the public key first, because a pair whose secret file exists is never created again. */
static bt_code write_pair(const char *public_path, const char *public_key, const char *path,
                          const char *text, bt_err *err) {
    char line[BT_CURVE_KEY + 16];
    snprintf(line, sizeof line, "public = %s\n", public_key);
    BT_TRY(write_key_file(public_path, line, 0644, err));
    return write_key_file(path, text, 0600, err);
}

static bool find_key_line(const char *text, const char *word, char out[BT_CURVE_KEY]) {
    const size_t n = strlen(word);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, n) != 0) continue;
        const char *at = line + n + strspn(line + n, " ");
        if (*at != '=') continue;
        at += 1 + strspn(at + 1, " ");
        const size_t len = strcspn(at, " \r\n");
        unsigned char raw[32];
        if (len != BT_CURVE_KEY - 1) return false;
        memcpy(out, at, len);
        out[len] = 0;
        return zmq_z85_decode(raw, out) != NULL;
    }
    return false;
}

enum { FILE_MAX = 1024 };

static bt_code read_key_file(const char *path, char text[FILE_MAX], bool secret, bt_err *err) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno,
                             "cannot read the key file '%s' (keys are made by 'bitrain hub --keys "
                             "DIR NAME...')",
                             path);
    bt_code code = BT_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        code = bt_fail(err, BT_ARG, "'%s' is not a key file", path);
    else if (secret && (st.st_mode & 077) && st.st_uid == geteuid())
        code = bt_fail(err, BT_ARG,
                       "the key file '%s' is readable by other users: protect it with 'chmod 600'",
                       path);
    ssize_t n = code == BT_OK ? read(fd, text, FILE_MAX - 1) : 0;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return code;
}

static bt_code create_key_pair(bt_curve_keys *k, bt_err *err) {
    if (zmq_curve_keypair(k->own_public, k->own_secret) == 0) return BT_OK;
    return bt_fail(
        err, BT_UNSUPPORTED,
        "libzmq was built without CURVE, which islands need: install a libzmq with libsodium");
}

static bt_code create_hub_keys(const char *dir, bt_curve_keys *hub, bt_err *err) {
    char path[PATH_MAX], pub[PATH_MAX], text[FILE_MAX];
    snprintf(path, sizeof path, "%s/hub.key", dir);
    if (access(path, F_OK) == 0) return bt_curve_read(hub, path, "hub", false, err);
    BT_TRY(create_key_pair(hub, err));
    snprintf(text, sizeof text, "# keys of a bitrain hub: secret\npublic = %s\nsecret = %s\n",
             hub->own_public, hub->own_secret);
    snprintf(pub, sizeof pub, "%s/hub.pub", dir);
    const bt_code code = write_pair(pub, hub->own_public, path, text, err);
    explicit_bzero(text, sizeof text);
    return code;
}

/* An existing key file must belong to this hub; otherwise the hub would refuse the island without a message. */
static bt_code check_island_key_file(const char *path, const bt_curve_keys *hub, bt_err *err) {
    bt_curve_keys k;
    bt_code code = bt_curve_read(&k, path, "", true, err);
    if (code == BT_OK && strcmp(k.hub, hub->own_public) != 0)
        code = bt_fail(err, BT_ARG,
                       "'%s' belongs to another hub than the file hub.key in the same folder: "
                       "remove it and create it again",
                       path);
    bt_curve_wipe(&k);
    return code;
}

static bt_code create_island_keys(const char *dir, const char *name, const bt_curve_keys *hub,
                                  bool *made, bt_err *err) {
    char path[PATH_MAX], pub[PATH_MAX], text[FILE_MAX];
    bt_curve_keys k = {.hub = ""};
    snprintf(path, sizeof path, "%s/%s.key", dir, name);
    if (access(path, F_OK) == 0) return check_island_key_file(path, hub, err);
    BT_TRY(create_key_pair(&k, err));
    snprintf(text, sizeof text,
             "# keys of the bitrain island '%s': secret\npublic = %s\nsecret = %s\nhub = %s\n",
             name, k.own_public, k.own_secret, hub->own_public);
    snprintf(pub, sizeof pub, "%s/allowed/%s.pub", dir, name);
    const bt_code code = write_pair(pub, k.own_public, path, text, err);
    explicit_bzero(text, sizeof text);
    bt_curve_wipe(&k);
    *made = true;
    return code;
}

bt_code bt_curve_make(const char *dir, const char *island, bool *made, bt_err *err) {
    char allowed[PATH_MAX];
    bt_curve_keys hub = {.hub = ""};
    *made = false;
    if (!bt_name_ok(island) || bt_ascii_equal(island, "hub"))
        return bt_fail(err, BT_ARG,
                       "'%s' is not a valid name for an island's keys (letters, digits, -, _ and . "
                       "are allowed)",
                       island);
    snprintf(allowed, sizeof allowed, "%s/allowed", dir);
    if ((mkdir(dir, 0700) != 0 && errno != EEXIST) ||
        (mkdir(allowed, 0755) != 0 && errno != EEXIST))
        return bt_fail_errno(err, BT_IO, errno, "cannot create the folder of keys '%s'", dir);
    bt_code code = create_hub_keys(dir, &hub, err);
    if (code == BT_OK) code = create_island_keys(dir, island, &hub, made, err);
    bt_curve_wipe(&hub);
    return code;
}

static bool is_key_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bt_code bt_curve_read(bt_curve_keys *out, const char *path, const char *name, bool want_hub,
                      bt_err *err) {
    char file[PATH_MAX], text[FILE_MAX];
    *out = (bt_curve_keys){.hub = ""};
    if (is_key_folder(path))
        snprintf(file, sizeof file, "%s/%s.key", path, name);
    else
        snprintf(file, sizeof file, "%s", path);
    bt_code code = read_key_file(file, text, true, err);
    if (code == BT_OK && (!find_key_line(text, "public", out->own_public) ||
                          !find_key_line(text, "secret", out->own_secret)))
        code = bt_fail(err, BT_FORMAT, "'%s' is not a key file of 'bitrain hub --keys'", file);
    if (code == BT_OK && want_hub && !find_key_line(text, "hub", out->hub))
        code = bt_fail(err, BT_FORMAT, "'%s' lacks the hub's public key (a line 'hub = ...')",
                       file);
    explicit_bzero(text, sizeof text);
    return code;
}

void bt_curve_allowed_dir(char *out, size_t size, const char *path) {
    const char *slash = strrchr(path, '/');
    if (is_key_folder(path))
        snprintf(out, size, "%s/allowed", path);
    else if (slash)
        snprintf(out, size, "%.*s/allowed", (int)(slash - path), path);
    else
        snprintf(out, size, "allowed");
}

bool bt_curve_allowed(const char *dir, const char *key, char *name, size_t size) {
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        char path[PATH_MAX], text[FILE_MAX], listed[BT_CURVE_KEY];
        const size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".pub") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (read_key_file(path, text, false, NULL) != BT_OK ||
            !find_key_line(text, "public", listed))
            continue;
        found = strcmp(listed, key) == 0;
        if (found) snprintf(name, size, "%.*s", (int)(n - 4), e->d_name);
    }
    if (d) closedir(d);
    return found;
}
